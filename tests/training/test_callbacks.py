"""The callback of `fit`: a record of every epoch, and an end before the last."""

import json

import pytest
import torch

import murmuration as mm
from murmuration.system.errors import Misuse

PLAN = {"members": 2, "epochs": 4, "seed": 0}


def stop_after(epoch: int):
    def callback(record: dict) -> None:
        if record["epoch"] == epoch:
            raise mm.StopTraining

    return callback


def test_the_callback_gets_the_records_of_the_history() -> None:
    records: list[dict] = []
    ensemble = mm.fit("mlp", "two-moons", callback=records.append, **PLAN)
    assert records == ensemble.history
    assert [record["epoch"] for record in records] == [1, 2, 3, 4]
    assert {"lr", "train_loss", "val_nll", "ensemble"} <= set(records[0])
    records[0]["epoch"] = "changed"
    assert ensemble.history[0]["epoch"] == 1


@pytest.mark.parametrize("settings", [{}, {"patience": 3}, {"recipe": "batch-ensemble"}])
def test_stopping_leaves_the_members_of_a_shorter_run(tmp_path, settings: dict) -> None:
    plan = {**PLAN, "schedule": "constant", **settings}
    stopped = mm.fit("mlp", "two-moons", callback=stop_after(2), out=tmp_path / "run", **plan)
    short = mm.fit("mlp", "two-moons", **{**plan, "epochs": 2})
    data = mm.open_data("two-moons")
    assert torch.equal(stopped.predict(data.test).outputs, short.predict(data.test).outputs)
    assert len(stopped.history) == 2
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "complete"
    assert torch.equal(mm.load(tmp_path / "run").predict(data.test).outputs, stopped.predict(data.test).outputs)


def test_a_schedule_of_collected_weights_cannot_stop_early(tmp_path) -> None:
    with pytest.raises(Misuse, match=r"stopping early with dynamics swag: .*leave patience, or StopTraining, out"):
        mm.fit("mlp", "two-moons", recipe="swag", callback=stop_after(2), out=tmp_path / "run", epochs=6)
    assert not (tmp_path / "run").exists()
    assert mm.fit("mlp", "two-moons", recipe="swag", callback=stop_after(6), epochs=6).members > 1


def test_a_resumed_run_calls_back_from_the_next_epoch(tmp_path) -> None:
    def killed(message: str, step: int, steps: int, record: dict | None) -> None:
        if record is not None and record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mm.fit("mlp", "two-moons", out=tmp_path / "run", progress=killed, **PLAN)
    epochs: list[int] = []
    mm.resume(tmp_path / "run", callback=lambda record: epochs.append(record["epoch"]))
    assert epochs == [3, 4]


def test_each_fold_calls_back() -> None:
    epochs: list[int] = []
    callback = lambda record: epochs.append(record["epoch"])  # noqa: E731
    mm.fit("mlp", "iris", folds=2, callback=callback, members=1, epochs=2)
    assert epochs == [1, 2, 1, 2]


def test_a_model_without_epochs_and_an_object_that_is_no_function_are_refused() -> None:
    with pytest.raises(Misuse, match="callback= with random-forest, which has no epochs: leave it out"):
        mm.fit("random-forest", "iris", callback=print)
    with pytest.raises(Misuse, match=r"callback=3: need a function of a record"):
        mm.fit("mlp", "iris", callback=3)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("loss", "likelihood="),
        ("criterion", "likelihood="),
        ("callbacks", "callback="),
        ("logger", "callback="),
        ("scheduler", "schedule="),
        ("trainer", "epochs="),
        ("Learning_Rate", "lr="),
    ],
)
def test_keywords_of_other_libraries_are_translated(name: str, advice: str) -> None:
    with pytest.raises(Misuse, match=f"unknown keyword of fit '{name}': write {advice}"):
        mm.fit("mlp", "iris", **{name: 1})
