"""Post-hoc steps on predictions: calibration, conformal prediction and abstention; see README.md."""

# ruff: noqa: F401 - names to be imported from here
from murmuration.prediction.posthoc.calibration import CALIBRATORS, fit_calibrator
from murmuration.prediction.posthoc.choice import Choice, choose_calibrator
from murmuration.prediction.posthoc.conformal import CONFORMAL_METHODS, fit_conformal, fit_conformal_by_group
from murmuration.prediction.posthoc.fit import FEWEST, PostHoc, PostHocConfig, check_config, fit_posthoc
from murmuration.system.records import to_json
