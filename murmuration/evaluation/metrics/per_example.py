"""What a predictive is worth on each example: columns of values, whose last axis is always the inputs."""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.likelihoods import CLASSIFICATION, MULTI_LABEL, REGRESSION, Quantiles
from murmuration.likelihoods.mixtures import Normals, folded_mean, weighted_mean
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Failure

Columns = dict[str, np.ndarray]

COVERAGE_LEVELS = {"inside_50": 0.50, "inside_90": 0.90, "inside_95": 0.95}
WIDTH_LEVEL = 0.90  # of the interval whose width is the sharpness


def columns(pred: Predictive, y: Any) -> Columns:
    """Return the quantities (N,) of each input, and (S, N) of each member and input, from which all scores follow.

    Columns named `expected_...` are means over members (by weight), those named `member_...` keep the
    members. With two classes, `positive_prob` is the probability of the second. With several regression targets,
    errors and widths are means over targets, and `target`, `predicted` and `pit` are (K, N). Columns named `..._fair`
    estimate what infinitely many such members would get, and need two members at least. `crps` needs Gaussians, and
    `pinball` exists for quantiles. Labels of a multi-label task and their probabilities are (K, N).

    Of calibrated predictions, columns named `member_...`, `expected_...`, `..._fair` and `diversity` are those of the
    members before the calibrator: one that stretches members away from their mean would otherwise count as diversity.
    """
    check_no_nan(pred.outputs)
    with torch.no_grad():
        table = COLUMNS[pred.task](pred, y)
    return {name: values.cpu().numpy() for name, values in table.items()}


def class_columns(pred: Predictive, y: Any) -> dict[str, Tensor]:
    labels, positive = pred.labels(y), {"positive_prob": pred.mean[:, 1]} if pred.mean.shape[-1] == 2 else {}
    return {
        "label": labels,
        "predicted": pred.predicted,
        **positive,
        "correct": pred.predicted == labels,
        "log_prob": pred.log_prob(labels),
        "brier": brier(pred.mean, labels),
        **pred.uncertainties(),
        "disagreement": pred.disagreement,
        **class_member_columns(pred.uncalibrated or pred, labels),
    }


def member_columns(pred: Predictive, **members: Tensor) -> dict[str, Tensor]:
    """Return columns (S, N) of each member by name, and their means (N,) over members."""
    alone = {f"member_{name}": values for name, values in members.items()}
    return {**alone, **{f"expected_{name}": pred.average(values) for name, values in members.items()}}


def class_member_columns(pred: Predictive, labels: Tensor) -> dict[str, Tensor]:
    """Return columns of members alone and of infinitely many of them."""
    log_prob, correct = pred.member_log_prob(labels), pred.votes == labels  # (S, N)
    members = member_columns(pred, log_prob=log_prob, brier=brier(pred.probs, labels), correct=correct)
    own_brier, noise = brier(pred.mean, labels), mean_noise(pred)
    diversity = (members["expected_brier"] - own_brier).clamp_min(0)  # the members' squared distance from their mean
    fair = {} if noise is None else {"brier_fair": own_brier - noise * diversity}
    return {**fair, "diversity": diversity, **members}


def number_columns(pred: Predictive, y: Any) -> dict[str, Tensor]:
    targets = pred.targets(y)  # (N, K)
    pit, errors, (low, high) = pred.cdf(targets), pred.mean - targets, pred.interval(WIDTH_LEVEL)
    aleatoric, epistemic = pred.aleatoric_var.mean(-1), pred.epistemic_var.mean(-1)
    more = {}
    if isinstance(pred.distribution, Normals):
        distance, apart, within = crps_terms(pred, targets)
        more["crps"] = (distance - 0.5 * (apart + within)).mean(-1)
    if isinstance(pred.likelihood, Quantiles):
        more["pinball"] = pinball(pred, targets, pred.likelihood.levels)
    return {
        "target": per_target(targets),
        "predicted": per_target(pred.mean),
        "log_prob": pred.log_prob(targets),
        "squared_error": errors.square().mean(-1),
        "absolute_error": errors.abs().mean(-1),
        **more,
        "pit": per_target(pit),
        **{name: covered(pit, level) for name, level in COVERAGE_LEVELS.items()},
        "interval_width": (high - low).mean(-1),
        "aleatoric_std": aleatoric.sqrt(),
        "epistemic_std": epistemic.sqrt(),
        "total_std": (aleatoric + epistemic).sqrt(),
        **number_member_columns(pred.uncalibrated or pred, targets),
    }


def number_member_columns(pred: Predictive, targets: Tensor) -> dict[str, Tensor]:
    """Return columns of members alone and of infinitely many of them."""
    squared_error, log_prob = (pred.member_mean - targets).square().mean(-1), pred.member_log_prob(targets)  # (S, N)
    fair, noise = {}, mean_noise(pred)
    if noise is not None:
        fair["squared_error_fair"] = (pred.mean - targets).square().mean(-1) - noise * pred.epistemic_var.mean(-1)
        if isinstance(pred.distribution, Normals) and not pred.likelihood.moment_matched:
            distance, apart, _ = crps_terms(pred, targets)
            fair["crps_fair"] = (distance - 0.5 * (1 + noise) * apart).mean(-1)
    return {**fair, **member_columns(pred, log_prob=log_prob, squared_error=squared_error)}


