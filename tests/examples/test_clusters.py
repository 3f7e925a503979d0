"""The array job of Slurm by hand for two tasks, and members as Ray tasks where Ray is installed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import murmuration as mm

EXAMPLES = Path(__file__).parents[2] / "examples"
FAST = ["--net", "small-cnn", "--epochs", "1", "--batch-size", "128", "--engine", "threads"]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="a shell script")
def test_an_array_job_of_two_tasks_merges_to_one_run(tmp_path: Path):
    for task in ("0", "1", "1"):  # the last is submitted again after it has ended
        place = {**os.environ, "SLURM_ARRAY_TASK_ID": task, "MURMUR": f"{sys.executable} -m murmuration"}
        words = ["bash", str(EXAMPLES / "slurm_array.sh"), "digits", str(tmp_path / "parts"), *FAST]
        done = subprocess.run(words, env=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    merged = mm.merge_runs(sorted((tmp_path / "parts").iterdir()), out=tmp_path / "whole")
    whole = mm.fit("small-cnn", "digits", members=2, epochs=1, batch_size=128, engine="threads", progress=False)
    for name, tensor in whole.to_tensors().items():
        assert torch.equal(merged.to_tensors()[name], tensor), name


@pytest.mark.parametrize("script", ["slurm_array.sh", "slurm_torchrun.sh"])
@pytest.mark.skipif(os.name == "nt", reason="a shell script")
def test_scripts_are_bash(script):
    done = subprocess.run(["bash", "-n", str(EXAMPLES / script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("ray_members", EXAMPLES / "ray_members.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_members_of_tasks_are_trained_and_continued(example, tmp_path: Path):
    settings = {"epochs": 1, "batch_size": 64}
    parts = [example.train_member("mlp", "two-moons", str(tmp_path), number, settings) for number in (0, 1, 1)]
    assert parts[1] == parts[2]
    assert mm.merge_runs(parts[:2], out=tmp_path / "merged").members == 2


def test_members_on_ray(example, tmp_path: Path):
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        found = example.train_on_ray("mlp", "two-moons", str(tmp_path), 2, epochs=1, batch_size=64)
    finally:
        ray.shutdown()
    assert found.members == 2
    assert mm.load(tmp_path / "merged").members == 2
