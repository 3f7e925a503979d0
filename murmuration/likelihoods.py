"""What a network's output means: a class, or a number with its noise.

Every likelihood answers three questions: how many outputs the network needs (`width`), how badly outputs
explain targets (`loss`, per example, in nats), and how to write itself down (`to_json`). All knowledge of the
task is here: neither the training loop nor an engine ever asks whether it is classifying or regressing.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.errors import Misuse, unknown

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
SMALLEST_STD = 1e-3  # in units of the target's spread: keeps one memorised example from an infinite density
LOWEST = -37.0  # below it softplus(x) is exp(x) to the last digit of a double


def as_they_are(outputs: Tensor) -> Tensor:
    """The outputs (...)."""
    return outputs


def log_softplus(outputs: Tensor) -> Tensor:
    """log log(1 + exp(x)) of each output (...), finite with its gradient however low x is: there it is x itself.

    >>> log_softplus(torch.tensor([-1000.0, 0.0]))
    tensor([-1.0000e+03, -3.6651e-01])
    """
    safe = outputs.clamp_min(LOWEST)  # where x is lower, this branch must have a finite gradient though it is not taken
    return torch.where(outputs < LOWEST, outputs, F.softplus(safe, threshold=40).log())


LINKS: dict[str, Callable[[Tensor], Tensor]] = {  # outputs -> logits, whose softmax are the probabilities
    "softmax": as_they_are,
    "softplus": log_softplus,
}


@dataclass(frozen=True)
class Categorical:
    """Outputs belong to `classes` labels, targets are label indices; the link makes probabilities of outputs f.

    | link | probability of class c | |
    |---|---|---|
    | `softmax` | exp(f_c) / sum of exp(f_j) | |
    | `softplus` | softplus(f_c) / sum of softplus(f_j) | grows in a line: flatter (Shridhar et al. 2018) |

    Either is the softmax of logits, which are f itself or log softplus(f): all that looks at probabilities goes through
    `logits`.
    """

    classes: int
    link: str = "softmax"
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
        """Each member's validation NLL and accuracy from outputs (M, N, K), and those of all sound members together."""
        mean = self.probs(outputs[_sound(outputs)]).mean(0)
        hits = [(guess.argmax(-1) == y).double().mean(-1) for guess in (outputs, mean)]
        return _validation(self.loss(outputs, y.expand(len(outputs), *y.shape)), "val_accuracy", hits)

    def logits(self, outputs: Tensor) -> Tensor:
        """What the softmax of gives class probabilities (..., N, K)."""
        return LINKS[self.link](outputs)

    def probs(self, outputs: Tensor) -> Tensor:
        """Class probabilities (..., N, K)."""
        return self.logits(outputs).softmax(-1)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "categorical", **asdict(self)}


@dataclass(frozen=True)
class Gaussian:
    """Outputs are means in units of the target's spread; the noise has one known standard deviation.

    An output f predicts the target `shift + scale * f` with noise `noise_std`, in the target's units.
    """

    noise_std: float
    shift: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)
    targets: int | None = None  # target dimensions K, where one shift and scale serves them all
    task: ClassVar[str] = "regression"

    def __post_init__(self) -> None:
        if not 0 < self.noise_std < math.inf:
            raise Misuse(f"noise_std={self.noise_std:g}: need a positive number such as 0.1, in the target's units")

    @property
    def width(self) -> int:
        return len(self.shift) if self.targets is None else self.targets

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (..., N, K) of the target, in the target's units."""
        mean = outputs * outputs.new_tensor(self.scale) + outputs.new_tensor(self.shift)
        return mean, torch.full_like(mean, self.noise_std**2)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return gaussian_loss(*self.moments(outputs), y)

    def validate(self, outputs: Tensor, y: Tensor) -> dict[str, Any]:
        return validate_moments(*self.moments(outputs), y)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "gaussian", **asdict(self)}


@dataclass(frozen=True)
class HeteroscedasticGaussian:
    """Outputs are K means, then K raw spreads whose softplus is the noise's standard deviation.

    Both are in units of the target's spread: mean = shift + scale * f, std = scale * (softplus(r) + 1e-3).
    """

    shift: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)
    task: ClassVar[str] = "regression"

    @property
    def width(self) -> int:
        return 2 * len(self.shift)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (..., N, K) of the target, in the target's units."""
        f, raw = outputs.chunk(2, dim=-1)
        scale = outputs.new_tensor(self.scale)
        std = scale * (F.softplus(raw) + SMALLEST_STD)
        return f * scale + outputs.new_tensor(self.shift), std.square()

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return gaussian_loss(*self.moments(outputs), y)

    def validate(self, outputs: Tensor, y: Tensor) -> dict[str, Any]:
        return validate_moments(*self.moments(outputs), y)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "heteroscedastic", **asdict(self)}


