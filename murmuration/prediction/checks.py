"""Checks of what a `Predictive` is made from: outputs, weights and moments of members, and targets."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from murmuration.data.targets import as_numbers
from murmuration.likelihoods import Likelihood
from murmuration.system.errors import Misuse


def check_outputs(outputs: Tensor, likelihood: Likelihood) -> None:
    """Refuse outputs that are not (S, N, width) with the likelihood's width, or empty."""
    if outputs.ndim != 3 or outputs.shape[-1] != likelihood.width or 0 in outputs.shape:
        expected = f"(members, inputs, {likelihood.width})"
        raise Misuse(f"outputs of shape {tuple(outputs.shape)}: expected {expected} for {likelihood}, none empty")


def check_weights(weights: Tensor | None, *, members: int) -> None:
    """Refuse weights that are not (S,), non-negative and of sum one."""
    if weights is None:
        return
    total = weights.double().sum().item()
    if weights.shape != (members,) or not (weights >= 0).all() or not math.isclose(total, 1, abs_tol=1e-6):
        raise Misuse(
            f"weights of shape {tuple(weights.shape)} summing to {total:.6g}: "
            f"expected ({members},), none negative, summing to 1"
        )


def as_weights(weights: Any) -> Tensor | None:
    """Return weights as a tensor (S,), float64, or None."""
    return None if weights is None else torch.as_tensor(weights, dtype=torch.float64)


def check_alike(likelihoods: Sequence[Likelihood]) -> None:
    """Refuse an empty list of likelihoods, and different ones."""
    kinds = sorted({str(likelihood) for likelihood in likelihoods})
    if len(kinds) != 1:
        raise Misuse(f"{len(likelihoods)} predictives with likelihoods {kinds}: expected one or more, all alike")


def checked_moments(mean: Any, std: Any) -> Tensor:
    """Check means and standard deviations and return them side by side (S, N, 2 K)."""
    means, stds = torch.as_tensor(mean, dtype=torch.float64), torch.as_tensor(std, dtype=torch.float64)
    if means.ndim != 3:
        hint = "for one model's means m (N,) write m[None, :, None]"
        raise Misuse(f"means of shape {tuple(means.shape)}: expected (S, N, K); {hint}")
    if stds.ndim and stds.shape != means.shape:
        raise Misuse(f"stds of shape {tuple(stds.shape)}: expected one number or {tuple(means.shape)}")
    exporting = torch.compiler.is_exporting()  # an exported module has no branches
    if not exporting and not (means.isfinite().all() and stds.isfinite().all() and (stds > 0).all()):
        raise Misuse(
            f"smallest std {stds.min().item():.6g}, largest mean {means.abs().max().item():.6g}: expected "
            "finite means and positive stds; predictions without noise take the validation error's std"
        )
    return torch.cat([means, stds.expand_as(means)], dim=-1)


def checked_targets(y: Any, *, inputs: int, width: int) -> Tensor:
    """Check targets and return them as values (N, K), float64; (N,) stands for one target."""
    targets = as_numbers(y, "targets as texts: expected numbers").double()
    targets = targets[:, None] if targets.ndim == 1 and width == 1 else targets
    if targets.shape != (inputs, width):
        raise Misuse(f"targets of shape {tuple(targets.shape)}: expected ({inputs}, {width})")
    bad = ~targets.isfinite()
    if bad.any():
        row, column = bad.nonzero()[0].tolist()
        raise Misuse(f"target {targets[row, column].item()} at [{row}, {column}]: expected a finite number")
    return targets
