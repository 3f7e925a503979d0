"""Multilayer perceptrons, plain and residual, for any input, which is flattened, and a last layer of cosines."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from murmuration.models.nets.embeddings import Embedding, embedding
from murmuration.system.errors import Misuse, unknown

Shape = tuple[int, ...]  # of one input
Widths = tuple[int, ...]  # of layers
HIDDEN: Widths = (128, 128)
SCALES = ("standard", "ntk")
LAYERS = (nn.ReLU, nn.Softplus, nn.Tanh, nn.GELU, nn.SiLU, nn.SELU, nn.Mish)
ACTIVATIONS: dict[str, type[nn.Module]] = {layer.__name__.lower(): layer for layer in LAYERS}


def activation_named(name: str) -> nn.Module:
    """Create an activation layer by name; not in place, which functional transforms forbid."""
    if name not in ACTIVATIONS:
        raise unknown("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]()


def with_head(body: nn.Module | Sequence[nn.Module], features: int, outputs: int) -> nn.Module:
    """Build a module of two parts: `body`, a module or layers, and `head`, dense from `features` to `outputs`.

    Layers of the body are numbered, except that an embedding is called `embedding`.
    """
    if not isinstance(body, nn.Module):
        numbers = map(str, range(len(body)))
        names = ["embedding" if isinstance(layer, Embedding) else next(numbers) for layer in body]
        body = nn.Sequential(OrderedDict(zip(names, body, strict=True)))
    return nn.Sequential(OrderedDict(body=body, head=nn.Linear(features, outputs)))


class Scale(nn.Module):
    """Channels (N, C), each times a trained factor that starts at 1: the network weighs its inputs (RealMLP)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Residual(nn.Module):
    """x + dropout(W2 dropout(activation(W1 norm(x)))) on (N, C)."""

    def __init__(self, width: int, activation: str, dropout: float) -> None:
        super().__init__()
        inner = nn.Linear(width, 2 * width), activation_named(activation), nn.Dropout(dropout)
        self.layers = nn.Sequential(nn.LayerNorm(width), *inner, nn.Linear(2 * width, width), nn.Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


def mlp(
    input_shape: Shape,
    outputs: int,
    *,
    hidden: Widths = HIDDEN,
    activation: str = "relu",
    dropout: float = 0.0,
    scale: str = "standard",
    scaled_inputs: bool = False,
    **embed: Any,
) -> nn.Module:
    """Build a network of dense layers on the flattened input; dropout, if any, follows each activation.

    `embed` are keywords of an embedding of numbers (`embedding`). `scale` is "standard", layers as torch draws them, or
    "ntk" (`NTKLinear`), whose weights have variance 2 before ReLU and 1 otherwise. With `scaled_inputs`, every channel
    before the first dense layer has a trained factor.
    """
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    embedded, width = embedding(math.prod(input_shape), **embed)
    body: list[nn.Module] = [nn.Flatten(), *embedded, *([Scale(width)] if scaled_inputs else [])]
    gain = math.sqrt(2) if activation == "relu" else 1.0
    for before, after in pairwise((width, *hidden)):
        layer = nn.Linear(before, after) if scale == "standard" else NTKLinear(before, after, gain)
        body += [layer, activation_named(activation)]
        body += [nn.Dropout(dropout)] if dropout else []
    net = with_head(body, (width, *hidden)[-1], outputs)
    if scale == "ntk":
        net.head = NTKLinear((width, *hidden)[-1], outputs)
    return net


def residual_mlp(
    input_shape: Shape,
    outputs: int,
    *,
    hidden: Widths = HIDDEN,
    activation: str = "relu",
    dropout: float = 0.1,
    **embed: Any,
) -> nn.Module:
    """Build a dense layer and a residual block for each of `hidden`, which must be equal (Gorishniy et al. 2021).

    Layer norm replaces the batch norm of the paper: an example's outputs do not depend on its batch.
    """
    if not hidden or len(set(hidden)) > 1:
        raise Misuse(f"hidden={hidden} of a residual network: expected equal widths, such as (128, 128)")
    embedded, channels = embedding(math.prod(input_shape), **embed)
    width = hidden[0]
    blocks = [Residual(width, activation, dropout) for _ in hidden]
    body = [nn.Flatten(), *embedded, nn.Linear(channels, width), *blocks, nn.LayerNorm(width)]
    return with_head([*body, activation_named(activation)], width, outputs)


class NTKLinear(nn.Linear):
    """W x / sqrt(N) + b with standard normal W (N', N) times `gain` and b = 0: the parameterisation of kernel theory.

    The function is that of a dense layer, but a gradient step moves it by 1 / N as much, so that tangent kernels have a
    limit at infinite width (Jacot et al. 2018).
    """

    def __init__(self, in_features: int, out_features: int, gain: float = 1.0) -> None:
        self.gain = gain
        super().__init__(in_features, out_features)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.gain)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x / math.sqrt(self.in_features), self.weight, self.bias)


class CosineLinear(nn.Linear):
    """A dense layer without bias whose inputs and rows are divided by their lengths: outputs are in [-1, 1]."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.normalize(x, dim=-1), F.normalize(self.weight, dim=-1))


def with_cosine_head(net: nn.Module) -> nn.Module:
    """Replace the dense layer `head` of a network by one whose outputs are cosines.

    Args:
        net: Network with a part `head`; changed in place.

    Returns:
        The network.

    Raises:
        Misuse: If the network has no dense layer called `head`.

    >>> import torch, murmuration.models.nets as nets
    >>> bool((with_cosine_head(nets.build_net("mlp", (4,), 3))(torch.randn(9, 4)).abs() <= 1).all())
    True
    """
    head = getattr(net, "head", None)
    if not isinstance(head, nn.Linear):
        raise Misuse(f"{type(net).__name__} has no dense layer called head: end the net in CosineLinear instead")
    net.head = CosineLinear(head.in_features, head.out_features)
    return net
