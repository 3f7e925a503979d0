"""Embedded ensembles made for tests, from texts."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from finite_width import EmbeddedMLP, draw_network
from torch import Tensor

from murmuration.core.weights.distributions import Distribution
from murmuration.studies.infinite_width import Architecture, Kernels, scales_of

# Three inputs of two numbers: x.x'/d is 1 on the diagonal, 0.6 (0, 1), -0.8 (0, 2) and 0 (1, 2).
THREE = math.sqrt(2) * torch.tensor([[1.0, 0.0], [0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64)
CRITICAL = scales_of("ntk", math.sqrt(2))
BIASED = scales_of("ntk", 1.3, 0.4)
NAMES = ("covariance_same", "covariance_other", "tangent_same", "tangent_other", "individual")


def laws(texts: str | Sequence[str], depth: int) -> tuple[Distribution, ...]:
    """One text for all layers, or one for each."""
    return tuple(map(Distribution.parse, [texts] * depth if isinstance(texts, str) else texts))


def made(u: str | Sequence[str], v: str | Sequence[str], depth: int, **rest: Any) -> Architecture:
    return Architecture(laws(u, depth), laws(v, depth), **rest)


def five(kernels: Kernels) -> list[Tensor]:
    return [getattr(kernels, name) for name in NAMES]


def network(architecture: Architecture, width: int, members: int = 3, seed: int = 0, inputs: int = 3) -> EmbeddedMLP:
    widths = [inputs] + [width] * architecture.depth
    return draw_network(architecture, widths, members, torch.Generator().manual_seed(seed))
