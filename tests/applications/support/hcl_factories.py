"""A learner, two tasks in the plane, and training on them."""

import torch
from torch import Tensor

from murmuration.applications.continual.flows import vector_flow
from murmuration.applications.continual.hcl import HCL, HCLConfig

CENTRES = torch.tensor([[[-3.0, 0.0], [3.0, 0.0]], [[0.0, -3.0], [0.0, 3.0]]])  # (task, label, 2)


def batch(task: int, seed: int, count: int = 64) -> tuple[Tensor, Tensor]:
    """A batch of a task: two Gaussians of standard deviation 0.7."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (count,), generator=generator)
    return CENTRES[task][y] + 0.7 * torch.randn(count, 2, generator=generator), y


def learner(seed: int = 0, **settings) -> HCL:
    torch.manual_seed(seed)
    config = HCLConfig(**{"agnostic": False, "settle": 2, "lr": 3e-3, **settings})
    return HCL(vector_flow(2, couplings=4, hidden=32), config)


def trained(model: HCL, tasks: tuple[int, ...] = (0, 1), steps: int = 150) -> HCL:
    for place, task in enumerate(tasks):
        for step in range(steps):
            x, y = batch(task, seed=place * steps + step)
            model.observe(x, y, None if model.config.agnostic else task)
    return model
