"""Predictions of any model, read from a file and evaluated like an ensemble's; see README.md."""

from murmuration.evaluation.audit.evaluate import evaluate_predictions
from murmuration.evaluation.audit.predictions import Predictions, check_same_targets, open_predictions

__all__ = ["Predictions", "check_same_targets", "evaluate_predictions", "open_predictions"]
