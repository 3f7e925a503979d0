"""Plain training: SGD with momentum or Nesterov momentum, Adam, or any `torch.optim.Optimizer`.

The built-in rules call the functional forms behind `torch.optim`, fused if the device supports it. A list of tensors
may hold stacks (M, ...) or one member's views: the update is element by element. A user-defined optimizer need not be,
so it moves one member at a time, on the engines that run members one by one.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import softshrink
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from murmuration.core.dynamics.base import OptState, StepTime, Tensors
from murmuration.core.flat_buffers import CACHE_LINE, pack
from murmuration.system.errors import Misuse, first_line, unknown

Decay = Literal["coupled", "decoupled"]
FUSED = ("cpu", "cuda")  # devices with fused kernels
ADAMW_DECAY = 0.01  # as in torch


@dataclass(frozen=True)
class Optimizer:
    """A built-in update rule.

    Attributes:
        name: "adam", "sgd" or "nesterov".
        momentum: Momentum of SGD.
        betas: Decay rates of Adam's moments.
        eps: Added to Adam's denominator.
        weight_decay: Amount of weight decay.
        decay: Whether weight decay acts through the gradient ("coupled") or on the weight itself ("decoupled").
        l1: Weight of an L1 norm of kernels; applied by the training step (`shrink`), which knows the kernels.
    """

    name: str
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decay: Decay = "coupled"
    l1: float = 0.0

    def init(self, parameters: dict[str, Tensor]) -> OptState:
        """Return zero moments for the parameters."""
        names = ("mean", "square") if self.name == "adam" else ("velocity",)
        return {moment: pack({name: torch.zeros_like(p) for name, p in parameters.items()}) for moment in names}

    def update(self, parameters: Tensors, gradients: Tensors, state: list[Tensors], when: StepTime) -> None:
        """Move the parameters in place."""
        # The fused kernels walk through memory: a gradient must have the layout of its parameter.
        gradients = [laid_out_like(p, g) for p, g in zip(parameters, gradients, strict=True)]
        lists, stacked = [parameters, gradients, *state], when.members > 1 and parameters[0].device.type == "cpu"
        with whole_vectors(lists) if stacked else nullcontext(lists) as (parameters, gradients, *state):
            rule = self._adam if self.name == "adam" else self._sgd
            rule(parameters, gradients, state, when)

    def _adam(self, parameters: Tensors, gradients: Tensors, state: list[Tensors], when: StepTime) -> None:
        options: dict[str, Any] = {"amsgrad": False, "maximize": False, "lr": when.lr, "eps": self.eps}
        options |= {"beta1": self.betas[0], "beta2": self.betas[1], "weight_decay": self.weight_decay}
        decoupled, device = self.decay == "decoupled", parameters[0].device
        fused = device.type in FUSED  # such a kernel reads the counts of steps where the parameters are
        if fused and len({(p.device, p.dtype) for p in parameters}) == 1:  # what `adam` would call
            update = torch._fused_adamw_ if decoupled else torch._fused_adam_
            count = torch.full((), when.updates + 1.0, device=device)
            update(parameters, gradients, state[0], state[1], [], [count] * len(parameters), **options)
            return
        counts = list(torch.full((len(parameters),), float(when.updates), device=device if fused else None).unbind())
        options |= {"fused": fused, "decoupled_weight_decay": decoupled}
        adam(parameters, gradients, state[0], state[1], [], counts, **options)

    def _sgd(self, parameters: Tensors, gradients: Tensors, state: list[Tensors], when: StepTime) -> None:
        coupled = self.decay == "coupled"
        if not coupled and self.weight_decay:
            torch._foreach_mul_(parameters, 1 - when.lr * self.weight_decay)
        options: dict[str, Any] = {"lr": when.lr, "momentum": self.momentum, "dampening": 0.0, "maximize": False}
        options |= {"nesterov": self.name == "nesterov", "weight_decay": self.weight_decay if coupled else 0.0}
        sgd(parameters, gradients, list(state[0]), fused=parameters[0].device.type in FUSED, **options)


def shrink(parameters: Tensors, by: float) -> None:
    """Move parameters towards zero in place: sign(w) max(abs(w) - by, 0).

    This is the proximal step of an L1 norm of weight `by` over the learning rate. Following the norm's gradient instead
    never makes a weight exactly zero.

    >>> weights = torch.tensor([0.3, -0.05])
    >>> shrink([weights], 0.1)
    >>> weights
    tensor([0.2000, -0.0000])
    """
    for parameter in parameters:
        parameter.copy_(softshrink(parameter, by))


@contextmanager
def whole_vectors(lists: list[Tensors]) -> Iterator[list[Tensors]]:
    """Yield parameters, gradients and moments as tensors that fill whole CPU vectors; copy changes back afterwards.

    The fused kernels round the last entries of a tensor, which do not fill a vector, differently from the others. Which
    entries these are depends on the number of stacked members, and so would the bits of a member. Tensors that do not
    fit are therefore concatenated into one that does.
    """
    line = CACHE_LINE // lists[0][0].element_size()
    odd = [index for index, tensor in enumerate(lists[0]) if tensor.numel() % line]
    if not odd:
        yield lists
        return
    even = [index for index in range(len(lists[0])) if index not in odd]
    sizes = [lists[0][index].numel() for index in odd]
    filling = lists[0][0].new_zeros(-sum(sizes) % line)
    flats = [torch.cat([*(tensors[index].reshape(-1) for index in odd), filling]) for tensors in lists]
    yield [[*(tensors[index] for index in even), flat] for tensors, flat in zip(lists, flats, strict=True)]
    for tensors, flat in zip(lists, flats, strict=True):
        if tensors is not lists[1]:  # gradients are not read again
            for index, part in zip(odd, flat.split([*sizes, len(filling)]), strict=False):
                tensors[index].copy_(part.view(tensors[index].shape))


def laid_out_like(parameter: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient with the strides of its parameter.

    >>> weight = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    >>> laid_out_like(weight, torch.zeros(2, 3, 4, 4)).stride() == weight.stride()
    True
    """
    if gradient.stride() == parameter.stride():
        return gradient
    return gradient.contiguous() if parameter.is_contiguous() else torch.empty_like(parameter).copy_(gradient)


