"""HCL: hybrid generative-discriminative continual learning with one flow (Kirichenko et al. 2021).

A flow g maps inputs to latents, in which every class of every task is a Gaussian. A batch of the task at hand is
learned by its likelihood. What was learned before is kept by replay: at the start of a task the flow is copied, and
inputs x' = g_old^-1(z) are drawn from the classes of the copy.

| replay | added to the loss |
|---|---|
| `functional` (HCL-FR) | strength * mean of |g(x') - z|^2, which is zero as long as the flow is the copy |
| `generative` (HCL-GR) | strength * mean of -log p(x' | class) |

Losses are divided by the number of dimensions. Means are drawn at random and the covariance is the identity (as
published), or both are those of the data when a task arrives (`means="data"`): then the flow, which begins as the
identity, starts as linear discriminant analysis.
"""

import copy
import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from murmuration.applications.continual.detection import DetectionConfig, TaskDetector
from murmuration.applications.continual.flows import Flow
from murmuration.applications.continual.latents import ClassStatistics, LatentClasses, no_classes, random_means
from murmuration.errors import Failure, Misuse

Replay = Literal["functional", "generative", "none"]
Means = Literal["data", "random"]


@dataclass(frozen=True)
class HCLConfig:
    """Settings of the learner."""

    replay: Replay = "functional"
    strength: float = 1.0  # of the replay, both terms per dimension
    means: Means = "data"
    distance: float = 10.0  # between random means, in standard deviations of a class
    shrinkage: float = 0.1  # of the covariance of the data towards a multiple of the identity
    settle: int = 20  # batches of a new task that means and covariance are taken from, before the flow is trained on it
    lr: float = 1e-3
    clip: float = 10.0  # largest norm of a gradient
    agnostic: bool = True  # tasks are detected; False: they are told
    detection: DetectionConfig = field(default_factory=DetectionConfig)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.replay not in ("functional", "generative", "none"):
            raise Misuse(f"replay='{self.replay}': expected functional, generative or none")
        if self.means not in ("data", "random"):
            raise Misuse(f"means='{self.means}': expected data or random")
        for name in ("distance", "lr", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise Misuse(f"{name}={getattr(self, name):g}: expected a positive number")
        if not 0 <= self.shrinkage <= 1:
            raise Misuse(f"shrinkage={self.shrinkage:g}: expected a number from 0 to 1")
        if not 0 <= self.strength < math.inf:
            raise Misuse(f"strength={self.strength:g}: expected a number that is not negative")
        if self.settle < (1 if self.means == "data" else 0):
            raise Misuse(f"settle={self.settle}: means of the data need at least 1 batch")


@dataclass(frozen=True)
class Snapshot:
    """A copy of the flow and its classes at the end of a task; inputs of these classes are drawn from it."""

    flow: Flow
    classes: LatentClasses
    largest: float  # norm of the longest input seen, beyond which a drawn input is rejected

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs (n, ...), their latents (n, D) and classes (n,): `count` draws without those that are rejected.

        Tasks are equally likely, and the classes of a task.
        """
        tasks = self.classes.tasks.unique()
        task = tasks[torch.randint(len(tasks), (count,), generator=generator)]
        order = torch.rand(count, len(self.classes), generator=generator)
        index = order.masked_fill(self.classes.tasks != task[:, None], -1).argmax(1)  # a class of the task at random
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
        self.optimizer = torch.optim.Adam(flow.parameters(), lr=self.config.lr)
        self.generator = torch.Generator().manual_seed(self.config.seed)
        self.snapshot: Snapshot | None = None
        self.settled: dict[int, int] = {}  # task -> batches that its statistics come from
        self.largest = 0.0
        self.drawn = self.rejected = 0

    def observe(self, x: Tensor, y: Tensor, task: int | None = None) -> dict[str, float]:
        """Learn from one batch x (N, ...) with labels y (N,); the task is told unless it is to be detected.

        Returns the losses; none while a task settles, or if the batch may be the first of another task, which is then
        not learned.
        """
        if self.config.agnostic == (task is not None):
            expected = "no task, because it detects them" if self.config.agnostic else "the task of every batch"
            raise Misuse(f"task={task} for a learner with agnostic={self.config.agnostic}: expected {expected}")
        self.check(x, y)
        found = self.detected(x, y) if task is None else task
        if found is None:
            return {}
        if found not in self.settled:
            self.begin(found)
        self.largest = max(self.largest, float(x.flatten(1).norm(dim=1).max()))
        if self.settled[found] < self.config.settle:
            return self.settle(x, y, found)
        if not self.knows(y, found):
            self.settled[found] = 0  # a class that came late
            return self.settle(x, y, found)
        return self.step(x, y, found)

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

    def begin(self, task: int) -> None:
        """Take a snapshot of what was learned, and make room for another task."""
        self.settled[task] = 0
        if len(self.classes):
            frozen = copy.deepcopy(self.flow).eval().requires_grad_(False)
            self.snapshot = Snapshot(frozen, self.classes, self.largest)

    def knows(self, y: Tensor, task: int) -> bool:
        known = self.classes.labels[self.classes.tasks == task].tolist()
        return set(y.tolist()) <= set(known)

    def settle(self, x: Tensor, y: Tensor, task: int) -> dict[str, float]:
        """Place the classes of a batch, by its latents or at random."""
        self.settled[task] += 1
        if self.config.means == "data":
            with torch.no_grad():
                z, _ = self.flow(x)
            self.statistics.update(z, y, task)
            self.classes = self.statistics.classes(self.config.shrinkage)
            return {}
        known = set(self.classes.labels[self.classes.tasks == task].tolist())
        fresh = torch.tensor(sorted(set(y.tolist()) - known), dtype=torch.int64)
        if len(fresh):
            means = random_means(len(fresh), self.flow.dimensions, self.config.distance, self.generator)
            self.classes = self.classes.with_classes(means, task, fresh)
        return {}

    def step(self, x: Tensor, y: Tensor, task: int) -> dict[str, float]:
        """One step of the optimizer on a batch and as many replayed inputs."""
        losses = self.losses(x, y, task)
        total = losses["likelihood"] + self.config.strength * losses.get("replay", torch.zeros(()))
        if not bool(total.isfinite()):
            raise Failure(f"the loss of the flow is {total.item()}: lower lr={self.config.lr:g}")
        self.optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(self.flow.parameters(), self.config.clip)
        self.optimizer.step()
        return {name: value.item() for name, value in losses.items()}

    def losses(self, x: Tensor, y: Tensor, task: int) -> dict[str, Tensor]:
        """The negative log-likelihood of a batch and the replay term, both per dimension."""
        dimensions = self.flow.dimensions
        found = {"likelihood": -self.log_density(x, self.classes.of(y, task)).mean() / dimensions}
        if self.config.replay == "none" or self.snapshot is None:
            return found
        inputs, z, index = self.snapshot.draw(len(x), self.generator)
        self.drawn, self.rejected = self.drawn + len(x), self.rejected + len(x) - len(inputs)
        if not len(inputs):
            return found
        if self.config.replay == "generative":
            places = self.places_of(self.snapshot.classes, index)
            return found | {"replay": -self.log_density(inputs, places).mean() / dimensions}
        moved = self.classes.white(self.flow(inputs)[0] - z)
        return found | {"replay": moved.square().sum(1).mean() / dimensions}

    def places_of(self, classes: LatentClasses, index: Tensor) -> Tensor:
        """Where classes of a snapshot are among the classes now."""
        now = {
            key: i for i, key in enumerate(zip(self.classes.tasks.tolist(), self.classes.labels.tolist(), strict=True))
        }
        pairs = zip(classes.tasks[index].tolist(), classes.labels[index].tolist(), strict=True)
        return torch.tensor([now[pair] for pair in pairs], dtype=torch.int64)

    def log_density(self, x: Tensor, index: Tensor) -> Tensor:
        """log p(x | class) (N,) of inputs under the classes at an index (N,)."""
        z, log_det = self.flow(x)
        return self.classes.log_density_of(z, index) + log_det

    def detected(self, x: Tensor, y: Tensor) -> int | None:
        """The task of a batch by the typicality of its statistics under every task that has its labels.

        None if the batch is not typical for the task at hand and a change is not confirmed yet.
        """
        if self.detector.task not in self.settled or self.settled[self.detector.task] < self.config.settle:
            return self.detector.task
        by_task = {task: self.task_statistics(x, y, task) for task in self.settled if self.knows(y, task)}
        if self.detector.task not in by_task:  # a label that the task at hand does not have
            known = {task: self.detector.distance(found, task) for task, found in by_task.items()}
            near = [task for task in known if known[task] <= self.config.detection.threshold]
            task = min(near, key=known.__getitem__) if near else max(self.settled) + 1
            self.detector.begin(task, known=bool(near))
            return task
        decision = self.detector.observe(by_task)
        return None if decision.change == "unsure" else decision.task

    @torch.no_grad()
    def task_statistics(self, x: Tensor, y: Tensor, task: int) -> tuple[float, float, float]:
        """Mean log density, mean log density in latent space and mean log-determinant of a batch, per dimension."""
        z, log_det = self.flow(x)
        latent = self.classes.log_density_of(z, self.classes.of(y, task)).mean() / self.flow.dimensions
        volume = log_det.mean() / self.flow.dimensions
        return float(latent + volume), float(latent), float(volume)

    @torch.no_grad()
    def classify(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The label (N,) and the task (N,) of the nearest class of each input."""
        if not len(self.classes):
            raise Misuse("the learner has seen no batch yet: call observe(x, y) first")
        self.check(x)
        index = self.classes.classify(self.flow(x)[0])
        return self.classes.labels[index], self.classes.tasks[index]
