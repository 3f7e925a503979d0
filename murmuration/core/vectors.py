"""Tensors side by side in one vector, so that an operator on all of them is one operator.

Each begins at a cache line of its own, as tensors of their own do: products may round by the address.
"""

from collections.abc import Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor

CACHE_LINE = 64  # bytes: a whole number of the CPU's vectors, and the unit in which fused kernels divide a tensor


def side_by_side(named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the tensors in one vector of their own, with zeros between them.

    The tensors themselves, if they lie so already, have several types, another memory format or another device than
    the CPU.
    """
    tensors = list(named.values())
    alike = len({(each.dtype, each.device) for each in tensors}) == 1 and tensors[0].device.type == "cpu"
    if not alike or not all(each.is_contiguous() for each in tensors) or as_vector(tensors) is not None:
        return named
    sizes = [lines(each) for each in tensors]
    vector, found, place = tensors[0].new_zeros(sum(sizes)), {}, 0
    for (name, tensor), size in zip(named.items(), sizes, strict=True):
        found[name] = vector[place : place + tensor.numel()].view(tensor.shape).copy_(tensor)
        place += size
    return found


def as_vector(tensors: Sequence[Tensor]) -> Tensor | None:
    """The vector (P,) in which tensors lie side by side, all of it, with the zeros between; None if there is none.

    The tensors must be whole: a row of a small matrix would be found with the rows behind it.

    >>> tensors = list(side_by_side({"a": torch.ones(2, 3), "b": torch.ones(4)}).values())
    >>> as_vector(tensors).shape, as_vector(tensors[:1]), as_vector([torch.ones(3)])
    (torch.Size([32]), None, None)
    """
    first = tensors[0]
    if any(each.device.type != "cpu" for each in tensors):
        return None
    start, place, size = first.data_ptr(), first.data_ptr(), first.element_size()
    for each in tensors:
        if each.data_ptr() != place or each.dtype != first.dtype or not each.is_contiguous():
            return None
        place += lines(each) * size
    storage = first.untyped_storage()  # that another one begins where it ends is no coincidence to build on
    if storage.data_ptr() != start or storage.nbytes() != place - start:
        return None
    return first.as_strided(((place - start) // size,), (1,))


class Vectors:
    """The vectors of lists of tensors by name, found once as long as a list has the same tensors."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[list[Tensor], Tensor]] = {}

    def find(self, name: Any, tensors: Sequence[Tensor]) -> Tensor | None:
        """The vector of tensors that lie side by side; None if they do not."""
        known = self._known.get(name)
        if known is not None and len(known[0]) == len(tensors) and all(map(is_, known[0], tensors)):
            return known[1]
        found = as_vector(tensors)
        if found is not None:
            self._known[name] = (list(tensors), found)
        return found


def join(tensors: Sequence[Tensor]) -> Tensor:
    """The vector (P,) of tensors side by side: theirs, or a copy."""
    found = as_vector(tensors)
    if found is not None:
        return found
    filling = tensors[0].new_zeros(CACHE_LINE)
    parts = ((each.reshape(-1), filling[: lines(each) - each.numel()]) for each in tensors)
    return torch.cat([part for pair in parts for part in pair if len(part)])


def lines(tensor: Tensor) -> int:
    """The number of entries of whole cache lines that hold a tensor.

    >>> lines(torch.zeros(17)), lines(torch.zeros(2, 8))
    (32, 16)
    """
    line = CACHE_LINE // tensor.element_size()
    return -(-tensor.numel() // line) * line