OPTIMIZERS = {
    "adam": "Adam (Kingma and Ba 2015)",
    "adamw": "Adam with decoupled weight decay (Loshchilov and Hutter 2019), 0.01 if left out",
    "sgd": "gradient descent with heavy-ball momentum",
    "nesterov": "gradient descent with Nesterov momentum",
}


def make_optimizer(
    name: str, *, momentum: float = 0.9, weight_decay: float | None = None, decay: Decay | None = None, l1: float = 0.0
) -> Optimizer:
    """Make an optimizer; by default weight decay is that of torch's optimizer of this name.

    Args:
        name: A row of `OPTIMIZERS`.
        momentum: Momentum of SGD, from 0 to less than 1.
        weight_decay: Amount of weight decay; None for torch's default.
        decay: "coupled" or "decoupled"; None for torch's convention.
        l1: Weight of an L1 norm of kernels.

    Returns:
        The update rule.

    Raises:
        Misuse: If the name is unknown or a setting is out of range.


    >>> adam, adamw = make_optimizer("adam"), make_optimizer("adamw")
    >>> (adam.weight_decay, adam.decay), (adamw.weight_decay, adamw.decay)
    ((0.0, 'coupled'), (0.01, 'decoupled'))
    """
    if name not in OPTIMIZERS:
        raise unknown("optimizer", name, OPTIMIZERS)
    if not 0 <= momentum < 1:
        raise Misuse(f"momentum={momentum}: need a number from 0 to less than 1, such as 0.9")
    if weight_decay is not None and not 0 <= weight_decay < math.inf:
        raise Misuse(f"weight_decay={weight_decay}: need a number that is not negative, such as 0.01")
    if decay is not None and decay not in get_args(Decay):
        raise unknown("decay", decay, get_args(Decay))
    if not 0 <= l1 < math.inf:
        raise Misuse(f"l1={l1}: need a number that is not negative, such as 0.0001")
    if name != "adamw":
        return Optimizer(name, momentum, weight_decay=weight_decay or 0.0, decay=decay or "coupled", l1=l1)
    if decay == "coupled":
        raise Misuse("optimizer='adamw' with decay='coupled': the decay of adamw is decoupled; write optimizer='adam'")
    amount = ADAMW_DECAY if weight_decay is None else weight_decay
    return Optimizer("adam", momentum, weight_decay=amount, decay="decoupled", l1=l1)


Factory = Callable[..., torch.optim.Optimizer]  # called as factory(parameters, lr=...)
Memory = dict[int, list[dict[str, Any]]]  # member -> the optimizer state of each of its tensors


@dataclass(frozen=True)
class TorchOptimizer:
    """A user-defined `torch.optim.Optimizer`.

    Every step makes one for the tensors of a member, with the state of the last step, which checkpoints store.

    Attributes:
        factory: Called as `factory(parameters, lr=lr)`, such as `functools.partial(torch.optim.RMSprop, alpha=0.9)`.
    """

    factory: Factory
    l1: ClassVar[float] = 0.0

    def update_member(
        self, member: int, tensors: dict[str, Tensor], gradients: list[Tensor], lrs: list[float], memory: Memory
    ) -> None:
        """Move the tensors of one member in place.

        Args:
            member: Index of the member.
            tensors: Its tensors by name.
            gradients: Their gradients, in the same order.
            lrs: Learning rate of each tensor.
            memory: Optimizer states of all members; changed in place.

        Raises:
            Misuse: If the factory does not return a torch optimizer.
        """
        leaves = [tensor.detach() for tensor in tensors.values()]
        for leaf, gradient in zip(leaves, gradients, strict=True):
            leaf.requires_grad_()
            leaf.grad = laid_out_like(leaf, gradient)
        with_lr = list(zip(leaves, lrs, strict=True))
        groups = [{"params": [leaf for leaf, own in with_lr if own == lr], "lr": lr} for lr in dict.fromkeys(lrs)]
        try:
            optimizer = self.factory(groups, lr=lrs[0])
        except Exception as error:  # a function of the caller may raise anything
            problem = f"optimizer raised {type(error).__name__}: {first_line(error)}"
            raise Misuse(f"{problem}; need a function f(params, lr=...) that makes a torch optimizer") from error
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise Misuse(f"optimizer made a {type(optimizer).__name__}: need a function that makes a torch optimizer")
        for leaf, state in zip(leaves, memory.get(member, []), strict=False):
            optimizer.state[leaf] = state
        with torch.enable_grad():
            optimizer.step()
        memory[member] = [dict(optimizer.state[leaf]) for leaf in leaves]
