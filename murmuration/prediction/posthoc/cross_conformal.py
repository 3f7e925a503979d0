"""Intervals from the residuals of cross-fitted models: CV+ and jackknife+ (Barber, Candes, Ramdas, Tibshirani 2021).

Every one of n training examples has the absolute residual R_i of the model that did not train on it, that of its fold
k(i). With one example a fold, CV+ is the jackknife+.
"""

import numpy as np

from murmuration.prediction.posthoc.conformal import check_rule, conformal_quantile
from murmuration.system.errors import Misuse, unknown

CROSS_METHODS = {
    "plus": "quantiles of mean_k(i)(x) -+ R_i over the examples: coverage of at least 1 - 2 (1 - coverage)",
    "minmax": "the smallest and the largest mean of the folds -+ the quantile of R_i: at least the coverage, wider",
}


def cross_intervals(
    means: np.ndarray, folds: np.ndarray, residuals: np.ndarray, coverage: float, method: str = "plus"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends (low, high), each (N, K), of the intervals of new inputs.

    `means` (F, N, K) are the predictions of the model of every fold for them, `folds` (n,) the folds of the training
    examples, and `residuals` (n, K) their absolute residuals. Ends are infinite if n is too small for the coverage.

    >>> low, high = cross_intervals(np.zeros((2, 1, 1)), np.array([0, 1] * 5), np.arange(10.0)[:, None], 0.8)
    >>> low.item(), high.item()
    (-8.0, 8.0)
    """
    check_rule(coverage, len(residuals))
    if method not in CROSS_METHODS:
        raise unknown("method of cross-fitted intervals", method, CROSS_METHODS)
    if len(folds) != len(residuals) or folds.max() >= len(means):
        raise Misuse(f"{len(residuals)} residuals in {len(np.unique(folds))} folds: expected those of {len(means)}")
    if method == "plus":
        ends = [
            [conformal_quantile(side * means[folds, row] + residuals, coverage) for row in range(means.shape[1])]
            for side in (-1, 1)
        ]  # the low end of x is minus the high end of -x
        return -np.stack(ends[0]), np.stack(ends[1])
    reach = conformal_quantile(residuals, coverage)  # (K,)
    return means.min(0) - reach, means.max(0) + reach
