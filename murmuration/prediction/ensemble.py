"""`Ensemble`: trained members, how they run, and their post-hoc steps; `predict` returns a `Predictive`."""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.core.engines import Engine, Predictor, engine
from murmuration.core.engines.outputs import join
from murmuration.core.population import Named, Population, populate
from murmuration.core.recipe import Recipe
from murmuration.core.roles import ParameterRoles
from murmuration.core.weights import KernelTrace, NetworkWeights
from murmuration.core.weights.family import OUT, effective_kernel
from murmuration.data import Preparation, Split
from murmuration.data.inputs import KeyedInputs, check_prepared, input_dtype, open_labelled, prepare_inputs
from murmuration.data.numpy_arrays import unmasked
from murmuration.data.ranges import Ranges, ranges_of
from murmuration.data.raw import take_keys
from murmuration.data.streamed import Streamed, rows_at_once
from murmuration.likelihoods import CLASSIFICATION, MULTI_LABEL, REGRESSION, TASKS, Gaussian, Likelihood
from murmuration.models.estimators.member import Model
from murmuration.models.estimators.storage import save_models
from murmuration.models.nets.adapt import Output, plain_module, select_output
from murmuration.models.nets.comparison import same_function
from murmuration.models.nets.inputs import output_record
from murmuration.models.nets.validation import digest, plain_tensors, warn_of_softmax
from murmuration.prediction.checks import likelihood_of
from murmuration.prediction.export import EnsembleModule, example_inputs, exporter, preparation_module, require_answers
from murmuration.prediction.outside import outside_of, with_imputed
from murmuration.prediction.posthoc import PostHocConfig
from murmuration.prediction.posthoc.fit import PostHoc, fit_posthoc, posthoc_from_json
from murmuration.prediction.predictive import Predictive
from murmuration.runs import directory as runs
from murmuration.runs.directory import GIVEN, POSTHOC
from murmuration.runs.manifest import Manifest
from murmuration.system.devices import CPU, FLOAT32, resolve_device
from murmuration.system.errors import Failure, Misuse, described, first_line, listed, names_of, notes_once, unknown
from murmuration.system.files import read_json, write_bytes, write_json
from murmuration.system.progress import html_table
from murmuration.system.records import to_json
from murmuration.system.streams import Noise


@dataclass(frozen=True)
class MemberGroup:
    """Members of one architecture.

    Attributes:
        module: The architecture; its own weights are not used.
        population: The weights of the members.
    """

    module: nn.Module
    population: Population


