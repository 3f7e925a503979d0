"""Tables of practice through the commands: nothing but the target is named, and nothing stops or drowns the run."""

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_fixtures import Ended
from real_tables import cars, churn, write_csv

import murmuration as mm
from murmuration.cli import main

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.filterwarnings("always::UserWarning")
Murmur = Callable[..., Ended]
ID_NOTE = "note: column 'customer_id' has 140 distinct values in 140 rows and looks like an identifier"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables and a run on each."""
    path = tmp_path_factory.mktemp("real")
    write_csv(churn(200), path / "churn.csv")
    write_csv(cars(200), path / "cars.csv")
    write_csv(churn(40, seed=9), path / "new.csv")
    quick = ("--members", "2", "--epochs", "3", "--json")
    assert main(["train", str(path / "churn.csv"), "--target", "churned", "--out", str(path / "churn"), *quick]) == 0
    assert main(["train", str(path / "cars.csv"), "--target", "price", "--out", str(path / "cars"), *quick]) == 0
    return path


def test_a_real_table_trains_predicts_and_reports_without_a_flag(murmur: Murmur, tmp_path: Path):
    path, run = write_csv(churn(200), tmp_path / "t.csv"), tmp_path / "run"
    new = write_csv(churn(9, seed=3), tmp_path / "new.csv")
    ended = murmur("train", path, "--target", "churned", "--out", run)
    assert ended.code == 0, ended.err
    decimals, dates, *notes = ended.err.splitlines()
    assert decimals.startswith("note: each cell of column charge is read as a number with a decimal comma")
    assert dates.startswith("note: each cell of column since is read as a date such as 31.12.2024, day first")
    assert len(notes) == 2
    assert notes[0].startswith(ID_NOTE)
    assert notes[0].endswith("--keep customer_id insists")
    assert notes[1].startswith("note: column 'note' holds free text")
    assert (run / "report.html").exists()
    assert "classification of churned (2 classes)" in ended.out
    ended = murmur("predict", run, new)
    assert ended.code == 0
    assert ended.err == "note: 1 of 9 rows have inputs outside of training (column charge); see the column outside\n"
    assert "9 of 9 predictions" in ended.out


def test_every_note_is_said_once(murmur: Murmur, tmp_path: Path):
    path = write_csv(churn(200), tmp_path / "t.csv")
    asked = ("--keep", "customer_id", "--drop", "note", "--members", "2", "--epochs", "2")
    ended = murmur("train", path, "--target", "churned", "--out", tmp_path / "run", *asked)
    assert ended.code == 0, ended.err
    assert ended.err.count("of column 'customer_id' was in the training rows") == 1
    assert len(ended.err.splitlines()) == len(set(ended.err.splitlines()))


def test_predictions_copy_columns_and_say_what_is_outside(murmur: Murmur, folder: Path, tmp_path: Path):
    far = churn(40, seed=9).assign(tenure=10_000)
    write_csv(far, tmp_path / "far.csv")
    ended = murmur(
        "predict", folder / "churn", tmp_path / "far.csv", "--keep", "customer_id,plan", "--out", tmp_path / "p.csv"
    )
    assert ended.code == 0
    assert ended.err.count("\n") == 1
    assert "40 of 40 rows have inputs outside of training (column tenure" in ended.err
    shown = murmur("predict", folder / "churn", tmp_path / "far.csv")
    assert "40 of 40 rows have inputs outside of training (column tenure" in shown.err
    written = pd.read_csv(tmp_path / "p.csv", keep_default_na=False)
    assert list(written)[:3] == ["customer_id", "plan", "predicted"]
    assert written["customer_id"].tolist() == far["customer_id"].tolist()
    assert written["plan"].tolist() == far["plan"].fillna("").tolist()
    assert (written["outside"] >= 1).all()
    ensemble = mm.load(folder / "churn")
    assert ensemble.predict(far, keep="customer_id").to_pandas()["customer_id"].tolist() == far["customer_id"].tolist()
    ended = murmur("predict", folder / "churn", tmp_path / "far.csv", "--keep", "customer")
    assert ended.code == 2
    assert "no column 'customer' in the table" in ended.err
    renamed = write_csv(far.rename(columns={"customer_id": "predicted"}), tmp_path / "odd.csv")
    ended = murmur("predict", folder / "churn", renamed, "--keep", "predicted")
    assert ended.code == 2
    assert "is also the name of a column of predictions: rename it in the table" in ended.err


def test_predictions_of_a_regression_are_named_after_the_target(murmur: Murmur, folder: Path, tmp_path: Path):
    ended = murmur("predict", folder / "cars", folder / "cars.csv", "--keep", "listing", "--out", tmp_path / "p.csv")
    assert ended.code == 0
    assert ended.err.startswith("note: 9 of 200 rows have inputs outside of training (columns listing, km, hp)")
    names = list(pd.read_csv(tmp_path / "p.csv"))
    assert names[:3] == ["listing", "mean_price", "aleatoric_std_price"]
    assert names[-1] == "outside"
    ended = murmur("predict", folder / "cars", folder / "cars.csv", "--json")
    shown = json.loads(ended.out)
    assert shown["rows"] == 200
    assert len(shown["predictions"]["mean_price"]) == 10
    expected = mm.load(folder / "cars").predict(folder / "cars.csv").mean[:10, 0]
    np.testing.assert_allclose(shown["predictions"]["mean_price"], expected)
    ended = murmur("predict", folder / "cars", folder / "cars.csv", "--per-member")
    assert ended.code == 2
    assert "--per-member without a file: write --out FILE.npz" in ended.err


def test_surplus_columns_are_ignored_and_renamed_ones_suggested(murmur: Murmur, folder: Path, tmp_path: Path):
    table = cars(60, seed=2)
    ended = murmur("predict", folder / "cars", write_csv(table.assign(colour="red", owners=2), tmp_path / "more.csv"))
    assert ended.code == 0
    surplus, outside = ended.err.splitlines()
    assert surplus == "note: the table has columns that training did not have, which are ignored: colour, owners"
    assert "rows have inputs outside of training" in outside
    ended = murmur("predict", folder / "cars", write_csv(table.rename(columns={"km": "Km"}), tmp_path / "odd.csv"))
    assert ended.code == 2
    assert "no column 'km' in the table" in ended.err
    assert "did you mean 'Km'?" in ended.err


def test_the_report_and_monitor_speak_of_dates_years_and_new_levels(murmur: Murmur, folder: Path, tmp_path: Path):
    later = cars(80, seed=4).assign(seen="31/12/2025")
    later["brand"] = ["Tesla"] * 30 + ["Kia"] * 10 + ["Fiat"] * 40
    run = shutil.copytree(folder / "cars", tmp_path / "run")
    ended = murmur("monitor", run, write_csv(later, tmp_path / "later.csv"))
    assert (ended.code, ended.err) == (0, "")
    assert "2025-12-31" in ended.out
    assert "New in brand: Tesla, Kia (50 % of the rows)." in ended.out
    assert "2015" in ended.out
    assert "2,01" not in ended.out
    page = (run / "monitor-later.html").read_text()
    assert "50.0 %: Tesla, Kia" in page
    test = mm.open_data(folder / "cars.csv", target="price").test
    outside = int((mm.load(run).predict(test).outside.count > 0).sum())
    assert f"{outside} of 40 test examples have inputs beyond the training range" in murmur("evaluate", run).out


def test_a_price_is_no_classification(murmur: Murmur, folder: Path, tmp_path: Path):
    asked = ("--target", "price", "--task", "classification", "--out", tmp_path / "run")
    ended = murmur("train", folder / "cars.csv", *asked)
    assert ended.code == 2
    assert "has 200 distinct numbers in 200 rows: expected at most 100 classes; write --task regression" in ended.err


def test_a_note_in_python_points_at_the_line_of_the_user():
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        mm.fit("mlp:hidden=4", churn(120), target="churned", keep="customer_id", drop="note", members=2, epochs=1)
        estimator = mm.EnsembleClassifier("mlp:hidden=4", members=1, epochs=1)
        estimator.fit(churn(120).drop(columns="churned"), churn(120)["churned"])
    assert {note.filename for note in notes} == {__file__}
    texts = [(note.lineno, str(note.message)) for note in notes]
    assert len(set(texts)) == len(texts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "target", "options"),
    [
        (lambda: churn(5_000), "churned", ()),
        (lambda: cars(5_000), "price", ()),
        (lambda: churn(100_000), "churned", ("--members", "2", "--epochs", "1")),
        (lambda: cars(100_000), "price", ("--members", "2", "--epochs", "1")),
    ],
)
def test_larger_real_tables_train_predict_and_report(murmur: Murmur, tmp_path: Path, table, target, options):
    path = write_csv(table(), tmp_path / "t.csv")
    ended = murmur("train", path, "--target", target, "--out", tmp_path / "run", *options)
    assert ended.code == 0, ended.err
    assert len(ended.err.splitlines()) == 4
    ended = murmur("predict", tmp_path / "run", path)
    assert ended.code == 0
    assert len(ended.err.splitlines()) <= 1
