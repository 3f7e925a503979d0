"""The benchmark of coverage: entries, resumed records, bounds; the committed record has the defaults of today."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pages
import pytest
from coverage_table import coverage_table, summaries
from markdown_tables import table_rows

import murmuration as mm


def load_script():
    """The script by its path: the package of the same name may be imported before it."""
    spec = importlib.util.spec_from_file_location("coverage_benchmark", Path(pages.__file__).parent / "coverage.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


benchmark = load_script()
RECORD = json.loads(benchmark.RECORD.read_text())


@pytest.fixture
def folder(tmp_path):
    """A table in the UCI layout, with the target in the first column and 240 rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(240, 2))
    (tmp_path / "line" / "data").mkdir(parents=True)
    place = tmp_path / "line" / "data"
    np.savetxt(place / "data.txt", np.column_stack([x[:, 0] + 0.1 * rng.normal(size=240), x]))
    np.savetxt(place / "index_features.txt", [1, 2], fmt="%d")
    np.savetxt(place / "index_target.txt", [0], fmt="%d")
    return tmp_path / "line"


def test_a_folder_is_split_and_only_its_training_rows_are_bounded(folder):
    data, fewer = benchmark.open_table(str(folder), 1), benchmark.open_table(str(folder), 1, rows=50)
    values = np.loadtxt(folder / "data" / "data.txt")
    assert data.task == "regression"
    assert sorted(np.concatenate([part.y.flatten() for part in (data.train, data.val, data.test)])) == sorted(
        values[:, 0]
    )
    assert len(fewer.train) == 50 < len(data.train)
    assert set(fewer.train.y.flatten().tolist()) <= set(data.train.y.flatten().tolist())
    assert fewer.val.y.equal(data.val.y)
    assert fewer.test.y.equal(data.test.y)


def test_a_cell_holds_the_coverage_of_what_predictions_are_written_with(folder):
    cell = benchmark.run_cell(str(folder), 0, members=2, epochs=2)
    data = benchmark.open_table(str(folder), 0)
    ensemble = mm.fit(None, data, seed=0, members=2, epochs=2, progress=False)
    table = ensemble.posthoc.columns(ensemble.predict(data.test.x))
    low, high = table["conformal_low_90"][:, 0], table["conformal_high_90"][:, 0]
    y = data.test.y[:, 0].numpy()
    assert cell["conformal"] == np.mean((low <= y) & (y <= high))
    assert cell["size"] == pytest.approx(np.mean(high - low))
    for key, calibrated in (("predictive", True), ("predictive_uncalibrated", False)):
        low, high = (end[:, 0] for end in ensemble.predict(data.test.x, calibrated=calibrated).interval(0.9))
        assert cell[key] == np.mean((low.numpy() <= y) & (y <= high.numpy()))
    assert (cell["table"], cell["val"], cell["rule_examples"]) == ("line", 24, 12)
    assert cell["calibrated"]


def test_too_few_validation_rows_are_recorded_as_not_calibrated():
    cell = benchmark.run_cell("iris", 0, members=1, epochs=1)
    assert not cell["calibrated"]
    assert "conformal" not in cell
    assert cell["warnings"][0].startswith("not calibrated: 15 validation examples")


def test_a_record_is_continued_and_refused_if_the_defaults_are_others(tmp_path, monkeypatch, capsys):
    done = []

    def run_cell(source, seed, target):
        done.append((source, seed))
        return {**RECORD["cells"][0], "table": source, "seed": seed}

    monkeypatch.setattr(benchmark, "run_cell", run_cell)
    monkeypatch.setattr(mm, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(benchmark.torch, "set_num_threads", lambda count: None)
    out = str(tmp_path / "record.json")
    benchmark.main(["wine", "--seeds", "0", "--out", out])
    benchmark.main(["wine", "iris", "--seeds", "0,1", "--out", out])
    assert done == [("wine", 0), ("iris", 0), ("wine", 1), ("iris", 1)]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert set(lines[-1]) == {"wine", "iris"}
    monkeypatch.setattr(benchmark, "defaults", dict)
    with pytest.raises(SystemExit, match="other defaults"):
        benchmark.main(["wine", "--out", out])


def test_bounds_of_sets_follow_the_accuracy():
    def cells(coverage, accuracy, **more):
        base = {"table": "a", "task": "classification", "train": 1, "val": 20, "test": 1, "calibrated": True, **more}
        base |= {"nll": 1.0, "nll_uncalibrated": 1.0, "size": 1.0, "method": "lac", "rule_examples": 10}
        return {"cells": [{**base, "accuracy": accuracy, "conformal": each} for each in coverage]}

    for coverage, accuracy, expected in ((0.97, 0.965, "within"), (0.97, 0.95, "above"), (0.84, 0.84, "below")):
        record = cells([coverage - 0.02, coverage + 0.02], accuracy)
        assert summaries(record)["a"]["conformal_verdict"] == expected
        row = table_rows(coverage_table(record))[-1]
        assert (f"**{100 * coverage:.1f} ± 2.0**" in row) == (expected != "within")
    assert "not calibrated" in coverage_table(cells([0.9], 0.9, calibrated=False))


def test_the_committed_record_was_made_with_the_defaults_of_today():
    today = benchmark.defaults()
    for part, settings in RECORD["defaults"].items():
        changed = {name for name, value in settings.items() if today[part].get(name) != value}
        assert not changed, f"defaults of {part} changed: {changed}; remove the record and run benchmarks/coverage.py"
