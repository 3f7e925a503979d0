"""Predictions of any model, read from a file or from memory and evaluated like an ensemble's; see README.md."""

from murmuration.evaluation.audit.evaluate import evaluate_predictions
from murmuration.evaluation.audit.predictions import Predictions, check_same_targets, names_of, open_predictions

__all__ = ["Predictions", "check_same_targets", "evaluate_predictions", "names_of", "open_predictions"]
