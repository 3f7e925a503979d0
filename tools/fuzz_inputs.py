"""Generated files and command lines, gentle and hostile, through every reader: nothing may fail badly.

python tools/fuzz_inputs.py --cases 1000           in forks of this process, under limits of memory and time
python tools/fuzz_inputs.py --cases 0 --processes 30    as processes of their own: python -m murmuration ...
python tools/fuzz_inputs.py --cases 0 --again      the cases that were bad, after a change
python tools/fuzz_inputs.py --show 4711            make one case again and run it here, with its traceback

A case is a number: it seeds the generator of its kind (`fuzz_files.py`, `fuzz_commands.py`), its file and its mutation.
About half of the files are meant to be accepted. Counts accumulate in benchmarks/results/fuzz.json, and the next call
goes on where the last one ended.

A case fails badly if it ends with another error than `Misuse` or `Failure`, with a message of several lines, of more
than 1,000 characters or in the words of Python, numpy or torch, with a number that is not finite, after more than 60
seconds of computing, by a signal, or beyond 1 GiB of memory more than before; a command line also if it prints a
traceback, prints JSON that is none, or leaves files behind although it was refused.
"""

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_commands import check_command, command, command_line, copy_world, files_of, world
from fuzz_files import (
    Rng,
    audit_file,
    cifar_folder,
    csv_file,
    idx_folder,
    image_folder,
    npy_file,
    npz_file,
    parquet_file,
    prediction_file,
    trained_on_a_table,
)

from murmuration.system.errors import LONGEST, Failure, Misuse

RECORD = Path(__file__).parents[1] / "benchmarks" / "results" / "fuzz.json"
MEMORY, SECONDS, WALL_SECONDS, PROCESS_SECONDS = 2**30, 60, 240, 600
BATCH = 50  # cases of one fork
WARM = 30  # cases that are run here first, so that forks find their modules imported
INTERNAL = re.compile(  # messages in the words of Python, numpy, pandas, torch, arrow or typer
    r"(Key|Type|Index|Attribute|Runtime|Assertion|ZeroDivision|Overflow|UnicodeDecode|Memory|Recursion)Error|Traceback|"
    r"NoneType|has no attribute|not subscriptable|not iterable|invalid literal|could not convert string|object at 0x|"
    r"unhashable|unsupported operand|positional argument|unexpected keyword|out of bounds|cannot be broadcast|mat1 and|"
    r"size of tensor|sizes of tensors|enforce fail|shape '\[|torch\.Size|dtype\('|<class '|BadParameter|"
    r"Arrow(Invalid|Not)"
)
KINDS: dict[str, tuple[Callable[[Rng, Path, bool], Callable[[], Any]], int]] = {  # with how many in 100 cases
    "csv": (csv_file, 20),
    "parquet": (parquet_file, 11),
    "npz": (npz_file, 12),
    "npy": (npy_file, 7),
    "idx": (idx_folder, 7),
    "cifar": (cifar_folder, 5),
    "images": (image_folder, 11),
    "audit": (audit_file, 11),
    "predict": (prediction_file, 9),
    "command": (command, 7),
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
                if len(text) > LONGEST + 200 or "\n" in text or INTERNAL.search(text):
                    return kind, "bad", f"message of {len(text)} characters: {text[:300]}"
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
            pipe.write(json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    if content:
        return [tuple(each) for each in json.loads(content)]
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
        copy_world(folder)
        arguments, before = command_line(rng, bool(rng.random() < 0.6)), files_of(folder)
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
        check_command(arguments, done.returncode, done.stdout, done.stderr, folder, before)
    except (Misuse, Failure) as error:
        internal = INTERNAL.search(str(error))
        verdict = "bad" if internal else "refused" if isinstance(error, Misuse) else "failed"
        return "process", verdict, f"{error} of {shlex.join(arguments)[:300]}" if internal else str(error)
    except subprocess.TimeoutExpired:
        return "process", "bad", f"longer than {PROCESS_SECONDS} s: {shlex.join(arguments)[:300]}"
    except AssertionError as error:
        return "process", "bad", f"{error} of {shlex.join(arguments)[:300]}"
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


def run_again(record: dict[str, Any]) -> None:
    """Run the cases that were bad again, and count them as they end now."""
    world()
    trained_on_a_table()
    bad, record["bad"] = record["bad"], []
    for each in bad:
        record["kinds"][each["kind"]]["bad"] -= 1
        case, again = each["case"], each["kind"] == "process"
        add(record, case, run_process(case) if again else forked([case])[0])


def fuzz(
    cases: int, processes: int = 0, record: dict[str, Any] | None = None, path: Path | None = None
) -> dict[str, Any]:
    """The record of so many further cases, written to `path` now and then."""
    record = record or {"cases": 0, "processes": 0, "kinds": {}, "bad": []}
    began = time.perf_counter()
    trained_on_a_table()
    world()
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
    parser.add_argument("--again", action="store_true", help="the cases of the record that were bad")
    chosen = parser.parse_args()
    if chosen.show is not None:
        print(run_case(chosen.show, loud=True))
    else:
        known = json.loads(chosen.record.read_text()) if chosen.record.exists() else None
        if chosen.again and known is not None:
            run_again(known)
        found = fuzz(chosen.cases, chosen.processes, known, chosen.record)
        sys.exit(bool(found["bad"]))