@dataclass(frozen=True, repr=False)
class Ensemble:
    """Trained members, the likelihood of their outputs, and the engine that runs them.

    `fit` and `load` return one; `Ensemble.from_models` makes one of networks trained elsewhere.

    Attributes:
        groups: Networks, in groups of one architecture each.
        likelihood: Distribution of the target given the outputs; None: classification over as many classes as outputs.
        engine: How members are run.
        recipe: The method that trained them.
        manifest: Provenance, as stored in `run.json`.
        history: One record per epoch.
        posthoc: Calibrator, conformal rules and abstention rules; None: none was fitted.
        preparation: Maps inputs as given to `fit` to inputs of the networks; None: inputs are taken as they are.
        models: Members that are not networks; they come after the networks.
        weights: Weights of the members, summing to one; empty: equal.
    """

    groups: tuple[MemberGroup, ...]
    likelihood: Likelihood | None
    engine: Engine
    recipe: Recipe
    manifest: Manifest = field(default_factory=Manifest)
    history: list[dict[str, Any]] = field(default_factory=list)
    posthoc: PostHoc | None = None
    preparation: Preparation | None = None
    models: tuple[Model, ...] = ()
    weights: tuple[float, ...] = ()

    def __repr__(self) -> str:
        """Return one line.

        >>> Ensemble.from_models([nn.Linear(4, 3) for _ in range(2)])
        Ensemble(2 members of Linear, 30 parameters, recipe given, classification)
        """
        kinds = [*(type(group.module).__name__ for group in self.groups), *(model.name for model in self.models)]
        nets, populations = ", ".join(dict.fromkeys(kinds)), [group.population for group in self.groups]
        stored, fixed = sum(p.parameters_stored() for p in populations), sum(p.parameters_fixed() for p in populations)
        fixed_text = f" ({fixed:,} fixed)" if fixed else ""
        fitted = "" if self.posthoc is None else f", calibrator {self.posthoc.calibrator_name}"
        size = f", {stored:,} parameters{fixed_text}" if self.groups else ""
        return f"Ensemble({self.members} members of {nets}{size}, recipe {self.recipe.name}{fitted}, {self.about_task})"

    @property
    def about_task(self) -> str:
        """Return the task, with the names of classes, labels or targets if they are known."""
        task = CLASSIFICATION if self.likelihood is None else self.likelihood.task
        numbered = task == REGRESSION and self.names == tuple(map(str, range(len(self.names))))
        return f"{task} of {listed(self.names, most=5)}" if self.names and not numbered else task

    def _repr_html_(self) -> str:
        data = self.manifest.data
        rows: dict[str, Any] = {
            "task": self.about_task,
            "members": self.members,
            "recipe": self.recipe.name,
            "trained on": data.get("name", ""),
        }
        rows |= {"engine": self.engine.name, "calibrator": getattr(self.posthoc, "calibrator_name", None)}
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
        """Make an ensemble of networks trained elsewhere, of one architecture or several.

        Args:
            models: The networks. They take inputs as they are, floating-point ones in the precision of each network.
            task: "classification", where outputs are the logits of two or more classes, or "regression", where they are
                means of Gaussians.
            noise_std: Standard deviation of these Gaussians.
            likelihood: Replaces `task` and `noise_std`: `mm.MultiLabel(K)`, or `mm.MeanAndStd(K)` for means and
                standard deviations.
            output: Where the outputs are in what a network returns, if not a tensor: a position, a key or attribute,
                or a function, as in `fit`.

        Returns:
            An ensemble whose outputs are float32.

        Raises:
            Misuse: Without networks, or with a task or likelihood that is not known.

        >>> nets = [nn.Linear(4, 3) for _ in range(2)]
        >>> tuple(Ensemble.from_models(nets).predict(torch.zeros(5, 4)).outputs.shape)
        (2, 5, 3)
        """
        if odd := [models] if isinstance(models, nn.Module) else [m for m in models if not isinstance(m, nn.Module)]:
            raise Misuse(f"from_models got {described(odd[0])}: give a list of networks, nn.Module each")
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
        groups = []
        for part in parts:
            module = part[0] if output is None else select_output(copy.deepcopy(part[0]), output)
            groups.append(MemberGroup(module, populate(part.__getitem__, len(part))))
        manifest = Manifest(output=None if output is None else output_record(output))
        return Ensemble(tuple(groups), likelihood, engine("stacked", direct=True), Recipe(GIVEN), manifest)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of classes, labels or targets; their indices if they have no names."""
        data = self.manifest.data
        if not data:
            return ()
        names = data["classes"] or data["preparation"].get("targets")
        return tuple(names or map(str, range(data["targets"])))

    @property
    def members(self) -> int:
        """Return the number of members."""
        return self.networks + len(self.models)

    @property
    def networks(self) -> int:
        """Return the number of members that are networks."""
        return sum(group.population.members for group in self.groups)

    def member(self, index: int) -> nn.Module:
        """Return one member as a plain network.

        Args:
            index: Position of the member.

        Returns:
            A network with its own copy of the weights, on the device of the ensemble. Random weights are replaced by
            their means; `as_module` has their draws.

        Raises:
            Misuse: If there is no such member, or it is not a network.
        """
        if self.networks <= index < self.members:
            name = self.models[index - self.networks].name
            raise Misuse(f"member {index} is a {name}, not a network: its estimator is in ensemble.models")
        for group in self.groups:
            if index < group.population.members:
                member = group.population.group(slice(index, index + 1))
                return _with_tensors(group, member.own, member, self.family)
            index -= group.population.members
        raise Misuse(f"member {index + self.networks}: the ensemble has {self.members}")

    def as_module(self, *, draws: int | None = None, calibrated: bool = True, prepared: bool = False) -> nn.Module:
        """Return the ensemble as one `nn.Module` in evaluation mode, for `torch.export`, ONNX or any service.

        Networks compute in float32 with parameters that need no gradients; conformal and abstention rules are not part
        of the module.

        Args:
            draws: Networks drawn for each member with random weights; None: as many as the recipe says.
            calibrated: Whether to apply the calibrator.
            prepared: Whether the module takes inputs that `prepare` returned; otherwise arrays as `fit` took them, or
                images (N, C, H, W) in the pixel values of training.

        Returns:
            A module from one tensor (N, ...) to float32 tensors by name, as of `predict`: `mean` (N, K), and
            `entropy`, `expected_entropy`, `mutual_information` (N,), or for a regression `aleatoric_var`,
            `epistemic_var`, `total_var` (N, K). Inputs with a value that is not finite in single precision give NaN.
            Other shapes than those of training, and complex numbers, are refused.

        Raises:
            Misuse: If a member is not a network or draws random numbers, or inputs are not a single tensor. Where the
                shape of inputs is not known, the first call of the module refuses random numbers.

        >>> module = Ensemble.from_models([nn.Linear(4, 3) for _ in range(2)]).as_module()
        >>> sorted(module(torch.zeros(5, 4)))
        ['entropy', 'expected_entropy', 'mean', 'mutual_information']
        """
        if self.models:
            raise Misuse(f"a {self.models[0].name} is among the members: only networks can be one module")
        prepare = preparation_module(None if prepared else self.preparation, self.input_dtype)
        times, likelihood = self.recipe.weights.resolve_draws(draws), partial(likelihood_of, self.likelihood)
        networks = [self.member(i) for i in range(self.members)] if times == 1 else self._drawn_networks(times)
        steps = self.posthoc if calibrated else None
        shape = self._input_shape if prepared else getattr(self.preparation, "shape", None)
        parts = prepare, networks, likelihood, getattr(steps, "calibrator", None), shape
        module = EnsembleModule(*parts, self.ranges, getattr(steps, "baseline", None)).eval().to(self.device)
        if self._input_shape is not None:
            module.refuse_draws(torch.zeros(2, *self._input_shape, dtype=self.input_dtype, device=self.device))
        return module.requires_grad_(False)

    def export(self, path: str | Path, x: Any = None, **settings: Any) -> None:
        """Write the ensemble as a file for another program.

        Args:
            path: File to write; its ending, such as ".pt2" (`torch.export`), says what it becomes.
            x: A batch of inputs as `as_module` takes them, whose type the file expects; by default float32 zeros of the
                shape of training.
            **settings: Keywords of `as_module`.

        Raises:
            Misuse: If the ending is unknown, or the shape of inputs.
        """
        program = exporter(Path(path))  # refuses what cannot be written
        if x is None and self._input_shape is None:
            raise Misuse("the shape of inputs is unknown: write export(path, x) with a batch of inputs")
        inputs = torch.zeros(2, *(self._input_shape or ())) if x is None else example_inputs(unmasked(x))
        module = self.as_module(**settings)
        require_answers(module, inputs[:2])  # refuses what the program would not
        write_bytes(Path(path), program(module, inputs))

    def _drawn_networks(self, draws: int) -> list[nn.Module]:
        """Draw the members' weights as `predict` does, each draw as a network; the draws of a member are adjacent."""
        family, plan, networks = self.family, self.manifest.plan, []
        if family.spec.rates or family.spec.dropout == "always":
            raise Misuse(f"recipe {self.recipe.name}: its draws are dropout masks, not weights; write draws=1")
        for group in self.groups:
            weights, population = family.for_draws(group.population)
            for index in range(population.members):
                single, member = population.group(slice(index, index + 1)), plan.get("first_member", 0) + index
                for draw in range(draws):
                    noise = Noise(plan.get("seed", 0), member, draw, "prediction", per_example=False)
                    realised = weights.realise(single.own, single.shared, [noise], buffers=single.buffers)
                    networks.append(_with_tensors(group, realised.own, replace(single, shared=realised.shared), family))
        return networks

    @property
    def device(self) -> torch.device:
        """Return the device of the networks."""
        return self.groups[0].population.device if self.groups else torch.device(CPU)

    def to(self, device: str | torch.device) -> "Ensemble":
        """Return the ensemble with its members on another device.

        Args:
            device: "cpu", "cuda", "cuda:1", "mps" or "auto".

        Returns:
            An ensemble that takes the same inputs, moves them to the device one pass at a time, and returns
            predictions on the CPU.

        Raises:
            Misuse: If the device is not available.

        >>> Ensemble.from_models([nn.Linear(4, 3)]).to("auto").members
        1
        """
        place = resolve_device(device)
        return replace(self, groups=tuple(replace(g, population=g.population.to(place)) for g in self.groups))

    @property
    def kernel_trace(self) -> KernelTrace:
        """Return the kernels of the network, where the recipe uses them."""
        return KernelTrace.from_json(self.manifest.kernels)

    @property
    def parameter_roles(self) -> ParameterRoles:
        """Return the role of every parameter under the recipe; empty for networks trained elsewhere."""
        return ParameterRoles.from_json(self.manifest.parameters)

    @property
    def family(self) -> NetworkWeights:
        """Return the weight family of this network, in the precision of its training."""
        family = self.recipe.weights.in_network(self.kernel_trace, bias_inside=self.recipe.sharing.bias_inside)
        return family.in_precision(self.manifest.plan.get("precision", FLOAT32))

    def prepare(self, x: Any) -> Tensor:
        """Prepare inputs for the networks.

        Args:
            x: Inputs as `fit` took them: an array, a tensor, a pandas table (columns by name, in any order), a path, a
                list of image files, a split of a `Data`, or a `Data`, which stands for its test split.

        Returns:
            Inputs (N, ...) as the networks take them.

        Raises:
            Misuse: If they are of another kind or shape than those of training.
        """
        return self.keyed_inputs(x)[0]

    @notes_once
    def keyed_inputs(self, x: Any, in_memory: bool | None = None, keep: Sequence[str] = ()) -> KeyedInputs:
        """Prepare inputs as `prepare` does, and return them with the names of their rows.

        Args:
            x: As for `prepare`.
            in_memory: As for `open_data`, for files and arrays.
            keep: Columns of a table that become keys.

        Returns:
            Prepared inputs (N, ...), their keys (`index` of a table, `file` of images, columns to keep), and the number
            of missing values of every row that prepared inputs do not show.
        """
        return prepare_inputs(x, self.preparation, shape=self._input_shape, in_memory=in_memory, keep=keep)

    def _opened(self, x: Any, prepared: bool, keep: str | Sequence[str] = ()) -> KeyedInputs:
        """Return prepared inputs and their keys, of inputs as given or prepared before."""
        if not prepared:
            return self.keyed_inputs(x, keep=names_of("keep", keep))
        if keep:
            raise Misuse(f"keep={keep!r} with prepared inputs, which have no columns: give the table")
        return KeyedInputs(check_prepared(x, self.preparation, self._input_shape))

    @cached_property
    def ranges(self) -> Ranges | None:
        """Return the ranges of the training inputs, of tables and rows of numbers; None if they are not known."""
        return None if self.preparation is None else ranges_of(self.preparation)

    @property
    def _input_shape(self) -> tuple[int, ...] | None:
        """Return the shape of one prepared input, or None if any is accepted."""
        return tuple(self.manifest.input_shape) or None

    @property
    def input_dtype(self) -> torch.dtype:
        """Return the type of prepared inputs: int64 for tokens, else float32."""
        return input_dtype(self.preparation)

    @notes_once
    def predict(
        self,
        x: Any,
        *,
        draws: int | None = None,
        calibrated: bool = True,
        prepared: bool = False,
        keep: str | Sequence[str] = (),
    ) -> Predictive:
        """Compute the predictive distribution of N inputs.

        Args:
            x: Inputs as `fit` took them: an array, a tensor, a pandas table, a path or a split (see `prepare`).
            draws: Draws of each member with random weights; None: as many as the recipe says.
            calibrated: Whether to apply the calibrator, if there is one, and to widen predictions outside of the
                training range.
            prepared: Whether `x` is a tensor (N, ...) that was prepared before, such as `data.test.prepared`.
            keep: Columns of a table that become keys of the predictions, such as an identifier.

        Returns:
            Outputs (S, N, K) with their likelihood; S is members times draws.

        Raises:
            Misuse: If the inputs are of another kind or shape than those of training.
        """
        inputs, keys, imputed = self._opened(x, prepared, keep)
        if isinstance(inputs, Streamed):
            chunks = inputs.split(inputs.chunk)
            parts = [self.predict(x, draws=draws, calibrated=calibrated, prepared=True) for x in chunks]
            pred = Predictive.concatenate(parts)
            return replace(pred, keys=keys, outside=with_imputed(pred.outside, imputed))
        times = self.recipe.weights.resolve_draws(draws)
        if self.preparation is None:
            refuse_beyond(inputs, [precision(group.population) for group in self.groups])
        try:
            networks = [predictor(inputs, times) for predictor in self._predictors]
        except (RuntimeError, TypeError, IndexError) as error:
            if self.preparation is not None or isinstance(error, Failure | torch.OutOfMemoryError):
                raise
            what = f"inputs of type {inputs.dtype} and shape {tuple(inputs.shape)}"
            raise Misuse(f"a network given to from_models does not take {what}: {first_line(error)}") from error
        outputs = self._joined([*networks, *(model.outputs(inputs)[None] for model in self.models)])
        posthoc, likelihood = self.posthoc if calibrated else None, likelihood_of(self.likelihood, outputs.shape[-1])
        if self.recipe.name == GIVEN:
            warn_of_softmax(outputs, likelihood, "the networks given to from_models seem")
        weights = draw_weights(self.weights, self.networks, times)
        far = with_imputed(None if self.ranges is None else outside_of(self.ranges, inputs), imputed)
        pred = Predictive(outputs, likelihood, weights, self.names, posthoc, keys, outside=far)
        return pred if posthoc is None else posthoc.widened(posthoc.calibrated(pred))

    def stream(
        self, x: Any, size: int | None = None, *, calibrated: bool = True, prepared: bool = False
    ) -> Iterator[Predictive]:
        """Predict a chunk of inputs at a time, so that the outputs (S, N, K) of all inputs are never in memory.

        Args:
            x: As for `predict`, or what `keyed_inputs` returned.
            size: Inputs per chunk; None: as many as fit into memory.
            calibrated: As for `predict`.
            prepared: As for `predict`.

        Returns:
            An iterator over the predictives of successive chunks.
        """
        opened = x if isinstance(x, KeyedInputs) else self._opened(x, prepared)
        inputs, keys, imputed = opened
        size = size or stream_size(inputs)

        def part(index: int, chunk: Tensor) -> Predictive:
            pred = self.predict(chunk, calibrated=calibrated, prepared=True)
            rows = slice(index * size, (index + 1) * size)
            far = with_imputed(pred.outside, None if imputed is None else imputed[rows])
            return replace(pred, keys=take_keys(keys, rows), outside=far)

        return (part(index, chunk) for index, chunk in enumerate(inputs.split(size)))

    @notes_once
    def labelled(self, source: Any, *, target: str | tuple[str, ...] | None = None) -> Split:
        """Open labelled examples as a split with this ensemble's preparation and classes.

        Args:
            source: A split, a pair (x, y) with labels as `fit` took them, a table with its target, a path, or a `Data`,
                which stands for its test split.
            target: Target column or columns of a table.

        Returns:
            A split with prepared inputs.

        Raises:
            Misuse: If inputs or labels are not as in training.
        """
        if self.preparation is None:
            expected: Any = {"task": CLASSIFICATION if self.likelihood is None else self.likelihood.task, "classes": ()}
        else:
            expected = {"task": self.manifest.data["task"], "classes": tuple(self.manifest.data["classes"])}
        return open_labelled(source, self.preparation, **expected, target=target, shape=self._input_shape)

    @notes_once
    def fit_posthoc(self, x: Any, y: Any = None, config: PostHocConfig | None = None) -> "Ensemble":
        """Fit a calibrator, conformal rules and abstention rules on labelled examples.

        Args:
            x: A split, a path or a table with its target; or inputs, with `y`. The examples must not have been trained
                on; validation examples will do.
            y: Labels or targets as `fit` took them, if `x` has none.
            config: What to fit; None: the defaults of `PostHocConfig`.

        Returns:
            The ensemble with these steps as `posthoc`, which `predict` applies.

        Raises:
            Misuse: With fewer than 20 examples, or a method that the task does not have.

        >>> import murmuration as mm
        >>> data = mm.open_data("two-moons")
        >>> ensemble = mm.fit("mlp", data, members=2, epochs=1).fit_posthoc(data.val)
        >>> ensemble.posthoc.calibrator.name
        'temperature'
        """
        split = self.labelled(x if y is None else (x, y))
        of_classes = (self.manifest.data.get(name) for name in ("class_counts", "class_weights"))
        pred = Predictive.concatenate(list(self.stream(split.prepared, calibrated=False, prepared=True)))
        return replace(self, posthoc=fit_posthoc(pred, split.y, config, *of_classes))

    def _joined(self, parts: list[Tensor]) -> Tensor:
        """Join the outputs (S, N, K) of all groups in single precision; refuse groups of different outputs."""
        shapes = dict.fromkeys(tuple(part.shape[1:]) for part in parts)
        if len(shapes) > 1 or len(next(iter(shapes))) != 2:
            got = " and ".join(map(str, shapes))
            raise Misuse(f"the networks give outputs {got}: expected the same (N, K) of all, K numbers an input")
        return join([part.cpu().float() for part in parts])

    @cached_property
    def _predictors(self) -> tuple[Predictor, ...]:
        """Return the predictor of each group; they keep what repeated predictions can share."""
        plan = self.manifest.plan
        seed, first, predictors = plan.get("seed", 0), plan.get("first_member", 0), []
        for group in self.groups:
            members, dtype = group.population, precision(group.population) if self.preparation is None else None
            streams = {"dtype": dtype, "seed": seed, "first_member": first}
            predictors.append(Predictor(group.module, self.family, members, self.engine, **streams))
            first += members.members
        return tuple(predictors)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the predictors, which copies and other processes make again."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def save(self, path: str | Path) -> None:
        """Write a run directory that `murmuration.load` reads back.

        Args:
            path: A new or empty directory.

        Raises:
            Misuse: If the directory holds a run or other files.
            Failure: If it cannot be written.
        """
        recorded = self
        if not self.manifest.data:  # networks trained elsewhere
            manifest = replace(
                self.manifest,
                recipe=self.recipe.to_json(),
                likelihood={} if self.likelihood is None else self.likelihood.to_json(),
                engine=asdict(self.engine),
                given=[type(group.module).__qualname__ for group in self.groups],
                plain=[{name: digest(t) for name, t in plain_tensors(group.module).items()} for group in self.groups],
            )
            recorded = replace(self, manifest=manifest)
        with runs.creating(Path(path), self.preparation, repeated=True):
            recorded.write(Path(path))

    def write(self, path: Path) -> None:
        """Complete a run directory: post-hoc steps, models, networks, then the manifest that declares it complete.

        Args:
            path: The directory, held by this process.
        """
        if self.posthoc is not None:
            write_json(path / POSTHOC, to_json(self.posthoc))
        manifest = replace(self.manifest, models=save_models(path, self.models) if self.models else [])
        runs.save_members(path, self.to_tensors(bool(manifest.given)), manifest, self.history)

    def to_tensors(self, numbered: bool = False) -> Named:
        """Return the tensors of all groups by name.

        Args:
            numbered: Whether names begin with the number of the group even if there is only one.

        Returns:
            Tensors by name; with several groups, names begin with the number of the group.
        """
        tensors = [group.population.to_tensors() for group in self.groups]
        if len(tensors) == 1 and not numbered:
            return tensors[0]
        return {f"{i}/{name}": t for i, named in enumerate(tensors) for name, t in named.items()}


