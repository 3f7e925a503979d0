"""Operators on many members at once: on tensors with a leading member axis, and under `torch.func.vmap`."""

from collections.abc import Callable, Container, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.core.weights.dropout_masks import apply_dropout
from murmuration.system.streams import Noise, normals


class UnsupportedOp(Exception):  # noqa: N818 - caught by engines, which then use vmap
    """The module uses an operator that is not known to accept a member axis."""


def vmap_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Run `F.linear` under vmap; inputs with more than one batch axis use vmap's own rule."""
    if x.dim() != 2:
        return F.linear(x, weight, bias)
    return VmapLinear.apply(x, weight) if bias is None else VmapLinear.apply(x, weight, bias)


def batched_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply x (m, B, I) by each member's weight (m, O, I) and add its bias (m, O): (m, B, O); shared ones lack m.

    With own weights and gradients W x^T is computed and returned as a view of (m, O, B): then the next layer needs no
    transposition, the weight's gradient has the weight's memory layout, and the bias is summed along contiguous memory.
    Without gradients x W^T is as fast, and faster on a few inputs.
    """
    if x.dim() < 3:
        raise UnsupportedOp("linear on one example")
    if x.dim() > 3:  # further axes are one more batch
        return batched_linear(x.flatten(1, -2), weight, bias).unflatten(1, x.shape[1:-1])
    if weight.dim() == 2:  # shared: the examples of all members are one batch
        if bias is None or bias.dim() == 1:
            return F.linear(x, weight, bias)
        return F.linear(x, weight) + bias.unsqueeze(1)
    if not torch.is_grad_enabled():  # a shared bias broadcasts: (1, O)
        return torch.bmm(x, weight.mT) if bias is None else torch.baddbmm(bias.unsqueeze(-2), x, weight.mT)
    if bias is None:
        return torch.bmm(weight, x.mT).mT
    return torch.baddbmm(bias.unsqueeze(-1), weight, x.mT).mT  # a shared bias broadcasts: (O, 1)


def flatten_members(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Run `torch.flatten` on each member's tensor, whose axis 1 is axis 2 of x (m, B, ...)."""
    if not (start_dim >= 1 or 1 <= start_dim + x.dim() < x.dim()):
        raise UnsupportedOp(f"flatten from axis {start_dim}")
    return torch.flatten(x, start_dim + (start_dim > 0), end_dim if end_dim < 0 else end_dim + 1)


def elementwise(func: Callable, args: Sequence[Any], own: Container[int], shared: Container[int]) -> Tensor:
    """Run an elementwise operator on activations (m, B, ...) of one rank, own and shared tensors, and numbers.

    Own and shared tensors are recognised by their ids. They broadcast over the axes of examples.
    """
    tensors = [t for t in args if isinstance(t, Tensor)]
    ranks = {t.dim() for t in tensors if id(t) not in own and id(t) not in shared}
    if len(ranks) != 1 or min(ranks) < 3:
        raise UnsupportedOp("an elementwise operator without activations, or on several ranks of them")
    (rank,) = ranks
    if any(t.dim() > rank - (id(t) in shared) for t in tensors):
        raise UnsupportedOp("an elementwise operator on parameters of more axes than activations have")

    def placed(t: Any) -> Any:
        if not isinstance(t, Tensor) or id(t) not in own:
            return t
        return t.reshape(len(t), *(1,) * (rank - t.dim()), *t.shape[1:])

    return func(*map(placed, args))


def matmul(a: Tensor, b: Tensor, own: Container[int], shared: Container[int]) -> Tensor:
    """Return `a @ b` of activations (m, ...) and a parameter: own, of the same rank, or shared, of lower rank."""
    parameters = [t for t in (a, b) if id(t) in own or id(t) in shared]
    if len(parameters) != 1 or min(a.dim(), b.dim()) < 2:
        raise UnsupportedOp("a product of two parameters or of two activations")
    (parameter,) = parameters
    rank = (b if parameter is a else a).dim()
    if rank < 3 or (parameter.dim() != rank if id(parameter) in own else parameter.dim() >= rank):
        raise UnsupportedOp("a product whose batch axes are not those of the activations")
    return torch.matmul(a, b)


def exchange(x: Tensor, first: int, second: int) -> Tensor:
    """Transpose axes that are counted from the end; axis 0 is the members'."""
    if not (first < 0 and second < 0 and min(first, second) + x.dim() > 0):
        raise UnsupportedOp(f"a transposition of the axes {first} and {second}")
    return x.transpose(first, second)


def select_last(x: Tensor, index: Any) -> Tensor:
    """Return `x[..., places]` of activations (m, B, ..., C) for a list of places on the last axis.

    Rows (m, B, C) are selected as a view of (m, C, B), several times faster, the layout in which `batched_linear` needs
    no transposition; inputs that members have in common, once.
    """
    if not (isinstance(index, tuple) and len(index) == 2 and index[0] is ... and isinstance(index[1], list)):
        raise UnsupportedOp("an index of other axes than the last")
    if x.dim() != 3 or x.requires_grad:
        return x[index]
    places = torch.tensor(index[1], device=x.device)
    rows = x[:1] if x.stride(0) == 0 else x
    return rows.mT.contiguous().index_select(1, places).mT.expand(len(x), -1, -1)


class VmapLinear(torch.autograd.Function):
    """`F.linear` whose batching rule is one `baddbmm` instead of a broadcast product and a sum."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
        inputs = _lead(x, in_dims[0], info.batch_size)
        kernel = weight if in_dims[1] is None else weight.movedim(in_dims[1], 0)
        bias = bias if bias is None or in_dims[2] is None else bias.movedim(in_dims[2], 0)
        return batched_linear(inputs, kernel, bias), 0


class VmapDropout(torch.autograd.Function):
    """Dropout with one noise stream per member.

    The second tensor, whose values are not used, has a member axis, so that vmap also draws for every member where x
    is shared.
    """

    @staticmethod
    def forward(x: Tensor, _: Tensor, func: Callable, noise: Sequence[Noise], arguments: dict[str, Any]) -> Tensor:
        return apply_dropout(func, noise, {**arguments, "input": x})

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: Tensor, _: Tensor, func: Callable, noise: Sequence[Noise], arguments: dict
    ) -> Any:
        lead = _lead(x, in_dims[0], info.batch_size)
        return apply_dropout(func, noise, {**arguments, "input": lead}, stacked=True), 0


class VmapNormals(torch.autograd.Function):
    """Standard normal numbers like a tensor, with one noise stream per member; the second tensor as above."""

    @staticmethod
    def forward(like: Tensor, _: Tensor, noise: Sequence[Noise], rough: bool = False) -> Tensor:
        return noise[0].normal(like, rough)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, like: Tensor, _: Tensor, noise: Sequence[Noise], rough: bool = False) -> Any:
        return normals(noise, _lead(like, in_dims[0], info.batch_size), rough), 0


def _lead(tensor: Tensor, dim: int | None, members: int) -> Tensor:
    """Return the tensor with its member axis first; a shared one is expanded, not copied."""
    return tensor.expand(members, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
