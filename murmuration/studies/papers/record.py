"""The record of a reproduction: written as results are computed, continued with the same settings only."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmuration.runs.directory import versions
from murmuration.studies.papers import ScreenTable
from murmuration.studies.verdicts import Verdict
from murmuration.system.errors import Failure, Misuse
from murmuration.system.files import read_json, unsealed, write_record
from murmuration.system.records import plain_json

RECORD = "record.json"
Record = dict[str, Any]


def open_record(out: Path, experiment: str, setting: Any, extends: tuple[str, ...] = (), **contents: Any) -> Record:
    """Return the record in `out`, begun with `contents` if there is none.

    An existing one must be of this experiment with these settings; those named in `extends`, such as the parts to
    compute, may change.
    """
    path = out / RECORD
    begun = {"experiment": experiment, "setting": plain_json(setting), "versions": versions(), **contents}
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        write_record(path, begun)  # before training: a killed run continues with these settings only
        return begun
    record = read_json(path)
    if not isinstance(record, dict) or record.get("experiment") != experiment or not contents.keys() <= record.keys():
        raise Failure(f"{path} is not a record of the experiment {experiment}: choose another --out")
    record = unsealed(path, record)
    for name, value in begun["setting"].items():
        before = record["setting"].get(name)
        if name not in extends and before != value:
            raise Misuse(f"{path} was made with {name}={before}, not {value}: repeat it, or choose another --out")
    record["setting"] |= {name: begun["setting"][name] for name in extends}
    return record


def save_record(out: Path, record: Record) -> None:
    """Write the record."""
    write_record(out / RECORD, plain_json(record))


def finished_record(
    record: Record, verdicts: Sequence[Verdict], tables: Sequence[ScreenTable], seconds: float
) -> Record:
    """Return the record with its verdicts, its tables and the CPU seconds of all results."""
    facts = {"verdicts": list(verdicts), "tables": list(tables), "cpu_seconds": round(seconds, 1)}
    finished: Record = plain_json({**record, **facts})
    return finished


def cpu_seconds() -> float:
    """Return CPU seconds of this process and its ended children so far; results store differences of it."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def hexadecimal(right: NDArray[np.bool_]) -> str:
    """Return which examples are right as bits in hexadecimal digits, a record's form of it."""
    return np.packbits(np.asarray(right, dtype=bool)).tobytes().hex()


def bits(text: str, examples: int) -> NDArray[np.float64]:
    """Return which of the first examples were right (N,).

    >>> bits(hexadecimal(np.array([True, False, True])), 3).tolist()
    [1.0, 0.0, 1.0]
    """
    packed = np.frombuffer(bytes.fromhex(text), dtype=np.uint8)
    return np.unpackbits(packed)[:examples].astype(float)
