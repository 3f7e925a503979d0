"""The benchmark of tables: cells, scores against their definitions, resumption, ranks and the page."""

import json

import contenders
import numpy as np
import official_tabm
import pandas as pd
import pytest
import table_sets
import tables as benchmark
import tables_page as page
import tabular
from markdown_tables import table_rows

import murmuration as mm


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setattr(mm, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(benchmark.torch, "set_num_threads", lambda count: None)


def entry(contender, table, split, raw, calibrated=None, task="regression", **more):
    def four(nll):
        return {"nll": nll, "proper": nll, "point": nll, "coverage": 0.9}

    scores = {"raw": four(raw), "calibrated": four(raw if calibrated is None else calibrated)}
    cell = {"contender": contender, "table": table, "split": split, "task": task, "train": 10, "cpu_seconds": 1.0}
    return {**cell, **scores, "conformal": 0.9, "size": 1.0, **more}


def record(*cells):
    return {"contenders": dict.fromkeys(cell["contender"] for cell in cells), "cells": list(cells)}


@pytest.mark.parametrize("table", ["wine-cultivars", "mixed-types", "friedman2"])
def test_a_cell_has_the_scores_of_its_definitions(table, tmp_path):
    cell = benchmark.Cell("linear", table, 0)
    found = benchmark.run_cell(cell, tmp_path / "r.json", None)
    assert "failed" not in found
    data = table_sets.open_table(table_sets.TABLES[table], 0)
    pred, y = contenders.contender("linear").fit(data, 0)(data.test), data.test.y
    expected = mm.score(pred, y)
    names = ("brier", "accuracy") if data.task == "classification" else ("crps", "rmse")
    for key, name in zip(("nll", "proper", "point"), ("nll", *names), strict=True):
        assert found["raw"][key] == pytest.approx(float(expected[name]), rel=1e-5)
    assert (found["train"], found["val"], found["test"]) == (len(data.train), len(data.val), len(data.test))
    kept = benchmark.kept_at(tmp_path / "r.json", cell)
    assert benchmark.score_cell(kept) == {key: found[key] for key in ("raw", "calibrated", "conformal", "size")}


def test_sets_are_the_smallest_with_the_probability():
    probs = np.array([[0.95, 0.04, 0.01], [0.5, 0.41, 0.09], [0.3, 0.3, 0.4]])
    pred = mm.Predictive.from_probs(probs)
    expected = [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    for y in range(3):
        assert benchmark.scores(pred, np.full(3, y))["coverage"] == pytest.approx(np.mean([row[y] for row in expected]))


def test_probabilities_are_clipped_and_residuals_give_the_noise():
    assert benchmark.scores(mm.Predictive.from_probs([[1.0, 0.0]]), np.array([1]))["nll"] == pytest.approx(
        -np.log(1e-6), rel=1e-5
    )
    data = table_sets.open_table(table_sets.TABLES["friedman2"], 0)
    pred = contenders.from_points(lambda split: np.zeros(len(split)), data.val)(data.test)
    assert pred.total_var.sqrt().unique().item() == pytest.approx(data.val.y.square().mean().sqrt().item())


def test_members_and_weights_survive_the_file(tmp_path):
    rng = np.random.default_rng(0)
    pred = mm.Predictive.from_moments(rng.normal(size=(3, 5, 1)), 0.5, weights=[0.5, 0.3, 0.2])
    y = {"val": np.zeros(5)}
    benchmark.save_predictions(tmp_path / "a" / "p.npz", {"val": pred}, y)
    again, _ = benchmark.load_predictions(tmp_path / "a" / "p.npz", "val")
    assert np.allclose(again.log_prob(np.ones(5)), pred.log_prob(np.ones(5)), rtol=1e-6)


def test_a_run_continues_and_says_what_is_missing(tmp_path, monkeypatch, capsys, quiet):
    out, done = tmp_path / "r.json", []

    def run_cell(cell, out, uci):
        done.append(cell)
        return entry(*cell, 1.0)

    monkeypatch.setattr(benchmark, "run_cell", run_cell)
    monkeypatch.setitem(contenders.OTHERS, "absent", contenders.Contender(None, "", ("no_such_package",)))
    common = ["--tables", "wine-cultivars,concrete", "--out", str(out), "--splits", "4"]
    benchmark.main([*common, "--contenders", "prior,absent"])
    first = capsys.readouterr().out
    assert "# absent is left out: no package no_such_package" in first
    assert "# concrete is left out: no folder" in first
    assert "# 4 cells, about 0 s of CPU" in first
    monkeypatch.setitem(contenders.OTHERS, "few", contenders.Contender(None, "", splits=2))
    benchmark.main([*common, "--contenders", "prior,few"])
    names = [(cell.contender, cell.split) for cell in done]
    assert names == [("prior", 0), ("prior", 1), ("prior", 2), ("prior", 3), ("few", 0), ("few", 1)]
    assert len(json.loads(out.read_text())["cells"]) == 6
    benchmark.main([*common, "--contenders", "few", "--again", "few"])
    assert len(done) == 8


def test_other_records_are_added_and_slow_contenders_begin_with_small_tables(tmp_path, quiet):
    names = {name: tmp_path / f"{name}.json" for name in ("own", "other")}
    benchmark.save(names["own"], record(entry("a", "t", 0, 1.0)))
    benchmark.save(names["other"], record(entry("a", "t", 0, 2.0), entry("b", "t", 0, 3.0)))
    benchmark.main(["--out", str(names["own"]), "--add", str(names["other"])])
    found = json.loads(names["own"].read_text())
    assert {cell["contender"]: cell["raw"]["nll"] for cell in found["cells"]} == {"a": 1.0, "b": 3.0}
    assert set(found["contenders"]) == {"a", "b"}
    cells = list(benchmark.cells_of(["tabm", "prior"], ["digits", "glass"], 1))
    assert [cell[:2] for cell in cells] == [
        ("prior", "digits"),
        ("prior", "glass"),
        ("tabm", "glass"),
        ("tabm", "digits"),
    ]


def test_a_failure_is_recorded(tmp_path, monkeypatch):
    def fit(data, seed):
        raise ValueError("too few rows\nsecond line")

    monkeypatch.setitem(contenders.OTHERS, "broken", contenders.Contender(fit, ""))
    found = benchmark.run_cell(benchmark.Cell("broken", "wine-cultivars", 0), tmp_path / "r.json", None)
    assert found["failed"] == "ValueError: too few rows"
    assert "broken` on wine-cultivars" in page.failures(record(found))


def test_the_better_variant_is_ranked_on_shared_splits():
    cells = [entry("prior", "t", split, 3.0) for split in range(3)]
    cells += [entry("a", "t", split, 2.0, 1.0 + split) for split in range(3)]  # raw and calibrated are equal: raw
    cells += [entry("b", "t", split, 9.0, 1.5) for split in range(2)]  # calibrated
    cells += [entry("c", "t", 2, 2.0)]
    table = page.results(record(*cells)).set_index("contender", drop=False)
    assert [table.calibrated[[name]].unique().tolist() for name in "abc"] == [[False], [True], [False]]
    assert page.ranks(table.loc[["a", "b"]], "nll").to_dict() == {"a": 2.0, "b": 1.0}
    assert page.ranks(table.loc[["a", "c"]], "nll").to_dict() == {"a": 1.5, "c": 1.5}
    scores = page.normalised(table.loc[["a", "b", "prior"]], "nll")
    assert scores.to_dict() == pytest.approx({"a": 1 / 1.5, "b": 1.0})


def test_tables_that_a_contender_lacks_are_not_ranked_and_lost_ones_are_listed():
    cells = [entry("prior", table, split, 3.0) for table in "st" for split in range(3)]
    cells += [entry("default", table, split, 2.0 + 0.01 * split) for table in "st" for split in range(3)]
    cells += [entry("linear", "t", split, 1.0) for split in range(3)]
    cells += [entry("linear", "s", 0, 1.0, failed="ValueError: no")]
    rows = page.summary(record(*cells))
    assert list(rows.index) == ["linear", "default"]
    assert rows.tables["linear"] == rows.rank_nll["linear"] == 1
    lost, ranks = table_rows(page.lost_table(record(*cells))), table_rows(page.ranks_table(record(*cells)))
    assert ["t", "2 of 2", "2.010", "ridge, logistic", "1.000", "+1.010 ± 0.006", "0.50"] in lost
    assert ["**our default**", "2.00", "2.00", "2.00", "0.495"] in [row[:5] for row in ranks]
    assert ranks[0][0] == "1 tables"
    assert ["t", "10", "3", "2.01", "**1**"] in table_rows(page.scores_table(record(*cells), "nll"))
    assert page.lost_table(record(*(cell for cell in cells if cell["contender"] != "linear"))) == "None."


def test_error_rates_rank_accuracies():
    cells = [entry(name, "t", 0, value, task="classification") for name, value in (("a", 0.9), ("b", 0.8))]
    assert page.ranks(page.results(record(*cells)), "point").to_dict() == {"a": 1.0, "b": 2.0}
    assert "**0.9**" in page.scores_table(record(*cells), "point")


def test_the_speed_benchmark_has_its_rows_and_ratios(monkeypatch):
    small = {task: tabular.make_data(task, (60, 30, 30)) for task in tabular.TASKS}
    for task, data in small.items():
        assert data.task == task
        assert (len(data.train), len(data.val), len(data.test), data.train.x.shape[1]) == (60, 30, 30, 20)
    monkeypatch.setattr(tabular, "CONTENDERS", {"default": ("", contenders.linear), "prior": ("", contenders.prior)})
    found = tabular.run(["default", "prior"], 2, small.__getitem__)
    assert found["default"]["regression"]["nll"] < found["prior"]["regression"]["nll"]
    assert set(tabular.ratios(found)) == {"over_prior"}


@pytest.mark.parametrize("name", contenders.OTHERS)
def test_every_contender_takes_categories_missing_values_and_unseen_levels(name, monkeypatch):
    if missing := contenders.contender(name).missing:
        pytest.skip(f"no package {missing}")
    monkeypatch.setattr(official_tabm, "MOST_EPOCHS", 2)
    rng, count = np.random.default_rng(0), 150
    level = rng.choice(["a", "b", None], count)
    x = np.where(rng.random(count) < 0.1, np.nan, rng.normal(size=count))
    number = np.nan_to_num(x) + (level == "a") + 0.1 * rng.normal(size=count)
    frame = pd.DataFrame({"x, 1": x, "constant": 1, "level": pd.Series(level, dtype=object)})
    frame.loc[140:, "level"] = "unseen"
    rows = {"val": np.arange(80, 100), "test": np.arange(100, 150)}
    for task, y in (("regression", number), ("classification", np.digitize(number, [0, 1]))):
        data = mm.open_data(frame.assign(y=y), target="y", task=task, **rows)
        contenders.seed_all(0)
        pred = contenders.contender(name).fit(data, 0)(data.test)
        y, plain = contenders.values(data.test), contenders.prior(data, 0)(data.test)
        found = benchmark.scores(pred, y)
        assert all(np.isfinite(list(found.values())))
        assert pred.mean.shape == (50, 3 if task == "classification" else 1)
        if name not in ("prior", "tabm"):
            assert found["proper"] < benchmark.scores(plain, y)["proper"]
