"""A likelihood given to `fit` by the caller: used as it is, kept with the run, resumed to the same bits."""

from contextlib import suppress
from pathlib import Path

import pytest
import torch

import murmuration as mm

GIVEN = mm.Gaussian(0.3, targets=2)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    return x, torch.stack([x.sum(1), x[:, 0]], 1)


def test_it_is_used_and_comes_back_from_the_run(tmp_path: Path):
    ensemble = mm.fit("mlp", data(), members=2, epochs=1, likelihood=GIVEN, out=tmp_path / "run")
    assert ensemble.likelihood == GIVEN
    again = mm.load(tmp_path / "run")
    assert again.likelihood == GIVEN
    x = torch.randn(4, 3)
    assert torch.equal(again.predict(x).outputs, ensemble.predict(x).outputs)


def test_a_killed_run_goes_on_with_it(tmp_path: Path):
    def kill(text, done, total, record):
        if done >= 1:
            raise KeyboardInterrupt

    settings = {"members": 2, "likelihood": GIVEN, "plan": mm.Plan(epochs=2, batch_size=16, engine="loop")}
    with suppress(KeyboardInterrupt):
        mm.fit("mlp", data(), out=tmp_path / "killed", show=kill, checkpoint_seconds=0, **settings)
    assert not (tmp_path / "killed" / "members.safetensors").exists()
    resumed, undisturbed = mm.resume(tmp_path / "killed", data=data()), mm.fit("mlp", data(), **settings)
    assert resumed.likelihood == GIVEN
    x = torch.randn(4, 3)
    assert torch.equal(resumed.predict(x).outputs, undisturbed.predict(x).outputs)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"likelihood": GIVEN, "noise_std": 0.1}, "give the likelihood alone"),
        ({"likelihood": mm.Categorical(2)}, "a likelihood of classification for data of regression"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict, told: str):
    with pytest.raises(mm.Misuse, match=told):
        mm.fit("mlp", data(), epochs=1, **settings)


@pytest.mark.parametrize("noise_std", [0.0, -1.0, float("nan"), float("inf")])
def test_the_noise_is_positive(noise_std: float):
    with pytest.raises(mm.Misuse, match="expected a positive number"):
        mm.Gaussian(noise_std)
