"""Locks of directories: one process at a time writes into a run.

A lock is a small file `.lock.HOST.PID` in the directory. A process writes its own and then looks for those of others:
if two start at the same moment, at least one sees the other, so that never both proceed. The file name identifies the
holder; a lock of a process of this host that is no longer running is removed by the next process.
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
        """Return whether it was a process of this host that is not running any more."""
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
    """Hold the lock of a directory inside the block; the thread that holds it may lock it again.

    Args:
        path: The directory, created if missing; directories made for the lock are removed if they are empty at the end.
        tidy: Called as `tidy(path, empty)` after the lock is acquired. `empty` says whether the directory was empty
            when a killed process started to write into it, so that all of its files are of killed processes.

    Raises:
        Misuse: While another process or thread holds the directory.
        Failure: If the directory cannot be written.
    """
    key, thread = (os.getpid(), os.path.realpath(path)), threading.get_ident()
    if _held.get(key) == thread:
        yield
        return
    if _held.setdefault(key, thread) != thread:
        raise Misuse(f"{path} is being written by another thread of this process: wait until it has ended")
    created: list[Path] = []
    try:
        try:
            _acquire(path, tidy, created)
        except OSError as error:
            raise cannot_write(path, error) from error
        yield
    finally:
        del _held[key]
        with contextlib.suppress(OSError):
            own_file(path).unlink()
        remove_empty(created)


def _acquire(path: Path, tidy: Tidy, created: list[Path]) -> None:
    """Write the lock of this process, or raise if a running process has one; remove the locks of dead processes.

    `created` receives the directories that were made, the innermost first.
    """
    running: list[Holder] = []
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0.1, 1) * PAUSE)
        created[:0] = make_directories(path)
        earlier = holders(path)  # of dead processes; if one is running, the lock is not acquired
        was_empty = all(holder.about.get("empty", False) for holder in earlier) if earlier else is_empty(path)
        try:
            own_file(path).write_text(json.dumps(describe_holder(was_empty)))
        except FileNotFoundError:  # another process had made the directory and has removed it
            continue
        rivals = [holder for holder in holders(path) if holder.file != own_file(path)]
        running = [holder for holder in rivals if not holder.is_dead]
        if not running:
            tidy(path, was_empty and bool(earlier))
            for holder in rivals:
                holder.file.unlink(missing_ok=True)
            return
        own_file(path).unlink(missing_ok=True)
    if not running:
        raise Misuse(f"{path} is being made and removed by another process: wait until it has ended")
    hint = "" if running[0].host == this_host() else f"; if it has, remove {running[0].file}"
    raise Misuse(f"{path} is being written by {running[0]}: wait until it has ended{hint}")


def holders(path: Path) -> list[Holder]:
    """Return the processes that have a lock in a directory, dead ones too."""
    processes = []
    for file in sorted(path.glob(f"{PREFIX}*")):
        host, _, process = file.name.removeprefix(PREFIX).rpartition(".")
        if process.isdigit():
            content = None
            with contextlib.suppress(OSError, ValueError):
                content = json.loads(file.read_bytes())
            processes.append(Holder(file, host, int(process), content if isinstance(content, dict) else {}))
    return processes


def is_held(path: Path) -> bool:
    """Return whether a process that is running, this one too, holds the directory."""
    return any(holder.process == os.getpid() or not holder.is_dead for holder in holders(path))


def is_empty(path: Path) -> bool:
    """Return whether a directory holds nothing but locks."""
    return all(file.name.startswith(PREFIX) for file in path.iterdir())


def own_file(path: Path) -> Path:
    """Return the lock file of this process."""
    return path / f"{PREFIX}{this_host()}.{os.getpid()}"


def describe_holder(empty: bool) -> dict[str, Any]:
    """Return the content of this process's lock."""
    started = process_start(os.getpid())
    return {"command": command_line(), "since": time_now(), "started": started, "empty": empty}


def command_line() -> str:
    """Return the command of this process, without the folder of its program."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def time_now() -> str:
    """Return the time with its zone, as files of a run state it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def this_host() -> str:
    """Return the name of this machine, as part of a file name."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", platform.node()) or "localhost"


def is_running(process: int) -> bool:
    """Return whether a process of this number is running on this machine; a zombie is not."""
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
    """Return when a process started, which tells apart two of one number; None except on Linux.

    The time is counted from the start of the machine, so it goes with that: a process number returns after a restart.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    stat = _process_stat(process)
    return f"{boot} {stat[19]}" if len(stat) > 19 else None


def _process_stat(process: int) -> list[str]:
    """Return the fields of a process in Linux from its state on; nothing elsewhere."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def make_directories(path: Path) -> list[Path]:
    """Create a directory and its parents; return those that were missing, the innermost first."""
    created: list[Path] = []
    while not path.is_dir():
        try:
            path.mkdir()
            created.insert(0, path)
        except FileNotFoundError:
            created[:0] = make_directories(path.parent)
        except FileExistsError:
            if not path.is_dir():
                raise
    return created


def remove_empty(directories: Iterable[Path]) -> None:
    """Remove those of the directories that are empty, from the innermost on."""
    for directory in directories:
        with contextlib.suppress(OSError):
            directory.rmdir()
