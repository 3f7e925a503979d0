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
