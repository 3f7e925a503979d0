"""Networks of one architecture as points of a weight space, and their outputs at many points.

The weights of a network, in the order of its parameters, are one vector (P,). Trained networks, checkpoints of their
training, points between them and draws around them are vectors alike. `PointOutputs` runs the network at any number of
vectors on the same inputs, a few at a time, so that memory does not grow with their number.
"""

import copy
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.core.engines import Engine, Team, assemble, engine, member_outputs
from murmuration.core.population import Named, Population
from murmuration.core.recipe import POINT, Recipe
from murmuration.core.weights import KernelTrace
from murmuration.data import Data, Split
from murmuration.likelihoods import CLASSIFICATION, Categorical, Likelihood
from murmuration.prediction.ensemble import Ensemble, MemberGroup
from murmuration.runs.manifest import Manifest
from murmuration.system.devices import CPU
from murmuration.system.errors import Misuse
from murmuration.training.batch_norm import refresh_batch_norm, statistics

AT_ONCE = 16  # networks that are in memory together


@dataclass(frozen=True)
class WeightSpace:
    """The weights of one architecture as vectors (P,), in the order of the network's parameters.

    Fixed parameters that all networks have in common are no weights: they stand among the buffers of `Points`.
    """

    module: nn.Module  # the architecture; its own weights are not used
    fixed: frozenset[str] = frozenset()

    @cached_property
    def shapes(self) -> dict[str, torch.Size]:
        """The shape of every parameter that is not fixed."""
        return {name: p.shape for name, p in self.module.named_parameters() if name not in self.fixed}

    @property
    def size(self) -> int:
        """The number P of weights."""
        return sum(shape.numel() for shape in self.shapes.values())

    @cached_property
    def statistics(self) -> tuple[str, ...]:
        """Names of the batch-norm statistics, which depend on the weights and on the training inputs."""
        return tuple(statistics(self.module))

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return parameters (m, ...) of m networks as vectors (m, P)."""
        return torch.cat([parameters[name].flatten(1) for name in self.shapes], dim=1)

    def unflatten(self, vectors: Tensor) -> Named:
        """Return the parameters (m, ...) at vectors (m, P), as views."""
        parts = vectors.split([shape.numel() for shape in self.shapes.values()], dim=1)
        pairs = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(len(vectors), *shape) for (name, shape), part in pairs}


@dataclass(frozen=True)
class Points:
    """Some points of a weight space, with the buffers and the fixed parameters of their networks."""

    space: WeightSpace
    vectors: Tensor  # (m, P)
    buffers: Named  # (m, ...) each
    likelihood: Likelihood | None = None  # None: classification over as many classes as there are outputs

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: slice | list[int]) -> "Points":
        """Return some of the points."""
        buffers = {name: tensor[rows] for name, tensor in self.buffers.items()}
        return replace(self, vectors=self.vectors[rows], buffers=buffers)

    def population(self) -> Population:
        """Return the networks as a population of independent members."""
        return Population(len(self), self.space.unflatten(self.vectors), {}, self.buffers)

    def ensemble(self, like: Ensemble | None = None) -> Ensemble:
        """Make an ensemble of the networks, with the preparation of inputs and the provenance of `like` if given."""
        groups, recipe, runner = (
            (MemberGroup(self.space.module, self.population()),),
            Recipe("given"),
            engine("threads"),
        )
        if like is None:
            return Ensemble(groups, self.likelihood, runner, recipe)
        inherited = {name: getattr(like.manifest, name) for name in INHERITED}
        manifest = Manifest(recipe=recipe.to_json(), engine=asdict(runner), **inherited)
        return Ensemble(groups, like.likelihood, runner, recipe, manifest, preparation=like.preparation)

    def module(self, index: int) -> nn.Module:
        """Return one of the networks as a plain module in evaluation mode, with its own copy of the weights."""
        module = copy.deepcopy(self.space.module)
        module.load_state_dict(self.tensors(index), strict=False)
        return module.eval()

    def tensors(self, index: int) -> Named:
        """Return the parameters and buffers of one of the networks."""
        own = self.space.unflatten(self.vectors[index : index + 1]) | {n: t[[index]] for n, t in self.buffers.items()}
        return {name: tensor[0] for name, tensor in own.items()}

    def around(self, member: int, vectors: Tensor) -> "Points":
        """Return the points at vectors (m, P), with the buffers of one member."""
        rows = slice(member, member + 1)
        buffers = {name: t[rows].expand(len(vectors), *t.shape[1:]).clone() for name, t in self.buffers.items()}
        return replace(self, vectors=vectors, buffers=buffers)

    def refreshed(self, train_x: Tensor | None, runner: Engine | None = None) -> "Points":
        """Return the points with batch-norm statistics computed anew from the training inputs (N, ...).

        A network without batch-norm layers is returned as it is; one with them is refused without inputs.
        """
        if not self.space.statistics:
            return self
        require_training_inputs(train_x)
        fresh = replace(self, buffers={name: tensor.clone() for name, tensor in self.buffers.items()})
        with assemble(runner or engine("threads"), self.space.module) as team:
            refresh(team, fresh.population(), train_x)
        return fresh


INHERITED = ("data", "net", "input_shape", "likelihood", "versions")  # of a manifest, by points beside the ensemble
Networks = Ensemble | Points | Sequence[nn.Module]
Vectors = Iterable[Tensor]  # weight vectors (P,), one after another


def blocks(vectors: Vectors) -> Iterator[list[Tensor]]:
    """Yield the vectors in lists of `AT_ONCE`, the number that fits in memory."""
    remaining = iter(vectors)
    while block := list(itertools.islice(remaining, AT_ONCE)):
        yield block


def require_training_inputs(train_x: Tensor | None) -> None:
    if train_x is None:
        raise Misuse(
            "the network has batch-norm layers, whose statistics belong to its weights: give train_x=, the "
            "training inputs to compute them from"
        )


def refresh(team: Team, members: Population, train_x: Tensor | None) -> None:
    """Compute the batch-norm statistics of the members anew, in place; without training inputs they stay."""
    if train_x is not None:
        family = POINT.in_network(KernelTrace(()))
        refresh_batch_norm(team, family, members, train_x, seed=0, numbers=range(members.members), step=0)


def examples_of(networks: Any, data: Any) -> tuple[Tensor, Tensor]:
    """Return prepared inputs (N, ...) and targets (N, ...) of labelled examples.

    `data` is a `Data` (its test split), a split, or a pair (x, y). An ensemble prepares them as in training, so that
    a pair holds inputs as `fit` took them; for other networks the inputs of a pair are prepared. A split without
    inputs as given holds prepared ones, which are taken as they are.
    """
    if isinstance(data, Split) and data.x is None:
        return data.prepared, data.y
    if isinstance(networks, Ensemble) and networks.preparation is not None:
        data = networks.labelled(data)
    elif isinstance(data, Data):
        data = data.test
    if isinstance(data, Split):
        return data.prepared, data.y
    x, y = (torch.as_tensor(array) for array in data)
    if len(x) != len(y):
        raise Misuse(f"{len(x)} inputs and {len(y)} targets: expected as many of each")
    return x, y


def inputs_of(networks: Any, data: Any) -> Tensor | None:
    """Return prepared inputs (N, ...) without targets, as `examples_of` reads them; None for None."""
    if data is None or isinstance(data, Split):
        return None if data is None else data.prepared
    if isinstance(networks, Ensemble) and networks.preparation is not None:
        return networks.prepare(data)
    return torch.as_tensor(data)


def points_of(networks: Networks) -> Points:
    """Represent networks as points of one weight space.

    Members that share weights, or have factors and masks, count as the equivalent plain networks; a distribution of
    weights counts by its mean. Points are on the CPU.

    Args:
        networks: An ensemble, points (returned unchanged), or modules of one architecture.

    Returns:
        The points.

    Raises:
        Misuse: For networks of several architectures.

    >>> points = points_of([nn.Linear(4, 3), nn.Linear(4, 3)])
    >>> len(points), points.space.size
    (2, 15)
    """
    if isinstance(networks, Points):
        return networks
    ensemble = networks if isinstance(networks, Ensemble) else Ensemble.from_models(networks)
    if len(ensemble.groups) != 1:
        raise Misuse(
            f"networks of {len(ensemble.groups)} architectures have no weight space in common: give those of one"
        )
    ensemble = ensemble.to(CPU)
    group = ensemble.groups[0]
    space = WeightSpace(group.module, frozenset(name for name, t in group.population.fixed.items() if len(t) == 1))
    modules = [ensemble.member(index) for index in range(ensemble.members)]
    tensors = [dict(module.named_buffers()) | dict(module.named_parameters()) for module in modules]
    stacked = {name: torch.stack([member[name].detach() for member in tensors]) for name in tensors[0]}
    buffers = {name: tensor for name, tensor in stacked.items() if name not in space.shapes}
    return Points(space, space.flatten(stacked), buffers, ensemble.likelihood)


@dataclass(frozen=True)
class PointOutputs:
    """The outputs of a network at any weight vectors, on fixed inputs.

    Batch-norm statistics are computed anew at every vector from the training inputs `train_x`; a network that has
    such layers is refused without them. Other buffers are those of the first of `points`.
    """

    points: Points
    x: Tensor  # (N, ...) prepared inputs
    train_x: Tensor | None = None  # (N', ...) prepared training inputs
    engine: Engine = field(default_factory=lambda: engine("threads"))

    def __post_init__(self) -> None:
        if self.points.space.statistics:
            require_training_inputs(self.train_x)

    def __call__(self, vectors: Vectors) -> Iterator[Tensor]:
        """Yield the outputs (N, K) at each of some vectors (P,), in order."""
        family = POINT.in_network(KernelTrace(()))
        with assemble(self.engine, self.points.space.module) as team:
            for block in self._in_memory(team, vectors):
                yield from member_outputs(team, family, block.population(), self.x)

    def scores(self, vectors: Vectors, y: Tensor) -> "PointScores":
        """Return loss, accuracy and predicted classes at each of some vectors (P,), for targets (N, ...)."""
        return score_points(self(vectors), y, self.points.likelihood)

    def modules(self, vectors: Vectors) -> Iterator[nn.Module]:
        """Yield the network at each of some vectors (P,), in order, as a plain module in evaluation mode."""
        with assemble(self.engine, self.points.space.module) as team:
            for block in self._in_memory(team, vectors):
                yield from (block.module(index) for index in range(len(block)))

    def _in_memory(self, team: Team, vectors: Vectors) -> Iterator[Points]:
        """Yield a few of the vectors at a time, with batch-norm statistics of their own."""
        for block in blocks(vectors):
            points = self.points.around(0, torch.stack(block))
            refresh(team, points.population(), self.train_x)
            yield points


def labelled_outputs(
    networks: Networks, data: Any, train: Any = None, members: list[int] | slice = slice(None)
) -> tuple[PointOutputs, Tensor]:
    """Return the outputs of networks on labelled examples, and the targets; `data` is read by `examples_of`.

    Batch-norm statistics are computed from the training examples `train`, other buffers are the first member's.
    """
    points, (x, y) = points_of(networks)[members], examples_of(networks, data)
    return PointOutputs(points, x, inputs_of(networks, train)), y


@dataclass(frozen=True)
class PointScores:
    """What networks do on inputs with targets: their mean loss; of classifiers also accuracy and predicted classes."""

    loss: Tensor  # (m,) float64, mean negative log-likelihood
    accuracy: Tensor  # (m,) float64, NaN of a regression
    labels: Tensor  # (m, N) int16, predicted classes; (m, 0) of a regression
    losses: Tensor  # (m, N) float32, negative log-likelihood of every example
    width: int  # K, outputs of a network

    def agreement(self, labels: Tensor) -> Tensor:
        """Return the fraction of inputs (m,) on which each network predicts the given classes (N,)."""
        if not self.labels.shape[1]:
            raise Misuse("the networks are for regression: only classifiers agree or disagree on a class")
        return (self.labels == labels).double().mean(1)


def score_points(outputs: Iterable[Tensor], y: Tensor, likelihood: Likelihood | None = None) -> PointScores:
    """Score outputs of networks one after another.

    Args:
        outputs: Outputs (N, K) of each network.
        y: Targets (N, ...).
        likelihood: Likelihood of the outputs; by default classification over K classes.

    Returns:
        Loss, accuracy, predicted classes and losses of every network.
    """
    losses, accuracy, labels = [], [], []
    for output in outputs:
        judge = likelihood or Categorical(output.shape[-1])
        classifies = judge.task == CLASSIFICATION
        predicted = judge.logits(output).argmax(-1) if classifies else y.new_empty(0, dtype=torch.int16)
        losses.append(-judge.log_prob(output.unsqueeze(0), y)[0].double())
        accuracy.append((predicted == y).double().mean() if classifies else torch.tensor(math.nan).double())
        labels.append(predicted.to(torch.int16))
    loss = torch.stack([values.mean() for values in losses])
    examples = torch.stack([values.float() for values in losses])
    return PointScores(loss, torch.stack(accuracy), torch.stack(labels), examples, output.shape[-1])
