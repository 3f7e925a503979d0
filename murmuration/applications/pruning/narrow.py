"""Copies of a network with other widths of some layers, and the networks of a compact run."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from murmuration.models.nets.source import NetSource
from murmuration.runs.manifest import Manifest

SETTINGS = ("kernel_size", "stride", "padding", "dilation", "padding_mode")  # of a convolution
Width = Sequence[int]  # input and output channels of a layer


def compact_networks(source: NetSource, manifest: Manifest) -> NetSource:
    """Return the source of a run's networks, with the widths of its members if channels were taken out."""
    return narrow_source(source, manifest.net["widths"]) if "widths" in manifest.net else source


def narrow_source(source: NetSource, widths: Mapping[str, Width]) -> NetSource:
    """Return the source with fewer channels in its networks' layers."""
    return NetSource(lambda: narrowed(source.build(), widths), {**source.record, "widths": widths})


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
