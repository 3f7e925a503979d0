"""The kernel matrix of all members' outputs under gradient descent, random inputs and the least eigenvalue."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from murmuration.core.tangent_kernels import average_common
from murmuration.studies.tangent_kernels import MemberKernels
from murmuration.system.errors import Misuse


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def average_kernels(kernels: MemberKernels) -> tuple[Tensor, Tensor, Tensor]:
    """T_d, T_o and Psi, each (n1, n2), as means over members and over pairs."""
    return *average_common(kernels.common), kernels.individual.mean(0)


def least_eigenvalue(matrix: Tensor) -> float:
    """The smallest eigenvalue against the largest in size; 0 for a matrix of zeros."""
    values = torch.linalg.eigvalsh((matrix + matrix.mT) / 2)
    top = values.abs().max().item()
    return values[0].item() / top if top else 0.0


@dataclass(frozen=True)
class Descent:
    """Gradient descent up to `time`: gamma, and the rates mu_w of shared and mu_u of members' own parameters.

    Discrete: `time` steps of these rates. Otherwise the gradient flow until `time`.
    """

    time: float
    gamma: float
    shared_rate: float = 1.0
    own_rate: float = 1.0
    discrete: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.time < math.inf:
            raise Misuse(f"training time {self.time}: give a finite number that is not negative")
        if self.discrete and self.time != int(self.time):
            raise Misuse(f"{self.time} steps of gradient descent: give a whole number, or discrete=False")


def block_matrix(blocks: MemberKernels, descent: Descent) -> Tensor:
    """The kernel (M n1, M n2) of all members' outputs, member after member."""
    members, rows, _, columns = blocks.common.shape
    whole = descent.shared_rate * descent.gamma / members * blocks.common
    each = torch.arange(members)
    whole[each, :, each, :] += descent.own_rate * blocks.individual
    return whole.reshape(members * rows, members * columns)
