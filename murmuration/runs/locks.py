"""Locks of directories: one process at a time writes into a run.

A lock is a small file `.lock.HOST.PID` in the directory. A process writes its own and then looks for those of others:
of two that begin at the same moment at least one sees the other, so never do both go on. The name alone says who holds
a lock; one of a process of this host that is not running any more is removed by the next process.
"""

import contextlib
import ctypes
import json
import os
import platform
import random
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmuration.system.errors import Misuse
from murmuration.system.files import cannot_write

PREFIX = ".lock."
ATTEMPTS, PAUSE = 4, 0.05  # of processes that begin at the same moment; the longest pause between, in seconds
QUERY, DENIED, STILL_ACTIVE = 0x1000, 5, 259  # on Windows: an access right, an error, the exit code while running

Tidy = Callable[[Path, bool], None]
_held: dict[tuple[int, str], int] = {}  # (process, directory) -> the thread that holds it


@dataclass(frozen=True)
class Holder:
    """A process that wrote a lock."""

    file: Path
    host: str
    process: int
    about: dict[str, Any]  # command, since, started, empty; nothing if the process was killed while it wrote them

    @property
    def is_dead(self) -> bool:
        """Whether it was a process of this host that is not running any more."""
        if self.host != this_host():
            return False
        if self.process == os.getpid() or not is_running(self.process):
            return True
        then, now = self.about.get("started"), process_start(self.process)
        return bool(then and now and then != now)  # the number belongs to another process now

    def __str__(self) -> str:
        command, since = self.about.get("command", "unknown command"), self.about.get("since", "an unknown time")
        return f"process {self.process} on {self.host} since {since} ({command})"


@contextmanager
def locked(path: Path, tidy: Tidy = lambda path, empty: None) -> Iterator[None]:
    """Hold a directory, which is made if it is missing; refused in one line while somebody else holds it.

    The thread that holds it may lock it again. `tidy(path, empty)` is called when the directory is held first; `empty`
    says whether it was empty when a killed process began to write into it, so that all files are of killed processes.
    Directories that were made for the lock are removed again if they are empty in the end.
    """
    key, thread = (os.getpid(), os.path.realpath(path)), threading.get_ident()
    if _held.get(key) == thread:
        yield
        return
    if _held.setdefault(key, thread) != thread:
        raise Misuse(f"{path} is being written by another thread of this process: wait until it has ended")
    made: list[Path] = []
    try:
        try:
            _take(path, tidy, made)
        except OSError as error:
            raise cannot_write(path, error) from error
        yield
    finally:
        del _held[key]
        with contextlib.suppress(OSError):
            own_file(path).unlink()
        remove_empty(made)


def _take(path: Path, tidy: Tidy, made: list[Path]) -> None:
    """Write this process's lock, unless another process that is running has one; remove those of dead ones."""
    alive: list[Holder] = []
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0.1, 1) * PAUSE)
        made[:0] = make_directories(path)
        killed = holders(path)  # or running: then nothing is done here
        empty = all(each.about.get("empty", False) for each in killed) if killed else is_empty(path)
        try:
            own_file(path).write_text(json.dumps(describe_holder(empty)))
        except FileNotFoundError:  # another process had made the directory, and gave it up
            continue
        others = [each for each in holders(path) if each.file != own_file(path)]
        alive = [each for each in others if not each.is_dead]
        if not alive:
            tidy(path, empty and bool(killed))
            for each in others:
                each.file.unlink(missing_ok=True)
            return
        own_file(path).unlink(missing_ok=True)
    if not alive:
        raise Misuse(f"{path} is being made and removed by another process: wait until it has ended")
    hint = "" if alive[0].host == this_host() else f"; if it has, remove {alive[0].file}"
    raise Misuse(f"{path} is being written by {alive[0]}: wait until it has ended{hint}")


def holders(path: Path) -> list[Holder]:
    """The processes that have a lock in a directory, dead ones too."""
    found = []
    for file in sorted(path.glob(f"{PREFIX}*")):
        host, _, process = file.name.removeprefix(PREFIX).rpartition(".")
        if process.isdigit():
            found.append(Holder(file, host, int(process), _read(file)))
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_held(path: Path) -> bool:
    """Whether a process that is running, this one too, holds the directory."""
    return any(each.process == os.getpid() or not each.is_dead for each in holders(path))


def is_empty(path: Path) -> bool:
    """Whether a directory holds nothing but locks."""
    return all(file.name.startswith(PREFIX) for file in path.iterdir())


def own_file(path: Path) -> Path:
    return path / f"{PREFIX}{this_host()}.{os.getpid()}"


def describe_holder(empty: bool) -> dict[str, Any]:
    """The content of this process's lock."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    since, started = time.strftime("%Y-%m-%dT%H:%M:%S%z"), process_start(os.getpid())
    return {"command": command, "since": since, "started": started, "empty": empty}


def this_host() -> str:
    """The name of this machine, as part of a file name."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", platform.node()) or "localhost"


def is_running(process: int) -> bool:
    """Whether there is a process of this number on this machine; one that only waits to be reaped is not running."""
    if os.name == "nt":
        return _is_running_on_windows(process)
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        return True
    return _process_stat(process)[:1] not in (["Z"], ["X"])


def _is_running_on_windows(process: int) -> bool:
    kernel: Any = getattr(ctypes, "windll").kernel32  # noqa: B009 - missing elsewhere
    handle = kernel.OpenProcess(QUERY, False, process)
    if not handle:
        return bool(kernel.GetLastError() == DENIED)
    code = ctypes.c_ulong()
    kernel.GetExitCodeProcess(handle, ctypes.byref(code))
    kernel.CloseHandle(handle)
    return code.value == STILL_ACTIVE


def process_start(process: int) -> str | None:
    """When a process began, by which two of one number are told apart; None where the system does not say (not Linux).

    The time is counted from the start of the machine, so it goes with that: a process number returns after a restart.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    found = _process_stat(process)
    return f"{boot} {found[19]}" if len(found) > 19 else None


def _process_stat(process: int) -> list[str]:
    """The fields of a process in Linux from its state on; nothing elsewhere."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def make_directories(path: Path) -> list[Path]:
    """Make a directory and those above it; returns those that were missing, the innermost first."""
    made: list[Path] = []
    while not path.is_dir():
        try:
            path.mkdir()
            made.insert(0, path)
        except FileNotFoundError:
            made[:0] = make_directories(path.parent)
        except FileExistsError:
            if not path.is_dir():
                raise
    return made


def remove_empty(directories: Iterable[Path]) -> None:
    """Remove these directories, from the innermost on, as far as they are empty: others may have written there."""
    for directory in directories:
        with contextlib.suppress(OSError):
            directory.rmdir()
