"""HCL: hybrid generative-discriminative continual learning with one flow (Kirichenko et al. 2021).

A flow g maps inputs to latents, in which every class of every task is a Gaussian. A batch of the task at hand is
learned by its likelihood. What was learned before is kept by replay: at the start of a task the flow is copied, and
inputs x' = g_old^-1(z) are drawn from the classes of the copy.

| replay | added to the loss |
|---|---|
| `functional` (HCL-FR) | strength * mean of |g(x') - z|^2, which is zero as long as the flow is the copy |
| `generative` (HCL-GR) | strength * mean of -log p(x' | class) |

Losses are divided by the number of dimensions. Means are drawn at random and the covariance is the identity (as
published), or both are those of the latents (`means="data"`): then the flow, which begins as the identity, starts as
linear discriminant analysis. They follow the latents as long as a task goes on, renewed every `settle` batches.

The weights of Bayesian coupling nets are drawn anew for every batch, and their divergence from the prior, divided by
the number of examples shown, is added to the loss.
"""

import copy
from dataclasses import dataclass, field, fields
from typing import Annotated

import torch
from torch import Tensor, nn

from murmuration.applications.continual.detection import DetectionConfig, TaskDetector
from murmuration.applications.continual.flows import Flow, bayesian_layers, dequantised
from murmuration.applications.continual.latents import ClassStatistics, LatentClasses, no_classes, random_means
from murmuration.applications.continual.learner import CHUNK, State, memory_of, named_by_part, nothing_seen
from murmuration.applications.continual.settings import NOT_NEGATIVE, POSITIVE, SHARE, Expected
from murmuration.core.population import Named, below
from murmuration.system.errors import Failure, Misuse
from murmuration.system.settings import check_settings

REPLAY = Expected("functional, generative or none", lambda kind: kind in ("functional", "generative", "none"))
MEANS = Expected("data or random", lambda means: means in ("data", "random"))
COUNTERS = ("task", "outdated", "largest", "shown", "drawn", "rejected")  # attributes that a state holds as they are
COMPARED = 256  # replayed inputs by which the statistics of an earlier task follow the flow
MOSTLY = 0.5  # of a batch, whose labels the task at hand has: the others may be classes that come late


@dataclass(frozen=True)
class HCLConfig:
    """Settings of the learner."""

    replay: Annotated[str, REPLAY] = "functional"
    strength: Annotated[float, NOT_NEGATIVE] = 1.0  # of the replay, both terms per dimension
    means: Annotated[str, MEANS] = "data"
    distance: Annotated[float, POSITIVE] = 10.0  # between random means, in standard deviations of a class
    shrinkage: Annotated[float, SHARE] = 0.1  # of the covariance of the data towards a multiple of the identity
    settle: int = 20  # batches of a new task before the flow is trained on it; then as many until means are renewed
    lr: Annotated[float, POSITIVE] = 1e-3
    clip: Annotated[float, POSITIVE] = 10.0  # largest norm of a gradient
    agnostic: bool = True  # tasks are detected; False: they are told
    detection: DetectionConfig = field(default_factory=DetectionConfig)
    seed: int = 0

    def __post_init__(self) -> None:
        check_settings(self)
        if self.settle < (1 if self.means == "data" else 0):
            raise Misuse(f"settle={self.settle}: means of the data need at least 1 batch")


