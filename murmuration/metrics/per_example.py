"""What a predictive is worth on each example: columns of values, whose last axis is always the inputs."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.errors import Failure
from murmuration.predictive import Predictive, normal_cdf

Columns = dict[str, np.ndarray]

COVERAGE_LEVELS = {"inside_50": 0.50, "inside_90": 0.90, "inside_95": 0.95}
WIDTH_LEVEL = 0.90  # of the interval whose width is the sharpness


def columns(pred: Predictive, y: Any) -> Columns:
    """The quantities (N,) of each input, and (S, N) of each member and input, from which all scores follow.

    Columns named `expected_...` are means over members (by weight), those named `member_...` keep the
    members. With several regression targets, errors and widths are means over targets, and `target`,
    `predicted` and `pit` are (K, N).
    """
    check_no_nan(pred.outputs)
    with torch.no_grad():
        table = class_columns(pred, y) if pred.task == "classification" else number_columns(pred, y)
    return {name: values.cpu().numpy() for name, values in table.items()}


def class_columns(pred: Predictive, y: Any) -> dict[str, Tensor]:
    labels = pred.labels(y)
    member_log_prob = pred.member_log_prob(labels)  # (S, N)
    member_brier = brier(pred.probs, labels)
    member_correct = pred.probs.argmax(-1) == labels
    return {
        "label": labels,
        "predicted": pred.predicted,
        "correct": pred.predicted == labels,
        "confidence": pred.confidence,
        "log_prob": pred.log_prob(labels),
        "brier": brier(pred.mean, labels),
        "entropy": pred.entropy,
        "expected_entropy": pred.expected_entropy,
        "mutual_information": pred.mutual_information,
        "disagreement": pred.disagreement,
        "diversity": pred.average((pred.probs - pred.mean).square().sum(-1)),
        "member_log_prob": member_log_prob,
        "member_brier": member_brier,
        "member_correct": member_correct,
        "expected_log_prob": pred.average(member_log_prob),
        "expected_brier": pred.average(member_brier),
        "expected_correct": pred.average(member_correct),
    }


def number_columns(pred: Predictive, y: Any) -> dict[str, Tensor]:
    targets = pred.targets(y)  # (N, K)
    pit = pred.cdf(targets)
    low, high = pred.interval(WIDTH_LEVEL)
    member_squared_error = (pred.member_mean - targets).square().mean(-1)  # (S, N)
    member_log_prob = pred.member_log_prob(targets)
    inside = {name: covered(pit, level) for name, level in COVERAGE_LEVELS.items()}
    return {
        "target": per_target(targets),
        "predicted": per_target(pred.mean),
        "log_prob": pred.log_prob(targets),
        "squared_error": (pred.mean - targets).square().mean(-1),
        "absolute_error": (pred.mean - targets).abs().mean(-1),
        "crps": crps(pred, targets).mean(-1),
        "pit": per_target(pit),
        **inside,
        "interval_width": (high - low).mean(-1),
        "aleatoric_std": pred.aleatoric_var.mean(-1).sqrt(),
        "epistemic_std": pred.epistemic_var.mean(-1).sqrt(),
        "total_std": pred.total_var.mean(-1).sqrt(),
        "member_log_prob": member_log_prob,
        "member_squared_error": member_squared_error,
        "expected_log_prob": pred.average(member_log_prob),
        "expected_squared_error": pred.average(member_squared_error),
    }


def brier(probs: Tensor, labels: Tensor) -> Tensor:
    """The squared distance (..., N) in [0, 2] of probabilities (..., N, K) from the one-hot label."""
    hot = torch.nn.functional.one_hot(labels, probs.shape[-1])
    return (probs - hot).square().sum(-1)


def covered(pit: Tensor, level: float) -> Tensor:
    """The share (N,) of targets inside the central interval of that level, read off the PIT (N, K)."""
    return ((pit - 0.5).abs() <= level / 2).double().mean(-1)


def crps(pred: Predictive, targets: Tensor) -> Tensor:
    """The continuous ranked probability score (N, K) of a mixture of Gaussians (Grimit et al. 2006, eq. 5).

    E|Y - y| - E|Y - Y'| / 2, where the difference of two members is again a Gaussian: exact, and the S^2
    pairs are visited one member at a time.
    """
    weights, mean, var = pred.member_weights, pred.member_mean, pred.member_var
    score = pred.average(folded_mean(mean - targets, var))
    for i, weight in enumerate(weights):
        pairs = folded_mean(mean[i:] - mean[i], var[i:] + var[i])  # (S - i, N, K)
        twice = weights[i:] * weight * 2  # each pair of distinct members occurs in both orders
        twice[0] /= 2
        score = score - 0.5 * torch.tensordot(twice, pairs, dims=1)
    return score


def folded_mean(mean: Tensor, var: Tensor) -> Tensor:
    """E|X| (...) of Gaussians of that mean and variance."""
    std = var.sqrt()
    z = mean / std
    density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    return 2 * std * density + mean * (2 * normal_cdf(z) - 1)


def per_target(values: Tensor) -> Tensor:
    """Values (N, K) as (N,) for one target and (K, N) for several: inputs come last in every column."""
    return values.squeeze(-1) if values.shape[-1] == 1 else values.T


def check_no_nan(outputs: Tensor) -> None:
    """Nothing, if no member's output is NaN: a diverged member must not hide inside a mean."""
    bad = outputs.isnan().flatten(1).any(1)
    if bad.any():
        names = bad.nonzero().flatten().tolist()
        raise Failure(f"members {names} of {len(bad)} output NaN: they diverged; leave them out with select(...)")
