"""`mm.resume` of a killed run on patches: the photographs are cut again."""

from pathlib import Path

import pytest
import torch
from superres_factories import trained

import murmuration as mm


def test_a_killed_run_on_patches_is_resumed_without_its_data(photo_folder: Path, tmp_path: Path):
    def stop(text: str, done: int, total: int, record: object) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="stopped after step 1 of 3"):
        trained(photo_folder, weights="point", out=tmp_path / "run", progress=stop)
    resumed, x = mm.resume(tmp_path / "run"), torch.rand(2, 1, 6, 6)
    whole = trained(photo_folder, weights="point")
    assert torch.equal(resumed.predict(x, prepared=True).outputs, whole.predict(x, prepared=True).outputs)


def test_a_run_on_patches_killed_before_its_first_checkpoint_begins_from_its_seed(photo_folder: Path, tmp_path: Path):
    def stop(text: str, done: int, total: int, record: object) -> None:
        if done == 1:
            raise InterruptedError  # ends without a checkpoint, as a kill does

    run = tmp_path / "run"
    with pytest.raises(InterruptedError):
        trained(photo_folder, weights="point", out=run, progress=stop, checkpoint_seconds=1e9)
    assert not (run / "checkpoints" / "latest.json").exists()
    resumed, x = mm.resume(run), torch.rand(2, 1, 6, 6)
    whole = trained(photo_folder, weights="point")
    assert torch.equal(resumed.predict(x, prepared=True).outputs, whole.predict(x, prepared=True).outputs)
