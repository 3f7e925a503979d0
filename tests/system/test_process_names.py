"""Names of processes: which machine, which start of it and which PID namespace; and whether one has ended."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from murmuration.system import process_names as names

BOOT, FIRST = "0123abcd", names.FIRST_NAMESPACE
DEAD = 2**22 + 1  # above the largest process number of Linux


def pretend(monkeypatch: pytest.MonkeyPatch, machine: str, own_disk: bool = True) -> None:
    monkeypatch.setattr(names, "this_machine", lambda: machine)
    monkeypatch.setattr(names, "is_on_own_disk", lambda path: own_disk)


def test_a_process_of_this_machine_is_judged_by_its_number(tmp_path: Path):
    assert names.has_ended(names.this_machine(), DEAD, tmp_path)
    assert not names.has_ended(names.this_machine(), os.getppid(), tmp_path)


@pytest.mark.parametrize(
    ("machine", "here", "own_disk", "ended"),
    [
        (f"lab-{BOOT}-4026532999", f"lab-{BOOT}-{FIRST}", True, False),  # in a container
        (f"lab-{BOOT}-{FIRST}", f"lab-{BOOT}-4026532999", True, False),  # seen from a container
        (f"lab-{BOOT}-{FIRST}", f"lab-ffffffff-{FIRST}", True, True),  # before a restart
        (f"lab-{BOOT}-{FIRST}", f"lab-ffffffff-{FIRST}", False, False),  # on a disk of the network: two of one name
        (f"lab-{BOOT}-4026532999", "lab-ffffffff-4026532999", True, False),  # containers may hide the true start
        (f"other-{BOOT}-{FIRST}", f"lab-ffffffff-{FIRST}", True, False),
        ("lab", f"lab-{BOOT}-{FIRST}", True, False),  # of a version or system that named no more
        (f"lab-{BOOT}-{FIRST}", "lab", True, False),
    ],
)
def test_processes_elsewhere_have_ended_only_if_that_is_certain(
    tmp_path: Path, monkeypatch, machine, here, own_disk, ended
):
    pretend(monkeypatch, here, own_disk)
    assert names.has_ended(machine, DEAD, tmp_path) is ended


def test_disks_of_one_machine(tmp_path: Path, monkeypatch):
    mounts = "\n".join(
        f"22 1 0:21 / {place} rw - {kind} source rw" for place, kind in (("/", "ext4"), (str(tmp_path / "net"), "nfs4"))
    )
    monkeypatch.setattr(names.Path, "read_text", lambda self, *arguments, **settings: mounts)
    assert names.is_on_own_disk(tmp_path / "run" / "file")
    assert not names.is_on_own_disk(tmp_path / "net" / "run")


def test_numbers_of_another_namespaces_proc_are_not_trusted(monkeypatch):
    if names.process_start(os.getpid()) is None:
        pytest.skip("this system does not say when a process began")
    readlink = os.readlink
    monkeypatch.setattr(os, "readlink", lambda path: "1" if path == "/proc/self" else readlink(path))
    assert names.process_start(os.getpid()) is None


def test_a_process_in_another_namespace_has_another_machine(tmp_path: Path):
    words = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
        pytest.skip("unshare --pid is not available or not permitted")
    ask = "from murmuration.system.process_names import process_name; print(process_name())"
    told = subprocess.run([*words, sys.executable, "-c", ask], check=True, capture_output=True, text=True).stdout
    machine, number = names.split_name(told.strip()) or ("", 0)
    assert number == 1
    assert names.host_of(machine) == names.host_of(names.this_machine())
    assert machine != names.this_machine()
    assert not names.has_ended(machine, DEAD, tmp_path)
