"""An ensemble on data: as it is, under shift, on foreign inputs, and what its promises are worth."""

from murmuration.evaluation.assessment import Assessment, assess
from murmuration.evaluation.corrupting import Corrupting
from murmuration.evaluation.costs import cost_of
from murmuration.evaluation.examining import Examined, examine
from murmuration.evaluation.exams import Exam, exam_of, exam_on
from murmuration.evaluation.foreign import ForeignFound, assess_foreign, familiar_of
from murmuration.evaluation.promises import RuleFound, SetsFound
from murmuration.evaluation.shift import ShiftFound, assess_shift

__all__ = [
    "Assessment",
    "Corrupting",
    "Exam",
    "Examined",
    "ForeignFound",
    "RuleFound",
    "SetsFound",
    "ShiftFound",
    "assess",
    "assess_foreign",
    "assess_shift",
    "cost_of",
    "exam_of",
    "exam_on",
    "examine",
    "familiar_of",
]