@dataclass(frozen=True)
class MeanAndStd:
    """Outputs are K means, then K standard deviations, in the target's units: predictions made elsewhere."""

    targets: int
    task: ClassVar[str] = "regression"

    @property
    def width(self) -> int:
        return 2 * self.targets

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (..., N, K) of the target, in the target's units."""
        mean, std = outputs.chunk(2, dim=-1)
        return mean, std.square()

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return gaussian_loss(*self.moments(outputs), y)

    def validate(self, outputs: Tensor, y: Tensor) -> dict[str, Any]:
        return validate_moments(*self.moments(outputs), y)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "mean-and-std", **asdict(self)}


Likelihood = Categorical | Gaussian | HeteroscedasticGaussian | MeanAndStd


def gaussian_loss(mean: Tensor, var: Tensor, y: Tensor) -> Tensor:
    """Negative log density (..., N) of targets y (..., N, K) under independent Gaussians, summed over K."""
    return (0.5 * (y - mean).square() / var + 0.5 * var.log() + HALF_LOG_TWO_PI).sum(-1)


def validate_moments(mean: Tensor, var: Tensor, y: Tensor) -> dict[str, Any]:
    """Each member's validation NLL and RMSE from its moments (M, N, K), and those of all sound members together."""
    errors = [(guess - y).square().mean((-2, -1)).sqrt() for guess in (mean, mean[_sound(mean)].mean(0))]
    return _validation(gaussian_loss(mean, var, y.expand_as(mean)), "val_rmse", errors)


def _validation(losses: Tensor, name: str, scores: list[Tensor]) -> dict[str, Any]:
    """From losses (M, N): means by member, and of the mixture's loss -log mean_m exp(-loss_m)."""
    members, ensemble = scores
    sound = losses[_sound(losses)]
    mixture = math.log(max(len(sound), 1)) - (-sound).logsumexp(0)
    return {
        "val_nll": losses.mean(-1).tolist(),
        name: members.tolist(),
        "ensemble": {"val_nll": float(mixture.mean()), name: float(ensemble)},
    }


def _sound(values: Tensor) -> Tensor:
    """Which members (M,) have nothing but finite values (M, ...)."""
    return values.flatten(1).isfinite().all(1)


def link_of(likelihood: Likelihood) -> Callable[[Tensor], Tensor]:
    """What makes logits of outputs; those of a regression stay as they are."""
    return likelihood.logits if isinstance(likelihood, Categorical) else as_they_are


def likelihood_for(
    task: str,
    y: Tensor,
    classes: int,
    noise_std: float | None = None,
    link: str | None = None,
) -> Likelihood:
    """The likelihood of a task from its training targets: classes, or a Gaussian whose noise is learned or known."""
    if link is not None and task != "classification":
        raise Misuse(f"link={link} belongs to classes, and this data has numbers: leave it out")
    if noise_std is not None and task == "classification":
        raise Misuse(f"noise_std={noise_std:g} belongs to regression, and this data has classes: leave it out")
    if task == "classification":
        return Categorical(classes, link or "softmax")
    shift, spread = y.double().mean(0), y.double().std(0, correction=0)
    scale = torch.where(spread > 0, spread, 1.0)
    units = tuple(shift.tolist()), tuple(scale.tolist())
    return HeteroscedasticGaussian(*units) if noise_std is None else Gaussian(noise_std, *units)


def likelihood_from_json(record: dict[str, Any]) -> Likelihood:
    """The likelihood that `to_json` wrote down.

    >>> likelihood_from_json(Categorical(10).to_json())
    Categorical(classes=10, link='softmax')
    """
    kinds: dict[str, Callable[..., Likelihood]] = {
        "categorical": Categorical,
        "gaussian": Gaussian,
        "heteroscedastic": HeteroscedasticGaussian,
        "mean-and-std": MeanAndStd,
    }
    fields = {key: tuple(v) if isinstance(v, list) else v for key, v in record.items() if key != "kind"}
    if record["kind"] not in kinds:
        raise unknown("likelihood", record["kind"], kinds)
    return kinds[record["kind"]](**fields)
