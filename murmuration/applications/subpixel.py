"""Sub-pixel networks for super-resolution: convolutions on the small image, whose channels become pixels at the end."""

import math
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from murmuration.models.nets import NetEntry
from murmuration.system.errors import Misuse

SCALES = (2, 3, 4)
AROUND = 2  # radius, in pixels, of the local mean
REACH = AROUND + 2 + 1 + 1 + 1  # radius of the receptive field in pixels of the small image


class Subpixel(nn.Module):
    """Images (N, 1, H, W) -> (N, r^2 H W), the pixels of images (r H, r W) row by row.

    The sub-pixel network of Shi et al. (2016). Pixel (r h + i, r w + j) is channel r i + j at (h, w). With `residual`,
    the outputs are added to a bicubic enlargement and the inputs lose their local mean: only details are learned.
    """

    def __init__(self, scale: int, residual: bool = True) -> None:
        super().__init__()
        self.scale, self.residual = scale, residual
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 64, 5, padding=2), nn.ReLU()),
            *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(64, 32, 3, padding=1), nn.ReLU()),
        )
        self.head = nn.Conv2d(32, scale**2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        outputs = F.pixel_shuffle(self.head(self.body(details(x) if self.residual else x)), self.scale)
        return (outputs + enlarged(x, self.scale) if self.residual else outputs).flatten(1)


def details(x: Tensor) -> Tensor:
    """Subtract the local mean from images (N, C, H, W): 0 in regions of one brightness."""
    return x - F.avg_pool2d(x, 2 * AROUND + 1, stride=1, padding=AROUND, count_include_pad=False)


def enlarged(x: Tensor, scale: int) -> Tensor:
    """Enlarge images to (N, C, r H, r W) by bicubic interpolation (Keys 1981, a = -0.5), as in PIL and MATLAB."""
    return F.interpolate(x, scale_factor=float(scale), mode="bicubic", antialias=True)


def subpixel(input_shape: tuple[int, ...], outputs: int, *, residual: bool = True) -> nn.Module:
    """Build the sub-pixel network whose scale maps the input shape to `outputs` pixels.

    >>> sum(p.numel() for p in subpixel((1, 85, 85), 255 * 255).parameters())
    59657
    """
    channels, height, width = input_shape
    scale = math.isqrt(outputs // (height * width))
    if channels != 1 or scale not in SCALES or scale**2 * height * width != outputs:
        sizes = "{}, {} or {} pixels".format(*(scale**2 * height * width for scale in SCALES))
        got = f"got {input_shape} and {outputs} outputs"
        raise Misuse(f"the sub-pixel net turns (1, {height}, {width}) into {sizes}, {got}")
    return Subpixel(scale, residual)


SUBPIXEL = NetEntry(subpixel, (), "image to larger image: 4 convs added to bicubic; 60 thousand")
SUBPIXEL_PLAIN = NetEntry(partial(subpixel, residual=False), (), "the same, without bicubic")
