"""Optimisers as functions on lists of tensors: SGD with momentum or Nesterov, Adam.

They call the functional forms that `torch.optim` itself is made of, fused where the device has it. A list may hold
whole stacks (M, ...) or one member's views: the update is element by element, so the member axis needs no care.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import softshrink
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from murmuration.errors import Misuse, unknown

Moments = dict[str, dict[str, Tensor]]  # moment name -> parameter name -> tensor of the parameter's shape
Decay = Literal["coupled", "decoupled"]


@dataclass(frozen=True)
class Optimiser:
    """One update rule; `weight_decay` acts through the gradient (coupled) or on the weight itself (decoupled).

    `l1` is left to whoever knows which parameters are kernels (`shrink`).
    """

    moves_std: ClassVar[bool] = False
    name: str
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decay: Decay = "coupled"
    l1: float = 0.0

    def moments(self, parameters: dict[str, Tensor]) -> Moments:
        """Zero moments for the parameters."""
        kinds = ("mean", "square") if self.name == "adam" else ("velocity",)
        return {kind: {name: torch.zeros_like(p) for name, p in parameters.items()} for kind in kinds}

    def update(
        self, parameters: list[Tensor], gradients: list[Tensor], moments: list[list[Tensor]], lr: float, taken: int
    ) -> None:
        """Move the parameters in place; `taken` counts the updates these parameters had before."""
        # The fused kernels walk through memory: a gradient must lie in it as its parameter does.
        gradients = [gradient.contiguous() for gradient in gradients]
        if self.name == "adam":
            self._adam(parameters, gradients, moments, lr, taken)
        else:
            self._sgd(parameters, gradients, moments, lr)

    def _adam(
        self, parameters: list[Tensor], gradients: list[Tensor], moments: list[list[Tensor]], lr: float, taken: int
    ) -> None:
        adam(
            parameters,
            gradients,
            moments[0],
            moments[1],
            [],
            list(torch.full((len(parameters),), float(taken)).unbind()),
            fused=parameters[0].device.type in ("cpu", "cuda"),
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=lr,
            weight_decay=self.weight_decay,
            eps=self.eps,
            maximize=False,
            decoupled_weight_decay=self.decay == "decoupled",
        )

    def _sgd(self, parameters: list[Tensor], gradients: list[Tensor], moments: list[list[Tensor]], lr: float) -> None:
        coupled = self.decay == "coupled"
        if not coupled and self.weight_decay:
            torch._foreach_mul_(parameters, 1 - lr * self.weight_decay)
        sgd(
            parameters,
            gradients,
            list(moments[0]),
            fused=parameters[0].device.type in ("cpu", "cuda"),
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


OPTIMISERS = {
    "adam": "Adam (Kingma and Ba 2015); decoupled decay makes it AdamW",
    "sgd": "gradient descent with heavy-ball momentum",
    "nesterov": "gradient descent with Nesterov momentum",
}


def make_optimiser(
    name: str, *, momentum: float = 0.9, weight_decay: float = 0.0, decay: Decay | None = None, l1: float = 0.0
) -> Optimiser:
    """The named optimiser; weight decay must say how it acts, since the two forms differ for Adam.

    >>> make_optimiser("adam", weight_decay=1e-4)
    Traceback (most recent call last):
    murmuration.errors.Misuse: weight_decay=0.0001 without decay: write decay='coupled' (L2) or 'decoupled' (AdamW)
    """
    if name not in OPTIMISERS:
        raise unknown("optimiser", name, OPTIMISERS)
    if weight_decay and decay not in ("coupled", "decoupled"):
        raise Misuse(f"weight_decay={weight_decay} without decay: write decay='coupled' (L2) or 'decoupled' (AdamW)")
    if not 0 <= l1 < math.inf:
        raise Misuse(f"l1={l1}: need a number that is not negative, such as 0.0001")
    return Optimiser(name, momentum=momentum, weight_decay=weight_decay, decay=decay or "coupled", l1=l1)
