"""An ensemble on data: as it is, under shift, and against out-of-distribution inputs; see README.md."""

# ruff: noqa: F401 - names to be imported from here
from murmuration.evaluation.coverage import AbstentionResult, SetCoverage
from murmuration.evaluation.eval_set import EvalSet, eval_set_for, eval_set_of, held_out_set, score_predictions
from murmuration.evaluation.ood import OodResult, evaluate_ood, in_distribution
from murmuration.evaluation.record import Evaluation, evaluate_ensemble, evaluate_on, ood_inputs
from murmuration.evaluation.shift import ShiftResult, ShiftSuite, evaluate_shift, shift_suite
