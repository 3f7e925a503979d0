"""The hub, with a stand-in for the `datasets` package: no network is needed."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image as Pillow

from murmuration.data import open_data
from murmuration.system.errors import Failure, Misuse


class Image:
    """Stands for `datasets.Image`, which is known by its name."""


class ClassLabel:
    def __init__(self, names: list[str]) -> None:
        self.names = names


class Rows:
    def __init__(self, columns: dict[str, list[Any]], features: dict[str, Any]) -> None:
        self.columns, self.features = columns, features

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self.columns[key]
        return {name: values[key] for name, values in self.columns.items()}

    def to_pandas(self) -> pd.DataFrame:
        return pd.DataFrame(self.columns)


def stand_in(monkeypatch: pytest.MonkeyPatch, found: Any, version: str = "4.1.0") -> list[Any]:
    """Put a module `datasets` in place whose `load_dataset` returns (or raises) `found`; returns its calls."""
    calls: list[Any] = []

    def load_dataset(*arguments: Any, **options: Any) -> Any:
        calls.append((arguments, options))
        if isinstance(found, Exception):
            raise found
        return found

    module = ModuleType("datasets")
    module.load_dataset, module.__version__ = load_dataset, version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    return calls


def images(count: int, seed: int) -> tuple[np.ndarray, Rows]:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 5, 4, 3)).astype(np.uint8)
    features = {"image": Image(), "label": ClassLabel(["zebra", "ant"])}
    columns = {"image": [Pillow.fromarray(p) for p in pixels], "label": [i % 2 for i in range(count)]}
    return pixels, Rows(columns, features)


def test_images_with_their_own_test_part_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, test = images(6, seed=1)
    calls = stand_in(monkeypatch, {"train": images(20, seed=0)[1], "test": test, "extra": None})
    data = open_data("hf:someone/animals:small", prepare="none")
    assert calls == [(("someone/animals", "small"), {})]
    assert data.classes == ("zebra", "ant")
    assert [len(split) for split in (data.train, data.val, data.test)] == [18, 2, 6]
    assert np.array_equal(data.test.prepared.permute(0, 2, 3, 1).numpy(), pixels)
    assert data.test.y.tolist() == [0, 1] * 3


def test_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"a": list(range(20)), "cost": [float(i) for i in range(20)]}
    stand_in(monkeypatch, {"train": Rows(columns, {"a": None, "cost": None})})
    data = open_data("hf:costs", target="cost")
    assert data.task == "regression"
    assert data.feature_names == ("a",)
    assert sorted(np.concatenate([s.y[:, 0] for s in (data.train, data.val, data.test)])) == columns["cost"]
    with pytest.raises(Misuse, match=r"no column label, .*: write target=..., one of a, cost"):
        open_data("hf:costs")


def test_scripts_are_refused_where_they_could_run(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = stand_in(monkeypatch, {"train": images(20, seed=0)[1]}, version="2.19.0")
    open_data("hf:animals")
    assert calls == [(("animals", None), {"trust_remote_code": False})]


def test_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(Misuse, match=r"'hf:animals' needs the datasets package: pip install 'torch-murmuration\[hf\]'"):
        open_data("hf:animals")
    stand_in(monkeypatch, ConnectionError("no route\nto the hub"))
    with pytest.raises(Failure, match=r"^cannot fetch 'hf:animals': no route$"):
        open_data("hf:animals")
    stand_in(monkeypatch, {"all-of-it": images(5, seed=0)[1]})
    with pytest.raises(Misuse, match="has the parts all-of-it: expected train, validation or test"):
        open_data("hf:animals")
