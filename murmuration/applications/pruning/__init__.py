"""Pruning of trained runs: by which criterion, to which sparsity, at what cost in accuracy; see README.md."""

from murmuration.applications.pruning.masks import Pruning, prune_population
from murmuration.applications.pruning.runs import PruningPlan, check_request, plan_pruning, prune, resume

__all__ = ["Pruning", "PruningPlan", "check_request", "plan_pruning", "prune", "prune_population", "resume"]
