"""A fault drill: commands are killed, interrupted, lose power, or find a full or failing disk or a damaged file.

    python tools/fault_drill.py DIRECTORY --cases 200 [--program 50] [--launched 20] [--record FILE] [--only NAMES]

Each case is a command on tiny data, one to three faults, and then the commands that a user would write to go on. It
must end as the undisturbed command did, bit for bit, with nothing left over, or in one line that names what is damaged.
Processes are forked from one that has imported everything, so that a fault costs a fraction of a second. `faults.c`,
which gcc compiles and which is loaded before everything else, counts the file operations of a case, those of Rust and
C++ code too, and brings the fault at one of them. With `--program`, so many cases run the program itself. Counts are
added to the record, from which the next call goes on.

A subject is a row of `SUBJECTS`, or of `LAUNCHED`: two processes that torchrun starts. There the launcher or one of its
processes is killed, or the launcher gets a signal; one or two processes go on; and no process may stay behind.
"""

import argparse
import contextlib
import ctypes
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from PIL import Image

import murmuration as mm
from murmuration.cli import main as murmur
from murmuration.models.nets import build_net

SMALL = ("--epochs", "3", "--batch-size", "256", "--checkpoint-seconds", "0")
MOONS = ("two-moons", "--net", "mlp:hidden=8", "--engine", "loop", *SMALL)
VOLATILE = re.compile(
    r"seconds|cost|command|run|versions|started|report|engine|speed|time|fingerprint|of|sha256|verdict|ranks"
)
LIMIT = 240  # seconds that any command may take
KINDS = {  # faults at a file operation, by their numbers in `faults.c`
    "kill before": 1,
    "kill after": 2,
    "torn write": 3,
    "power loss": 4,
    "full disk": 5,
    "I/O error": 6,
    "SIGTERM": 7,
    "SIGINT": 8,
}
DISTURBANCES = ("kill at a moment", *KINDS)
TO_LAUNCHED = ("kill of a worker", "kill of the launcher", "SIGTERM", "SIGINT")
DAMAGES = ("truncated file", "flipped bit", "deleted file")
KILLS = ("kill before", "kill after", "torn write", "power loss", "kill at a moment", *TO_LAUNCHED[:2])
SIGNAL: dict[str, int] = dict.fromkeys(("kill at a moment", *TO_LAUNCHED), signal.SIGKILL)
SIGNAL |= {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
CODES = {"SIGTERM": 143, "SIGINT": 130}
DEFECTS = ("lost", "differs", "left over", "not repeated", "source changed", "wrong end")
SOURCE, PRELOAD = Path(__file__).with_name("faults.c"), "LD_PRELOAD"
TOKEN, GRACE = "FAULT_DRILL", 60  # in the environment of all processes of a case; seconds in which they must end
OWN_FRAMES = r'File "[^"]*murmuration/'  # lines of a traceback


@dataclass(frozen=True)
class Subject:
    """A command that writes the directory PATH, and what continues it."""

    name: str
    command: tuple[str, ...]  # PATH: the directory; SHARED: that of runs and data for all cases
    again: tuple[str, ...] = ("resume", "PATH")  # after a fault, once PATH holds something
    needs: str | None = None  # a run in SHARED that PATH begins as a copy of
    launcher: tuple[str, ...] = ()  # words between `python` and `-m murmuration`
    bound: float = 0.0  # by which tensors may differ from those of one process; 0: bits are compared, and records


def trained(recipe: str, *more: str, members: int = 2, out: str = "PATH") -> tuple[str, ...]:
    return ("train", *MOONS, "--recipe", recipe, "--members", str(members), "--out", out, *more)


def repeated(name: str, *command: str, needs: str | None = None) -> Subject:
    """A command that is written again as it was."""
    return Subject(name, command, command, needs)


COMPARED = ("compare", *MOONS, "--recipes", "single,deep-ensemble", "--members", "2", "--baselines", "none")
OFTEN = ("--checkpoint-seconds", "0", "--out", "PATH")
UPSCALED = ("superres", "train", "SHARED/photos", "--patches", "64", "--size", "8")
STREAM = ("continual", "SHARED/first.csv", "SHARED/second.csv", "--target", "kind")
TABLE = ("train", "SHARED/first.csv", "--target", "kind", "--seed", "0")
PREDICTED = ("predict", "SHARED/table", "SHARED/second.csv", "--out")
PUBLISHED = ("reproduce", "embedded", "--data", "two-moons", "--epochs", "1", "--widths", "0.5", "--models", "1,2")
EMBEDDED = ("embed", "SHARED/classes", "--net", "small-cnn", "--weights", "SHARED/weights.safetensors", "--size", "16")
SHARED_RUNS = {  # by folder: runs that subjects read, or begin as copies of
    "body": trained("single", members=1),
    "other": trained("single", "--seed", "1", members=1),
    "three": trained("deep-ensemble", members=3),
    "table": (*TABLE, "--net", "mlp:hidden=8", "--members", "2", "--epochs", "2", "--out", "PATH"),
}
SUBJECTS = (
    Subject("deep-ensemble", trained("deep-ensemble", "--trajectory", "every-epoch")),
    Subject("forde", trained("forde")),
    Subject("function-rde", trained("function-rde")),
    Subject("batch-ensemble", trained("batch-ensemble")),
    Subject("mc-dropout", trained("mc-dropout", "--net", "mlp:hidden=8,dropout=0.1")),
    Subject("bayes", trained("bayes")),
    Subject("ivon", trained("ivon")),
    Subject("multi-swag", trained("multi-swag")),
    Subject("csgmcmc", trained("csgmcmc", "--dynamics", "csgmcmc:cycles=2,sampling=0.5")),
    Subject("last-layer-ensemble", trained("last-layer-ensemble", "--sharing", "backbone:frozen=SHARED/body")),
    Subject("from given weights", trained("deep-ensemble", "--init-from", "SHARED/body")),
    Subject("forest", (*TABLE, "--net", "random-forest", "--out", "PATH")),
    repeated("resume", "resume", "PATH", needs="halted"),
    repeated("compare", *COMPARED, "--out", "PATH"),
    repeated("calibrate", "calibrate", "PATH", "--coverage", "0.8", needs="body"),
    repeated("evaluate", "evaluate", "PATH", needs="body"),
    repeated("predict csv", *PREDICTED, "PATH/p.csv"),
    repeated("predict npz", *PREDICTED, "PATH/p.npz", "--per-member"),
    repeated("predict parquet", *PREDICTED, "PATH/p.parquet"),
    repeated("merge", "merge", "SHARED/body", "SHARED/other", "--out", "PATH"),
    repeated("drop-members", "drop-members", "SHARED/three", "1", "--out", "PATH"),
    Subject("add-members", ("add-members", "SHARED/body", "1", "--out", "PATH")),
    repeated("save", "python", "save", "SHARED/three", "PATH"),
    repeated("export", "python", "export", "SHARED/body", "PATH/model.pt2"),
    repeated("explore kernels", "explore", "SHARED/three", "kernels", "--examples", "8", "--out", "PATH/kernels.html"),
    repeated("explore plane", "explore", "PATH", "plane", "--grid", "3", "--examples", "20", needs="three"),
    repeated("audit", "audit", "SHARED/predicted.csv", "--label-column", "kind", "--out", "PATH/audit.html"),
    repeated("monitor", "monitor", "SHARED/table", "SHARED/second.csv", "--out", "PATH/monitor.html"),
    repeated("embed", *EMBEDDED, "--out", "PATH/features.npz"),
    repeated("reproduce", *PUBLISHED, "--arms", "independent", "--seeds", "0", "--out", "PATH"),
    Subject("prune", ("prune", "SHARED/body", "--sparsity", "0.5", "--out", "PATH")),
    Subject("prune and fine-tune", ("prune", "SHARED/body", "--sparsity", "0.5", "--finetune", "2", *OFTEN)),
    Subject("superres", (*UPSCALED, "--recipe", "single", "--epochs", "2", *OFTEN)),
    Subject("continual", (*STREAM, "--method", "adam,lda", "--net", "mlp:hidden=8", "--epochs", "2", "--out", "PATH")),
)
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
LAUNCHED = (
    Subject("deep-ensemble, two processes", trained("deep-ensemble"), launcher=TWO),
    Subject("forde, two processes", trained("forde"), launcher=TWO, bound=2e-5),
)


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int  # minus the signal that killed it
    err: str

    @property
    def lines(self) -> list[str]:
        """Lines on the standard error that are no notes."""
        return [line for line in self.err.splitlines() if line and not line.startswith("note: ")]


@dataclass(frozen=True)
class Place:
    """Where a case runs."""

    path: Path  # the directory that the command writes
    shared: Path

    def words(self, command: Sequence[str]) -> list[str]:
        return [word.replace("PATH", str(self.path)).replace("SHARED", str(self.shared)) for word in command]


@dataclass
class Process:
    """A command under way: forked from this process, or the program itself."""

    number: int
    err: Path
    program: subprocess.Popen | None = None

    def ended(self, wait: bool = True) -> Ended | None:
        """How it ended; None if it is still running and is not waited for."""
        end = time.monotonic() + LIMIT
        while True:
            if self.program is not None:
                code = self.program.poll()
                done, found = code is not None, code or 0
            else:
                pid, status = os.waitpid(self.number, os.WNOHANG)
                done, found = pid != 0, os.waitstatus_to_exitcode(status) if pid else 0
            if done:
                return Ended(found, self.err.read_text(errors="replace"))
            if not wait:
                return None
            if time.monotonic() > end:
                self.send(signal.SIGKILL)
                raise SystemExit(f"a command took more than {LIMIT} s: {self.err.read_text()}")
            time.sleep(0.002)

    def send(self, number: int, to: int | None = None) -> None:
        """Send a signal to one process, or to all of the program."""
        if self.program is None or to is not None:
            os.kill(to or self.number, number)
        else:
            os.killpg(self.number, number)


def begin(subject: Subject, words: list[str], folder: Path, program: bool, fault: Callable[[], None]) -> Process:
    """Start a command; `fault` prepares the forked process for what shall happen to it."""
    err = folder / "err.txt"
    err.write_bytes(b"")  # a process may be killed before it opens the file
    if (program and words[0] != "python") or subject.launcher:
        call = [sys.executable, *subject.launcher, "-m", "murmuration", *words]
        ours = {**os.environ, TOKEN: str(folder), "OMP_NUM_THREADS": "1"}
        del ours[PRELOAD]
        with err.open("wb") as told:
            made = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=told, start_new_session=True, env=ours)
        return Process(made.pid, err, made)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return Process(child, err)
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["murmur", *words]
        for number, file in ((1, os.devnull), (2, str(err))):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
        fault()
        code = run(words)
        sys.stderr.flush()
    except KeyboardInterrupt:  # before the program could handle it
        code = 130
    finally:
        os._exit(code)


