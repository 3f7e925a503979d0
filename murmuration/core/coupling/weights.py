"""Weight space: the parameters themselves (weight-RDE, D'Angelo and Fortuin 2021; SVGD, Liu and Wang 2016)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from murmuration.core.coupling.space import OWN_WEIGHTS, Space, SpaceInputs


@dataclass(frozen=True)
class WeightSpace(Space):
    """A member's own parameters as one vector, (m, 1, P).

    Attributes:
        estimator: Name of the estimator.
        bandwidth: Name of the kernel bandwidth.
    """

    mixable: ClassVar[bool] = True
    separable: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        return frozenset((OWN_WEIGHTS,))

    def features(self, inputs: SpaceInputs) -> Tensor:
        return torch.cat([inputs.weights[name].flatten(1) for name in sorted(inputs.own)], dim=1).unsqueeze(1)
