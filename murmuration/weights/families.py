"""Answers to the second question: what is a weight?

A family turns the stored tensors of some members into the weights that a forward pass uses, and says what that costs
in nats (the complexity term of its objective; none for points).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from murmuration.streams import Noise

Named = dict[str, Tensor]


class Weights(Protocol):
    """A family of weights."""

    def realise(self, own: Named, shared: Named, noise: Sequence[Noise]) -> tuple[Named, Tensor | None]:
        """Weights with a leading axis m for the m members at hand, and their complexity (m,) or None."""


@dataclass(frozen=True)
class Point:
    """A weight is a number."""

    def realise(self, own: Named, shared: Named, noise: Sequence[Noise]) -> tuple[Named, Tensor | None]:
        spread = {name: tensor.expand(len(noise), *tensor.shape) for name, tensor in shared.items()}
        return {**own, **spread}, None


WEIGHTS: dict[str, Weights] = {"point": Point()}
