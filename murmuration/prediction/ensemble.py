"""`Ensemble`: trained members, how they run, and their post-hoc steps; `predict` returns a `Predictive`."""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from murmuration.core.engines import Engine, Predictor, engine
from murmuration.core.engines.outputs import join
from murmuration.core.population import Named, Population, populate
from murmuration.core.recipe import Recipe
from murmuration.core.roles import ParameterRoles
from murmuration.core.weights import KernelTrace, NetworkWeights
from murmuration.core.weights.family import OUT, effective_kernel
from murmuration.data import Data, Preparation, Split, open_split
from murmuration.data.dataset import open_keyed_inputs
from murmuration.data.images import is_image_list
from murmuration.data.preparation import SeveralPreparation, TablePreparation, TokenPreparation, wrong_shape
from murmuration.data.raw import Keys, LoadOptions, as_array, is_series, take_keys
from murmuration.data.streamed import Streamed, as_given, is_reordered, is_streamable, rows_at_once, stream_part
from murmuration.likelihoods import CLASSIFICATION, MULTI_LABEL, REGRESSION, TASKS, Categorical, Gaussian, Likelihood
from murmuration.models.estimators.member import Model
from murmuration.models.estimators.storage import save_models
from murmuration.models.nets.adapt import Output, plain_module, select_output
from murmuration.models.nets.comparison import same_function
from murmuration.models.nets.inputs import OUTPUT, output_record
from murmuration.models.nets.validation import PLAIN, digest, plain_tensors
from murmuration.prediction.export import EnsembleModule, preparation_module
from murmuration.prediction.posthoc import PostHocConfig
from murmuration.prediction.posthoc.fit import PostHoc, fit_posthoc, posthoc_from_json
from murmuration.prediction.posthoc.serialization import to_json
from murmuration.prediction.predictive import Predictive
from murmuration.runs import directory as runs
from murmuration.runs.directory import GIVEN, MODELS, POSTHOC
from murmuration.system.devices import CPU, FLOAT32, resolve_device
from murmuration.system.errors import Failure, Misuse, unknown
from murmuration.system.files import read_json, write_json
from murmuration.system.progress import html_table
from murmuration.system.streams import Noise


@dataclass(frozen=True)
class MemberGroup:
    """Members of one architecture."""

    module: nn.Module  # the architecture; its own weights are not used
    population: Population


