"""Tables: three rows by hand, parity with scikit-learn, and the same numbers from a later file."""

import datetime
import json
import warnings
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from murmuration.data import open_data, open_inputs, open_split, preparation_from_json
from murmuration.data.preparation import CategoricalColumn, NumericColumn, fit_array, fit_table
from murmuration.system.errors import Misuse


def mixed(rows: int = 60, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 9, rows)
    age[rng.random(rows) < 0.2] = np.nan
    return pd.DataFrame(
        {
            "age": age,
            "count": rng.integers(0, 99, rows),
            "town": pd.Series(rng.choice(["Bonn", "Köln", "Trier"], rows)).where(rng.random(rows) < 0.8, None),
            "member": rng.random(rows) < 0.5,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, rows), unit="D"),
            "kind": np.resize(["no", "yes", "maybe"], rows),
            "cost": rng.normal(3.0, 1.0, rows),
        }
    )


def test_three_rows_by_hand() -> None:
    table = pd.DataFrame({"a": [1.0, np.nan, 4.0], "b": ["x", None, "y"]})
    preparation = fit_table(table)
    assert preparation.names == ("a", "a missing", "b=x", "b=y", "b missing", "b unseen")
    # median 2.5, so 1, 2.5, 4: mean 2.5, deviation sqrt(1.5)
    z = 1.5 / np.sqrt(1.5)
    expected = [[-z, 0, 1, 0, 0, 0], [0, 1, 0, 0, 1, 0], [z, 0, 0, 1, 0, 0]]
    assert torch.allclose(preparation.apply(table), torch.tensor(expected).float(), atol=1e-6)
    later = pd.DataFrame({"b": ["z", "y"], "a": [2.5, np.nan]})
    expected = [[0, 0, 0, 0, 0, 1], [0, 1, 0, 1, 0, 0]]
    assert torch.allclose(preparation.apply(later), torch.tensor(expected).float(), atol=1e-6)


def test_numbers_are_imputed_and_scaled_as_scikit_learn_does() -> None:
    table = mixed()[["age", "count"]]
    pipeline = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    theirs = pipeline.fit_transform(table.iloc[:40])
    preparation = fit_table(table.iloc[:40])
    columns = [preparation.names.index(name) for name in ("age", "count")]
    assert np.allclose(preparation.apply(table.iloc[:40])[:, columns], theirs, atol=1e-5)
    assert np.allclose(preparation.apply(table.iloc[40:])[:, columns], pipeline.transform(table.iloc[40:]), atol=1e-5)


def test_constant_missing_and_never_missing_columns() -> None:
    table = pd.DataFrame({"same": [7.0] * 4, "none": [np.nan] * 4, "full": [1, 2, 3, 4]})
    with pytest.warns(UserWarning, match="column 'none' is missing in every training row: it is left out"):
        preparation = fit_table(table)
    assert preparation.names == ("same", "full")
    assert preparation.apply(table)[:, 0].abs().max() == 0
    gap = pd.DataFrame({"same": [8.0], "none": [3.0], "full": [None]})
    assert preparation.apply(gap)[0].tolist() == [0.0, 0.0]  # no influence; the median of 1..4 is their mean
    with pytest.raises(Misuse, match="the columns none are missing in every row: expected at least one with values"):
        fit_table(table[["none"]])


@pytest.mark.parametrize(
    "again", [[1, 0, 1], [1.0, 0.0, 1.0], ["1", "0", "1"], [True, False, True], ["True", "False", "True"]]
)
def test_booleans_are_known_as_numbers(again) -> None:
    column = CategoricalColumn("b", ("False", "True"), has_missing=False)
    assert column.apply(pd.Series(again, name="b")).tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]


