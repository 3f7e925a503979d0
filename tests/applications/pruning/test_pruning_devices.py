"""Pruning of a run on a pretended accelerator."""

import pytest
from device_fixtures import Dense, fused_kernels, small, table  # noqa: F401
from pretend_device import pretended

from murmuration.applications import pruning
from murmuration.system.errors import Misuse

pytestmark = pytest.mark.usefixtures("fused_kernels")

pytest_plugins = ["device_fixtures"]


@pytest.mark.slow
@pytest.mark.parametrize("finetune", [0, 1])
def test_a_run_on_a_device_is_pruned(tmp_path, finetune):
    with pretended() as device:
        small(device=device, out=tmp_path / "run")
        planned = pruning.plan_pruning(tmp_path / "run", pruning.Pruning(sparsity=0.5), net=Dense, data=table())
        pruned = pruning.prune(planned, tmp_path / "pruned", finetune=finetune)
        assert str(pruned.device) == (device if finetune else "cpu")
        assert pruned.manifest.plan["device"] == device
    planned = pruning.plan_pruning(tmp_path / "run", pruning.Pruning(sparsity=0.5), net=Dense, data=table())
    with pytest.raises(Misuse, match="trained on pretend:0, which is not available here: write device='cpu'"):
        pruning.prune(planned, tmp_path / "again", finetune=1)
    assert str(pruning.prune(planned, tmp_path / "again", finetune=1, device="cpu").device) == "cpu"
