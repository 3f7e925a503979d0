"""Objectives of connectors that are plain functions of a vector."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from murmuration.studies.landscape import Array


@dataclass(frozen=True)
class FunctionObjective:
    """A differentiable function of a vector as an objective."""

    function: Callable[[Tensor], Tensor]  # (P,) -> ()

    def gradient(self, vector: Tensor, address: int, step: int) -> Tensor:
        point = vector.detach().requires_grad_()
        return torch.autograd.grad(self.function(point), point)[0]

    def losses(self, vectors: Iterable[Tensor]) -> Array:
        return np.array([self.function(vector).item() for vector in vectors])
