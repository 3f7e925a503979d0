"""Tensors packed into one flat buffer, so that an update of all of them is one operator.

Each starts at a cache line, as separately allocated tensors do: products may round by the address.
"""

from collections.abc import Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor

CACHE_LINE = 64  # bytes: a whole number of the CPU's vectors, and the unit in which fused kernels divide a tensor


def pack(named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors into one flat buffer, zero-padded between them.

    Returns the tensors themselves if they are packed already, have several types, another memory format or another
    device than the CPU.
    """
    tensors = list(named.values())
    alike = len({(tensor.dtype, tensor.device) for tensor in tensors}) == 1 and tensors[0].device.type == "cpu"
    if not alike or not all(tensor.is_contiguous() for tensor in tensors) or flat_view(tensors) is not None:
        return named
    sizes = [padded_size(tensor) for tensor in tensors]
    buffer, views, start = tensors[0].new_zeros(sum(sizes)), {}, 0
    for (name, tensor), size in zip(named.items(), sizes, strict=True):
        views[name] = buffer[start : start + tensor.numel()].view(tensor.shape).copy_(tensor)
        start += size
    return views


def flat_view(tensors: Sequence[Tensor]) -> Tensor | None:
    """Return the flat buffer (P,) that backs `tensors`, padding included, or None if they do not share one.

    The tensors must fill the buffer: rows of a matrix would be returned with the rows behind them.

    >>> tensors = list(pack({"a": torch.ones(2, 3), "b": torch.ones(4)}).values())
    >>> flat_view(tensors).shape, flat_view(tensors[:1]), flat_view([torch.ones(3)])
    (torch.Size([32]), None, None)
    """
    first = tensors[0]
    if any(tensor.device.type != "cpu" for tensor in tensors):
        return None
    start, address, size = first.data_ptr(), first.data_ptr(), first.element_size()
    for tensor in tensors:
        if tensor.data_ptr() != address or tensor.dtype != first.dtype or not tensor.is_contiguous():
            return None
        address += padded_size(tensor) * size
    storage = first.untyped_storage()  # adjacent allocations may touch by chance: require one storage
    if storage.data_ptr() != start or storage.nbytes() != address - start:
        return None
    return first.as_strided(((address - start) // size,), (1,))


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Return the flat buffer (P,) of tensors: their own, or a copy."""
    view = flat_view(tensors)
    if view is not None:
        return view
    padding = tensors[0].new_zeros(CACHE_LINE)
    parts = ((tensor.reshape(-1), padding[: padded_size(tensor) - tensor.numel()]) for tensor in tensors)
    return torch.cat([part for pair in parts for part in pair if len(part)])


def padded_size(tensor: Tensor) -> int:
    """Return the number of entries of the whole cache lines that hold a tensor.

    >>> padded_size(torch.zeros(17)), padded_size(torch.zeros(2, 8))
    (32, 16)
    """
    line = CACHE_LINE // tensor.element_size()
    return -(-tensor.numel() // line) * line


class FlatBuffers:
    """The flat buffers of parameters, gradients and optimizer state, looked up once as long as the tensors stay."""

    def __init__(self) -> None:
        self._cache: dict[Any, tuple[list[Tensor], Tensor]] = {}

    def find(self, key: Any, tensors: Sequence[Tensor]) -> Tensor | None:
        """Return the flat buffer of tensors, or None if they do not share one."""
        cached = self._cache.get(key)
        if cached is not None and len(cached[0]) == len(tensors) and all(map(is_, cached[0], tensors)):
            return cached[1]
        view = flat_view(tensors)
        if view is not None:
            self._cache[key] = (list(tensors), view)
        return view

    def flat(
        self, params: list[Tensor], grads: list[Tensor], moments: list[list[Tensor]]
    ) -> tuple[list[Tensor], list[Tensor], list[list[Tensor]]] | None:
        """Return parameters, gradients and each kind of optimizer state as one vector each; None if one is not packed.

        Gradients that are not packed are copied.
        """
        views = [self.find(i, tensors) for i, tensors in enumerate([params, *moments])]
        packed = [view for view in views if view is not None]
        if len(packed) < len(views):
            return None
        gradient = self.find("gradients", grads)
        return packed[:1], [flatten(grads) if gradient is None else gradient], [[view] for view in packed[1:]]
