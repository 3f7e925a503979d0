"""Studies of a run on a pretended accelerator."""

import numpy as np
import pytest
import torch
from device_fixtures import Dense, fused_kernels, small, table  # noqa: F401
from pretend_device import pretended

import murmuration as mm
from murmuration.studies.kernels import kernel_diagnosis, kernels_before_run
from murmuration.studies.trajectory import find_trajectory
from murmuration.studies.weight_space import points_of

pytestmark = pytest.mark.usefixtures("fused_kernels")

pytest_plugins = ["device_fixtures"]


def test_trajectories_points_and_kernels_of_a_run_on_a_device(tmp_path):
    x = np.asarray(table()[0])
    with pretended() as device:
        small(device=device, out=tmp_path / "run", trajectory="every-epoch", recipe="batch-ensemble")
        ensemble, data = mm.load(tmp_path / "run", net=Dense), mm.open_data(table(), val=0.15, test=0.0)
        assert points_of(ensemble).vectors.device.type == "cpu"
        assert find_trajectory(tmp_path / "run", net=Dense) is not None
        prepared = ensemble.prepare(x)
        assert kernel_diagnosis(ensemble, prepared).inputs > 0
        assert kernels_before_run(ensemble, data, prepared, net=Dense).inputs > 0
        assert torch.equal(points_of(ensemble).vectors, points_of(ensemble.to("cpu")).vectors)
