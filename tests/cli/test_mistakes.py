"""Mistakes that people make end in one line that says what to write; none is silently wrong or ends in a traceback."""

import random
import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import pytest
import torch
from mistakes import COMMANDS, ESTIMATORS, NETWORKS, NOTED, PYTHON, REFUSED, RIGHT
from sklearn.model_selection import GridSearchCV
from torch import Tensor, nn

import murmuration as mm
from murmuration.sklearn import EnsembleClassifier, EnsembleRegressor

pytest_plugins = ["cli_fixtures"]
QUICK: dict[str, Any] = {"members": 2, "epochs": 1}


class Trained(nn.Linear):
    """A layer whose values are not those of an initialisation."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        nn.init.constant_(self.weight, 5.0)


class NoReset(nn.Module):
    """A network with a parameter of its own that nothing initialises again."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class Tuple(nn.Linear):
    """A network that returns its outputs and something else."""

    def __init__(self) -> None:
        super().__init__(2, 2)

    def forward(self, x: Tensor) -> Any:
        return super().forward(x), x


class Compiled(nn.Module):
    """A network that is no container."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Lightning(Compiled):
    """A network with the methods of a LightningModule."""

    def training_step(self, batch: Any) -> None: ...

    def configure_optimizers(self) -> None: ...


class Frozen(Compiled):
    """A network without a parameter to train."""

    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)


class Forward(nn.Linear):
    """A network with a forward of one's own: a function of the network and its inputs."""

    def __init__(self, function: Callable[["Forward", Tensor], Any]) -> None:
        super().__init__(2, 2)
        self.function, self.calls = function, 0

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return self.function(self, x)


class Hidden(nn.Module):
    """A network with a layer or parameter that torch does not register."""

    def __init__(self, layers: Any) -> None:
        super().__init__()
        self.head, self.layers = nn.Linear(2, 2), layers

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


def net(function: Callable[[Forward, Tensor], Any]) -> Callable[[], Forward]:
    """Return a function that builds a network with this forward."""
    return lambda: Forward(function)


def loader(x: Any, y: Any) -> torch.utils.data.DataLoader[Any]:
    """Return a loader of examples in their order."""
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.as_tensor(x), torch.as_tensor(y)), 16)


