"""Tables, files and requests that make no sense: one line that says what is wrong and what to write instead."""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from prediction_files import refusal

from murmuration.evaluation.audit import open_predictions
from murmuration.system.errors import Failure, Misuse

HALF = np.full((4, 2), 0.5)
Y = [0, 1, 1, 0]


TABLES = {
    "sum": (
        {"prob_a": [0.5, 0.5], "prob_b": [0.5, 0.6], "label": ["a", "b"]},
        r"row 2 of columns prob_a, prob_b sums to 1.1: expected probabilities that sum to 1; divide each row",
    ),
    "logits": (
        {"prob_a": [0.5, -2.5], "prob_b": [0.5, 0.6], "label": ["a", "b"]},
        r"row 2 of column prob_a is -2.5: expected 0 to 1; if these are logits, name the columns logit_<class>",
    ),
    "missing": (
        {"prob_a": [0.5, None], "prob_b": [0.5, 0.6], "label": ["a", "b"]},
        r"row 2 of column prob_a is nan: expected 0 to 1$",
    ),
    "infinite": (
        {"prob_a": [0.5, np.inf], "prob_b": [0.5, 0.6], "label": ["a", "b"]},
        r"column 'prob_a' is infinite in row 2: expected finite numbers",
    ),
    "text": (
        {"prob_a": ["0.5", "high"], "prob_b": [0.5, 0.6], "label": ["a", "b"]},
        r"column 'prob_a' holds 'high' in row 2: expected a number",
    ),
    "no-label": (
        {"prob_a": [0.5], "prob_b": [0.5], "truth": ["a"]},
        r"no labels: expected a column .*; name another, label=NAME, .*; found prob_a, prob_b, truth",
    ),
    "missing-label": (
        {"prob_a": [0.5, 0.5], "prob_b": [0.5, 0.5], "label": ["a", None]},
        r"column label is missing in 1 of 2 rows \(row 2\): remove them",
    ),
    "unknown": (
        {"prob_ham": [0.5, 0.5], "prob_spam": [0.5, 0.5], "label": ["ham", "spma"]},
        r"label 'spma' \(row 2\) of column label is not among the classes: did you mean 'spam'\? Known: ham, spam",
    ),
    "one-class": (
        {"prob_1": [0.5, 0.5], "label": [0, 1]},
        r"column 'prob_1' is for only one class: expected two or more; if it is the larger of two labels name it prob",
    ),
    "three-labels": (
        {"prob": [0.5, 0.5, 0.1], "label": ["a", "b", "c"]},
        r"column 'prob' is the probability of one of two classes but column label has 3 distinct labels \(a, b, c\): "
        r"write columns prob_<class>",
    ),
    "quantiles": (
        {"q05": [0.5], "q_0.5": [0.7], "quantile_95": [0.9], "y": [1.0]},
        r"quantiles \(q05, q_0.5, quantile_95\) are not read: expected columns mean and std instead",
    ),
    "nothing": ({"score": ["x"], "y": ["a"]}, r"no predictions: expected columns prob_<class> or prob .*; found score"),
    "no-std": ({"predicted": [0.5], "y": [1.0]}, r"column 'predicted' but not its std: expected std beside it"),
    "std": ({"mean": [0.5], "std": [0.0], "y": [1.0]}, r"row 1 of column std is 0: expected a positive standard"),
    "both": (
        {"prob_a": [0.5], "prob_b": [0.5], "mean": [1.0], "std": [1.0], "y": ["a"]},
        r"columns of class probabilities and also a mean with its std: say which, task=TASK",
    ),
    "member": (
        {"m0_prob_a": [0.5], "m0_prob_b": [0.5], "m1_prob_a": [0.5], "y": ["a"]},
        r"member 1 has no column of 'prob_b': expected one as 'm0_prob_b' is for another",
    ),
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("case", TABLES)
def test_tables(tmp_path: Path, case: str, suffix: str) -> None:
    columns, message = TABLES[case]
    path = tmp_path / f"x{suffix}"
    table = pd.DataFrame(columns)
    table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)
    assert re.match(message, refusal(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"", r"'x.csv' is empty: expected a header line and rows"),
        ("x.csv", b"prob_a,prob_b,label\n", r"'x.csv' has no rows: expected a header line and rows"),
        (
            "x.csv",
            b"prob_a,prob_b,prob_a,y\n.5,.5,.5,a\n",
            r"'x.csv' has two columns 'prob_a': expected every name once",
        ),
        ("x.csv", b"\xff\xfe\x00prob", r"'x.csv' is not text in UTF-8, UTF-16 or Windows-1252: expected a CSV file"),
        ("x.npz", b"", r"'x.npz' is empty: expected arrays, as np.savez writes them"),
        (
            "x.npz",
            b"prob_a,prob_b,label\n",
            r"'x.npz' is not an npz archive, or is cut off: expected what np.savez writes",
        ),
        ("x.npy", b"", r"'x.npy' is empty: expected an array, as np.save writes it"),
        ("x.parquet", b"PAR1 no", r"cannot read 'x.parquet' as parquet"),
        ("x.json", b"{}", r"'x.json' has the suffix '.json': expected a file .npz, .npy, .csv, .parquet"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert re.match(message, refusal(tmp_path / name))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.npz") == "no file 'no.npz': expected a file .npz, .npy, .csv, .parquet"
    assert refusal(tmp_path).endswith("is a folder: expected a file of predictions or labels")


def test_damaged_archives(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, probs=np.full((400, 2), 0.5), y=np.zeros(400, int))
    whole = path.read_bytes()
    path.write_bytes(whole[:3000])
    assert re.match(r"'x.npz' is not an npz archive, or is cut off: .*; write it again", refusal(path))
    np.save(tmp_path / "probs.npy", np.full((400, 2), 0.5))
    head = (tmp_path / "probs.npy").read_bytes()[:1000]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("probs.npy", head)
    assert re.match(
        r"array probs of 'x.npz' is cut off: 1000 bytes where float64 \(400, 2\) needs 6528",
        refusal(path, label="probs"),
    )
    (tmp_path / "probs.npy").write_bytes(head)
    assert re.match(r"array probs of 'probs.npy' is cut off", refusal(tmp_path / "probs.npy", label="probs"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("probs.npy", b"not an array at all")
    assert re.match(r"cannot read 'x.npz': the magic string is not correct", refusal(path, label="probs"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("folder")
    assert re.match(r"'x.npz' holds no arrays: expected them as np.savez writes them", refusal(path))
    np.savez_compressed(path, probs=np.full((4000, 2), 0.5), y=np.zeros(4000, int))
    whole = bytearray(path.read_bytes())
    whole[150:180] = bytes(30)
    path.write_bytes(whole)
    assert re.match(r"cannot read 'x.npz': ", refusal(path))


@pytest.mark.slow
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_no_damage_ends_in_more_than_one_line(tmp_path: Path, save: Any) -> None:
    path, rng = tmp_path / "x.npz", np.random.default_rng(3)
    save(path, probs=HALF, y=Y, names=["a", "b"])
    whole = np.frombuffer(path.read_bytes(), np.uint8)
    refused = []
    for _ in range(150):
        damaged = whole.copy()
        damaged[rng.integers(0, len(whole), 3)] = rng.integers(0, 256, 3)
        path.write_bytes(damaged.tobytes())
        try:
            list(open_predictions(path).chunks())
        except (Misuse, Failure) as error:
            refused.append(str(error))
    assert len(refused) > 100  # nearly every byte is under a checksum or a name
    assert not any("\n" in message for message in refused)


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    np.savez_compressed(tmp_path / "x.npz", probs=HALF, y=Y)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    message = r"cannot unpack array probs of 'x.npz' to .*No space left on device; free some space, set TMPDIR"
    assert re.match(message, refusal(tmp_path / "x.npz"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "lable"}, r"no array 'lable' for the labels: did you mean 'label'\? found probs, label, site, many"),
        ({"groups": ["sight"]}, r"no array 'sight' for the groups: did you mean 'site'\? found probs"),
        ({"groups": ["part"]}, r"array part holds 0.25 in row 2: expected texts or whole numbers for groups"),
        ({"groups": ["probs"]}, r"array probs of shape \(4, 2\) for the groups: expected \(4,\), one a row"),
        ({"task": "regresion"}, r"unknown task 'regresion': did you mean 'regression'\?"),
        ({"task": "regression"}, r"no predictions: expected probs or logits .*; found probs, site, many, part"),
    ],
)
def test_requests(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, probs=HALF, label=Y, site=["a"] * 4, many=np.arange(4), part=[0, 0.25, 1, 1])
    with pytest.raises(Misuse) as caught:
        open_predictions(path, **options)
    assert re.match(message, str(caught.value).removeprefix(f"'{path}': "))


def test_a_task_the_file_does_not_hold(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", mean=np.ones(4), std=1.0, y=Y)
    message = refusal(tmp_path / "x.npz", task="classification")
    assert re.match(r"no probabilities for task 'classification': expected probs or logits; found mean, std", message)


def test_too_many_groups(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", probs=np.full((1200, 2), 0.5), y=np.zeros(1200, int), id=np.arange(1200))
    message = refusal(tmp_path / "x.npz", groups=["id"])
    assert message == "array id has 1200 distinct values: expected at most 1000 groups; bin them first"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("y.txt", b"0\n\n1\n0\n", r"line 2 of '.*y.txt' is blank: expected a label"),
        ("y.txt", b"\xff\xfe\x80", r"'.*y.txt' is not text in UTF-8: expected one label a line, or a file .npz"),
        ("y.txt", b"", r"'.*y.txt': line y of shape \(0,\): expected at least one row"),
        (
            "y.txt",
            b"0\n1\n1\n",
            r".*probs of shape \(4, 2\) is for 4 rows, but line y of '.*y.txt' has 3: expected as many",
        ),
        ("y.txt", b"0\n1\n7\n0\n", r".*label '7' \(row 3\) of line y of '.*y.txt': expected 0 to 1 for 2 classes"),
        ("y.csv", b"a,b\n0,1\n", r"'.*y.csv': no labels: expected a column label, .*; found a, b"),
        (
            "y.csv",
            b"0\n1\n1\n0\n",
            r"the first line of '.*y.csv' holds numbers: expected a header line with column names",
        ),
    ],
)
def test_files_of_labels(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    np.savez(tmp_path / "x.npz", probs=HALF)
    (tmp_path / name).write_bytes(content)
    assert re.match(message, refusal(tmp_path / "x.npz", labels=tmp_path / name))


def test_tables_and_labels_of_different_lengths(tmp_path: Path) -> None:
    pd.DataFrame({"prob_a": [0.5] * 3, "prob_b": [0.5] * 3}).to_csv(tmp_path / "x.csv", index=False)
    (tmp_path / "y.txt").write_text("a\nb\n")
    message = refusal(tmp_path / "x.csv", labels=tmp_path / "y.txt")
    assert re.match(r"the table has 3 rows, but line y of '.*y.txt' has 2: expected as many", message)


@pytest.mark.parametrize("rows", [[], [2, 1], [0, 4], [-1, 2], [0.5], [1, 1]])
def test_rows_that_cannot_be_read(tmp_path: Path, rows: list[float]) -> None:
    np.savez(tmp_path / "x.npz", probs=HALF, y=Y)
    with pytest.raises(Misuse, match=r"rows of 'x': expected indices from 0 to 3 in increasing order"):
        open_predictions(tmp_path / "x.npz").rows_at(np.array(rows))
