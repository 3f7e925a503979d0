"""Generator and discriminator of a DCGAN (Radford et al. 2016).

For images of 64 pixels the generator has five blocks with maps of sides 4, 8, 16, 32, 64; the discriminator mirrors it.
Smaller images have one block less for each halving of the side.
"""

from itertools import pairwise

from torch import nn

from murmuration.system.errors import Misuse

SMALLEST = 4  # side in pixels of the generator's first map and of the discriminator's last
INIT_STD = 0.02
SLOPE = 0.2  # of the discriminator's leaky ReLU


def generator(channels: int, size: int, *, latent: int = 100, width: int = 64) -> nn.Module:
    """Return latents (B, latent, 1, 1) -> images (B, channels, size, size) with values from -1 to 1."""
    widths = widths_for(size, width)[::-1]
    layers: list[nn.Module] = []
    for index, (before, after) in enumerate(pairwise((latent, *widths))):
        stride, padding = (2, 1) if index else (1, 0)
        block = nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False)
        layers += [block, nn.BatchNorm2d(after), nn.ReLU()]
    layers += [nn.ConvTranspose2d(widths[-1], channels, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers).apply(small_normal)


def discriminator(channels: int, size: int, *, width: int = 64) -> nn.Module:
    """Return images (B, channels, size, size) -> logits (B, 1, 1, 1) of being real.

    It has no batch-norm, so that an output depends on one image only, and the scale of its weights matters to a prior.
    """
    widths = widths_for(size, width)
    layers: list[nn.Module] = []
    for before, after in pairwise((channels, *widths)):
        layers += [nn.Conv2d(before, after, 4, 2, 1), nn.LeakyReLU(SLOPE)]
    return nn.Sequential(*layers, nn.Conv2d(widths[-1], 1, 4)).apply(small_normal)


def widths_for(size: int, width: int) -> list[int]:
    """Return channels after each halving of the side of an image, down to 4 pixels.

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
    """Initialise kernels from N(0, 0.02^2), batch-norm scales from N(1, 0.02^2), and biases and shifts with zeros."""
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.BatchNorm2d):
        nn.init.normal_(layer.weight, 1.0 if isinstance(layer, nn.BatchNorm2d) else 0.0, INIT_STD)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
