"""The table of networks by name, and `build_net`."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

from torch import nn

from murmuration.models.nets.convnets import alexnet, lenet5, plain_cnn, three_conv_three_fc
from murmuration.models.nets.dense import Shape, mlp, residual_mlp
from murmuration.models.nets.efficientnet_lite import efficientnet_lite
from murmuration.models.nets.embeddings import MOST_ROWS, Edges, check_embedding, column_edges, embedding
from murmuration.models.nets.libraries import is_library_net, library_net
from murmuration.models.nets.resnets import preact_resnet18, resnet18, resnet20, resnet50
from murmuration.system.errors import Misuse, unknown
from murmuration.system.plugins import plugins

linear = partial(mlp, hidden=())
small_cnn = partial(plain_cnn, channels=(16, 32, 32))
medium_cnn = partial(plain_cnn, channels=(64, 128, 256, 256))
real_mlp = partial(mlp, hidden=(256, 256, 256), activation="mish", dropout=0.15, scaled_inputs=True)
MOST_LAYERS = 1000  # of one width, in the option `hidden`
DENSE = ("hidden", "activation", "dropout", "embed", "bins", "frequencies", "sigma", "size")  # options
lenet5_half = partial(lenet5, widths=(3, 8, 60, 42))
alexnet_half = partial(alexnet, widths=(32, 96, 192, 128, 64))


@dataclass(frozen=True)
class NetEntry:
    """One network: its factory, the options it takes and a description."""

    factory: Callable[..., nn.Module]  # (input_shape, outputs, and the options below) -> module
    options: tuple[str, ...]  # keywords of the factory that `build_net` passes on
    description: str
    tables: bool = False  # whether it takes inputs that are not images
    table_settings: bool = False  # whether it is trained with settings by the size of the table (`table_defaults`)


LITE = {
    "efficientnet-lite0": "EfficientNet-Lite0, colour; ImageNet weights; 3.4 million and the head",
    "efficientnet-lite1": "EfficientNet-Lite1, deeper; ImageNet weights; 4.1 million and the head",
    "efficientnet-lite2": "EfficientNet-Lite2, deeper and wider; ImageNet weights; 4.8 million and the head",
}
NETS: dict[str, NetEntry] = {
    "mlp": NetEntry(mlp, (*DENSE, "scale"), "dense 128, 128; any input", tables=True, table_settings=True),
    "real-mlp": NetEntry(real_mlp, DENSE, "inputs scaled, dense 256 x 3, mish, dropout 0.15 (RealMLP)", True, True),
    "residual-mlp": NetEntry(residual_mlp, DENSE, "dense 128, 2 residual blocks, layer norm; any input", True, True),
    "linear": NetEntry(linear, (), "one dense layer; any input, such as features", tables=True),
    "small-cnn": NetEntry(small_cnn, ("dropout",), "3 convs, 16-32-32; 19 thousand parameters"),
    "medium-cnn": NetEntry(medium_cnn, ("dropout",), "4 convs, 64-128-256-256; 971 thousand"),
    "lenet5": NetEntry(lenet5, ("activation",), "LeNet-5: 2 convs, 3 dense; 62 thousand"),
    "lenet5-half": NetEntry(lenet5_half, ("activation",), "LeNet-5 of half width; 16 thousand"),
    "alexnet": NetEntry(alexnet, ("activation",), "AlexNet for 32 pixels: 5 convs, 1 dense; 2.2 million"),
    "alexnet-half": NetEntry(alexnet_half, ("activation",), "AlexNet of half width; 550 thousand"),
    "three-conv-three-fc": NetEntry(three_conv_three_fc, ("activation",), "3 convs, 3 dense; 1.8 million"),
    "resnet20": NetEntry(resnet20, (), "ResNet-20 v1 of the Keras example; 273 thousand"),
    "resnet18": NetEntry(resnet18, (), "ResNet-18; 11.2 million"),
    "preact-resnet18": NetEntry(preact_resnet18, (), "ResNet-18 of pre-activated blocks; 11.2 million"),
    "resnet50": NetEntry(resnet50, (), "ResNet-50 v2, pre-activated bottlenecks; 23.5 million and the head"),
    **{name: NetEntry(partial(efficientnet_lite, variant=name), ("dropout",), about) for name, about in LITE.items()},
}


def nets() -> dict[str, NetEntry]:
    """Return the networks of this table and those that plug-ins register, by name."""
    return {**NETS, **plugins("murmuration.nets", NetEntry)}


def build_net(name: str, input_shape: Shape, outputs: int, *, edges: Edges | None = None, **options: Any) -> nn.Module:
    """Build a network by name.

    Weights are drawn from torch's global generator: to fix them, seed it around the call (`torch.random.fork_rng`,
    `torch.manual_seed`).

    Args:
        name: One of `murmur list nets`, with options after a colon (`mlp:hidden=256x3,dropout=0.1`), or a network of
            another library (`timm:NAME`, `hf:FOLDER`, `hf:TYPE:key=value`; see `nets/libraries.py`).
        input_shape: Shape of one input, without the batch axis.
        outputs: Number of outputs.
        edges: Bins for an embedding of numbers: `column_edges` of the training rows.
        **options: `hidden` (a tuple of widths), `activation`, `dropout` and options of the embedding; None keeps the
            default.

    Returns:
        A module with the parts `body` and `head`.

    Raises:
        Misuse: For an unknown name or option, or a shape that the network cannot take.

    >>> sum(p.numel() for p in build_net("small-cnn", (3, 32, 32), 10).parameters())
    19466
    """
    name, named_options = parse_net(name)
    options = named_options | {key: value for key, value in options.items() if value is not None}
    if is_library_net(name):
        if options:
            raise Misuse(f"{name} has no option '{next(iter(options))}': leave it out")
        return library_net(name, tuple(input_shape), outputs)
    check_shape(name, tuple(input_shape), outputs)
    check_options(name, options)
    placed = {"edges": edges} if "embed" in nets()[name].options else {}
    return nets()[name].factory(tuple(input_shape), outputs, **options, **placed)


def is_net(text: str) -> bool:
    """Return whether a string names a network of this or another library, with or without options.

    Args:
        text: For example `mlp:hidden=64` or `timm:resnet18`.

    Returns:
        True if `build_net` would look it up.

    >>> is_net("mlp:hidden=64"), is_net("timm:resnet18"), is_net("mypackage.nets:factory")
    (True, True, False)
    """
    return text.partition(":")[0] in nets() or is_library_net(text)


def parse_net(text: str) -> tuple[str, dict[str, Any]]:
    """Split a string into the name of a network and its options; for another library, all of it is the name.

    >>> parse_net("mlp:hidden=256x3,dropout=0.1")
    ('mlp', {'hidden': (256, 256, 256), 'dropout': 0.1})
    """
    if is_library_net(text):
        return text, {}
    name, _, options = text.partition(":")
    if name not in nets():
        raise unknown("net", name, nets(), see="murmur list nets")
    pairs = [part.partition("=") for part in options.split(",")] if options else []
    return name, {key.strip(): read_option(text, key.strip(), value.strip()) for key, _, value in pairs}


def read_option(text: str, name: str, value: str) -> Any:
    """Parse the value of an option of a network."""
    if name not in {option for net in nets().values() for option in net.options}:
        raise unknown(f"option of the net '{text}' (name=value)", name, nets()[text.partition(":")[0]].options)
    try:
        return OPTION_TYPES.get(name, int)(value)
    except Misuse:
        raise
    except ValueError:
        example = "write for example hidden=256x3 (or 256-128), dropout=0.1, bins=16"
        raise Misuse(f"net '{text}': {name}={value} is not understood; {example}") from None


def widths(text: str) -> tuple[int, ...]:
    """Parse widths of layers: `128-64`, or `256x3` for three of 256.

    >>> widths("256x2-64")
    (256, 256, 64)
    """
    layers: list[int] = []
    for part in text.split("-"):
        width, _, count = part.partition("x")
        if int(count or 1) > MOST_LAYERS:
            raise Misuse(f"hidden={text}: expected at most {MOST_LAYERS} layers of a width")
        layers += [int(width)] * int(count or 1)
    return tuple(layers)


WORDS = ("activation", "embed", "scale")
OPTION_TYPES: dict[str, Any] = {"hidden": widths, "dropout": float, "sigma": float, **dict.fromkeys(WORDS, str)}


def edges_for(net: Any, x: Any) -> tuple[tuple[float, ...], ...] | None:
    """Compute the bins that the embedding of a network by name needs.

    Args:
        net: Name of a network with its options, or any other network.
        x: Prepared training rows (N, ...).

    Returns:
        Edges of each column (`column_edges`), or None if the network has no embedding of numbers.

    Raises:
        Misuse: For more bins than rows.
    """
    name, options = parse_net(net) if isinstance(net, str) and is_net(net) else ("", {})
    if options.get("embed", "none") == "none":
        return None
    check_options(name, options)
    bins = options.get("bins", signature(embedding).parameters["bins"].default)
    if "bins" in options and bins > len(x):
        raise Misuse(f"bins={bins} for {len(x):,} training rows: expected at most one for each row, better 48 or fewer")
    return column_edges(x[:MOST_ROWS], bins)


def check_shape(name: str, input_shape: Shape, outputs: int) -> None:
    """Refuse an input shape or a number of outputs that the network cannot have."""
    if not input_shape or math.prod(input_shape) < 1 or outputs < 1:
        raise Misuse(f"input shape {input_shape} and {outputs} outputs: expected sizes of at least 1")
    if len(input_shape) != 3 and not nets()[name].tables:
        flat = ", ".join(key for key, net in nets().items() if net.tables)
        hint = f"write (1, {input_shape[0]}, {input_shape[1]})" if len(input_shape) == 2 else f"use {flat}"
        raise Misuse(f"{name} takes images (channels, height, width), got {input_shape}: {hint}")


def check_options(name: str, options: dict[str, Any]) -> None:
    """Refuse options that the network does not have, and values out of range."""
    for option, value in options.items():
        if option not in nets()[name].options:
            having = ", ".join(key for key, net in nets().items() if option in net.options)
            raise Misuse(f"{name} has no option '{option}' (got {value!r}): leave it out, or use {having}")
    check_embedding(options)
    if any(width < 1 for width in options.get("hidden", ())):
        raise Misuse(f"hidden={options['hidden']}: expected widths of at least 1")
    dropout = options.get("dropout", 0.0)
    if not 0 <= dropout < 1:
        raise Misuse(f"dropout={dropout}: expected a probability in [0, 1), for example 0.1")
