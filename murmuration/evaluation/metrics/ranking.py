"""Scores of a ranking: risk-coverage curves of selective prediction, AUROC and average precision."""

import math

import numpy as np

from murmuration.evaluation.metrics.intervals import LEVEL, Feature, wilson
from murmuration.evaluation.metrics.per_example import Columns
from murmuration.system.errors import Misuse


def selective(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Return the certainty of each prediction (N,) and its loss (N,), for either task.

    Classification: the confidence, and 1 for an error. Regression: minus the total standard deviation, and the
    absolute error, so that a risk is in the target's unit; with several targets both are means over them.
    """
    if "confidence" in columns:
        return columns["confidence"], 1.0 - columns["correct"]
    if "total_std" in columns:
        return -columns["total_std"], columns["absolute_error"]
    raise Misuse(f"columns {', '.join(columns)} have neither 'confidence' nor 'total_std': expected those of a task")


def tied_order(certainty: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs (N,) from most to least certain, and for each place the number of its group of equals."""
    order = np.argsort(-certainty, kind="stable")
    ranked = certainty[order]
    return order, np.concatenate([[0], np.cumsum(ranked[1:] != ranked[:-1])])


def tie_means(values: np.ndarray, tie: np.ndarray) -> np.ndarray:
    """Return values (N,) with each replaced by the mean of its group of equals."""
    return (np.bincount(tie, weights=values) / np.bincount(tie))[tie]


def risks_of(losses: np.ndarray, tie: np.ndarray) -> np.ndarray:
    """Return the mean of the first n of ranked losses (N,), n = 1..N; ties share their losses."""
    return np.cumsum(tie_means(losses, tie)) / np.arange(1, len(losses) + 1)


def risks(columns: Columns) -> np.ndarray:
    """Return the mean loss (N,) of the n most certain inputs, n = 1..N: an error rate, or a mean absolute error."""
    certainty, loss = selective(columns)
    order, tie = tied_order(certainty)
    return risks_of(loss[order], tie)


def risk_influence(columns: Columns) -> list[Feature]:
    """Return a value (N,) per input whose mean is the area under the risk-coverage curve, with the same variance.

    The area is the mean of the risks r_n = e_n / n (e_n: the losses of the n most certain). Its derivative by
    the weight of input i is r_i + loss_i a_i - b_i with a_i the sum over n >= i of 1/n and b_i that of
    r_n / n. The mean of each of the three terms is the area itself, so their sum's mean is the area, and
    resampling it is the infinitesimal jackknife (Efron 1982).
    """
    certainty, loss = selective(columns)
    order, tie = tied_order(certainty)
    place, ranked = np.arange(1, len(order) + 1), loss[order]
    risk = risks_of(ranked, tie)
    later = tie_means(np.cumsum((1 / place)[::-1])[::-1], tie)
    return [Feature(unranked(risk + ranked * later - np.cumsum((risk / place)[::-1])[::-1], order))]


def generalised_influence(columns: Columns) -> list[Feature]:
    """Return values (N,) whose mean is the area under the generalised risk-coverage curve, with the same variance.

    The generalised risk (Traub et al. 2024) is e_n / N, the losses of the n most certain over all N: what is
    left undetected of everything. The curve runs straight from (0, 0) through the points (n / N, e_n / N), so
    its area is a sum over ranks n_i, or over pairs:

        A = sum_i loss_i (N - n_i + 1/2) / N^2 = sum_ij loss_i [j less certain than i; 1/2 for ties] / N^2.

    For errors of 0 and 1 that is (1 - AUROC) accuracy (1 - accuracy) + (1 - accuracy)^2 / 2, exactly. As a sum
    over pairs its derivative by the weight of input k has two terms: loss_k times the share of inputs less
    certain than k, and the losses of those more certain, over N. Each has mean A; their sum less A has mean A
    and the spread of the area (the infinitesimal jackknife, Efron 1982).
    """
    certainty, loss = selective(columns)
    order, tie = tied_order(certainty)
    ranked, inputs = loss[order], len(order)
    shared = tie_means(ranked, tie)
    ahead = tie_means(np.cumsum(shared) - shared / 2, tie) / inputs
    behind = 1 - tie_means(np.arange(inputs) + 0.5, tie) / inputs
    missed = ranked * behind
    return [Feature(unranked(missed + ahead - missed.mean(), order))]


def unranked(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return values (N,) by rank as values (N,) by input."""
    placed = np.empty(len(order))
    placed[order] = values
    return placed


def placements(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the fraction (N,) of sorted others below each of the scores (N,), ties counting half."""
    return (np.searchsorted(others, scores, "left") + np.searchsorted(others, scores, "right")) / (2 * len(others))


def placement_features(scores: np.ndarray, positive: np.ndarray) -> list[Feature]:
    """Return four values (N,) per input that `error_area` combines into the AUROC of positives (N,) by score.

    The AUROC is the mean placement of the positives among the negatives, and as well of the negatives among the
    positives (Mann and Whitney 1947). Resampling both, and how many there are of each, gives the spread of DeLong
    et al. (1988).
    """
    place = np.empty(len(positive))  # among the other kind: the fraction on the right side of it
    place[~positive] = 1 - placements(scores[~positive], np.sort(scores[positive]))
    place[positive] = placements(scores[positive], np.sort(scores[~positive]))
    area = np.full(len(positive), place[positive].mean())
    negative = ~positive
    return [Feature(place * negative), Feature(place * positive), Feature(negative.astype(float)), Feature(area)]


def error_area(means: np.ndarray) -> np.ndarray:
    """Return the AUROC (...) from means (..., 4): that of the full sample, moved by both kinds of placement.

    A resample without any right or without any wrong inputs does not move it on that side.
    """
    of_wrong, of_right, wrong, area = np.moveaxis(means, -1, 0)
    pairs = (of_wrong, wrong), (of_right, 1 - wrong)
    parts = [np.where(share > 0, placed / np.where(share > 0, share, 1), area) for placed, share in pairs]
    return parts[0] + parts[1] - area


def right_and_wrong(columns: Columns) -> bool:
    """Return whether some inputs are right and some wrong: otherwise there is nothing to rank."""
    return 0 < columns["correct"].sum() < len(columns["correct"])


def error_interval(columns: Columns) -> tuple[float, float]:
    """Return the 95 % interval of the AUROC of errors."""
    confidence, right = columns["confidence"], columns["correct"]
    return delong_interval(np.sort(-confidence[right]), np.sort(-confidence[~right]))[1:]


def two_classes(columns: Columns) -> bool:
    """Return whether there are two classes, and examples of both."""
    return "positive_prob" in columns and 0 < columns["label"].sum() < len(columns["label"])


def auroc_interval(columns: Columns) -> tuple[float, float]:
    """Return the 95 % interval of the AUROC of the second of two classes."""
    scores, positive = columns["positive_prob"], columns["label"] == 1
    return delong_interval(np.sort(scores[~positive]), np.sort(scores[positive]))[1:]


def precision_influence(columns: Columns) -> np.ndarray:
    """Return a value (N,) per input whose mean is the average precision of the second class, with the same variance.

    With weights w on the examples, AP = sum_i w_i y_i R_i / T_i / sum_i w_i y_i, where R_i and T_i are the weights of
    the positives and of all examples that score at least as high as i. It does not change when all weights grow
    alike, so its derivatives by them sum to zero: AP + N dAP/dw_k has mean AP, and resampling it is the
    infinitesimal jackknife (Efron 1982).
    """
    scores, positive = columns["positive_prob"], (columns["label"] == 1).astype(float)
    values, place = np.unique(scores, return_inverse=True)  # increasing
    total, right = (np.bincount(place, weights=weights, minlength=len(values)) for weights in (None, positive))
    above, right_above = (np.cumsum(count[::-1])[::-1] for count in (total, right))  # scoring at least as high
    precision = right_above / above
    average = float((right * precision).sum() / right.sum())
    inverse, shrunk = np.cumsum(right / above), np.cumsum(right * precision / above)  # over positives scoring lower
    slope = positive * (precision[place] - average) + positive * inverse[place] - shrunk[place]
    return average + len(scores) * slope / right.sum()


def delong_interval(low_group: np.ndarray, high_group: np.ndarray) -> tuple[float, float, float]:
    """Return the AUROC of sorted scores, higher in the second group, and the ends of its interval (DeLong et al. 1988).

    The variance is that of the placements of either group among the other, and the interval is symmetric on
    the logit scale, with the t-quantile of Satterthwaite's degrees of freedom (Brunner and Munzel 2000): a group of few
    makes it wide. Where it says nothing (the groups wholly apart, all scores equal, a group of one) Wilson's interval
    with the smaller group as trials stands in.
    """
    from scipy.stats import t

    of_high, of_low = placements(high_group, low_group), placements(low_group, high_group)
    area, trials = float(of_high.mean()), min(len(low_group), len(high_group))
    parts = [part.var(ddof=1) / len(part) for part in (of_high, of_low)] if trials > 1 else [0.0]
    variance = sum(parts)
    if not (0 < area < 1 and variance > 0):
        low, high = wilson(np.array(area * trials), np.array(trials))
        return area, float(low), float(high)
    freedom = variance**2 / sum(v**2 / (len(p) - 1) for v, p in zip(parts, (of_high, of_low), strict=True))
    half = float(t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(variance) / (area * (1 - area))
    centre = math.log(area / (1 - area))
    return area, logistic(centre - half), logistic(centre + half)


def logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0
