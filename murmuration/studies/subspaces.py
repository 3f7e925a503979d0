"""Samples of networks around a trained one: subspaces of weight space in which an ensemble may be sought.

With w0 the final weights of a member and w_1 ... w_T the last checkpoints of its path, of mean m and standard deviation
s (ddof 0) in every coordinate:

    random      w0 + t u, u a random direction of length 1, t uniform; accepted by validation accuracy
    dropout     w0 * mask / (1 - r), every weight and bias dropped with probability r, r uniform
    diagonal    m + t s * z, z ~ N(0, I)
    pca         m + t V' z, V the k leading principal directions of the path, z ~ N(0, I_k)
    pca-eigen   the same with z_i ~ N(0, l_i), the eigenvalues of its covariance (`scaling="eigen"`)
    pca-random  the same with the principal directions of accepted random samples
    average     m itself (stochastic weight averaging)

Constants are those of the notebook published with Fort, Hu and Lakshminarayanan (2019); `PAPER` has those of the text
where the two differ, `PLANE` the wider ones of the notebook's plane of diversity and accuracy.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from murmuration.studies.similarity import gram
from murmuration.studies.trajectory import Trajectory
from murmuration.studies.weight_space import Networks, PointOutputs, Points, inputs_of, labelled_outputs, points_of
from murmuration.system.errors import Misuse, unknown
from murmuration.system.streams import generator

Scale = float | tuple[float, float]  # a number, or the ends of a uniform distribution
Scaling = Literal["unit", "eigen"]
Accepted = dict[tuple[Any, ...], dict[int, int]]  # member and settings -> the accepted draw of each sample

LAST = 10  # checkpoints at the end of a path
COUNT = 30  # samples of a subspace
RANK = 5
FLAT = 1e-12  # an eigenvalue so far below the largest counts as zero
TRIES = 5  # draws for one sample, at most, until one is accepted
PAPER: dict[str, dict[str, Any]] = {"random": {"threshold": 0.65}, "pca-random": {"threshold": 0.65, "rank": 4}}
PAPER_COUNT = 10
PLANE: dict[str, dict[str, Any]] = {
    "random": {"radius": (0.0, 70.0), "threshold": None},
    "diagonal": {"scale": (0.0, 10.0)},
    "pca": {"scale": 6.0},
}
PLANE_COUNT = 50


class Rejected(Misuse):
    """A sampler whose samples are not accurate enough to be accepted."""

    def __init__(self, sampler: str, message: str) -> None:
        super().__init__(message)
        self.sampler = sampler


@dataclass(frozen=True)
class Neighbourhood:
    """What samplers draw around: a member's final weights, the end of its path, and validation examples."""

    final: Tensor  # (P,)
    path: Callable[[], Iterator[Tensor]]  # the last checkpoints (P,) in time order, read anew at every call
    outputs: PointOutputs | None = None  # on validation inputs
    y: Tensor | None = None  # validation labels (N,)
    seed: int = 0
    member: int = 0
    accepted: Accepted = field(default_factory=dict)  # draws that were judged before: two samplers need the same

    def stream(self, sampler: str, sample: int, attempt: int = 0) -> torch.Generator:
        """Return the random numbers of one draw.

        They depend on the seed, the member, the sampler and the draw alone.
        """
        place = list(SAMPLERS).index(sampler) if sampler in SAMPLERS else len(SAMPLERS)
        return generator(self.seed, "subspace", self.member, (place << 48) + (attempt << 32) + sample)

    @cached_property
    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (ddof 0) of the path, (P,) float64 each (Welford 1962)."""
        mean = torch.zeros_like(self.final, dtype=torch.float64)
        squares, count = torch.zeros_like(mean), 0
        for vector in self.path():
            count += 1
            before = vector - mean
            mean += before / count
            squares += before * (vector - mean)
        if not count:
            raise Misuse("the path has no checkpoints: give the trajectory of the run")
        return mean, (squares.clamp_min_(0) / count).sqrt_()

    def accuracy(self, vectors: Iterable[Tensor]) -> Tensor:
        """Return the validation accuracy (m,) of networks at these weights."""
        if self.outputs is None or self.y is None:
            raise Misuse(
                "random samples are accepted by validation accuracy: give val=, or threshold=None to accept all"
            )
        return self.outputs.scores(vectors, self.y).accuracy


Sampler = Callable[..., Iterator[Tensor]]  # (neighbourhood, count, **settings) -> weight vectors (P,)


def draw_scale(scale: Scale, rng: torch.Generator) -> float:
    """Return the number itself, or a uniform draw between two."""
    if not isinstance(scale, tuple | list):
        return float(scale)
    low, high = scale
    return low + (high - low) * torch.rand((), generator=rng, dtype=torch.float64).item()


def random_step(around: Neighbourhood, sample: int, attempt: int, radius: Scale) -> Tensor:
    """Return weights (P,) at a random distance in a random direction."""
    rng = around.stream("random", sample, attempt)
    length = draw_scale(radius, rng)
    direction = torch.randn(around.final.shape, generator=rng)
    return around.final + direction * (length / torch.linalg.vector_norm(direction, dtype=torch.float64)).float()


def accepted_draws(
    around: Neighbourhood,
    count: int,
    radius: Scale = (0.0, 10.0),
    threshold: float | None = 0.70,
    margin: float | None = None,
    tries: int = TRIES,
) -> dict[int, int]:
    """Return for each sample the number of its first accepted draw; samples without one are left out."""
    key = (around.member, count, str(radius), threshold, margin, tries)
    if key in around.accepted:
        return around.accepted[key]
    if margin is not None:
        threshold = around.accuracy([around.final]).item() - margin
    if threshold is None:
        return dict.fromkeys(range(count), 0)
    accepted: dict[int, int] = {}
    for attempt in range(tries):
        waiting = [sample for sample in range(count) if sample not in accepted]
        if not waiting:
            break
        accuracies = around.accuracy(random_step(around, sample, attempt, radius) for sample in waiting)
        good = (accuracies >= threshold).tolist()
        accepted |= {sample: attempt for sample, passed in zip(waiting, good, strict=True) if passed}
    around.accepted[key] = dict(sorted(accepted.items()))
    return around.accepted[key]


def random_samples(
    around: Neighbourhood, count: int, *, radius: Scale = (0.0, 10.0), **acceptance: Any
) -> Iterator[Tensor]:
    """Return weights at a distance `radius` from the final ones in random directions.

    A draw is accepted if its validation accuracy reaches `threshold` (0.70; None accepts all), or that of the member
    less `margin` where a margin is given. A sample is left out after `tries` (5) draws.
    """
    accepted = accepted_draws(around, count, radius, **acceptance)
    return (random_step(around, *draw, radius) for draw in accepted.items())


def dropout_samples(around: Neighbourhood, count: int, *, rate: Scale = (0.0, 0.1)) -> Iterator[Tensor]:
    """Yield weights of which each is dropped with a probability drawn from `rate`, the others scaled up."""
    for sample in range(count):
        rng = around.stream("dropout", sample)
        dropped = draw_scale(rate, rng)
        if not 0 <= dropped < 1:
            raise Misuse(f"rate={rate}: a dropout rate is at least 0 and below 1")
        mask = torch.rand(around.final.shape, generator=rng) < 1 - dropped
        yield around.final * mask / (1 - dropped)


def diagonal_samples(around: Neighbourhood, count: int, *, scale: Scale = 1.0) -> Iterator[Tensor]:
    """Yield draws from the Gaussian with the mean of the path and `scale` times its standard deviations."""
    mean, std = around.moments
    for sample in range(count):
        rng = around.stream("diagonal", sample)
        size = draw_scale(scale, rng)
        yield (mean + size * std * torch.randn(std.shape, generator=rng)).to(around.final.dtype)


@dataclass(frozen=True)
class PrincipalDirections:
    """The leading principal directions of some weight vectors."""

    mean: Tensor  # (P,) float64
    directions: Tensor  # (k, P) float64, orthonormal
    variances: Tensor  # (k,) eigenvalues of the covariance (ddof 1), the largest first

    def stds(self, scaling: Scaling) -> Tensor:
        """Return standard deviations (k,) of the coordinates of a draw at scale 1."""
        if scaling not in ("unit", "eigen"):
            raise unknown("scaling", scaling, ("unit", "eigen"))
        return torch.ones_like(self.variances) if scaling == "unit" else self.variances.sqrt()

    def displacement(self, scaling: Scaling, scale: float = 1.0) -> float:
        """Return the root mean square distance of draws from the mean.

        Scale sqrt(k), or scale sqrt(sum of eigenvalues).
        """
        return scale * self.stds(scaling).square().sum().sqrt().item()


def principal_directions(vectors: Callable[[], Iterator[Tensor]], mean: Tensor, rank: int) -> PrincipalDirections:
    """Return the principal directions of T weight vectors (P,) around their mean, from the (T, T) Gram matrix.

    With X the centred rows and X X' = U L U', the directions are L^(-1/2) U' X. The vectors are read several times; a
    few of them and `rank` directions are in memory.
    """

    def centred(first: int) -> Iterator[Tensor]:
        return (vector - mean for vector in itertools.islice(vectors(), first, None))

    count = len(products := gram(centred))
    if not 1 <= rank <= count - 1:
        raise Misuse(
            f"rank={rank}: {count} weight vectors span at most {max(count - 1, 0)} directions around their mean"
        )
    values, combinations = (torch.from_numpy(array[..., ::-1][..., :rank].copy()) for array in np.linalg.eigh(products))
    if values[-1] <= FLAT * values[0].clamp_min(0):
        raise Misuse(f"rank={rank}: the weight vectors span fewer directions around their mean; give a lower rank")
    directions = mean.new_zeros(rank, len(mean))
    for weights, vector in zip(combinations / values.sqrt(), centred(0), strict=True):
        directions.addr_(weights, vector)
    return PrincipalDirections(mean, directions, values / (count - 1))


def gaussian_samples(
    around: Neighbourhood, sampler: str, count: int, principal: PrincipalDirections, scale: Scale, scaling: Scaling
) -> Iterator[Tensor]:
    """Yield draws from a Gaussian on principal directions."""
    stds = principal.stds(scaling)
    for sample in range(count):
        rng = around.stream(sampler, sample)
        size = draw_scale(scale, rng)
        z = torch.randn(len(stds), generator=rng, dtype=torch.float64)
        yield (principal.mean + (size * stds * z) @ principal.directions).to(around.final.dtype)


def pca_samples(
    around: Neighbourhood, count: int, *, rank: int = RANK, scale: Scale = 1.0, scaling: Scaling = "unit"
) -> Iterator[Tensor]:
    """Return draws from a Gaussian on the leading principal directions of the path, around its mean.

    With scaling "unit" every direction has standard deviation `scale`, whatever the path did in it (as the notebook
    does); with "eigen" `scale` times that of the path.
    """
    principal = principal_directions(around.path, around.moments[0], rank)
    return gaussian_samples(around, "pca", count, principal, scale, scaling)


def pca_random_samples(
    around: Neighbourhood,
    count: int,
    *,
    rank: int = RANK,
    scale: Scale = 1.0,
    scaling: Scaling = "unit",
    radius: Scale = (0.0, 10.0),
    **acceptance: Any,
) -> Iterator[Tensor]:
    """Draws as in `pca_samples`, with the principal directions of the samples of `random_samples` at these settings."""
    accepted = accepted_draws(around, count, radius, **acceptance)
    if len(accepted) <= rank:
        text = f"rank={rank}: {len(accepted)} random samples were accepted; give a lower threshold or radius"
        raise Rejected("pca-random", text)
    beside = replace(around, path=lambda: (random_step(around, *draw, radius) for draw in accepted.items()))
    principal = principal_directions(beside.path, beside.moments[0], rank)
    return gaussian_samples(around, "pca-random", count, principal, scale, scaling)


def average_samples(around: Neighbourhood, count: int) -> Iterator[Tensor]:
    """Yield the mean of the path: one network, whatever the count."""
    yield around.moments[0].to(around.final.dtype)


SAMPLERS: dict[str, Sampler] = {  # the order addresses random streams: append only
    "random": random_samples,
    "dropout": dropout_samples,
    "diagonal": diagonal_samples,
    "pca": pca_samples,
    "pca-random": pca_random_samples,
    "average": average_samples,
    "pca-eigen": partial(pca_samples, scaling="eigen"),
}


def neighbourhood(
    networks: Networks,
    trajectory: Trajectory | None,
    member: int = 0,
    *,
    val: Any = None,
    train: Any = None,
    seed: int = 0,
    last: int = LAST,
    accepted: Accepted | None = None,
) -> Neighbourhood:
    """Return what samplers need to know of one member; see `sample_subspace`."""
    points = points_of(networks)
    if not 0 <= member < len(points):
        raise Misuse(f"member {member} of {len(points)}: the first is 0")
    outputs, y = (None, None) if val is None else labelled_outputs(networks, val, train, [member])

    def path() -> Iterator[Tensor]:
        return iter(()) if trajectory is None else trajectory.vectors(member, last)

    return Neighbourhood(points.vectors[member], path, outputs, y, seed, member, {} if accepted is None else accepted)


def draw_vectors(
    around: Neighbourhood, sampler: str | Sampler, count: int = COUNT, **settings: Any
) -> Iterator[Tensor]:
    """Return weight vectors (P,) of a sampler, by name or as a function, one after another."""
    if isinstance(sampler, str) and sampler not in SAMPLERS:
        raise unknown("sampler", sampler, SAMPLERS)
    if count < 1:
        raise Misuse(f"count={count}: need at least 1 sample")
    draw = SAMPLERS[sampler] if isinstance(sampler, str) else sampler
    return draw(around, count, **settings)


def sample_subspace(
    networks: Networks,
    trajectory: Trajectory | None,
    member: int = 0,
    sampler: str | Sampler = "random",
    count: int = COUNT,
    *,
    val: Any = None,
    train: Any = None,
    seed: int = 0,
    last: int = LAST,
    accepted: Accepted | None = None,
    **settings: Any,
) -> Points:
    """Draw networks around one member.

    Args:
        networks: An ensemble, `Points`, or modules of one architecture.
        trajectory: Paths of the members; random samples and dropout need none.
        member: Index of the member.
        sampler: A name of `SAMPLERS`, or a function `(neighbourhood, count, **settings)` that yields weight vectors.
        count: Number of samples. Fewer are returned if random samples are rejected.
        val: Labelled examples by whose accuracy random samples are accepted.
        train: Training examples for batch-norm statistics; needed by networks with batch-norm layers.
        seed: Random seed.
        last: Number of checkpoints at the end of the path.
        accepted: Store of accepted draws, to reuse in another call with the same examples and seed.
        **settings: Settings of the sampler.

    Returns:
        The networks as points; `.ensemble(like)` makes an ensemble of them.

    >>> nets = [torch.nn.Linear(4, 3)]
    >>> len(sample_subspace(nets, None, sampler="dropout", count=7))
    7
    """
    points = points_of(networks)
    options: dict[str, Any] = {"val": val, "train": train, "seed": seed, "last": last, "accepted": accepted}
    around = neighbourhood(networks, trajectory, member, **options)
    draws = list(draw_vectors(around, sampler, count, **settings))
    vectors = torch.stack(draws) if draws else points.vectors[:0]
    return points.around(member, vectors).refreshed(inputs_of(networks, train))
