"""mm.parameter_roles: what a recipe would make of every parameter of a network, without training."""

from typing import Any

import torch
from torch import nn

from murmuration.core.recipe import Recipe, make_recipe
from murmuration.core.roles import ParameterRoles, roles_before_training
from murmuration.models.nets.adapt import plain_module
from murmuration.models.nets.source import Net, check_net
from murmuration.system.errors import Misuse
from murmuration.training.resolve import resolve


def parameter_roles(net: Net, recipe: str | Recipe, data: Any) -> ParameterRoles:
    """The role of every parameter of a network under a recipe, as a table, without training.

    `data` is what `fit` takes, or a tensor of inputs (N, ...) as the network takes them, for an `nn.Module` or a
    function that builds one. A recipe that would refuse the network says so in the last line.

    >>> roles = parameter_roles(nn.Linear(4, 3), "bayes", torch.zeros(2, 4))
    >>> roles["weight"].gaussian
    True
    """
    check_net(net)
    parsed_recipe = make_recipe(recipe)
    if isinstance(data, torch.Tensor):
        if isinstance(net, str):
            raise Misuse(f"net='{net}' with inputs alone, which do not say how many outputs it has: give data with y")
        return roles_before_training(plain_module(net if isinstance(net, nn.Module) else net()), parsed_recipe, data)
    spec, _ = resolve(net, data, parsed_recipe).spec()
    return roles_before_training(spec.member(0), parsed_recipe, spec.data.train.prepared[: spec.plan.batch_size])
