"""Likelihoods: the distribution of the target given a network's outputs.

`Categorical` is for classification, `Gaussian` (known noise) and `HeteroscedasticGaussian` (noise learned per input)
are for regression. Every likelihood has the number of outputs a network needs (`width`), the negative log-likelihood
per example in nats (`loss`), validation scores (`validate`) and `to_json`. Training and engines use nothing else.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.errors import Misuse, unknown

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
SMALLEST_STD = 1e-3  # in standard deviations of the target: the density of a memorised example stays finite
LOWEST = -37.0  # below it softplus(x) equals exp(x) in double precision


def identity(outputs: Tensor) -> Tensor:
    """The outputs (...) themselves: the link of softmax."""
    return outputs


def log_softplus(outputs: Tensor) -> Tensor:
    """log log(1 + exp(x)) of each output (...); equal to x for very low x, so that value and gradient are finite.

    >>> log_softplus(torch.tensor([-1000.0, 0.0]))
    tensor([-1.0000e+03, -3.6651e-01])
    """
    safe = outputs.clamp_min(LOWEST)  # the gradient of the branch not taken must be finite too
    return torch.where(outputs < LOWEST, outputs, F.softplus(safe, threshold=40).log())


LINKS: dict[str, Callable[[Tensor], Tensor]] = {  # outputs -> logits; class probabilities are their softmax
    "softmax": identity,
    "softplus": log_softplus,
}


@dataclass(frozen=True)
class Categorical:
    """Classification: one output per class; targets are label indices. The link maps outputs f to probabilities.

    | link | probability of class c | |
    |---|---|---|
    | `softmax` | exp(f_c) / sum of exp(f_j) | |
    | `softplus` | softplus(f_c) / sum of softplus(f_j) | linear in large f, so less confident (Shridhar et al. 2018) |

    Both are the softmax of logits, which are f or log softplus(f); use `logits` wherever probabilities are needed.
    """

    classes: int
    link: str = "softmax"
    kind: ClassVar[str] = "categorical"
    task: ClassVar[str] = "classification"

    def __post_init__(self) -> None:
        if self.link not in LINKS:
            raise unknown("link", self.link, LINKS)

    @property
    def width(self) -> int:
        return self.classes

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Negative log-likelihood (..., N) of labels y (..., N) under outputs (..., N, K)."""
        return F.cross_entropy(self.logits(outputs).movedim(-1, 1), y, reduction="none")

    def validate(self, outputs: Tensor, y: Tensor) -> dict[str, Any]:
        """Validation NLL and accuracy of each member, from outputs (M, N, K), and of all finite members."""
        mean = self.probs(outputs[_finite(outputs)]).mean(0)
        hits = [(guess.argmax(-1) == y).double().mean(-1) for guess in (outputs, mean)]
        return _validation(self.loss(outputs, y.expand(len(outputs), *y.shape)), "val_accuracy", hits)

    def logits(self, outputs: Tensor) -> Tensor:
        """Logits (..., N, K), whose softmax are the class probabilities."""
        return LINKS[self.link](outputs)

    def probs(self, outputs: Tensor) -> Tensor:
        """Class probabilities (..., N, K)."""
        return self.logits(outputs).softmax(-1)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class GaussianOutputs(ABC):
    """Regression with independent Gaussians for each target: what the three likelihoods below share."""

    kind: ClassVar[str]
    task: ClassVar[str] = "regression"

    @abstractmethod
    def mean_var(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (..., N, K) of the target, in the target's units."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Negative log density (..., N) of targets y (..., N, K), summed over K."""
        mean, var = self.mean_var(outputs)
        return (0.5 * (y - mean).square() / var + 0.5 * var.log() + HALF_LOG_TWO_PI).sum(-1)

    def validate(self, outputs: Tensor, y: Tensor) -> dict[str, Any]:
        """Validation NLL and RMSE of each member, from outputs (M, N, width), and of all finite members."""
        mean, _ = self.mean_var(outputs)
        errors = [(guess - y).square().mean((-2, -1)).sqrt() for guess in (mean, mean[_finite(mean)].mean(0))]
        return _validation(self.loss(outputs, y), "val_rmse", errors)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class Gaussian(GaussianOutputs):
    """Regression with Gaussian noise of one known standard deviation; K outputs f are standardised means.

    The target is N(shift + scale * f, noise_std^2), in the target's units.
    """

    noise_std: float
    shift: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)
    targets: int | None = None  # target dimensions K, if one shift and scale holds for all
    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        if not 0 < self.noise_std < math.inf:
            raise Misuse(f"noise_std={self.noise_std:g}: expected a positive number such as 0.1, in the target's units")

    @property
    def width(self) -> int:
        return len(self.shift) if self.targets is None else self.targets

    def mean_var(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (..., N, K) of the target, in the target's units."""
        mean = outputs * outputs.new_tensor(self.scale) + outputs.new_tensor(self.shift)
        return mean, torch.full_like(mean, self.noise_std**2)


@dataclass(frozen=True)
class HeteroscedasticGaussian(GaussianOutputs):
    """Regression with Gaussian noise that depends on the input: K outputs f for means, then K outputs r for noise.

    In the target's units, mean = shift + scale * f and std = scale * (softplus(r) + 1e-3).
    """

    shift: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)
    kind: ClassVar[str] = "heteroscedastic"

    @property
    def width(self) -> int:
        return 2 * len(self.shift)

    def mean_var(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (..., N, K) of the target, in the target's units."""
        f, raw = outputs.chunk(2, dim=-1)
        scale = outputs.new_tensor(self.scale)
        std = scale * (F.softplus(raw) + SMALLEST_STD)
        return f * scale + outputs.new_tensor(self.shift), std.square()


@dataclass(frozen=True)
class MeanAndStd(GaussianOutputs):
    """Regression predictions made elsewhere: K means, then K standard deviations, in the target's units."""

    targets: int
    kind: ClassVar[str] = "mean-and-std"

    @property
    def width(self) -> int:
        return 2 * self.targets

    def mean_var(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (..., N, K) of the target, in the target's units."""
        mean, std = outputs.chunk(2, dim=-1)
        return mean, std.square()


Likelihood = Categorical | Gaussian | HeteroscedasticGaussian | MeanAndStd


def _validation(losses: Tensor, name: str, scores: list[Tensor]) -> dict[str, Any]:
    """A validation record: mean losses of members, from losses (M, N), and of the mixture, -log mean exp(-loss)."""
    members, ensemble = scores
    finite = losses[_finite(losses)]
    mixture = math.log(max(len(finite), 1)) - (-finite).logsumexp(0)
    return {
        "val_nll": losses.mean(-1).tolist(),
        name: members.tolist(),
        "ensemble": {"val_nll": float(mixture.mean()), name: float(ensemble)},
    }


def _finite(values: Tensor) -> Tensor:
    """Whether all values (M, ...) of each member (M,) are finite."""
    return values.flatten(1).isfinite().all(1)


def link_of(likelihood: Likelihood) -> Callable[[Tensor], Tensor]:
    """The map from outputs to logits; the identity for regression."""
    return likelihood.logits if isinstance(likelihood, Categorical) else identity


def likelihood_for(
    task: str, y: Tensor, classes: int, noise_std: float | None = None, link: str | None = None
) -> Likelihood:
    """The likelihood of a task: `Categorical`, or Gaussian noise, known or learned, scaled to the targets y (N, K)."""
    if link is not None and task != "classification":
        raise Misuse(f"link={link} is for classification, and this data is a regression: leave it out")
    if noise_std is not None and task == "classification":
        raise Misuse(f"noise_std={noise_std:g} is for regression, and this data is a classification: leave it out")
    if task == "classification":
        return Categorical(classes, link or "softmax")
    shift, std = y.double().mean(0), y.double().std(0, correction=0)
    scale = torch.where(std > 0, std, 1.0)
    units = tuple(shift.tolist()), tuple(scale.tolist())
    return HeteroscedasticGaussian(*units) if noise_std is None else Gaussian(noise_std, *units)


def likelihood_from_json(record: dict[str, Any]) -> Likelihood:
    """The likelihood of a record made by `to_json`.

    >>> likelihood_from_json(Categorical(10).to_json())
    Categorical(classes=10, link='softmax')
    """
    makers = (Categorical, Gaussian, HeteroscedasticGaussian, MeanAndStd)
    kinds: dict[str, Callable[..., Likelihood]] = {maker.kind: maker for maker in makers}
    fields = {key: tuple(v) if isinstance(v, list) else v for key, v in record.items() if key != "kind"}
    if record["kind"] not in kinds:
        raise unknown("likelihood", record["kind"], kinds)
    return kinds[record["kind"]](**fields)
