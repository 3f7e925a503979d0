"""How a plain network runs on somebody else's tensors: one member, or many at once.

A network stays any `nn.Module`. It is called with the members' tensors in place of its own, and while it runs a few of
its operators are intercepted:

- dropout noise its masks from each member's own noise stream, so that a mask does not depend on which engine ran it;
- a convolution whose input gradient will be differentiated is one that makes this cheap (`twice.py`);
- with many members at once, a linear layer is one batched product.

Two ways lead to many members at once. The *direct* way runs the module once on tensors with a leading member axis; it
is right only for operators that are known to treat that axis as one more batch axis, and refuses all others
(`NotDirect`). The other way is `torch.func.vmap`, which takes nearly any operator at some overhead.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap
from torch.overrides import TorchFunctionMode, resolve_name

from murmuration.streams import Noise
from murmuration.weights.masks import arguments_of, is_dropout, masked
from murmuration.weights.structure import Structure
from murmuration.weights.twice import CONVOLUTIONS, convolve

POINTWISE = {F.relu, torch.relu, Tensor.relu, F.gelu, F.silu, F.softplus, F.leaky_relu, F.elu, F.selu, F.mish}
POINTWISE |= {torch.tanh, torch.sigmoid, Tensor.tanh, Tensor.sigmoid, F.hardtanh, torch.sin, torch.cos, torch.erf}


class NotDirect(Exception):  # noqa: N818 - a finding, not a mistake
    """The module uses an operator that is not known to accept a member axis."""


def run_members(
    structure: Structure, tensors: Mapping[str, Tensor], x: Tensor, noise: Sequence[Noise], direct: bool, part: str = ""
) -> Tensor:
    """Outputs (m, B, K) of m members, or of one part of each: tensors with a leading axis m on inputs (m, B, ...).

    `noise` holds one stream a member. One member alone runs as the plain module it is.
    """
    if len(noise) == 1:
        alone = {name: tensor[0] for name, tensor in tensors.items()}
        with Intercept(noise, twice=x.requires_grad):
            return structure(alone, _fast_layout(x[0]), part).unsqueeze(0)
    if direct:
        with InterceptDirect(noise):
            return structure(tensors, x, part)

    def one(alone: dict[str, Tensor], inputs: Tensor) -> Tensor:
        with InterceptMapped(noise):
            return structure(alone, inputs, part)

    return vmap(one)(dict(tensors), x)


def _fast_layout(x: Tensor) -> Tensor:
    """Images with channels last, which is what convolutions on a CPU are fastest with."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


class Intercept(TorchFunctionMode):
    """One member: only dropout is intercepted, and convolutions that will be differentiated twice."""

    def __init__(self, noise: Sequence[Noise], twice: bool = False) -> None:
        super().__init__()
        self.noise = noise
        self.twice = twice

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_dropout(func):
            return masked(func, self.noise, arguments_of(args, kwargs or {}))
        if self.twice and func in CONVOLUTIONS and len(args) > 1:
            return convolve(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class InterceptDirect(Intercept):
    """Many members on a leading axis, without vmap: every operator must be known."""

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.linear:
            return batched_linear(*args, **kwargs)
        if func in POINTWISE:
            return func(*args, **kwargs)
        if is_dropout(func):
            return masked(func, self.noise, arguments_of(args, kwargs), stacked=True)
        if func in (torch.flatten, Tensor.flatten):
            return flatten_behind(*args, **kwargs)
        raise NotDirect(resolve_name(func) or str(func))


class InterceptMapped(Intercept):
    """Many members under vmap: linear layers become one batched product, dropout noise a mask a member."""

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.linear and args[0].dim() == 2:
            return MappedLinear.apply(*args, *kwargs.values())
        if is_dropout(func):
            arguments = arguments_of(args, kwargs)
            return MappedDropout.apply(arguments["input"], func, self.noise, arguments)
        return func(*args, **kwargs)


def batched_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (m, B, I) times each member's weight (m, O, I), plus its bias (m, O): (m, B, O).

    Computed as W x^T and returned as a view of (m, O, B): then the next layer needs no transposition, the weight's
    gradient comes out in the weight's own layout, and the bias is summed along contiguous memory.
    """
    if x.dim() != 3 or weight.dim() != 3:
        raise NotDirect("linear on more than one batch axis")
    if bias is None:
        return torch.bmm(weight, x.mT).mT
    return torch.baddbmm(bias.unsqueeze(2), weight, x.mT).mT


def flatten_behind(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Flatten as the member sees it: its axis 1 is axis 2 here."""
    if start_dim < 1:
        raise NotDirect(f"flatten from axis {start_dim}")
    return torch.flatten(x, start_dim + 1, end_dim if end_dim < 0 else end_dim + 1)


class MappedLinear(torch.autograd.Function):
    """`F.linear` whose batching rule is one `baddbmm` instead of a broadcast product and a sum."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
        stacked = [_lead(tensor, dim, info.batch_size) for tensor, dim in zip((x, weight), in_dims, strict=False)]
        if bias is not None:
            stacked.append(_lead(bias, in_dims[2], info.batch_size))
        return batched_linear(*stacked), 0


class MappedDropout(torch.autograd.Function):
    """Dropout with one noise stream a member."""

    @staticmethod
    def forward(x: Tensor, func: Callable, noise: Sequence[Noise], arguments: dict[str, Any]) -> Tensor:
        return masked(func, noise, {**arguments, "input": x})

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, func: Callable, noise: Sequence[Noise], arguments: dict) -> Any:
        lead = _lead(x, in_dims[0], info.batch_size)
        return masked(func, noise, {**arguments, "input": lead}, stacked=True), 0


def _lead(tensor: Tensor, dim: int | None, members: int) -> Tensor:
    """The tensor with its member axis first; one that all members use is expanded, not copied."""
    return tensor.expand(members, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
