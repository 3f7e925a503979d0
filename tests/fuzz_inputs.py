"""Generated files and command lines, gentle and hostile, through every reader: nothing may fail badly.

python tests/fuzz_inputs.py --cases 1000           in forks of this process, under limits of memory and time
python tests/fuzz_inputs.py --cases 0 --processes 30    as processes of their own: python -m murmuration ...
python tests/fuzz_inputs.py --show 4711            make one case again and run it here, with its traceback

A case is a number: it seeds the generator of its kind, its file and its mutation. About half of the files are meant to
be accepted. Counts accumulate in benchmarks/results/fuzz.json, and the next call goes on where the last one ended.

A case fails badly if it ends with another error than `Misuse` or `Failure`, with a message of several lines or of more
than 1,000 characters, with a number that is not finite, after more than 60 seconds of computing, by a signal, or beyond
1 GiB of memory more than before; a command line also if it prints a traceback or leaves an unfinished run behind.
"""

import argparse
import contextlib
import gzip
import io
import json
import math
import os
import pickle
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

import murmuration as mm
from murmuration.audit import evaluate_predictions, open_predictions
from murmuration.cli import main
from murmuration.errors import LONGEST, Failure, Misuse

RECORD = Path(__file__).parents[1] / "benchmarks" / "results" / "fuzz.json"
MEMORY, SECONDS, WALL_SECONDS, PROCESS_SECONDS = 2**30, 60, 600, 600
BATCH = 50  # cases of one fork
WARM = 30  # cases that are run here first, so that forks find their modules imported
EVIL = ["", " ", "nan", "inf", "-inf", "1e400", "1e39", "-1e300", "1.234,50", "1,5", "0x1F", "=1+1", "a\x00b", "é" * 50]
EVIL += ["\u202e", "z" * 5000, "NULL", "None", "true", "2026-13-45", "'", '"', "a|b", "\\", "1_000", "١٢", "9" * 400]
Rng = np.random.Generator


