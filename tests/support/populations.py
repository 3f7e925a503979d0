"""Small populations and runs of a dynamics outside training."""

from collections.abc import Callable

import torch
from torch import Tensor

from murmuration.core.dynamics import Dynamics, WeightPath
from murmuration.core.population import Population
from murmuration.system.streams import Noise


def population(values: Tensor, shared: Tensor | None = None) -> Population:
    """M members with one own tensor `w` (M, P), and perhaps one shared tensor `s`."""
    return Population(len(values), {"w": values.clone()}, {} if shared is None else {"s": shared.clone()}, {})


def walk(dynamics: Dynamics, states: list[Population], rows: Callable[[int], Tensor] | None = None) -> WeightPath:
    """The path that a dynamics collects from these states."""
    path = WeightPath()
    for index, state in enumerate(states):
        chosen = torch.arange(state.members) if rows is None else rows(index)
        dynamics.collect(path, state, chosen)
    return path


def streams(member: int, draw: int) -> Noise:
    return Noise(0, member, draw, "draws")


def states(count: int, members: int = 2, width: int = 3, seed: int = 0) -> list[Population]:
    made = torch.randn(count, members, width, generator=torch.Generator().manual_seed(seed))
    return [population(values) for values in made]
