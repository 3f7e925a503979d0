"""What calibrators of classes minimise: the loss of the mixture, a bounded number of logits at a time.

The loss that is minimised is not clipped, so that even a sure mistake has a slope; the loss that decides in the end
whether a calibrator is any better is the one that is reported, `Predictive.log_prob`.
"""

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

from murmuration.calibration.records import Calibrator
from murmuration.likelihoods import link_of
from murmuration.predictive import SMALLEST_PROBABILITY, Predictive

ELEMENTS = 2**17  # of (S, N, K) unfolded at once: 1 MB stays near the processor, and larger pieces run slower
IMPOSSIBLE = 600.0  # nats below the likeliest class: no network says so, but a given probability of zero does

Fitted = TypeVar("Fitted", bound=Calibrator)


def chunk_size(pred: Predictive) -> int:
    """How many inputs are worth unfolding at once."""
    members, _, width = pred.outputs.shape
    return max(1, ELEMENTS // (members * width))


def chunks(pred: Predictive, y: Tensor) -> Iterator[tuple[Predictive, Tensor]]:
    """Pairs of a predictive and its rows of y (N, ...), of as many inputs as are worth unfolding at once."""
    size = chunk_size(pred)
    yield from zip(pred.batches(size), y.split(size), strict=True)


def logits_of(pred: Predictive) -> Tensor:
    """The logits (S, N, K), at least in single precision, where a probability of zero counts as 1e-12.

    Forests and rounded files give zeros, whose logit is no measure of anything: taken at its word, one wrong zero would
    outweigh thousands of examples. A member's row that holds one is raised to 1e-12, as `log_prob` does; the logits of
    networks pass unchanged.
    """
    logits = link_of(pred.likelihood)(pred.outputs.to(torch.promote_types(pred.outputs.dtype, torch.float32)))
    top = logits.amax(-1, keepdim=True)
    given = logits.amin(-1, keepdim=True) < top - IMPOSSIBLE
    if not given.any():
        return logits
    floor = logits.logsumexp(-1, keepdim=True) + math.log(SMALLEST_PROBABILITY)
    return torch.where(given, logits.maximum(floor), logits)


def label_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """The log-probability (S, N) that each member's logits (S, N, K) give the labels (N,)."""
    index = labels.expand(len(logits), -1)[..., None]
    return logits.gather(-1, index).squeeze(-1) - logits.logsumexp(-1)


def mixture_loss(pred: Predictive, y: Tensor, rescale: Callable[[Tensor], Tensor]) -> float:
    """The mean of -log of the members' mean probability of the labels, after every logit was rescaled."""
    total = 0.0
    for part, labels in chunks(pred, y):
        members = label_log_probs(rescale(logits_of(part).double()), labels)
        total -= (part.member_weights.log()[:, None] + members).logsumexp(0).sum().item()
    return total / len(y)


def reported_loss(pred: Predictive, y: Tensor, calibrate: Callable[[Predictive], Predictive]) -> float:
    """The mean of -log_prob of the calibrated predictive, as the scores report it."""
    return -sum(calibrate(part).log_prob(labels).sum().item() for part, labels in chunks(pred, y)) / len(y)


def better_of(pred: Predictive, y: Tensor, fitted: Fitted, identity: Fitted) -> Fitted:
    """The fitted calibrator if it lowers the reported loss on the fitting examples, else the identity."""
    before = reported_loss(pred, y, lambda part: part)
    return fitted if reported_loss(pred, y, fitted) < before else identity
