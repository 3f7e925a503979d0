"""Answers to the third question: what do members say to each other? See README.md.

A coupling sees the members only through their signatures: what each shows the others in some space. It answers with one
cotangent a member, the direction in which the member's signature should not go, and every member pulls its cotangent
back through its own network in the same backward pass as its loss. Signatures of the others count as constants.
"""

from murmuration.coupling.repelling import Coupling, make_coupling
from murmuration.coupling.settings import ALPHAS, AUTO, COUPLINGS, Repulsion, coupling_named
from murmuration.coupling.spaces import Shown

__all__ = ["ALPHAS", "AUTO", "COUPLINGS", "Coupling", "Repulsion", "Shown", "coupling_named", "make_coupling"]
