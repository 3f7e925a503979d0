"""Copies of a network with other widths of some layers (pruned runs)."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

SETTINGS = ("kernel_size", "stride", "padding", "dilation", "padding_mode")  # of a convolution
Width = Sequence[int]  # input and output channels of a layer


def narrowed(module: nn.Module, widths: Mapping[str, Width]) -> nn.Module:
    """Copy a network and replace the named layers by new ones of these widths.

    >>> narrowed(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), {"0": (4, 3), "2": (3, 2)})[2]
    Linear(in_features=3, out_features=2, bias=True)
    """
    changed = copy.deepcopy(module)
    for name, (inputs, outputs) in widths.items():
        above, _, own = name.rpartition(".")
        changed.get_submodule(above).register_module(own, layer_like(changed.get_submodule(name), inputs, outputs))
    return changed


def layer_like(layer: nn.Module, inputs: int, outputs: int) -> nn.Module:
    """Create a linear layer or convolution (of one group) with other numbers of channels and the same settings."""
    if isinstance(layer, nn.Linear):
        return nn.Linear(inputs, outputs, bias=layer.bias is not None)
    assert isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    settings: Any = {name: getattr(layer, name) for name in SETTINGS}
    return type(layer)(inputs, outputs, bias=layer.bias is not None, **settings)
