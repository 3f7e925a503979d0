"""What training leaves: members that can be drawn, and predictions with their uncertainty."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from murmuration.engines import Engine, assemble, engine, member_outputs
from murmuration.errors import Failure, Misuse
from murmuration.likelihoods import Categorical, Gaussian, Likelihood
from murmuration.population import Population, populate
from murmuration.posthoc import PostHocConfig
from murmuration.posthoc.fit import PostHoc, fit_posthoc, posthoc_from_json
from murmuration.posthoc.serialization import to_json
from murmuration.predictive import Predictive
from murmuration.recipe import Recipe
from murmuration.runs import POSTHOC, create_run, read_json, save_members, write_json
from murmuration.weights import Family, NotDirect, Outline, family_of
from murmuration.weights.families import OUT, explicit
from murmuration.weights.outline import outline_from_json

FEW = 16  # inputs whose draws are stacked in any network
STREAM = 4096  # inputs predicted at once when predictions are used up as they come


@dataclass(frozen=True)
class MemberGroup:
    """Members of one architecture."""

    module: nn.Module  # the structure; its own weights are not used
    population: Population


@dataclass(frozen=True)
class Ensemble:
    """Members, what their outputs mean, and how they run."""

    groups: tuple[MemberGroup, ...]
    likelihood: Likelihood | None  # None: classification over as many classes as there are outputs
    engine: Engine
    recipe: Recipe
    manifest: dict[str, Any] = field(default_factory=dict)  # how it came to be
    history: list[dict[str, Any]] = field(default_factory=list)  # one record an epoch
    posthoc: PostHoc | None = None  # what validation examples taught: a calibrator, sets, rules for declining

    @staticmethod
    def from_models(models: Sequence[nn.Module], *, task: str = "classification", noise_std: float = 1.0) -> "Ensemble":
        """An ensemble of networks trained elsewhere, of one architecture or several.

        Outputs are logits, or for `task="regression"` means with noise of standard deviation `noise_std`.

        >>> nets = [nn.Linear(4, 3) for _ in range(2)]
        >>> tuple(Ensemble.from_models(nets).predict(torch.zeros(5, 4)).outputs.shape)
        (2, 5, 3)
        """
        if not models:
            raise Misuse("from_models got no models: give at least one nn.Module")
        alike = all(_same_structure(models[0], model) for model in models)
        kinds = [list(models)] if alike else [[model] for model in models]
        groups = tuple(MemberGroup(kind[0], populate(kind.__getitem__, len(kind))) for kind in kinds)
        likelihood = None if task == "classification" else Gaussian(noise_std)
        return Ensemble(groups, likelihood, engine("threads"), Recipe("given"))

    @property
    def members(self) -> int:
        return sum(group.population.members for group in self.groups)

    def member(self, index: int) -> nn.Module:
        """One member as a plain network with its own copy of its weights."""
        for group in self.groups:
            if index < group.population.members:
                return _as_module(group, index, self.family)
            index -= group.population.members
        raise Misuse(f"member {index + self.members}: the ensemble has {self.members}")

    @property
    def outline(self) -> Outline:
        """The kernels of the network, where the recipe does something with them."""
        return outline_from_json(self.manifest.get("outline"))

    @property
    def family(self) -> Family:
        """What a weight is in this network."""
        return family_of(self.recipe.weighs, self.outline, inside=self.recipe.shares.bias == "inside")

    def predict(self, x: Tensor | np.ndarray, *, draws: int | None = None, calibrated: bool = True) -> Predictive:
        """The predictive distribution for inputs (N, ...): outputs (S, N, K).

        Members whose weights are random answer `draws` times each; the recipe says how often if it is left out. An
        ensemble with a calibrator applies it, unless `calibrated` is False.
        """
        inputs = torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x).float()
        times = self.recipe.weighs.times(draws)
        outputs = torch.cat([self._outputs(group, inputs, times) for group in self.groups]).cpu()
        made = Predictive(outputs, self.likelihood or Categorical(outputs.shape[-1]))
        return self.posthoc.calibrated(made) if self.posthoc is not None and calibrated else made

    def stream(self, x: Tensor, size: int = STREAM, *, calibrated: bool = True) -> Iterator[Predictive]:
        """Predictions for a few inputs at a time: a million inputs never need all (S, N, K) at once."""
        return (self.predict(part, calibrated=calibrated) for part in x.split(size))

    def fit_posthoc(self, x: Tensor, y: Tensor, config: PostHocConfig | None = None) -> "Ensemble":
        """The same ensemble with post-hoc steps that examples teach it; they must not have been trained on.

        >>> import murmuration as mm
        >>> data = mm.open_data("two-moons")
        >>> ensemble = mm.fit("mlp", data, members=2, epochs=1).fit_posthoc(data.val.x, data.val.y)
        >>> ensemble.posthoc.calibrator.name
        'temperature'
        """
        pred = Predictive.concatenate(list(self.stream(x, calibrated=False)))
        return replace(self, posthoc=fit_posthoc(pred, y, config))

    def _outputs(self, group: MemberGroup, x: Tensor, draws: int) -> Tensor:
        """Members' answers, on the engine they were trained on; many draws are stacked where that is faster.

        It is for dense networks, and for a few inputs, whose operators are small. A network that cannot be stacked says
        so by an error of any kind; a mistake of another kind comes again without stacking.
        """
        parameters = dict(group.module.named_parameters())
        dense = all(parameters[name].dim() == 2 for name in self.outline.names)  # else one knows beforehand
        direct = (engine("stacked", direct=True),) if dense else ()
        mapped = (engine("stacked"),) if len(x) <= FEW else ()
        candidates = () if draws == 1 else (*direct, *mapped)
        for candidate in candidates:
            with suppress(NotDirect, RuntimeError), assemble(candidate, group.module) as team:
                return member_outputs(team, self.family, group.population, x, draws)
        with assemble(self.engine if draws == 1 else engine("threads"), group.module) as team:
            return member_outputs(team, self.family, group.population, x, draws)

    def save(self, path: str | Path) -> None:
        """Write a run directory that `murmuration.load` reads back."""
        if len(self.groups) != 1:
            raise Misuse("an ensemble of separate models cannot be saved: keep the models' own files")
        create_run(Path(path), self.manifest)
        save_posthoc(Path(path), self.posthoc)  # before the manifest says that all is there
        save_members(Path(path), self.groups[0].population, self.manifest, self.history)


def save_posthoc(path: Path, posthoc: PostHoc | None) -> None:
    """Put post-hoc steps, if there are some, beside the members of a run."""
    if posthoc is not None:
        write_json(path / POSTHOC, to_json(posthoc))


def load_posthoc(path: Path) -> PostHoc | None:
    """The post-hoc steps of a run, if it has some."""
    file = path / POSTHOC
    if not file.exists():
        return None
    try:
        return posthoc_from_json(read_json(file))
    except Failure as error:
        raise error if str(file) in str(error) else Failure(f"{file}: {error}") from None


def _as_module(group: MemberGroup, index: int, family: Family) -> nn.Module:
    """A member with all that scales its kernels multiplied into them."""
    module, population = copy.deepcopy(group.module), group.population
    own = {name: tensor[index] for name, tensor in {**population.own, **population.buffers}.items()}
    tensors = {**own, **population.shared}
    plain = {name: explicit(kernel, tensors, tensors[name]) for name, kernel in family.how.kernels.items()}
    if family.how.inside:
        scaled = {bias: tensors.get(name + OUT) for name in plain for bias in family.how.kernels[name].biases}
        plain |= {bias: tensors[bias] * out for bias, out in scaled.items() if out is not None}
    module.load_state_dict({**tensors, **plain}, strict=False)
    return module.eval()


def _same_structure(a: nn.Module, b: nn.Module) -> bool:
    """Whether two networks differ in nothing but their weights, as far as their attributes tell."""

    def outline(module: nn.Module) -> list[tuple]:
        return [
            (name, type(part), repr(part), {k: repr(v) for k, v in vars(part).items() if not k.startswith("_")})
            for name, part in module.named_modules()
        ]

    def shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}

    return outline(a) == outline(b) and shapes(a) == shapes(b)
