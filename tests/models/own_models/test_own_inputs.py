"""Networks with two inputs, tokens and series, from training to the report; parts of a data set given as tensors."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import murmuration as mm
from murmuration.cli import main

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("own_inputs", ROOT / "examples" / "own_inputs.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["own_inputs"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["own_inputs"]


def small(example, kind: str) -> tuple:
    x, y = example.own_data()[kind]
    return (tuple(each[:80] for each in x) if isinstance(x, tuple) else x[:80]), y[:80]


KINDS = {"two inputs": ("TwoInputs", {}), "tokens": ("Text", {"inputs": "tokens"}), "series": ("convolutional", {})}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_killed_resumed_loaded_and_reported(kind, example, tmp_path):
    name, reading = KINDS[kind]
    net, (x, y) = getattr(example, name), small(example, kind)
    plan = {"members": 2, "epochs": 2, "engine": "loop", "posthoc": None, **reading}
    whole = mm.fit(net, (x, y), **plan)

    def show(text: str, done: int, total: int, record: dict | None) -> None:
        if done == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        mm.fit(net, (x, y), **plan, out=tmp_path / "run", progress=show, checkpoint_seconds=0)
    resumed = mm.resume(tmp_path / "run", net=net, data=(x, y))
    loaded = mm.load(tmp_path / "run", net=net)
    for ensemble in (resumed, loaded):
        assert torch.equal(ensemble.predict(x).outputs, whole.predict(x).outputs)
    found = mm.evaluate(loaded, (x, y), out=tmp_path / "report")
    assert (tmp_path / "report" / "report.html").exists()
    assert 0 <= float(found.scores["accuracy"]) <= 1


class Both(Dataset):
    """Two inputs by name, of which the first is drawn with noise."""

    def __init__(self, x: tuple, y: torch.Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[dict, int]:
        image = self.x[0][i] + 0.01 * torch.randn(1, 6, 6)
        return {"image": image, "numbers": self.x[1][i]}, int(self.y[i])


@pytest.mark.parametrize("kind", ["by name", "by place", "tokens"])
def test_several_inputs_and_tokens_are_streamed(kind, example, recwarn):
    if kind == "tokens":
        net, given = example.Text, torch.utils.data.TensorDataset(*small(example, "tokens"))
    else:
        (images, numbers), y = small(example, "two inputs")
        net, given = example.TwoInputs, Both((images, numbers), y)
        if kind == "by place":
            given = [((image, number), int(label)) for image, number, label in zip(images, numbers, y, strict=True)]
            given = torch.utils.data.Subset(given, range(len(given)))
    run = mm.fit(net, (given, given), members=2, epochs=1, engine="loop", posthoc=None)
    predictive = run.predict(DataLoader(given, batch_size=9))
    assert predictive.outputs.shape == (2, 80, 2)
    assert float(mm.evaluate(run, given).scores["nll"]) > 0


def test_series_that_are_not_negative_are_no_images():
    x = np.random.default_rng(0).random((60, 3, 20))
    for given in (x, 255 * x, (255 * x).astype(np.int64)):
        data = mm.open_data((given, np.arange(60) % 2))
        assert data.input_shape == (3, 20)
        assert data.preparation.to_json()["kind"] == "array"


def test_series_and_tokens_train_at_the_command_line(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    for kind, net, more in (("series", "Recurrent", []), ("tokens", "Text", ["--inputs", "tokens"])):
        x, y = small(example, kind)
        np.savez(f"{kind}.npz", x=x.numpy(), y=y.numpy())
        settings = ["--members", "2", "--epochs", "1", "--out", kind, "--net", f"own_inputs:{net}"]
        assert main(["train", f"{kind}.npz", *settings, *more]) == 0
        assert main(["evaluate", kind, "--net", f"own_inputs:{net}"]) == 0
        assert main(["predict", kind, f"{kind}.npz", "--net", f"own_inputs:{net}", "--out", f"{kind}.csv"]) == 0
        assert len(Path(f"{kind}.csv").read_text().splitlines()) == 81


def test_parts_of_a_data_set_as_pairs():
    x, y = torch.randn(60, 4), torch.arange(60) % 2
    train, val, test = ((x[rows], y[rows]) for rows in (slice(40), slice(40, 50), slice(50, 60)))
    data = mm.open_data((train, val, test))
    assert [len(split) for split in (data.train, data.val, data.test)] == [40, 10, 10]
    assert torch.equal(data.test.y, y[50:])
    run = mm.fit(lambda: nn.Linear(4, 2), (train, val, test), members=1, epochs=1, posthoc=None)
    assert run.manifest.data["examples"] == {"train": 40, "val": 10, "test": 10}
    with pytest.raises(mm.Misuse, match="two pairs"):
        mm.fit("mlp", (train, test), epochs=1)
    named = mm.open_data(train, test=test)
    assert torch.equal(named.test.y, y[50:])
