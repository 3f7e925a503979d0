"""Files are written under names of their process, and what killed processes left under such names goes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from murmuration.system import files
from murmuration.system.process_names import this_machine

KILLED_IN_TENSORS = """
import os, sys, torch, safetensors.torch
from pathlib import Path
from murmuration.system import files

def write_half(tensors, name):
    Path(name).with_name(".tmpa1B2c3").write_bytes(b"cut")
    os.kill(os.getpid(), 9)

safetensors.torch.save_file = write_half
files.write_tensors(Path(sys.argv[1]), {"w": torch.zeros(3)})
"""


def dead_process() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_tensors_are_the_bytes_of_safetensors(tmp_path: Path):
    tensors = {
        "b": torch.arange(5, dtype=torch.int64),
        "a": torch.randn(3, 4).t(),
        "flag": torch.tensor([True, False]),
        "half": torch.randn(7).to(torch.bfloat16),
        "number": torch.tensor(1.5, dtype=torch.float64),
        "none": torch.empty(0, 3),
    }
    files.write_tensors(tmp_path / "own.safetensors", tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "plain.safetensors")
    assert (tmp_path / "own.safetensors").read_bytes() == (tmp_path / "plain.safetensors").read_bytes()
    assert names(tmp_path) == ["own.safetensors", "plain.safetensors"]


def test_a_kill_inside_the_tensors_leaves_only_names_of_ours_and_the_next_writer_removes_them(tmp_path: Path):
    file = tmp_path / "own.safetensors"
    done = subprocess.run([sys.executable, "-c", KILLED_IN_TENSORS, str(file)], check=False)
    assert done.returncode == -signal.SIGKILL
    left = names(tmp_path)
    assert left
    assert all(name.endswith(".partial") and f".{this_machine()}." in name for name in left)
    files.write_tensors(file, {"w": torch.zeros(3)})
    assert names(tmp_path) == [file.name]


def test_a_writer_removes_what_dead_processes_left_of_its_file_alone(tmp_path: Path):
    dead, other = f"{this_machine()}.{dead_process()}", f"elsewhere-00000000-1.{dead_process()}"
    (tmp_path / f".a.csv.parts.{dead}.partial").mkdir()
    (tmp_path / f".a.csv.parts.{dead}.partial" / "x.npy").touch()
    kept = [".a.csv.partial", f".a.csv.{other}.partial", f".b.csv.{dead}.partial"]
    for name in (f".a.csv.{dead}.partial", *kept):
        (tmp_path / name).touch()
    running = f".a.csv.{this_machine()}.{os.getppid()}.partial"
    (tmp_path / running).touch()
    files.write_bytes(tmp_path / "a.csv", b"new")
    assert names(tmp_path) == sorted([*kept, running, "a.csv"])


def test_a_link_in_place_of_a_folder_of_parts_is_removed_and_not_followed(tmp_path: Path):
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "kept.npy").touch()
    (tmp_path / f".a.npz.parts.{this_machine()}.{dead_process()}.partial").symlink_to(tmp_path / "others")
    files.write_bytes(tmp_path / "a.npz", b"new")
    assert names(tmp_path) == ["a.npz", "others"]
    assert names(tmp_path / "others") == ["kept.npy"]


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path):
    def fail(file: Path) -> None:
        np.save(file.with_name("more.npy"), np.zeros(3))
        raise OSError(28, "No space left on device")

    with pytest.raises(files.Failure, match="the disk is full"):
        files.write_named(tmp_path / "a.npz", fail)
    assert names(tmp_path) == []