def pick(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def column(rng: Rng, rows: int) -> list[Any]:
    """A column of numbers, whole numbers, categories, dates or truth values, sometimes with gaps."""
    kinds: list[Callable[[], list[Any]]] = [
        lambda: (rng.normal(size=rows) * 10.0 ** rng.integers(-3, 6)).round(4).tolist(),
        lambda: rng.integers(0, 50, rows).tolist(),
        lambda: rng.choice(["red", "green", "blue", "grün"], rows).tolist(),
        lambda: pd.date_range("2026-01-01", periods=rows).strftime("%Y-%m-%d").tolist(),
        lambda: (rng.random(rows) < 0.5).tolist(),
    ]
    found = pick(rng, kinds)()
    if rng.random() < 0.3:
        for place in rng.integers(0, rows, rows // 8):
            found[place] = None
    return found


def table(rng: Rng) -> pd.DataFrame:
    """A table with a target `y` of classes or numbers."""
    rows = int(rng.integers(20, 80))
    columns = {f"c{i}": column(rng, rows) for i in range(rng.integers(1, 5))}
    labels = [
        rng.choice(["no", "yes"], rows).tolist(),
        rng.integers(0, 3, rows).tolist(),
        rng.normal(size=rows).tolist(),
    ]
    return pd.DataFrame({**columns, "y": pick(rng, labels)})


def mutate_bytes(rng: Rng, content: bytes) -> bytes:
    """Cut off, flipped, repeated or replaced bytes."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, max(1, len(data))))
        way = rng.integers(5)
        if way == 0:
            del data[at:]
        elif way == 1 and data:
            data[at] ^= 1 << int(rng.integers(8))
        elif way == 2:
            data[at:at] = data[at : at + 64] * int(rng.integers(1, 9))
        elif way == 3:
            data[at : at + 8] = rng.bytes(8)
        else:
            data[at : at + 1] = pick(rng, EVIL).encode()
    return bytes(data)


# Each kind writes a source below a folder and returns the action on it.


def csv_file(rng: Rng, folder: Path, hostile: bool) -> Callable[[], Any]:
    frame = table(rng)
    separator = pick(rng, [",", ",", ";", "\t"])
    ending, mark = pick(rng, ["\n", "\n", "\r\n"]), pick(rng, ["utf-8", "utf-8-sig"])
    text = frame.to_csv(index=bool(rng.random() < 0.2), sep=separator, lineterminator=ending)
    content = text.encode(mark)
    if hostile:
        lines = text.split(ending)
        for _ in range(int(rng.integers(1, 4))):
            place = int(rng.integers(0, len(lines)))
            cells = lines[place].split(separator)
            cells[int(rng.integers(len(cells)))] = pick(rng, EVIL)
            lines[place] = separator.join(cells + ["extra"] * int(rng.random() < 0.1))
        content = ending.join(lines).encode(mark)
        content = mutate_bytes(rng, content) if rng.random() < 0.4 else content
    (folder / "t.csv").write_bytes(content)
    return lambda: opened(rng, folder / "t.csv", target="y")


def parquet_file(rng: Rng, folder: Path, hostile: bool) -> Callable[[], Any]:
    frame, path = table(rng), folder / "t.parquet"
    if hostile and rng.random() < 0.5:
        evil = [[b"\xff"], [[1, 2]], [{"a": 1}], [float("inf")], [1e300], [pd.Timedelta(1)], [None], [2**63 - 1], [1j]]
        frame["odd"] = pd.Series(pick(rng, evil[:-1]) * len(frame))
    frame.to_parquet(path, row_group_size=int(rng.integers(5, 60)))
    if hostile and rng.random() < 0.7:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
    in_memory = pick(rng, [None, False])
    return lambda: opened(rng, path, target="y", in_memory=in_memory)


def arrays(rng: Rng) -> dict[str, np.ndarray]:
    """Inputs and targets of some rank and type."""
    rows = int(rng.integers(20, 60))
    shape = pick(rng, [(4,), (1,), (3, 6, 6), (6, 6, 3), (5, 8)])
    x = rng.normal(size=(rows, *shape))
    x = pick(rng, [x, x.astype(np.float32), rng.integers(0, 256, x.shape, dtype=np.uint8), (x > 0).astype(int)])
    y = pick(rng, [rng.integers(0, 3, rows), rng.normal(size=rows), rng.choice(["a", "b"], rows)])
    if rng.random() < 0.3:
        half = rows // 2
        return {"x_train": x[:half], "y_train": y[:half], "x_test": x[half:], "y_test": y[half:]}
    return {"x": x, "y": y}


def odd_array(rng: Rng, given: np.ndarray) -> np.ndarray:
    """An array that does not fit: other types, shapes or values."""
    ways: list[Callable[[], np.ndarray]] = [
        lambda: given[:0],
        lambda: given[:-1],
        lambda: given.astype(str),
        lambda: np.array(3.0),
        lambda: np.array([{}, 1], dtype=object),
        lambda: given.astype(complex) if given.dtype.kind != "U" else given,
        lambda: np.full(given.shape, pick(rng, [np.nan, np.inf, 1e39, 1e300, -1e308])),
        lambda: given[..., None, None],
        lambda: np.zeros((len(given), 0)),
        lambda: given.astype("datetime64[s]") if given.dtype.kind in "iu" else given,
        lambda: np.asfortranarray(given),
    ]
    return pick(rng, ways)()


def npz_file(rng: Rng, folder: Path, hostile: bool) -> Callable[[], Any]:
    found, path = arrays(rng), folder / "a.npz"
    if hostile and rng.random() < 0.6:
        name = pick(rng, list(found))
        found[name] = odd_array(rng, found[name])
    if hostile and rng.random() < 0.1:
        size = 20_000_000 * int(rng.integers(1, 9))  # a small file, unpacked large
        found["x"] = np.zeros((size, 1), pick(rng, [np.uint8, np.float64]))
    huge = any(array.nbytes > 2**24 for array in found.values())
    save = np.savez_compressed if huge or rng.random() < 0.3 else np.savez
    save(path, **found)
    if hostile and rng.random() < 0.5:
        if rng.random() < 0.5:
            path.write_bytes(mutate_bytes(rng, path.read_bytes()))
        else:
            rewrite_member(rng, path)
    in_memory = pick(rng, [None, None, False])
    return lambda: opened(rng, path, in_memory=in_memory)


def rewrite_member(rng: Rng, path: Path) -> None:
    """Change the bytes of one .npy file of an archive, whose checksums then fit."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = pick(rng, list(members))
    members[name] = mutate_bytes(rng, members[name][:128]) + members[name][128:]
    with zipfile.ZipFile(path, "w") as archive:
        for each, content in members.items():
            archive.writestr(each, content)


def npy_file(rng: Rng, folder: Path, hostile: bool) -> Callable[[], Any]:
    found = arrays(rng)
    x, y = (next(values for name, values in found.items() if name.startswith(each)) for each in "xy")
    np.save(folder / "x.npy", odd_array(rng, x) if hostile and rng.random() < 0.5 else x)
    np.save(folder / "y.npy", y)
    if hostile and rng.random() < 0.5:
        target = folder / pick(rng, ["x.npy", "y.npy"])
        target.write_bytes(mutate_bytes(rng, target.read_bytes()))
    return lambda: opened(rng, folder / "x.npy", target="y.npy", in_memory=pick(rng, [None, False]))


def idx_folder(rng: Rng, folder: Path, hostile: bool) -> Callable[[], Any]:
    for part in ("train", "t10k")[: int(rng.integers(1, 3))]:
        shape = (int(rng.integers(12, 40)), 5, 6)
        head = pick(rng, [shape, (0, 5, 6), (2**32 - 1,) * 3, (shape[0], 0, 6)]) if hostile else shape
        content = bytes((0, 0, 8, 3)) + struct.pack(">3I", *head) + rng.bytes(math.prod(shape))
        labels = bytes((0, 0, 8, 1)) + struct.pack(">I", shape[0]) + bytes((rng.integers(0, 3, shape[0])).tolist())
        for name, each in ((f"{part}-images-idx3-ubyte", content), (f"{part}-labels-idx1-ubyte", labels)):
            bad = mutate_bytes(rng, each) if hostile and rng.random() < 0.3 else each
            packed = rng.random() < 0.4
            (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(bad) if packed else bad)
    return lambda: opened(rng, folder)


def cifar_folder(rng: Rng, folder: Path, hostile: bool) -> Callable[[], Any]:
    for name in pick(rng, [["data_batch_1.bin"], ["data_batch_1.bin", "test_batch.bin"], ["train.bin", "test.bin"]]):
        labels = 2 if name in ("train.bin", "test.bin") else 1
        content = b"".join(bytes(rng.integers(0, 3, labels).tolist()) + rng.bytes(3072) for _ in range(15))
        (folder / name).write_bytes(mutate_bytes(rng, content) if hostile and rng.random() < 0.5 else content)
    names = pick(rng, [b"a\nb\nc\n", b"a\xff\nb\n", b"", b"a\n"]) if hostile else b"a\nb\nc\n"
    (folder / "batches.meta.txt").write_bytes(names)
    return lambda: opened(rng, folder)


def image_folder(rng: Rng, folder: Path, hostile: bool) -> Callable[[], Any]:
    for i in range(int(rng.integers(12, 24))):
        place = folder / ["cat", "dog"][i % 2]
        place.mkdir(exist_ok=True)
        mode = pick(rng, ["RGB", "RGB", "L", "RGBA", "P", "I;16", "1"])
        side = 8 + int(rng.integers(3)) * (rng.random() < 0.3)
        pixels = rng.integers(0, 256, (side, 8, 3), dtype=np.uint8)
        image = Image.fromarray(pixels) if mode != "I;16" else Image.fromarray(pixels[..., 0].astype(np.uint16) * 256)
        path = place / f"{i}{pick(rng, ['.png', '.png', '.bmp', '.gif', '.tiff'])}"
        (image if mode == "I;16" else image.convert(mode)).save(path if mode != "I;16" else path.with_suffix(".png"))
    files = sorted(folder.rglob("*.*"))
    if hostile:
        for path in rng.choice(np.array(files, dtype=object), 2):
            ways: list[Callable[[Path], Any]] = [
                lambda p: p.write_bytes(mutate_bytes(rng, p.read_bytes())),
                lambda p: p.write_bytes(b""),
                lambda p: p.write_bytes(png_of_size(30_000, 30_000)),
                lambda p: (p.unlink(), p.symlink_to("/dev/null")),
                lambda p: (p.unlink(), p.symlink_to(p)),
            ]
            pick(rng, ways)(path)
    size, in_memory = pick(rng, [None, 8]), pick(rng, [None, False])
    return lambda: opened(rng, folder, size=size, in_memory=in_memory)


def png_of_size(width: int, height: int) -> bytes:
    """A small PNG file that claims so many pixels."""
    out = io.BytesIO()
    Image.new("L", (4, 4)).save(out, "PNG")
    content = bytearray(out.getvalue())
    content[16:24] = struct.pack(">2I", width, height)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    return bytes(content)


def opened(rng: Rng, source: Any, **options: Any) -> mm.data.Data:
    """The data of a source, prepared values finite; trained on for an epoch now and then."""
    data = mm.open_data(source, **options)
    for split in (data.train, data.val, data.test):
        assert bool(split.prepared[: min(64, len(split))].isfinite().all()), "prepared inputs are not finite"
    if rng.random() < 0.02:
        mm.fit("mlp:hidden=4", data, members=1, epochs=1, posthoc=None)
    return data


def audit_file(rng: Rng, folder: Path, hostile: bool) -> Callable[[], Any]:
    rows = int(rng.integers(20, 90))
    suffix = pick(rng, [".csv", ".npz", ".parquet"])
    probs = rng.dirichlet([1, 1, 1], rows)
    if rng.random() < 0.5:
        columns: dict[str, Any] = {f"prob_{name}": probs[:, k] for k, name in enumerate(("a", "b", "=c"))}
        columns["label"] = rng.choice(["a", "b", "=c"], rows)
        packed: dict[str, Any] = {"probs": probs, "y": rng.integers(0, 3, rows)}
    else:
        scale = 10.0 ** (rng.integers(-320, 308) if hostile else rng.integers(-5, 6))
        columns = {
            "mean": rng.normal(size=rows) * scale,
            "std": np.full(rows, scale),
            "y": rng.normal(size=rows) * scale,
        }
        packed = dict(columns)
    if hostile and rng.random() < 0.5:
        name = pick(rng, list(columns))
        values = list(columns[name])
        values[int(rng.integers(rows))] = pick(rng, [*EVIL, None])
        columns[name] = values
        name = pick(rng, list(packed))
        packed[name] = odd_array(rng, np.asarray(packed[name]))
    path = folder / f"p{suffix}"
    if suffix == ".npz":
        np.savez(path, **packed)
    else:
        frame = pd.DataFrame(columns)
        odd = frame.select_dtypes(object).columns
        frame = frame.astype(dict.fromkeys(odd, str))
        frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    if hostile and rng.random() < 0.4:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))

    def action() -> Any:
        found = evaluate_predictions(open_predictions(path))
        wrong = [name for name, score in found.scores.items() if math.isinf(float(score))]
        assert not wrong, f"scores {wrong} are infinite"

    return action


