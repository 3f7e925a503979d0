"""Columns of tables: importance by closed forms, partial dependence of linear models, unusual rows, planted drift."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from check_report import report_check
from scipy import stats

import murmuration as mm
from murmuration.data.preparation import fit_column
from murmuration.evaluation.columns import (
    LEVEL,
    categories_change,
    column_importance,
    drift,
    holm,
    missing_change,
    numbers_change,
    partial_dependence,
    share,
    shuffled,
    unusual_rows,
)
from murmuration.reports import Report, render
from murmuration.reports.monitor_page import monitor_page

ROWS = 600


def table(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    kinds = np.array(["red", "green", "blue"])[rng.integers(3, size=rows)]
    made = pd.DataFrame({"size": rng.normal(10, 2, rows), "weight": rng.normal(0, 1, rows), "colour": kinds})
    made["price"] = 3 * made["size"] + 5 * (kinds == "red") + rng.normal(0, 0.5, rows)
    return made


@pytest.fixture(scope="module")
def prices() -> tuple[mm.Ensemble, mm.Data]:
    data = mm.open_data(table(), target="price")
    return mm.fit("mlp", data, members=3, epochs=25, lr=0.01, batch_size=64, posthoc=None), data


@pytest.fixture(scope="module")
def classes() -> tuple[mm.Ensemble, mm.Data]:
    made = table().drop(columns="price")
    made["kind"] = np.where(made["size"] > 10, "large", "small")
    data = mm.open_data(made, target="kind")
    return mm.fit("mlp", data, members=3, epochs=15, lr=0.01, batch_size=64), data


@pytest.mark.slow
def test_columns_that_make_the_target_matter_and_others_do_not(prices):
    ensemble, data = prices
    found = column_importance(ensemble, data, rows=100)
    assert found.columns == ("size", "weight", "colour")
    assert found.columns[found.order[0]] == "size"
    mean, error = found.summary("error")
    assert mean[0] > 5 * error[0]
    assert mean[0] > 20 * abs(mean[1])
    assert mean[2] > 3 * error[2]
    again = column_importance(ensemble, data, rows=100)
    np.testing.assert_array_equal(found.error, again.error)
    assert found.frame()["column"].tolist()[0] == "size"
    assert any("depends most on size" in each for each in found.sentences)


def test_shares_of_variance_are_those_of_a_linear_uncertainty():
    """u = a x + b z of independent columns: x needs a^2 / (a^2 + b^2) of its variance, with the error of N pairs."""
    rng, count = np.random.default_rng(0), 20_000
    x, z = torch.from_numpy(rng.normal(size=(2, count)))
    order = rng.permutation(count)
    u, shares = 3 * x + 4 * z, []
    for after in (3 * x[order] + 4 * z, 3 * x + 4 * z[order]):
        shares.append(share(u, after))
    # (u - v)^2 / (2 Var) has the variance 2 share^2, and pairs of a permutation are nearly independent
    for found, expected in zip(shares, (9 / 25, 16 / 25), strict=True):
        assert found == pytest.approx(expected, abs=4 * np.sqrt(2 / count) * expected * 1.5)
    assert share(torch.ones(5), torch.ones(5)) == 0.0


def test_shuffling_keeps_types_and_other_columns():
    made = table(20).astype({"colour": "category"})
    changed = shuffled(made, "colour", np.arange(20)[::-1])
    assert changed["colour"].dtype == made["colour"].dtype
    assert changed["colour"].tolist() == made["colour"].tolist()[::-1]
    pd.testing.assert_frame_equal(changed.drop(columns="colour"), made.drop(columns="colour"))


def test_one_network_has_no_epistemic_importance():
    data = mm.open_data(table(100), target="price")
    single = mm.fit("mlp", data, recipe="single", epochs=1, posthoc=None)
    found = column_importance(single, data, repeats=2)
    assert found.epistemic is None
    assert "epistemic" not in found.frame()


def test_partial_dependence_of_linear_networks_is_their_slope(prices):
    """Members f_m(x) = s_m x: curves are s_m x, their mean has the mean slope, their spread that of the slopes."""
    ensemble, data = prices
    found = partial_dependence(ensemble, data, "size", points=7)
    assert found.members.shape[1:] == (len(found.values), 1)
    assert found.numeric
    assert np.all(np.diff(found.mean[:, 0]) > 0)
    inner = slice(1, -1)
    slope = np.polyfit(np.array(found.values)[inner], found.mean[inner, 0], 1)[0]
    assert slope == pytest.approx(3, abs=0.4)
    by_hand = np.stack(
        [
            ensemble.predict(data.test.x.assign(size=value)).member_mean.double().mean(1).numpy()
            for value in found.values
        ],
        1,
    )
    np.testing.assert_allclose(found.members, by_hand, rtol=1e-6)
    np.testing.assert_allclose(found.std, by_hand.std(0), rtol=1e-6)


@pytest.mark.slow
def test_partial_dependence_on_categories_and_of_classes(classes):
    ensemble, data = classes
    colours = partial_dependence(ensemble, data, "colour")
    assert set(colours.values) == {"red", "green", "blue"}
    np.testing.assert_allclose(colours.mean.sum(-1), 1, rtol=1e-6)
    assert set(colours.outputs) == {"large", "small"}
    large = partial_dependence(ensemble, data, "size").mean[:, colours.outputs.index("large")]
    assert large[0] < 0.2 < 0.8 < large[-1]
    with pytest.raises(mm.Misuse, match="unknown column 'prize'"):
        partial_dependence(ensemble, data, "prize")


def test_a_planted_row_is_the_most_unusual(prices):
    ensemble, data = prices
    rows = data.test.x.copy()
    rows.iloc[7, rows.columns.get_loc("weight")] = 40.0
    first, *others = unusual_rows(ensemble, data.train.x, rows)
    assert first.row == 7
    assert first.columns[0] == "weight"
    assert first.values[0] == 40.0
    assert first.distance > 3 * others[0].distance


def test_corrected_p_values_by_hand():
    p = [0.001, 0.2, 0.013, 0.04]
    np.testing.assert_allclose(holm(p), [0.004, 0.2, 0.039, 0.08])


def test_tests_of_columns_are_those_of_scipy():
    old, new = table(300), table(200, seed=1)
    numeric = numbers_change(fit_column(old["size"]), old["size"], new["size"])
    expected = stats.ks_2samp(old["size"], new["size"])
    assert (numeric.size, numeric.p_value) == (expected.statistic, expected.pvalue)
    categorical = categories_change("colour", old["colour"], new["colour"])
    counts = [[(each["colour"] == level).sum() for level in ("blue", "green", "red")] for each in (old, new)]
    assert categorical.p_value == pytest.approx(stats.chi2_contingency(counts).pvalue)
    assert missing_change("size", old["size"], new["size"]) is None


@pytest.mark.slow
def test_the_same_distribution_seldom_drifts_and_planted_drift_is_found(prices):
    ensemble, data = prices
    alarms = sum(bool(drift(ensemble, data, table(200, seed=s).drop(columns="price")).drifted) for s in range(1, 41))
    assert alarms <= 2  # of 40, each with a probability of at most LEVEL = 0.01: more has a probability below 0.01
    changed = table(200, seed=99).drop(columns="price")
    changed["size"] += 4
    changed.loc[changed.index[:60], "weight"] = np.nan
    changed.loc[changed.index[:80], "colour"] = "violet"
    found = drift(ensemble, data, changed)
    named = {(each.name, each.kind) for each in found.drifted}
    assert {("size", "numbers"), ("weight", "missing values"), ("colour", "categories")} <= named
    assert next(each for each in found.changes if each.kind == "categories").unseen == pytest.approx(0.4)
    assert ("epistemic uncertainty", "uncertainty") in named
    assert found.verdict[0].startswith("Drift in 3 of the columns")
    assert all(each.adjusted < LEVEL for each in found.drifted)


def test_set_sizes_are_compared_where_there_are_sets(classes):
    ensemble, data = classes
    found = drift(ensemble, data, table(100, seed=3)[["size", "weight", "colour"]])
    assert "size of the conformal sets" in [each.name for each in found.changes]
    assert found.verdict[0].startswith("No drift")


def test_what_is_refused(prices):
    ensemble, data = prices
    with pytest.raises(mm.Misuse, match="3 rows: need at least 20"):
        drift(ensemble, data, table(3))
    with pytest.raises(mm.Misuse, match="no column 'weight'"):
        drift(ensemble, data, table(50).drop(columns=["weight", "price"]))
    with pytest.raises(mm.Misuse, match="expected a table"):
        drift(ensemble, data, np.zeros((30, 3)))
    digits = mm.open_data("two-moons")
    other = mm.fit("mlp", digits, members=1, epochs=1, posthoc=None)
    with pytest.raises(mm.Misuse, match="columns belong to tables"):
        column_importance(other, digits)
    with pytest.raises(mm.Misuse, match="repeats=1"):
        column_importance(ensemble, data, repeats=1)


@pytest.mark.slow
def test_the_report_of_a_table_has_a_section_on_its_columns(classes, tmp_path):
    ensemble, data = classes
    page = render(Report((mm.evaluate(ensemble, data),)))
    assert 'id="columns"' in page
    for figure in ("importance-error", "importance-uncertainty", "dependence-0", "dependence-2"):
        assert figure in page
    assert "Rows most unlike the training rows" in page
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    assert report_check(file) == []
    other = mm.open_data("two-moons")
    moons = mm.evaluate(mm.fit("mlp", other, members=2, epochs=1), other)
    assert 'id="columns"' not in render(Report((moons,)))


def test_the_page_of_new_rows_and_its_figures(prices, tmp_path):
    ensemble, data = prices
    new = table(100, seed=4).drop(columns="price").assign(size=30.0)
    found = drift(ensemble, data, new)
    file = tmp_path / "monitor.html"
    file.write_text(monitor_page("runs/<b>", "new.csv", found, unusual_rows(ensemble, data.train.x, new)), "utf-8")
    assert report_check(file) == []
    assert "&lt;b&gt;" in file.read_text("utf-8")
    assert mm.plots.drift(found).data
    assert mm.plots.partial_dependence(partial_dependence(ensemble, data, "colour")).data
    importance = column_importance(ensemble, data, rows=40, repeats=2)
    assert mm.plots.column_importance(importance, "uncertainty").layout.title.text.startswith(
        "Importance for the uncer"
    )
    with pytest.raises(mm.Misuse, match="unknown"):
        mm.plots.column_importance(importance, "eror")


@pytest.mark.slow
def test_the_command(prices, tmp_path, capsys, monkeypatch):
    from murmuration.cli import main

    monkeypatch.chdir(tmp_path)
    table(200).to_csv("prices.csv", index=False)
    table(60, seed=2).assign(size=40.0).to_csv("new.csv", index=False)
    assert (
        main(
            [
                "train",
                "prices.csv",
                "--target",
                "price",
                "--epochs",
                "1",
                "--members",
                "2",
                "--out",
                "runs/prices",
                "--json",
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert main(["monitor", "runs/prices", "new.csv"]) == 0
    told = capsys.readouterr().out
    assert "Drift in" in told
    assert "written: runs/prices/monitor-new.html" in told
    assert main(["monitor", "runs/prices", "new.csv", "--fail-on-drift"]) == 3
    assert main(["monitor", "runs/prices", "prices.csv", "--fail-on-drift", "--json"]) == 0
    capsys.readouterr()
    assert main(["monitor", "runs/prices", "new.csv", "--json", "--out", "again.html"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["verdict"]
    assert record["unusual"][0]["columns"][0] == "size"
    table(60)[["size"]].to_csv("less.csv", index=False)
    assert main(["monitor", "runs/prices", "less.csv"]) != 0
    assert "no column 'weight' in the table" in capsys.readouterr().err
