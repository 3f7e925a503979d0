"""The scale of pixels that a network's weights were trained on, whatever the preparation of the data.

Published weights belong to one scale of pixels: EfficientNet-Lite takes (byte - 127) / 128. Data is prepared by its own
statistics, or to 0..1, or not at all. The first layer of such a network converts one scale to the other; its factors
are computed from the preparation of the data and stored with the weights.
"""

import torch
from torch import Tensor, nn

from murmuration.data.preparation import ImagePreparation, Preparation

WHITE = 255.0


class PixelScale(nn.Module):
    """Prepared images (N, C, H, W) -> (byte - mean) / std: x * scale + shift for each channel.

    The first layer of a network with published weights. It is the identity until `set_pixel_scale`, which `mm.fit`
    calls for the networks that it builds.
    """

    scale: Tensor  # (C, 1, 1)
    shift: Tensor  # (C, 1, 1)

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.mean, self.std = mean, std  # (C,) each, of pixels in 0..255
        self.register_buffer("scale", torch.ones(len(mean), 1, 1))
        self.register_buffer("shift", torch.zeros(len(mean), 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift


def set_pixel_scale(network: nn.Module, preparation: Preparation | None) -> None:
    """Set the pixel-scale layers of a network for images of this preparation; inputs of other kinds are not scaled.

    A prepared pixel is (raw - mean) / std, and the byte of a raw pixel is raw * 255 / peak.
    """
    if not isinstance(preparation, ImagePreparation):
        return
    to_bytes = WHITE / preparation.peak
    mean, std = (torch.tensor(statistic).view(-1, 1, 1) * to_bytes for statistic in (preparation.mean, preparation.std))
    for layer in network.modules():
        if isinstance(layer, PixelScale):
            own_mean, own_std = (torch.tensor(statistic).view(-1, 1, 1) for statistic in (layer.mean, layer.std))
            layer.scale.copy_(std / own_std)
            layer.shift.copy_((mean - own_mean) / own_std)
