"""The multilayer perceptron, for tables and for any other input, which is flattened."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from murmuration.errors import unknown

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


def activation_named(name: str) -> nn.Module:
    """A new activation layer by name; not in place, which functional transforms forbid."""
    if name not in ACTIVATIONS:
        raise unknown("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]()


def with_head(body: Sequence[nn.Module], features: int, outputs: int) -> nn.Module:
    """A module of two parts: `body`, the given layers, and `head`, a dense layer from `features` to `outputs`."""
    network = nn.Sequential()
    network.add_module("body", nn.Sequential(*body))
    network.add_module("head", nn.Linear(features, outputs))
    return network


def mlp(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    hidden: tuple[int, ...] = (128, 128),
    activation: str = "relu",
    dropout: float = 0.0,
) -> nn.Module:
    """A network of dense layers on the flattened input; dropout, if any, follows each activation."""
    widths = (math.prod(input_shape), *hidden)
    body: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        body += [nn.Linear(before, after), activation_named(activation)]
        body += [nn.Dropout(dropout)] if dropout else []
    return with_head(body, widths[-1], outputs)
