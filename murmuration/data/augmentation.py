"""Augmentation: random changes of prepared images (N, C, H, W) that keep their labels."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.system.errors import Misuse, unknown


def check_images(x: Tensor) -> None:
    """Refuse inputs that are not images (N, C, H, W)."""
    if x.ndim != 4:
        raise Misuse(f"augmentation of inputs of shape {tuple(x.shape)}: expected images (N, C, H, W)")


def pad_crop(x: Tensor, generator: torch.Generator, *, padding: int = 4) -> Tensor:
    """Images (N, C, H, W), each padded by zeros and cropped at a random position: shifted by up to `padding` pixels.

    Zero is the mean colour of standardised images.
    """
    check_images(x)
    count, _, height, width = x.shape
    corners = torch.randint(2 * padding + 1, (2, count), generator=generator, device=generator.device)
    top, left = corners.to(x.device)
    windows = F.pad(x, (padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)  # (N, C, t, l, H, W)
    return windows[torch.arange(count, device=x.device), :, top, left]


def flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Images (N, C, H, W), each flipped left to right with probability one half."""
    check_images(x)
    mirrored = torch.rand(len(x), generator=generator, device=generator.device).to(x.device) < 0.5
    return torch.where(mirrored.view(-1, 1, 1, 1), x.flip(-1), x)


AUGMENTATIONS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {"pad-crop": pad_crop, "flip": flip}


def augment(x: Tensor, names: tuple[str, ...], generator: torch.Generator) -> Tensor:
    """Images (N, C, H, W) under the named augmentations, in order."""
    for name in names:
        if name not in AUGMENTATIONS:
            raise unknown("augmentation", name, AUGMENTATIONS)
        x = AUGMENTATIONS[name](x, generator)
    return x
