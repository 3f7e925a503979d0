"""One resolver: `fit`, the command line, `murmur plan` and studies decide the same for the same request."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from training_requests import REQUESTS, record

import murmuration as mm
from murmuration.cli import main
from murmuration.training import costs, fitting
from murmuration.training.resolve import Resolved, resolve


class Decided(Exception):  # noqa: N818 - not an error
    """The request was resolved; nothing is trained."""


FLAGS = {"likelihood": "loss"}  # keywords whose flag has another name


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
    frame["y"], frame["kind"] = frame["a"] + rng.normal(size=200), np.where(frame["b"] > 0, "high", "low")
    path = tmp_path_factory.mktemp("resolve") / "table.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", REQUESTS)
def test_all_ways_to_ask_decide_the_same(name: str, table: Path, monkeypatch, tmp_path: Path):
    source, settings = REQUESTS[name]
    source = str(table) if source == "TABLE" else source
    decided: dict[str, Resolved] = {}

    def deciding(way: str):
        def decide(*args: Any, **keywords: Any) -> Resolved:
            decided[way] = resolve(*args, **keywords)
            raise Decided

        return decide

    others = {key: value for key, value in settings.items() if key != "net"}
    monkeypatch.setattr(fitting, "resolve", deciding("fit"))
    with pytest.raises(Decided):
        mm.fit(settings.get("net"), source, **others)
    flags = [f"--{FLAGS.get(key, key).replace('_', '-')}={value}" for key, value in settings.items()]
    monkeypatch.setattr(fitting, "resolve", deciding("murmur train"))
    monkeypatch.setenv("MURMUR_DEBUG", "1")
    with pytest.raises(Decided):
        main(["train", source, *flags, "--out", str(tmp_path / "run"), "--json"])
    monkeypatch.setattr(costs, "resolve", deciding("murmur plan"))
    with pytest.raises(Decided):
        main(["plan", source, *flags, "--json"])
    records = {way: record(run.spec()[0]) for way, run in decided.items()}
    assert records["murmur train"] == records["fit"]
    assert records["murmur plan"] == records["fit"]


def test_folds_and_models_are_decided_by_the_same_resolver(monkeypatch):
    seen: list[Resolved] = []
    monkeypatch.setattr(
        fitting, "resolve", lambda *args, **keywords: seen.append(resolve(*args, **keywords)) or seen[-1]
    )
    mm.fit("mlp", "two-moons", folds=2, members=1, epochs=1)
    mm.fit("random-forest", "diabetes")
    assert [run.is_estimator for run in seen] == [False, True]
    assert seen[0].plan.members == 1
