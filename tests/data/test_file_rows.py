"""Rows that stay in files: the same bits as in memory for every format, and what is refused."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import murmuration as mm
from murmuration.cli import main
from murmuration.data import file_rows, images, open_data, streamed
from murmuration.data.file_rows import FileRows, joined_rows, rows_of
from murmuration.data.parquet import FileTable, open_file_table
from murmuration.data.raw import LoadOptions
from murmuration.data.scaling import fit_scaling
from murmuration.data.streamed import Streamed

PLAN: dict[str, Any] = {"members": 2, "epochs": 2, "batch_size": 16, "seed": 1}


def npz(folder: Path) -> tuple[Path, dict[str, Any]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 6)) * [1, 10, 1e-3, 5, 1, 1] + 3
    np.savez(folder / "a.npz", x=x, y=(x[:, 0] > 3).astype(int))
    return folder / "a.npz", {}


def npz_of_images(folder: Path) -> tuple[Path, dict[str, Any]]:
    rng = np.random.default_rng(0)
    arrays = {
        f"x_{part}": rng.integers(0, 256, (n, 8, 8, 3), dtype=np.uint8) for part, n in (("train", 90), ("test", 30))
    }
    labels = {f"y_{part}": np.arange(n) % 3 for part, n in (("train", 90), ("test", 30))}
    np.savez(folder / "parts.npz", **arrays, **labels)
    return folder / "parts.npz", {}


def npy(folder: Path) -> tuple[Path, dict[str, Any]]:
    rng = np.random.default_rng(0)
    x = np.asfortranarray(rng.normal(size=(150, 4)).astype(np.float32))
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", x[:, 0] * 2 + 1)
    return folder / "x.npy", {"target": "y.npy", "prepare": "robust"}


def parquet(folder: Path) -> tuple[Path, dict[str, Any]]:
    rng = np.random.default_rng(0)
    n = 300
    table = pd.DataFrame(
        {
            "a": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "colour": rng.choice(["red", "green", None], n),
            "day": pd.date_range("2026-01-01", periods=n).astype(str),
            "flag": rng.random(n) < 0.5,
            "count": rng.integers(0, 9, n),
            "y": rng.normal(size=n),
        }
    )
    table.to_parquet(folder / "t.parquet", row_group_size=37)
    return folder / "t.parquet", {"target": "y"}


def folder_of_images(folder: Path) -> tuple[Path, dict[str, Any]]:
    rng = np.random.default_rng(0)
    for i in range(90):
        place = folder / "photos" / "abc"[i % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9 + i % 2, 8, 3), dtype=np.uint8)).save(place / f"{i}.png")
    return folder / "photos", {"size": 8}


SOURCES = [npz, npz_of_images, npy, parquet, folder_of_images]
Make = Callable[[Path], tuple[Path, dict[str, Any]]]


@pytest.mark.slow
@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_members_trained_from_files_have_the_bits_of_those_trained_in_memory(make: Make, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(images, "KEPT_BYTES", 0)  # images are decoded whenever they are needed
    source, options = make(tmp_path)
    whole, rows = (open_data(source, in_memory=in_memory, **options) for in_memory in (True, False))
    assert isinstance(rows.train.prepared, Streamed)
    assert isinstance(whole.train.prepared, torch.Tensor)
    assert rows.preparation == whole.preparation
    assert rows.fingerprint == whole.fingerprint
    for name in ("train", "val", "test"):
        one, other = getattr(whole, name), getattr(rows, name)
        assert torch.equal(one.prepared, other.prepared[:])
        assert torch.equal(one.y, other.y)
        assert {k: v.tolist() for k, v in one.keys.items()} == {k: v.tolist() for k, v in other.keys.items()}
    a, b = (mm.fit("mlp:hidden=8", data, **PLAN) for data in (whole, rows))
    for name, tensor in a.to_tensors().items():
        assert torch.equal(tensor, b.to_tensors()[name]), name
    assert torch.equal(a.predict(whole.test).mean, b.predict(rows.test).mean)
    scores = [mm.evaluate(ensemble, data).scores for ensemble, data in ((a, whole), (b, rows))]
    assert {k: float(v) for k, v in scores[0].items()} == {k: float(v) for k, v in scores[1].items()}


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_large_files_are_streamed_by_themselves_and_the_caller_is_told(make: Make, tmp_path: Path, monkeypatch):
    source, options = make(tmp_path)
    ensemble = mm.fit("mlp:hidden=8", source, **options, **PLAN)
    expected = ensemble.predict(source)
    monkeypatch.setattr(file_rows, "STREAMED_BYTES", 100)
    with pytest.warns(UserWarning, match="rows are read and prepared when they are needed, as above .*in_memory=True"):
        data = open_data(source, **options)
    assert isinstance(data.train.prepared, Streamed)
    with pytest.warns(UserWarning, match="would take .* GiB as prepared inputs"):
        again = ensemble.predict(source)
    torch.testing.assert_close(again.mean, expected.mean, rtol=1e-6, atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mm.save_predictions(ensemble, source, tmp_path / "p.csv")
    assert len(pd.read_csv(tmp_path / "p.csv")) == expected.mean.shape[0]


@pytest.mark.slow
@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_predictions_of_rows_in_files_have_the_bits_of_those_in_memory(make: Make, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(streamed, "MOST_ROWS", 32)  # several pieces
    source, options = make(tmp_path)
    ensemble = mm.fit("mlp:hidden=8", source, **options, **PLAN)
    assert isinstance(ensemble.keyed_inputs(source, False)[0], Streamed)
    for suffix in ("npz", "csv"):
        one, other = (tmp_path / f"{name}.{suffix}" for name in ("whole", "rows"))
        for path, in_memory in ((one, True), (other, False)):
            mm.save_predictions(ensemble, source, path, in_memory=in_memory, per_member=suffix == "npz")
        if suffix == "csv":
            assert one.read_bytes() == other.read_bytes()
            continue
        with np.load(one) as whole, np.load(other) as rows:
            assert set(whole) == set(rows)
            assert all(whole[name].tobytes() == rows[name].tobytes() for name in whole)


def test_the_predict_command_streams_files_and_refuses_tables_that_are_read_whole(tmp_path: Path, capsys):
    source, options = parquet(tmp_path)
    mm.fit("mlp:hidden=8", source, out=tmp_path / "run", **options, **PLAN)
    call = ["predict", str(tmp_path / "run"), str(source)]
    for name, flag in (("whole", "--in-memory"), ("rows", "--stream")):
        assert main([*call, flag, "--out", str(tmp_path / f"{name}.csv")]) == 0
    assert (tmp_path / "whole.csv").read_bytes() == (tmp_path / "rows.csv").read_bytes()
    pd.read_parquet(source).to_csv(tmp_path / "t.csv", index=False)
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "t.csv"), "--stream", "--out", "p.csv"]) == 2
    assert "read whole: give a .parquet file" in capsys.readouterr().err
    assert not Path("p.csv").exists()


@pytest.mark.parametrize("prepare", ["standardise", "robust", "quantile", "none"])
def test_statistics_of_rows_in_files_are_those_of_arrays(prepare: Any, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(file_rows, "BLOCK", 50)
    monkeypatch.setattr(file_rows, "COLUMN_BYTES", 8 * 400 * 2)
    x = np.random.default_rng(0).lognormal(size=(400, 7))
    np.savez(tmp_path / "a.npz", x=x, y=x[:, 0])
    one, other = (
        open_data(tmp_path / "a.npz", prepare=prepare, in_memory=in_memory).preparation for in_memory in (True, False)
    )
    assert one == other
    if prepare != "none":
        assert fit_scaling(rows_of(x), prepare, "x") == fit_scaling(x, prepare, "x")


def test_pairs_in_memory_are_prepared_when_needed_if_asked_for():
    x = np.random.default_rng(0).integers(0, 256, (60, 3, 5, 5), dtype=np.uint8)
    whole, rows = (open_data((x, np.arange(60) % 2), in_memory=in_memory) for in_memory in (None, False))
    assert torch.equal(whole.train.prepared, rows.train.prepared[:])
    assert isinstance(rows.train.prepared, Streamed)


def test_large_validation_splits_are_read_when_needed_too(tmp_path: Path, monkeypatch):
    from murmuration.data import dataset

    source, _ = npz(tmp_path)
    kept = mm.fit("mlp:hidden=8", open_data(source, in_memory=False), **PLAN)
    monkeypatch.setattr(dataset, "VAL_BYTES", 0)
    data = open_data(source, in_memory=False)
    assert isinstance(data.val.prepared, Streamed)
    read = mm.fit("mlp:hidden=8", data, **PLAN)
    assert all(torch.equal(a, b) for a, b in zip(kept.to_tensors().values(), read.to_tensors().values(), strict=True))


def test_worker_processes_decode_the_same_images_and_name_a_damaged_one(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(file_rows, "MIN_DECODED_IN_WORKERS", 10)
    source, _ = folder_of_images(tmp_path)
    files = sorted(source.rglob("*.png"))
    rows, _ = images.stack_images(
        [str(f) for f in files], lambda i: Image.open(files[i]), LoadOptions(size=(8, 8), in_memory=True)
    )
    alone = np.stack(
        [images.decode_images([str(f)], lambda i, f=f: Image.open(f), (3, 8, 8), np.arange(1))[0] for f in files]
    )
    assert np.array_equal(rows, alone)
    files[50].write_bytes(files[50].read_bytes()[:80])
    with pytest.raises(mm.Failure, match=rf"damaged image '.*{files[50].name}'") as caught:
        open_data(source, size=8, strict=True)
    assert "Traceback" not in str(caught.value)


def test_rows_of_several_parts_are_read_as_one():
    parts = [rows_of(np.arange(n * 2).reshape(n, 2) + 100 * n) for n in (3, 4, 2)]
    whole = np.concatenate([part[:] for part in parts])
    joined = joined_rows([part.subset(slice(None)) for part in parts])
    chosen = np.array([8, 0, 3, 3, 5])
    assert isinstance(joined, FileRows)
    assert np.array_equal(joined[chosen], whole[chosen])
    assert joined.shape == whole.shape


def test_a_table_in_a_file_reads_columns_and_rows(tmp_path: Path):
    source, _ = parquet(tmp_path)
    whole = pd.read_parquet(source)
    table, index = open_file_table(source)
    assert isinstance(table, FileTable)
    assert list(table.columns) == list(whole.columns)
    assert len(index) == len(whole)
    rows = np.array([299, 0, 36, 37, 38, 37])
    pd.testing.assert_frame_equal(table.read(rows), whole.iloc[rows], check_dtype=False)
    pd.testing.assert_series_equal(table.subset(rows)["a"], whole["a"].iloc[rows])


def test_the_index_of_a_parquet_file_names_its_predictions(tmp_path: Path):
    x = np.random.default_rng(0).normal(size=(60, 2))
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": x[:, 0]}, index=[f"row-{i}" for i in range(60)])
    table.to_parquet(tmp_path / "t.parquet")
    one, other = (open_data(tmp_path / "t.parquet", target="y", in_memory=each) for each in (True, False))
    assert one.test.keys["index"].tolist() == other.test.keys["index"].tolist()
    assert one.feature_names == other.feature_names == ("a", "b")


def test_what_cannot_be_read_row_by_row_is_refused(tmp_path: Path, monkeypatch):
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))
    with pytest.raises(mm.Misuse, match=r"is a table that is read whole: give a \.parquet file"):
        open_data(tmp_path / "t.csv", target="y", in_memory=False)
    monkeypatch.setattr(file_rows, "UNPACKED_BYTES", 1000)
    np.savez_compressed(tmp_path / "c.npz", x=np.zeros((200, 3)), y=np.arange(200) % 2)
    with pytest.raises(mm.Misuse, match=r"is compressed and unpacks to .* GiB: .*write it uncompressed \(np.savez\)"):
        open_data(tmp_path / "c.npz")
    np.save(tmp_path / "x.npy", np.zeros((9, 2)))
    with pytest.raises(mm.Misuse, match=r"holds inputs alone: write target='y\.npy'"):
        open_data(tmp_path / "x.npy")


def test_a_bad_number_in_a_file_is_named_by_its_row(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(file_rows, "BLOCK", 20)
    x = np.ones((300, 4))
    x[271, 3] = np.nan
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(300) % 2)
    for in_memory in (True, False):
        with pytest.raises(mm.Misuse, match=r"x\[271, 3\] is nan"):
            open_data(tmp_path / "a.npz", in_memory=in_memory)
