"""Predictions of any model, read from a file or from memory and evaluated like an ensemble's; see README.md."""

# ruff: noqa: F401 - names to be imported from here
from murmuration.evaluation.audit.predictions import (
    check_same_targets,
    evaluate_predictions,
    names_of,
    open_predictions,
)
