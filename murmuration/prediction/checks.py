"""Checks of what a `Predictive` is made from: outputs, weights, moments and probabilities of members, and targets."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from murmuration.data.numpy_arrays import dense, unmasked
from murmuration.data.targets import as_numbers
from murmuration.likelihoods import Categorical, Gaussian, Likelihood
from murmuration.system.errors import Misuse
from murmuration.system.workers import parallel_map

SUM_TOLERANCE = 1e-3  # how far from one probabilities may sum: float16 and rounded files pass
SMALLEST_STORED = 1e-300  # a given probability of zero is stored as this, so that every logit stays finite
ELEMENTS = 2**18  # of (S, N, K) processed at once: 2 MB, which a core keeps in its cache


_categorical = cache(Categorical)


def likelihood_of(likelihood: Likelihood | None, width: int) -> Likelihood:
    """Return the likelihood for `width` outputs; networks trained elsewhere may have any number, but not one class."""
    if isinstance(likelihood, Gaussian) and likelihood == Gaussian(likelihood.noise_std):
        return replace(likelihood, targets=width)
    if likelihood is None and width == 1:
        ways = "likelihood=mm.MultiLabel(1) for a logit without sigmoid, likelihood=mm.Gaussian(noise_std) for a mean"
        raise Misuse(f"networks of one output, which is no classification: write {ways}")
    return likelihood or _categorical(width)


def check_outputs(outputs: Tensor, likelihood: Likelihood) -> None:
    """Refuse outputs that are not (S, N, width) with the likelihood's width, or empty."""
    if outputs.ndim != 3 or outputs.shape[-1] != likelihood.width or 0 in outputs.shape:
        expected = f"(members, inputs, {likelihood.width})"
        raise Misuse(f"outputs of shape {tuple(outputs.shape)}: expected {expected} for {likelihood}, none empty")


def check_weights(weights: Tensor | None, *, members: int) -> None:
    """Refuse weights that are not (S,), non-negative and of sum one."""
    if weights is None:
        return
    total, expected = weights.double().sum().item(), f"({members},), none negative, summing to 1"
    if weights.shape != (members,) or not (weights >= 0).all() or not math.isclose(total, 1, abs_tol=1e-6):
        raise Misuse(f"weights of shape {tuple(weights.shape)} summing to {total:.6g}: expected {expected}")


def as_weights(weights: Any) -> Tensor | None:
    """Return weights as a tensor (S,), float64, or None."""
    return None if weights is None else as_doubles(weights, "weights")


def as_doubles(values: Any, what: str) -> Tensor:
    """Return numbers (...) in double precision; tensors keep their gradients."""
    if torch.compiler.is_exporting():  # an exported module has no branches
        return torch.as_tensor(values, dtype=torch.float64)
    tensor = dense(values) if isinstance(values, Tensor) else as_numbers(values, f"{what} that are no numbers")
    if tensor.is_complex():
        raise Misuse(f"{what} that are complex: expected real numbers")
    return tensor.double()


def check_alike(likelihoods: Sequence[Likelihood]) -> None:
    """Refuse an empty list of likelihoods, and different ones."""
    kinds = sorted({str(likelihood) for likelihood in likelihoods})
    if len(kinds) != 1:
        raise Misuse(f"{len(likelihoods)} predictives with likelihoods {kinds}: expected one or more, all alike")


def checked_moments(mean: Any, std: Any) -> Tensor:
    """Check means and standard deviations and return them side by side (S, N, 2 K)."""
    means, stds = as_doubles(mean, "means"), as_doubles(std, "stds")
    if means.ndim != 3:
        hint = "for one model's means m (N,) write m[None, :, None]"
        raise Misuse(f"means of shape {tuple(means.shape)}: expected (S, N, K); {hint}")
    if stds.ndim and stds.shape != means.shape:
        raise Misuse(f"stds of shape {tuple(stds.shape)}: expected one number or {tuple(means.shape)}")
    exporting = torch.compiler.is_exporting()  # an exported module has no branches
    if not exporting and not (means.isfinite().all() and stds.isfinite().all() and (stds > 0).all()):
        got = f"smallest std {stds.min().item():.6g}, largest mean {means.abs().max().item():.6g}"
        expected = "finite means and positive stds; predictions without noise take the validation error's std"
        raise Misuse(f"{got}: expected {expected}")
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


def checked_members(members: Any, *, count: int) -> Tensor:
    """Return indices (C,) of members, int64; negative ones count from the end."""
    indices = torch.as_tensor(unmasked(members), dtype=torch.long)
    if indices.ndim != 1 or not len(indices) or indices.min() < -count or indices.max() >= count:
        raise Misuse(f"members {indices.tolist()}: expected a list of indices 0..{count - 1}")
    return indices


def checked_logits(probs: Any) -> Tensor:
    """Return the logarithms (S, N, K) of class probabilities; zero counts as 1e-300.

    Inputs are processed in chunks: no second copy of a large array is made, and the work stays in the cache.
    """
    values = dense(probs) if isinstance(probs, Tensor) else as_numbers(probs, "probabilities that are no numbers")
    if values.is_complex():
        raise Misuse("probabilities that are complex: expected real numbers")
    if values.ndim not in (2, 3):
        hint = "for one probability p per input write np.stack([1 - p, p], -1)"
        raise Misuse(f"probabilities of shape {tuple(values.shape)}: expected (S, N, K) or (N, K); {hint}")
    values = values[None] if values.ndim == 2 else values
    logits = torch.empty_like(values, dtype=torch.float64, memory_format=torch.contiguous_format)
    size = inputs_at_once(values)

    def fill(first: int) -> None:
        rows = values[:, first : first + size].double()
        sums = rows.sum(-1)
        bad = ~((rows.amin(-1) >= 0) & ((sums - 1).abs() <= SUM_TOLERANCE))  # NaN is neither
        if bad.any():
            member, row = bad.nonzero()[0].tolist()
            total, smallest = sums[member, row].item(), rows[member, row].min().item()
            got = f"probabilities at [{member}, {first + row}] sum to {total:.6g}, smallest {smallest:.6g}"
            raise Misuse(f"{got}: expected none negative and a sum of 1; give probabilities, not logits")
        logits[:, first : first + size] = (rows / sums[..., None]).clamp_min_(SMALLEST_STORED).log_()

    for _ in parallel_map(fill, range(0, values.shape[1], size)):
        pass
    return logits


def inputs_at_once(outputs: Tensor, elements: int = ELEMENTS) -> int:
    """Return the number of inputs of outputs (S, N, K) in one chunk of at most `elements`, at least one."""
    members, _, width = outputs.shape
    return max(1, elements // max(1, members * width))


def checked_labels(y: Any, *, inputs: int, classes: int) -> Tensor:
    """Check labels and return them as class indices (N,), int64."""
    labels = as_numbers(y, f"labels as texts, and the classes have no known names: give indices 0..{classes - 1}")
    if labels.shape != (inputs,):
        raise Misuse(f"labels of shape {tuple(labels.shape)} for {inputs} inputs: expected ({inputs},)")
    bad = ~((labels >= 0) & (labels < classes)) | (labels != labels.long())
    if bad.any():
        row = int(bad.nonzero()[0])
        raise Misuse(f"label {labels[row].item()} at [{row}]: expected a class index 0..{classes - 1}")
    return labels.long()