@lru_cache
def trained_on_a_table() -> mm.Ensemble:
    frame = pd.DataFrame({"a": np.arange(40.0), "colour": ["red", "green"] * 20, "y": np.arange(40.0) * 2})
    return mm.fit("mlp:hidden=4", frame, target="y", members=1, epochs=1)


def prediction_file(rng: Rng, folder: Path, hostile: bool) -> Callable[[], Any]:
    """Inputs of a run that was trained on a table: its columns, changed."""
    rows = int(rng.integers(1, 30))
    frame = pd.DataFrame({"a": rng.normal(size=rows), "colour": rng.choice(["red", "green", "blue"], rows)})
    if hostile:
        frame = frame.astype(object)
        frame.iloc[int(rng.integers(rows)), int(rng.integers(2))] = pick(rng, EVIL)
        frame = frame.drop(columns="a") if rng.random() < 0.1 else frame
    path, out = folder / pick(rng, ["n.csv", "n.parquet"]), folder / pick(rng, ["p.csv", "p.parquet", "p.npz"])
    odd = frame.select_dtypes(object).columns
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.astype(dict.fromkeys(odd, str)).to_parquet(path)
    if hostile and rng.random() < 0.3:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))

    def action() -> Any:
        mm.save_predictions(trained_on_a_table(), path, out)
        assert out.exists(), "no predictions were written"

    return action


