"""Whether two networks compute the same function of their parameters and buffers."""

import types
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

REGISTERED = ("_parameters", "_buffers", "_modules")
Known = dict[tuple[int, int], tuple[Any, Any]]  # ids of two objects -> the objects, whose ids must not be given away


def same_function(a: nn.Module, b: nn.Module) -> bool:
    """Whether two networks give the same outputs once their parameters and buffers are exchanged.

    All else about them must be equal: classes, hooks, tensors and other attributes, private ones too. What cannot be
    compared counts as different.
    """
    parts, others = (list(net.named_modules(remove_duplicate=False)) for net in (a, b))
    if [name for name, _ in parts] != [name for name, _ in others] or _tensors(a) != _tensors(b):
        return False
    pairs = [(part, other) for (_, part), (_, other) in zip(parts, others, strict=True)]
    known: Known = {(id(part), id(other)): (part, other) for part, other in pairs}  # compared here, not as attributes
    return all(
        type_before_parametrizations(part) is type_before_parametrizations(other)
        and _equal(_attributes(part), _attributes(other), known)
        for part, other in pairs
    )


def _tensors(net: nn.Module) -> list[tuple]:
    """Names, classes, types and shapes of all registered tensors, and which of them are one tensor."""
    first: dict[int, str] = {}
    found = []
    for kind, named in (("parameter", net.named_parameters), ("buffer", net.named_buffers)):
        for name, tensor in named(remove_duplicate=False):
            tied = first.setdefault(id(tensor), name)
            found.append((kind, name, tied, type(tensor), tensor.dtype, tuple(tensor.shape)))
    return found


def _attributes(part: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(part).items() if name not in REGISTERED}


def _equal(a: Any, b: Any, known: Known) -> bool:
    """Whether two attributes are equal in all they hold; `known` has the pairs that are equal or being compared."""
    if a is b or (id(a), id(b)) in known:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, int | float | complex | str | bytes | set | frozenset | torch.dtype | torch.device | range):
        return bool(a == b)
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    known[id(a), id(b)] = a, b
    if isinstance(a, dict):
        return list(a) == list(b) and all(_equal(a[key], b[key], known) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(_equal(x, y, known) for x, y in zip(a, b, strict=True))
    if isinstance(a, types.MethodType):
        return a.__func__ is b.__func__ and _equal(a.__self__, b.__self__, known)
    if isinstance(a, types.FunctionType):
        return _same_code(a, b, known)
    if isinstance(a, type | types.BuiltinFunctionType | types.ModuleType):
        return False  # and not the same object
    try:
        return _equal(a.__reduce_ex__(2), b.__reduce_ex__(2), known)  # as pickled: with state that C code keeps
    except Exception:  # an object that cannot be pickled may raise anything
        return False


def _same_code(a: types.FunctionType, b: types.FunctionType, known: Known) -> bool:
    """Whether two functions come from one place in the source and refer to equal objects."""
    if a.__code__ is not b.__code__ or a.__globals__ is not b.__globals__:
        return False
    held = [[cell.cell_contents for cell in f.__closure__ or ()] for f in (a, b)]
    return _equal([*held[:1], a.__defaults__, a.__kwdefaults__], [*held[1:], b.__defaults__, b.__kwdefaults__], known)
