"""Operators on many members at once: on tensors with a leading member axis, and under `torch.func.vmap`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.streams import Noise, normals
from murmuration.weights.dropout_masks import masked


class NotDirect(Exception):  # noqa: N818 - a finding, not a mistake
    """The module uses an operator that is not known to accept a member axis."""


def mapped_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear` under vmap; on inputs with more than one batch axis vmap's own rule is right."""
    if x.dim() != 2:
        return F.linear(x, weight, bias)
    made: Tensor = MappedLinear.apply(x, weight) if bias is None else MappedLinear.apply(x, weight, bias)
    return made


def batched_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (m, B, I) times each member's weight (m, O, I), plus its bias (m, O): (m, B, O); weights may be one for all.

    Own weights are computed as W x^T and returned as a view of (m, O, B): then the next layer needs no transposition,
    the weight's gradient comes out in the weight's own layout, and the bias is summed along contiguous memory.
    """
    if x.dim() != 3:
        raise NotDirect("linear on more than one batch axis")
    if weight.dim() == 2:  # all members' examples are one batch for it
        if bias is None or bias.dim() == 1:
            return F.linear(x, weight, bias)
        return F.linear(x, weight) + bias.unsqueeze(1)
    if bias is None:
        return torch.bmm(weight, x.mT).mT
    return torch.baddbmm(bias.unsqueeze(-1), weight, x.mT).mT  # one for all broadcasts: (O, 1)


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
        inputs = _lead(x, in_dims[0], info.batch_size)
        kernel = weight if in_dims[1] is None else weight.movedim(in_dims[1], 0)
        if bias is None or in_dims[2] is None:
            return batched_linear(inputs, kernel, bias), 0
        return batched_linear(inputs, kernel, bias.movedim(in_dims[2], 0)), 0


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


class MappedNormals(torch.autograd.Function):
    """Standard normal numbers like a tensor, with one noise stream a member.

    A second tensor, which is not looked at, has a member axis: what all members share gets noise of each one's own.
    """

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
    """The tensor with its member axis first; one that all members use is expanded, not copied."""
    return tensor.expand(members, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
