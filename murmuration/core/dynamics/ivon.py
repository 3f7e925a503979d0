"""Improved variational online Newton (Shen et al. 2024): Gaussian weights at the memory cost of Adam.

It moves pairs of tensors, means and standard deviations. With N examples (`ess`), a Hessian estimate h of a weight and
the weight decay d, the weight is N(mean, 1 / (N (h + d))): the standard deviation stores h. Each step is

    f    = (dL/dstd) / std                                     gradient estimate of the Hessian
    h    <- b2 h + (1 - b2) f + (1 - b2)^2 (h - f)^2 / (2 (h + d))
    m    <- b1 m + (1 - b1) dL/dmean
    mean <- mean - lr clip((h0 + d) / (h + d) (m / (1 - b1^t) + d mean))

f is the published N (w - mean) g (h + d): a weight w = mean + std eps has dL/dstd = g eps, and std^2 = 1 / (N (h + d)).
Written this way it serves every way of drawing weights. The decay is a prior N(0, 1 / (N d)) on every weight, so no
cost of complexity is added to the loss.

As published, h0 = 1 and steps are not clipped: write `ivon:hess_init=1,clip=inf`. Weights then begin with the standard
deviation 1 / sqrt(N), which is larger than the weights of a network trained on a hundred examples, and steep losses,
such as a Gaussian likelihood with learned noise, make the means diverge. Here weights begin with the same `std` for
every N, and `clip` bounds a step (the published bound is this one divided by h0 + d). With b2 = 1 - hess_lr this close
to 1, standard deviations change little in a few thousand steps; with a larger `hess_lr` they adapt to the data.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from murmuration.core.dynamics.base import Claim, Dynamics, OptState, StepTime, Tensors
from murmuration.core.weights.gaussian import STD_PARAM, distribution_names
from murmuration.system.errors import Misuse


@dataclass(frozen=True)
class Ivon(Dynamics):
    """IVON for Gaussian weights; deterministic tensors are moved by the optimizer.

    Attributes:
        lr_multiplier: Multiplier of the plan's learning rate: 0.1 for the usual 0.005.
        std: Initial standard deviation; h0 = 1 / (N std^2) - d.
        hess_init: h0 itself; 0 to derive it from `std`.
        decay: Weight decay d.
        momentum: b1.
        hess_lr: 1 - b2.
        clip: Bound of a step, before the learning rate.
        ess: Effective sample size N; 0 for the number of training examples.
    """

    moves_std: ClassVar[bool] = True

    lr_multiplier: float = 20.0
    std: float = 0.01
    hess_init: float = 0.0
    decay: float = 1e-4
    momentum: float = 0.9
    hess_lr: float = 1e-5
    clip: float = 0.03
    ess: float = 0.0

    def __post_init__(self) -> None:
        positive = {name: getattr(self, name) for name in ("lr_multiplier", "std", "decay", "clip")}
        for name, value in positive.items():
            if not value > 0 or (value == math.inf and name != "clip"):
                raise Misuse(f"{name}={value}: need a positive number such as {getattr(Ivon, name):g}")
        momentum, hess_lr, ess, hess_init = self.momentum, self.hess_lr, self.ess, self.hess_init
        if not 0 <= momentum < 1 or not 0 < hess_lr < 1:
            raise Misuse(f"{momentum=!s}, {hess_lr=!s}: need numbers below 1, such as 0.9 and 1e-05")
        if not 0 <= ess < math.inf or not 0 <= hess_init < math.inf:
            raise Misuse(f"{ess=!s}, {hess_init=!s}: need numbers that are not negative; 0 for the usual")

    def prepare(self, examples: int) -> "Ivon":
        return self if self.ess else replace(self, ess=float(examples))

    def initial_std(self) -> float:
        return 1 / math.sqrt(self.ess * (self.hess_init + self.decay)) if self.hess_init else self.std

    def prior_std(self) -> float:
        return 1 / math.sqrt(self.ess * self.decay)

    def claim(self, tensors: dict[str, Tensor]) -> list[Claim]:
        means = distribution_names(tensors)
        pairs = dict.fromkeys([*means, *(name + STD_PARAM for name in means)])
        return [(pairs, self, self.lr_multiplier)] if means else []

    def init(self, parameters: dict[str, Tensor]) -> OptState:
        """Return zero momentum for the means, the first half of the parameters; standard deviations need none."""
        means = list(parameters.items())[: len(parameters) // 2]
        return {"momentum": {name: torch.zeros_like(mean) for name, mean in means}}

    def update(self, parameters: Tensors, gradients: Tensors, state: list[Tensors], when: StepTime) -> None:
        """Move means and standard deviations in place; the first half of `parameters` are the means.

        Standard deviations store h. With r = (1 - b2) (h - f) / (h + d) its update is
        h + d <- (h + d) (1 - r + r^2 / 2). The bracket is ((1 - r)^2 + 1) / 2, so h + d at most halves, and the stored
        value stays positive for any gradient.
        """
        half = len(parameters) // 2
        means, stds, momenta = parameters[:half], parameters[half:], state[0]
        factors = torch._foreach_add(gradients[half:], stds, alpha=self.decay)
        torch._foreach_mul_(factors, stds)
        torch._foreach_mul_(factors, self.hess_lr * self.ess)  # (1 - b2) (f + d) / (h + d)
        torch._foreach_add_(factors, 1 - self.hess_lr)  # 1 - r
        torch._foreach_mul_(factors, factors)
        torch._foreach_add_(factors, 1.0)
        torch._foreach_mul_(factors, 0.5)
        torch._foreach_sqrt_(factors)
        torch._foreach_div_(stds, factors)
        torch._foreach_lerp_(momenta, gradients[:half], 1 - self.momentum)
        steps = torch._foreach_div(momenta, 1 - self.momentum ** (when.updates + 1))
        torch._foreach_add_(steps, means, alpha=self.decay)
        torch._foreach_mul_(steps, stds)
        torch._foreach_mul_(steps, stds)
        torch._foreach_mul_(steps, 1 / self.initial_std() ** 2)  # so far times (h0 + d) / (h + d)
        if self.clip < math.inf:
            torch._foreach_clamp_min_(steps, -self.clip)
            torch._foreach_clamp_max_(steps, self.clip)
        torch._foreach_add_(means, steps, alpha=-when.lr)
