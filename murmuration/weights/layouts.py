"""How images lie in memory, and how sizes of windows are written."""

from typing import Any

import torch
from torch import Tensor


def channels_last(x: Tensor) -> Tensor:
    """Images (B, C, H, W) with channels last, which is what convolutions on a CPU are fastest with."""
    if x.dim() == 4 and x.shape[1] == 1:  # both layouts are the same memory then; torch would read it as the other one
        return x.squeeze(1).unsqueeze(-1).permute(0, 3, 1, 2)
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def laid_out_like(model: Tensor, x: Tensor) -> Tensor:
    """Images x (B, C, H, W) with channels last where a model has them last, else as they are."""
    return channels_last(x) if model.is_contiguous(memory_format=torch.channels_last) else x


def pair(value: Any) -> list[int]:
    """Two sizes (height, width): one stands for both.

    >>> pair(3), pair((1, 2)), pair([4])
    ([3, 3], [1, 2], [4, 4])
    """
    sizes = [value] if isinstance(value, int) else list(value)
    return sizes * 2 if len(sizes) == 1 else sizes
