"""Tables of practice: columns that are left out, local numbers and dates, free text, kinds of files."""

import gzip
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from real_tables import cars, churn, write_csv

import murmuration as mm
from murmuration.data import open_inputs, open_split, preparation_from_json
from murmuration.data.column_roles import is_key_name
from murmuration.data.preparation import CategoricalColumn, NumericColumn, TextColumn, fit_table
from murmuration.system.errors import Failure, Misuse, notes_once

NUMBER = "a number with a decimal comma such as 1.234,50, in new rows too"


def opened(table, **options):
    """Return the data and the notes of opening it."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        data = mm.open_data(table, **options)
    return data, [str(note.message) for note in notes]


def inputs_of(data) -> list[str]:
    return [column.name for column in data.preparation.columns]


def test_identifiers_and_free_text_are_left_out_with_one_note_each():
    data, notes = opened(churn(200), target="churned")
    assert inputs_of(data) == ["tenure", "charge", "since", "last_call", "plan", "age", "paperless"]
    assert len(notes) == 4
    assert notes[0] == "each cell of column charge is read as " + NUMBER
    assert notes[1] == "each cell of column since is read as a date such as 31.12.2024, day first, in new rows too"
    notes = notes[2:]
    assert notes[0].startswith("column 'customer_id' has 140 distinct values in 140 rows and looks like an identifier")
    assert notes[0].endswith("it is left out; keep='customer_id' insists")
    assert notes[1].startswith("column 'note' holds free text, ")
    assert "text='note' takes its words as inputs" in notes[1]
    assert data.preparation.ignored == ("customer_id", "note")
    later = churn(9, seed=1).drop(columns=["customer_id", "note", "churned"])
    assert open_inputs(later, preparation=data.preparation).shape == (9, len(data.feature_names))


def test_a_column_is_kept_on_request_and_too_many_levels_are_refused():
    data, notes = opened(churn(200), target="churned", keep="customer_id", drop="note")
    assert "customer_id" in inputs_of(data)
    assert not any("left out" in note for note in notes)
    with pytest.raises(Misuse, match=r"column 'customer_id' has 1050 distinct texts .* write drop='customer_id'"):
        mm.open_data(churn(1500), target="churned", keep=("customer_id",), drop="note")
    with pytest.raises(Misuse, match="no column 'customerid' in the table: did you mean 'customer_id'"):
        mm.open_data(churn(60), target="churned", keep="customerid")
    with pytest.raises(Misuse, match="keep='note' and text='note': give one of them"):
        mm.open_data(churn(60), target="churned", keep="note", text="note")
    with pytest.raises(Misuse, match="keep= names columns of a table, but tensors is not one"):
        mm.open_data((np.zeros((9, 2)), np.arange(9.0)), keep="km")


@pytest.mark.parametrize("name", ["id", "ID", "customer_id", "PassengerId", "customerID", "uuid", "index", "order_no"])
def test_names_of_keys(name):
    assert is_key_name(name)


@pytest.mark.parametrize("name", ["km", "paid", "humid", "price_index", "number_of_rooms", "year", "x1", "width"])
def test_names_of_measurements(name):
    assert not is_key_name(name)


def numbers(name: str, values) -> list[str]:
    """Return the inputs of a table with one column of whole numbers and another."""
    table = pd.DataFrame({name: values, "x": np.arange(len(values)) % 7, "y": np.arange(len(values)) % 2})
    data, _ = opened(table, target="y")
    return inputs_of(data)


def test_whole_numbers_are_left_out_by_name_and_distinctness_alone():
    rng = np.random.default_rng(0)
    distinct, repeated = rng.permutation(300)[:100], rng.integers(0, 9, 100)
    assert numbers("user_id", distinct) == ["x"]
    assert numbers("user_id", repeated) == ["user_id", "x"]
    assert numbers("price", distinct * 1000 + 17) == ["price", "x"]  # a measurement that never repeats
    assert numbers("listing", distinct) == ["listing", "x"]
    with pytest.warns(UserWarning, match="column 'listing' never repeats and looks like a number of the row: leave it"):
        fit_table(pd.DataFrame({"listing": distinct}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_table(pd.DataFrame({"price": rng.integers(0, 10**9, 100)}))


def test_measurements_with_an_odd_cell_are_refused_and_not_left_out():
    table = cars(200).drop(columns=["remark", "price"]).assign(y=np.arange(200) % 2)
    odd = table.assign(hp=[f"{i}.5" if i != 6 else "?" for i in range(200)])
    with pytest.raises(Misuse, match=r"column 'hp' holds '\?' in row 7 and numbers elsewhere: empty the cell"):
        opened(odd, target="y", test="none", val=0.1)
    texts = table.assign(hp=[f"{i}.5" for i in range(200)])
    with pytest.raises(Misuse, match=r"column 'hp' holds numbers as texts: convert it with pandas.to_numeric"):
        opened(texts, target="y")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([str(i % 30) for i in range(90)], "'k.A.' in row 6 and numbers elsewhere: empty the cell if it is a missing"),
        ([f"{i % 30},5" for i in range(90)], "'k.A.' in row 6 and decimal commas elsewhere"),
        ([f"2024-01-{i % 28 + 1:02}" for i in range(90)], "'k.A.' in row 6 and dates elsewhere"),
        ([f"{i % 30} EUR" for i in range(90)], "'0 EUR' and other numbers with a unit: expected numbers alone; keep="),
        ([f"{i % 30} EUR" if i % 7 else "nan EUR" for i in range(90)], "'1 EUR' and other numbers with a unit"),
        ([f"$ {i % 30}.50" for i in range(90)], "'. 0.50' and other numbers with a unit"),
    ],
)
def test_a_word_or_a_unit_does_not_make_numbers_that_repeat_categories(cells, message):
    table = pd.DataFrame({"a": [*cells[:5], "k.A.", *cells[6:]], "x": range(90), "y": np.arange(90) % 2})
    with pytest.raises(Misuse, match=f"column 'a' holds {message}"):
        opened(table, target="y", drop="x")
    data, _ = opened(table, target="y", drop="x", keep="a")
    assert isinstance(data.preparation.columns[0], CategoricalColumn)


def test_few_distinct_numbers_with_a_word_are_codes():
    codes = [["1", "2", "3", "4", "other"][i % 5] if i % 3 else "1" for i in range(90)]
    grades = [f"{i % 10} years" for i in range(90)]
    data, notes = opened(pd.DataFrame({"a": codes, "b": grades, "y": np.arange(90) % 2}), target="y")
    assert notes == []
    assert all(isinstance(column, CategoricalColumn) for column in data.preparation.columns)


def test_blank_cells_of_a_file_are_missing(tmp_path: Path):
    rows = "".join(f"{i}.5,{i % 2}\n" for i in range(60))
    (tmp_path / "t.csv").write_text(f"total,y\n{rows} ,1\n  ,0\n")
    data = mm.open_data(tmp_path / "t.csv", target="y", seed=1)
    assert isinstance(data.preparation.columns[0], NumericColumn)


def test_a_table_of_identifiers_alone_is_refused():
    table = pd.DataFrame({"name": [f"n{i}" for i in range(60)], "y": np.arange(60) % 2})
    with pytest.raises(Misuse, match=r"all columns look like identifiers or free text \(name\): write keep='name'"):
        opened(table, target="y")


def test_decimal_commas_and_dates_are_numbers_in_inputs_and_targets(tmp_path: Path):
    table = cars(200)
    plain = table.assign(
        price=[float(cell.replace(",", ".")) for cell in table["price"]],
        seen=pd.to_datetime(table["seen"], format="%d/%m/%Y"),
    )
    local, notes = opened(write_csv(table, tmp_path / "cars.csv"), target="price")
    assert "each cell of column price is read as " + NUMBER in notes
    same, _ = opened(plain, target="price")
    assert local.task == "regression"
    assert torch.equal(local.train.prepared, same.train.prepared)
    assert torch.equal(local.test.y, same.test.y)
    seen = next(column for column in local.preparation.columns if column.name == "seen")
    assert (seen.quantity, seen.form) == ("dates", "day first")
    assert preparation_from_json(json.loads(json.dumps(local.preparation.to_json()))) == local.preparation
    one = table.iloc[[3]].assign(seen="05/04/2024")  # one row alone could be the 4th of May
    by_date = plain.iloc[[3]].assign(seen=pd.Timestamp("2024-04-05"))
    assert torch.equal(local.preparation.apply(one), local.preparation.apply(by_date))


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        ([f"1.{i:03d},50" for i in range(40)], [1000.5 + i for i in range(40)]),
        ([f"{i % 4},5" for i in range(40)], [i % 4 + 0.5 for i in range(40)]),
        ([str(i) if i % 2 else f"-{i},25" for i in range(40)], [i if i % 2 else -i - 0.25 for i in range(40)]),
        ([f"{i + 1},000.25" for i in range(40)], [1000 * (i + 1) + 0.25 for i in range(40)]),
        ([f"{i + 1},000,000" for i in range(40)], [1e6 * (i + 1) for i in range(40)]),
    ],
)
def test_a_column_is_read_in_the_form_that_all_its_cells_have(cells, values):
    data, _ = opened(pd.DataFrame({"a": cells, "y": np.arange(40) % 2}), target="y")
    plain, _ = opened(pd.DataFrame({"a": values, "y": np.arange(40) % 2}), target="y")
    assert torch.equal(data.train.prepared, plain.train.prepared)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([f"{i + 1},125" for i in range(40)], r"'\d+,125', and every row .* in two ways: write \d+\.125 or \d+125"),
        ([f"0{1 + i % 9}/0{1 + i % 7}/2024" for i in range(40)], r"in two ways: write 2024-(0.)-(0.) or 2024-\2-\1"),
        (["01/01/2024", "02/03/2024"] * 20, "'02/03/2024', and .* in two ways: write 2024-03-02 or 2024-02-03"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(cells, message):
    with pytest.raises(Misuse, match=message):
        opened(pd.DataFrame({"a": cells, "y": np.arange(40) % 2}), target="y")
    with pytest.raises(Misuse, match="could be read in two ways"):
        opened(pd.DataFrame({"a": np.arange(40), "y": cells}), target="y")


def test_days_that_equal_their_months_are_refused_without_two_readings():
    cells = [f"0{1 + i % 9}/0{1 + i % 9}/2024" for i in range(40)]
    with pytest.raises(
        Misuse, match=r"holds '0./0./2024', and no row shows whether the day is first: write 2024-0.-0.$"
    ):
        opened(pd.DataFrame({"a": cells, "y": np.arange(40) % 2}), target="y")


def test_notes_of_several_fits_in_one_call_are_one_note():
    table = churn(200)[["customer_id", "tenure"]]

    @notes_once
    def search() -> None:
        for rows in (150, 170):
            fit_table(table.iloc[:rows])

    with pytest.warns(UserWarning, match="looks like an identifier") as notes:
        search()
    assert len(notes) == 1


def test_semicolons_decide_for_decimal_commas(tmp_path: Path):
    (tmp_path / "t.csv").write_text("a;y\n" + "".join(f"{i + 1},125;{i % 2}\n" for i in range(40)))
    data = mm.open_data(tmp_path / "t.csv", target="y")
    assert data.preparation.columns[0].high < 41


def test_words_of_free_text_are_inputs():
    data, notes = opened(churn(300), target="churned", text="note", drop=("customer_id", "charge", "since"))
    column = next(column for column in data.preparation.columns if column.name == "note")
    assert notes == []
    assert isinstance(column, TextColumn)
    assert {"angry", "invoice"} <= set(column.words)
    assert len(column.words) <= 100
    words = [data.feature_names.index(f"note: {word}") for word in column.words]
    assert (data.train.prepared[:, words].square().sum(1) - 1).abs().max() < 1e-5
    again = preparation_from_json(json.loads(json.dumps(data.preparation.to_json())))
    later = churn(20, seed=5).assign(note=[None, *churn(20, seed=5)["note"][1:]])
    prepared = again.apply(later)
    assert torch.equal(prepared, data.preparation.apply(later))
    assert prepared[0, words].abs().max() == 0
    angry = data.feature_names.index("note: angry")
    assert ((prepared[:, angry] > 0).numpy() == later["note"].fillna("").str.contains("angry")).all()
    names = pd.DataFrame({"plan": [f"w{i}" for i in range(30)], "x": range(30), "y": [0, 1] * 15})
    with pytest.raises(Misuse, match="text='plan': no word is in two"):
        opened(names, target="y", text="plan")


def test_words_are_the_same_from_a_streamed_file(tmp_path: Path):
    table = churn(200).drop(columns=["customer_id", "since", "charge"])
    table.to_parquet(tmp_path / "t.parquet")
    streamed, held = (
        mm.open_data(tmp_path / "t.parquet", target="churned", text="note", in_memory=m) for m in (False, True)
    )
    assert streamed.preparation == held.preparation
    assert torch.equal(streamed.train.prepared[:], held.train.prepared)


@pytest.mark.parametrize("name", ["t.tsv", "t.csv.gz", "t.tsv.gz", "t.xlsx"])
def test_kinds_of_files_give_the_same_data(tmp_path: Path, name: str):
    table = cars(60).drop(columns=["remark", "listing"]).assign(price=np.round(np.arange(60.0) ** 1.5, 2))
    table.to_csv(tmp_path / "t.csv", index=False)
    path = tmp_path / name
    table.to_excel(path, index=False) if name.endswith("xlsx") else table.to_csv(path, sep="\t", index=False)
    expected, got = (mm.open_data(file, target="price") for file in (tmp_path / "t.csv", path))
    assert torch.equal(got.train.prepared, expected.train.prepared)
    assert torch.equal(got.test.y, expected.test.y)
    assert got.fingerprint == expected.fingerprint


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("first", ["", "sep=;\n"])
def test_exports_of_excel_are_read_in_their_encoding(tmp_path: Path, encoding: str, first: str):
    text = "größe;Stadt;y\n" + "".join(f"{i % 7},5;{'Köln' if i % 3 else 'Wien'};{i % 2}\n" for i in range(60))
    (tmp_path / "plain.csv").write_text(text, encoding="utf-8")
    (tmp_path / "t.csv").write_bytes((first + text).encode(encoding))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((first + text).encode(encoding)))
    plain = mm.open_data(tmp_path / "plain.csv", target="y")
    for name in ("t.csv", "t.csv.gz"):
        data, notes = opened(tmp_path / name, target="y")
        assert data.preparation == plain.preparation
        assert torch.equal(data.train.prepared, plain.train.prepared)
        assert notes.pop() == "each cell of column größe is read as " + NUMBER
        assert len(notes) == (encoding == "cp1252")
        assert all("is not text in UTF-8: it is read as Windows-1252" in note for note in notes)


@pytest.mark.parametrize("title", ["Sales of 2024\n", "Sales of 2024\n\n", "Sales,2024\n"])
def test_a_title_above_the_header_is_refused(tmp_path: Path, title: str):
    (tmp_path / "t.csv").write_text(title + "a,b,y\n" + "1,2,3\n" * 30)
    with pytest.raises(Misuse, match="expected the header in the first line, with a name for each column"):
        mm.open_data(tmp_path / "t.csv", target="y")


def test_damaged_and_foreign_files_are_refused(tmp_path: Path, monkeypatch):
    for name, content in (
        ("t.csv.gz", b"no gzip"),
        ("t.xlsx", b"no zip"),
        ("u.csv.gz", gzip.compress(b"a,y\n1,2\n")[:-9]),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Failure, match=f"cannot read '.*{name}'"):
            mm.open_data(tmp_path / name, target="y")
    monkeypatch.setattr("murmuration.data.file_rows.UNPACKED_BYTES", 100)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,y\n" + b"1,2\n" * 100))
    with pytest.raises(Misuse, match="is compressed and unpacks to"):
        mm.open_data(tmp_path / "t.csv.gz", target="y")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Misuse, match=r"needs openpyxl: pip install openpyxl"):
        mm.open_data(tmp_path / "t.xlsx", target="y")


def test_the_first_of_several_sheets_is_read(tmp_path: Path):
    with pd.ExcelWriter(tmp_path / "t.xlsx") as book:
        for sheet, shift in (("first", 0.0), ("second", 99.0)):
            pd.DataFrame({"a": np.arange(20.0) + shift, "y": [0, 1] * 10}).to_excel(book, sheet_name=sheet, index=False)
    with pytest.warns(UserWarning, match=r"has 2 sheets \(first, second\): the first is read"):
        data = mm.open_data(tmp_path / "t.xlsx", target="y")
    assert data.preparation.columns[0].high < 20


def test_an_impossible_date_is_named_as_it_is_written():
    cells = [f"{1 + i % 28}.{1 + i % 12}.2024" for i in range(40)]
    with pytest.raises(Misuse, match=r"column 'a' holds '31\.2\.2024' in row 6: expected a date such as 31.12.2024"):
        mm.open_data(pd.DataFrame({"a": [*cells[:5], "31.2.2024", *cells[6:]], "y": np.arange(40) % 2}), target="y")


def test_columns_are_copied_from_a_streamed_file(tmp_path: Path):
    table = cars(90).drop(columns=["remark", "seen"]).assign(price=np.arange(90.0))
    table.to_parquet(tmp_path / "t.parquet")
    ensemble = mm.fit("mlp:hidden=4", table, target="price", members=1, epochs=1)
    for in_memory in (True, False):
        path = tmp_path / f"{in_memory}.csv"
        mm.save_predictions(ensemble, tmp_path / "t.parquet", path, keep=("listing", "brand"), in_memory=in_memory)
        written = pd.read_csv(path)
        assert written["listing"].tolist() == table["listing"].tolist()
        assert written["brand"].tolist() == table["brand"].tolist()
    assert (tmp_path / "True.csv").read_bytes() == (tmp_path / "False.csv").read_bytes()
    with pytest.raises(Misuse, match="keep='a' names a column of a table, and this run was trained on other inputs"):
        mm.fit("mlp:hidden=4", "two-moons", members=1, epochs=1).predict(np.zeros((2, 2)), keep="a")


def test_a_streamed_file_with_local_numbers_is_refused(tmp_path: Path):
    pd.DataFrame({"a": [f"{i % 4},5" for i in range(40)], "y": np.arange(40) % 2}).to_parquet(tmp_path / "t.parquet")
    assert mm.open_data(tmp_path / "t.parquet", target="y").feature_names == ("a",)
    with pytest.raises(Misuse, match=r"column .a. holds numbers or dates as texts, .*: write in_memory=True"):
        mm.open_data(tmp_path / "t.parquet", target="y", in_memory=False)
    assert mm.open_data(tmp_path / "t.parquet", target="y", in_memory=False, text="a").feature_names


def trained_on_commas(tmp_path: Path, rows: int = 60):
    """Return the data of a file with semicolons whose numbers are written like 168.884,5."""
    numbers = [1000.5 + 997.25 * i for i in range(rows)]
    cells = [f"{value:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".") for value in numbers]
    table = pd.DataFrame({"km": cells, "seen": [f"{1 + i % 28}.{1 + i % 12}.2024" for i in range(rows)], "y": cells})
    return mm.open_data(write_csv(table, tmp_path / "train.csv"), target="y")


def kilometres(data, source) -> list[float]:
    """Return the column km of new rows as the preparation of the data reads it."""
    column = data.preparation.columns[0]
    return (open_inputs(source, preparation=data.preparation)[:, 0] * column.std + column.mean).tolist()


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["150.000", "99.500"], [150_000, 99_500]),
        (["150.000", "99.500,5"], [150_000, 99_500.5]),
        (["1,125", "2,250", "3,375"], [1.125, 2.25, 3.375]),
        (["1.250", "NA"], [1_250, None]),
        (["57", "1250"], [57, 1250]),
    ],
)
def test_the_form_of_training_decides_for_new_rows_in_files_and_tables(tmp_path: Path, cells, expected):
    data = trained_on_commas(tmp_path)
    new = pd.DataFrame({"id": range(len(cells)), "km": cells, "seen": "5.7.2024"})
    written, frame = write_csv(new, tmp_path / "new.csv"), new.replace({"NA": None})
    filled = [data.preparation.columns[0].median if value is None else value for value in expected]
    assert kilometres(data, written) == pytest.approx(filled, rel=1e-3)
    assert kilometres(data, written) == kilometres(data, frame)


@pytest.mark.parametrize("cells", [["57.39", "57.390", "12.5"], ["12.5"], [".5"], ["1.5e3"]])
def test_a_decimal_point_in_a_column_with_decimal_commas_is_refused(tmp_path: Path, cells):
    data = trained_on_commas(tmp_path)
    new = pd.DataFrame({"km": cells, "seen": "5.7.2024"})
    message = rf"column 'km' holds '{cells[0]}' in row 1: expected a number with a decimal comma .*, as in training"
    for source in (new, write_csv(new, tmp_path / "new.csv")):
        with pytest.raises(Misuse, match=message):
            open_inputs(source, preparation=data.preparation)
    assert kilometres(data, new.assign(km=57.39))[0] == pytest.approx(57.39, abs=0.1)  # numbers need no form


def test_plain_numbers_of_training_decide_for_cells_with_commas():
    data, _ = opened(pd.DataFrame({"km": np.arange(60) * 1.5, "y": np.arange(60) % 2}), target="y")
    assert kilometres(data, pd.DataFrame({"km": ["7,5", "12,25"]})) == pytest.approx([7.5, 12.25], rel=1e-4)
    with pytest.raises(Misuse, match="column 'km' holds '7,5' in row 2: expected a number"):
        open_inputs(pd.DataFrame({"km": ["150.000", "7,5"]}), preparation=data.preparation)


@pytest.mark.parametrize("cell", ["07/25/2023", "13/25/2020", "5.7.23", "31.2.2024", "45000,5"])
def test_a_new_date_in_another_form_is_refused_with_the_form_of_training(tmp_path: Path, cell):
    data = trained_on_commas(tmp_path)
    new = pd.DataFrame({"km": ["1,5"], "seen": [cell]})
    message = rf"'seen' holds '{cell}' in row 1: expected a date such as 31\.12\.2024, day first, as in training"
    for source in (new, write_csv(new, tmp_path / "new.csv")):
        with pytest.raises(Misuse, match=message):
            open_inputs(source, preparation=data.preparation)


def test_the_form_of_training_decides_for_targets_and_categories(tmp_path: Path):
    data = trained_on_commas(tmp_path)
    new = pd.DataFrame({"km": ["1.000"] * 20, "seen": "5.7.2024", "y": ["150.000", "99.500"] * 10})
    split = open_split(
        write_csv(new, tmp_path / "new.csv"), preparation=data.preparation, task="regression", classes=()
    )
    assert split.y[:2, 0].tolist() == [150_000, 99_500]
    codes = pd.DataFrame({"zip": ["01067", "80331", "D-1"] * 20, "y": [0, 1] * 30})
    by_zip, _ = opened(codes, target="y")
    later = codes.iloc[:2]
    expected = by_zip.preparation.apply(later)
    assert expected[:, -1].sum() == 0  # none is unseen
    assert torch.equal(open_inputs(write_csv(later, tmp_path / "zip.csv"), preparation=by_zip.preparation), expected)


def test_copied_columns_are_the_cells_of_the_file(tmp_path: Path):
    table = pd.DataFrame({"km": [f"{i},5" for i in range(60)], "y": np.arange(60) % 2})
    ensemble = mm.fit("mlp:hidden=4", table, target="y", members=1, epochs=1)
    (tmp_path / "new.csv").write_text("id;km;no\n007;150.000;1\nNA;NA;2\n;-1,50;3\n")
    for name in ("out.csv", "out.npz"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mm.save_predictions(ensemble, tmp_path / "new.csv", tmp_path / name, keep=("id", "km", "no"))
    written = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    assert written["id"].tolist() == ["007", "NA", ""]
    assert written["km"].tolist() == ["150.000", "NA", "-1,50"]
    arrays = np.load(tmp_path / "out.npz")
    assert arrays["km"].tolist() == ["150.000", "NA", "-1,50"]
    assert arrays["no"].dtype.kind == "i"
