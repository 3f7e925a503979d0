"""What a weight is, and how a network runs on weights that are not its own."""

from murmuration.weights.families import POINT, WEIGHTS, Family, How, Realised, Weights, family_of, weights_named
from murmuration.weights.operators import run_members
from murmuration.weights.outline import Kernel, Outline, outline_of
from murmuration.weights.stacked import NotDirect
from murmuration.weights.structure import Structure

__all__ = [
    "POINT",
    "WEIGHTS",
    "Family",
    "How",
    "Kernel",
    "NotDirect",
    "Outline",
    "Realised",
    "Structure",
    "Weights",
    "family_of",
    "outline_of",
    "run_members",
    "weights_named",
]