def test_a_column_of_unseen_values_alone_is_warned_of() -> None:
    column = CategoricalColumn("b", ("x", "y"), has_missing=False)
    with pytest.warns(UserWarning, match="none of 12 values of column 'b' was in the training rows: it has ' x'"):
        column.apply(pd.Series([" x"] * 12, name="b"))
    for blank in (column, CategoricalColumn("b", ("x", "y"), has_missing=True)):
        with pytest.warns(UserWarning, match="none of 12 values"):
            blank.apply(pd.Series([" x"] * 12 + [None], name="b"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        column.apply(pd.Series([" x"] * 12 + ["x"], name="b"))
        column.apply(pd.Series([" x"], name="b"))


def test_missing_category_that_training_never_saw_is_unseen() -> None:
    column = CategoricalColumn("b", ("x", "y"), has_missing=False)
    assert column.apply(pd.Series(["y", None], name="b")).tolist() == [[0, 1, 0], [0, 0, 1]]


def test_dates_count_seconds_in_csv_and_parquet_alike(tmp_path: Path) -> None:
    days = ["2024-01-01", "2024-01-02", "2024-01-05"]
    as_text = fit_table(pd.DataFrame({"day": days})).columns[0]
    as_time = fit_table(pd.DataFrame({"day": pd.to_datetime(days)})).columns[0]
    zoned = fit_table(pd.DataFrame({"day": pd.to_datetime(days).tz_localize("UTC")})).columns[0]
    assert as_text == as_time == zoned
    assert isinstance(as_time, NumericColumn)
    assert as_time.median == 1704067200 + 86400  # 2024-01-02 in UTC
    assert as_time.std == pytest.approx(86400 * np.std([0, 1, 4]))


def test_csv_and_parquet_give_the_same_data(tmp_path: Path) -> None:
    table = mixed()
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    first, second = (open_data(tmp_path / name, target="kind") for name in ("t.csv", "t.parquet"))
    assert first.fingerprint == second.fingerprint
    assert first.preparation == second.preparation
    assert torch.equal(first.test.prepared, second.test.prepared)
    assert first.classes == ("maybe", "no", "yes")
    third = open_data(table, target="kind")
    assert torch.equal(first.train.prepared, third.train.prepared)
    changed = table.assign(count=table["count"] + (table.index == 3))
    assert open_data(changed, target="kind").fingerprint != first.fingerprint


def test_statistics_and_categories_come_from_training_rows(tmp_path: Path) -> None:
    data = open_data(mixed(), target="cost")
    numbers = [i for i, name in enumerate(data.feature_names) if name in ("age", "count", "day")]
    train = data.train.prepared[:, numbers].double()
    assert train.mean(0).abs().max() < 1e-5
    assert (train.std(0, unbiased=False) - 1).abs().max() < 1e-5
    assert data.val.prepared[:, numbers].mean(0).abs().max() > 1e-3


def test_a_later_file_is_prepared_by_the_runs_json(tmp_path: Path) -> None:
    table = mixed()
    data = open_data(table, target="kind")
    preparation = preparation_from_json(json.loads(json.dumps(data.preparation.to_json())))
    assert preparation == data.preparation
    shuffled = table[["cost", "town", "kind", "day", "member", "age", "count"]]
    shuffled.to_csv(tmp_path / "later.csv", index=False)
    split = open_split(tmp_path / "later.csv", preparation=preparation, task="classification", classes=data.classes)
    assert split.y.tolist() == [data.classes.index(kind) for kind in table["kind"]]
    assert torch.equal(split.prepared, preparation.apply(table))
    shuffled.drop(columns="kind").to_csv(tmp_path / "inputs.csv", index=False)
    assert torch.equal(open_inputs(tmp_path / "inputs.csv", preparation=preparation), split.prepared)


def test_several_targets() -> None:
    table = mixed().drop(columns="age")
    data = open_data(table, target="cost, count")
    assert data.task == "regression"
    total = torch.cat([data.train.y, data.val.y, data.test.y]).double().sum(0)
    assert np.allclose(total, table[["cost", "count"]].sum(), rtol=1e-5)
    assert data.preparation.targets == ("cost", "count")
    assert not any(name.startswith(("cost", "count")) for name in data.feature_names)
    comma = table.rename(columns={"cost": "cost, net"})
    assert open_data(comma, target="cost, net").preparation.targets == ("cost, net",)


def test_row_index_and_other_separators(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": np.arange(20.0), "y": np.arange(20) % 2})
    table.to_csv(tmp_path / "indexed.csv")
    assert open_data(tmp_path / "indexed.csv", target="y").feature_names == ("a",)
    table.to_csv(tmp_path / "semi.csv", sep=";", index=False, encoding="utf-8-sig")
    assert open_data(tmp_path / "semi.csv", target="y").feature_names == ("a",)


def test_array_run_reads_a_table_by_its_names(tmp_path: Path) -> None:
    data = open_data("iris")
    raw = np.random.default_rng(0).random((4, 4))
    pd.DataFrame(raw, columns=data.feature_names)[list(reversed(data.feature_names))].to_csv(
        tmp_path / "i.csv", index=False
    )
    assert torch.equal(open_inputs(tmp_path / "i.csv", preparation=data.preparation), data.preparation.apply(raw))
    with pytest.raises(Misuse, match="a table with the columns a for a run trained on an array: expected sepal"):
        open_inputs(pd.DataFrame({"a": [1.0]}), preparation=data.preparation)


def test_a_later_table_that_does_not_fit() -> None:
    preparation = open_data(mixed(), target="kind").preparation
    with pytest.raises(Misuse, match="no column 'town' in the table: expected it; found age, count"):
        open_inputs(mixed().drop(columns="town"), preparation=preparation)
    with pytest.raises(Misuse, match=r"column 'age' holds '\?' in row 2: expected a number"):
        open_inputs(mixed(3).assign(age=["41", "?", None]), preparation=preparation)
    with pytest.raises(Misuse, match=r"inputs of shape \(2, 3\) for a run trained on a table"):
        open_inputs(np.zeros((2, 3)), preparation=preparation)
    classes = ("maybe", "no", "yes")
    frame = mixed(3).assign(kind="never")
    with pytest.raises(Misuse, match=r"label 'never' \(row 1\) is not among the classes: expected maybe, no, yes"):
        open_split(frame, preparation=preparation, task="classification", classes=classes)
    assert open_inputs(mixed(3).assign(age=["41", "42", None]), preparation=preparation).isfinite().all()


def test_columns_that_cannot_be_features() -> None:
    rows = 1100
    table = pd.DataFrame({"id": [f"n{i}" for i in range(rows)], "y": np.arange(rows) % 2})
    with pytest.raises(Misuse, match=r"column 'id' has \d+ distinct texts .* expected at most 1000") as caught:
        open_data(pd.concat([table, table.assign(id=table["id"] + "b")]), target="y", keep="id")
    assert "\n" not in str(caught.value)
    with pytest.raises(Misuse, match="column 'a' holds a list in row 1: expected text"):
        open_data(pd.DataFrame({"a": [[1], [2]] * 15, "y": [0, 1] * 15}), target="y")
    with pytest.raises(Misuse, match="the table has two columns 'a': expected every name once"):
        open_data(pd.DataFrame([[1, 2, 0]] * 5, columns=["a", "a", "y"]), target="y")
    with pytest.raises(Misuse, match="the table has no feature columns"):
        open_data(pd.DataFrame({"y": [0, 1] * 5}), target="y")


def test_tables_are_not_modified() -> None:
    table = mixed()
    before = table.copy(deep=True)
    open_data(table, target="kind")
    pd.testing.assert_frame_equal(table, before)


def test_the_training_file_is_no_test_file(tmp_path: Path) -> None:
    pd.DataFrame({"a": range(40), "y": np.arange(40.0)}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(Misuse, match=r"is the training data: give other rows, or a share such as test=0\.2"):
        open_data(tmp_path / "t.csv", target="y", test=str(tmp_path / "t.csv"))


@pytest.mark.parametrize("odd", ["not a date", "2023-02-31", "31/01/2023"])
def test_the_value_that_is_no_date_is_named(odd) -> None:
    preparation = fit_table(pd.DataFrame({"day": ["2024-01-01", "2024-01-02", "2024-01-05"]}))
    with pytest.raises(Misuse, match=f"column 'day' holds '{odd}' in row 3: expected a date such as 2024-01-31"):
        preparation.apply(pd.DataFrame({"day": ["2024-01-01", "2024-01-02", odd, "2024-01-05"]}))


TIMES = {"dates": pd.Timestamp("2020-01-01"), "durations": pd.Timedelta("3 days")}


def one_column(values: Any) -> pd.DataFrame:
    return pd.DataFrame({"age": values})


@pytest.mark.parametrize("quantity", TIMES)
def test_dates_and_durations_are_no_numbers(quantity: str) -> None:
    ages, times = one_column(np.arange(20.0)), one_column([TIMES[quantity] + pd.Timedelta(days=i) for i in range(20)])
    for training, later, had in ((ages, times, "numbers"), (times, ages, quantity)):
        preparation = fit_table(training)
        with pytest.raises(Misuse, match=f"column 'age' holds .*, and training had {had}"):
            preparation.apply(later)
        again = preparation_from_json(json.loads(json.dumps(preparation.to_json())))
        assert again == preparation
        assert len(preparation.apply(one_column(later["age"].where(later["age"].isna())))) == 20


def test_numbers_and_dates_in_other_types_are_as_in_training() -> None:
    ages, dates = fit_table(one_column(np.arange(20.0))), fit_table(one_column(pd.date_range("2020-01-01", periods=20)))
    as_numbers, texts = ages.apply(one_column([3.0])), pd.Series(["2020-01-02"])
    for later in ([3], ["3"], [Decimal(3)], pd.array([3], dtype="Int64")):
        assert torch.equal(ages.apply(one_column(later)), as_numbers)
    for dated in (texts, pd.to_datetime(texts), pd.to_datetime(texts, utc=True), [datetime.date(2020, 1, 2)]):
        assert torch.equal(dates.apply(one_column(dated)), dates.apply(one_column(pd.to_datetime(texts))))
    for later in ("2020-01-02", datetime.date(2020, 1, 2)):
        with pytest.raises(Misuse, match="holds dates, and training had numbers"):
            ages.apply(one_column([later]))
    for later in (1577923200, "1577923200"):
        with pytest.raises(Misuse, match="holds numbers, and training had dates"):
            dates.apply(one_column([later]))


def test_a_table_for_a_run_of_arrays_has_numbers() -> None:
    preparation = replace(fit_array(np.arange(20.0)[:, None], (), "standardise"), names=("age",))
    assert torch.equal(preparation.apply(one_column([3.0])), preparation.apply(np.array([[3.0]])))
    with pytest.raises(Misuse, match="column 'age' holds dates: expected numbers"):
        preparation.apply(one_column(pd.to_datetime(["2020-01-02"])))


def test_a_column_that_occurs_twice_is_refused() -> None:
    ages = one_column(np.arange(20.0))
    with pytest.raises(Misuse, match="2 columns 'age'"):
        fit_table(ages).apply(pd.concat([ages, ages], axis=1))
