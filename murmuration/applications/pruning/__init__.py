"""Pruning of trained runs: by which criterion, to which sparsity, at what cost in accuracy; see README.md."""

from murmuration.applications.pruning.compact import compact_population
from murmuration.applications.pruning.counting import ParameterCounts, count_parameters, layer_densities, sparsity_of
from murmuration.applications.pruning.curve import LEVELS, CurvePoint, largest_sparsity, sparsity_curve
from murmuration.applications.pruning.masks import prune_population
from murmuration.applications.pruning.rules import RULES, SCOPES, Pruning
from murmuration.applications.pruning.runs import TOLERANCE, PruningPlan, check_request, plan_pruning, prune, resume

__all__ = [
    "LEVELS",
    "RULES",
    "SCOPES",
    "TOLERANCE",
    "CurvePoint",
    "ParameterCounts",
    "Pruning",
    "PruningPlan",
    "check_request",
    "compact_population",
    "count_parameters",
    "largest_sparsity",
    "layer_densities",
    "plan_pruning",
    "prune",
    "prune_population",
    "resume",
    "sparsity_curve",
    "sparsity_of",
]
