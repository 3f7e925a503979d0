"""Predictions made by anything, and how far to trust them; see README.md for the path."""

from murmuration.audit.judging import judged
from murmuration.audit.predictions import Predictions, check_same_targets
from murmuration.audit.reading import open_predictions

__all__ = ["Predictions", "check_same_targets", "judged", "open_predictions"]
