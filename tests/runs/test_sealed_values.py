"""A manifest with a wrong value and the right digest is damage, in one line; so is a path that cannot be."""

import copy
import json
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import murmuration as mm
from murmuration.cli import main
from murmuration.system.errors import Failure, Misuse
from murmuration.system.files import write_record

DELETED = "deleted"
VALUES: tuple[Any, ...] = (None, "x", -1, 1e308, [], {}, True, [1], {"a": 1}, DELETED)
CASES = 80  # of each run
ROWS = pd.DataFrame({"a": [0.5, -1.0], "c": ["x", "y"], "d": pd.to_datetime(["2020-01-02", "2020-02-03"])})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A network on a table, and a linear model on an array."""
    folder, rng = tmp_path_factory.mktemp("sealed"), np.random.default_rng(0)
    days = pd.date_range("2020-01-01", periods=60)
    table = pd.DataFrame({"a": rng.normal(size=60), "c": np.resize(list("xyz"), 60), "d": days})
    table.assign(y=np.where(table.a > 0, "u", "v")).to_csv(folder / "t.csv", index=False)
    small: dict[str, Any] = {"members": 2, "epochs": 1, "engine": "loop", "progress": False}
    mm.fit("mlp", str(folder / "t.csv"), target="y", out=folder / "net", **small)
    mm.fit("ridge", (rng.normal(size=(60, 3)), rng.normal(size=60)), out=folder / "ridge", progress=False)
    return folder


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every entry of a record, and the first two of every list."""
    for key, entry in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if not isinstance(value, list) or key < 2:
            yield (*place, key)
            yield from places(entry, (*place, key))


def changed(record: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    new = inside = copy.deepcopy(record)
    for key in place[:-1]:
        inside = inside[key]
    if value == DELETED:
        del inside[place[-1]]
    else:
        inside[place[-1]] = value
    return new


def manifest_of(run: Path) -> dict[str, Any]:
    record = json.loads((run / "run.json").read_text())
    del record["record_sha256"]
    return record


@pytest.mark.parametrize("name", ["net", "ridge"])
def test_any_wrong_value_is_refused_or_harmless(folder: Path, tmp_path: Path, name: str) -> None:
    run, rng = Path(shutil.copytree(folder / name, tmp_path / name)), np.random.default_rng(1)
    record, inputs = manifest_of(run), ROWS if name == "net" else np.zeros((2, 3))
    everything = [(place, value) for place in places(record) for value in VALUES]
    refused: list[str] = []
    for case in rng.permutation(len(everything))[:CASES]:
        write_record(run / "run.json", changed(record, *everything[case]))
        with warnings.catch_warnings(action="ignore"):
            try:
                mm.load(run).predict(inputs)
            except (Misuse, Failure) as error:
                refused.append(str(error))
    assert len(refused) > CASES / 4
    assert not [line for line in refused if "\n" in line]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("recipe", "sharing"), DELETED),
        (("engine", "direct"), {"a": 1}),
        (("plan", "first_member"), "x"),
        (("data", "classes"), True),
        (("data", "preparation", "columns", 0), "x"),
        (("data", "preparation", "columns", 0, "mean"), None),
        (("data", "preparation", "columns", 1, "has_missing"), True),
    ],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_the_line_names_the_run(folder: Path, tmp_path: Path, capsys, place, value) -> None:
    run = Path(shutil.copytree(folder / "net", tmp_path / "run"))
    write_record(run / "run.json", changed(manifest_of(run), place, value))
    with pytest.raises(Failure, match="damaged"):
        mm.load(run)
    with pytest.raises(Failure, match="damaged"):
        mm.resume(run)
    for command in (
        ["predict", str(run), str(folder / "t.csv"), "--out", str(tmp_path / "p.csv")],
        ["evaluate", str(run)],
    ):
        capsys.readouterr()
        assert main(command) == 1
        assert "damaged" in capsys.readouterr().err


def test_errors_of_objects_of_the_caller_are_their_own(folder: Path) -> None:
    class Broken(torch.nn.Module):
        def named_parameters(self, *_: Any, **__: Any) -> Any:
            raise TypeError("my own")

    with pytest.raises(TypeError, match="my own"):
        mm.load(folder / "net", net=Broken)


def test_a_directory_that_cannot_be_made_is_named() -> None:
    with pytest.raises(Failure, match=r"cannot write .*: .*File name too long"):
        mm.fit("mlp", "two-moons", members=1, epochs=1, out="x" * 300, progress=False)
