"""Augmentation: random changes of prepared images (N, C, H, W) that keep their labels."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.errors import Misuse, unknown


def check_images(x: Tensor) -> None:
    """Refuse inputs that are not images (N, C, H, W)."""
    if x.ndim != 4:
        raise Misuse(f"augmentation of inputs of shape {tuple(x.shape)}: expected images (N, C, H, W)")


def pad(x: Tensor, padding: int, fill: Tensor | None = None, reflect: bool = False) -> Tensor:
    """Images (N, C, H + 2p, W + 2p) with a border that reflects them, or of the constant `fill` (C,) or 0."""
    if reflect and padding >= min(x.shape[2:]):
        raise Misuse(f"padding {padding} of images {x.shape[2]}x{x.shape[3]}: expected less than a side")
    if reflect:
        return F.pad(x, (padding,) * 4, mode="reflect")
    count, colours, height, width = x.shape
    level = x.new_zeros(colours) if fill is None else fill.to(x)
    out = level.view(1, -1, 1, 1).repeat(count, 1, height + 2 * padding, width + 2 * padding)
    out[:, :, padding : padding + height, padding : padding + width] = x
    return out


def pad_crop(
    x: Tensor, generator: torch.Generator, *, padding: int = 4, fill: Tensor | None = None, reflect: bool = False
) -> Tensor:
    """Images (N, C, H, W), each padded and cropped at a random position, so shifted by up to `padding` pixels.

    `fill` (C,) is the prepared value of a black pixel (`ImagePreparation.black`); without it, and without
    `reflect`, the border is 0, the mean colour of standardised images.
    """
    check_images(x)
    count, _, height, width = x.shape
    corners = torch.randint(2 * padding + 1, (2, count), generator=generator, device=generator.device)
    top, left = corners.to(x.device)
    windows = pad(x, padding, fill, reflect).unfold(2, height, 1).unfold(3, width, 1)  # (N, C, t, l, H, W)
    return windows[torch.arange(count, device=x.device), :, top, left]


def flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Images (N, C, H, W), each flipped left to right with probability one half."""
    check_images(x)
    mirrored = torch.rand(len(x), generator=generator, device=generator.device).to(x.device) < 0.5
    return torch.where(mirrored.view(-1, 1, 1, 1), x.flip(-1), x)


Augmentation = Callable[[Tensor, torch.Generator, Tensor | None], Tensor]

AUGMENTATIONS: dict[str, Augmentation] = {
    "pad-crop": lambda x, generator, fill: pad_crop(x, generator, fill=fill),
    "flip": lambda x, generator, fill: flip(x, generator),
}


def augment(x: Tensor, names: tuple[str, ...], generator: torch.Generator, *, fill: Tensor | None = None) -> Tensor:
    """Images (N, C, H, W) under the named augmentations, in order."""
    for name in names:
        if name not in AUGMENTATIONS:
            raise unknown("augmentation", name, AUGMENTATIONS)
        x = AUGMENTATIONS[name](x, generator, fill)
    return x