WORDS = ["train", "predict", "audit", "list", "evaluate", "resume", "compare", "explore", "calibrate", "embed", "prune"]
OPTIONS = {
    "--members": ["1", "0", "-3", "x", "1e9999", ""],
    "--epochs": ["1", "0", "-1", "nan", "9" * 30],
    "--recipe": ["deep-ensemble", "single", "bayes", "nope", "forde:every=0", "swag:rank=x", "a:b=c,d", ":"],
    "--net": ["mlp:hidden=4", "mlp:hidden=0", "linear", "small-cnn", "x:y", "os:system", "mlp:hidden=1x1x1x1", ".:"],
    "--lr": ["0.1", "inf", "-1", "1e39"],
    "--seed": ["0", "-1", str(2**70)],
    "--target": ["y", "z", "", "y,y", "=1"],
    "--prepare": ["none", "robust", "quantile", "unit", "what"],
    "--val": ["0.2", "1.5", "-1", "nan", "nowhere.csv"],
    "--test": ["none", "0.1", "1"],
    "--size": ["8", "0x8", "8x", "-8"],
    "--task": ["regression", "classification", "x"],
    "--batch-size": ["8", "0", "99999999999"],
    "--device": ["cpu", "cuda", "moon"],
    "--stream": [None],
    "--json": [None],
    "--group": ["y", ""],
}
USUAL = {"--members": "1", "--epochs": "1", "--net": "mlp:hidden=4"}