@dataclass(frozen=True)
class Snapshot:
    """A copy of the flow and its classes at the end of a task; inputs of these classes are drawn from it."""

    flow: Flow
    classes: LatentClasses
    largest: float  # norm of the longest input seen, beyond which a drawn input is rejected

    def draw(self, count: int, generator: torch.Generator, task: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs (n, ...), their latents (n, D) and classes (n,): `count` draws without those that are rejected.

        Tasks are equally likely, and the classes of a task; or all are of one task.
        """
        tasks = self.classes.tasks.unique() if task is None else torch.tensor([task])
        task_of_draw = tasks[torch.randint(len(tasks), (count,), generator=generator)]
        order = torch.rand(count, len(self.classes), generator=generator)
        index = order.masked_fill(self.classes.tasks != task_of_draw[:, None], -1).argmax(1)  # of a class of the task
        noise = torch.randn(count, self.classes.means.shape[1], generator=generator)
        z = self.classes.means[index] + self.classes.coloured(noise)
        with torch.no_grad():
            x = self.flow.inverse(z)
        sound = x.flatten(1).isfinite().all(1) & (x.flatten(1).norm(dim=1) <= 2 * self.largest)
        return x[sound], z[sound], index[sound]


class HCL:
    """The learner: a flow, the classes of all tasks, and the last snapshot. Batches come in by `observe`."""

    def __init__(self, flow: Flow, config: HCLConfig | None = None) -> None:
        self.flow, self.config = flow, config or HCLConfig()
        self.classes = no_classes(flow.dimensions)
        self.statistics = ClassStatistics(flow.dimensions)
        self.detector = TaskDetector(self.config.detection)
        self.optimizer = torch.optim.Adam(flow.parameters(), lr=self.config.lr, fused=True)
        self.generator = torch.Generator().manual_seed(self.config.seed)
        self.snapshot: Snapshot | None = None
        self.task: int | None = None  # the task at hand; None before the first batch
        self.settled: dict[int, int] = {}  # task -> batches that its statistics come from
        self.learned = False  # whether the last batch was learned; not if its task was uncertain
        self.outdated = False  # whether the statistics have changed since the classes were taken from them
        self.latest: LatentClasses | None = None  # the classes by all statistics, for predictions
        self.largest = 0.0
        self.shown = self.drawn = self.rejected = 0  # examples learned from, replayed inputs drawn and rejected

    def observe(self, x: Tensor, y: Tensor, task: int | None = None) -> dict[str, float]:
        """Learn from one batch x (N, ...) with labels y (N,); the task is told unless it is to be detected.

        Returns the losses; none while a task settles, or if the batch may be the first of another task, which is then
        not learned.
        """
        if self.config.agnostic == (task is not None):
            expected = "no task, because it detects them" if self.config.agnostic else "the task of every batch"
            raise Misuse(f"task={task} for a learner with agnostic={self.config.agnostic}: expected {expected}")
        self.check(x, y)
        x = self.continuous(x, training=True)
        if self.task is None:
            self.flow.fit_actnorm(x)
        for layer in bayesian_layers(self.flow):
            layer.redraw(self.generator)
        z, log_det = self.flow(x)
        detected_task = self.detected(z.detach(), log_det.detach(), y) if task is None else task
        self.learned = detected_task is not None
        if detected_task is None:
            return {}
        if detected_task != self.task:
            self.begin(detected_task)
        self.largest = max(self.largest, float(x.flatten(1).norm(dim=1).max()))
        if self.settled[detected_task] < self.config.settle or not self.knows(y, detected_task):
            return self.settle(z.detach(), y, detected_task)
        losses = self.step(z, log_det, y)
        if self.config.means == "data":
            self.gather(z.detach(), log_det.detach(), y, detected_task)
        return losses

    def check(self, x: Tensor, y: Tensor | None = None) -> None:
        """Refuse inputs of another shape than the flow's, numbers that are not finite, and labels that do not fit."""
        if tuple(x.shape[1:]) != self.flow.shape:
            raise Misuse(f"inputs of shape {tuple(x.shape)}: expected {self.flow.shape} after the axis of examples")
        if not len(x):
            raise Misuse("a batch of 0 inputs: expected at least 1")
        if not bool(x.isfinite().all()):
            raise Misuse("the inputs hold NaN or infinite values: expected finite numbers")
        if y is not None and (y.shape != x.shape[:1] or y.is_floating_point()):
            raise Misuse(f"labels of shape {tuple(y.shape)}, {y.dtype}: expected ({len(x)},) whole numbers")
        if self.flow.pixels and (float(x.min()) < 0 or float(x.max()) > 1):
            raise Misuse("a flow of images got pixels outside 0 to 1: prepare them with prepare='unit'")

    def continuous(self, x: Tensor, *, training: bool) -> Tensor:
        """Return inputs of the flow: pixels are dequantised, by noise in training and by its mean otherwise."""
        if not self.flow.pixels:
            return x
        noise = torch.rand(x.shape, generator=self.generator) if training else torch.full_like(x, 0.5)
        return dequantised((255 * x).round(), noise)

    def begin(self, task: int) -> None:
        """Make a task the one at hand; what was learned before is kept in a snapshot."""
        self.refresh()
        if len(self.classes):
            for earlier, by in self.drift().items():
                self.detector.shift(earlier, by)
            frozen = copy.deepcopy(self.flow).eval().requires_grad_(False)
            for layer in bayesian_layers(frozen):
                layer.redraw(None)
            self.snapshot = Snapshot(frozen, self.classes, self.largest)
        self.task = task
        self.settled.setdefault(task, 0)

    def labels_of(self, task: int) -> set[int]:
        """Return the labels of a task that have been seen."""
        return {label for owner, label in self.statistics.means if owner == task} | self.classes.labels_of(task)

    def knows(self, y: Tensor, task: int) -> bool:
        return set(y.tolist()) <= self.labels_of(task)

    def settle(self, z: Tensor, y: Tensor, task: int) -> dict[str, float]:
        """Place the classes of a batch, by its latents z (N, D) or at random."""
        if self.settled[task] >= self.config.settle:
            self.settled[task] = 0  # a class that came late
        self.settled[task] += 1
        if self.config.means == "data":
            self.statistics.update(z, y, task)
            self.outdated, self.latest = True, None
            if self.settled[task] == self.config.settle:
                self.refresh()
            return {}
        fresh = torch.tensor(sorted(set(y.tolist()) - self.classes.labels_of(task)), dtype=torch.int64)
        if len(fresh):
            means = random_means(len(fresh), self.flow.dimensions, self.config.distance, self.generator)
            self.classes = self.classes.with_classes(means, task, fresh)
        return {}

    def gather(self, z: Tensor, log_det: Tensor, y: Tensor, task: int) -> None:
        """Add the latents z (N, D) of a learned batch to the statistics; now and then the classes follow.

        What the detector knows of the task follows too, by what becomes of this batch, which the classes do not know.
        """
        if self.settled[task] % self.config.settle == 0 and self.outdated:
            before = self.task_statistics(z, log_det, y, task)
            self.refresh()
            after = self.task_statistics(z, log_det, y, task)
            self.detector.shift(task, [b - a for a, b in zip(before, after, strict=True)])
        self.statistics.update(z, y, task)
        self.settled[task] += 1
        self.outdated, self.latest = True, None

    def refresh(self) -> None:
        """Take the classes from the statistics, if these have changed."""
        if self.outdated:
            self.classes, self.outdated = self.current(), False

    def current(self) -> LatentClasses:
        """Return the classes by all statistics so far; learning goes on with those of the last renewal."""
        if self.outdated and self.latest is None:
            self.latest = self.statistics.classes(self.config.shrinkage)
        return self.classes if self.latest is None else self.latest

    def step(self, z: Tensor, log_det: Tensor, y: Tensor) -> dict[str, float]:
        """Return one step of the optimizer on a batch, given by its latents, and on as many replayed inputs."""
        self.shown += len(y)
        losses, zero = self.losses(z, log_det, y), torch.zeros(())
        total = losses["likelihood"] + self.config.strength * losses.get("replay", zero)
        total = total + losses.get("divergence", zero)
        if not bool(total.isfinite()):
            raise Failure(f"the loss of the flow is {total.item()}: lower lr={self.config.lr:g}")
        self.optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(self.flow.parameters(), self.config.clip)
        self.optimizer.step()
        return {name: value.item() for name, value in losses.items()}

    def losses(self, z: Tensor, log_det: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Return the negative log-likelihood of a batch of the task at hand and the replay term, both per dimension."""
        assert self.task is not None
        dimensions = self.flow.dimensions
        density = self.classes.log_density_of(z, self.classes.of(y, self.task)) + log_det
        terms = {"likelihood": -density.mean() / dimensions}
        if layers := bayesian_layers(self.flow):
            terms["divergence"] = torch.stack([layer.divergence() for layer in layers]).sum() / self.shown / dimensions
        if self.config.replay == "none" or self.snapshot is None:
            return terms
        inputs, latents, index = self.snapshot.draw(len(y), self.generator)
        self.drawn, self.rejected = self.drawn + len(y), self.rejected + len(y) - len(inputs)
        if not len(inputs):
            return terms
        moved, volume = self.flow(inputs)
        if self.config.replay == "generative":
            places = self.places_of(self.snapshot.classes, index)
            return terms | {"replay": -(self.classes.log_density_of(moved, places) + volume).mean() / dimensions}
        return terms | {"replay": self.classes.white(moved - latents).square().sum(1).mean() / dimensions}

    def places_of(self, classes: LatentClasses, index: Tensor) -> Tensor:
        """Return where classes of a snapshot are among the classes now."""
        pairs = classes.pairs()
        return torch.tensor([self.classes.table[pairs[place]] for place in index.tolist()], dtype=torch.int64)

    def detected(self, z: Tensor, log_det: Tensor, y: Tensor) -> int | None:
        """Return the task of a batch, given by its latents, by the typicality of its statistics under every task.

        A task needs the labels of the batch, that at hand most of them, or one while it settles. None if the batch is
        not typical for the task at hand and a change is not confirmed yet.
        """
        task = self.task
        if task is None:
            return 0
        labels = self.labels_of(task)
        familiar = torch.tensor([label in labels for label in y.tolist()])
        if self.settled[task] < self.config.settle and (not self.settled[task] or bool(familiar.any())):
            return task
        if float(familiar.float().mean()) < MOSTLY:
            nearest = self.detector.nearest(self.other_statistics(z, log_det, y))
            self.detector.begin(max(self.settled) + 1 if nearest is None else nearest, known=nearest is not None)
            return self.detector.task
        by_task = {task: self.task_statistics(z[familiar], log_det[familiar], y[familiar], task)}
        if not self.detector.is_typical(by_task[task]):
            by_task |= self.other_statistics(z, log_det, y)
        return None if self.detector.observe(by_task) == "unsure" else self.detector.task

    def other_statistics(self, z: Tensor, log_det: Tensor, y: Tensor) -> dict[int, tuple[float, ...]]:
        """Return the statistics of a batch under the other tasks that have its labels, as they were at the snapshot."""
        drift, statistics = self.drift(), {}
        for task in self.settled:
            if task != self.task and self.knows(y, task):
                pairs = zip(self.task_statistics(z, log_det, y, task), drift.get(task, (0.0,) * 3), strict=True)
                statistics[task] = tuple(value - by for value, by in pairs)
        return statistics

    def task_statistics(self, z: Tensor, log_det: Tensor, y: Tensor, task: int) -> tuple[float, ...]:
        """Compute means of log density, latent log density and log-determinant of a batch, per dimension."""
        return batch_statistics(self.classes, z, log_det, self.classes.of(y, task))

    @torch.no_grad()
    def drift(self) -> dict[int, tuple[float, ...]]:
        """Return how much the statistics of each task of the snapshot have changed since, on inputs drawn from it."""
        drift: dict[int, tuple[float, ...]] = {}
        if self.snapshot is None:
            return drift
        for task in sorted(set(self.snapshot.classes.tasks.tolist()) - {self.task}):
            inputs, latents, index = self.snapshot.draw(COMPARED, self.generator, task)
            if len(inputs) > 1:
                places = self.places_of(self.snapshot.classes, index)
                z, log_det = self.flow(inputs)
                now = batch_statistics(self.classes, z, log_det, places)
                then = batch_statistics(self.snapshot.classes, latents, self.snapshot.flow(inputs)[1], index)
                drift[task] = tuple(a - b for a, b in zip(now, then, strict=True))
        return drift

    @torch.no_grad()
    def classify(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the label (N,) and the task (N,) of the nearest class of each input."""
        classes = self.current()
        if not len(classes):
            raise nothing_seen()
        self.check(x)
        parts = [self.flow(self.continuous(part, training=False))[0] for part in x.split(CHUNK)]
        index = torch.cat([classes.classify(z) for z in parts])
        return classes.labels[index], classes.tasks[index]

    @torch.no_grad()
    def generated(self, task: int, count: int) -> Tensor:
        """Return inputs (n, ...) drawn from the classes of a task by the flow as it is now.

        The state is not changed.
        """
        source = Snapshot(self.flow, self.current(), self.largest)
        return source.draw(count, torch.Generator().manual_seed(self.config.seed), task)[0]

    def memory(self) -> dict[str, int]:
        """Return bytes by kind."""
        frozen = {} if self.snapshot is None else self.snapshot.flow.state_dict()
        return memory_of(self.flow.state_dict().values(), frozen.values(), self.statistics.state().values(), ())

    def state(self) -> State:
        """Return all that a later batch depends on."""
        parts: dict[str, Named] = {"flow": self.flow.state_dict(), "statistics": self.statistics.state()}
        parts |= {"classes": class_tensors(self.classes)}
        parts |= {f"moments/{place}": named for place, named in self.optimizer.state_dict()["state"].items()}
        if self.snapshot is not None:
            parts |= {"snapshot": self.snapshot.flow.state_dict(), "kept": class_tensors(self.snapshot.classes)}
        facts = {name: getattr(self, name) for name in COUNTERS}
        facts["settled"] = {str(task): count for task, count in self.settled.items()}
        facts |= {"detector": self.detector.state(), "kept": None if self.snapshot is None else self.snapshot.largest}
        return State(named_by_part(parts) | {"generator": self.generator.get_state()}, facts)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, with the same flow and settings."""
        tensors, facts = state
        self.flow.load_state_dict(below(tensors, "flow"))
        self.statistics.restore(below(tensors, "statistics"))
        self.classes, self.latest = LatentClasses(**below(tensors, "classes")), None
        moments = {place: below(tensors, f"moments/{place}") for place, _ in enumerate(self.flow.parameters())}
        states = {place: named for place, named in moments.items() if named}
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": states})
        self.generator.set_state(tensors["generator"])
        for name in COUNTERS:
            setattr(self, name, facts[name])
        self.settled = {int(task): count for task, count in facts["settled"].items()}
        self.detector.restore(facts["detector"])
        if facts["kept"] is not None:
            flow = copy.deepcopy(self.flow).eval().requires_grad_(False)
            flow.load_state_dict(below(tensors, "snapshot"))
            self.snapshot = Snapshot(flow, LatentClasses(**below(tensors, "kept")), facts["kept"])


def batch_statistics(classes: LatentClasses, z: Tensor, log_det: Tensor, index: Tensor) -> tuple[float, ...]:
    """Return means of log density, of log density in latent space and of the log-determinant, per dimension."""
    latent = float(classes.log_density_of(z, index).mean() / z.shape[1])
    volume = float(log_det.mean() / z.shape[1])
    return latent + volume, latent, volume


def class_tensors(classes: LatentClasses) -> dict[str, Tensor]:
    """Return the tensors of some classes by name."""
    return {part.name: t for part in fields(classes) if (t := getattr(classes, part.name)) is not None}