def pinball(pred: Predictive, targets: Tensor, levels: Sequence[float]) -> Tensor:
    """Return the pinball loss (N,) of the mixture's quantiles, mean over levels and targets (N, K)."""
    errors = torch.stack([targets - pred.quantile(level) for level in levels], -1)  # (N, K, L)
    at = errors.new_tensor(levels)
    return torch.maximum(at * errors, (at - 1) * errors).mean((-2, -1))


def label_columns(pred: Predictive, y: Any) -> dict[str, Tensor]:
    """Return the columns of a multi-label task; `correct` and `brier` are means over labels."""
    labels, members = pred.targets(y), pred.uncalibrated or pred  # (N, K)
    right = pred.predicted == labels
    return {
        "label": labels.long().T,
        "predicted": pred.predicted.T,
        "prob": pred.mean.T,
        "correct": right.double().mean(-1),
        "exact": right.all(-1),
        "log_prob": pred.log_prob(labels),
        "brier": (pred.mean - labels).square().mean(-1),
        **pred.uncertainties(),
        **member_columns(pred, log_prob=members.member_log_prob(labels)),
        "expected_correct": pred.average((members.votes == labels).double().mean(-1)),
    }


COLUMNS = {CLASSIFICATION: class_columns, MULTI_LABEL: label_columns, REGRESSION: number_columns}


def mean_noise(pred: Predictive) -> float | None:
    """Return the variance of the members' mean relative to the spread among them, sum(w^2) / (1 - sum(w^2)).

    Members are taken for independent draws from one distribution of variance v, with weights that do not
    depend on what was drawn. Their weighted mean then has variance v sum(w^2), and their weighted spread
    around it the expectation v (1 - sum(w^2)); the quotient is 1 / (S - 1) for equal weights. What is
    quadratic in the members loses its bias by it (Ferro 2014). None for one member.
    """
    concentration = float(pred.member_weights.square().sum())  # the chance that two draws are the same member
    return concentration / (1 - concentration) if concentration < 1 - 1e-9 else None


def brier(probs: Tensor, labels: Tensor) -> Tensor:
    """Return the squared distance (..., N) in [0, 2] of probabilities (..., N, K) from the one-hot label.

    As p.p - 2 p_y + 1: one pass over the classes, and off by rounding, about 1e-16.
    """
    right = probs.gather(-1, labels.expand(probs.shape[:-1])[..., None]).squeeze(-1)
    return (torch.linalg.vecdot(probs, probs) + 1 - 2 * right).clamp_min(0)


def covered(pit: Tensor, level: float) -> Tensor:
    """Return the share (N,) of targets inside the central interval of that level, read off the PIT (N, K)."""
    return ((pit - 0.5).abs() <= level / 2).double().mean(-1)


def crps_terms(pred: Predictive, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the continuous ranked probability score of a mixture of Gaussians is made of, each (N, K).

    The score is E|Y - y| - E|Y - Y'| / 2 (Grimit et al. 2006, eq. 5), where the difference of two members is
    again a Gaussian: exact. Given are the distance E|Y - y| and the two parts of E|Y - Y'|, from pairs of
    distinct members, visited one member at a time, and from a member with itself. Infinitely many members have
    no part of the second kind: their score is estimated from pairs of distinct ones alone (Ferro 2014).
    """
    components, weights = pred.density
    assert isinstance(components, Normals)
    mean, var = components.mean, components.var
    parts = components.parts  # a member is one Gaussian, or two with the same mean
    distance, apart, within = (torch.zeros_like(mean[0]) for _ in range(3))
    for share, factor in parts:
        distance += share * weighted_mean(folded_mean(mean - targets, var * factor), weights)
    for (share, factor), (other_share, other) in product(parts, parts):
        stds = (2 / math.pi * (factor + other) * var).sqrt()
        within += share * other_share * torch.tensordot(weights.square(), stds, dims=1)
        for i in range(len(weights) - 1):
            pairs = folded_mean(mean[i + 1 :] - mean[i], var[i + 1 :] * factor + var[i] * other)  # (S - i - 1, N, K)
            both = 2 * share * other_share * weights[i]  # in both orders
            apart += both * torch.tensordot(weights[i + 1 :], pairs, dims=1)
    blend = None if pred.likelihood.moment_matched else pred.blend
    if blend is None:
        return distance, apart, within
    across = sum(  # between a member and the prediction without inputs
        share * weighted_mean(folded_mean(mean - blend.mean, var * factor + blend.var), weights)
        for share, factor in parts
    )
    weight, baseline = blend.weight[:, None], folded_mean(blend.mean - targets, blend.var)
    apart = apart * (1 - weight).square() + 2 * weight * (1 - weight) * across
    own = weight.square() * (4 / math.pi * blend.var).sqrt()
    return blend.mix(distance, baseline), apart, within * (1 - weight).square() + own


def per_target(values: Tensor) -> Tensor:
    """Return values (N, K) as (N,) for one target and (K, N) for several: inputs come last in every column."""
    return values.squeeze(-1) if values.shape[-1] == 1 else values.T


def check_no_nan(outputs: Tensor) -> None:
    """Refuse outputs of members that are NaN: a diverged member must not hide inside a mean."""
    if not outputs.sum().isnan():  # one fast pass says that all is well
        return
    bad = outputs.isnan().flatten(1).any(1)
    if bad.any():
        names = bad.nonzero().flatten().tolist()
        raise Failure(f"members {names} of {len(bad)} output NaN: they diverged; leave them out with select(...)")