def command_line(rng: Rng, folder: Path, hostile: bool) -> list[str]:
    """Arguments of the command line; mostly of training on a small file."""
    kinds = [csv_file, npz_file, parquet_file, image_folder]
    kind = pick(rng, kinds)
    kind(rng, folder, hostile and rng.random() < 0.3)
    source = {csv_file: "t.csv", npz_file: "a.npz", parquet_file: "t.parquet", image_folder: "."}[kind]
    target = ["--target", "y"] if kind in (csv_file, parquet_file) else []
    command = pick(rng, WORDS) if hostile and rng.random() < 0.5 else "train"
    place = str(folder / source)
    if command != "train":
        extra = [
            pick(rng, [place, str(folder / "run"), "digits", "", "a\x01b", "--help"]) for _ in range(rng.integers(0, 3))
        ]
        found = [command, *extra]
    else:
        given = {**USUAL, **({} if not target else {"--target": "y"})}
        found = [command, place, *(word for pair in given.items() for word in pair), "--out", str(folder / "run")]
    if hostile:
        for name in rng.choice(list(OPTIONS), int(rng.integers(1, 3)), replace=False):
            value = pick(rng, OPTIONS[str(name)])
            found += [str(name)] if value is None else [str(name), value]
    return [word.replace("\x00", "") for word in found]


def command(rng: Rng, folder: Path, hostile: bool) -> Callable[[], Any]:
    arguments = command_line(rng, folder, hostile)

    def action() -> Any:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(arguments))
        check_command(code, out.getvalue(), err.getvalue(), folder)

    return action


def check_command(code: int, out: str, err: str, folder: Path) -> None:
    """Refuse a command that ended badly; one that was refused is raised again as its kind of error."""
    errors = [line for line in err.splitlines() if line.startswith("error:")]
    assert code in (0, 1, 2), f"exit code {code}: {err[-300:]}"
    assert "Traceback" not in out + err, f"a traceback: {err[-300:]}"
    assert "MURMUR_DEBUG" not in err, f"an internal error: {err[-300:]}"
    run = folder / "run" / "run.json"
    if run.exists():
        status = json.loads(run.read_text())["status"]
        assert code or status == "complete", "exit code 0 and an unfinished run"
        assert not code or status == "complete" or "resume" in err, f"a run left behind: {err[-300:]}"
    if code:
        assert len(errors) == 1, f"{len(errors)} lines of error: {err[-300:]}"
        raise (Misuse if code == 2 else Failure)(errors[0])


KINDS: dict[str, tuple[Callable[[Rng, Path, bool], Callable[[], Any]], int]] = {  # with how many in 100 cases
    "csv": (csv_file, 25),
    "parquet": (parquet_file, 10),
    "npz": (npz_file, 12),
    "npy": (npy_file, 6),
    "idx": (idx_folder, 8),
    "cifar": (cifar_folder, 5),
    "images": (image_folder, 10),
    "audit": (audit_file, 12),
    "predict": (prediction_file, 10),
    "command": (command, 2),
}


def kind_of(case: int) -> str:
    place, at = case * 37 % 100, 0
    for name, (_, share) in KINDS.items():
        at += share
        if place < at:
            return name
    raise AssertionError("shares do not sum to 100")


