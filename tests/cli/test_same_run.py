"""A run from Python, from the command line and continued after a kill: the same bits, of a table, images and tokens."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import murmuration as mm

pytest_plugins = ["cli_fixtures"]
SMALL = {"members": 2, "epochs": 2, "batch_size": 16, "engine": "loop"}
FLAGS = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
OWN_NET = """
import torch
from torch import nn

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(30, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.embedding(x).mean(1))
"""


def table(folder: Path) -> tuple[Path, dict[str, Any], list[str]]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(5, 2, 250), "colour": rng.choice(["red", "blue"], 250)})
    frame.assign(price=frame["size"] * 3 + rng.normal(0, 1, 250)).to_csv(folder / "a.csv", index=False)
    return folder / "a.csv", {"target": "price"}, ["--target", "price"]


def images(folder: Path) -> tuple[Path, dict[str, Any], list[str]]:
    rng = np.random.default_rng(1)
    for label, level in (("dark", 60), ("light", 180)):
        (folder / "photos" / label).mkdir(parents=True)
        for i in range(110):
            pixels = rng.normal(level, 60, (12 + i % 3, 14, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / label / f"{i}.png")
    return folder / "photos", {"size": 10}, ["--size", "10"]


def tokens(folder: Path) -> tuple[Path, dict[str, Any], list[str]]:
    (folder / "own_tokens.py").write_text(OWN_NET)
    rng = np.random.default_rng(2)
    x = rng.integers(0, 30, (250, 5))
    np.savez(folder / "tokens.npz", x=x, y=np.array(["few", "many"])[((x < 15).sum(1) > 2).astype(int)])
    return folder / "tokens.npz", {"inputs": "tokens"}, ["--inputs", "tokens", "--net", "own_tokens:Tokens"]


@pytest.mark.slow
@pytest.mark.parametrize("source", [table, images, tokens])
def test_python_command_line_and_resumed_runs_have_the_same_bits(source, murmur, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, options, flags = source(tmp_path)
    net = flags[-2:] if "--net" in flags else []
    assert murmur("train", path, *flags, *FLAGS, "--out", tmp_path / "cli").code == 0
    own = sys.modules["own_tokens"].Tokens if net else None
    data = mm.open_data(path, **options)
    python = mm.fit(own, data, **SMALL)

    def stop(message: str, done: int, total: int, record: object) -> None:
        if done == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mm.fit(own, str(path), **options, **SMALL, out=tmp_path / "killed", progress=stop, checkpoint_seconds=0)
    assert murmur("resume", tmp_path / "killed", *net).code == 0
    cli, resumed = (mm.load(tmp_path / name, net=own) for name in ("cli", "killed"))
    assert python.posthoc is not None
    for other in (cli, resumed):
        for name, tensor in python.groups[0].population.to_tensors().items():
            assert torch.equal(tensor, other.groups[0].population.to_tensors()[name])
        assert torch.equal(other.predict(path).outputs, python.predict(str(path)).outputs)  # calibrated
        assert torch.equal(other.predict(data.test.x).outputs, python.predict(data.test).outputs)
    ended = murmur("predict", tmp_path / "cli", path, *net, "--out", tmp_path / "p.csv")
    assert ended.code == 0
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "p.csv"), python.predict(path).to_pandas(), check_dtype=False, rtol=1e-8
    )
    if net:
        refused = murmur("predict", tmp_path / "cli", path, "--out", tmp_path / "q.csv")
        assert refused.code == 2
        assert "the run's net is Tokens, a module of your own: give it again" in refused.err
        assert (
            "--net own_tokens:Tokkens: own_tokens has no 'Tokkens'"
            in murmur("resume", tmp_path / "cli", "--net", "own_tokens:Tokkens").err
        )
        assert "cannot import nowhere" in murmur("resume", tmp_path / "cli", "--net", "nowhere:net").err
