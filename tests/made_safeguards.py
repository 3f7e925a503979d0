"""Safeguards of every kind, fitted to made-up predictions once."""

from functools import cache

import numpy as np
from made_predictions import made_classes, made_numbers

from murmuration.predictive import Predictive
from murmuration.recipe import Wishes
from murmuration.safeguards import Safeguards, fit_safeguards

CASES = {
    "classes": (made_classes(200, distortion=2.0), Wishes()),
    "classes, raps, costs": (made_classes(301), Wishes("vector", 0.8, "raps", 0.1, 5.0, 1.0)),
    "classes, aps, no calibrator": (made_classes(120), Wishes("none", sets="aps")),
    "isotonic": (made_classes(200, distortion=0.5), Wishes("isotonic")),
    "member temperatures": (made_classes(100), Wishes("member_temperature")),
    "one target": (made_numbers(200, distortion=0.5), Wishes()),
    "two targets": (made_numbers(151, targets=2), Wishes("member_temperature", 0.8, "normalised", decline_cost=0.7)),
    "endless": (made_numbers(20), Wishes(level=0.99)),
}


@cache
def fitted(case: str) -> tuple[Safeguards, Predictive, np.ndarray]:
    (pred, y), wishes = CASES[case]
    return fit_safeguards(pred, y, wishes), pred, y
