"""Divergence from the ensemble (RIDE, Wang et al. 2021): every member is rewarded for differing from the mean member.

With logits z_i of member i, their mean z over members and a temperature T, the loss of a batch gains

    - weight T^2 mean over examples of KL(softmax(z / T) || softmax(z_i / T))

where the mean is held constant, as in the released code. Its gradient by z_i is - weight T (p_i - p) / B, with the two
softmaxes p_i and p.
"""

import math
from dataclasses import dataclass, field

from torch import Tensor

from murmuration.core.coupling.estimators import Interaction
from murmuration.core.coupling.space import Space, SpaceInputs
from murmuration.system.errors import Misuse
from murmuration.system.option_text import FIXED


@dataclass(frozen=True)
class DivergenceSpace(Space):
    """Logits on the batch, (m, B, K); class distributions are pushed away from that of the mean logits.

    Attributes:
        estimator: Not used; the cotangents have a closed form.
        bandwidth: Not used.
        temperature: Temperature T of the softmax, positive.
    """

    estimator: str = field(default="kde", metadata=FIXED)
    bandwidth: str = field(default="all", metadata=FIXED)
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature < math.inf:
            raise Misuse(f"temperature={self.temperature:g}: expected a positive number such as 1")

    def features(self, inputs: SpaceInputs) -> Tensor:
        if inputs.y.is_floating_point():
            raise Misuse("coupling divergence is for classes, and the targets are numbers: write coupling outputs")
        return inputs.link(inputs.outputs)

    def repulsion(self, features: Tensor) -> Interaction:
        """Return the cotangents; the similarity of two members is the mean Bhattacharyya coefficient."""
        probs = (features / self.temperature).softmax(-1)  # (M, B, K)
        mean = (features.mean(0) / self.temperature).softmax(-1)
        roots = probs.sqrt().flatten(1)
        matrix = roots @ roots.mT / probs.shape[1]  # (M, M)
        return Interaction(self.temperature / probs.shape[1] * (mean - probs), matrix)
