"""A little data, small trained runs of several recipes on it, and their populations to prune."""

from dataclasses import replace
from pathlib import Path

import torch

import murmuration as mm
from murmuration.applications.pruning import Pruning, plan_pruning, prune, prune_population
from murmuration.core.population import KEPT, Population
from murmuration.core.recipe import Recipe, make_recipe
from murmuration.core.weights import trace_kernels
from murmuration.data import Data
from murmuration.training.plan import Plan

PLAN = Plan(members=2, epochs=1, batch_size=32, engine="loop", lr=1e-2)


def trained(data: Data, recipe: str | Recipe, net: str = "mlp", out: Path | None = None, **settings) -> mm.Ensemble:
    settings.setdefault("members", make_recipe(recipe).members or PLAN.members)
    return mm.fit(net, data, recipe=recipe, plan=replace(PLAN, **{"posthoc": None, **settings}), out=out)


def population(ensemble: mm.Ensemble) -> Population:
    return ensemble.groups[0].population


def without(ensemble: mm.Ensemble, pruning: Pruning, data: Data) -> mm.Ensemble:
    """The ensemble pruned in memory."""
    group = ensemble.groups[0]
    trace = trace_kernels(group.module, data.train.prepared[:2])
    left = prune_population(group.population, ensemble.recipe.weights, trace, pruning)
    return replace(ensemble, groups=(replace(group, population=left),))


def masks(ensemble: mm.Ensemble) -> dict[str, torch.Tensor]:
    return {name.removesuffix(KEPT): t for name, t in population(ensemble).buffers.items() if name.endswith(KEPT)}


def rows(ensemble: mm.Ensemble, name: str) -> torch.Tensor:
    """A parameter (M, ...), shared or not."""
    found = population(ensemble)
    return found.own[name] if name in found.own else found.shared[name].expand(found.members, *found.shared[name].shape)


def holds_zeros(ensemble: mm.Ensemble) -> bool:
    """Whether there are masks, each leaves something out, and all they leave out is zero."""
    found = masks(ensemble)
    return bool(found) and all(
        not mask.all() and bool((rows(ensemble, name)[~mask] == 0).all()) for name, mask in found.items()
    )


def pruned_run(run: Path, out: Path, pruning: Pruning, data: Data | None = None, **settings) -> mm.Ensemble:
    return prune(plan_pruning(run, pruning, data=data), out, **settings)
