"""Removal of pruned channels from a network that is a plain chain of layers.

A channel whose kernel and bias are zero has the value zero. If the layers between it and the next kernel map zero to
zero, the channel and the inputs that read it can be removed, and predictions stay the same up to rounding. Softplus
maps zero to log 2 and batch normalisation to its shift, so networks with these are refused.
"""

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from murmuration.core.population import KEPT, KINDS, Named, Population
from murmuration.core.weights import Kernel, KernelTrace
from murmuration.core.weights.gaussian import CENTRE, STD_PARAM
from murmuration.core.weights.kernel_trace import repeat_channels
from murmuration.system.errors import Misuse

CUT = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
QUIET = (  # layers that do not mix channels and map zero to zero
    *(nn.Flatten, nn.Identity, nn.Upsample, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d),
)
POINTWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Softplus, nn.Sigmoid)


def compact_population(
    module: nn.Module, population: Population, trace: KernelTrace
) -> tuple[dict[str, tuple[int, int]], Population]:
    """Return the widths (inputs, outputs) of every layer of the smaller network, and its members.

    All members must have lost the same channels, since they have one architecture.
    """
    require_chain(module, trace)
    for name in (*population.own, *population.buffers):
        if name.endswith((":in", ":out")):
            raise Misuse(f"compact: members scale channels by factors or masks ({name}); leave compact out")
    widths: dict[str, tuple[int, int]] = {}
    own, shared, buffers, fixed = (dict(getattr(population, kind)) for kind in KINDS)
    previous: Tensor | None = None  # channels that the layer before keeps; None: the inputs, all of them
    for kernel in trace.kernels:
        channels = kept_channels(kernel, population)
        if previous is not None and kernel.inputs % len(previous):
            raise Misuse(f"compact: {kernel.name} does not take the channels of the layer before; leave compact out")
        into = repeat_channels(torch.ones(1, dtype=torch.bool) if previous is None else previous, kernel.inputs)
        for named, axes in ((own, 1), (shared, 0), (buffers, 1), (fixed, 1)):
            cut(named, kernel.name, [channels, into], axes)
            for bias in kernel.biases:
                cut(named, bias, [channels], axes)
        widths[kernel.name.rpartition(".")[0]] = (int(into.sum()), int(channels.sum()))
        previous = channels
    return widths, Population(population.members, own, shared, buffers, fixed)


def cut(named: Named, name: str, kept: Sequence[Tensor], axes: int) -> None:
    """Remove channels from a tensor and its auxiliary tensors, in place of `named`; `axes` leading axes are members."""
    for key in (name, name + STD_PARAM, name + CENTRE, name + KEPT):
        tensor = named.get(key)
        for axis, mask in enumerate(kept):
            if tensor is not None and tensor.shape[axes + axis] == len(mask) > 1:  # else one value for all channels
                tensor = tensor.index_select(axes + axis, mask.nonzero().flatten())
        if tensor is not None:
            named[key] = tensor


def kept_channels(kernel: Kernel, population: Population) -> Tensor:
    """Return the output channels (C,) of a kernel that are kept, the same for all members."""
    if kernel.name + KEPT not in population.buffers:
        return torch.ones(kernel.outputs, dtype=torch.bool)
    used = population.buffers[kernel.name + KEPT].flatten(2).any(2)  # (M, C)
    for bias in kernel.biases:
        used = used | population.buffers.get(bias + KEPT, torch.ones_like(used))
    if not bool((used == used[0]).all()):
        reason = f"members keep different channels of {kernel.name}, and one run has one architecture"
        raise Misuse(f"compact: {reason}; leave compact out, or prune a run of one member")
    return used[0]


@torch.no_grad()
def require_same_outputs(wide: nn.Module, small: nn.Module, x: Tensor) -> None:
    """Refuse a smaller network with other outputs on some inputs: then the wide one was no plain chain."""
    before = wide(x)
    try:
        agrees = torch.allclose(small(x), before, rtol=1e-3, atol=1e-3 * float(before.abs().max()))
    except RuntimeError:  # its layers do not fit together
        agrees = False
    if not agrees:
        raise Misuse("compact: the smaller net would predict otherwise: this is no plain chain; leave compact out")


def require_chain(module: nn.Module, trace: KernelTrace) -> None:
    """Refuse a network that is not a chain of layers, or in which a zero channel would not stay zero."""
    layers = list(layers_in_order("", module))
    cut_layers = [name for name, layer in layers if isinstance(layer, CUT)]
    if cut_layers != [name.rpartition(".")[0] for name in trace.names]:
        raise Misuse("compact: the net is not a plain chain of layers, each used once; leave compact out")
    for name, layer in layers:
        if isinstance(layer, POINTWISE) and (value := float(layer(torch.zeros(1)))):
            raise Misuse(f"compact: {type(layer).__name__} '{name}' makes {value:.3g} of 0: silent channels are heard")
        if not isinstance(layer, CUT + QUIET + POINTWISE) or getattr(layer, "groups", 1) != 1:
            raise Misuse(f"compact: it is not known what {type(layer).__name__} '{name}' makes of silent channels")


def layers_in_order(name: str, module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the layers of nested sequences in their order; anything else counts as one layer."""
    if not isinstance(module, nn.Sequential):
        return [(name, module)]
    parts = (layers_in_order(f"{name}.{key}".lstrip("."), part) for key, part in module.named_children())
    return list(chain(*parts))
