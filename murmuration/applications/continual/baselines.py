"""Learners to compare with: networks with and without replay or a penalty on change, and class means.

| learner | what it keeps of earlier tasks |
|---|---|
| `NetworkLearner()` | nothing: plain training |
| `NetworkLearner(memory=...)` | examples, replayed beside each batch |
| `NetworkLearner(penalty=...)` | elastic weight consolidation (Kirkpatrick et al. 2017; online, Schwarz et al. 2018) |
| `ClassMeans` | means of the classes, and the pooled covariance: streaming discriminant analysis |

With several members a network is a deep ensemble; each draws replayed examples of its own.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.applications.continual.latents import ClassStatistics, LatentClasses
from murmuration.applications.continual.learner import CHUNK, State, memory_of, named_by_part, nothing_seen
from murmuration.applications.continual.settings import NOT_NEGATIVE, POSITIVE, Expected
from murmuration.core.dynamics import Optimizer, StepTime, TrainTime
from murmuration.core.population import Named, below, populate
from murmuration.core.weights import Point, Structure, run_members, trace_kernels
from murmuration.likelihoods import Categorical
from murmuration.models.nets import build_net
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Failure, Misuse, require_integer
from murmuration.system.settings import AtLeast, check_settings
from murmuration.system.streams import ALL_MEMBERS, Noise, generator, global_stream

OPTIMIZER = Optimizer("adam")


class Reservoir:
    """A memory of examples for replay: a uniform sample of all examples seen (algorithm R, Vitter 1985)."""

    def __init__(self, capacity: int) -> None:
        require_integer("capacity", capacity, 1)
        self.capacity, self.seen = capacity, Counter[int]()  # label -> examples
        self.x, self.y = torch.zeros(0), torch.zeros(0, dtype=torch.int64)  # (n, ...), (n,)

    def __len__(self) -> int:
        return len(self.y)

    def add(self, x: Tensor, y: Tensor, generator: torch.Generator) -> None:
        """Offer examples x (N, ...) with labels y (N,) to the memory, which stores or drops each."""
        uniform = torch.rand(len(y), 2, generator=generator, dtype=torch.float64).tolist()
        row_of_slot: dict[int, int] = {}  # the last row that a slot is given to
        labels = self.y.tolist()
        for row, label in enumerate(y.tolist()):
            self.seen[label] += 1
            slot = len(labels) if len(labels) < self.capacity else self.slot(label, labels, *uniform[row])
            if slot is not None:
                labels[slot : slot + 1] = [label]
                row_of_slot[slot] = row
        before = self.x if len(self) else x[:0]
        self.x = torch.cat([before, x.new_zeros(len(labels) - len(self), *x.shape[1:])])
        self.x[list(row_of_slot)] = x[list(row_of_slot.values())]
        self.y = torch.tensor(labels, dtype=torch.int64)

    def slot(self, label: int, labels: list[int], first: float, second: float) -> int | None:
        """Return the slot of an example in a full memory, from two uniform numbers; None to drop it."""
        index = int(first * self.seen.total())
        return index if index < self.capacity else None

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return examples x (count, ...) and y (count,) of the memory, with replacement."""
        rows = torch.randint(len(self), (count,), generator=generator)
        return self.x[rows], self.y[rows]


class BalancedReservoir(Reservoir):
    """Equally many examples of every class, as far as there are, each class a uniform sample (Chrysakis, Moens 2020).

    An example of a class that is not among the largest takes the place of one of a largest class. One of a largest
    class takes the place of another of its class, as in a reservoir of its own.
    """

    def slot(self, label: int, labels: list[int], first: float, second: float) -> int | None:
        counts = Counter(labels)
        most = max(counts.values())
        if counts[label] < most:
            largest = [stored for stored in sorted(counts) if counts[stored] == most]
            out = largest[int(first * len(largest))]
        elif first * self.seen[label] < counts[label]:
            out = label
        else:
            return None
        rows = [row for row, stored in enumerate(labels) if stored == out]
        return rows[int(second * len(rows))]


MEMORIES: dict[str, type[Reservoir]] = {"reservoir": Reservoir, "balanced": BalancedReservoir}
MEMORY_NAMES = Expected("none, reservoir or balanced", lambda name: name in ("none", *MEMORIES))


@dataclass(frozen=True)
class NetworkConfig:
    """Settings of networks that are trained in a stream."""

    net: str = "mlp"
    members: Annotated[int, AtLeast(1)] = 1
    lr: Annotated[float, POSITIVE] = 1e-3
    memory: Annotated[str, MEMORY_NAMES] = "none"
    capacity: Annotated[int, AtLeast(1)] = 500  # examples in the memory
    penalty: Annotated[float, NOT_NEGATIVE] = 0.0  # strength of elastic weight consolidation; 0: none
    fisher_examples: Annotated[int, AtLeast(1)] = 200  # of each task, by which the importance of weights is measured
    seed: int = 0

    def __post_init__(self) -> None:
        check_settings(self)