def stream_size(inputs: Any) -> int:
    """Return the number of inputs to predict at a time.

    It is as many as a data loader reads, where they come from one. Inputs in memory and rows of files are predicted in
    the same chunks, so that results are bit-identical.
    """
    return inputs.chunk if isinstance(inputs, Streamed) else rows_at_once(inputs.shape)


def draw_weights(weights: Sequence[float], networks: int, draws: int) -> Tensor | None:
    """Return the weights (S,) of predictions: those of networks, divided by their draws, then those of models."""
    if not weights:
        return None
    member_weights = torch.tensor(weights, dtype=torch.float64)
    return torch.cat([(member_weights[:networks] / draws).repeat_interleave(draws), member_weights[networks:]])


def refuse_beyond(inputs: Tensor, types: Sequence[torch.dtype]) -> None:
    """Refuse inputs in double precision that are beyond the largest number of the networks' types."""
    largest = min((torch.finfo(dtype).max for dtype in types), default=math.inf)
    if inputs.dtype is torch.float64 and inputs.numel() and inputs.abs().max() > largest:
        raise Misuse(
            f"inputs up to {inputs.abs().max():.2g}: expected numbers up to {largest:.2g}, as the networks have"
        )


def precision(population: Population) -> torch.dtype:
    """Return the type of the first floating-point tensor of members; float32 if they have none."""
    return next((t.dtype for t in population.to_tensors().values() if t.is_floating_point()), torch.float32)


