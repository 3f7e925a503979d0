"""Locks of directories: one process at a time writes into a run.

A lock is a small file `.lock.MACHINE.PID` in the directory. A process writes its own and then looks for those of
others: if two start at the same moment, at least one sees the other, so that never both proceed. The file name
identifies the holder (`process_names.py`); a lock of a process that has ended is removed by the next process.
"""

import contextlib
import json
import os
import random
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
from murmuration.system.process_names import has_ended, host_of, process_name, process_start, split_name, this_machine

PREFIX = ".lock."
ATTEMPTS, PAUSE = 4, 0.05  # of processes that begin at the same moment; the longest pause between, in seconds
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)

Tidy = Callable[[Path, list["Holder"]], None]
_held: dict[tuple[int, str], int] = {}  # (process, directory) -> the thread that holds it


@dataclass(frozen=True)
class Holder:
    """A process that wrote a lock."""

    file: Path
    machine: str
    process: int
    about: dict[str, Any]  # command, since, started, empty; nothing if the process was killed while it wrote them

    @property
    def is_dead(self) -> bool:
        """Return whether the process is known to have ended, or had the number of this one."""
        if self.machine == this_machine() and self.process == os.getpid():
            return True
        return has_ended(self.machine, self.process, self.file.parent, self.about.get("started"))

    def __str__(self) -> str:
        command, since = self.about.get("command", "unknown command"), self.about.get("since", "an unknown time")
        host, ours = host_of(self.machine), this_machine()
        where = " in another container, or before a restart," if ours != self.machine and host == host_of(ours) else ""
        return f"process {self.process} on {host}{where} since {since} ({command})"


@contextmanager
def locked(path: Path, tidy: Tidy = lambda path, earlier: None) -> Iterator[None]:
    """Hold the lock of a directory inside the block; the thread that holds it may lock it again.

    Args:
        path: The directory, created if missing; directories made for the lock are removed if they are empty at the end.
        tidy: Called as `tidy(path, earlier)` after the lock is acquired, with the killed processes that had held it.

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
        was_empty = is_empty(path) or found_empty(earlier)
        try:
            write_lock(own_file(path), was_empty)
        except FileNotFoundError:  # another process had made the directory and has removed it
            continue
        rivals = [holder for holder in holders(path) if holder.file != own_file(path)]
        running = [holder for holder in rivals if not holder.is_dead]
        if not running:
            tidy(path, earlier)
            for holder in rivals:
                holder.file.unlink(missing_ok=True)
            return
        own_file(path).unlink(missing_ok=True)
    if not running:
        raise Misuse(f"{path} is being made and removed by another process: wait until it has ended")
    hint = "" if running[0].machine == this_machine() else f"; if it has, remove {running[0].file}"
    raise Misuse(f"{path} is being written by {running[0]}: wait until it has ended{hint}")


def holders(path: Path) -> list[Holder]:
    """Return the processes that have a lock in a directory, dead ones too."""
    processes = []
    for file in sorted(path.glob(f"{PREFIX}*")):
        if (name := split_name(file.name.removeprefix(PREFIX))) is not None:
            content = None
            with contextlib.suppress(OSError, ValueError):
                content = json.loads(file.read_bytes())
            processes.append(Holder(file, *name, content if isinstance(content, dict) else {}))
    return processes


def is_held(path: Path) -> bool:
    """Return whether a process that is running, this one too, holds the directory."""
    return any(holder.process == os.getpid() or not holder.is_dead for holder in holders(path))


def found_empty(earlier: list[Holder]) -> bool:
    """Return whether killed processes wrote all that is in a directory: the first of them found it empty.

    One whose lock is not readable was killed before it wrote anything else.
    """
    wrote = [holder for holder in earlier if holder.about]
    return bool(wrote) and all(holder.about.get("empty", False) for holder in wrote)


def is_empty(path: Path) -> bool:
    """Return whether a directory holds nothing but locks."""
    return all(file.name.startswith(PREFIX) for file in path.iterdir())


def own_file(path: Path) -> Path:
    """Return the lock file of this process."""
    return path / f"{PREFIX}{process_name()}"


def write_lock(file: Path, empty: bool) -> None:
    """Write a lock of this process to the disk, never through a link, and over none but that of its own number.

    It is flushed: after a loss of power its entry `empty` decides whether the command can be repeated.
    """
    content = json.dumps(describe_holder(empty)).encode()
    file.unlink(missing_ok=True)
    handle = os.open(file, NEW_FILE, 0o666)
    try:
        os.write(handle, content)
        with contextlib.suppress(OSError):  # a system that cannot flush
            os.fsync(handle)
    finally:
        os.close(handle)


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


def make_directories(path: Path) -> list[Path]:
    """Create a directory and its parents; return those that were missing, the innermost first.

    Another process may remove a parent at the same moment, so a missing one is made again, but not for ever: in some
    file systems, such as that of `/proc`, nothing can be made.
    """
    created: list[Path] = []
    attempts = 0
    while not path.is_dir():
        try:
            path.mkdir()
            created.insert(0, path)
        except FileNotFoundError:
            attempts += 1
            if attempts > ATTEMPTS:
                raise
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
