"""What a network does with its parameters, found by watching it run once.

A kernel is a parameter that a linear operator multiplies its input by: `linear`, convolutions of any dimension and
their transposes, and the projections inside torch's multi-head attention. Whoever gives kernels factors, masks or
spreads needs to know them, in the order in which they are used.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from murmuration.errors import Misuse
from murmuration.weights.masks import arguments_of, is_dropout

LINEARS: dict[Callable, tuple[int, bool]] = {  # operator -> axes behind the channel of its input, transposed or not
    F.linear: (0, False),
    torch.conv1d: (1, False),
    torch.conv2d: (2, False),
    torch.conv3d: (3, False),
    torch.conv_transpose1d: (1, True),
    torch.conv_transpose2d: (2, True),
    torch.conv_transpose3d: (3, True),
}
PRODUCTS: set[Callable] = {torch.matmul, torch.mm, torch.bmm, torch.einsum, torch.addmm, torch.baddbmm, F.bilinear}
PRODUCTS |= {Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__, Tensor.mm, Tensor.bmm, torch.tensordot}
PRODUCTS |= {Tensor.addmm, Tensor.baddbmm, torch.addbmm, Tensor.addbmm, torch.inner, Tensor.inner}
PRODUCTS |= {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}
PRODUCTS |= {torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell}
PROJECTIONS = ("in_proj", "q_proj", "k_proj", "v_proj", "out_proj")  # of torch's attention


@dataclass(frozen=True)
class Kernel:
    """A parameter that a linear operator multiplies its input by."""

    name: str
    inputs: int  # channels that it takes
    outputs: int  # channels that it makes
    groups: int = 1
    transposed: bool = False
    biases: tuple[str, ...] = ()  # what is added to its outputs; several where layers are tied
    each: int = 1  # neighbouring inputs that are positions of one channel, where pictures were flattened before it

    @property
    def channels(self) -> int:
        """Channels that it takes, a flattened picture's counted once."""
        return self.inputs // self.each

    def matrix(self, into: Tensor | None, out: Tensor | None, like: Tensor) -> Tensor | None:
        """What multiplies the kernel when its input channels are scaled by `into` and its output channels by `out`.

        A kernel is (outputs, inputs / groups, ...), a transposed one (inputs, outputs / groups, ...).
        """
        into = None if into is None else widened(into, self.inputs)
        behind = (1,) * (like.dim() - 2)
        rows, columns = (into, out) if self.transposed else (out, into)
        scale = None if rows is None else rows.reshape(-1, 1, *behind)
        if columns is None:
            return scale
        each = len(like) // self.groups  # rows of a group; all of them meet the group's own columns
        wide = columns.reshape(self.groups, 1, -1).expand(-1, each, -1).reshape(len(like), -1, *behind)
        return wide if scale is None else scale * wide


