"""Super-resolution on a pretended accelerator."""

import numpy as np
import pytest
import torch
from device_fixtures import fused_kernels, small  # noqa: F401
from pretend_device import pretended

import murmuration as mm
from murmuration.applications.superres import upscale

pytestmark = pytest.mark.usefixtures("fused_kernels")

pytest_plugins = ["device_fixtures"]


def test_super_resolution_trains_and_upscales_on_a_device():
    pieces = np.random.default_rng(0).random((30, 1, 4, 4)).astype(np.float32)
    with pretended(double=False) as device:
        likelihood = mm.Gaussian(0.02, targets=64)
        settings = {"recipe": "bayes", "members": 1, "likelihood": likelihood, "inputs": "images", "prepare": "none"}
        large = np.repeat(np.repeat(pieces, 2, 2), 2, 3).reshape(30, 64)
        made = small("subpixel", (pieces, large), device=device, task="regression", **settings)
        found = upscale(made, torch.from_numpy(pieces[0, 0]), draws=2)
        assert found.mean.shape == (8, 8)
