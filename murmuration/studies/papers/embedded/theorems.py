"""The theorems behind embedded ensembles, measured at finite widths on networks in the parameterisation of the theory.

At infinite width outputs of members are Gaussian (assumption A1, theorem 1.1), independent for random signs and
correlated for factors around 1 (1.2, 1.3); tangent kernels are deterministic at the start (A2, 2.1), vanish between
independent members (2.2) and stay constant in training (A3). Each seed measures all of it at every width.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from murmuration.core.engines import assemble, member_outputs
from murmuration.data import Data
from murmuration.likelihoods import likelihood_for
from murmuration.models.nets.dense import mlp
from murmuration.studies.infinite_width import Architecture, limit_kernels, scales_of
from murmuration.studies.papers.embedded.settings import Arm, Setting, arm_named
from murmuration.studies.papers.record import cpu_seconds
from murmuration.studies.tangent_kernels import member_kernels
from murmuration.studies.verdicts import Verdict, estimate
from murmuration.training import TrainSpec, begin, choose_engine, train
from murmuration.training.tuning import Unwatched

WIDTHS = (16, 32, 64, 128, 256)
MEMBERS, INPUTS = 4, 4
DRAWS = 200  # initialisations behind moments of outputs
KERNEL_DRAWS = 8  # initialisations behind the spread of kernels
STEPS, RATE = 30, 0.2  # of plain gradient descent, between which kernels are compared
ROOT = (-0.75, -0.25)  # exponents of N that count as -1/2
FALLS = (-math.inf, -0.25)  # exponents that count as falling with N
CLOSE = 0.05  # of a correlation to its limit
ARMS = ("independent", "collective")


@dataclass(frozen=True)
class Draw:
    """Members of one initialisation."""

    outputs: Tensor  # (M, n, K)
    common: Tensor | None  # (M, n, M, n), tangent kernels of shared parameters


def spec_of(data: Data, arm: Arm, setting: Setting, neurons: int, seed: int) -> TrainSpec:
    """Return the training spec of a network in the parameterisation of the theory, by plain gradient descent."""
    plan = replace(setting.plain(MEMBERS, seed), lr=RATE, epochs=1, steps=STEPS, drop_last=True)

    def build() -> torch.nn.Module:
        return mlp(data.input_shape, len(data.classes), hidden=(neurons,) * setting.layers, scale="ntk")

    likelihood = likelihood_for(data.task, data.train.y, len(data.classes))
    return TrainSpec(build, data, likelihood, arm.recipe("embedded"), plan)


def draw(spec: TrainSpec, x: Tensor, *, kernels: bool) -> Draw:
    """Return outputs, and kernels if asked for, of members at the start."""
    progress = begin(spec)
    population, family = progress.state.population, spec.method.weights
    with assemble(choose_engine(spec, progress).engine, spec.member(0)) as team, torch.no_grad():
        outputs = member_outputs(team, family, population, x).double()
    common = member_kernels(spec.member(0), population, family, x).common.double() if kernels else None
    return Draw(outputs, common)


def measure(data: Data, setting: Setting, arm: str, neurons: int, seed: int) -> dict[str, Any]:
    """Return the measurements of one arm, width and seed."""
    start = cpu_seconds()
    x = unit_inputs(data.train.prepared)
    seeds = range(DRAWS * seed, DRAWS * (seed + 1))
    specs = [spec_of(data, arm_named(arm), setting, neurons, number) for number in seeds]
    draws = [draw(spec, x, kernels=place < KERNEL_DRAWS) for place, spec in enumerate(specs)]
    outputs = torch.stack([item.outputs for item in draws])  # (D, M, n, K)
    common = torch.stack([item.common for item in draws if item.common is not None])  # (D, M, n, M, n)
    diagonal, off_diagonal = member_blocks(common)
    mean = diagonal.mean(dim=(0, 1))
    return {
        "kurtosis": float(excess_kurtosis(outputs)),
        "correlation": float(member_correlation(outputs)),
        "spread": float((diagonal.mean(1) - mean).square().sum((1, 2)).mean().sqrt() / mean.norm()),
        "between": float(off_diagonal.square().sum((2, 3)).mean().sqrt() / mean.norm()),
        "change": kernel_change(specs[0], x),
        "cpu_seconds": round(cpu_seconds() - start, 2),
    }


def unit_inputs(prepared: Tensor) -> Tensor:
    """Return a few inputs (n, ...) with x.x / d = 1, where the limits are of order one."""
    x = prepared[:: max(1, len(prepared) // INPUTS)][:INPUTS]
    return x / x.flatten(1).square().mean(1).sqrt().reshape(-1, *[1] * (x.ndim - 1))


def excess_kurtosis(outputs: Tensor) -> Tensor:
    """Return the excess kurtosis of outputs (D, ...) over draws of mean zero, a mean over members, inputs and classes.

    Moments are those of all outputs of an input together: every output has the same law.

    >>> float(excess_kurtosis(torch.tensor([-1.0, 1.0, -1.0, 1.0]).reshape(4, 1, 1, 1)))
    -2.0
    """
    fourth, second = (outputs.pow(power).mean(dim=(0, 1, 3)) for power in (4, 2))  # (n,)
    return (fourth / second.square() - 3).mean()


def member_correlation(outputs: Tensor) -> Tensor:
    """Return S_o / S_d at the same input: E f_a f_b over E f_a², of outputs (D, M, n, K)."""
    members = outputs.shape[1]
    total, own = outputs.sum(1).square().mean(), outputs.square().mean()
    return (total / members - own) / (members - 1) / own


def member_blocks(common: Tensor) -> tuple[Tensor, Tensor]:
    """Return T_d (D, M, n, n) and T_o (D, M (M - 1), n, n) of kernels (D, M, n, M, n)."""
    blocks = common.permute(0, 1, 3, 2, 4)  # (D, M, M, n, n)
    same = torch.eye(blocks.shape[1], dtype=torch.bool)
    return blocks[:, same], blocks[:, ~same]


def kernel_change(spec: TrainSpec, x: Tensor) -> float:
    """Return |T(end) - T(start)| / |T(start)| of the members' own blocks over a fixed number of steps."""
    progress = begin(spec)
    family, engine = spec.method.weights, choose_engine(spec, progress).engine
    before = member_kernels(spec.member(0), progress.state.population, family, x).common[None].double()
    after = member_kernels(spec.member(0), train(spec, engine, progress, Unwatched()), family, x).common[None].double()
    start, end = (member_blocks(kernels)[0] for kernels in (before, after))
    return float((end - start).norm() / start.norm())


