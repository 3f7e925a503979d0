"""Loading ensembles of networks that were trained elsewhere, into architectures that the caller gives again."""

import copy
from pathlib import Path
from typing import Any

from torch import nn

import murmuration.likelihoods as likelihoods
from murmuration.core.engines import Engine
from murmuration.core.population import Population, is_auxiliary, population_from_tensors
from murmuration.core.recipe import Recipe, recipe_from_json
from murmuration.likelihoods import Likelihood
from murmuration.models.nets.adapt import Output, plain_module, select_output
from murmuration.models.nets.inputs import OUTPUT, output_again
from murmuration.models.nets.source import net_source
from murmuration.models.nets.validation import PLAIN, require_same_plain_tensors
from murmuration.prediction.ensemble import Ensemble, MemberGroup, load_posthoc
from murmuration.runs import directory as runs
from murmuration.runs.manifest import Manifest
from murmuration.system.errors import Misuse


def load_given(
    path: Path, net: Any, likelihood: Likelihood | None, posthoc: bool, output: Output | None, recipe: Recipe | None
) -> Ensemble:
    """Load an ensemble of networks trained elsewhere into the architectures `net`, which the caller gives again."""
    tensors, manifest = runs.load_tensors(path)
    names = manifest.given
    populations = [population_from_tensors(runs.below(tensors, str(i))) for i in range(len(names))]
    nets, counts = list(net) if isinstance(net, list | tuple) else [net], [p.members for p in populations]
    if len(nets) == sum(counts):  # one for each model: the first of each group
        nets = [nets[sum(counts[:i])] for i in range(len(counts))]
    if len(nets) != len(names) or None in nets:
        needed = f"a list of {len(names)}, one for each architecture" if len(names) > 1 else f"such as net={names[0]}"
        raise Misuse(f"{path} holds given models of {', '.join(names)}: give them again as net=, {needed}")
    built = [net if isinstance(net, nn.Module) else net_source(net, (), 0).structure() for net in nets]
    modules = [copy.deepcopy(plain_module(architecture)) for architecture in built]
    for module, population, plain in zip(modules, populations, manifest.plain, strict=True):
        require_same_tensors(module, population, path)
        require_same_plain_tensors(module, {PLAIN: plain})
        select_output(module, output_again({OUTPUT: manifest.output}, output))
    record, plan, roles = manifest.likelihood, manifest.plan, manifest.parameters
    stored = {"net": manifest.net, "input_shape": manifest.input_shape, "output": manifest.output}
    return Ensemble(
        tuple(map(MemberGroup, modules, populations)),
        likelihoods.likelihood_from_json(record, likelihood) if record else None,
        Engine(**manifest.engine),
        recipe_from_json(manifest.recipe, recipe),
        Manifest(plan=plan, parameters=roles, kernels=manifest.kernels, **stored),
        posthoc=load_posthoc(path) if posthoc else None,
    )


def require_same_tensors(module: nn.Module, population: Population, path: Path) -> None:
    """Refuse a network whose parameters are not those of the stored members."""
    shapes = {name: tuple(tensor.shape) for name, tensor in module.named_parameters()}
    stored = {name: tuple(tensor.shape[1:]) for name, tensor in population.own.items() if not is_auxiliary(name)}
    stored |= {name: tuple(tensor.shape) for name, tensor in population.shared.items() if not is_auxiliary(name)}
    stored |= {name: tuple(tensor.shape[1:]) for name, tensor in population.fixed.items()}
    if shapes != stored:
        name = min(set(shapes.items()) ^ set(stored.items()))[0]
        raise Misuse(f"{path} holds members of another architecture: '{name}' differs; give the net= it was made of")
