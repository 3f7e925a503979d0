"""Whether two networks compute the same function of their parameters and buffers."""

import types
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

REGISTERED = ("_parameters", "_buffers", "_modules")
Compared = dict[tuple[int, int], tuple[Any, Any]]  # ids of two objects -> the objects: alive, their ids stay unique


def same_function(a: nn.Module, b: nn.Module) -> bool:
    """Return whether two networks compute the same outputs from the same parameters and buffers.

    Everything else must be equal: classes, hooks, tensors and other attributes, private ones too. Attributes that
    cannot be compared count as different.
    """
    parts, other_parts = (list(net.named_modules(remove_duplicate=False)) for net in (a, b))
    if [name for name, _ in parts] != [name for name, _ in other_parts] or _tensors(a) != _tensors(b):
        return False
    pairs = [(part, other) for (_, part), (_, other) in zip(parts, other_parts, strict=True)]
    compared: Compared = {(id(part), id(other)): (part, other) for part, other in pairs}  # below, not as attributes
    return all(
        type_before_parametrizations(part) is type_before_parametrizations(other)
        and _equal(_attributes(part), _attributes(other), compared)
        for part, other in pairs
    )


def _tensors(net: nn.Module) -> list[tuple]:
    """List names, classes, types and shapes of all registered tensors, and which of them are tied."""
    first: dict[int, str] = {}
    tensors = []
    for kind, named in (("parameter", net.named_parameters), ("buffer", net.named_buffers)):
        for name, tensor in named(remove_duplicate=False):
            tied = first.setdefault(id(tensor), name)
            tensors.append((kind, name, tied, type(tensor), tensor.dtype, tuple(tensor.shape)))
    return tensors


def _attributes(part: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(part).items() if name not in REGISTERED}


def _equal(a: Any, b: Any, compared: Compared) -> bool:
    """Return whether two attributes have equal contents; `compared` holds pairs that are equal or being compared."""
    if a is b or (id(a), id(b)) in compared:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, int | float | complex | str | bytes | set | frozenset | torch.dtype | torch.device | range):
        return bool(a == b)
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    compared[id(a), id(b)] = a, b
    if isinstance(a, dict):
        return list(a) == list(b) and all(_equal(a[key], b[key], compared) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(_equal(x, y, compared) for x, y in zip(a, b, strict=True))
    if isinstance(a, types.MethodType):
        return a.__func__ is b.__func__ and _equal(a.__self__, b.__self__, compared)
    if isinstance(a, types.FunctionType):  # of the same source, and referring to equal objects
        if a.__code__ is not b.__code__ or a.__globals__ is not b.__globals__:
            return False
        own, other = (
            [[c.cell_contents for c in f.__closure__ or ()], f.__defaults__, f.__kwdefaults__] for f in (a, b)
        )
        return _equal(own, other, compared)
    if isinstance(a, type | types.BuiltinFunctionType | types.ModuleType):
        return False  # and not the same object
    try:
        return _equal(a.__reduce_ex__(2), b.__reduce_ex__(2), compared)  # as pickled: with state that C code keeps
    except Exception:  # an object that cannot be pickled may raise anything
        return False