def limit_correlation(arm: str, layers: int) -> float:
    """Return S_o / S_d at infinite width, at one input with x.x / d = 1.

    >>> limit_correlation("independent", 2), round(limit_correlation("collective", 1), 4)
    (0.0, 0.6455)
    """
    factors = arm_named(arm).recipe("").sharing.init
    scales = (*[scales_of("seed", math.sqrt(2))] * layers, scales_of("seed", 1.0))
    x = torch.ones(1, 1)
    kernels = limit_kernels(Architecture((factors,) * layers, (factors,) * layers, scales=scales), x, x)
    return float(kernels.covariance_other / kernels.covariance_same)


def exponent(values: Sequence[float], widths: Sequence[int]) -> float:
    """Return the slope of the logarithm of values over that of widths.

    >>> exponent([8.0, 4.0, 2.0], [1, 4, 16])
    -0.5
    """
    logs = [math.log(width) for width in widths], [math.log(value) for value in values]
    return statistics.linear_regression(*logs).slope


def verdicts(entries: Sequence[dict[str, Any]], layers: int) -> list[Verdict]:
    """Return the verdicts on the measurements, one value a seed."""
    limit = round(limit_correlation("collective", layers), 4)
    near_limit = (round(limit - CLOSE, 4), round(limit + CLOSE, 4))
    table = Table(entries)
    claims = (
        (
            "theorem 1.1",
            "outputs of members become Gaussian as networks widen",
            [(f"excess kurtosis, {table.ends}, {arm}", table.ratios(arm, "kurtosis"), -0.25, 0.25) for arm in ARMS],
            "theorem 1.1, assumption A1",
        ),
        (
            "theorem 1.2",
            "random signs make outputs of members uncorrelated; factors around 1 leave the correlation of the limit",
            [
                ("correlation, independent", table.widest("independent", "correlation"), -CLOSE, CLOSE),
                ("correlation, collective", table.widest("collective", "correlation"), *near_limit),
            ],
            "theorems 1.2 and 1.3",
        ),
        (
            "theorem 2.1",
            "tangent kernels become deterministic, their spread over initialisations falls as N^(-1/2)",
            [(f"exponent of N, {arm}", table.exponents(arm, "spread"), *ROOT) for arm in ARMS],
            "theorem 2.1, assumption A2",
        ),
        (
            "theorem 2.2",
            "tangent kernels between independent members vanish as N^(-1/2)",
            [("exponent of N, independent", table.exponents("independent", "between"), *ROOT)],
            "theorem 2.2",
        ),
        (
            "assumption A3",
            "tangent kernels change less in training as networks widen",
            [(f"exponent of N, {arm}", table.exponents(arm, "change"), *FALLS) for arm in ARMS],
            "assumption A3",
        ),
    )
    missing = () if entries else ("the part theorems",)
    return [
        Verdict(name, claim, tuple(estimate(*row) for row in rows if row[1]), missing=missing, source=source)
        for name, claim, rows, source in claims
    ]


@dataclass(frozen=True)
class Table:
    """The measurements by arm, width and seed."""

    entries: Sequence[dict[str, Any]]

    @property
    def widths(self) -> list[int]:
        return sorted({entry["neurons"] for entry in self.entries})

    @property
    def ends(self) -> str:
        return f"N = {self.widths[-1]} over N = {self.widths[0]}" if self.entries else ""

    def lines(self, arm: str, measure: str) -> list[list[float]]:
        """Return a measure by width, for each seed."""
        found = {(e["arm"], e["neurons"], e["seed"]): e[measure] for e in self.entries}
        seeds = sorted({entry["seed"] for entry in self.entries})
        return [[found[arm, width, seed] for width in self.widths] for seed in seeds]

    def ratios(self, arm: str, measure: str) -> list[float]:
        return [line[-1] / line[0] for line in self.lines(arm, measure)]

    def widest(self, arm: str, measure: str) -> list[float]:
        return [line[-1] for line in self.lines(arm, measure)]

    def exponents(self, arm: str, measure: str) -> list[float]:
        return [exponent(line, self.widths) for line in self.lines(arm, measure)]
