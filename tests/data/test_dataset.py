"""Data sets: sources that are recognised, refused in one line, or opened again with the same result."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from murmuration.data import open_data, open_inputs, open_split
from murmuration.system.errors import Failure, Misuse


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def rows(count: int, *, header: str = "a,b,y", line: str = "{i},{i}.5,{k}") -> str:
    lines = [line.format(i=i, k="no" if i % 2 else "yes") for i in range(count)]
    return "\n".join([header, *lines]) + "\n"


BAD_TABLES = [
    ("", {"target": "y"}, "is empty: expected a header line and rows"),
    ("a,b,y\n", {"target": "y"}, "has no rows: expected a header line and rows"),
    (rows(9), {"target": "yy"}, "no column 'yy' in .*: did you mean 'y'? Columns: a, b, y".replace("?", r"\?")),
    (rows(9), {}, r"which column of .* is the target\? Write target=..., one of a, b, y"),
    (rows(2), {"target": "y"}, "2 rows to train on: expected at least 3"),
    (rows(9).replace("yes", "no"), {"target": "y"}, "every row has the label 'no': expected at least two classes"),
    (rows(9).replace("3.5", "inf"), {"target": "y"}, "column 'b' is infinite in row 4: expected finite numbers"),
    (rows(9), {"target": "y", "task": "regression"}, "target 'y' holds 'yes' in row 1: expected a number"),
    (rows(9).replace("no", "", 1), {"target": "y"}, r"target 'y' is missing in 1 of 9 rows \(row 2\): remove them"),
    (rows(9) + "1,2,3,4,5\n", {"target": "y"}, "has 5 fields in line 11 and 3 before"),
    (rows(9, line="0,{i},{i},{k}"), {"target": "y"}, "the rows of .* have more fields than its first line has names"),
    ("1,2,3\n4,5,6\n7,8,9\n", {"target": "3"}, "the first line of .* holds numbers: expected a header line"),
    ("Dear Sir\nhow are you\nyours\n", {"target": "y"}, "no column 'y' in .*Columns: Dear Sir"),
    (rows(9), {"target": "a,y"}, "target column 'y' is not numeric"),
    (rows(9), {"target": "y", "task": "clustering"}, "unknown task 'clustering'"),
]


@pytest.mark.parametrize(("text", "options", "message"), BAD_TABLES)
def test_bad_tables(tmp_path: Path, text: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(Misuse, match=message) as caught:
        open_data(write(tmp_path / "t.csv", text), **options)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_what_they_are_called(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(bytes(range(128, 256)))
    with pytest.raises(Misuse, match="is not text in UTF-8, UTF-16 or Windows-1252: expected a CSV file"):
        open_data(tmp_path / "t.csv", target="y")
    (tmp_path / "t.parquet").write_bytes(b"hello")
    with pytest.raises(Failure, match=r"cannot read '.*t.parquet' as parquet") as caught:
        open_data(tmp_path / "t.parquet", target="y")
    assert "\n" not in str(caught.value)


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="unknown data 'digts': did you mean 'digits'"):
        open_data("digts")
    with pytest.raises(Misuse, match=r"no file or folder 'nowhere/t.csv': expected a built-in name"):
        open_data("nowhere/t.csv", target="y")
    with pytest.raises(Misuse, match="no file or folder"):
        open_data(tmp_path / "none")
    with pytest.raises(Misuse, match=r"notes.txt' has the suffix '.txt': expected FILE.csv, FILE.tsv, FILE.xlsx or"):
        open_data(write(tmp_path / "notes.txt", "hello"))
    with pytest.raises(Misuse, match="a int is not data: expected a built-in name"):
        open_data(3)
    with pytest.raises(Misuse, match="target='y' names the column of a table, but digits is not one"):
        open_data("digits", target="y")


def test_data_is_returned_as_it_is() -> None:
    data = open_data("iris")
    assert open_data(data) is data
    options = {"preparation": data.preparation, "task": data.task, "classes": data.classes}
    assert open_split(data, **options) is data.test
    assert open_inputs(data, preparation=data.preparation) is data.test.prepared
    with pytest.raises(Misuse, match="Data 'wine' has the classes class_0, class_1, class_2: expected setosa"):
        open_split(open_data("wine"), **options)


def test_seed_moves_rows_between_splits_and_nothing_else() -> None:
    first, again, other = (open_data("wine", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.train.prepared, again.train.prepared)
    assert not torch.equal(first.test.y, other.test.y) or not torch.equal(first.test.prepared, other.test.prepared)
    assert first.fingerprint == other.fingerprint


def test_fingerprint_sees_values_types_and_targets() -> None:
    x, y = np.arange(60.0).reshape(20, 3), np.arange(20) % 2
    base = open_data((x, y)).fingerprint
    assert len(base) == 64
    assert open_data((x.copy(), y.copy())).fingerprint == base
    nudged = x.copy()
    nudged[7, 2] = np.nextafter(nudged[7, 2], 0)
    swapped = y.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    others = [(nudged, y), (x, swapped), (x.astype(np.float32), y), (x.reshape(20, 3, 1), y), (x[::-1], y)]
    assert len({base, *(open_data(other).fingerprint for other in others)}) == 6


def test_task_can_be_chosen() -> None:
    x, y = np.arange(60.0).reshape(20, 3), np.arange(20) % 4
    assert open_data((x, y)).task == "classification"
    chosen = open_data((x, y), task="regression")
    assert chosen.task == "regression"
    assert chosen.train.y.shape == (14, 1)
    assert open_data((x, y.astype(float)), task="classification").classes == ("0", "1", "2", "3")


def test_inputs_are_not_modified() -> None:
    x, y = torch.arange(60.0).view(20, 3), torch.arange(20) % 2
    before = x.clone()
    data = open_data((x, y))
    data.train.prepared.zero_()
    assert torch.equal(x, before)


def test_a_built_in_opens_for_evaluation() -> None:
    data = open_data("five-gaussians", seed=3)
    options = {"preparation": data.preparation, "task": data.task, "classes": data.classes}
    split = open_split("five-gaussians", **options, seed=3)
    assert torch.equal(split.prepared, data.test.prepared)
    assert torch.equal(split.y, data.test.y)


def test_a_table_cannot_serve_a_run_on_images() -> None:
    preparation = open_data("digits").preparation
    with pytest.raises(Misuse, match=r"a table for a run trained on images: expected images of shape \(1, 8, 8\)"):
        open_inputs(pd.DataFrame({"a": [1.0]}), preparation=preparation)


def test_importing_stays_light() -> None:
    heavy = ("pandas", "pyarrow", "sklearn", "scipy", "PIL", "datasets")
    code = f"import sys, murmuration.data; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
