"""A weight is a distribution: N(mean, spread^2), learned by gradient (Bayes by Backprop, Blundell et al. 2015).

The mean is stored under the weight's own name, what gives its spread beside it as `K:spread`. A pass in training is
noisy in one of three ways:

| estimator | noise |
|---|---|
| `draw` | weights are drawn once a pass, the same for all examples |
| `local` | outputs of linear operators are drawn, one number each: less variance of gradients (Kingma et al. 2015) |
| `flipout` | one draw of weights, with signs of its own for every example (Wen et al. 2018) |

For dense layers all three have the same law for one example. For convolutions `local` has the right mean and variance
at every position and no covariance between positions, though one kernel acts on all: its passes are not draws of a
function. Predictions therefore always draw weights, and hold a draw for all inputs.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from murmuration.errors import Misuse, unknown
from murmuration.population import Named, Population, is_companion, kept_of
from murmuration.streams import Noise, many_normals, normals
from murmuration.weights.outline import Kernel, Outline
from murmuration.weights.priors import Belief, in_a_row, out_of_a_row, prior_named, total_cost
from murmuration.weights.spreads import SPREADS, std_of, stored_for

SPREAD, VARIANCE, DELTA, CENTRE = ":spread", ":variance", ":delta", ":centre"  # companions of a Gaussian weight
ESTIMATORS = ("local", "draw", "flipout")
WEIGHTINGS = ("uniform", "blundell")
REDUCTIONS = ("elbo", "log-mean-exp")
CHOICES: dict[str, Sequence[str]] = {
    "estimator": ESTIMATORS,
    "spread": SPREADS,
    "bias": ("gaussian", "point"),
    "weighting": WEIGHTINGS,
    "reduction": REDUCTIONS,
}

Rows = dict[int, Tensor | None]  # leading axes of members, 1 or 0 -> standard deviations of all such distributions


@dataclass(frozen=True)
class Gaussian:
    """What can be written after `gaussian:`."""

    kind: ClassVar[str] = "gaussian"
    estimator: str = "local"
    where: str = "all"  # all, last, factors, or patterns of parameters' names with ; between
    bias: str = "gaussian"  # whether biases are distributions too
    spread: str = "rho"
    start: float = 0.1  # spreads begin as this part of the standard deviation of a tensor's first values
    around: str = "no"  # yes (the net as it is given) or a run: means and priors begin at its weights, spreads as parts
    prior: str = "he"
    beta: float = 0.1  # temperature: the weight of the prior's cost; 1 for Bayes, which underfits small data sets
    weighting: str = "uniform"
    warm: float = 0.25  # the share of epochs over which beta grows from 0
    samples: int = 1  # passes a step
    reduction: str = "elbo"
    draws: int = 30  # of each member when it predicts

    def __post_init__(self) -> None:
        for field, known in CHOICES.items():
            if getattr(self, field) not in known:
                raise unknown(field, getattr(self, field), known)
        prior_named(self.prior)
        if not 0 < self.start < math.inf or not 0 <= self.beta < math.inf or not 0 <= self.warm <= 1:
            raise Misuse(
                f"start={self.start}, beta={self.beta}, warm={self.warm}: need start above 0, beta not negative, warm"
                " from 0 to 1"
            )
        if self.samples < 1 or self.draws < 1:
            raise Misuse(f"samples={self.samples}, draws={self.draws}: need at least 1 each")

    def chosen(self, names: Sequence[str], outline: Outline) -> list[str]:
        """Which of these tensors are distributions, in their order."""
        biases = {bias for kernel in outline.kernels for bias in kernel.biases}
        last = outline.kernels[-1] if outline.kernels else None
        patterns = [pattern.strip() for pattern in self.where.split(";")]

        def wanted(name: str) -> bool:
            if self.where == "factors":
                return name.endswith((":in", ":out"))
            if name in biases and self.bias == "point":
                return False
            if self.where == "last":
                return last is not None and name in (last.name, *last.biases)
            if self.where == "all":
                return name in outline.names or name in biases
            return any(fnmatchcase(name, pattern) for pattern in patterns)

        found = [name for name in names if wanted(name)]
        idle = [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)]
        if self.where in ("all", "last", "factors"):
            idle = []
        if not found and self.where != "factors":  # one member alone has no factors
            idle = idle or [self.where]
        for pattern in idle:
            raise Misuse(f"where={pattern} matches no tensor of the net: write all, last, factors or patterns of names")
        return found

    def is_around(self, name: str) -> bool:
        """Whether a tensor is a distribution around trained weights: no network is trained with factors."""
        return self.around != "no" and not is_companion(name)

    def times(self, draws: int | None) -> int:
        """How often each member answers: as often as asked, or as usual."""
        return self.draws if draws is None else replace(self, draws=draws).draws

    def std(self, name: str, mean: Tensor, tensors: Named) -> Tensor:
        return std_of(self.spread, tensors[name + SPREAD], mean)


def with_spreads(population: Population, gaussian: Gaussian, outline: Outline, std: float | None = None) -> Population:
    """The population with a spread beside every tensor that is to be a distribution: `std`, or what its start says.

    Of distributions around trained weights, these weights are the centres of their priors too.
    """
    names, members = gaussian.chosen([*population.own, *population.shared], outline), population.members
    kernels = {kernel.name: kernel for kernel in outline.kernels}
    if std is not None and any(is_companion(name) for name in names):
        raise Misuse(f"where={gaussian.where} makes factors distributions, and ivon would pull them to 0: write all")

    def first(name: str, mean: Tensor) -> Tensor:
        width = _first_std(gaussian, name, mean) if std is None else torch.full_like(mean, std)
        return stored_for(gaussian.spread, width, mean, kernels.get(name))

    mine = {name: population.own[name] for name in names if name in population.own}
    ours = {name: population.shared[name] for name in names if name in population.shared}
    own = {name + SPREAD: torch.stack([first(name, row) for row in mean]) for name, mean in mine.items()}
    shared = {name + SPREAD: first(name, mean) for name, mean in ours.items()}
    trained = {**mine, **{name: mean.expand(members, *mean.shape) for name, mean in ours.items()}}
    centres = {name + CENTRE: mean.clone() for name, mean in trained.items() if gaussian.is_around(name)}
    return Population(
        members,
        {**population.own, **own},
        {**population.shared, **shared},
        {**population.buffers, **centres},
    )


def _first_std(gaussian: Gaussian, name: str, mean: Tensor) -> Tensor:
    """Standard deviations at the start; a tensor of equal values, such as a bias of zeros, is taken to vary by 0.1.

    Around trained weights each is a part of its weight (MOPED, Krishnan et al. 2020).
    """
    if gaussian.is_around(name):
        return gaussian.start * mean.abs()
    scale = mean.std() if mean.numel() > 1 else mean.new_zeros(())
    if not bool(scale > 0):
        scale = torch.as_tensor(0.1, dtype=mean.dtype)
    return torch.full_like(mean, gaussian.start) * scale


def distributions(named: Named) -> list[str]:
    """Names of the tensors that have a spread beside them, in an order that survives being stored.

    >>> distributions({"b": torch.ones(1), "b:spread": torch.ones(1), "a": torch.ones(1), "a:spread": torch.ones(1)})
    ['a', 'b']
    """
    return sorted(key.removesuffix(SPREAD) for key in named if key.endswith(SPREAD))


def row_of_stds(gaussian: Gaussian, named: Named, axes: int) -> Tensor | None:
    """The standard deviations of all distributions side by side, (P,) or with a leading axis of members (m, P).

    Where each weight has a number of its own, all are found in one go: small tensors cost as much as large ones.
    """
    names = distributions(named)
    if not names:
        return None
    if gaussian.spread in ("rho", "std"):
        row = in_a_row([named[name + SPREAD] for name in names], axes)
        return std_of(gaussian.spread, row, row)
    return in_a_row([gaussian.std(name, named[name], named) for name in names], axes)


def taken_apart(row: Tensor, named: Named, axes: int, wanted: AbstractSet[str]) -> Named:
    """What a row says of some of the distributions, each in its shape."""
    names = distributions(named)
    parts = out_of_a_row(row, [named[name] for name in names], axes)
    return {name: part for name, part in zip(names, parts, strict=True) if name in wanted}


def realised(
    gaussian: Gaussian,
    own: Named,
    shared: Named,
    noise: Sequence[Noise],
    noisy: AbstractSet[str],
    buffers: Named,
) -> tuple[Named, Named, Rows]:
    """Own and shared tensors as a pass uses them, without spreads, and the standard deviations of all.

    Those in `noisy` leave their noise to the operators. A bias under flipout gets noise of its own for every example,
    as under local reparameterisation. Pruned weights, whose means are zero already, have no spread.
    """
    mine, ours = ({name: t for name, t in named.items() if not name.endswith(SPREAD)} for named in (own, shared))
    rows = {1: row_of_stds(gaussian, own, 1), 0: row_of_stds(gaussian, shared, 0)}
    means, stds = {}, {}  # of what is drawn here
    for named, found, axes in ((own, mine, 1), (shared, ours, 0)):
        row, names = rows[axes], set(distributions(named))
        if row is None:
            continue
        blurring = {name for name in names & noisy if gaussian.estimator == "local" or named[name].dim() - axes == 1}
        if blurring:
            for name, variance in taken_apart(row.square(), named, axes, blurring).items():
                found[name + VARIANCE] = unless_pruned(variance, name, buffers, axes)
        if names > blurring:
            for name, std in taken_apart(row, named, axes, names - blurring).items():
                means[name] = named[name] if axes else named[name].expand(len(noise), *named[name].shape)
                stds[name] = unless_pruned(std, name, buffers, axes)
    for name, eps in zip(means, many_normals(noise, list(means.values())), strict=True):
        if name in noisy:
            mine[name + DELTA] = stds[name] * eps
        else:
            mine[name] = torch.addcmul(means[name], stds[name], eps)
            ours.pop(name, None)
    return mine, ours, rows


def unless_pruned(width: Tensor, name: str, buffers: Named, axes: int) -> Tensor:
    """Variances or standard deviations of a tensor, zero where it is pruned."""
    kept = kept_of(name, buffers, own=bool(axes))
    return width if kept is None else width * kept


def with_stds(gaussian: Gaussian, population: Population) -> tuple[Gaussian, Population]:
    """The same distributions with their standard deviations stored as they are: what many draws need once."""

    def spelled(named: Named) -> Named:
        found = {name + SPREAD: gaussian.std(name, named[name], named) for name in distributions(named)}
        return {**named, **found}

    return replace(gaussian, spread="std"), replace(
        population, own=spelled(population.own), shared=spelled(population.shared)
    )


def complexity(
    gaussian: Gaussian,
    own: Named,
    shared: Named,
    buffers: Named,
    noise: Sequence[Noise],
    kernels: Mapping[str, Kernel],
    rows: Rows | None = None,
) -> Tensor:
    """KL(q || p) of each of m members (m,), in nats; what members share costs each of them the same.

    Standard deviations that are known already need not be found again.
    Where it is found by draws, each member draws from its own stream, shared tensors too: groups make no difference.
    """
    total = next(iter({**own, **shared}.values())).new_zeros(len(noise))
    for named, axes in ((own, 1), (shared, 0)):
        row = row_of_stds(gaussian, named, axes) if rows is None else rows[axes]
        beliefs = []
        for name in distributions(named):
            centre = buffers.get(name + CENTRE, usual_centre(name))
            centre = centre if axes or isinstance(centre, float) else centre[0]
            prior, kept = prior_named(gaussian.prior, kernels.get(name)), kept_of(name, buffers, own=bool(axes))
            beliefs.append(Belief(prior, named[name], centre, kept))
        if row is not None:
            total = total + total_cost(beliefs, row, partial(normals if axes else _one_each, noise), axes=axes)
    return total


def _one_each(noise: Sequence[Noise], like: Tensor) -> Tensor:
    """Standard normal numbers (m, ...) for a tensor (...) that m members share."""
    return normals(noise, like.expand(len(noise), *like.shape))


def usual_centre(name: str) -> float:
    """Where a prior is centred: weights at 0, factors of shared kernels at 1."""
    return 1.0 if name.endswith((":in", ":out")) else 0.0
