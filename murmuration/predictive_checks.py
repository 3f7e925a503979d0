"""What may go into a `Predictive` and what may be compared with it: each refusal says where, in one line."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.errors import Misuse
from murmuration.likelihoods import Likelihood
from murmuration.workers import side_by_side

SUM_TOLERANCE = 1e-3  # how far from one probabilities may sum: float16 and rounded files pass
SMALLEST_STORED = 1e-300  # a given probability of zero is stored as this, so that every logit stays finite
ELEMENTS = 2**18  # of (S, N, K) worked on at once: 2 MB, which a core keeps in its cache


def check_outputs(outputs: Tensor, likelihood: Likelihood) -> None:
    """Nothing, if outputs are (S, N, width) as the likelihood wants, none of them empty."""
    if outputs.ndim != 3 or outputs.shape[-1] != likelihood.width or 0 in outputs.shape:
        expected = f"(members, inputs, {likelihood.width})"
        raise Misuse(f"outputs of shape {tuple(outputs.shape)}: expected {expected} for {likelihood}, none empty")


def check_weights(weights: Tensor | None, *, members: int) -> None:
    """Nothing, if there are no weights or the weights (S,) of the members are a distribution."""
    if weights is None:
        return
    total = weights.double().sum().item()
    if weights.shape != (members,) or not (weights >= 0).all() or not math.isclose(total, 1, abs_tol=1e-6):
        raise Misuse(
            f"weights of shape {tuple(weights.shape)} summing to {total:.6g}: "
            f"expected ({members},), none negative, summing to 1"
        )


def as_weights(weights: Any) -> Tensor | None:
    """Weights as a tensor (S,), float64, if there are any."""
    return None if weights is None else torch.as_tensor(weights, dtype=torch.float64)


def checked_members(members: Any, *, count: int) -> Tensor:
    """Chosen members as indices (C,), int64; negative ones count from the end."""
    chosen = torch.as_tensor(members, dtype=torch.long)
    if chosen.ndim != 1 or not len(chosen) or chosen.min() < -count or chosen.max() >= count:
        raise Misuse(f"members {chosen.tolist()}: expected a list of indices 0..{count - 1}")
    return chosen


def check_alike(likelihoods: Sequence[Likelihood]) -> None:
    """Nothing, if there is at least one likelihood and all are the same."""
    kinds = sorted({str(likelihood) for likelihood in likelihoods})
    if len(kinds) != 1:
        raise Misuse(f"{len(likelihoods)} predictives with likelihoods {kinds}: expected one or more, all alike")


def checked_logits(probs: Any) -> Tensor:
    """The logarithms (S, N, K) of class probabilities whose rows sum to one, up to rounding; zero counts as 1e-300.

    A few inputs at a time: no second copy of a large array is made, and the work stays in the cache.
    """
    values = probs if isinstance(probs, Tensor) else torch.as_tensor(np.asarray(probs))
    if values.ndim not in (2, 3):
        raise Misuse(
            f"probabilities of shape {tuple(values.shape)}: expected (S, N, K) or (N, K); "
            "for one probability p per input write np.stack([1 - p, p], -1)"
        )
    values = values[None] if values.ndim == 2 else values
    logits = torch.empty_like(values, dtype=torch.float64, memory_format=torch.contiguous_format)
    size = inputs_at_once(values)

    def fill(first: int) -> None:
        rows = values[:, first : first + size].double()
        sums = rows.sum(-1)
        check_rows(rows, sums, first)
        logits[:, first : first + size] = (rows / sums[..., None]).clamp_min_(SMALLEST_STORED).log_()

    for _ in side_by_side(fill, range(0, values.shape[1], size)):
        pass
    return logits


def check_rows(rows: Tensor, sums: Tensor, first: int) -> None:
    """Nothing, if rows (S, n, K) with those sums (S, n), the first of which is input `first`, are probabilities."""
    bad = ~((rows.amin(-1) >= 0) & ((sums - 1).abs() <= SUM_TOLERANCE))  # NaN is neither
    if bad.any():
        member, row = bad.nonzero()[0].tolist()
        total, smallest = sums[member, row].item(), rows[member, row].min().item()
        raise Misuse(
            f"probabilities at [{member}, {first + row}] sum to {total:.6g}, smallest {smallest:.6g}: "
            "expected none negative and a sum of 1; give probabilities, not logits"
        )


def inputs_at_once(outputs: Tensor) -> int:
    """How many inputs of outputs (S, N, K) are worth unfolding in memory at once."""
    members, _, width = outputs.shape
    return max(1, ELEMENTS // max(1, members * width))


def checked_moments(mean: Any, std: Any) -> Tensor:
    """Means, then standard deviations, side by side (S, N, 2 K)."""
    means, stds = torch.as_tensor(mean, dtype=torch.float64), torch.as_tensor(std, dtype=torch.float64)
    if means.ndim != 3:
        hint = "for one model's means m (N,) write m[None, :, None]"
        raise Misuse(f"means of shape {tuple(means.shape)}: expected (S, N, K); {hint}")
    if stds.ndim and stds.shape != means.shape:
        raise Misuse(f"stds of shape {tuple(stds.shape)}: expected one number or {tuple(means.shape)}")
    if not (means.isfinite().all() and stds.isfinite().all() and (stds > 0).all()):
        raise Misuse(
            f"smallest std {stds.min().item():.6g}, largest mean {means.abs().max().item():.6g}: expected "
            "finite means and positive stds; predictions without noise take the validation error's std"
        )
    return torch.cat([means, stds.expand_as(means)], dim=-1)


def checked_labels(y: Any, *, inputs: int, classes: int) -> Tensor:
    """Labels as class indices (N,), int64."""
    labels = torch.as_tensor(y)
    if labels.shape != (inputs,):
        raise Misuse(f"labels of shape {tuple(labels.shape)} for {inputs} inputs: expected ({inputs},)")
    bad = ~((labels >= 0) & (labels < classes)) | (labels != labels.long())
    if bad.any():
        where = int(bad.nonzero()[0])
        raise Misuse(f"label {labels[where].item()} at [{where}]: expected a class index 0..{classes - 1}")
    return labels.long()


def checked_targets(y: Any, *, inputs: int, width: int) -> Tensor:
    """Targets as numbers (N, K), float64; (N,) is taken for one target."""
    targets = torch.as_tensor(y).double()
    targets = targets[:, None] if targets.ndim == 1 and width == 1 else targets
    if targets.shape != (inputs, width):
        raise Misuse(f"targets of shape {tuple(targets.shape)}: expected ({inputs}, {width})")
    bad = ~targets.isfinite()
    if bad.any():
        row, column = bad.nonzero()[0].tolist()
        raise Misuse(f"target {targets[row, column].item()} at [{row}, {column}]: expected a finite number")
    return targets
