"""Names of processes in file names, and whether a process of such a name is still running.

A name is MACHINE.PID. On Linux MACHINE is HOST-BOOT-NAMESPACE: the host name, the start of the machine and the PID
namespace, as process numbers mean something inside one of them only; elsewhere it is the host name.
"""

import contextlib
import ctypes
import os
import platform
import re
from pathlib import Path
from typing import Any

FIRST_NAMESPACE = "4026531836"  # the PID namespace of a machine, outside of all containers; a constant of Linux
PARTS = re.compile(r"(?P<host>.+)-(?P<boot>[0-9a-f]{8})-(?P<namespace>\d+)")
LONGEST_HOST = 40  # letters of a host name in a file name
# A disk with one of these file systems is mounted by one machine at a time.
DISKS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs")
QUERY, DENIED, STILL_ACTIVE = 0x1000, 5, 259  # on Windows: an access right, an error, the exit code while running


def process_name() -> str:
    """Return the name of this process."""
    return f"{this_machine()}.{os.getpid()}"


def this_machine() -> str:
    """Return what process numbers of this process refer to, as part of a file name."""
    host = re.sub(r"[^A-Za-z0-9-]+", "-", platform.node())[:LONGEST_HOST] or "localhost"
    with contextlib.suppress(OSError):
        namespace = re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
        return f"{host}-{boot_id()[:8]}-{namespace}"
    return host


def split_name(name: str) -> tuple[str, int] | None:
    """Return the machine and the number in the name of a process; None for other text.

    >>> split_name("lab-3f2a9c1b-4026531836.42")
    ('lab-3f2a9c1b-4026531836', 42)
    """
    machine, _, number = name.rpartition(".")
    return (machine, int(number)) if machine and number.isdecimal() else None


def host_of(machine: str) -> str:
    """Return the host name in a name of a machine.

    >>> host_of("lab-3f2a9c1b-4026531836")
    'lab'
    """
    parts = PARTS.fullmatch(machine)
    return parts["host"] if parts else machine


def has_ended(machine: str, process: int, place: Path, started: str | None = None) -> bool:
    """Return whether a process that wrote in `place` is known to have ended.

    That is known of processes of this start of the machine and this PID namespace. After a restart of the machine it is
    known where no other machine can be meant: outside of containers, on a disk that one machine mounts at a time.

    Args:
        machine: That of its name.
        process: Its number.
        place: A file or folder that it wrote.
        started: What `process_start` returned for it, if known.
    """
    if machine != this_machine():
        return is_before_restart(machine) and is_on_own_disk(place)
    now = process_start(process)
    return not is_running(process) or bool(started and now and started != now)  # its number is another process's now


def is_before_restart(machine: str) -> bool:
    """Return whether a name is that of this machine, outside of containers, before it was started again."""
    then, now = PARTS.fullmatch(machine), PARTS.fullmatch(this_machine())
    if then is None or now is None or then["boot"] == now["boot"]:
        return False
    return then["host"] == now["host"] and then["namespace"] == now["namespace"] == FIRST_NAMESPACE


def is_on_own_disk(path: Path) -> bool:
    """Return whether a path is on a disk that no other machine can have mounted now."""
    place, kinds = os.path.realpath(path), {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            mount, _, about = line.partition(" - ")
            kinds[mount.split()[4].replace("\\040", " ")] = about.split()[0]  # of several at one place, the last
    while place not in kinds and place != os.path.dirname(place):
        place = os.path.dirname(place)
    return kinds.get(place) in DISKS


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


def boot_id() -> str:
    """Return the identity of this start of the machine; an `OSError` except on Linux."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def process_start(process: int) -> str | None:
    """Return when a process started, which tells apart two of one number; None except on Linux.

    The time is counted from the start of the machine, so it goes with that: a process number returns after a restart.
    """
    stat = _process_stat(process)
    return f"{boot_id()} {stat[19]}" if len(stat) > 19 else None


def _process_stat(process: int) -> list[str]:
    """Return the fields of a process in Linux from its state on; nothing elsewhere."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):  # /proc shows the processes of another namespace
            return []
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
