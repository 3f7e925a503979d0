"""The negative log-likelihood of the mixture that calibrators minimise, and two minimisers.

The minimised loss is not clipped, so that even a confident mistake has a gradient. Whether a fitted calibrator is used
at all is decided by the reported loss, `Predictive.log_prob`. Both are computed for a bounded number of logits at a
time.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from murmuration.likelihoods import link_of
from murmuration.prediction.checks import inputs_at_once
from murmuration.prediction.predictive import SMALLEST_PROBABILITY, Predictive

ELEMENTS = 2**17  # of (S, N, K) in double precision at once: 1 MB stays in the cache, and larger chunks run slower
IMPOSSIBLE = 600.0  # nats below the most likely class: not from a network, but from a given probability of zero

POINTS = 13  # of the first scan; odd, so that the middle of the interval is one of them
SCALAR_TOLERANCE = 1e-7  # near the limit at which losses in double precision tell a minimum from its neighbours
GRADIENT_TOLERANCE = 1e-6  # per example: a thousandth of what sampling leaves undecided with a million examples
STEPS = 500
MEMORY = 30  # steps that L-BFGS remembers: vectors of a few thousand numbers at most

Fitted = TypeVar("Fitted", bound=Callable[[Predictive], Predictive])


def chunks(pred: Predictive, y: Tensor) -> Iterator[tuple[Predictive, Tensor]]:
    """Yield a predictive and its rows of y (N, ...), one chunk of inputs at a time."""
    if torch.compiler.is_exporting():  # of any number of inputs
        yield pred, y
        return
    size = inputs_at_once(pred.outputs, ELEMENTS)
    yield from zip(pred.batches(size), y.split(size), strict=True)


def clipped_logits(pred: Predictive) -> Tensor:
    """Return the logits (S, N, K), at least in single precision; a given probability of zero counts as 1e-12.

    Random forests and rounded files contain zeros, whose logit is arbitrary: unclipped, one wrong zero would outweigh
    thousands of examples. Rows that contain one are clipped as `log_prob` does; logits of networks pass unchanged.
    """
    logits = link_of(pred.likelihood)(pred.outputs.to(torch.promote_types(pred.outputs.dtype, torch.float32)))
    if not torch.compiler.is_exporting():  # an exported module has no branches
        low, high = map(float, torch.aminmax(logits.detach()))
        if high - low <= IMPOSSIBLE:  # no row can hold one
            return logits
    has_zero = logits.amin(-1, keepdim=True) < logits.amax(-1, keepdim=True) - IMPOSSIBLE
    floor = logits.logsumexp(-1, keepdim=True) + math.log(SMALLEST_PROBABILITY)
    return torch.where(has_zero, logits.maximum(floor), logits)


def label_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the log-probability (S, N) of the labels (N,) under each member's logits (S, N, K)."""
    return logits.gather(-1, labels.expand(len(logits), -1)[..., None]).squeeze(-1) - logits.logsumexp(-1)


def mixture_losses(pred: Predictive, y: Tensor, rescale: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute -log (N,) of the members' mean probability of each label, with logits passed through `rescale`."""
    parts = []
    for part, labels in chunks(pred, y):
        members = label_log_probs(rescale(clipped_logits(part).double()), labels)
        parts.append(-(part.member_weights.log()[:, None] + members).logsumexp(0))
    return torch.cat(parts)


def reported_loss(pred: Predictive, y: Tensor, calibrate: Callable[[Predictive], Predictive]) -> float:
    """Return the mean of -log_prob of the calibrated predictive, as metrics report it."""
    return -sum(calibrate(part).log_prob(labels).sum().item() for part, labels in chunks(pred, y)) / len(y)


def better_of(pred: Predictive, y: Tensor, fitted: Fitted, identity: Fitted) -> Fitted:
    """Return the fitted calibrator if it lowers the reported loss on the fitting examples, else the identity."""
    before = reported_loss(pred, y, lambda part: part)
    return fitted if reported_loss(pred, y, fitted) < before else identity


def balanced_mean(values: Tensor, y: Tensor) -> float:
    """Return the mean over the classes of labels y (N,) of the mean of values (N,) over their examples.

    >>> balanced_mean(torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([0, 0, 0, 2]))
    0.5
    """
    sums = torch.zeros(int(y.max()) + 1, dtype=torch.float64, device=y.device).index_add_(0, y, values.double())
    counts = y.bincount()
    return float((sums[counts > 0] / counts[counts > 0]).mean())


def minimise_scalar(loss: Callable[[float], float], *, low: float, high: float) -> float:
    """Minimise over [low, high]: a scan, then Brent's method around its best point.

    The scan makes local minima unlikely; a minimum narrower than the spacing of the scan may be missed.

    >>> round(minimise_scalar(lambda x: (x - 0.3) ** 2, low=-4.0, high=4.0), 6)
    0.3
    """
    from scipy.optimize import minimize_scalar

    grid = np.linspace(low, high, POINTS)
    losses = [loss(float(x)) for x in grid]
    best = int(np.argmin(losses))
    bracket = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, POINTS - 1)])
    result = minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": SCALAR_TOLERANCE})
    return float(result.x) if result.fun < losses[best] else float(grid[best])


def minimise(
    loss: Callable[[Tensor], tuple[float, Tensor]], start: Tensor, *, low: float = -np.inf, high: float = np.inf
) -> Tensor:
    """Minimise by L-BFGS-B from `start` within [low, high]; the result is never worse than the start.

    `loss` returns the value and the gradient (D,).
    """
    from scipy.optimize import minimize

    def value_and_gradient(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = loss(torch.from_numpy(point.copy()).to(start.device))
        return value, gradient.cpu().numpy()

    options = {"maxiter": STEPS, "gtol": GRADIENT_TOLERANCE, "ftol": 1e-14, "maxcor": MEMORY}
    settings: dict[str, Any] = {"method": "L-BFGS-B", "bounds": [(low, high)] * len(start), "options": options}
    result = minimize(value_and_gradient, start.double().cpu().numpy(), jac=True, **settings)
    return torch.from_numpy(np.array(result.x)).to(start.device)