class NetworkLearner:
    """Networks over all classes of a stream, trained by Adam on the cross-entropy of one batch after another.

    `classify` chooses among the labels seen so far. Elastic weight consolidation is told where a task begins.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, config: NetworkConfig | None = None) -> None:
        self.config, self.shape, self.outputs = config or NetworkConfig(), input_shape, classes

        def build(member: int) -> torch.nn.Module:
            with global_stream(self.config.seed, "initialisation", member):
                return build_net(self.config.net, input_shape, classes)

        module = build(0)
        self.structure = Structure(module)
        self.family = Point().in_network(trace_kernels(module, torch.zeros(2, *input_shape)))
        self.population = populate(build, self.config.members)
        self.moments = OPTIMIZER.init(self.population.own)
        self.reservoirs: dict[str, Reservoir] = {}
        if self.config.memory in MEMORIES:
            self.reservoirs["memory"] = MEMORIES[self.config.memory](self.config.capacity)  # for replay
        if self.config.penalty:
            self.reservoirs["recent"] = Reservoir(self.config.fisher_examples)  # of the task, for importance of weights
        self.importance: Named = {}
        self.anchor: Named = {}
        self.task: int | None = None
        self.steps = 0
        self.seen: set[int] = set()

    def observe(self, x: Tensor, y: Tensor, task: int | None = None) -> dict[str, float]:
        """Return one step on a batch, and on as many replayed examples."""
        check_batch(x, y, self.shape)
        if self.config.penalty and task is None:
            raise Misuse("elastic weight consolidation needs to be told where a task begins: give the task of a batch")
        if self.config.penalty and task != self.task and self.task is not None:
            self.consolidate()
        self.task = task if self.config.penalty else None
        self.seen |= set(y.tolist())
        own = {name: tensor.data.requires_grad_() for name, tensor in self.population.own.items()}
        inputs, labels = self.with_replay(x, y)
        loss = F.cross_entropy(self.logits(own, inputs).flatten(0, 1), labels.flatten()) * self.config.members
        penalty = self.change(own)
        total = loss if penalty is None else loss + self.config.penalty * penalty
        if not bool(total.isfinite()):
            raise Failure(f"the loss of the network is {total.item()}: lower lr={self.config.lr:g}")
        gradients = list(torch.autograd.grad(total, list(own.values())))
        moments = [[named[name] for name in own] for named in self.moments.values()]
        with torch.no_grad():
            when = StepTime(self.config.lr, self.steps, TrainTime(self.steps, 1, 1), lambda likes: [])
            OPTIMIZER.update([self.population.own[name] for name in own], gradients, moments, when)
        rng = generator(self.config.seed, "examples", ALL_MEMBERS, self.steps)
        for reservoir in self.reservoirs.values():
            reservoir.add(x, y, rng)
        self.steps += 1
        return {"loss": loss.item() / self.config.members} | ({} if penalty is None else {"penalty": penalty.item()})

    def with_replay(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs (M, B, ...) and labels (M, B).

        The batch for each member, and examples of its own from the memory.
        """
        members, seed, memory = self.config.members, self.config.seed, self.reservoirs.get("memory")
        if not memory:
            return x.expand(members, *x.shape), y.expand(members, *y.shape)
        pairs = [memory.draw(len(y), generator(seed, "draws", member, self.steps)) for member in range(members)]
        inputs = torch.stack([torch.cat([x, old]) for old, _ in pairs])
        return inputs, torch.stack([torch.cat([y, old]) for _, old in pairs])

    def logits(self, own: Named, x: Tensor, *, training: bool = True) -> Tensor:
        """Return outputs (M, B, K) for inputs (M, B, ...)."""
        noise = [Noise(self.config.seed, member, self.steps) for member in range(self.config.members)]
        self.structure.train(training)
        realised = self.family.realise(own, {}, noise, training=training).with_buffers(self.population.buffers)
        return run_members(self.structure, realised, x, noise, direct=False)

    def change(self, own: Named) -> Tensor | None:
        """Return half the sum over all weights of F (w - w*)^2, with F their importance and w* their values then."""
        if not self.importance:
            return None
        terms = [(self.importance[name] * (own[name] - self.anchor[name]).square()).sum() for name in own]
        return torch.stack(terms).sum() / 2

    def consolidate(self) -> None:
        """Add the Fisher information of the task that ends, and keep the weights as they are.

        The Fisher information is the mean over examples of squared gradients of log p(y | x), y drawn from the network.
        """
        rng = generator(self.config.seed, "noise", ALL_MEMBERS, self.steps)
        own = {name: tensor.data.requires_grad_() for name, tensor in self.population.own.items()}
        fisher = {name: torch.zeros_like(tensor) for name, tensor in self.population.own.items()}
        recent = self.reservoirs["recent"]
        for x in recent.x:
            logits = self.logits(own, x.expand(self.config.members, 1, *x.shape), training=False)[:, 0]  # (M, K)
            labels = torch.multinomial(logits.detach().softmax(1), 1, generator=rng)[:, 0]
            gradients = torch.autograd.grad(F.cross_entropy(logits, labels, reduction="sum"), list(own.values()))
            for name, gradient in zip(own, gradients, strict=True):
                fisher[name] += gradient.square() / len(recent)
        self.importance = {name: self.importance.get(name, 0) + value for name, value in fisher.items()}
        self.anchor = {name: tensor.clone() for name, tensor in self.population.own.items()}
        self.reservoirs["recent"] = Reservoir(self.config.fisher_examples)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Predictive:
        """Return predictions (M, N, K) of the members."""
        own, members = self.population.own, self.config.members
        parts = [self.logits(own, part.expand(members, *part.shape), training=False) for part in x.split(CHUNK)]
        return Predictive(torch.cat(parts, dim=1), Categorical(self.outputs))

    def classify(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the most probable label (N,) among those seen, and -1 (N,): networks tell no tasks apart."""
        if not self.seen:
            raise nothing_seen()
        labels = torch.tensor(sorted(self.seen))
        return labels[self.predict(x).mean[:, labels].argmax(1)], torch.full((len(x),), -1)

    def memory(self) -> dict[str, int]:
        """Return bytes by kind."""
        examples = [tensor for reservoir in self.reservoirs.values() for tensor in (reservoir.x, reservoir.y)]
        frozen = [*self.importance.values(), *self.anchor.values()]
        return memory_of(self.population.to_tensors().values(), frozen, (), examples)

    def state(self) -> State:
        """Return all that a later batch depends on."""
        parts: dict[str, Named] = {"population": self.population.to_tensors(), **self.moments}
        parts |= {"importance": self.importance, "anchor": self.anchor}
        facts: dict[str, Any] = {"task": self.task, "steps": self.steps, "seen": sorted(self.seen)}
        for name, reservoir in self.reservoirs.items():
            parts[name] = {"x": reservoir.x, "y": reservoir.y}
            facts[name] = {str(label): count for label, count in reservoir.seen.items()}
        return State(named_by_part(parts), facts)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, with the same settings."""
        tensors, facts = state
        for prefix, named in {"population": self.population.to_tensors(), **self.moments}.items():
            for name, tensor in named.items():
                tensor.copy_(tensors[f"{prefix}/{name}"])
        self.importance, self.anchor = below(tensors, "importance"), below(tensors, "anchor")
        self.task, self.steps, self.seen = facts["task"], facts["steps"], set(facts["seen"])
        for name, reservoir in self.reservoirs.items():
            reservoir.x, reservoir.y = tensors[f"{name}/x"].clone(), tensors[f"{name}/y"].clone()
            reservoir.seen = Counter({int(label): count for label, count in facts[name].items()})


class ClassMeans:
    """The nearest class mean, in the metric of the pooled covariance (discriminant analysis) or in that of the inputs.

    Statistics need one pass and no stored examples. If tasks are told, each class of each task has a mean of its own.
    """

    task: int | None = None

    def __init__(self, input_shape: tuple[int, ...], shrinkage: float | None = 0.1) -> None:
        if shrinkage is not None and not 0 <= shrinkage <= 1:
            raise Misuse(f"shrinkage={shrinkage:g}: expected a number from 0 to 1, or None for the nearest mean")
        self.shape, self.shrinkage = input_shape, shrinkage
        self.statistics = ClassStatistics(math.prod(input_shape))
        self.told = False
        self.classes: LatentClasses | None = None  # None: the statistics have changed

    def observe(self, x: Tensor, y: Tensor, task: int | None = None) -> dict[str, float]:
        """Add a batch to the statistics; there is no loss."""
        check_batch(x, y, self.shape)
        self.statistics.update(x.flatten(1), y, task or 0)
        self.told, self.classes = self.told or task is not None, None
        return {}

    def classify(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the label (N,) of the nearest mean, and its task (N,), -1 if tasks were not told."""
        if not self.statistics.means:
            raise nothing_seen()
        self.classes = self.classes or self.statistics.classes(self.shrinkage)
        index = torch.cat([self.classes.classify(part.flatten(1)) for part in x.split(CHUNK)])
        tasks = self.classes.tasks[index] if self.told else torch.full((len(x),), -1)
        return self.classes.labels[index], tasks

    def memory(self) -> dict[str, int]:
        """Return bytes by kind; the nearest mean needs no covariance."""
        state = self.statistics.state()
        return memory_of((), (), state.values() if self.shrinkage is not None else [state["means"]], ())

    def state(self) -> State:
        """Return the statistics."""
        return State(named_by_part({"statistics": self.statistics.state()}), {"told": self.told})

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        self.statistics.restore(below(state.tensors, "statistics"))
        self.told, self.classes = state.facts["told"], None


def check_batch(x: Tensor, y: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse a batch of other inputs than the learner's."""
    if not len(y) or tuple(x.shape) != (len(y), *shape):
        raise Misuse(f"inputs of shape {tuple(x.shape)}, {len(y)} labels: expected {('N', *shape)} and N labels")
    if not bool(x.isfinite().all()):
        raise Misuse("the inputs hold NaN or infinite values: expected finite numbers")
