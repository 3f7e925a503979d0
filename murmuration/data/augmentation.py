"""Augmentation: random changes of prepared images (N, C, H, W) that keep their labels."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.system.errors import Misuse, unknown


def pad_crop(x: Tensor, generator: torch.Generator, *, padding: int = 4) -> Tensor:
    """Pad each image (N, C, H, W) with zeros and crop it at a random position: a shift by up to `padding` pixels.

    Zero is the mean colour of standardised images.
    """
    count, _, height, width = x.shape
    corners = torch.randint(2 * padding + 1, (2, count), generator=generator, device=generator.device)
    row, column = corners.to(x.device)
    windows = F.pad(x, (padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)  # (N, C, t, l, H, W)
    return windows[torch.arange(count, device=x.device), :, row, column]


def flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Flip each image (N, C, H, W) left to right with probability one half."""
    mirrored = torch.rand(len(x), generator=generator, device=generator.device).to(x.device) < 0.5
    return torch.where(mirrored.view(-1, 1, 1, 1), x.flip(-1), x)


def shift(x: Tensor, generator: torch.Generator, *, fraction: float = 0.1) -> Tensor:
    """Shift each image (N, C, H, W) by up to a fraction of its sides; the nearest edge pixel fills what is left.

    Shifts are uniform and not whole pixels: values are interpolated linearly (the augmentation of the Keras examples).
    """
    for axis in (2, 3):
        size, shape = x.shape[axis], [len(x), 1, 1, 1]
        shape[axis] = size
        draws = torch.rand(len(x), generator=generator, device=generator.device).to(x.device)
        steps = torch.arange(size, device=x.device) + fraction * size * (2 * draws[:, None] - 1)  # (N, size)
        places = steps.clamp(0, size - 1).view(shape)
        low = places.long()
        first, second = (x.gather(axis, i.expand_as(x)) for i in (low, (low + 1).clamp(max=size - 1)))
        x = torch.lerp(first, second, (places - low).to(x))
    return x


AUGMENTATIONS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "pad-crop": pad_crop,
    "shift": shift,
    "flip": flip,
}


def augment(x: Tensor, names: tuple[str, ...], generator: torch.Generator) -> Tensor:
    """Apply random augmentations to prepared images.

    Args:
        x: Images (N, C, H, W).
        names: Keys of `AUGMENTATIONS`, applied in this order.
        generator: Source of the random numbers.

    Returns:
        The augmented images (N, C, H, W), on the device of `x`.

    Raises:
        Misuse: For an unknown name, or inputs that are not images.
    """
    for name in names:
        if name not in AUGMENTATIONS:
            raise unknown("augmentation", name, AUGMENTATIONS)
        if x.ndim != 4:
            raise Misuse(f"augmentation of inputs of shape {tuple(x.shape)}: expected images (N, C, H, W)")
        x = AUGMENTATIONS[name](x, generator)
    return x
