"""A small network, a table and runs on it for tests of devices; kernels of optimizers that CUDA has."""

import numpy as np
import pytest
from pretend_device import NAME
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.dynamics import optimizer

ROWS, CLASSES = 40, 3


class Dense(nn.Module):
    """A small network of parts for tables."""

    def __init__(self, outputs: int = CLASSES) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(2, 6), nn.Tanh()), nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    y = rng.integers(CLASSES, size=ROWS)
    return rng.normal(size=(ROWS, 2)) + y[:, None], y


def small(net=None, data=None, **settings) -> mm.Ensemble:
    given = {"members": 2, "epochs": 1, "batch_size": 16, "posthoc": None, **settings}
    return mm.fit(net or Dense, table() if data is None else data, **given)


@pytest.fixture
def fused_kernels(monkeypatch):
    """The kernels that CUDA has and the CPU has too."""
    monkeypatch.setattr(optimizer, "FUSED", ("cpu", "cuda", NAME))
    monkeypatch.setattr("murmuration.system.memory.suggest_keeping_freed_memory", lambda: None)
