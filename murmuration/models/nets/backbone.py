"""Backbones: the body of a trained network as a fixed map from inputs to features."""

import hashlib
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from murmuration.data.preparation import Preparation
from murmuration.data.raw import hash_array
from murmuration.models.nets.efficientnet_lite import VARIANTS
from murmuration.models.nets.libraries import is_library_net
from murmuration.models.nets.pixel_scale import set_pixel_scale
from murmuration.models.nets.pretrained import pretrained_state
from murmuration.models.nets.table import build_net
from murmuration.system.errors import Misuse
from murmuration.system.streams import kept_generators

PASS = 16  # inputs of a forward pass: larger ones leave the cache of a core, and were slower
USUAL_SIZE = (128, 128)  # pixels, of networks with published weights: a third of the cost of 224


class Backbone(nn.Module):
    """Prepared inputs (N, ...) -> features (N, D) float32 of the body of a network in evaluation mode.

    Images of another size are resized until they cover `size` and cropped around the centre, as image files are; grey
    ones are repeated over the channels of the network.
    """

    def __init__(self, body: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.body = body.to(memory_format=torch.channels_last).requires_grad_(False)  # type: ignore[call-overload]
        self.shape = shape  # of one input of the body
        super().train(False)

    def train(self, mode: bool = True) -> "Backbone":
        """Stay in evaluation mode, whatever the argument."""
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute features (N, D) of prepared inputs (N, ...)."""
        if len(self.shape) == 3:
            x = cover(x[:, :3] if x.shape[1] > self.shape[0] == 3 else x, (self.shape[1], self.shape[2]))
            x = x.expand(-1, self.shape[0], -1, -1).contiguous(memory_format=torch.channels_last)
        features: Tensor = self.body(x).flatten(1).float()
        return features


def cover(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Scale images (N, C, H, W) until they cover the size, and crop them around the centre to (N, C, *size).

    >>> cover(torch.zeros(1, 3, 20, 10), (8, 8)).shape
    torch.Size([1, 3, 8, 8])
    """
    if tuple(x.shape[2:]) == size:
        return x
    factor = max(size[0] / x.shape[2], size[1] / x.shape[3])
    scaled = max(size[0], round(x.shape[2] * factor)), max(size[1], round(x.shape[3] * factor))
    if tuple(x.shape[2:]) != scaled:
        x = F.interpolate(x, scaled, mode="bilinear", antialias=True)
    row, column = (scaled[0] - size[0]) // 2, (scaled[1] - size[1]) // 2
    return x[:, :, row : row + size[0], column : column + size[1]]


@torch.no_grad()
def features_of(backbone: nn.Module, x: Tensor) -> Tensor:
    """Compute features (N, D) of prepared inputs, a few at a time."""
    return torch.cat([backbone(part) for part in x.split(PASS)])


def usual_size(net: str) -> tuple[int, int] | None:
    """Return the default size (H, W) of images for a network; None for that of the data."""
    return USUAL_SIZE if net in VARIANTS else None


def build_backbone(
    net: str, shape: tuple[int, ...], inputs: Preparation, weights: bool | str | Path | None = None
) -> Backbone:
    """Build the backbone of a network by name.

    Args:
        net: Name of the network.
        shape: Shape of one input of the network.
        inputs: Preparation of the inputs.
        weights: True for the published weights, or a file of them; random by default.

    Returns:
        The backbone, in evaluation mode.
    """
    with kept_generators():
        network = build_net(net, shape, 1)
    if weights is not None:
        network.load_state_dict(pretrained_state(net, network, weights, inputs))
    set_pixel_scale(network, inputs)
    return Backbone(network.get_submodule("body"), shape)


def trained_backbone(
    net: Any, weights: bool | str | Path, inputs: Preparation, shape: tuple[int, ...], size: tuple[int, int] | None
) -> tuple[Backbone, dict[str, Any]]:
    """Build the backbone of a network by name with trained weights, and its record for run.json.

    `shape` is that of one input of the data, prepared by `inputs`.
    """
    if not isinstance(net, str):
        raise Misuse(f"features of a {type(net).__name__}: expected the name of a network; see `murmur list nets`")
    if len(shape) == 3:  # in colour if the network needs it, resized
        coloured = net in VARIANTS or is_library_net(net) or shape[0] not in (1, 3)
        shape = (3 if coloured else shape[0], *(size or shape[1:]))
    backbone = build_backbone(net, shape, inputs, weights)
    digest = hashlib.sha256(str(tuple(shape)).encode())  # of the tensors and of the shape of inputs
    for name, tensor in backbone.state_dict().items():
        digest.update(name.encode())
        hash_array(digest, tensor.numpy())
    source = "published" if weights is True else Path(str(weights)).name
    return backbone, {"net": net, "weights": source, "shape": list(shape), "sha256": digest.hexdigest()}
