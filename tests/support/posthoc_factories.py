"""Post-hoc steps of every kind, fitted once to predictions from known distributions."""

from functools import cache

import numpy as np
from prediction_factories import classification_sample, regression_sample

from murmuration.prediction.posthoc import PostHocConfig
from murmuration.prediction.posthoc.fit import PostHoc, fit_posthoc
from murmuration.prediction.predictive import Predictive

CASES = {
    "classes": (classification_sample(200, distortion=2.0), PostHocConfig()),
    "classes, raps, costs": (classification_sample(301), PostHocConfig("vector", 0.8, "raps", 0.1, 5.0, 1.0)),
    "classes, aps, no calibrator": (classification_sample(120), PostHocConfig("none", conformal="aps")),
    "isotonic": (classification_sample(200, distortion=0.5), PostHocConfig("isotonic")),
    "member temperatures": (classification_sample(100), PostHocConfig("member_temperature")),
    "one target": (regression_sample(200, distortion=0.5), PostHocConfig()),
    "two targets": (
        regression_sample(151, targets=2),
        PostHocConfig("member_temperature", 0.8, "normalised", abstain_cost=0.7),
    ),
    "endless": (regression_sample(20), PostHocConfig(coverage=0.99)),
}


@cache
def fitted(case: str) -> tuple[PostHoc, Predictive, np.ndarray]:
    (pred, y), config = CASES[case]
    return fit_posthoc(pred, y, config), pred, y
