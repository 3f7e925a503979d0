"""Post-hoc steps on predictions: calibration, conformal prediction and abstention; see README.md."""

from murmuration.posthoc.abstention import (
    Abstention,
    by_cost,
    by_error_rate,
    by_risk_control,
    coverage_at_risk,
    risk_at_coverage,
)
from murmuration.posthoc.calibration import CALIBRATORS, Calibrator, calibrator_names, fit_calibrator
from murmuration.posthoc.config import PostHocConfig
from murmuration.posthoc.conformal import (
    CONFORMAL_METHODS,
    GroupedRule,
    IntervalRule,
    Rule,
    SetRule,
    covered,
    fit_conformal,
    fit_conformal_by_group,
    region_sizes,
)
from murmuration.posthoc.fit import FEWEST, PostHoc, check_config, fit_posthoc, posthoc_from_json
from murmuration.posthoc.serialization import to_json

__all__ = [
    "CALIBRATORS",
    "CONFORMAL_METHODS",
    "FEWEST",
    "Abstention",
    "Calibrator",
    "GroupedRule",
    "IntervalRule",
    "PostHoc",
    "PostHocConfig",
    "Rule",
    "SetRule",
    "by_cost",
    "by_error_rate",
    "by_risk_control",
    "calibrator_names",
    "check_config",
    "coverage_at_risk",
    "covered",
    "fit_calibrator",
    "fit_conformal",
    "fit_conformal_by_group",
    "fit_posthoc",
    "posthoc_from_json",
    "region_sizes",
    "risk_at_coverage",
    "to_json",
]
