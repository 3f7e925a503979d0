"""The two networks of a DCGAN (Radford et al. 2016): one makes pictures of noise, the other tells them from real ones.

For pictures of 64 pixels the generator has five blocks and its maps have sides 4, 8, 16, 32, 64; the discriminator
mirrors it. Each halving of the side takes one block away.
"""

from itertools import pairwise

from torch import nn

from murmuration.errors import Misuse

SMALLEST = 4  # pixels: the side of the first map made, and of the last one judged
START = 0.02  # standard deviation of first weights
SLOPE = 0.2  # of the discriminator's leaky rectifiers


def generator(channels: int, size: int, *, latent: int = 100, width: int = 64) -> nn.Module:
    """Latent numbers (B, latent, 1, 1) -> pictures (B, channels, size, size) with values from -1 to 1."""
    widths = widths_for(size, width)[::-1]
    layers: list[nn.Module] = []
    for index, (before, after) in enumerate(pairwise((latent, *widths))):
        stride, padding = (2, 1) if index else (1, 0)
        block = nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False)
        layers += [block, nn.BatchNorm2d(after), nn.ReLU()]
    layers += [nn.ConvTranspose2d(widths[-1], channels, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers).apply(small_normal)


def discriminator(channels: int, size: int, *, width: int = 64) -> nn.Module:
    """Pictures (B, channels, size, size) -> logits (B, 1, 1, 1) of their being real.

    It has no batch-norm: what it says of a picture depends on no other, and its weights have a scale that a prior can
    speak of.
    """
    widths = widths_for(size, width)
    layers: list[nn.Module] = []
    for before, after in pairwise((channels, *widths)):
        layers += [nn.Conv2d(before, after, 4, 2, 1), nn.LeakyReLU(SLOPE)]
    return nn.Sequential(*layers, nn.Conv2d(widths[-1], 1, 4)).apply(small_normal)


def widths_for(size: int, width: int) -> list[int]:
    """Channels behind each halving of a picture's side down to 4 pixels.

    >>> widths_for(64, 64), widths_for(32, 64)
    ([64, 128, 256, 512], [64, 128, 256])
    """
    halvings = (size // SMALLEST).bit_length() - 1
    if halvings < 1 or size != SMALLEST << halvings:
        raise Misuse(f"size={size}: need 8, 16, 32, 64 or another power of two")
    if width < 1:
        raise Misuse(f"width={width}: need at least 1 channel")
    return [width << index for index in range(halvings)]


def small_normal(layer: nn.Module) -> None:
    """Fill kernels with N(0, 0.02^2), the scales of batch-norm with N(1, 0.02^2), and all that is added with zeros."""
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.BatchNorm2d):
        nn.init.normal_(layer.weight, 1.0 if isinstance(layer, nn.BatchNorm2d) else 0.0, START)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
