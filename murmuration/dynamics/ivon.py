"""Improved variational online Newton (Shen et al. 2024): Gaussian weights, stored in as many numbers as Adam stores.

It moves pairs of tensors, means and standard deviations. With N examples (`ess`), a curvature h of a weight and the
decay d, the weight is N(mean, 1 / (N (h + d))): the spread is the curvature, and nothing else is stored. Each step is

    f    = (dL/dstd) / std                                     what the noise of the pass says of the curvature
    h    <- b2 h + (1 - b2) f + (1 - b2)^2 (h - f)^2 / (2 (h + d))
    m    <- b1 m + (1 - b1) dL/dmean
    mean <- mean - lr clip((h0 + d) / (h + d) (m / (1 - b1^t) + d mean))

f is the published N (w - mean) g (h + d): a weight w = mean + std eps has dL/dstd = g eps, and std^2 = 1 / (N (h + d)).
Written this way it serves every way of drawing weights. The decay is a prior N(0, 1 / (N d)) on every weight, so no
cost of complexity is added to the loss.

As published, h0 = 1 and steps are as long as they come: write `ivon:curvature=1,clip=inf`. Weights then begin with the
standard deviation 1 / sqrt(N), which drowns those of a network that is to learn from a hundred examples, and steep
losses, such as that of a number with its noise, send means away. Here they begin with the same `std` whatever N is, and
`clip` bounds a step (the published bound is this one divided by h0 + d). With b2 so near to 1 spreads change little in
a few thousand steps: they are mostly what they began as, and a larger `forget` lets data decide.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from murmuration.dynamics.optimisers import Moments
from murmuration.errors import Misuse


@dataclass(frozen=True)
class Ivon:
    """What can be written after `ivon:`; tensors that are not distributions are left to the plan's optimiser."""

    moves_std: ClassVar[bool] = True  # standard deviations are moved here, by the prior that the decay is
    pace: float = 20.0  # of the learning rate: 0.1 where others move at 0.005
    std: float = 0.01  # that weights begin with: h0 = 1 / (N std^2) - d
    curvature: float = 0.0  # h0 itself; 0: as std says
    decay: float = 1e-4  # d
    momentum: float = 0.9  # b1
    forget: float = 1e-5  # 1 - b2
    clip: float = 0.03  # the longest step, before the learning rate
    ess: float = 0.0  # N, the effective number of examples; 0: as many as are trained on

    def __post_init__(self) -> None:
        positive = {name: getattr(self, name) for name in ("pace", "std", "decay", "clip")}
        for name, value in positive.items():
            if not value > 0 or (value == math.inf and name != "clip"):
                raise Misuse(f"{name}={value}: need a positive number such as {getattr(Ivon, name):g}")
        if not 0 <= self.momentum < 1 or not 0 < self.forget < 1:
            raise Misuse(f"momentum={self.momentum}, forget={self.forget}: need shares below 1, such as 0.9 and 1e-05")
        if not 0 <= self.ess < math.inf or not 0 <= self.curvature < math.inf:
            raise Misuse(
                f"ess={self.ess}, curvature={self.curvature}: need numbers that are not negative; 0 for the usual"
            )

    def among(self, examples: int) -> "Ivon":
        """The same where so many examples are trained on."""
        return self if self.ess else replace(self, ess=float(examples))

    @property
    def first_std(self) -> float:
        """The standard deviation that weights begin with."""
        return 1 / math.sqrt(self.ess * (self.curvature + self.decay)) if self.curvature else self.std

    def moments(self, parameters: dict[str, Tensor]) -> Moments:
        """Zero momentum for the means, the first half of the parameters; standard deviations need none."""
        means = list(parameters.items())[: len(parameters) // 2]
        return {"momentum": {name: torch.zeros_like(mean) for name, mean in means}}

    def update(
        self, parameters: list[Tensor], gradients: list[Tensor], moments: list[list[Tensor]], lr: float, taken: int
    ) -> None:
        """Move means and standard deviations, first all of the one and then all of the other, in place."""
        half = len(parameters) // 2
        means, stds, momenta = parameters[:half], parameters[half:], moments[0]
        self._narrow(stds, gradients[half:])
        torch._foreach_lerp_(momenta, gradients[:half], 1 - self.momentum)
        along = torch._foreach_div(momenta, 1 - self.momentum ** (taken + 1))
        torch._foreach_add_(along, means, alpha=self.decay)
        torch._foreach_mul_(along, stds)
        torch._foreach_mul_(along, stds)
        torch._foreach_mul_(along, 1 / self.first_std**2)  # so far times (h0 + d) / (h + d)
        if self.clip < math.inf:
            torch._foreach_clamp_min_(along, -self.clip)
            torch._foreach_clamp_max_(along, self.clip)
        torch._foreach_add_(means, along, alpha=-lr)

    def _narrow(self, stds: list[Tensor], widenings: list[Tensor]) -> None:
        """Update h where it is stored, in the standard deviations.

        With r = (1 - b2) (h - f) / (h + d) the update is h + d <- (h + d) (1 - r + r^2 / 2). The bracket is
        ((1 - r)^2 + 1) / 2, so h + d at most halves, and what is stored stays positive whatever the gradient is.
        """
        left = torch._foreach_add(widenings, stds, alpha=self.decay)
        torch._foreach_mul_(left, stds)
        torch._foreach_mul_(left, self.forget * self.ess)  # (1 - b2) (f + d) / (h + d)
        torch._foreach_add_(left, 1 - self.forget)  # 1 - r
        torch._foreach_mul_(left, left)
        torch._foreach_add_(left, 1.0)
        torch._foreach_mul_(left, 0.5)
        torch._foreach_sqrt_(left)
        torch._foreach_div_(stds, left)