@dataclass(frozen=True, repr=False)
class Ensemble:
    """Members in groups of one architecture each, the likelihood of their outputs, and the engine that runs them.

    Members that are not networks (`models`) come after them.
    """

    groups: tuple[MemberGroup, ...]
    likelihood: Likelihood | None  # None: classification over as many classes as there are outputs
    engine: Engine
    recipe: Recipe
    manifest: dict[str, Any] = field(default_factory=dict)  # provenance, as run.json holds it
    history: list[dict[str, Any]] = field(default_factory=list)  # one record per epoch
    posthoc: PostHoc | None = None  # calibrator, conformal rules and abstention rules
    preparation: Preparation | None = None  # inputs as given to `fit` -> inputs of the networks; None: none is needed
    models: tuple[Model, ...] = ()  # members that are not networks
    weights: tuple[float, ...] = ()  # of the members, summing to one; empty: equal

    def __repr__(self) -> str:
        """
        >>> Ensemble.from_models([nn.Linear(4, 3) for _ in range(2)])
        Ensemble(2 members of Linear, 30 parameters, recipe given)
        """
        kinds = [*(type(group.module).__name__ for group in self.groups), *(model.name for model in self.models)]
        nets = ", ".join(dict.fromkeys(kinds))
        stored = sum(group.population.parameters_stored() for group in self.groups)
        fixed = sum(group.population.parameters_fixed() for group in self.groups)
        some = f" ({fixed:,} fixed)" if fixed else ""
        fitted = "" if self.posthoc is None else f", calibrator {getattr(self.posthoc.calibrator, 'name', 'none')}"
        size = f", {stored:,} parameters{some}" if self.groups else ""
        return f"Ensemble({self.members} members of {nets}{size}, recipe {self.recipe.name}{fitted})"

    def _repr_html_(self) -> str:
        data = self.manifest.get("data", {})
        rows: dict[str, Any] = {"members": self.members, "recipe": self.recipe.name, "trained on": data.get("name", "")}
        rows |= {"engine": self.engine.name, "calibrator": getattr(self.posthoc, "calibrator", None)}
        last = self.history[-1].get("ensemble", {}) if self.history else {}
        rows |= {name.replace("val_", "validation "): f"{value:.4g}" for name, value in last.items()}
        return html_table(repr(self), rows)

    @staticmethod
    def from_models(
        models: Sequence[nn.Module],
        *,
        task: str = "classification",
        noise_std: float = 1.0,
        likelihood: Likelihood | None = None,
        output: Output | None = None,
    ) -> "Ensemble":
        """An ensemble of networks trained elsewhere, of one architecture or several.

        Outputs are logits, or for `task="regression"` means of a Gaussian with standard deviation `noise_std`;
        `likelihood` replaces both: `mm.MultiLabel(K)`, or `mm.MeanAndStd(K)` for means and standard deviations. Inputs
        are taken as they are, floating-point ones in the precision of each network; of a `Data` or a split, the
        prepared ones. Outputs are float32. Of networks that give more than a tensor, `output` picks it as in `fit`: a
        position, a key or attribute, or a function.

        >>> nets = [nn.Linear(4, 3) for _ in range(2)]
        >>> tuple(Ensemble.from_models(nets).predict(torch.zeros(5, 4)).outputs.shape)
        (2, 5, 3)
        """
        if isinstance(models, nn.Module) or not all(isinstance(model, nn.Module) for model in models):
            raise Misuse(f"from_models got {type(models).__name__}: give a list of networks, nn.Module each")
        if not models:
            raise Misuse("from_models got no models: give at least one nn.Module")
        if task == MULTI_LABEL and likelihood is None:
            raise Misuse("task='multi-label' without the number of labels: write likelihood=mm.MultiLabel(K)")
        if task not in TASKS:
            raise unknown("task", task, TASKS)
        if likelihood is not None and not isinstance(likelihood, Likelihood):
            raise Misuse(f"likelihood={likelihood!r:.60}: give an object such as mm.MultiLabel(3)")
        if likelihood is None and task == REGRESSION:
            likelihood = Gaussian(noise_std)
        parts: list[list[nn.Module]] = []
        for model in map(plain_module, models):  # neighbours only: members keep the order of the models
            if parts and same_function(parts[-1][0], model):
                parts[-1].append(model)
            else:
                parts.append([model])
        groups = tuple(
            MemberGroup(
                part[0] if output is None else select_output(copy.deepcopy(part[0]), output),
                populate(part.__getitem__, len(part)),
            )
            for part in parts
        )
        picked = {} if output is None else {OUTPUT: output_record(output)}
        return Ensemble(groups, likelihood, engine("stacked", direct=True), Recipe(GIVEN), picked)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes, labels or targets; their indices if they have no names."""
        data = self.manifest.get("data")
        if data is None:
            return ()
        names = data["classes"] or data["preparation"].get("targets")
        return tuple(names or map(str, range(data["targets"])))

    @property
    def members(self) -> int:
        return self.networks + len(self.models)

    @property
    def networks(self) -> int:
        """The number of members that are networks."""
        return sum(group.population.members for group in self.groups)

    def member(self, index: int) -> nn.Module:
        """One member as a plain network with its own copy of the weights, on the device of the ensemble.

        A member with random weights is the network of their means; `as_module` has their draws.
        """
        if self.networks <= index < self.members:
            name = self.models[index - self.networks].name
            raise Misuse(f"member {index} is a {name} and no network: its estimator is in ensemble.models")
        for group in self.groups:
            if index < group.population.members:
                alone = group.population.group(slice(index, index + 1))
                return _with_tensors(group, alone.own, alone, self.family)
            index -= group.population.members
        raise Misuse(f"member {index + self.networks}: the ensemble has {self.members}")

    def as_module(self, *, draws: int | None = None, calibrated: bool = True, prepared: bool = False) -> nn.Module:
        """The ensemble as one `nn.Module` in evaluation mode, for `torch.export`, ONNX or any service.

        It takes inputs (N, ...) as one tensor: arrays as `fit` took them, images (N, C, H, W) in the pixel values of
        training, or with `prepared` inputs that `prepare` returned. It returns float32 tensors by name, those of
        `predict`: `mean` (N, K), and `entropy`, `expected_entropy`, `mutual_information` (N,), or for a regression
        `aleatoric_var`, `epistemic_var`, `total_var` (N, K). Gaussian weights are drawn `draws` times a member, each
        draw stored as a network. Networks compute in float32; conformal and abstention rules are not part of it.

        >>> module = Ensemble.from_models([nn.Linear(4, 3) for _ in range(2)]).as_module()
        >>> sorted(module(torch.zeros(5, 4)))
        ['entropy', 'expected_entropy', 'mean', 'mutual_information']
        """
        if self.models:
            raise Misuse(f"a {self.models[0].name} is among the members: only networks can be one module")
        prepare = preparation_module(None if prepared else self.preparation, self.input_dtype)
        times, likelihood = self.recipe.weights.resolve_draws(draws), partial(_likelihood_of, self.likelihood)
        networks = [self.member(i) for i in range(self.members)] if times == 1 else self._drawn_networks(times)
        calibrator = self.posthoc.calibrator if self.posthoc is not None and calibrated else None
        return EnsembleModule(prepare, networks, likelihood, calibrator).eval().to(self.device)

    def _drawn_networks(self, draws: int) -> list[nn.Module]:
        """Draws of the members' weights as networks, those that `predict` draws; the draws of a member are adjacent."""
        family, plan, found = self.family, self.manifest.get("plan", {}), []
        if family.spec.rates or family.spec.dropout == "always":
            raise Misuse(f"recipe {self.recipe.name}: its draws are dropout masks and no weights; write draws=1")
        for group in self.groups:
            weights, population = family.for_draws(group.population)
            for index in range(population.members):
                alone, member = population.group(slice(index, index + 1)), plan.get("first_member", 0) + index
                for draw in range(draws):
                    noise = Noise(plan.get("seed", 0), member, draw, "prediction", per_example=False)
                    made = weights.realise(alone.own, alone.shared, [noise], buffers=alone.buffers)
                    found.append(_with_tensors(group, made.own, replace(alone, shared=made.shared), family))
        return found

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return self.groups[0].population.device if self.groups else torch.device(CPU)

    def to(self, device: str | torch.device) -> "Ensemble":
        """The ensemble with its members on a device: cpu, cuda, cuda:1, mps or auto.

        `predict` takes the same inputs as before, moves them there a pass at a time, and returns predictions on the
        CPU.

        >>> Ensemble.from_models([nn.Linear(4, 3)]).to("auto").members
        1
        """
        place = resolve_device(device)
        return replace(self, groups=tuple(replace(g, population=g.population.to(place)) for g in self.groups))

    @property
    def kernel_trace(self) -> KernelTrace:
        """The kernels of the network, where the recipe does something with them."""
        return KernelTrace.from_json(self.manifest.get("kernels"))

    @property
    def parameter_roles(self) -> ParameterRoles:
        """The role of every parameter under the recipe; empty for networks trained elsewhere."""
        return ParameterRoles.from_json(self.manifest.get("parameters", []))

    @property
    def family(self) -> NetworkWeights:
        """The weight family of this network, in the precision of its training."""
        found = self.recipe.weights.in_network(self.kernel_trace, bias_inside=self.recipe.sharing.bias_inside)
        return found.in_precision(self.manifest.get("plan", {}).get("precision", FLOAT32))

    def prepare(self, x: Any) -> Tensor:
        """Inputs (N, ...) as the networks take them, from inputs as `fit` took them.

        `x` is an array, a tensor, a pandas table (columns by name, in any order), a path, a list of image files, a
        split of a `Data`, or a `Data`, which stands for its test split.
        """
        return self.keyed_inputs(x)[0]

    def keyed_inputs(self, x: Any, in_memory: bool | None = None) -> tuple[Tensor, Keys]:
        """The inputs of `prepare`, and the caller's names of them: `index` of a table, `file` of images, or none.

        `in_memory` is that of `open_data`, for files and arrays.
        """
        source: Any = x.test if isinstance(x, Data) else x
        if isinstance(source, Streamed) and self.preparation is not None:
            read: Any = source.prepared(self.preparation)
            return read, {}
        if is_streamable(source):
            return self._streamed(source), {}
        if isinstance(source, Split):
            if self.preparation is None:
                return self._checked(source.prepared), source.keys
            if isinstance(source.x, Streamed) and source.x.preparation == self.preparation:
                return source.prepared, source.keys
            if source.x is None:
                raise Misuse("the split holds prepared inputs only: write predict(split.prepared, prepared=True)")
            return self.keyed_inputs(source.x)[0], source.keys
        if self.preparation is None:
            return self._checked(source), {}
        if isinstance(self.preparation, SeveralPreparation):  # a tuple of two arrays is not a pair (x, y) here
            return self.preparation.apply(source), {}
        if isinstance(source, list) and not is_image_list(source):
            source = np.asarray(source)
        if is_series(source):
            if isinstance(self.preparation, TablePreparation) or self.preparation.shape != (1,):
                raise Misuse("one row as a pandas Series: write frame.iloc[[0]], a table of one row")
            source = source.to_numpy()
        return open_keyed_inputs(source, preparation=self.preparation, in_memory=in_memory)

    def _streamed(self, source: Any, ordered: bool = True) -> Tensor:
        """The inputs of a torch dataset or data loader, still to be read; refuses a loader in another order."""
        if ordered and isinstance(source, DataLoader) and is_reordered(source):
            raise Misuse(
                "a DataLoader with shuffle=True or a sampler: write shuffle=False to keep the order of predictions"
            )
        if self.preparation is not None:
            return open_keyed_inputs(source, preparation=self.preparation)[0]
        inputs = stream_part(source, LoadOptions(labelled=False)).inputs
        found: Tensor = inputs.prepared(as_given(inputs, None))
        return found

    @property
    def input_dtype(self) -> torch.dtype:
        """The type of prepared inputs: int64 for tokens, else float32."""
        return torch.int64 if isinstance(self.preparation, TokenPreparation) else torch.float32

    def _checked(self, x: Any) -> Tensor:
        """Prepared inputs (N, ...), floats in single precision; refuses another shape than training's, and NaN."""
        if isinstance(x, Streamed):
            return x  # type: ignore[return-value]  # reads like a tensor
        try:
            inputs = torch.as_tensor(x)
        except (TypeError, ValueError, RuntimeError):  # torch raises any of them
            raise Misuse(f"inputs of type {type(x).__name__}: expected a tensor or array (N, ...) of numbers") from None
        if inputs.is_floating_point() and not (math.isfinite(inputs.sum()) or inputs.isfinite().all()):
            raise Misuse("the inputs hold NaN or infinite values: expected finite numbers")
        expected = tuple(self.manifest.get("input_shape", inputs.shape[1:]))
        if tuple(inputs.shape[1:]) != expected:
            raise wrong_shape(inputs, expected)
        if inputs.is_floating_point() and not self.input_dtype.is_floating_point:
            raise Misuse(f"prepared inputs of type {inputs.dtype} for a run trained on tokens: expected whole numbers")
        return inputs if self.preparation is None else inputs.to(self.input_dtype)

    def predict(
        self, x: Any, *, draws: int | None = None, calibrated: bool = True, prepared: bool = False
    ) -> Predictive:
        """The predictive distribution for N inputs: outputs (S, N, K).

        `x` is what `fit` took: an array, a tensor, a pandas table, a path or a split (see `prepare`). With `prepared`,
        it is a tensor (N, ...) of inputs that were prepared before, such as `data.test.prepared`. Members with random
        weights are drawn `draws` times each, by default as often as the recipe says: S is members times draws. The
        calibrator, if there is one, is applied unless `calibrated` is False.
        """
        inputs, keys = (self._checked(x), {}) if prepared else self.keyed_inputs(x)
        if isinstance(inputs, Streamed):
            chunks = inputs.split(inputs.chunk)
            parts = [self.predict(x, draws=draws, calibrated=calibrated, prepared=True) for x in chunks]
            return Predictive.concatenate(parts)
        times = self.recipe.weights.resolve_draws(draws)
        networks = [predictor(inputs, times) for predictor in self._predictors]
        outputs = self._joined([*networks, *(model.outputs(inputs)[None] for model in self.models)])
        posthoc = self.posthoc if calibrated else None
        likelihood = _likelihood_of(self.likelihood, outputs.shape[-1])
        weights = draw_weights(self.weights, self.networks, times)
        made = Predictive(outputs, likelihood, weights, self.names, posthoc, keys)
        if posthoc is None:
            return made
        better = posthoc.calibrated(made)
        return better if better.posthoc is posthoc else replace(better, names=made.names, posthoc=posthoc, keys=keys)

    def stream(
        self, x: Any, size: int | None = None, *, calibrated: bool = True, prepared: bool = False
    ) -> Iterator[Predictive]:
        """Predictions for `size` inputs at a time, so that outputs (S, N, K) of all inputs are never in memory."""
        inputs, keys = (self._checked(x), {}) if prepared else self.keyed_inputs(x)
        size = size or stream_size(inputs)

        def part(index: int, some: Tensor) -> Predictive:
            made = self.predict(some, calibrated=calibrated, prepared=True)
            return replace(made, keys=take_keys(keys, slice(index * size, (index + 1) * size)))

        return (part(index, some) for index, some in enumerate(inputs.split(size)))

    def labelled(self, source: Any, *, target: str | tuple[str, ...] | None = None) -> Split:
        """Labelled examples as a split with this ensemble's preparation and classes.

        `source` is a split, a pair (x, y) with labels as `fit` took them, a table with its target, a path or a `Data`
        (its test split).
        """
        if isinstance(source, Data):
            source = source.test
        if isinstance(source, Split):
            return replace(source, prepared=self.prepare(source))
        if self.preparation is None and is_streamable(source):
            part = stream_part(source, LoadOptions())
            return Split(part.inputs, self._targets(part.targets), self._streamed(source, ordered=False))
        if self.preparation is None:
            x, y = source
            return Split(self._checked(x), self._targets(y))
        record = self.manifest["data"]
        known: dict[str, Any] = {"task": record["task"], "classes": tuple(record["classes"])}
        return open_split(source, preparation=self.preparation, target=target, **known)

    def _targets(self, y: Any) -> Tensor:
        """Labels (N,), or targets (N, K) in double precision, for networks trained elsewhere."""
        targets = torch.as_tensor(as_array(y))
        if self.likelihood is not None and self.likelihood.task != CLASSIFICATION:
            return (targets[:, None] if targets.ndim == 1 else targets).double()
        if targets.is_floating_point() or targets.ndim != 1:
            got = f"{targets.dtype} of shape {tuple(targets.shape)}"
            raise Misuse(f"labels are {got}: expected whole numbers (N,), the places of the classes in the outputs")
        return targets.long()

    def fit_posthoc(self, x: Any, y: Any = None, config: PostHocConfig | None = None) -> "Ensemble":
        """The ensemble with a calibrator, conformal rules and abstention rules fitted on labelled examples.

        `x` is a split, a path or a table with its target; or inputs, with labels or targets `y` as `fit` took them. The
        examples must not have been trained on; validation examples will do.

        >>> import murmuration as mm
        >>> data = mm.open_data("two-moons")
        >>> ensemble = mm.fit("mlp", data, members=2, epochs=1).fit_posthoc(data.val)
        >>> ensemble.posthoc.calibrator.name
        'temperature'
        """
        split = self.labelled(x if y is None else (x, y))
        parts = list(self.stream(split.prepared, calibrated=False, prepared=True))
        counts = self.manifest.get("data", {}).get("class_counts")
        return replace(self, posthoc=fit_posthoc(Predictive.concatenate(parts), split.y, config, counts))

    def _joined(self, parts: list[Tensor]) -> Tensor:
        """The outputs (S, N, K) of all groups in single precision; refuses groups of different outputs."""
        shapes = dict.fromkeys(tuple(part.shape[1:]) for part in parts)
        if len(shapes) > 1 or len(next(iter(shapes))) != 2:
            got = " and ".join(map(str, shapes))
            raise Misuse(f"the networks give outputs {got}: expected the same (N, K) of all, K numbers an input")
        return join([part.cpu().float() for part in parts])

    @cached_property
    def _predictors(self) -> tuple[Predictor, ...]:
        """The predictor of each group; they keep what repeated predictions can share."""
        plan = self.manifest.get("plan", {})
        seed, first, found = plan.get("seed", 0), plan.get("first_member", 0), []
        for group in self.groups:
            dtype = precision(group.population) if self.preparation is None else None
            streams = {"seed": seed, "first_member": first}
            found.append(Predictor(group.module, self.family, group.population, self.engine, dtype=dtype, **streams))
            first += group.population.members
        return tuple(found)

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: predictors are made anew by copies and in other processes."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def save(self, path: str | Path) -> None:
        """Write a run directory that `murmuration.load` reads back."""
        described = self if "data" in self.manifest else replace(self, manifest=self._description())
        with runs.creating(Path(path), self.preparation):
            described.write(Path(path))

    def write(self, path: Path) -> None:
        """Complete a run directory: post-hoc steps, models, networks, then the manifest that declares it complete."""
        save_posthoc(path, self.posthoc)
        stored = {MODELS: save_models(path, self.models)} if self.models else {}
        runs.save_members(path, self.to_tensors(GIVEN in self.manifest), {**self.manifest, **stored}, self.history)

    def to_tensors(self, numbered: bool = False) -> Named:
        """The tensors of all groups; their names begin with the number of the group if there are several."""
        tensors = [group.population.to_tensors() for group in self.groups]
        if len(tensors) == 1 and not numbered:
            return tensors[0]
        return {f"{i}/{name}": t for i, named in enumerate(tensors) for name, t in named.items()}

    def _description(self) -> dict[str, Any]:
        """The manifest of networks trained elsewhere."""
        return {
            "recipe": self.recipe.to_json(),
            "likelihood": None if self.likelihood is None else self.likelihood.to_json(),
            "engine": asdict(self.engine),
            GIVEN: [type(group.module).__qualname__ for group in self.groups],
            PLAIN: [{name: digest(t) for name, t in plain_tensors(group.module).items()} for group in self.groups],
            **self.manifest,
        }


