"""Pruning of trained runs: by which criterion, to which sparsity, at what cost in accuracy; see README.md."""

# ruff: noqa: F401 - names to be imported from here
from murmuration.applications.pruning.masks import Pruning, prune_population
from murmuration.applications.pruning.runs import PruningPlan, check_request, plan_pruning, prune
