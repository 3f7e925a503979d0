"""The kernels of a network, found by tracing one forward pass.

A kernel is a parameter that a linear operator multiplies its input by: `linear`, convolutions of any dimension and
their transposes, and the projections inside torch's multi-head attention. Rank-one factors, masks and standard
deviations belong to kernels, in the order of their first use.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from murmuration.errors import Misuse
from murmuration.weights.dropout_masks import dropout_arguments, is_dropout

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
    inputs: int  # input channels
    outputs: int  # output channels
    groups: int = 1
    transposed: bool = False
    biases: tuple[str, ...] = ()  # added to its outputs; several where layers are tied
    positions_per_channel: int = 1  # adjacent inputs of one channel, where images were flattened before the kernel
    trained: bool = True  # False: requires_grad is False

    @property
    def channels(self) -> int:
        """Input channels; the positions of a flattened image count as one channel."""
        return self.inputs // self.positions_per_channel

    def matrix(self, into: Tensor | None, out: Tensor | None, like: Tensor) -> Tensor | None:
        """The factor that broadcasts to a kernel `like` when its input channels are scaled by `into` (C_in,) and its
        output channels by `out` (C_out,); None where neither is scaled.

        A kernel is (outputs, inputs / groups, ...), a transposed one (inputs, outputs / groups, ...).
        """
        into = None if into is None else repeat_channels(into, self.inputs)
        behind = (1,) * (like.dim() - 2)
        rows, columns = (into, out) if self.transposed else (out, into)
        scale = None if rows is None else rows.reshape(-1, 1, *behind)
        if columns is None:
            return scale
        rows_per_group = len(like) // self.groups  # each row meets the columns of its group
        wide = columns.reshape(self.groups, 1, -1).expand(-1, rows_per_group, -1).reshape(len(like), -1, *behind)
        return wide if scale is None else scale * wide


@dataclass(frozen=True)
class KernelTrace:
    """The kernels of a network in the order of their first use, and whether it has active dropout layers."""

    kernels: tuple[Kernel, ...]
    has_dropout: bool = False
    unsupported: tuple[tuple[str, str], ...] = ()  # (parameter, operator) pairs that cannot be intercepted

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(kernel.name for kernel in self.kernels)

    def require_supported(self) -> "KernelTrace":
        """This trace; raises Misuse if a parameter is multiplied by an operator that cannot be intercepted."""
        for name, operator in self.unsupported:
            raise Misuse(
                f"'{name}' is multiplied by {operator}, which this recipe cannot act on: write torch.nn.Linear or"
                " torch.nn.functional.linear in the net, or choose a recipe with sharing own and weights point"
            )
        return self

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(record: dict[str, Any] | None) -> "KernelTrace":
        """The trace of a manifest; None stands for a recipe that needs no kernels."""
        if record is None:
            return KernelTrace(())
        kernels = tuple(Kernel(**{**kernel, "biases": tuple(kernel.get("biases", ()))}) for kernel in record["kernels"])
        unsupported = tuple((name, operator) for name, operator in record["unsupported"])
        return KernelTrace(kernels, record["has_dropout"], unsupported)


def repeat_channels(values: Tensor, width: int) -> Tensor:
    """Values (..., C) per channel, repeated for the adjacent positions of each channel: (..., width).

    >>> repeat_channels(torch.tensor([1.0, 2.0]), 4)
    tensor([1., 1., 2., 2.])
    """
    count = values.shape[-1]
    return values if count == width else values.unsqueeze(-1).expand(*values.shape, width // count).flatten(-2)


def fan_in(shape: tuple[int, ...], kernel: Kernel | None = None) -> int:
    """The number of inputs of one output of a kernel of this shape (outputs, inputs / groups, ...); 1 for a bias.

    For a transposed kernel (inputs, outputs / groups, ...) the number at stride 1; a longer stride has fewer.

    >>> fan_in((8, 3, 5, 5)), fan_in((8, 3, 5, 5), Kernel("deconv", 8, 3, transposed=True)), fan_in((8,))
    (75, 200, 1)
    """
    if kernel is not None and kernel.transposed:
        return shape[0] // kernel.groups * math.prod(shape[2:])
    return math.prod(shape[1:]) if len(shape) > 1 else 1


def bias_of(kernel: str) -> str:
    """The name that torch's layers give to the bias beside a kernel; none for a kernel that is not called weight.

    >>> bias_of("body.1.weight"), bias_of("attention.in_proj_weight"), bias_of("kernel")
    ('body.1.bias', 'attention.in_proj_bias', '')
    """
    before, found, after = kernel.rpartition("weight")
    return f"{before}bias{after}" if found else ""


def trace_kernels(module: nn.Module, x: Tensor) -> KernelTrace:
    """The kernels of a network, from one evaluation pass over a few inputs.

    >>> trace_kernels(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Dropout(), nn.Linear(5, 2)), torch.zeros(2, 3)).names
    ('0.weight', '3.weight')
    """
    was_training = module.training
    with torch.no_grad(), KernelTracer(module, x) as tracer:
        module.eval()(x)
    module.train(was_training)
    return KernelTrace(tuple(tracer.kernels.values()), tracer.has_dropout, tuple(tracer.unsupported.items()))


class KernelTracer(TorchFunctionMode):
    """Records the kernels among the arguments of every operator."""

    def __init__(self, module: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.x = x
        self.flattened: dict[int, tuple[Tensor, int]] = {}  # flattened images, and their positions per channel
        self.fixed = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
        self.names = {id(parameter): name for name, parameter in module.named_parameters()}
        self.kernels: dict[str, Kernel] = {}
        self.unsupported: dict[str, str] = {}
        self.has_dropout = False
        self.made: dict[int, tuple[Tensor, str]] = {}  # functions of a parameter alone (a transpose), and its name

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if is_dropout(func):
            self.has_dropout = self.has_dropout or dropout_arguments(args, kwargs).get("p", 0.5) > 0
        elif func in LINEARS:
            weight, bias = (kwargs.get(name, argument(args, at)) for name, at in (("weight", 1), ("bias", 2)))
            _, positions = self.flattened.get(id(argument(args, 0)), (None, 1))
            groups = kwargs.get("groups", argument(args, 6) or 1)  # the seventh argument of every convolution
            self.note(func, weight, bias, Kernel("", 0, 0, groups, LINEARS[func][1], positions_per_channel=positions))
        elif func is F.multi_head_attention_forward:
            for weight, bias in projections(args, kwargs):
                self.note(func, weight, bias, Kernel("", 0, 0))
        elif func in PRODUCTS:
            for tensor in flat((*args, *kwargs.values())):
                self.note_unsupported(tensor, func)
        else:
            self.note_flattening(argument(args, 0), result)
            self.follow(flat((*args, *kwargs.values())), result)
        return result

    def note_flattening(self, before: Any, after: Any) -> None:
        """Record images (N, C, ...) flattened to (N, C positions); the network's own inputs do not count."""
        if not isinstance(before, Tensor) or not isinstance(after, Tensor) or before is self.x:
            return
        if before.dim() > 2 and after.shape == (len(before), before[0].numel()) and before.shape[1] > 1:
            self.flattened[id(after)] = (after, before[0, 0].numel())

    def note(self, func: Callable, weight: Any, bias: Any, like: Kernel) -> None:
        """Record a kernel with the attributes of `like`, and the bias beside it."""
        name = self.names.get(id(weight))
        if name is None:
            self.note_unsupported(weight, func)
            return
        rows, columns = weight.shape[0], weight.shape[1] * like.groups
        inputs, outputs = (rows, columns) if like.transposed else (columns, rows)
        found = self.kernels.get(
            name, replace(like, name=name, inputs=inputs, outputs=outputs, trained=weight.requires_grad)
        )
        beside = self.names.get(id(bias))
        if beside is not None and beside not in found.biases:
            found = replace(found, biases=(*found.biases, beside))
        self.kernels[name] = found

    def note_unsupported(self, tensor: Any, func: Callable) -> None:
        """Record a parameter, or a function of one, that is multiplied by an operator that cannot be intercepted."""
        _, made_of = self.made.get(id(tensor), (tensor, None))
        name = self.names.get(id(tensor), made_of)
        if name is not None and tensor.dim() > 1 and name not in self.fixed:
            operator = resolve_name(func) or str(func)
            self.unsupported[name] = operator if made_of is None else f"{operator} after other operators"

    def follow(self, given: Iterator[Any], result: Any) -> None:
        """Record results of operators whose tensor arguments are all parameters, such as a transpose."""
        sources = [each for each in given if isinstance(each, Tensor)]
        known = [self.names.get(id(each)) or self.made.get(id(each), (each, None))[1] for each in sources]
        if not known or None in known:
            return
        for tensor in flat((result,)):
            if isinstance(tensor, Tensor) and id(tensor) not in self.names:
                self.made[id(tensor)] = (tensor, next(name for name in known if name is not None))


def argument(args: tuple, at: int) -> Any:
    """The positional argument at an index, or None."""
    return args[at] if len(args) > at else None


def projections(args: tuple, kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The kernels among the arguments of torch's attention, in the order of their use, and the biases beside them."""
    from inspect import signature

    given = signature(F.multi_head_attention_forward).bind(*args, **kwargs).arguments
    found = [(given.get(f"{name}_weight"), given.get(f"{name}_bias")) for name in PROJECTIONS]
    return [(weight, bias) for weight, bias in found if weight is not None]


def flat(values: Any) -> Iterator[Any]:
    """The leaves of nested lists and tuples."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from flat(value)
        else:
            yield value
