"""Ensembles of networks trained elsewhere, read back from their files."""

import copy
from pathlib import Path
from typing import Any

from torch import nn

from murmuration.core.engines import Engine
from murmuration.core.population import Population, is_auxiliary, population_from_tensors
from murmuration.core.recipe import Recipe, recipe_from_json
from murmuration.likelihoods import Likelihood, likelihood_from_json
from murmuration.models.nets.adapt import Output, plain_module, select_output
from murmuration.models.nets.inputs import OUTPUT, output_again
from murmuration.models.nets.source import net_source
from murmuration.models.nets.validation import PLAIN, require_same_plain_tensors
from murmuration.prediction.ensemble import Ensemble, MemberGroup, load_posthoc
from murmuration.runs import directory as runs
from murmuration.system.errors import Misuse


def load_given(
    path: Path,
    net: Any,
    likelihood: Likelihood | None,
    posthoc: bool,
    output: Output | None = None,
    recipe: Recipe | None = None,
) -> Ensemble:
    """Load an ensemble of networks trained elsewhere into the architectures `net`, which the caller gives again."""
    tensors, manifest = runs.load_tensors(path)
    names = manifest[runs.GIVEN]
    populations = [population_from_tensors(runs.below(tensors, str(i))) for i in range(len(names))]
    nets = list(net) if isinstance(net, list | tuple) else [net]
    counts = [population.members for population in populations]
    if len(nets) == sum(counts):  # one for each model: the first of each group
        nets = [nets[sum(counts[:i])] for i in range(len(counts))]
    if len(nets) != len(names) or None in nets:
        raise Misuse(
            f"{path} holds given models of {', '.join(names)}: give them again as net=, a list of {len(names)}"
        )
    built = [
        architecture if isinstance(architecture, nn.Module) else net_source(architecture, (), 0).build()
        for architecture in nets
    ]
    modules = [copy.deepcopy(plain_module(architecture)) for architecture in built]
    for module, population, plain in zip(modules, populations, manifest[PLAIN], strict=True):
        require_same_tensors(module, population, path)
        require_same_plain_tensors(module, {PLAIN: plain})
        select_output(module, output_again(manifest, output))
    record = manifest["likelihood"]
    return Ensemble(
        tuple(MemberGroup(*pair) for pair in zip(modules, populations, strict=True)),
        None if record is None else likelihood_from_json(record, likelihood),
        Engine(**manifest["engine"]),
        recipe_from_json(manifest["recipe"], recipe),
        {key: manifest[key] for key in (OUTPUT, "plan", "parameters", "kernels") if key in manifest},
        posthoc=load_posthoc(path) if posthoc else None,
    )


def require_same_tensors(module: nn.Module, population: Population, path: Path) -> None:
    """Refuse a network whose parameters are not those of the stored members."""
    shapes = {name: tuple(tensor.shape) for name, tensor in module.named_parameters()}
    stored = {name: tuple(tensor.shape[1:]) for name, tensor in population.own.items() if not is_auxiliary(name)}
    stored |= {name: tuple(tensor.shape) for name, tensor in population.shared.items() if not is_auxiliary(name)}
    stored |= {name: tuple(tensor.shape[1:]) for name, tensor in population.fixed.items()}
    if shapes != stored:
        differing = sorted(set(shapes.items()) ^ set(stored.items()))[0]
        raise Misuse(
            f"{path} holds members of another architecture: '{differing[0]}' differs; give the net= it was made of"
        )
