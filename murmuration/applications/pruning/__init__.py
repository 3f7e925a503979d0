"""Leaving weights out of a trained run: which, how far, and what it costs."""

from murmuration.applications.pruning.compact import compacted
from murmuration.applications.pruning.counting import Counts, counts_of, layers_of, sparsity_of
from murmuration.applications.pruning.curve import LEVELS, Point, curve_of, farthest
from murmuration.applications.pruning.masks import pruned
from murmuration.applications.pruning.rules import RULES, SCOPES, Pruning
from murmuration.applications.pruning.runs import TOLERANCE, Prospect, check_request, prospect, prune

__all__ = [
    "LEVELS",
    "RULES",
    "SCOPES",
    "TOLERANCE",
    "Counts",
    "Point",
    "Prospect",
    "Pruning",
    "check_request",
    "compacted",
    "counts_of",
    "curve_of",
    "farthest",
    "layers_of",
    "prospect",
    "prune",
    "pruned",
    "sparsity_of",
]
