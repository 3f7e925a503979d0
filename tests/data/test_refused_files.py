"""Files and numbers that readers refuse in one short line: what was got, where, and what to write."""

import io
import os
import struct
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import murmuration as mm
from murmuration.evaluation.audit import evaluate_predictions, open_predictions
from murmuration.prediction.prediction_files import plain_text, safe_text
from murmuration.system.errors import LONGEST, Failure, Misuse


def table(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_a_second_column_of_the_target_is_refused(tmp_path: Path):
    path = table(tmp_path / "t.csv", "a,y,y", [f"{i},{i % 2},{i % 2}" for i in range(40)])
    with pytest.raises(Misuse, match="has two columns 'y': expected every name once"):
        mm.open_data(path, target="y")


def test_two_texts_with_commas_may_be_categories(tmp_path: Path):
    path = table(
        tmp_path / "t.csv", "a;y", [f"{'1,2' if i % 2 else '3,4'};{'no' if i % 3 else 'yes'}" for i in range(40)]
    )
    assert mm.open_data(path, target="y").feature_names == ("a=1,2", "a=3,4", "a unseen")


def test_numbers_beyond_single_precision_are_named(tmp_path: Path):
    rows = [f"{i},{2 * i}" for i in range(40)]
    fitted = mm.fit("mlp:hidden=4", table(tmp_path / "t.csv", "a,y", rows), target="y", members=1, epochs=1)
    with pytest.raises(Misuse, match=r"column 'a' is 1e\+39 in row 2: expected finite numbers up to 3.4e\+38"):
        fitted.predict(pd.DataFrame({"a": [1.0, 1e39]}))
    for place, message in ((0, r"column 'a' is 1e\+39 in row 6"), (1, r"column 'y' is 1e\+39 in row 6")):
        cells = ["5", "10"]
        cells[place] = "1e39"
        with pytest.raises(Misuse, match=message):
            mm.open_data(table(tmp_path / "b.csv", "a,y", [*rows[:5], ",".join(cells), *rows[6:]]), target="y")
    x = np.ones((9, 2))
    x[4, 1] = -1e39
    with pytest.raises(Misuse, match=r"x\[4, 1\] is -1e\+39 \(1 such values\): expected numbers up to"):
        mm.open_data((x, np.arange(9.0)))
    with pytest.raises(Misuse, match=r"target is 1e\+39 in row 9"):
        mm.open_data((np.arange(9.0)[:, None], [*range(8), 1e39]))


def test_inputs_far_from_those_of_training_are_named():
    data = mm.open_data((np.random.default_rng(0).normal(size=(50, 2)) * 1e-20, np.arange(50.0)))
    with pytest.raises(Misuse, match=r"x\[1, 0\] is 1e\+30, too large for single precision"):
        data.preparation.apply(np.array([[0.0, 0.0], [1e30, 0.0]]))


def test_predictions_far_beyond_single_precision_are_refused_by_audit(tmp_path: Path):
    rng = np.random.default_rng(0)
    for size, message in (
        (1e300, "column 'y' is .* in row 1: expected finite numbers"),
        (1e-300, "expected a positive"),
    ):
        frame = pd.DataFrame({"y": rng.normal(size=60) * size, "mean": rng.normal(size=60) * size, "std": size})
        frame.to_csv(tmp_path / "a.csv", index=False)
        with pytest.raises(Misuse, match=message):
            evaluate_predictions(open_predictions(tmp_path / "a.csv"))


def idx(folder: Path, shape: tuple[int, int, int], part: str = "train") -> None:
    images = bytes((0, 0, 8, 3)) + struct.pack(">3I", *shape) + bytes(min(2000, int(np.prod(shape, dtype=object))))
    labels = bytes((0, 0, 8, 1)) + struct.pack(">I", shape[0]) + bytes(k % 2 for k in range(min(shape[0], 100)))
    (folder / f"{part}-images-idx3-ubyte").write_bytes(images)
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)


def test_idx_files_of_impossible_shapes_are_refused(tmp_path: Path):
    idx(tmp_path, (20, 4, 4))
    idx(tmp_path, (0, 4, 4), "t10k")
    with pytest.raises(Misuse, match=r"t10k-images-idx3-ubyte' has the shape \(0, 4, 4\): expected at least one value"):
        mm.open_data(tmp_path)
    idx(tmp_path, (2**32 - 1, 2**32 - 1, 2**32 - 1), "t10k")
    with pytest.raises(Failure, match=r"t10k-images-idx3-ubyte' is damaged: expected \d+ bytes"):
        mm.open_data(tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "loop", "link to nothing", "folder"])
def test_what_is_no_file_is_named_and_not_waited_for(tmp_path: Path, kind: str):
    """A pipe would be waited for."""
    idx(tmp_path, (20, 4, 4))
    path = tmp_path / "train-images-idx3-ubyte"
    cifar = tmp_path / "cifar" / "data_batch_1.bin"
    cifar.parent.mkdir()
    for each in (path, cifar):
        each.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(each)
        elif kind == "folder":
            each.mkdir()
        else:
            each.symlink_to(each if kind == "loop" else "nowhere")
        with pytest.raises(Failure, match=rf"cannot read '.*{each.name}': it is a .*, not a file"):
            mm.open_data(each.parent)


