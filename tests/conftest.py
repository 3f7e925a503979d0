"""Fixtures of all tests: data, a network with batch normalisation, one core inside an operator, no real clock."""

import itertools
import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

# Before torch is imported: some virtual machines report AMX, whose instructions then end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from torch import nn

from murmuration.core.engines import choice
from murmuration.data import Data, open_data

collect_ignore_glob = ["*conftest.py"]  # no doctests there, and only one module can be called conftest


@pytest.fixture(autouse=True)
def _one_core():
    """Tests that run side by side do not wait for each other's threads."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _same_engine_on_every_machine() -> Iterator[None]:
    """`engine="fastest"` measures all candidates as equally fast and takes the first: no test depends on the clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "time", SimpleNamespace(perf_counter=itertools.count().__next__))
        yield


@pytest.fixture(scope="session")
def digits() -> Data:
    return open_data("digits")


@pytest.fixture(scope="session")
def moons() -> Data:
    return open_data("two-moons")


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two cores inside an operator, and two threads for `parallel_map`."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


class NormalisedNet(nn.Module):
    """A convolutional net with batch normalisation, dropout and a functional flatten: a hard case for vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(6 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.norm(self.convolution(x)))
        h = torch.nn.functional.max_pool2d(self.drop(h), 2)
        return self.head(h.flatten(1))


@pytest.fixture
def normalised_net() -> type[nn.Module]:
    return NormalisedNet
