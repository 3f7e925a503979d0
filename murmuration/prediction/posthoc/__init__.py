"""Post-hoc steps on predictions: calibration, conformal prediction and abstention; see README.md."""

# ruff: noqa: F401 - names to be imported from here
from murmuration.prediction.posthoc.calibration import CALIBRATORS, fit_calibrator
from murmuration.prediction.posthoc.conformal import CONFORMAL_METHODS, fit_conformal, fit_conformal_by_group
from murmuration.prediction.posthoc.fit import FEWEST, Choice, PostHoc, check_config, choose_calibrator, fit_posthoc
from murmuration.prediction.posthoc_config import PostHocConfig
from murmuration.system.records import to_json