def stream_size(inputs: Any) -> int:
    """The number of inputs that are predicted at a time: as many as a data loader reads, where they come from one.

    Inputs in memory and rows of files are predicted in the same pieces, and so have the same bits.
    """
    return inputs.chunk if isinstance(inputs, Streamed) else rows_at_once(inputs.shape)


def draw_weights(weights: Sequence[float], networks: int, draws: int) -> Tensor | None:
    """Weights (S,) of predictions from those of members: networks, each drawn so many times, then models."""
    if not weights:
        return None
    given = torch.tensor(weights, dtype=torch.float64)
    return torch.cat([(given[:networks] / draws).repeat_interleave(draws), given[networks:]])


def precision(population: Population) -> torch.dtype:
    """The type of the first floating-point tensor of members; float32 if they have none."""
    named = population.to_tensors()
    return next((tensor.dtype for tensor in named.values() if tensor.is_floating_point()), torch.float32)


def save_posthoc(path: Path, posthoc: PostHoc | None) -> None:
    """Write post-hoc steps, if there are any, beside the members of a run."""
    if posthoc is not None:
        write_json(path / POSTHOC, to_json(posthoc))


def load_posthoc(path: Path) -> PostHoc | None:
    """The post-hoc steps of a run, or None; refused if they are not those that were written."""
    manifest, file = runs.read_run(path), path / POSTHOC
    if POSTHOC not in manifest[runs.FILES] and not file.exists():
        return None
    record = read_json(runs.require_unchanged(path, manifest, POSTHOC))
    try:
        return posthoc_from_json(record)
    except Failure as error:
        raise Failure(f"{file}: {error}") from None


def _likelihood_of(known: Likelihood | None, width: int) -> Likelihood:
    """The likelihood of so many outputs; networks trained elsewhere may have any number."""
    if isinstance(known, Gaussian) and known == Gaussian(known.noise_std):
        return replace(known, targets=width)
    return known or Categorical(width)


def _with_tensors(group: MemberGroup, own: Named, alone: Population, family: NetworkWeights) -> nn.Module:
    """A module with the own tensors (1, ...) given and the other ones of a single member.

    Rank-one factors and masks are multiplied into its kernels.
    """
    module = copy.deepcopy(group.module)
    mine = {name: tensor[0] for name, tensor in {**own, **alone.buffers, **alone.fixed}.items()}
    tensors = {**mine, **alone.shared}
    plain = {name: effective_kernel(kernel, tensors, tensors[name]) for name, kernel in family.spec.kernels.items()}
    if family.spec.bias_inside:
        scaled = {bias: tensors.get(name + OUT) for name in plain for bias in family.spec.kernels[name].biases}
        plain |= {bias: tensors[bias] * out for bias, out in scaled.items() if out is not None}
    module.load_state_dict({**tensors, **plain}, strict=False)
    return module.eval().to(alone.device)
