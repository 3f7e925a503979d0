"""One pass of one member that leaves behind what tangent kernels are made of.

The derivative of an output by a kernel is a sum over positions of (derivative by what the kernel made) times (what the
kernel met), so that both are enough and no derivative of the kernel's size need be kept. Of parameters that scale or
shift channels every example gets a copy, and one backward pass finds all examples' derivatives. Parameters that are
used in any other way are found out beforehand (`understood`) and left to whoever differentiates example by example.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import tree_leaves

from murmuration.errors import Misuse
from murmuration.weights import How, Structure
from murmuration.weights.acting import Acting, acting_on
from murmuration.weights.families import INTO, OUT
from murmuration.weights.masks import is_dropout
from murmuration.weights.operators import Intercept, is_getter
from murmuration.weights.outline import LINEARS, bias_of, widened

FROM_CHANNEL: set[Callable] = {F.batch_norm, F.group_norm}  # scales stand at axis 1, in the others at the last axes
NORMS: set[Callable] = FROM_CHANNEL | {F.layer_norm, F.rms_norm}
PLAIN = ("stride", "padding", "dilation", "groups")  # what follows the bias of a convolution
TRANSPOSED = ("stride", "padding", "output_padding", "groups", "dilation")


@dataclass(frozen=True)
class Window:
    """How a convolution moves over its input, or a transposed one over its output."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]  # before and after, an axis each
    groups: int
    transposed: bool


@dataclass(frozen=True)
class Use:
    """One use of a kernel: what it met, and where the derivative by what it made passes in a backward pass."""

    met: Tensor  # (n, ..., I), of a convolution (n, I, *axes)
    edge: GradientEdge
    made: torch.Size
    window: Window | None  # of a convolution


@dataclass(frozen=True)
class Trace:
    """One member's pass over n inputs: outputs (n, K), uses of its kernels, and every example's copies of the rest."""

    outputs: Tensor
    uses: dict[str, list[Use]]
    copies: dict[str, Tensor]  # (n, ...) each


def trace(
    structure: Structure, tensors: Mapping[str, Tensor], how: How, x: Tensor, parameters: frozenset[str]
) -> Trace:
    """The pass of a member over x (n, ...), ready to be differentiated by these parameters."""
    with torch.enable_grad(), Recording(acting_on(tensors, how), tensors, len(x), parameters) as recording:
        outputs = structure(tensors, x)
    return Trace(flat_outputs(outputs), recording.uses, recording.copies)


def flat_outputs(outputs: Tensor) -> Tensor:
    """Outputs (n, K), whatever the shape of an example's outputs is."""
    return outputs.reshape(len(outputs), -1)


def understood(
    structure: Structure, tensors: Mapping[str, Tensor], how: How, x: Tensor, parameters: frozenset[str]
) -> frozenset[str]:
    """Those of the parameters that a `trace` can differentiate by.

    All their uses must be known ones, with examples along the first axis: two passes, of two and of three examples,
    tell that axis from others that have the same length by chance.
    """
    strange: set[str] = set()
    sightings = []
    for count in (2, 3):
        few = x[:1].expand(count, *x.shape[1:])
        with torch.no_grad(), Recording(acting_on(tensors, how), tensors, count, frozenset()) as recording:
            structure(tensors, few)
        strange |= recording.strange
        sightings.append(recording.sightings)
    if len(sightings[0]) != len(sightings[1]):  # what runs depends on how many examples there are
        return frozenset()
    for (names, two), (_, three) in zip(*sightings, strict=True):
        if (two[:1], three[:1]) != ((2,), (3,)) or two[1:] != three[1:]:
            strange |= names
    return parameters - strange


