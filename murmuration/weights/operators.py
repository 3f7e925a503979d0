"""How a plain network runs on somebody else's tensors: one member, or many at once.

A network stays any `nn.Module`. It is called with the members' tensors in place of its own, and while it runs a few of
its operators are intercepted:

- dropout noise its masks from each member's own noise stream, so that a mask does not depend on which engine ran it;
- a kernel with companions acts on scaled inputs, and its outputs are scaled (`acting.py`);
- where input gradients will be differentiated, convolutions, rectifiers and max-pools make this cheap (`twice.py`);
- with many members at once, a linear layer is one batched product.

Two ways lead to many members at once. The *direct* way runs the module once on tensors with a leading member axis; it
is right only for operators that are known to treat that axis as one more batch axis, and refuses all others
(`NotDirect`). The other way is `torch.func.vmap`, which takes nearly any operator at some overhead.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap
from torch.overrides import TorchFunctionMode, resolve_name

from murmuration.streams import Noise, normals
from murmuration.weights.acting import Acting, acting_on
from murmuration.weights.blurring import blurred_by, root
from murmuration.weights.dropout_masks import arguments_of, is_dropout, masked
from murmuration.weights.family import Named, Realised
from murmuration.weights.kernel_trace import LINEARS, widened
from murmuration.weights.layouts import channels_last
from murmuration.weights.stacked import (
    MappedDropout,
    MappedNormals,
    NotDirect,
    batched_linear,
    flatten_behind,
    mapped_linear,
)
from murmuration.weights.structure import Structure
from murmuration.weights.twice import TWICE

POINTWISE = {F.relu, torch.relu, Tensor.relu, F.gelu, F.silu, F.softplus, F.leaky_relu, F.elu, F.selu, F.mish}
POINTWISE |= {torch.tanh, torch.sigmoid, Tensor.tanh, Tensor.sigmoid, F.hardtanh, torch.sin, torch.cos, torch.erf}
COVERING: dict[int, Callable] = {0: F.dropout, 1: F.dropout1d, 2: F.dropout2d, 3: F.dropout3d}
Act = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # input, kernel, bias -> output


def run_members(
    structure: Structure, weights: Realised, x: Tensor, noise: Sequence[Noise], direct: bool, part: str = ""
) -> Tensor:
    """Outputs (m, B, K) of m members, or of one part of each: their weights and buffers on inputs (m, B, ...).

    `noise` holds one stream a member. One member alone runs as the plain module it is.
    """
    own, shared = weights.own, weights.shared
    if len(noise) == 1:
        alone = {**{name: tensor.squeeze(0) for name, tensor in own.items()}, **shared}
        with Intercept(acting_on(alone, weights.spec), noise, twice=x.requires_grad):
            return structure(alone, channels_last(x[0]), part).unsqueeze(0)
    if direct:
        together = {**own, **shared}
        with InterceptDirect(acting_on(together, weights.spec), noise, twice=x.requires_grad):
            return structure(together, x, part)

    def one(mine: Named, ours: Named, inputs: Tensor) -> Tensor:
        alone = {**mine, **ours}
        with InterceptMapped(acting_on(alone, weights.spec), noise):
            return structure(alone, inputs, part)

    return vmap(one, in_dims=(0, None, 0))(own, shared, x)


class Intercept(TorchFunctionMode):
    """One member: dropout, kernels with companions, and what will be differentiated twice."""

    def __init__(self, acting: Acting, noise: Sequence[Noise], twice: bool = False) -> None:
        super().__init__()
        self.acting = acting
        self.noise = noise
        self.twice = twice

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_dropout(func):
            return self.leave_out(func, self.acting.settled(arguments_of(args, kwargs)))
        if func in LINEARS:
            return self.linear(func, *in_order(args, kwargs))
        if self.acting.named and not is_getter(func):
            args, kwargs = self.acting.spell_out(args, kwargs, self.normals)
        return self.other(func, args, kwargs)

    def linear(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Tensor:
        """`op(x * in, K) * out + bias`, or with the bias inside; a kernel without companions acts as it always does."""
        operator = self.operator(func)
        if id(args[1]) not in self.acting.named:
            return operator(*args, **kwargs)
        into, out, rate = self.acting.companions(args[1])
        x, weight, *after = args
        bias, rest = kwargs.pop("bias", after[0] if after else None), after[1:]
        behind = LINEARS[func][0]
        if rate is not None:
            x = self.leave_out(COVERING[behind], {"input": x, "p": rate, "training": True})
        if into is not None:
            x = x * self.spread(into if behind else widened(into, x.shape[-1]), behind)

        def made(beside: Tensor | None) -> Tensor:
            return self.noisy(lambda x, w, b: operator(x, w, b, *rest, **kwargs), x, weight, beside, behind)

        if out is None:
            return made(bias)
        if bias is None or self.acting.spec.bias_inside:
            return made(bias) * self.spread(out, behind)
        scaled = made(None) * self.spread(out, behind)
        return self.blurred(scaled + self.spread(bias, behind), self.acting.biases.get(id(bias)), behind)

    def noisy(self, act: Act, x: Tensor, weight: Tensor, bias: Tensor | None, behind: int) -> Tensor:
        """What a kernel makes of its inputs, with the noise of a distribution if it is one (`gaussian.py`)."""
        variance, delta = self.acting.noise(weight)
        blur = None if bias is None else self.acting.biases.get(id(bias))
        mean = act(x, weight, bias)
        if variance is not None:
            return blurred_by(mean, act(self.squared(x, behind), variance, blur), self.normals(mean, rough=True))
        if delta is not None:
            flips, turns = self.signs(x, behind), self.signs(mean, behind)
            mean = mean + act(x * flips, delta, None) * turns
        return self.blurred(mean, blur, behind)

    def squared(self, x: Tensor, behind: int) -> Tensor:
        """The squares of a kernel's inputs; images stay laid out as they were."""
        return channels_last(x.square()) if behind == 2 else x.square()

    def blurred(self, mean: Tensor, variance: Tensor | None, behind: int) -> Tensor:
        """With the noise of a bias that is a distribution, for every example and channel its own."""
        return mean if variance is None else mean + self.spread(root(variance), behind) * self.by_channel(mean, behind)

    def signs(self, like: Tensor, behind: int) -> Tensor:
        """A random sign for every example and channel of a tensor (..., B, C, *axes)."""
        return torch.where(self.by_channel(like, behind) < 0, -1.0, 1.0).to(like.dtype)  # a draw of zero has no sign

    def by_channel(self, like: Tensor, behind: int) -> Tensor:
        """Standard normal numbers (..., B, C, 1, ...) for a tensor (..., B, C, *axes)."""
        drawn = self.normals(like.flatten(-behind)[..., 0] if behind else like)
        return drawn.reshape(*drawn.shape, *(1,) * behind)

    def normals(self, like: Tensor, rough: bool = False) -> Tensor:
        """Standard normal numbers from the member's stream."""
        return self.noise[0].normal(like, rough)

    def operator(self, func: Callable) -> Callable[..., Tensor]:
        """What takes the place of a linear operator."""
        return TWICE.get(func, func) if self.twice else func

    def spread(self, values: Tensor, behind: int) -> Tensor:
        """Values (C,) as they meet a tensor (..., C, *axes) with so many axes behind the channel."""
        return values.reshape(*values.shape, *(1,) * behind)

    def leave_out(self, func: Callable, arguments: dict[str, Any]) -> Tensor:
        """Dropout with masks from the member's stream."""
        return masked(func, self.noise, arguments)

    def other(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        return self.operator(func)(*args, **kwargs) if args else func(*args, **kwargs)


def in_order(args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a linear operator with input and kernel at the front, however it was called."""
    front = [kwargs[name] for name in ("input", "weight")[len(args) :]]
    return (*args, *front), {name: value for name, value in kwargs.items() if name not in ("input", "weight")}


def is_getter(func: Callable) -> bool:
    """Whether this only asks a tensor for its shape, type or the like."""
    return getattr(func, "__name__", "") in ("__get__", "dim", "size", "numel")


class InterceptDirect(Intercept):
    """Many members on a leading axis, without vmap: every operator must be known."""

    def operator(self, func: Callable) -> Callable[..., Tensor]:
        if func is not F.linear:
            raise NotDirect(resolve_name(func) or str(func))
        return batched_linear

    def spread(self, values: Tensor, behind: int) -> Tensor:
        return values.unsqueeze(1) if values.dim() == 2 else values  # (m, 1, C); one for all stays (C,)

    def leave_out(self, func: Callable, arguments: dict[str, Any]) -> Tensor:
        return masked(func, self.noise, arguments, stacked=True)

    def normals(self, like: Tensor, rough: bool = False) -> Tensor:
        return normals(self.noise, like, rough)

    def other(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        if func in POINTWISE or is_getter(func):
            return super().operator(func)(*args, **kwargs)
        if func in (torch.flatten, Tensor.flatten):
            return flatten_behind(*args, **kwargs)
        raise NotDirect(resolve_name(func) or str(func))


class InterceptMapped(Intercept):
    """Many members under vmap: linear layers become one batched product, dropout noise a mask a member."""

    def operator(self, func: Callable) -> Callable[..., Tensor]:
        return mapped_linear if func is F.linear else func

    def squared(self, x: Tensor, behind: int) -> Tensor:
        return x.square()

    def leave_out(self, func: Callable, arguments: dict[str, Any]) -> Tensor:
        made: Tensor = MappedDropout.apply(arguments["input"], func, self.noise, arguments)
        return made

    def normals(self, like: Tensor, rough: bool = False) -> Tensor:
        made: Tensor = MappedNormals.apply(like, next(iter(self.acting.tensors.values())), self.noise, rough)
        return made
