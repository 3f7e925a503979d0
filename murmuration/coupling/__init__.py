"""Answers to the third question: what do members say to each other?

A coupling sees the members only through their signatures: what each shows the others in some space. It answers with one
cotangent a member, the direction in which the member's signature should not go, and every member pulls its cotangent
back through its own network in the same backward pass as its loss. Signatures of the others count as constants.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Shown:
    """What a group of m members has at hand when it shows itself; all of it differentiable."""

    weights: dict[str, Tensor]  # (m, ...) each, as realised for this step
    x: Tensor  # (m, B, ...) inputs
    y: Tensor  # (m, B, ...) targets
    outputs: Tensor  # (m, B, K)


class Coupling(Protocol):
    """A space and a force in it."""

    def signature(self, shown: Shown) -> Tensor:
        """What each of m members shows, (m, ...), with its graph."""

    def couple(self, signatures: Tensor) -> Tensor:
        """Cotangents (M, ...) of the repulsion, from the detached signatures (M, ...) of all members."""


COUPLINGS: dict[str, Coupling | None] = {"none": None}

__all__ = ["COUPLINGS", "Coupling", "Shown"]
