"""Plain training: SGD with momentum or Nesterov momentum, Adam, or any `torch.optim.Optimizer`; the last weights stay.

The built-in rules call the functional forms that `torch.optim` itself is made of, fused where the device has it. A list
of tensors may hold stacks (M, ...) or one member's views: the update is element by element. An optimizer of the
caller's own need not be, so it moves one member at a time, on the engines that run members one by one.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import softshrink
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from murmuration.core.dynamics.base import OptState, StepTime
from murmuration.core.flat_buffers import CACHE_LINE, pack
from murmuration.system.errors import Misuse, unknown

Decay = Literal["coupled", "decoupled"]
FUSED = ("cpu", "cuda")  # devices with fused kernels
ADAMW_DECAY = 0.01  # as in torch


@dataclass(frozen=True)
class Optimizer:
    """A built-in update rule; `weight_decay` acts through the gradient (coupled) or on the weight itself (decoupled).

    `l1` is applied by the training step, which knows the kernels (`shrink`).
    """

    name: str
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decay: Decay = "coupled"
    l1: float = 0.0

    def init(self, parameters: dict[str, Tensor]) -> OptState:
        """Zero moments for the parameters."""
        kinds = ("mean", "square") if self.name == "adam" else ("velocity",)
        return {kind: pack({name: torch.zeros_like(p) for name, p in parameters.items()}) for kind in kinds}

    def update(
        self, parameters: list[Tensor], gradients: list[Tensor], state: list[list[Tensor]], when: StepTime
    ) -> None:
        """Move the parameters in place."""
        # The fused kernels walk through memory: a gradient must be laid out as its parameter is.
        gradients = [laid_out_like(p, g) for p, g in zip(parameters, gradients, strict=True)]
        kinds, whole = [parameters, gradients, *state], when.members > 1 and parameters[0].device.type == "cpu"
        with whole_vectors(kinds) if whole else nullcontext(kinds) as (parameters, gradients, *state):
            if self.name == "adam":
                self._adam(parameters, gradients, state, when.lr, when.updates)
            else:
                self._sgd(parameters, gradients, state, when.lr)

    def _adam(
        self, parameters: list[Tensor], gradients: list[Tensor], state: list[list[Tensor]], lr: float, taken: int
    ) -> None:
        known: dict[str, Any] = {"amsgrad": False, "maximize": False, "lr": lr, "eps": self.eps}
        known |= {"beta1": self.betas[0], "beta2": self.betas[1], "weight_decay": self.weight_decay}
        decoupled, device = self.decay == "decoupled", parameters[0].device
        fused = device.type in FUSED  # such a kernel reads the counts of steps where the parameters are
        if fused and len({(each.device, each.dtype) for each in parameters}) == 1:  # what `adam` would call
            update = torch._fused_adamw_ if decoupled else torch._fused_adam_
            count = torch.full((), taken + 1.0, device=device)
            update(parameters, gradients, state[0], state[1], [], [count] * len(parameters), **known)
            return
        counts = list(torch.full((len(parameters),), float(taken), device=device if fused else None).unbind())
        known |= {"fused": fused, "decoupled_weight_decay": decoupled}
        adam(parameters, gradients, state[0], state[1], [], counts, **known)

    def _sgd(self, parameters: list[Tensor], gradients: list[Tensor], state: list[list[Tensor]], lr: float) -> None:
        coupled = self.decay == "coupled"
        if not coupled and self.weight_decay:
            torch._foreach_mul_(parameters, 1 - lr * self.weight_decay)
        sgd(
            parameters,
            gradients,
            list(state[0]),
            fused=parameters[0].device.type in FUSED,
            weight_decay=self.weight_decay if coupled else 0.0,
            momentum=self.momentum,
            lr=lr,
            dampening=0.0,
            nesterov=self.name == "nesterov",
            maximize=False,
        )


def shrink(parameters: list[Tensor], by: float) -> None:
    """Move parameters towards zero, in place, by so much and no further: sign(w) max(abs(w) - by, 0).

    The proximal step of an L1 norm of weight `by` over the learning rate. Following the norm's gradient instead never
    makes a weight exactly zero.

    >>> weights = torch.tensor([0.3, -0.05])
    >>> shrink([weights], 0.1)
    >>> weights
    tensor([0.2000, -0.0000])
    """
    for parameter in parameters:
        parameter.copy_(softshrink(parameter, by))


@contextmanager
def whole_vectors(kinds: list[list[Tensor]]) -> Iterator[list[list[Tensor]]]:
    """Parameters, gradients and moments of which each tensor fills whole vectors of the CPU; changes are copied back.

    The fused kernels round the last entries of a tensor, which do not fill a vector, otherwise than the ones before.
    These would be entries of one member in a stack of so many and of another in a larger one: the bits of a member
    would depend on the number of members. So the tensors that do not fit are joined into one that does.
    """
    line = CACHE_LINE // kinds[0][0].element_size()
    odd = [place for place, tensor in enumerate(kinds[0]) if tensor.numel() % line]
    if not odd:
        yield kinds
        return
    whole = [place for place in range(len(kinds[0])) if place not in odd]
    sizes = [kinds[0][place].numel() for place in odd]
    filling = kinds[0][0].new_zeros(-sum(sizes) % line)
    joined = [torch.cat([*(tensors[place].reshape(-1) for place in odd), filling]) for tensors in kinds]
    yield [[*(tensors[place] for place in whole), flat] for tensors, flat in zip(kinds, joined, strict=True)]
    for tensors, flat in zip(kinds, joined, strict=True):
        if tensors is not kinds[1]:  # gradients are not read again
            for place, part in zip(odd, flat.split([*sizes, len(filling)]), strict=False):
                tensors[place].copy_(part.view(tensors[place].shape))


def laid_out_like(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with the strides of its parameter.

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
    """The named optimizer; weight decay is that of torch's optimizer of this name, unless `decay` says otherwise.

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
Memory = dict[int, list[dict[str, Any]]]  # member -> the optimizer's state of each of its tensors


@dataclass(frozen=True)
class TorchOptimizer:
    """A `torch.optim.Optimizer` of the caller's own, such as `functools.partial(torch.optim.RMSprop, alpha=0.9)`.

    It is called as `factory(parameters, lr=lr)` for the tensors of one member, and makes one step. The state that it
    keeps for each tensor is handed back at the next step, so that it can be stored with a checkpoint.
    """

    factory: Factory

    def update_member(
        self, member: int, tensors: dict[str, Tensor], gradients: list[Tensor], lrs: list[float], memory: Memory
    ) -> None:
        """Move the tensors of one member in place, each at its own learning rate; `memory` is changed."""
        leaves = [tensor.detach() for tensor in tensors.values()]
        for leaf, gradient in zip(leaves, gradients, strict=True):
            leaf.requires_grad_()
            leaf.grad = laid_out_like(leaf, gradient)
        groups = [
            {"params": [leaf for leaf, own in zip(leaves, lrs, strict=True) if own == lr], "lr": lr}
            for lr in dict.fromkeys(lrs)
        ]
        optimizer = self.factory(groups, lr=lrs[0])
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise Misuse(f"optimizer made a {type(optimizer).__name__}: need a function that makes a torch optimizer")
        for leaf, state in zip(leaves, memory.get(member, []), strict=False):
            optimizer.state[leaf] = state
        with torch.enable_grad():
            optimizer.step()
        memory[member] = [dict(optimizer.state[leaf]) for leaf in leaves]