def load_posthoc(path: Path) -> PostHoc | None:
    """Read the post-hoc steps of a run, or None; refuse a file that has changed since it was written."""
    manifest, file = runs.read_run(path), path / POSTHOC
    if POSTHOC not in manifest.files and not file.exists():
        return None
    record = read_json(runs.require_unchanged(path, manifest, POSTHOC))
    try:
        return posthoc_from_json(record)
    except Failure as error:
        raise Failure(f"{file}: {error}") from None


def _with_tensors(group: MemberGroup, own: Named, member: Population, family: NetworkWeights) -> nn.Module:
    """Return a copy of the module with the tensors of one member: `own` (1, ...), and the others of `member`.

    Rank-one factors and masks are multiplied into its kernels.
    """
    module = copy.deepcopy(group.module)
    own_tensors = {name: tensor[0] for name, tensor in {**own, **member.buffers, **member.fixed}.items()}
    tensors = {**own_tensors, **member.shared}
    plain = {name: effective_kernel(kernel, tensors, tensors[name]) for name, kernel in family.spec.kernels.items()}
    if family.spec.bias_inside:
        scaled = {bias: tensors.get(name + OUT) for name in plain for bias in family.spec.kernels[name].biases}
        plain |= {bias: tensors[bias] * out for bias, out in scaled.items() if out is not None}
    module.load_state_dict({**tensors, **plain}, strict=False)
    return module.eval().to(member.device)