def run_case(case: int, loud: bool = False) -> tuple[str, str, str]:
    """The kind of a case, its outcome (accepted, refused, failed or bad) and a message."""
    rng, kind = np.random.default_rng([20261117, case]), kind_of(case)
    hostile = bool(rng.random() < 0.55)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)
            action = KINDS[kind][0](rng, folder, hostile)
            try:
                action()
            except (Misuse, Failure) as error:
                text = str(error)
                if len(text) > LONGEST + 200 or "\n" in text or "Traceback" in text:
                    return kind, "bad", f"message of {len(text)} characters: {text[:200]}"
                return kind, "refused" if isinstance(error, Misuse) else "failed", text
            return kind, "accepted", ""
    except MemoryError:
        return kind, "bad", "MemoryError"
    except BaseException as error:
        if loud:
            traceback.print_exc()
        last = traceback.extract_tb(error.__traceback__)[-1]
        return kind, "bad", f"{type(error).__name__}: {str(error)[:300]} ({Path(last.filename).name}:{last.lineno})"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def forked(cases: list[int]) -> list[tuple[str, str, str]]:
    """The outcomes of cases in a fork under limits; of a fork that dies, each case in a fork of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
        found = []
        for case in cases:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of this process, whatever else the machine does
            signal.alarm(WALL_SECONDS)
            found.append(run_case(case))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(pickle.dumps(found))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    if content:
        return pickle.loads(content)
    if len(cases) == 1:
        limits = (signal.SIGALRM, signal.SIGPROF)
        ended = "hang" if os.WIFSIGNALED(status) and os.WTERMSIG(status) in limits else f"status {status}"
        return [(kind_of(cases[0]), "bad", f"ended by {ended}")]
    return [outcome for case in cases for outcome in forked([case])]


def run_process(case: int) -> tuple[str, str, str]:
    """One command line as a process of its own."""
    rng = np.random.default_rng([20261118, case])
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        arguments = command_line(rng, folder, bool(rng.random() < 0.6))
        limit = {"OMP_NUM_THREADS": "1", **os.environ}
        done = subprocess.run(
            [sys.executable, "-m", "murmuration", *arguments],
            capture_output=True,
            text=True,
            timeout=PROCESS_SECONDS,
            env=limit,
            cwd=folder,
            check=False,
        )
        check_command(done.returncode, done.stdout, done.stderr, folder)
    except (Misuse, Failure) as error:
        return "process", "refused" if isinstance(error, Misuse) else "failed", str(error)
    except subprocess.TimeoutExpired:
        return "process", "bad", f"longer than {PROCESS_SECONDS} s: {' '.join(arguments)[:300]}"
    except AssertionError as error:
        return "process", "bad", f"{error} of {' '.join(arguments)[:300]}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return "process", "accepted", ""


def add(record: dict[str, Any], case: int, outcome: tuple[str, str, str]) -> None:
    """Count one outcome; bad ones are kept."""
    kind, verdict, message = outcome
    counts = record["kinds"].setdefault(kind, {})
    counts[verdict] = counts.get(verdict, 0) + 1
    if verdict == "bad":
        record["bad"].append({"case": case, "kind": kind, "message": message})
        print(f"{kind} case {case}: {message}", flush=True)


def fuzz(
    cases: int, processes: int = 0, record: dict[str, Any] | None = None, path: Path | None = None
) -> dict[str, Any]:
    """The record of so many further cases, written to `path` now and then."""
    record = record or {"cases": 0, "processes": 0, "kinds": {}, "bad": []}
    began = time.perf_counter()
    trained_on_a_table()
    for case in range(min(WARM, cases)):
        run_case(case)
    for first in range(record["cases"], record["cases"] + cases, BATCH):
        some = list(range(first, min(first + BATCH, record["cases"] + cases)))
        for case, outcome in zip(some, forked(some), strict=True):
            add(record, case, outcome)
        if path is not None:
            write(path, {**record, "cases": some[-1] + 1})
    record["cases"] += cases
    for case in range(record["processes"], record["processes"] + processes):
        add(record, case, run_process(case))
        record["processes"] = case + 1
        if path is not None:
            write(path, record)
    if path is not None:
        write(path, record)
    verdicts = Counter[str]()
    for counts in record["kinds"].values():
        verdicts.update(counts)
    took = time.perf_counter() - began
    print(f"{record['cases']} cases, {record['processes']} processes: {dict(verdicts)}, {took:.0f} s")
    return record


def write(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    if os.environ.get("OMP_NUM_THREADS") != "1":  # forks of a process that has had threads of OpenMP may hang
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--show", type=int)
    chosen = parser.parse_args()
    if chosen.show is not None:
        print(run_case(chosen.show, loud=True))
    else:
        known = json.loads(chosen.record.read_text()) if chosen.record.exists() else None
        found = fuzz(chosen.cases, chosen.processes, known, chosen.record)
        sys.exit(bool(found["bad"]))
