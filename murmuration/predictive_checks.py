"""What may go into a `Predictive` and what may be compared with it: each refusal says where, in one line."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from murmuration.errors import Misuse
from murmuration.likelihoods import Likelihood

SUM_TOLERANCE = 1e-3  # how far from one probabilities may sum: float16 and rounded files pass


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


def check_alike(likelihoods: Sequence[Likelihood]) -> None:
    """Nothing, if there is at least one likelihood and all are the same."""
    kinds = sorted({str(likelihood) for likelihood in likelihoods})
    if len(kinds) != 1:
        raise Misuse(f"{len(likelihoods)} predictives with likelihoods {kinds}: expected one or more, all alike")


def checked_probs(probs: Any) -> Tensor:
    """Class probabilities as a tensor (S, N, K) whose rows sum to exactly one, up to rounding."""
    values = torch.as_tensor(probs, dtype=torch.float64)
    if values.ndim not in (2, 3):
        raise Misuse(
            f"probabilities of shape {tuple(values.shape)}: expected (S, N, K) or (N, K); "
            "for one probability p per input write np.stack([1 - p, p], -1)"
        )
    values = values[None] if values.ndim == 2 else values
    sums = values.sum(-1)
    bad = ~(values.isfinite() & (values >= 0)).all(-1) | ((sums - 1).abs() > SUM_TOLERANCE)
    if bad.any():
        member, row = bad.nonzero()[0].tolist()
        total, smallest = sums[member, row].item(), values[member, row].min().item()
        raise Misuse(
            f"probabilities at [{member}, {row}] sum to {total:.6g}, smallest {smallest:.6g}: "
            "expected none negative and a sum of 1; give probabilities, not logits"
        )
    return values / sums[..., None]


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