def no_fault() -> None:
    """The undisturbed command."""


def run(words: Sequence[str]) -> int:
    """A command line, or a call of Python: `python save RUN PATH`, `python export RUN FILE`."""
    if words[0] != "python":
        return murmur(list(words))
    _, call, source, target = words
    try:
        getattr(mm.load(source), call)(target)
    except (mm.Misuse, mm.Failure) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, mm.Misuse) else 1
    except KeyboardInterrupt as error:
        print("interrupted: in Python", file=sys.stderr)
        return 128 + int(getattr(error, "number", signal.SIGINT))
    return 0


def processes(folder: Path, *words: str) -> list[int]:
    """The running processes of the case in `folder` that have these words in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            given = (place / "environ").read_bytes().decode(errors="replace").split("\0")
            named = [each.partition("=")[0] for each in given]
            if f"{TOKEN}={folder}" in given and all(word in named for word in words) and int(place.name) != os.getpid():
                found.append(int(place.name))
    return found


def left_behind(folder: Path) -> str:
    """What is wrong if processes of a case have not ended some time after their launcher; they are then killed."""
    end = time.monotonic() + GRACE
    while left := processes(folder):
        if time.monotonic() > end:
            for number in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            return f"{len(left)} processes stay behind: {(folder / 'err.txt').read_text()[-400:]}"
        time.sleep(0.05)
    return ""


def built_library(folder: Path) -> Path:
    """Compile the library of faults."""
    library = folder / "faults.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
    return library


def arm(folder: Path, kind: int = 0, number: int = 0) -> None:
    """Count the file operations of this process below `folder`/sweep, with a fault at one of them."""
    (folder / "old").mkdir(exist_ok=True)
    places = (os.fsencode(folder / name) for name in ("operations.txt", "old"))
    ctypes.CDLL(os.environ[PRELOAD]).faults_arm(os.fsencode(folder / "sweep"), kind, ctypes.c_long(number), *places)


def operations(folder: Path) -> list[str]:
    """The words of the file operations so far; `fault` stands after the one that had it."""
    file = folder / "operations.txt"
    return [line.split(" ", 1)[0] for line in file.read_text(errors="replace").splitlines()] if file.exists() else []


HISTORY = "history.jsonl"
FILE_COMMANDS = ("predict", "audit", "monitor", "embed", "explore", "python")  # that write files for the user


def outcome(path: Path) -> dict[str, Any]:
    """All files and folders: the bits of tensors and post-hoc steps, and records without times and commands."""
    found: dict[str, Any] = {}
    for file in sorted(path.rglob("*")):
        name = str(file.relative_to(path))
        if file.is_dir():
            found[f"{name}/"] = ""
        elif file.suffix in (".json", ".jsonl"):
            texts = [file.read_bytes()] if file.suffix == ".json" else file.read_bytes().splitlines()
            found[name] = "damaged"
            with contextlib.suppress(ValueError):
                found[name] = [plain(json.loads(text)) for text in texts]
        elif zipfile.is_zipfile(file):  # archives hold times
            with zipfile.ZipFile(file) as archive:
                entries = [each for each in archive.infolist() if each.filename != "schema.json"]  # of skops: addresses
                found[name] = sorted(each.CRC for each in entries)
        else:
            found[name] = "" if file.suffix == ".html" else file.read_bytes()  # pages hold times
    return found


def digest_of(folder: Path) -> str:
    """One number for all names and bytes of a folder."""
    total = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        total.update(str(file).encode() + (file.read_bytes() if file.is_file() else b""))
    return total.hexdigest()


def plain(record: Any) -> Any:
    """A record without the entries that differ between two runs, and without digests of files that have them."""
    if isinstance(record, dict):
        return {
            key: plain(value)
            for key, value in record.items()
            if not VOLATILE.fullmatch(key.rpartition("_")[2])
            and key not in ("metrics.json", "report.html", "history.jsonl")
        }
    return [plain(value) for value in record] if isinstance(record, list) else record


def differing(found: dict[str, Any], expected: dict[str, Any], bound: float) -> list[str]:
    """The files that are not as they should be; with a bound, those whose tensors differ by more."""
    if not bound:
        return [name for name in expected if found.get(name) != expected[name]]
    names = [name for name in expected if name not in found]
    for name in (name for name in expected if name.endswith(".safetensors") and name in found):
        mine, theirs = safetensors.torch.load(found[name]), safetensors.torch.load(expected[name])
        if mine.keys() != theirs.keys() or any((mine[key] - theirs[key]).abs().max() > bound for key in mine):
            names.append(name)
    return names


@dataclass
class Drill:
    """The references, and the counts so far."""

    folder: Path
    subjects: Sequence[Subject]
    record: dict[str, Any] = field(default_factory=dict)
    references: dict[str, dict[str, Any]] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)  # seconds
    words: dict[str, list[str]] = field(default_factory=dict)  # of the file operations
    digest: str = ""  # of what all cases share

    @property
    def shared(self) -> Path:
        return self.folder / "shared"

    def prepare(self) -> None:
        """Data and runs for all cases, and every command undisturbed."""
        self.shared.mkdir(parents=True, exist_ok=True)
        make_data(self.shared)
        for name, command in SHARED_RUNS.items():
            shutil.rmtree(self.shared / name, ignore_errors=True)
            self.undisturbed(Place(self.shared / name, self.shared), command, name)
        self.halt()
        predicted = Place(self.shared / "predicted.csv", self.shared)
        predicted.path.unlink(missing_ok=True)
        self.undisturbed(predicted, (*PREDICTED, "PATH"), "predicted")
        add_column(predicted.path, self.shared / "second.csv", "kind")
        for subject in self.subjects:
            folder = self.folder / "undisturbed" / subject.name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            place = self.place(subject, folder)
            start = time.monotonic()
            arm(folder)
            self.undisturbed(place, subject.command, subject.name)
            ctypes.CDLL(os.environ[PRELOAD]).faults_disarm()
            self.sizes[subject.name] = time.monotonic() - start
            self.words[subject.name] = operations(folder)
            self.references[subject.name] = outcome(place.path)
            if subject.launcher:
                self.launch(subject, folder)
        self.digest = digest_of(self.shared)

    def undisturbed(self, place: Place, command: Sequence[str], name: str) -> None:
        """A command in this process, so that forks have its imports."""
        with contextlib.redirect_stdout(io.StringIO()):
            code = run(place.words(command))
        if code:
            raise SystemExit(f"{name}: the undisturbed command failed")

    def halt(self) -> None:
        """A run that was killed after its second checkpoint."""
        folder = self.folder / "halted"
        for stale in (folder, self.shared / "halted"):
            shutil.rmtree(stale, ignore_errors=True)
        (folder / "sweep").mkdir(parents=True)
        subject, place = Subject("halted", trained("deep-ensemble")), Place(folder / "sweep" / "run", self.shared)
        words = place.words(subject.command)
        begin(subject, words, folder, False, lambda: arm(folder)).ended()
        ends = [at for at, word in enumerate(operations(folder), 1) if word == "rename"]
        shutil.rmtree(place.path)
        begin(subject, words, folder, False, lambda: arm(folder, 1, ends[len(ends) // 2])).ended()
        if not (place.path / "checkpoints" / "latest.json").exists():
            raise SystemExit("halted: the killed run has no checkpoint")
        shutil.copytree(place.path, self.shared / "halted")

    def launch(self, subject: Subject, folder: Path) -> None:
        """Two processes undisturbed: the time that they take; refuses an outcome other than that of one process."""
        start, place = time.monotonic(), Place(folder / "launched" / "run", self.shared)
        ended = self.clean(subject, place, subject.command, folder, program=True)
        wrong = differing(outcome(place.path), self.references[subject.name], subject.bound)
        if ended.code or wrong:
            raise SystemExit(f"{subject.name}, undisturbed: {wrong or ended.err}")
        self.sizes[subject.name] = time.monotonic() - start

    def place(self, subject: Subject, folder: Path) -> Place:
        """A new directory below one that is new too."""
        path = folder / "sweep" / "run"
        path.parent.mkdir(parents=True)
        if subject.needs is not None:
            shutil.copytree(self.shared / subject.needs, path)
        elif any(word.startswith("PATH/") for word in subject.command):
            path.mkdir()
        return Place(path, self.shared)

    def clean(self, subject: Subject, place: Place, command: Sequence[str], folder: Path, program: bool) -> Ended:
        """One command without a fault."""
        ended = begin(subject, place.words(command), folder, program, no_fault).ended()
        assert ended is not None
        return ended

    def disturb(
        self, subject: Subject, place: Place, folder: Path, fault: str, rng: random.Random, program: bool
    ) -> tuple[bool, str]:
        """The command, or what continues it, under a fault: whether it came in time, and what is wrong with its end."""
        begun, at_moment = any_files(place.path), program or subject.launcher or fault not in KINDS
        words, prepare = place.words(subject.again if begun else subject.command), no_fault
        if not at_moment:
            torn = fault == "torn write"
            number = rng.choice(
                [n for n, word in enumerate(self.words[subject.name], 1) if not torn or word == "write"]
            )
            (folder / "operations.txt").unlink(missing_ok=True)
            prepare = lambda: arm(folder, KINDS[fault], number)  # noqa: E731
        process, ended = begin(subject, words, folder, program, prepare), None
        if at_moment:
            whole = self.sizes[subject.name] + (4 if program and not subject.launcher else 0)
            end, targets = time.monotonic() + rng.uniform(0, whole), [process.number]
            while ended is None and (time.monotonic() < end or not targets):
                ended = process.ended(wait=False)
                time.sleep(0.001)
                if fault == "kill of a worker" and time.monotonic() >= end:
                    targets = processes(folder, "RANK")
            if ended is None:
                leave_neighbour(place.path)
                with contextlib.suppress(ProcessLookupError):
                    process.send(SIGNAL[fault], rng.choice(targets) if subject.launcher else None)
        came = ended is None if at_moment else None
        ended = ended or process.ended()
        assert ended is not None
        came = "fault" in operations(folder) if came is None else came
        leave_neighbour(place.path)
        if not subject.launcher:
            return came, wrong_end(fault, ended)
        told = Ended(ended.code, process.err.read_text(errors="replace"))
        return came, left_behind(folder) or wrong_launch(fault, told)

    def case(self, number: int, program: bool, launched: bool = False) -> None:
        """One case: its faults, then the way on; counted in the record."""
        rng = random.Random(f"fault drill {number}{', launched' if launched else ''}")
        subjects = [each for each in self.subjects if bool(each.launcher) == launched]
        subject = subjects[number % len(subjects)]
        damage = None if rng.random() < 0.85 else rng.choice(DAMAGES)
        kinds = [each for each in DISTURBANCES if not program or each in SIGNAL]
        faults = rng.choices(TO_LAUNCHED if launched else kinds, k=rng.choice((1, 1, 2, 3)))
        folder = self.folder / "case"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        place = self.place(subject, folder)
        done, told = [], []
        for fault in faults:
            came, wrong = self.disturb(subject, place, folder, fault, rng, program)
            done += [fault] * came
            told += [("wrong end", wrong)] if wrong else []
        file = damaged(place.path, damage, rng) if damage is not None else None
        one = replace(subject, launcher=())  # one process goes on, or two; a damaged file is for one
        told += self.go_on(one if file is not None or rng.random() < 0.5 else subject, place, folder, program, file)
        if sorted(each.name for each in place.path.parent.iterdir()) != sorted({"neighbour", place.path.name}):
            told.append(("left over", f"beside the run: {[each.name for each in place.path.parent.iterdir()]}"))
        if digest_of(self.shared) != self.digest:
            told.append(("source changed", "the runs and data that were read are not what they were"))
            self.prepare()
        done += [damage] if file is not None and damage is not None else []
        self.count(subject, done, told, number, program)

    def go_on(
        self, subject: Subject, place: Place, folder: Path, program: bool, file: Path | None
    ) -> list[tuple[str, str]]:
        """What is wrong after the commands that a user would write; nothing if all is as undisturbed, or refused."""
        leave_neighbour(place.path)
        for _ in range(3):
            command = subject.again if any_files(place.path) else subject.command
            ended = self.clean(subject, place, command, folder, program)
            if ended.code == 0 or is_done(ended):
                break
            if file is not None and ended.code == 1 and len(ended.lines) == 1 and "Error" not in ended.err:
                named = file.name in ended.err
                return [] if named else [("wrong end", f"the refusal does not name {file.name}: {ended.err}")]
            if (
                command == subject.again
                and (ended.code == 2 or subject.launcher)
                and re.search(r"no run at .* holds no run\.json", ended.err)
            ):
                ended = self.clean(subject, place, subject.command, folder, program)  # nothing had begun
                if ended.code == 0:
                    break
        if ended.code and not is_done(ended):
            return [("not repeated", f"it does not go on (exit {ended.code}): {ended.err.strip()[-400:]}")]
        found, expected = outcome(place.path), self.references[subject.name]
        told = [("left over", f"{name} is left behind") for name in found if name not in expected]
        for name in differing(found, expected, subject.bound):
            damaged_here = file is not None and name == str(file.relative_to(place.path))
            if damaged_here and (file.name == HISTORY or is_done(ended) or subject.command[0] in FILE_COMMANDS):
                continue  # nothing depends on the history; what a command has written for the user is not read again
            told.append(("lost" if name not in found else "differs", name))
        return told + [("not repeated", text) for text in [left_behind(folder)] if text]

    def count(
        self, subject: Subject, faults: list[str], defects: list[tuple[str, str]], number: int, program: bool
    ) -> None:
        """Add a case to the record."""
        row = self.record.setdefault("subjects", {}).setdefault(subject.name, {})
        for fault in faults:
            row[fault] = row.get(fault, 0) + 1
        row["cases"] = row.get("cases", 0) + 1
        row["as program"] = row.get("as program", 0) + (program and not subject.launcher)
        row["launched"] = row.get("launched", 0) + bool(subject.launcher)
        row["defects"] = row.get("defects", 0) + bool(defects)
        kinds = self.record.setdefault("defects", dict.fromkeys(DEFECTS, 0))
        for kind in {kind for kind, _ in defects}:
            kinds[kind] += 1
        self.record["next launched" if subject.launcher else "next"] = number + 1
        how = ", program" if program else ""
        for kind, text in defects:
            print(f"case {number}, {subject.name}, {', '.join(faults)}{how}: {kind}: {text}", flush=True)


def wrong_end(fault: str, ended: Ended) -> str:
    """What is wrong with the way a command ended under a fault; nothing if it is as it should be."""
    if ended.code == 0:
        return ""
    if fault in KILLS and ended.code == -signal.SIGKILL:
        return ""
    if fault in CODES and ended.code in (-SIGNAL[fault], CODES[fault]):
        told = len(ended.lines) == 1 and ended.lines[0].startswith("interrupted: ")
        return "" if not ended.err or told or before_program(ended) else f"{fault} said: {ended.err[-400:]}"
    if fault == "SIGINT" and ended.code == 1 and before_program(ended):
        return ""
    if fault == "full disk" and ended.code == 1 and len(ended.lines) == 1 and "the disk is full" in ended.err:
        return ""
    if fault == "I/O error" and ended.code == 1 and len(ended.lines) == 1 and ended.lines[0].startswith("error: "):
        return ""
    if is_done(ended) or (ended.code == 2 and "no run at" in ended.err):  # nothing had begun
        return ""
    return f"{fault} ended with {ended.code}: {ended.err.strip()[-400:]}"


def is_done(ended: Ended) -> bool:
    """Whether a command was refused because what it writes is there, and so was written before the fault."""
    return ended.code == 2 and bool(re.search("exists already|already holds a run", ended.err))


def before_program(ended: Ended) -> bool:
    """Whether Python itself was interrupted in its start, before it had come to this package."""
    return ended.err.strip().endswith("KeyboardInterrupt") and not re.search(OWN_FRAMES, ended.err)


def wrong_launch(fault: str, ended: Ended) -> str:
    """What is wrong with the way that processes of torchrun, which prints lines of its own, ended under a fault."""
    own = [line for line in ended.err.splitlines() if line.startswith(("error: ", "interrupted: "))]
    lost = [line for line in own if line.startswith("error: ") and "another process has stopped" not in line]
    frames = re.search(OWN_FRAMES, ended.err)
    if len(own) > 1 or lost or frames or (fault == "kill of the launcher" and ended.code not in (0, -signal.SIGKILL)):
        return f"{fault} ended with {ended.code}: {ended.err.strip()[-800:]}"
    return ""


def any_files(path: Path) -> bool:
    """Whether a directory holds anything but locks."""
    return path.is_dir() and any(not each.name.startswith(".") for each in path.iterdir())


def leave_neighbour(path: Path) -> None:
    """A directory of somebody else beside that of the command."""
    (path.parent / "neighbour").mkdir(parents=True, exist_ok=True)


def damaged(path: Path, damage: str, rng: random.Random) -> Path | None:
    """Damage a file of the directory; returns it, or None if there is none that anybody reads."""
    files = [each for each in sorted(path.rglob("*")) if each.is_file() and not each.name.startswith(".")]
    files = [each for each in files if each.stat().st_size and each.suffix != ".html"]
    if not files:
        return None
    file = rng.choice(files)
    content = bytearray(file.read_bytes())
    if damage == "deleted file":
        file.unlink()
    elif damage == "truncated file":
        file.write_bytes(bytes(content[: rng.randrange(len(content))]))
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(bytes(content))
    return file


def make_data(shared: Path) -> None:
    """Photographs of noise, and two small tables."""
    rng = np.random.default_rng(0)
    (shared / "photos").mkdir(exist_ok=True)
    for index in range(5):
        pixels = rng.integers(0, 256, size=(48, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(shared / "photos" / f"{index}.png")
        (shared / "classes" / "ab"[index % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(shared / "classes" / "ab"[index % 2] / f"{index}.png")
    for name, offset in (("first", 0.0), ("second", 2.0)):
        rows = [f"{a + offset:.4f},{b:.4f},{'yes' if a + b > 0 else 'no'}" for a, b in rng.standard_normal((120, 2))]
        (shared / f"{name}.csv").write_text("\n".join(["a,b,kind", *rows]) + "\n")
    torch.manual_seed(0)
    safetensors.torch.save_file(build_net("small-cnn", (3, 16, 16), 1).state_dict(), shared / "weights.safetensors")


def add_column(table: Path, source: Path, name: str) -> None:
    """Add a column of another table, row by row."""
    at = source.read_text().splitlines()[0].split(",").index(name)
    values = [line.split(",")[at] for line in source.read_text().splitlines()]
    lines = [f"{line},{value}" for line, value in zip(table.read_text().splitlines(), values, strict=True)]
    table.write_text("\n".join(lines) + "\n")


def drill(
    folder: Path, cases: int, programs: int = 0, launched: int = 0, record: Path | None = None, only: Sequence[str] = ()
) -> dict[str, Any]:
    """Run so many cases, some of them as programs, and launched ones; returns the record, written after each."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets programs in the background ignore it
    every = [*SUBJECTS, *(LAUNCHED if launched else ())]
    subjects = [each for each in every if not only or each.name in only]
    found = json.loads(record.read_text()) if record is not None and record.exists() else {}
    made = Drill(folder, subjects, found)
    made.prepare()
    turns = sorted(
        [(turn / cases, turn, False) for turn in range(cases)] + [(n / launched, n, True) for n in range(launched)]
    )
    for _, turn, together in turns:
        if together:
            made.case(made.record.get("next launched", 0), program=False, launched=True)
        else:
            made.case(made.record.get("next", 0), turn < programs)
        if record is not None:
            record.write_text(json.dumps(made.record, indent=2) + "\n")
    return made.record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--program", type=int, default=0, help="so many of the cases as programs")
    parser.add_argument("--launched", type=int, default=0, help="so many cases more of two processes under torchrun")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--only", default="", help="names of subjects, separated by semicolons")
    given = parser.parse_args()
    if PRELOAD not in os.environ:
        if shutil.which("gcc") is None:
            raise SystemExit("the drill needs gcc: it compiles tools/faults.c")
        given.directory.mkdir(parents=True, exist_ok=True)
        ours = {**os.environ, PRELOAD: str(built_library(given.directory.resolve())), "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], ours)
    only = [name for name in given.only.split(";") if name]
    record = drill(given.directory.resolve(), given.cases, given.program, given.launched, given.record, only)
    rows, kinds = record["subjects"].values(), {*DISTURBANCES, *TO_LAUNCHED, *DAMAGES}
    faults = sum(row.get(fault, 0) for row in rows for fault in kinds)
    defects = sum(row["defects"] for row in rows)
    print(f"{sum(row['cases'] for row in rows)} cases, {faults} faults, {defects} cases with a defect")


if __name__ == "__main__":
    main()
