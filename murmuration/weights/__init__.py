"""What a weight is, and how a network runs on weights that are not its own."""

from murmuration.weights.families import WEIGHTS, Point, Weights
from murmuration.weights.operators import NotDirect, run_members
from murmuration.weights.structure import Structure

__all__ = ["WEIGHTS", "NotDirect", "Point", "Structure", "Weights", "run_members"]
