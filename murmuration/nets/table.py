"""The table of networks by name, and `build_net`."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from murmuration.errors import Misuse, unknown
from murmuration.nets.convnets import alexnet, lenet5, plain_cnn, three_conv_three_fc
from murmuration.nets.dense import mlp
from murmuration.nets.efficientnet_lite import efficientnet_lite
from murmuration.nets.libraries import is_library_net, library_net
from murmuration.nets.resnets import preact_resnet18, resnet18, resnet20, resnet50
from murmuration.nets.subpixel import subpixel

linear = partial(mlp, hidden=())
small_cnn = partial(plain_cnn, channels=(16, 32, 32))
medium_cnn = partial(plain_cnn, channels=(64, 128, 256, 256))
subpixel_plain = partial(subpixel, residual=False)
alexnet_half = partial(alexnet, widths=(32, 96, 192, 128, 64))


@dataclass(frozen=True)
class NetEntry:
    """One network: its factory, the options it takes and a description."""

    factory: Callable[..., nn.Module]  # (input_shape, outputs, and the options below) -> module
    options: tuple[str, ...]  # keywords of the factory that `build_net` passes on
    description: str
    tables: bool = False  # whether it takes inputs that are not images


NETS: dict[str, NetEntry] = {
    "mlp": NetEntry(mlp, ("hidden", "activation", "dropout"), "dense 128, 128; any input", tables=True),
    "linear": NetEntry(linear, (), "one dense layer; any input, such as features", tables=True),
    "small-cnn": NetEntry(small_cnn, ("dropout",), "3 convs, 16-32-32; 19 thousand parameters"),
    "medium-cnn": NetEntry(medium_cnn, ("dropout",), "4 convs, 64-128-256-256; 971 thousand"),
    "lenet5": NetEntry(lenet5, ("activation",), "LeNet-5: 2 convs, 3 dense; 62 thousand"),
    "alexnet": NetEntry(alexnet, ("activation",), "AlexNet for 32 pixels: 5 convs, 1 dense; 2.2 million"),
    "alexnet-half": NetEntry(alexnet_half, ("activation",), "AlexNet of half width; 550 thousand"),
    "three-conv-three-fc": NetEntry(three_conv_three_fc, ("activation",), "3 convs, 3 dense; 1.8 million"),
    "resnet20": NetEntry(resnet20, (), "ResNet-20 v1 of the Keras example; 273 thousand"),
    "resnet18": NetEntry(resnet18, (), "ResNet-18; 11.2 million"),
    "preact-resnet18": NetEntry(preact_resnet18, (), "ResNet-18 of pre-activated blocks; 11.2 million"),
    "resnet50": NetEntry(resnet50, (), "ResNet-50 v2, pre-activated bottlenecks; 23.5 million and the head"),
    **{
        name: NetEntry(partial(efficientnet_lite, variant=name), ("dropout",), about)
        for name, about in {
            "efficientnet-lite0": "EfficientNet-Lite0, colour; ImageNet weights; 3.4 million and the head",
            "efficientnet-lite1": "EfficientNet-Lite1, deeper; ImageNet weights; 4.1 million and the head",
            "efficientnet-lite2": "EfficientNet-Lite2, deeper and wider; ImageNet weights; 4.8 million and the head",
        }.items()
    },
    "subpixel": NetEntry(subpixel, (), "image to larger image: 4 convs added to bicubic; 60 thousand"),
    "subpixel-plain": NetEntry(subpixel_plain, (), "the same, without bicubic"),
}


def build_net(
    name: str,
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    hidden: tuple[int, ...] | None = None,
    activation: str | None = None,
    dropout: float | None = None,
) -> nn.Module:
    """A network by name, for inputs of a shape without the batch axis and a number of outputs.

    `timm:NAME`, `hf:FOLDER` and `hf:TYPE:key=value` are networks of other libraries; see `nets/libraries.py`.

    Options that are None keep the network's defaults. Weights are drawn from torch's global generator: to fix them,
    seed it around the call (`torch.random.fork_rng`, `torch.manual_seed`).

    >>> sum(p.numel() for p in build_net("small-cnn", (3, 32, 32), 10).parameters())
    19466
    """
    if name not in NETS and not is_library_net(name):
        raise unknown("net", name, NETS)
    given = {"hidden": hidden, "activation": activation, "dropout": dropout}
    options = {key: value for key, value in given.items() if value is not None}
    if is_library_net(name):
        if options:
            raise Misuse(f"{name} has no option '{next(iter(options))}': leave it out")
        return library_net(name, tuple(input_shape), outputs)
    check_shape(name, tuple(input_shape), outputs)
    check_options(name, options)
    return NETS[name].factory(tuple(input_shape), outputs, **options)


def check_shape(name: str, input_shape: tuple[int, ...], outputs: int) -> None:
    """Refuse an input shape or a number of outputs that the network cannot have."""
    if not input_shape or math.prod(input_shape) < 1 or outputs < 1:
        raise Misuse(f"input shape {input_shape} and {outputs} outputs: expected sizes of at least 1")
    if len(input_shape) != 3 and not NETS[name].tables:
        flat = ", ".join(key for key, net in NETS.items() if net.tables)
        hint = f"write (1, {input_shape[0]}, {input_shape[1]})" if len(input_shape) == 2 else f"use {flat}"
        raise Misuse(f"{name} takes images (channels, height, width), got {input_shape}: {hint}")


def check_options(name: str, options: dict[str, Any]) -> None:
    """Refuse options that the network does not have, and values out of range."""
    for option, value in options.items():
        if option not in NETS[name].options:
            having = ", ".join(key for key, net in NETS.items() if option in net.options)
            raise Misuse(f"{name} has no option '{option}' (got {value!r}): leave it out, or use {having}")
    dropout = options.get("dropout", 0.0)
    if not 0 <= dropout < 1:
        raise Misuse(f"dropout={dropout}: expected a probability in [0, 1), for example 0.1")