class Recording(Intercept):
    """One member, watched: notes what kernels meet, and gives every example its copy of the parameters asked for."""

    def __init__(
        self, acting: Acting, tensors: Mapping[str, Tensor], examples: int, parameters: frozenset[str]
    ) -> None:
        super().__init__(acting, noise=())
        self.names = {id(tensor): name for name, tensor in tensors.items()}
        self.examples, self.parameters = examples, parameters
        self.uses: dict[str, list[Use]] = {}
        self.copies: dict[str, Tensor] = {}
        self.strange: set[str] = set()  # names that an unknown operator met
        self.sightings: list[tuple[set[str], tuple[int, ...]]] = []  # who was used together on an input of which shape

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in NORMS:
            return self.normalise(func, signature(func).bind(*args, **kwargs).arguments)
        if not (func in LINEARS and len(args) > 1) and not is_getter(func) and not is_dropout(func):
            self.doubt(args, kwargs)
        return super().__torch_function__(func, types, args, kwargs)

    def linear(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Tensor:
        """`op(x * in, K) * out + bias` or with the bias inside, as it always is, noting what the kernel meets."""
        x, weight, *after = args
        bias, rest = kwargs.pop("bias", after[0] if after else None), after[1:]
        into, out = self.acting.companions(weight)[:2] if id(weight) in self.acting.named else (None, None)
        behind, name = LINEARS[func][0], self.names.get(id(weight))
        self.see(x, (weight, bias, into, out), axes=behind + 2 if behind else None)
        x = x if into is None else x * self.each(into, x, behind)
        made = func(x, weight, None, *rest, **kwargs)
        if name in self.parameters:
            made = self.note(name, x, made, window_of(func, weight, rest, kwargs) if behind else None)
        inside = self.acting.how.inside and out is not None
        if bias is not None and inside:
            made = made + self.each(bias, made, behind)
        made = made if out is None else made * self.each(out, made, behind)
        return made if bias is None or inside else made + self.each(bias, made, behind)

    def normalise(self, func: Callable, given: dict[str, Any]) -> Tensor:
        """A normalising layer in two steps, so that examples can have scales and shifts of their own."""
        x, weight, bias = given["input"], given.pop("weight", None), given.pop("bias", None)
        if func is F.batch_norm and given.get("training", False):
            raise Misuse(
                "a batch-norm layer without running statistics mixes examples, so that an output has no tangent kernel"
                " of its own: build it with track_running_stats=True"
            )
        self.see(x, (weight, bias))
        behind = x.dim() - 2 if func in FROM_CHANNEL else 0
        made: Tensor = func(**given)
        made = made if weight is None else made * self.each(weight, made, behind)
        return made if bias is None else made + self.each(bias, made, behind)

    def note(self, name: str, met: Tensor, made: Tensor, window: Window | None) -> Tensor:
        """What a kernel made, its place in the graph noted: the tensor itself may be changed in place later."""
        made = made if made.requires_grad else made.requires_grad_().clone()
        use = Use(met.detach(), get_gradient_edge(made), made.shape, window)
        self.uses.setdefault(name, []).append(use)
        return made

    def each(self, values: Tensor, beside: Tensor, behind: int) -> Tensor:
        """Values as they meet a tensor with so many axes behind the channel, for each example a copy if asked for."""
        name = self.names.get(id(values))
        if name not in self.parameters:
            return self.spread(values if behind else widened(values, beside.shape[-1]), behind)
        if name not in self.copies:
            self.copies[name] = values.detach().expand(self.examples, *values.shape).requires_grad_()
        copies = self.copies[name] if behind else widened(self.copies[name], beside.shape[-1])
        between = beside.dim() - copies.dim() - behind
        return copies.reshape(self.examples, *(1,) * between, *copies.shape[1:], *(1,) * behind)

    def see(self, x: Tensor, used: Sequence[Tensor | None], axes: int | None = None) -> None:
        """Remember who was used on an input of this shape; one without an axis of examples fits no number of them."""
        names = {self.names[id(each)] for each in used if id(each) in self.names}
        missing = x.dim() < 2 or (axes is not None and x.dim() != axes)
        self.sightings.append((names, () if missing else tuple(x.shape)))

    def doubt(self, args: Any, kwargs: Any) -> None:
        """Give up on parameters among the arguments of an unknown operator, and on what is multiplied into them."""
        for value in tree_leaves((args, kwargs)):
            if id(value) in self.names:
                self.strange.add(self.names[id(value)])
            if id(value) in self.acting.named:
                kernel = self.acting.named[id(value)]
                self.strange |= {kernel, kernel + INTO, kernel + OUT, bias_of(kernel)}


def window_of(func: Callable, weight: Tensor, rest: Sequence[Any], kwargs: dict[str, Any]) -> Window:
    """The window of a convolution from the arguments that follow its bias."""
    axes, transposed = LINEARS[func]
    given = {**dict(zip(TRANSPOSED if transposed else PLAIN, rest, strict=False)), **kwargs}
    size = tuple(weight.shape[2:])
    stride, dilation = (spelled(given.get(name, 1), axes) for name in ("stride", "dilation"))
    padding = paddings(given.get("padding", 0), size, dilation)
    return Window(size, stride, dilation, padding, given.get("groups", 1), transposed)


def spelled(value: Any, axes: int) -> tuple[int, ...]:
    """One number an axis."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * axes if len(values) == 1 else values


def paddings(padding: Any, size: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Zeros before and after on each axis; "same" adds the odd one after."""
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, size, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((each, each) for each in spelled(0 if padding == "valid" else padding, len(size)))
