"""Post-hoc steps of every kind, fitted to made-up predictions once."""

from functools import cache

import numpy as np
from prediction_factories import made_classes, made_numbers

from murmuration.posthoc import PostHocConfig
from murmuration.posthoc.fit import PostHoc, fit_posthoc
from murmuration.predictive import Predictive

CASES = {
    "classes": (made_classes(200, distortion=2.0), PostHocConfig()),
    "classes, raps, costs": (made_classes(301), PostHocConfig("vector", 0.8, "raps", 0.1, 5.0, 1.0)),
    "classes, aps, no calibrator": (made_classes(120), PostHocConfig("none", conformal="aps")),
    "isotonic": (made_classes(200, distortion=0.5), PostHocConfig("isotonic")),
    "member temperatures": (made_classes(100), PostHocConfig("member_temperature")),
    "one target": (made_numbers(200, distortion=0.5), PostHocConfig()),
    "two targets": (
        made_numbers(151, targets=2),
        PostHocConfig("member_temperature", 0.8, "normalised", abstain_cost=0.7),
    ),
    "endless": (made_numbers(20), PostHocConfig(coverage=0.99)),
}


@cache
def fitted(case: str) -> tuple[PostHoc, Predictive, np.ndarray]:
    (pred, y), config = CASES[case]
    return fit_posthoc(pred, y, config), pred, y
