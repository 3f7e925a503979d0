"""Generated files, gentle and hostile: tables, arrays, images, predictions.

Each kind writes a source below a folder and returns the action on it, which reads it as a user would.
"""

import gzip
import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import murmuration as mm
from murmuration.evaluation.audit import evaluate_predictions, open_predictions

EVIL = ["", " ", "nan", "inf", "-inf", "1e400", "1e39", "-1e300", "1.234,50", "1,5", "0x1F", "=1+1", "a\x00b", "é" * 50]
EVIL += ["\u202e", "z" * 5000, "NULL", "None", "true", "2026-13-45", "'", '"', "a|b", "\\", "1_000", "١٢", "9" * 400]
EVIL += [
    "\ufeff",
    "31.12.2026",
    "12/31/2026",
    "1 000",
    "\u22121",
    "#N/A",
    "TRUE",
    "-",
    "1e",
    "\t",
    "\ud83d\ude00",
    "%s{0}",
]
EVIL = [text.encode("utf-16", "surrogatepass").decode("utf-16") for text in EVIL]
Rng = np.random.Generator
Action = Callable[[], Any]


def pick(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


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


def odd_file(rng: Rng, path: Path) -> None:
    """What is no regular file with this content: a pipe, a loop of links, a folder, a device, a link to nothing."""
    path.unlink(missing_ok=True)
    ways: list[Callable[[], Any]] = [
        lambda: os.mkfifo(path),
        lambda: path.symlink_to(path.name),
        lambda: path.mkdir(),
        lambda: path.symlink_to("/dev/null"),
        lambda: path.symlink_to("nowhere"),
        lambda: path.write_bytes(b""),
    ]
    pick(rng, ways)()


# Tables


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


def odd_column(rng: Rng, rows: int) -> list[Any]:
    """A column of a whole table that is hard to read: one kind of cell in every row."""
    n = range(rows)
    ways: list[Callable[[], list[Any]]] = [
        lambda: [None] * rows,
        lambda: [""] * rows,
        lambda: ["same"] * rows,
        lambda: [f"{i},{i % 10}" for i in n],
        lambda: [f"{i}.{i:03d},50" for i in n],
        lambda: [f"{i % 28 + 1:02d}.{i % 12 + 1:02d}.2026" for i in n],
        lambda: [f"{i % 12 + 1}/{i % 28 + 1}/26" for i in n],
        lambda: [f"2026-01-{i % 28 + 1:02d}T12:00:00{pick(rng, ['', 'Z', '+02:00'])}" for i in n],
        lambda: [f"id-{i}" for i in n],
        lambda: [2**63 + i for i in n],
        lambda: [10**30 + i for i in n],
        lambda: [10.0 ** (i - rows // 2) for i in n],
        lambda: [5e-324 * (i % 2) for i in n],
        lambda: [1e20 + i for i in n],
        lambda: ["yes" if i % 2 else "No" for i in n],
        lambda: [pick(rng, [True, "true", 1, "1", None]) for _ in n],
        lambda: [pick(rng, EVIL) for _ in n],
        lambda: [f"{i} kg" for i in n],
        lambda: [f"{i}%" for i in n],
        lambda: ["x" * 3000] * rows,
    ]
    return pick(rng, ways)()


def odd_table(rng: Rng, frame: pd.DataFrame) -> pd.DataFrame:
    """A table of an odd form: few rows, one class, columns twice, many of them, without names or with strange ones."""
    rows = len(frame)
    ways: list[Callable[[], pd.DataFrame]] = [
        lambda: frame[:0],
        lambda: frame[:1],
        lambda: frame[: int(rng.integers(2, 12))],
        lambda: frame.assign(y=frame["y"].iloc[0]),
        lambda: frame.assign(y=odd_column(rng, rows)),
        lambda: frame.assign(y=[f"class {i}" for i in range(rows)]),
        lambda: frame.assign(y=np.where(np.arange(rows) == 0, "rare", "usual")),
        lambda: frame.assign(y=frame["y"].where(rng.random(rows) < 0.5)),
        lambda: frame.assign(odd=odd_column(rng, rows)),
        lambda: frame.assign(odd=odd_column(rng, rows), other=odd_column(rng, rows)),
        lambda: frame.rename(columns={"c0": pick(rng, ["", " ", "y ", "Y", "Unnamed: 0", "=1+1", "a\nb", "é" * 300])}),
        lambda: pd.concat([frame, frame.iloc[:, :1]], axis=1),
        lambda: pd.concat([frame, frame[["y"]]], axis=1),
        lambda: frame[["y"]],
        lambda: frame.drop(columns="y"),
        lambda: pd.concat([frame, pd.DataFrame(rng.normal(size=(rows, 400))).add_prefix("w")], axis=1),
        lambda: pd.concat([frame] * 40, ignore_index=True),
    ]
    return pick(rng, ways)()


def csv_file(rng: Rng, folder: Path, hostile: bool) -> Action:
    frame, path = table(rng), folder / "t.csv"
    if hostile and rng.random() < 0.5:
        frame = odd_table(rng, frame)
    separator = pick(rng, [",", ",", ";", "\t"])
    ending, mark = pick(rng, ["\n", "\n", "\r\n"]), pick(rng, ["utf-8", "utf-8-sig"])
    quoting = pick(rng, [0, 0, 0, 1])
    text = frame.to_csv(index=bool(rng.random() < 0.2), sep=separator, lineterminator=ending, quoting=quoting)
    content = text.encode(mark, "replace")
    if hostile:
        lines = text.split(ending)
        for _ in range(int(rng.integers(0, 4))):
            place = int(rng.integers(0, len(lines)))
            cells = lines[place].split(separator)
            cells[int(rng.integers(len(cells)))] = pick(rng, EVIL)
            lines[place] = separator.join(cells + ["extra"] * int(rng.random() < 0.1))
        mark = pick(rng, [mark, mark, mark, "latin-1", "utf-16", "utf-32", "utf-7", "cp1252"])
        content = ending.join(lines).encode(mark, "replace")
        ways: list[Callable[[], bytes]] = [
            lambda: mutate_bytes(rng, content),
            lambda: content[: len(content) // 2] + "é\n".encode("latin-1") + content[len(content) // 2 :],  # two codes
            lambda: content.replace(b"\n", b"\r"),
            lambda: b"\n\n" + content,
            lambda: b"# a comment\n" + content,
            lambda: b"sep=;\n" + content,
            lambda: content + b'"',
            lambda: content + b"\x00" * 50,
            lambda: gzip.compress(content),
            lambda: b"\xef\xbb\xbf" * 2 + content,
        ]
        content = pick(rng, ways)() if rng.random() < 0.5 else content
    path.write_bytes(content)
    if hostile and rng.random() < 0.03:
        odd_file(rng, path)
    return lambda: opened(rng, path, target="y")


def odd_arrow(rng: Rng, rows: int) -> pa.Array:
    """A column of a type that pandas does not write by itself."""
    n = range(rows)
    ways: list[Callable[[], pa.Array]] = [
        lambda: pa.nulls(rows),
        lambda: pa.array([Decimal(i) / 8 for i in n]),
        lambda: pa.array([Decimal(10) ** 30 + i for i in n]),
        lambda: pa.array([date(2026, 1, 1 + i % 28) for i in n]),
        lambda: pa.array([time(i % 24) for i in n]),
        lambda: pa.array(pd.date_range("2026-01-01", periods=rows, tz=pick(rng, [None, "UTC", "Europe/Berlin"]))),
        lambda: pa.array([i % 3 for i in n]).cast(pa.uint64()),
        lambda: pa.array([2**63 + i for i in n], pa.uint64()),
        lambda: pa.array(["a", "b"] * rows)[:rows].dictionary_encode(),
        lambda: pa.array([b"\xff\x00"] * rows),
        lambda: pa.array([[1, 2]] * rows),
        lambda: pa.array([{"a": 1}] * rows),
        lambda: pa.array([[("k", i)] for i in n], pa.map_(pa.string(), pa.int64())),
        lambda: pa.array([i % 2 == 0 if i % 5 else None for i in n]),
        lambda: pa.array([float(i % 7) for i in n]).cast(pa.float16()),
        lambda: pa.array(["x"] * rows, pa.large_string()),
        lambda: pa.array([pick(rng, [np.inf, np.nan, 1e300, 0.0, None]) for _ in n], pa.float64()),
        lambda: pa.array([i * 10**9 for i in n], pa.duration("ns")),
        lambda: pa.chunked_array([pa.array(list(n)[:5], pa.int64()), pa.array(list(n)[5:], pa.int64())]),
    ]
    return pick(rng, ways)()


def parquet_file(rng: Rng, folder: Path, hostile: bool) -> Action:
    frame, path = table(rng), folder / "t.parquet"
    packing = pick(rng, ["snappy", "none", "gzip", "zstd", "brotli"])
    group = int(rng.integers(5, 60))
    if hostile and rng.random() < 0.25:
        odd = odd_table(rng, frame)
        frame = odd if odd.columns.is_unique else frame
    try:
        found = pa.Table.from_pandas(frame)
    except (pa.ArrowException, OverflowError):  # cells of several types, or too large
        found = pa.Table.from_pandas(frame.astype(str))
    if hostile and rng.random() < 0.5:
        found = found.append_column(pick(rng, ["odd", "odd", "odd", "y", "c0", ""]), odd_arrow(rng, len(frame)))
    if hostile and rng.random() < 0.1:
        found = (
            found.set_column(found.column_names.index("y"), "y", odd_arrow(rng, len(frame))) if "y" in frame else found
        )
    pq.write_table(found, path, row_group_size=group, compression=packing)
    if hostile and rng.random() < 0.5:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
    if hostile and rng.random() < 0.03:
        odd_file(rng, path)
    in_memory = pick(rng, [None, False])
    return lambda: opened(rng, path, target="y", in_memory=in_memory)


# Arrays


def arrays(rng: Rng) -> dict[str, np.ndarray]:
    """Inputs and targets of some rank and type."""
    rows = int(rng.integers(20, 60))
    shape = pick(rng, [(4,), (1,), (3, 6, 6), (6, 6, 3), (5, 8)])
    x = rng.normal(size=(rows, *shape))
    x = pick(rng, [x, x.astype(np.float32), rng.integers(0, 256, x.shape, dtype=np.uint8), (x > 0).astype(int)])
    y = pick(rng, [rng.integers(0, 3, rows), rng.normal(size=rows), rng.choice(["a", "b"], rows)])
    if rng.random() < 0.2:
        x = pick(rng, [np.asfortranarray(x), x.astype(x.dtype.newbyteorder(">")), x[::-1], x.astype(np.float16)])
    if rng.random() < 0.3:
        half = rows // 2
        return {"x_train": x[:half], "y_train": y[:half], "x_test": x[half:], "y_test": y[half:]}
    return {"x": x, "y": y}


def odd_array(rng: Rng, given: np.ndarray) -> np.ndarray:
    """An array that does not fit: other types, shapes or values."""
    number = given.dtype.kind in "iuf"
    ways: list[Callable[[], np.ndarray]] = [
        lambda: given[:0],
        lambda: given[:1],
        lambda: given[:-1],
        lambda: given.astype(str),
        lambda: given.astype("S"),
        lambda: np.array(3.0),
        lambda: np.array([{}, 1], dtype=object),
        lambda: given.astype(object),
        lambda: given.astype(complex) if number else given,
        lambda: np.full(given.shape, pick(rng, [np.nan, np.inf, 1e39, 1e300, -1e308])),
        lambda: np.full(given.shape, pick(rng, [2**63 - 1, -(2**63), 0, -1])),
        lambda: np.full(given.shape, 2**64 - 1, np.uint64),
        lambda: given[..., None, None],
        lambda: np.zeros((len(given), 0)),
        lambda: np.zeros((len(given), 3, 0, 4)),
        lambda: given.astype("datetime64[s]") if given.dtype.kind in "iu" else given,
        lambda: given.astype("timedelta64[s]") if given.dtype.kind in "iu" else given,
        lambda: np.asfortranarray(given),
        lambda: given.astype(given.dtype.newbyteorder(">")),
        lambda: given.astype(np.longdouble) if number else given,
        lambda: given.astype(bool) if number else given,
        lambda: np.zeros(len(given), dtype=[("a", "f4"), ("b", "i4")]),
        lambda: np.array(["é\x00", "\u202e", ""] * len(given))[: len(given)],
        lambda: np.arange(len(given)),
    ]
    return pick(rng, ways)()


def claimed_npy(rng: Rng) -> bytes:
    """The header of an .npy file that claims more than there is, or what no reader should follow."""
    shape = pick(rng, ["(99999999999,)", "(1000000, 1000000)", "(-1,)", "(2**40,)", "()", "3", "(True,)", "(1.5,)"])
    kind = pick(rng, ["'<f8'", "'|O'", "'<U999999999'", "[('a','<f8')]", "'x'", "None", "'>f4'", "'|V8'"])
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + rng.bytes(64)


def npz_file(rng: Rng, folder: Path, hostile: bool) -> Action:
    found, path = arrays(rng), folder / "a.npz"
    if hostile and rng.random() < 0.6:
        name = pick(rng, list(found))
        found[name] = odd_array(rng, found[name])
    if hostile and rng.random() < 0.07:
        size = 2_000_000 * int(rng.integers(1, 9))  # a small file, unpacked large
        found["x"] = np.zeros((size, 1), pick(rng, [np.uint8, np.float64]))
    if hostile and rng.random() < 0.1:
        found[pick(rng, ["z", "X", "weights", "x_val", "y_val", "names", "classes", "groups"])] = odd_array(
            rng, next(iter(found.values()))
        )
    huge = any(array.nbytes > 2**24 for array in found.values())
    save = np.savez_compressed if huge or rng.random() < 0.3 else np.savez
    save(path, **found)
    if hostile and rng.random() < 0.5:
        ways: list[Callable[[], Any]] = [
            lambda: path.write_bytes(mutate_bytes(rng, path.read_bytes())),
            lambda: rewrite_member(rng, path),
            lambda: rewrite_member(rng, path, claimed_npy(rng)),
            lambda: add_member(path, pick(rng, ["x.npy", "../x.npy", "/x.npy", "x", "x.npy/", "é.npy"]), rng.bytes(9)),
            lambda: odd_file(rng, path),
            lambda: add_bomb(path) if rng.random() < 0.2 else None,
        ]
        pick(rng, ways)()
    in_memory = pick(rng, [None, None, False])
    return lambda: opened(rng, path, in_memory=in_memory)


def rewrite_member(rng: Rng, path: Path, content: bytes | None = None) -> None:
    """Change the bytes of one .npy file of an archive, whose checksums then fit."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = pick(rng, list(members))
    members[name] = content or mutate_bytes(rng, members[name][:128]) + members[name][128:]
    with zipfile.ZipFile(path, "w") as archive:
        for each, data in members.items():
            archive.writestr(each, data)


def add_member(path: Path, name: str, content: bytes) -> None:
    """One more file of an archive, maybe of a name that it has already."""
    with zipfile.ZipFile(path, "a") as archive:
        if name not in archive.namelist():
            archive.writestr(name, content)


def add_bomb(path: Path) -> None:
    """Replace the inputs of an archive by more than 1 GiB of zeros, packed to a megabyte."""
    rows, zeros = 2**30 + 2**26, bytes(2**26)
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (rows, 1)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as member:
            member.write(head.getvalue())
            for _ in range(rows // len(zeros)):
                member.write(zeros)
        archive.writestr("y.npy", head.getvalue() + zeros[:64])


def npy_file(rng: Rng, folder: Path, hostile: bool) -> Action:
    found = arrays(rng)
    x, y = (next(values for name, values in found.items() if name.startswith(each)) for each in "xy")
    np.save(folder / "x.npy", odd_array(rng, x) if hostile and rng.random() < 0.5 else x)
    np.save(folder / "y.npy", odd_array(rng, y) if hostile and rng.random() < 0.2 else y)
    target = folder / pick(rng, ["x.npy", "x.npy", "y.npy"])
    if hostile and rng.random() < 0.6:
        ways: list[Callable[[], Any]] = [
            lambda: target.write_bytes(mutate_bytes(rng, target.read_bytes())),
            lambda: target.write_bytes(claimed_npy(rng)),
            lambda: odd_file(rng, target),
        ]
        pick(rng, [ways[0], ways[0], ways[1], ways[2]])()
    return lambda: opened(rng, folder / "x.npy", target="y.npy", in_memory=pick(rng, [None, False]))


def idx_folder(rng: Rng, folder: Path, hostile: bool) -> Action:
    for part in ("train", "t10k")[: int(rng.integers(1, 3))]:
        shape = (int(rng.integers(12, 40)), 5, 6)
        head = pick(rng, [shape, (0, 5, 6), (2**32 - 1,) * 3, (shape[0], 0, 6)]) if hostile else shape
        kind = pick(rng, [8, 8, 8, 9, 11, 12, 13, 14, 7]) if hostile else 8
        content = bytes((0, 0, kind, 3)) + struct.pack(">3I", *head) + rng.bytes(math.prod(shape))
        count = shape[0] + (int(rng.integers(-3, 4)) if hostile and rng.random() < 0.2 else 0)
        labels = bytes((0, 0, 8, 1)) + struct.pack(">I", count) + bytes((rng.integers(0, 3, count)).tolist())
        for name, each in ((f"{part}-images-idx3-ubyte", content), (f"{part}-labels-idx1-ubyte", labels)):
            bad = mutate_bytes(rng, each) if hostile and rng.random() < 0.3 else each
            bad += bytes(2**24 * int(rng.integers(1, 9))) if hostile and rng.random() < 0.03 else b""
            packed = rng.random() < 0.4 or len(bad) > 2**20
            (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(bad, 1) if packed else bad)
    if hostile and rng.random() < 0.05:
        odd_file(rng, pick(rng, sorted(folder.iterdir())))
    return lambda: opened(rng, folder)


def cifar_folder(rng: Rng, folder: Path, hostile: bool) -> Action:
    for name in pick(rng, [["data_batch_1.bin"], ["data_batch_1.bin", "test_batch.bin"], ["train.bin", "test.bin"]]):
        labels = 2 if name in ("train.bin", "test.bin") else 1
        content = b"".join(bytes(rng.integers(0, 3, labels).tolist()) + rng.bytes(3072) for _ in range(15))
        (folder / name).write_bytes(mutate_bytes(rng, content) if hostile and rng.random() < 0.5 else content)
    names = pick(rng, [b"a\nb\nc\n", b"a\xff\nb\n", b"", b"a\n", b"a\na\na\n"]) if hostile else b"a\nb\nc\n"
    (folder / "batches.meta.txt").write_bytes(names)
    if hostile and rng.random() < 0.05:
        odd_file(rng, pick(rng, sorted(folder.iterdir())))
    return lambda: opened(rng, folder)


# Images


def save_image(rng: Rng, path: Path, side: int) -> None:
    """An image file of some mode and format, under the suffix that fits it."""
    pixels = rng.integers(0, 256, (side, 8, 3), dtype=np.uint8)
    plain = Image.fromarray(pixels)
    deep = Image.fromarray(pixels[..., 0].astype(np.uint16) * 256)
    frames = [Image.fromarray(rng.integers(0, 256, (side, 8, 3), dtype=np.uint8)) for _ in range(2)]
    turned = Image.Exif()
    turned[0x0112] = int(rng.integers(1, 9))
    ways: list[Callable[[], Any]] = [
        lambda: plain.save(path.with_suffix(pick(rng, [".png", ".bmp", ".tiff", ".gif", ".webp", ".PNG"]))),
        lambda: plain.convert(pick(rng, ["L", "RGBA", "P", "1", "LA"])).save(path.with_suffix(".png")),
        lambda: plain.convert("P").save(path.with_suffix(".png"), transparency=0),
        lambda: deep.save(path.with_suffix(".png")),
        lambda: plain.convert("CMYK").save(path.with_suffix(".jpg")),
        lambda: plain.save(path.with_suffix(".jpg"), exif=turned),
        lambda: plain.save(path.with_suffix(".gif"), save_all=True, append_images=frames),
        lambda: plain.save(path.with_suffix(".png"), save_all=True, append_images=frames),
        lambda: plain.convert("F").save(path.with_suffix(".tiff")),
        lambda: plain.convert("I").save(path.with_suffix(".tiff")),
    ]
    pick(rng, [ways[0], ways[0], ways[0], *ways])()


def image_folder(rng: Rng, folder: Path, hostile: bool) -> Action:
    folders = pick(rng, [["cat", "dog"], ["cat", "dog"], ["cat"], ["train/cat", "train/dog", "test/cat", "test/dog"]])
    folders = folders if hostile or len(folders) > 1 else ["cat", "dog"]
    for i in range(int(rng.integers(12, 24)) + 8 * (len(folders) == 4)):
        place = folder / folders[i % len(folders)]
        place.mkdir(exist_ok=True, parents=True)
        save_image(rng, place / f"{i}.png", 8 + int(rng.integers(3)) * (rng.random() < 0.3))
    files = sorted(folder.rglob("*.*"))
    if hostile:
        for path in rng.choice(np.array(files, dtype=object), 2, replace=False):
            ways: list[Callable[[Path], Any]] = [
                lambda p: p.write_bytes(mutate_bytes(rng, p.read_bytes())),
                lambda p: p.write_bytes(p.read_bytes()[: int(rng.integers(1, 200))]),
                lambda p: p.write_bytes(png_of_size(30_000, 30_000)),
                lambda p: p.write_bytes(png_of_size(*pick(rng, [(0, 4), (4, 0), (2**31 - 1, 1), (1, 200_000)]))),
                lambda p: (p.unlink(), p.symlink_to(pick(rng, files))),
                lambda p: Image.new("RGB", (1, 1)).save(p.with_suffix(".png")),
                lambda p: Image.new("RGB", (1, 3000)).save(p.with_suffix(".png")),
                partial(odd_file, rng),
            ]
            pick(rng, ways)(path)
        extras: list[Callable[[], Any]] = [
            lambda: (folder / "none").mkdir(),
            lambda: ((folder / "one").mkdir(), Image.new("RGB", (8, 8)).save(folder / "one" / "a.png")),
            lambda: (folder / "cat" / "notes.txt").write_text("x") if (folder / "cat").is_dir() else None,
            lambda: (folder / "twin").symlink_to(folder, target_is_directory=True),
            lambda: (folder / "\u202ebad\nname").mkdir(),
            lambda: (folder / ".hidden").mkdir(),
            lambda: None,
        ]
        pick(rng, extras)()
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


# Predictions


def odd_probabilities(rng: Rng, probs: np.ndarray) -> np.ndarray:
    """Probabilities (N, K) that are none, or at the edge."""
    ways = [probs * 2, -probs, probs - 0.01, probs[:, :1], np.eye(3)[rng.integers(0, 3, len(probs))], probs * np.nan]
    ways += [probs.astype(np.float16), np.zeros_like(probs), probs[:1], probs.round(1), probs + 1e-7]
    return np.asarray(pick(rng, ways))


def audit_file(rng: Rng, folder: Path, hostile: bool) -> Action:
    rows = int(rng.integers(20, 90))
    suffix = pick(rng, [".csv", ".npz", ".parquet"])
    probs = rng.dirichlet([1, 1, 1], rows)
    probs = odd_probabilities(rng, probs) if hostile and rng.random() < 0.3 else probs
    if rng.random() < 0.5:
        columns: dict[str, Any] = {
            f"prob_{name}": probs[:, k] for k, name in zip(range(probs.shape[1]), ("a", "b", "=c"), strict=False)
        }
        columns["label"] = rng.choice(["a", "b", "=c"], len(probs))
        labels = rng.integers(0, 3, len(probs))
        forms: list[dict[str, Any]] = [{"probs": probs}, {"logits": np.log(np.abs(probs) + 1e-9)}]
        forms += [{"probs": np.stack([probs, probs[::-1]])}]
        packed: dict[str, Any] = {**pick(rng, forms), "y": labels}
    else:
        scale = 10.0 ** (rng.integers(-320, 308) if hostile else rng.integers(-5, 6))
        columns = {
            "mean": rng.normal(size=rows) * scale,
            "std": np.full(rows, scale),
            "y": rng.normal(size=rows) * scale,
        }
        drawn = {"samples": rng.normal(size=(5, rows)) * scale, "y": columns["y"]}
        packed = dict(pick(rng, [columns, drawn]))
    if hostile and rng.random() < 0.5:
        name = pick(rng, list(columns))
        values = list(columns[name])
        values[int(rng.integers(len(values)))] = pick(rng, [*EVIL, None])
        columns[name] = values if rng.random() < 0.8 else odd_column(rng, len(values))
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
    if hostile and rng.random() < 0.03:
        odd_file(rng, path)

    def action() -> Any:
        found = evaluate_predictions(open_predictions(path))
        wrong = [name for name, score in found.scores.items() if math.isinf(float(score))]
        assert not wrong, f"scores {wrong} are infinite"

    return action


@lru_cache
def trained_on_a_table() -> mm.Ensemble:
    frame = pd.DataFrame({"a": np.arange(40.0), "colour": ["red", "green"] * 20, "y": np.arange(40.0) * 2})
    return mm.fit("mlp:hidden=4", frame, target="y", members=1, epochs=1)


def prediction_file(rng: Rng, folder: Path, hostile: bool) -> Action:
    """Inputs of a run that was trained on a table: its columns, changed."""
    rows = int(rng.integers(1, 30))
    frame = pd.DataFrame({"a": rng.normal(size=rows), "colour": rng.choice(["red", "green", "blue"], rows)})
    if hostile:
        frame = frame.astype(object)
        frame.iloc[int(rng.integers(rows)), int(rng.integers(2))] = pick(rng, EVIL)
        frame = frame.drop(columns="a") if rng.random() < 0.1 else frame
        frame = frame.assign(
            **{pick(rng, ["a", "colour", "more"]): odd_column(rng, rows)} if rng.random() < 0.3 else {}
        )
        frame = frame[:0] if rng.random() < 0.05 else frame
    path, out = folder / pick(rng, ["n.csv", "n.parquet"]), folder / pick(rng, ["p.csv", "p.parquet", "p.npz"])
    odd = frame.select_dtypes(object).columns
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.astype(dict.fromkeys(odd, str)).to_parquet(path)
    if hostile and rng.random() < 0.3:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
    if hostile and rng.random() < 0.03:
        odd_file(rng, path)

    def action() -> Any:
        mm.save_predictions(trained_on_a_table(), path, out)
        assert out.exists(), "no predictions were written"

    return action