@dataclass(frozen=True)
class Outline:
    """The kernels of a network in the order of their first use, and whether it drops anything."""

    kernels: tuple[Kernel, ...]
    drops: bool = False
    strangers: tuple[tuple[str, str], ...] = ()  # parameters multiplied by operators that are not understood, and these

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(kernel.name for kernel in self.kernels)

    def require_understood(self) -> "Outline":
        """Refuse a network that multiplies parameters in a way of its own: they would be overlooked."""
        for name, operator in self.strangers:
            raise Misuse(
                f"'{name}' is multiplied by {operator}, which this recipe cannot act on: write torch.nn.Linear or"
                " torch.nn.functional.linear in the net, or choose a recipe with sharing own and weights point"
            )
        return self

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def widened(values: Tensor, width: int) -> Tensor:
    """Values (..., C) for so many inputs (..., width), those of one channel being neighbours.

    >>> widened(torch.tensor([1.0, 2.0]), 4)
    tensor([1., 1., 2., 2.])
    """
    count = values.shape[-1]
    return values if count == width else values.unsqueeze(-1).expand(*values.shape, width // count).flatten(-2)


def outline_from_json(record: dict[str, Any] | None) -> Outline:
    if record is None:
        return Outline(())
    strangers = tuple((name, operator) for name, operator in record["strangers"])
    kernels = tuple(Kernel(**{**kernel, "biases": tuple(kernel.get("biases", ()))}) for kernel in record["kernels"])
    return Outline(kernels, record["drops"], strangers)


def bias_of(kernel: str) -> str:
    """The name that torch's layers give to the bias beside a kernel; none for a kernel that is not called weight.

    >>> bias_of("body.1.weight"), bias_of("attention.in_proj_weight"), bias_of("kernel")
    ('body.1.bias', 'attention.in_proj_bias', '')
    """
    before, found, after = kernel.rpartition("weight")
    return f"{before}bias{after}" if found else ""


def outline_of(module: nn.Module, x: Tensor) -> Outline:
    """The outline of a network, from one pass over a few inputs.

    >>> outline_of(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Dropout(), nn.Linear(5, 2)), torch.zeros(2, 3)).names
    ('0.weight', '3.weight')
    """
    was_training = module.training
    with torch.no_grad(), Watch(module, x) as watch:
        module.eval()(x)
    module.train(was_training)
    return Outline(tuple(watch.kernels.values()), watch.drops, tuple(watch.strangers.items()))


class Watch(TorchFunctionMode):
    """Looks at every operator and notes the kernels among their arguments."""

    def __init__(self, module: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.x = x
        self.flattened: dict[int, tuple[Tensor, int]] = {}  # pictures made flat, and how many positions a channel had
        self.names = {id(parameter): name for name, parameter in module.named_parameters()}
        self.kernels: dict[str, Kernel] = {}
        self.strangers: dict[str, str] = {}
        self.drops = False
        self.made: dict[int, tuple[Tensor, str]] = {}  # of parameters alone, such as a transpose, and of which

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if is_dropout(func):
            self.drops = self.drops or arguments_of(args, kwargs).get("p", 0.5) > 0
        elif func in LINEARS:
            weight, bias = (kwargs.get(name, argument(args, at)) for name, at in (("weight", 1), ("bias", 2)))
            _, each = self.flattened.get(id(argument(args, 0)), (None, 1))
            self.note(func, weight, bias, Kernel("", 0, 0, groups(args, kwargs), LINEARS[func][1], each=each))
        elif func is F.multi_head_attention_forward:
            for weight, bias in projections(args, kwargs):
                self.note(func, weight, bias, Kernel("", 0, 0))
        elif func in PRODUCTS:
            for tensor in flat((*args, *kwargs.values())):
                self.note_stranger(tensor, func)
        else:
            self.note_flattening(argument(args, 0), result)
            self.follow(flat((*args, *kwargs.values())), result)
        return result

    def note_flattening(self, before: Any, after: Any) -> None:
        """Remember pictures (N, C, ...) that became (N, C positions); the network's inputs have no channels yet."""
        if not isinstance(before, Tensor) or not isinstance(after, Tensor) or before is self.x:
            return
        if before.dim() > 2 and after.shape == (len(before), before[0].numel()) and before.shape[1] > 1:
            self.flattened[id(after)] = (after, before[0, 0].numel())

    def note(self, func: Callable, weight: Any, bias: Any, like: Kernel) -> None:
        """Remember a kernel that is used like this one, and the bias beside it."""
        name = self.names.get(id(weight))
        if name is None:
            self.note_stranger(weight, func)
            return
        rows, columns = weight.shape[0], weight.shape[1] * like.groups
        inputs, outputs = (rows, columns) if like.transposed else (columns, rows)
        found = self.kernels.get(name, replace(like, name=name, inputs=inputs, outputs=outputs))
        beside = self.names.get(id(bias))
        if beside is not None and beside not in found.biases:
            found = replace(found, biases=(*found.biases, beside))
        self.kernels[name] = found

    def note_stranger(self, tensor: Any, func: Callable) -> None:
        """Remember a parameter that meets an operator in a way that is not understood, as it is or changed before."""
        _, made_of = self.made.get(id(tensor), (tensor, None))
        name = self.names.get(id(tensor), made_of)
        if name is not None and tensor.dim() > 1:
            operator = resolve_name(func) or str(func)
            self.strangers[name] = operator if made_of is None else f"{operator} after other operators"

    def follow(self, given: Iterator[Any], result: Any) -> None:
        """Remember what is made of parameters alone: it is one of them in another shape."""
        sources = [each for each in given if isinstance(each, Tensor)]
        known = [self.names.get(id(each)) or self.made.get(id(each), (each, None))[1] for each in sources]
        if not known or None in known:
            return
        for tensor in flat((result,)):
            if isinstance(tensor, Tensor) and id(tensor) not in self.names:
                self.made[id(tensor)] = (tensor, next(name for name in known if name is not None))


def argument(args: tuple, at: int) -> Any:
    """The argument at a place, if so many are given."""
    return args[at] if len(args) > at else None


def groups(args: tuple, kwargs: dict[str, Any]) -> int:
    """The groups of a linear operator, transposed or not: the seventh argument of every convolution."""
    found: int = kwargs.get("groups", args[6] if len(args) > 6 else 1)
    return found


def projections(args: tuple, kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The kernels among the arguments of torch's attention, in the order of their use, and the biases beside them."""
    from inspect import signature

    given = signature(F.multi_head_attention_forward).bind(*args, **kwargs).arguments
    found = [(given.get(f"{name}_weight"), given.get(f"{name}_bias")) for name in PROJECTIONS]
    return [(weight, bias) for weight, bias in found if weight is not None]


def flat(values: Any) -> Iterator[Any]:
    """All that is in nested lists and tuples."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from flat(value)
        else:
            yield value