def step(method: mm.Method, x: Any, y: Any, **settings: Any) -> Tensor:
    """Train a method for one step."""
    return method.step(method.init(), torch.as_tensor(x), torch.as_tensor(y), **settings)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files and folders, many of which bear the name of their fault."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("nothing")
    ages = [(age, city, "yes" if age > 40 else "no") for age in range(20, 60) for city in ("Rome", "Oslo")]
    table = pd.DataFrame(ages, columns=["age", "city", "bought"])
    inputs = table[["age", "city"]]
    noise = np.random.default_rng(0).normal(size=80).round(3)
    frames = {
        "table.csv": table,
        "ids.csv": table.assign(customer_id=[f"C{row:05}" for row in range(80)]),
        "text.csv": table.assign(note=[f"customer {row} said that all was fine" for row in range(80)]),
        "price.csv": pd.DataFrame({"km": range(300), "price": range(100, 400)}),
        "surplus.csv": inputs.assign(foo=1),
        "renamed.csv": inputs.rename(columns={"age": "Age"}),
        "upper.csv": inputs.rename(columns=str.upper),
        "lacking.csv": inputs[["city"]],
        "far.csv": inputs.assign(age=10**9),
    }
    for name, frame in frames.items():
        frame.to_csv(folder / name, index=False)
    table.assign(km=[f"{value}".replace(".", ",") for value in noise]).to_csv(
        folder / "decimal-comma.csv", sep=";", index=False
    )
    table.to_csv(folder / "tabs.tsv", sep="\t", index=False)
    table.to_json(folder / "table.json")
    texts = {
        "empty.csv": "",
        "header.csv": "age,city,bought\n",
        "no-header.csv": "20,Rome,no\n50,Oslo,yes\n" * 30,
        "ragged.csv": "age,city,bought\n" + "20,Rome,no\n50,Oslo\n30,Rome,no,7\n" * 30,
        "twice.csv": "age,age,bought\n" + "20,2,no\n50,3,yes\n" * 30,
        "one-label.csv": "age,bought\n" + "20,no\n" * 30,
        "missing-labels.csv": "age,bought\n" + "20,no\n30,\n50,yes\n" * 30,
        "quote.csv": 'age,bought\n"20,no\n50,yes\n',
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "binary.csv").write_bytes(bytes(range(256)) * 9)
    photos = [(f"photos/{kind}", 12, 8) for kind in ("cat", "dog")]
    photos += [("flat-photos", 4, 8), ("one-class/cat", 4, 8)]
    photos += [("mixed-sizes/cat", 12, 8), ("mixed-sizes/dog", 12, 9)]
    photos += [
        (f"new-class/{part}/{kind}", 6, 8)
        for part, kind in zip(["train", "train", "test", "test"], ["cat", "dog", "cat", "owl"], strict=True)
    ]
    for name, count, side in photos:
        (folder / name).mkdir(parents=True)
        for index in range(count):
            pixels = np.random.default_rng(index).integers(0, 256, (side, 8, 3), dtype=np.uint8)
            PIL.Image.fromarray(pixels).save(folder / name / f"{index}.png")
    for kind in ("cat", "dog"):
        (folder / "broken-photos" / kind).mkdir(parents=True)
        (folder / "broken-photos" / kind / "0.png").write_bytes(b"no image")
    mm.fit("mlp", table, target="bought", **QUICK, progress=False, out=folder / "fitted")
    return folder


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the programs of the table may name."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 2)).astype(np.float32)
    y = (x[:, 0] + rng.normal(size=50) > 0).astype(int)
    frame = pd.DataFrame({"age": x[:, 0], "city": np.where(x[:, 1] > 0, "Rome", "Oslo"), "bought": y})
    ensemble = mm.fit("mlp", (x, y), **QUICK, progress=False)
    run = tmp_path_factory.mktemp("mistakes") / "run"
    ensemble.save(run)
    own = {kind.__name__: kind for kind in (Trained, NoReset, Tuple, Compiled, Lightning, Frozen, Hidden)}
    own |= {
        "loader": loader,
        "step": step,
        "net": net,
        "linear": nn.Linear.forward,
        "random": random,
        "functional": nn.functional,
    }
    estimators = {kind.__name__: kind for kind in (EnsembleClassifier, EnsembleRegressor, GridSearchCV)}
    objects = {"X": x, "y": y, "frame": frame, "ensemble": ensemble, "run": run, "QUICK": QUICK}
    return {"__name__": "mistakes", "mm": mm, "np": np, "torch": torch, "nn": nn, **own, **estimators, **objects}


@pytest.mark.parametrize(("words", "end", "told"), COMMANDS, ids=[words for words, _, _ in COMMANDS])
def test_a_command(
    murmur: Any, moons_run: Path, places: Path, monkeypatch: pytest.MonkeyPatch, words: str, end: str, told: str
) -> None:
    monkeypatch.chdir(places)
    paths = {"run": moons_run, "fitted": "fitted", "table": "table.csv", "folder": "empty"}
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        ended = murmur(*shlex.split(words.format(**paths)))
    assert "Traceback" not in ended.err
    if end == REFUSED:
        assert ended.code in (1, 2)
        assert ended.err.startswith("error: ")
        assert ended.err.count("\n") == 1
    assert told in ended.out + ended.err
    assert (end == REFUSED) == (ended.code != 0)


@pytest.mark.parametrize("program", ["mm.fit(nn.Linear(3, 2), (X, y))", "mm.fit(nn.Linear, (X, y))"])
def test_no_traceback_of_torch_stands_above_the_message(names: dict[str, Any], program: str) -> None:
    with pytest.raises(mm.Misuse) as caught:
        eval(program, names)
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None


PROGRAMS = (*PYTHON, *NETWORKS, *ESTIMATORS)


@pytest.mark.parametrize(("program", "end", "told"), PROGRAMS, ids=[program for program, _, _ in PROGRAMS])
def test_a_program(
    names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, end: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if end in (NOTED, RIGHT):
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            eval(program, names)
        assert end == RIGHT or any(told in str(note.message) for note in notes)
        return
    kinds = (mm.Misuse, mm.Failure) if end == REFUSED else (TypeError, ValueError)
    with pytest.raises(kinds) as caught:
        eval(program, names)
    assert told in str(caught.value)
    assert end != REFUSED or "\n" not in str(caught.value)
