"""Likelihoods of regression: Gaussians with known or learned noise, and quantiles; targets are standardised."""

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from murmuration.likelihoods.base import REGRESSION, Likelihood, softplus, weighted
from murmuration.likelihoods.mixtures import HALF_LOG_TWO_PI, Normals, QuantileCurves, contaminated_log_prob
from murmuration.system.errors import Misuse, require_number
from murmuration.system.option_text import FIXED

SMALLEST_STD = 1e-3  # in standard deviations of the target: the density of a memorised example stays finite
LARGEST_RATIO = 1e18  # of a known noise and the standard deviation of the target: its square is a float32

Units = tuple[float, ...]  # (K,), one number for each target


def standardisation(y: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Compute shift and scale of targets.

    Args:
        y: Targets (N, K).

    Returns:
        Mean and standard deviation (K,), computed in float64; a constant target has scale 1.
    """
    shift, std = y.double().mean(0), y.double().std(0, correction=0)
    return tuple(shift.tolist()), tuple(torch.where(std > 0, std, 1.0).tolist())


@dataclass(frozen=True)
class Standardised(Likelihood):
    """Regression on standardised targets, with fields `shift` and `scale`: (K,) each, or None.

    None stands for the mean and standard deviation of the training targets until `for_targets`, and for 0 and 1 in
    predictions of models trained elsewhere.
    """

    task: ClassVar[str] = REGRESSION

    if TYPE_CHECKING:

        @property
        def shift(self) -> Units | None: ...

        @property
        def scale(self) -> Units | None: ...

    @property
    def count(self) -> int:
        """The number of targets K."""
        return 1 if self.shift is None else len(self.shift)

    @property
    def units(self) -> tuple[Units, Units]:
        """Shift and scale."""
        return self.shift or (0.0,), self.scale or (1.0,)

    def for_targets(self, y: Tensor) -> Self:
        if self.shift is None and self.scale is None:
            shift, scale = standardisation(y)
            fitted: Any = {"shift": shift, "scale": scale}
            return replace(self, **fitted)
        if y.ndim != 2 or y.shape[1] != self.count:
            expected = f"expected (examples, {self.count}); give shift and scale for these"
            raise Misuse(f"{self} for targets of shape {tuple(y.shape)}: {expected}")
        return self

    def encode(self, y: Tensor) -> Tensor:
        """Standardise targets, (y - shift) / scale (..., K), in float64, and convert them to float32.

        A target of 1.7e9 with a standard deviation of 10 has no digits left after its mean in float32.
        """
        shift, scale = self.units
        if not any(shift) and all(factor == 1 for factor in scale):
            return y.float()
        exact = y.double()
        return ((exact - exact.new_tensor(shift)) / exact.new_tensor(scale)).float()


@dataclass(frozen=True)
class GaussianOutputs(Standardised):
    """Regression with independent Gaussians for each target: the base of the three likelihoods below.

    `outliers` is the share of targets whose noise is three times as wide as that of others (the contaminated normal of
    Tukey 1960); means and variances are those of all targets.
    """

    if TYPE_CHECKING:

        @property
        def outliers(self) -> float: ...

    def __post_init__(self) -> None:
        for name in ("shift", "scale"):
            units = getattr(self, name)
            if units is not None and not isinstance(units, tuple | list):
                raise Misuse(f"{name}={units!r}: need a number for each target, {name}=({units!r},)")
        require_number("outliers", self.outliers, 0.02)
        if not 0 <= self.outliers < 0.5:
            problem = "expected a share of the targets from 0 to below 0.5, such as 0.02"
            raise Misuse(f"outliers={self.outliers:g}: {problem}")

    @abstractmethod
    def standardised(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance (..., N, K) in standardised units, (target - shift) / scale."""

    def mean_var(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance (..., N, K) of the target, in the target's units.

        Args:
            outputs: Outputs (..., N, width) of a network.
        """
        mean, var = self.standardised(outputs)
        shift, scale = (outputs.new_tensor(unit) for unit in self.units)
        return mean * scale + shift, var * scale.square()

    def distribution(self, outputs: Tensor) -> Normals:
        return Normals(*self.mean_var(outputs), self.outliers)

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, member: Tensor | None = None) -> Tensor:
        """Compute negative log densities (..., N), in target units, of standardised y (..., N, K), summed over K."""
        mean, var = self.standardised(outputs)
        if self.outliers:
            losses = 0.5 * var.log() - contaminated_log_prob((y - mean).square() / var, self.outliers)
        else:
            losses = 0.5 * (y - mean).square() / var + 0.5 * var.log() + HALF_LOG_TWO_PI
        return weighted((losses + outputs.new_tensor(self.units[1]).log()).sum(-1), weight)


@dataclass(frozen=True)
class Gaussian(GaussianOutputs):
    """Regression with Gaussian noise of one known standard deviation; K outputs f are standardised means.

    The target is N(shift + scale * f, noise_std^2), in the target's units.

    Attributes:
        noise_std: Standard deviation of the noise, in the target's units.
        shift: Mean (K,) of the targets; `fit` fills it in.
        scale: Standard deviation (K,) of the targets; `fit` fills it in.
        targets: Number of targets K, if all share one shift and scale.
    """

    noise_std: float
    shift: Units | None = None
    scale: Units | None = None
    targets: int | None = None
    kind: ClassVar[str] = "gaussian"
    outliers: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        require_number("noise_std", self.noise_std, 0.1)
        if not 0 < self.noise_std < math.inf:
            raise Misuse(f"noise_std={self.noise_std:g}: expected a positive number such as 0.1, in the target's units")
        odd = [scale for scale in self.units[1] if not 1 / LARGEST_RATIO < self.noise_std / scale < LARGEST_RATIO]
        if odd:
            far = f"targets have the standard deviation {odd[0]:g}, and the ratio is beyond single precision"
            raise Misuse(f"noise_std={self.noise_std:g}: {far}; write the noise in the target's units")
        if self.targets is not None:
            for name, value in zip(("shift", "scale"), self.units, strict=True):
                object.__setattr__(self, name, value)

    @property
    def count(self) -> int:
        return super().count if self.targets is None else self.targets

    @property
    def width(self) -> int:
        return self.count

    def standardised(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance (..., N, K) in standardised units.

        Args:
            outputs: Outputs (..., N, width) of a network.
        """
        scale = torch.tensor(self.units[1], dtype=torch.float64)  # not every device knows it
        return outputs, (self.noise_std**2 / scale.square()).to(outputs).expand_as(outputs)


@dataclass(frozen=True)
class HeteroscedasticGaussian(GaussianOutputs):
    """Regression with Gaussian noise that depends on the input: K outputs f for means, then K outputs r for noise.

    In the target's units, mean = shift + scale * f and std = scale * (softplus(r) + 1e-3).

    Attributes:
        shift: Mean (K,) of the targets; `fit` fills it in.
        scale: Standard deviation (K,) of the targets; `fit` fills it in.
        outliers: Share of targets, such as 0.02, whose noise is three times as wide: heavy tails.
        inflation: Factor of the standard deviation in predictions, and so in validation and early stopping: members
            memorise part of the noise of few examples, and that of new examples is wider.
    """

    shift: Units | None = field(default=None, metadata=FIXED)
    scale: Units | None = field(default=None, metadata=FIXED)
    outliers: float = 0.0
    inflation: float = 1.0
    kind: ClassVar[str] = "heteroscedastic"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.inflation < math.inf:
            raise Misuse(f"inflation={self.inflation:g}: expected a positive factor such as 1.2")

    @property
    def width(self) -> int:
        return 2 * self.count

    @property
    def about_outputs(self) -> str:
        known, learned = "likelihood=mm.Gaussian(noise_std=...)", "mm.with_noise(net)"
        two = "two outputs a target, mean and noise"
        return f"{two}; for a net of means write {known} with a noise that is known, or {learned} to learn one"

    def standardised(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance (..., N, K) in standardised units.

        Args:
            outputs: Outputs (..., N, 2 K) of a network.
        """
        mean, raw = outputs.chunk(2, dim=-1)
        return mean, (softplus(raw) + SMALLEST_STD).square()

    def mean_var(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, var = super().mean_var(outputs)
        return mean, var if self.inflation == 1 else self.inflation**2 * var


@dataclass(frozen=True)
class MeanAndStd(GaussianOutputs):
    """Regression predictions made elsewhere: K means, then K standard deviations, in the target's units.

    Attributes:
        targets: Number of targets K.
        outliers: Share of targets whose noise is three times as wide.
    """

    targets: int
    outliers: float = 0.0
    kind: ClassVar[str] = "mean-and-std"
    shift: ClassVar[Units | None] = None
    scale: ClassVar[Units | None] = None

    @property
    def width(self) -> int:
        return 2 * self.targets

    def standardised(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance (..., N, K) in standardised units.

        Args:
            outputs: Outputs (..., N, 2 K) of a network.
        """
        mean, std = outputs.chunk(2, dim=-1)
        return mean, std.square()


@dataclass(frozen=True)
class MomentMatched(MeanAndStd):
    """`MeanAndStd` of members whose mixture is replaced by one Gaussian of its mean and variance.

    Members that disagree by more than their noise leave gaps between the modes of their mixture; the Gaussian has none
    (Lakshminarayanan et al. 2017). Aleatoric and epistemic variance are those of the members.
    """

    kind: ClassVar[str] = "moment-matched"
    moment_matched: ClassVar[bool] = True


@dataclass(frozen=True)
class Quantiles(Standardised):
    """Quantile regression: L outputs for each of K targets, the quantiles at `levels`, trained by the pinball loss.

    The loss is the mean over levels and the sum over targets of max(t u, (t - 1) u), with u = y - q and level t, in
    standardised units (Koenker and Bassett 1978); it is not a log-likelihood. Predicted quantiles are sorted
    (Chernozhukov et al. 2010). The predictive distribution has a cdf that is linear between neighbouring quantiles,
    and exponential tails beyond the outermost whose density continues that of the neighbouring piece: only the
    quantiles are learned, the rest interpolates.

    Attributes:
        levels: Levels (L,) of the quantiles, increasing, between 0 and 1.
        shift: Mean (K,) of the targets; `fit` fills it in.
        scale: Standard deviation (K,) of the targets; `fit` fills it in.
    """

    levels: tuple[float, ...] = (0.05, 0.25, 0.5, 0.75, 0.95)
    shift: Units | None = None
    scale: Units | None = None
    kind: ClassVar[str] = "quantiles"

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(float(level) for level in self.levels))
        ends = (0.0, *self.levels, 1.0)
        if len(self.levels) < 2 or not all(a < b for a, b in pairwise(ends)):
            raise Misuse(f"levels {self.levels}: expected at least two, increasing, between 0 and 1, such as 0.1, 0.9")

    @property
    def width(self) -> int:
        return self.count * len(self.levels)

    @property
    def about_outputs(self) -> str:
        return f"{len(self.levels)} quantiles of each target"

    def quantiles(self, outputs: Tensor) -> Tensor:
        """Reshape outputs to standardised quantiles (..., N, K, L), not sorted.

        Args:
            outputs: Outputs (..., N, K L).
        """
        return outputs.unflatten(-1, (self.count, len(self.levels)))

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, member: Tensor | None = None) -> Tensor:
        """Compute the pinball loss (..., N) of standardised targets.

        Args:
            outputs: Outputs (..., N, K L).
            y: Standardised targets (..., N, K).
            weight: Weights (..., N) of examples; by default 1.
            member: Numbers of the members; not used.
        """
        errors, levels = y.unsqueeze(-1) - self.quantiles(outputs), outputs.new_tensor(self.levels)
        return weighted(torch.maximum(levels * errors, (levels - 1) * errors).mean(-1).sum(-1), weight)

    def distribution(self, outputs: Tensor) -> QuantileCurves:
        knots, levels = self.quantiles(outputs).sort(-1).values, outputs.new_tensor(self.levels)
        gaps = knots.diff(dim=-1).maximum(SMALLEST_STD * levels.diff())
        rising = torch.cat([knots[..., :1], knots[..., :1] + gaps.cumsum(-1)], -1)
        shift, scale = (outputs.new_tensor(unit)[:, None] for unit in self.units)
        return QuantileCurves(levels, rising * scale + shift)

    def centre(self, outputs: Tensor) -> Tensor:
        return self.quantiles(outputs)[..., len(self.levels) // 2]

    def stretch(self, outputs: Tensor, centre: Tensor, factors: Tensor) -> Tensor:
        """Move quantiles away from a centre.

        Args:
            outputs: Outputs (S, N, K L).
            centre: Centre (N, K) in target units.
            factors: Factors (K,) of the distance to the centre.
        """
        shift, scale = (outputs.new_tensor(unit) for unit in self.units)
        middle = ((centre - shift) / scale)[..., None]
        return (middle + factors[:, None] * (self.quantiles(outputs) - middle)).flatten(-2)