def test_whole_numbers_of_hundreds_of_digits_are_infinite(tmp_path: Path):
    path = table(tmp_path / "t.csv", "a,y", [f"{'9' * 400 if i == 7 else i},{i % 2}" for i in range(40)])
    with pytest.raises(Misuse, match="column 'a' is infinite in row 8: expected finite numbers"):
        mm.open_data(path, target="y")


@pytest.mark.parametrize("in_memory", [True, False])
def test_one_number_is_no_data(tmp_path: Path, in_memory: bool):
    np.save(tmp_path / "x.npy", np.array(3.0))
    np.save(tmp_path / "y.npy", np.arange(3))
    with pytest.raises(Misuse, match="x"):
        mm.open_data(tmp_path / "x.npy", target="y.npy", in_memory=in_memory)


def test_texts_of_damaged_characters_are_refused(tmp_path: Path):
    """Python cannot hold them: it ends in a SystemError."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 3)))
    np.save(tmp_path / "y.npy", np.array(["a", "b"] * 20))
    content = bytearray((tmp_path / "y.npy").read_bytes())
    content[-5] = 0x7F  # the highest byte of a character
    (tmp_path / "y.npy").write_bytes(content)
    with pytest.raises(Failure, match=r"y.npy' is damaged: it contains an invalid Unicode code point"):
        mm.open_data(tmp_path / "x.npy", target="y.npy")


def test_half_precision_is_compared_without_a_warning(tmp_path: Path):
    """Single precision's largest number is not one of half precision; numpy warns of that."""
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(mm.open_data((x, np.arange(40) % 2)).train) == 28
    with pytest.raises(Misuse, match=r"x\[0, 0\] is inf"):
        mm.open_data((np.where(np.arange(120).reshape(40, 3) == 0, np.inf, x).astype(np.float16), np.arange(40) % 2))


def test_damaged_files_are_named(tmp_path: Path):
    cifar = tmp_path / "cifar"
    cifar.mkdir()
    (cifar / "data_batch_1.bin").write_bytes(b"".join(bytes([k % 2]) + bytes(3072) for k in range(20)))
    (cifar / "batches.meta.txt").write_bytes(b"a\xff\nb\n")
    with pytest.raises(Failure, match=r"batches.meta.txt' is not text in UTF-8 \(byte 1\)"):
        mm.open_data(cifar)
    pd.DataFrame({"a": [b"\xff", b"a"] * 30, "y": [0, 1] * 30}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(Misuse, match="column 'a' holds bytes in row 1: expected text"):
        mm.open_data(tmp_path / "b.parquet", target="y")
    with zipfile.ZipFile(tmp_path / "h.npz", "w") as archive:
        file = io.BytesIO()
        np.save(file, np.zeros((5, 2)))
        archive.writestr("x.npy", file.getvalue().replace(b"{'descr'", b"{('escr'"))
        archive.writestr("y.npy", file.getvalue())
    with pytest.raises(Failure, match=r"cannot read '.*h.npz': the head of array x is damaged"):
        mm.open_data(tmp_path / "h.npz")


def test_messages_stay_short_and_on_one_line(tmp_path: Path):
    path = table(tmp_path / "t.csv", "a,y", [f"{i},{'z' * 200_000 if i == 3 else i}" for i in range(40)])
    with pytest.raises(Misuse, match=r"target 'y' holds 'zzz.*' in row 4: expected a number") as caught:
        mm.open_data(path, target="y", task="regression")
    assert len(str(caught.value)) <= LONGEST
    assert str(Misuse("a\nb\x1b[2J")) == "a b\\x1b[2J"


def test_texts_of_predictions_are_no_formulas_and_come_back(tmp_path: Path):
    names = ["=HYPERLINK(1)", "a|b", "back\\slash"]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 3))
    y = np.array(names)[x.argmax(1)]
    ensemble = mm.fit("linear", (x, y), members=1, epochs=5, batch_size=16, lr=0.1)
    mm.save_predictions(ensemble, x, tmp_path / "p.csv")
    found = pd.read_csv(tmp_path / "p.csv")
    assert set(found["predicted"]) <= {"'=HYPERLINK(1)", *names[1:]}
    sets = [name for name in found.columns if name.startswith("set_")]
    assert all(not str(cell).startswith("=") for name in sets for cell in found[name])
    assert any("a\\|b" in str(cell) for name in sets for cell in found[name])
    found["label"] = [safe_text(name) for name in y]
    found.to_csv(tmp_path / "audited.csv", index=False)
    audited = open_predictions(tmp_path / "audited.csv")
    assert set(audited.classes) == set(names)
    assert all(plain_text(safe_text(text)) == text for text in (*names, "'", "''=", "-1", "", "\tx"))
