"""Classes in latent space: a Gaussian for every class of every task, all with one covariance.

The density of an input under class c is N(f(x); mean_c, C) |det df/dx|. With equal class priors the class of an input
is that of the nearest mean, in the metric of C: the determinant is the same for all classes.

The published model draws the means at random and fixes C = I. Here means may also be placed where the data of a class
lies when it arrives, with C the pooled covariance of all classes seen: while the flow is the identity that is linear
discriminant analysis, whose statistics need no stored examples.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from murmuration.system.errors import Misuse

LOG_TAU = 1.8378770664093453  # log(2 pi)


@dataclass(frozen=True)
class LatentClasses:
    """Means (C, D) of the classes, the tasks (C,) and labels (C,) they belong to, and the whitening of the covariance.

    `whitening` (D, D), lower triangular, is W with W' W = inverse of the covariance; None for the identity.
    """

    means: Tensor  # (C, D)
    tasks: Tensor  # (C,) int64
    labels: Tensor  # (C,) int64
    whitening: Tensor | None = None

    def __len__(self) -> int:
        return len(self.means)

    @cached_property
    def constant(self) -> Tensor:
        """The logarithm of the largest density in latent space, log |det W| - D log(2 pi) / 2; W is triangular."""
        volume = self.means.new_zeros(()) if self.whitening is None else self.whitening.diagonal().abs().log().sum()
        return volume - self.means.shape[1] * LOG_TAU / 2

    @cached_property
    def colouring(self) -> Tensor:
        """The inverse of the whitening (D, D), a root of the covariance."""
        assert self.whitening is not None
        return torch.linalg.solve_triangular(self.whitening, torch.eye(self.means.shape[1]), upper=False)

    @cached_property
    def table(self) -> dict[tuple[int, int], int]:
        """The index of each class by its task and label."""
        return {pair: index for index, pair in enumerate(self.pairs())}

    def white(self, z: Tensor) -> Tensor:
        """Return latents (N, D) in coordinates in which the covariance is the identity."""
        return z if self.whitening is None else z @ self.whitening.T

    def coloured(self, noise: Tensor) -> Tensor:
        """Return standard normal numbers (N, D) with the covariance of the classes: the inverse of `white`."""
        return noise if self.whitening is None else noise @ self.colouring.T

    def squared_distances(self, z: Tensor) -> Tensor:
        """Return squared distances (N, C) of latents (N, D) to all means."""
        white, means = self.white(z), self.white(self.means)
        return torch.cdist(white, means, compute_mode="donot_use_mm_for_euclid_dist").square()

    def log_density(self, z: Tensor) -> Tensor:
        """Return log N(z; mean, C) (N, C) of latents under every class."""
        return self.constant - self.squared_distances(z) / 2

    def log_density_of(self, z: Tensor, index: Tensor) -> Tensor:
        """Return log N(z; mean, C) (N,) of each latent under the class at an index (N,)."""
        return self.constant - self.white(z - self.means[index]).square().sum(1) / 2

    def classify(self, z: Tensor) -> Tensor:
        """Return the index (N,) of the nearest class."""
        return self.squared_distances(z).argmin(1)

    def of(self, labels: Tensor, task: int) -> Tensor:
        """Return the indices (N,) of the classes with these labels (N,) in a task."""
        values, available = labels.tolist(), self.labels_of(task)
        if missing := set(values) - available:
            raise Misuse(f"task {task} has no class {min(missing)}: expected one of {sorted(available)}")
        return torch.tensor([self.table[task, label] for label in values], dtype=torch.int64)

    def labels_of(self, task: int) -> set[int]:
        """Return the labels of a task."""
        return {label for owner, label in self.table if owner == task}

    def pairs(self) -> list[tuple[int, int]]:
        """Return the task and the label of each class."""
        return list(zip(self.tasks.tolist(), self.labels.tolist(), strict=True))

    def with_classes(self, means: Tensor, task: int, labels: Tensor) -> "LatentClasses":
        """Return these classes and those of another task."""
        tasks = torch.cat([self.tasks, torch.full((len(labels),), task, dtype=torch.int64)])
        return LatentClasses(torch.cat([self.means, means]), tasks, torch.cat([self.labels, labels]), self.whitening)


def no_classes(dimensions: int) -> LatentClasses:
    none = torch.zeros(0, dtype=torch.int64)
    return LatentClasses(torch.zeros(0, dimensions), none, none)


def random_means(classes: int, dimensions: int, distance: float, generator: torch.Generator) -> Tensor:
    """Draw means (C, D) from N(0, c^2 I), with c such that two are `distance` apart in the mean square."""
    scale = distance / (2 * dimensions) ** 0.5
    return scale * torch.randn(classes, dimensions, generator=generator)


class ClassStatistics:
    """Counts, means and the pooled scatter within classes, in one pass over the data; updated in place."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.counts: dict[tuple[int, int], int] = {}  # (task, label) -> examples
        self.means: dict[tuple[int, int], Tensor] = {}  # (D,) float64 each
        self.scatter = torch.zeros(dimensions, dimensions, dtype=torch.float64)  # sum over classes

    def update(self, x: Tensor, labels: Tensor, task: int) -> None:
        """Add examples x (N, D) of a task (Chan, Golub and LeVeque 1983)."""
        if x.shape[1:] != (self.dimensions,):
            raise Misuse(f"features of shape {tuple(x.shape[1:])}: expected ({self.dimensions},)")
        rows = []  # whose products with themselves add up to the change of the scatter
        for label in labels.unique().tolist():
            rows_of_class, key = x[labels == label].double(), (task, int(label))
            mean, count = rows_of_class.mean(0), len(rows_of_class)
            before, old_mean = self.counts.get(key, 0), self.means.get(key, torch.zeros_like(mean))
            step = mean - old_mean
            rows += [rows_of_class - mean, step[None] * (before * count / (before + count)) ** 0.5]
            self.means[key] = old_mean + step * count / (before + count)
            self.counts[key] = before + count
        centred = torch.cat(rows)
        self.scatter.addmm_(centred.T, centred)

    def covariance(self, shrinkage: float) -> Tensor:
        """Return the pooled covariance (D, D) within classes, mixed with a scaled identity of the same trace."""
        pooled = self.scatter / max(sum(self.counts.values()), 1)
        identity = torch.eye(self.dimensions, dtype=torch.float64) * (pooled.trace() / self.dimensions).clamp_min(1e-12)
        return (1 - shrinkage) * pooled + shrinkage * identity

    def classes(self, shrinkage: float | None) -> LatentClasses:
        """Return the classes seen so far, with the whitening of the pooled covariance: linear discriminant analysis.

        Without `shrinkage` there is no whitening: nearest class mean.
        """
        tasks, labels = torch.tensor(list(self.means)).T.contiguous()
        whitening = None
        if shrinkage is not None:
            factor = torch.linalg.cholesky(self.covariance(shrinkage))
            eye = torch.eye(self.dimensions, dtype=torch.float64)
            inverse = torch.linalg.solve_triangular(factor, eye, upper=False)  # W = L^-1, W' W = C^-1
            whitening = inverse.float().contiguous()  # products round by the strides, which a file does not keep
        return LatentClasses(torch.stack(list(self.means.values())).float(), tasks, labels, whitening)

    def state(self) -> dict[str, Tensor]:
        """Return counts, means and scatter as tensors."""
        keys = torch.tensor([[*key, self.counts[key]] for key in self.means], dtype=torch.int64).view(-1, 3)
        means = torch.stack(list(self.means.values())) if self.means else self.scatter.new_zeros(0)
        return {"scatter": self.scatter, "keys": keys, "means": means}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take over the tensors of `state`."""
        rows = state["keys"].tolist()
        self.scatter = state["scatter"].clone()
        self.counts = {(task, label): count for task, label, count in rows}
        self.means = {(task, label): mean.clone() for (task, label, _), mean in zip(rows, state["means"], strict=True)}
