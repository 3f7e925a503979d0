"""Mistakes that people make end in one line that says what to write; none is silently wrong or ends in a traceback."""

import random
import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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
    own |= {"net": net, "linear": nn.Linear.forward, "random": random, "functional": nn.functional}
    estimators = {kind.__name__: kind for kind in (EnsembleClassifier, EnsembleRegressor, GridSearchCV)}
    objects = {"X": x, "y": y, "frame": frame, "ensemble": ensemble, "run": run, "QUICK": QUICK}
    return {"__name__": "mistakes", "mm": mm, "np": np, "torch": torch, "nn": nn, **own, **estimators, **objects}


@pytest.mark.parametrize(("words", "end", "told"), COMMANDS, ids=[words for words, _, _ in COMMANDS])
def test_a_command(
    murmur: Any, moons_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, end: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("nothing")
    rows = "".join(
        f"{age},{city},{'yes' if age > 40 else 'no'}\n" for age in range(20, 60) for city in ("Rome", "Oslo")
    )
    (tmp_path / "table.csv").write_text(f"age,city,bought\n{rows}")
    places = {"run": moons_run, "table": "table.csv", "folder": "empty"}
    ended = murmur(*shlex.split(words.format(**places)))
    assert "Traceback" not in ended.err
    if end == REFUSED:
        assert ended.code in (1, 2)
        assert ended.err.startswith("error: ")
        assert ended.err.count("\n") == 1
    assert told in ended.out + ended.err
    assert (end == REFUSED) == (ended.code != 0)


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
