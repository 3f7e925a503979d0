"""Post-hoc steps on predictions: calibration, conformal prediction and abstention; see README.md."""

from murmuration.posthoc.abstention import Abstention
from murmuration.posthoc.calibration import CALIBRATORS, Calibrator, calibrator_names, fit_calibrator
from murmuration.posthoc.config import PostHocConfig
from murmuration.posthoc.conformal import METHODS, IntervalRule, Rule, SetRule, fit_by_group, fit_conformal
from murmuration.posthoc.fit import FEWEST, PostHoc, fit_posthoc, posthoc_from_json
from murmuration.posthoc.serialization import to_json

__all__ = [
    "CALIBRATORS",
    "FEWEST",
    "METHODS",
    "Abstention",
    "Calibrator",
    "IntervalRule",
    "PostHoc",
    "PostHocConfig",
    "Rule",
    "SetRule",
    "calibrator_names",
    "fit_by_group",
    "fit_calibrator",
    "fit_conformal",
    "fit_posthoc",
    "posthoc_from_json",
    "to_json",
]
