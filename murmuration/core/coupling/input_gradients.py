"""Input-gradient space: normalised gradients of one output by each input (FoRDE, Trinh et al. 2024), in a metric.

q(s, s') = (s - s')^T W (s - s') with W the identity, the inputs' covariance C (PCA lengthscales), or between the two
(tuned). W acts through its leading eigenvectors and one weight for all other directions, that of the mean of their
eigenvalues: nothing is of size D x D.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

import murmuration.core.coupling.space as spaces
from murmuration.likelihoods.classes import identity
from murmuration.system.errors import Misuse, require_choices
from murmuration.system.option_text import FIXED

ALPHAS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.0)  # the sweep of the published experiments
AUTO = "auto"
ROUNDINGS = 16  # a gradient shorter than this many roundings of the network's usual slope is noise and not repelled
MAX_ROWS = 2000  # training inputs that the covariance is computed from


@dataclass(frozen=True)
class Metric:
    """A linear map of vectors s (..., D) to t (..., R) such that q(s, s') = |t - t'|^2.

    Attributes:
        basis: Orthonormal columns (D, r); None for the identity.
        scales: Square roots (r,) of the weights of these columns, after `remainder` squared is subtracted.
        remainder: Square root of the weight of every other direction.
    """

    basis: Tensor | None = None
    scales: Tensor | None = None
    remainder: float = 1.0

    def __call__(self, s: Tensor) -> Tensor:
        if self.basis is None or self.scales is None:
            return s
        leading = (s @ self.basis.to(s)) * self.scales.to(s)
        return leading if self.remainder == 0 else torch.cat([leading, self.remainder * s], dim=-1)


IDENTITY = Metric()


@dataclass(frozen=True)
class InputGradientSpace(spaces.PartOfBatchSpace):
    """The normalised gradient of the true class's logit with respect to each input, in a metric: (m, B, R).

    For a regression, the gradient of the sum of the predicted means. With a batch fraction below 1 the gradients come
    from a separate pass over the first examples of the batch.

    Attributes:
        estimator: Name of the estimator.
        bandwidth: Name of the kernel bandwidth.
        batch_fraction: Fraction of the batch that gradients are computed on, in (0, 1].
        of: For classes, "logit" or "log-prob" of the true class.
        lengthscales: Metric of gradients: "identity", "pca" (input covariance) or "tuned" (between the two).
        alpha: Of tuned lengthscales, from 0 (identity) to 1 (pca), or "auto" to choose it on validation data.
        form: Interpolation of tuned lengthscales, "paper" or "poster"; see `tune`.
        rank: Number of leading directions of the input covariance.
        centred: Whether the mean input is subtracted before the covariance is computed.
        metric: Set by `prepare`.
    """

    of: str = "logit"
    lengthscales: str = "identity"
    alpha: float | str = AUTO
    form: str = "paper"
    rank: int = 128
    centred: bool = False
    metric: Metric = field(default=IDENTITY, repr=False, compare=False, metadata=FIXED)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choices(self, of=("logit", "log-prob"), form=("paper", "poster"))
        require_choices(self, lengthscales=("identity", "pca", "tuned"))
        if self.rank < 1:
            raise Misuse(f"rank={self.rank}: need at least 1")
        if self.alpha == AUTO:
            return
        if self.lengthscales != "tuned":
            raise Misuse(f"alpha={self.alpha} with lengthscales={self.lengthscales}: write lengthscales=tuned too")
        if isinstance(self.alpha, str) or not 0 <= self.alpha <= 1:
            raise Misuse(f"alpha={self.alpha}: need a number from 0 to 1, or auto")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset((spaces.INPUTS if self.batch_fraction == 1 else spaces.SUB_BATCH, spaces.SAME_BATCH))

    def prepare(self, x: Tensor) -> "InputGradientSpace":
        if not x.is_floating_point():
            raise Misuse(
                "coupling input-gradients with tokens, which have no gradient: write coupling outputs or weights"
            )
        if x[0].numel() == 1:
            raise Misuse(
                "coupling input-gradients with inputs of one number: normalised gradients are +1 or -1, which no"
                " repulsion can turn; write coupling outputs or weights, or give the network two features of the"
                " input, such as x/2 and (x/2)^2"
            )
        return replace(self, metric=self.make_metric(x))

    def make_metric(self, x: Tensor) -> Metric:
        """Compute the metric for inputs like x (N, ...); alpha is taken as 0.5 before it is chosen."""
        if self.lengthscales == "identity":
            return IDENTITY
        values, vectors, remainder = spectrum(x.flatten(1), self.rank, centred=self.centred)
        alpha = 1.0 if self.lengthscales == "pca" else 0.5 if isinstance(self.alpha, str) else self.alpha
        values, remainder = tune(values, alpha, self.form), float(tune(torch.tensor(remainder), alpha, self.form))
        return Metric(vectors, (values - remainder).clamp_min(0).sqrt(), remainder**0.5)

    def candidates(self) -> "Mapping[str, InputGradientSpace]":
        if self.lengthscales != "tuned" or self.alpha != AUTO:
            return {}
        return {f"{alpha:g}": replace(self, alpha=alpha) for alpha in ALPHAS}

    def features(self, inputs: spaces.SpaceInputs) -> Tensor:
        if self.batch_fraction == 1:
            outputs, x = inputs.outputs, inputs.x
        elif inputs.sub_batch is None:  # the network mixes the examples of a batch: they run once more
            assert inputs.run is not None
            x = inputs.x[:, : self.rows(inputs.x.shape[1])].detach().requires_grad_()
            outputs = inputs.run(inputs.weights, x)
        else:
            outputs, x = inputs.sub_batch
        gradients = self.gradients(outputs, x, inputs.y[:, : x.shape[1]], inputs.link)
        return self.metric(normalise(gradients, rounding(outputs.detach(), x.detach())))

    def gradients(self, outputs: Tensor, x: Tensor, y: Tensor, link: Callable[[Tensor], Tensor] = identity) -> Tensor:
        """Return gradients (m, B, D) of one number per example with respect to its input."""
        if y.is_floating_point():
            selected = link(outputs)[..., : y.shape[-1]]  # predicted means
        else:
            values = outputs if self.of == "logit" else F.log_softmax(link(outputs), dim=-1)
            selected = values.gather(-1, y.unsqueeze(-1))
        return torch.autograd.grad(selected.sum(), x, create_graph=True)[0].flatten(2)


def rounding(outputs: Tensor, x: Tensor) -> Tensor:
    """Return the lengths (m, 1, 1) below which input gradients are rounding errors.

    They are relative to the usual slope of each network: the variation of its outputs (m, B, K) over that of its inputs
    x (m, B, ...). So they do not depend on the units of either.
    """
    rise, run = variation(outputs), variation(x)
    return ROUNDINGS * torch.finfo(x.dtype).eps * rise / run.clamp_min(torch.finfo(x.dtype).tiny)


def variation(t: Tensor) -> Tensor:
    """Return the mean absolute deviations (m, 1, 1) of t (m, B, ...) over the batch; zero if it is rounding."""
    t = t.flatten(2)
    deviation = (t - t.mean(1, keepdim=True)).abs().mean((1, 2), keepdim=True)
    return deviation * (deviation > 4 * torch.finfo(t.dtype).eps * t.abs().mean((1, 2), keepdim=True))


def normalise(gradients: Tensor, shortest: Tensor | float = 0.0) -> Tensor:
    """Scale gradients (m, B, D) to length one; zero, without a derivative, if not longer than `shortest` (m, 1, 1).

    Lengths are computed after a multiplication by a power of two, which is exact and keeps their squares in range.
    """
    tiny = torch.finfo(gradients.dtype).tiny
    largest = gradients.detach().abs().amax(-1, keepdim=True).clamp_min(tiny)  # (m, B, 1)
    scale = torch.exp2(-torch.frexp(largest).exponent.to(largest))
    scaled = gradients * scale
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)  # (m, B, 1)
    return scaled * ((length.detach() > shortest * scale) / (length.square() + tiny).sqrt())


def spectrum(x: Tensor, rank: int, *, centred: bool = False) -> tuple[Tensor, Tensor, float]:
    """Return the largest eigenvalues (r,) of X^T X / (N - 1), their eigenvectors (D, r), and the mean of the others.

    The published code does not subtract the mean input (`centred` does), which then enters the first direction. At most
    2,000 evenly spaced inputs are used.
    """
    indices = torch.linspace(0, len(x) - 1, min(len(x), MAX_ROWS), dtype=torch.float64).round().long()
    rows = x[indices.to(x.device)].double()
    rows = rows - rows.mean(0) if centred else rows
    _, singular, directions = torch.linalg.svd(rows, full_matrices=False)
    values = singular.square() / max(len(rows) - 1, 1)
    count, width = min(rank, len(values)), x.shape[1]
    remainder = float(values[count:].sum()) / (width - count) if width > count else 0.0
    return values[:count].float(), directions[:count].T.contiguous().float(), remainder


def tune(values: Tensor, alpha: float, form: str) -> Tensor:
    """Interpolate weights between one (alpha 0) and the eigenvalues (alpha 1).

    `paper` interpolates squared lengthscales: 1 / ((1 - alpha) + alpha / value); `poster` interpolates their inverses:
    (1 - alpha) + alpha value. The two official statements agree only at the ends.

    >>> values = torch.tensor([8 / 3, 2 / 3])
    >>> tune(values, 0.5, "paper"), tune(values, 0.5, "poster")
    (tensor([1.4545, 0.8000]), tensor([1.8333, 0.8333]))
    """
    if form == "poster":
        return (1 - alpha) + alpha * values
    return values / ((1 - alpha) * values + alpha) if alpha > 0 else torch.ones_like(values)
