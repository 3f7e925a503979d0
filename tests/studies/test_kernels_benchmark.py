"""The benchmark of tangent kernels on tiny networks: what it records, and that both routes find the same."""

import json
from pathlib import Path

import kernels
import pytest
import torch

from murmuration.studies.tangent_kernels import MemberKernels

KEYS = {"speedup", "memory_ratio", "relative_difference", "seconds", "peak_megabytes", "setting"}


@pytest.mark.parametrize("outputs", [1, 3])
def test_both_routes_find_the_same_kernels(outputs):
    work = kernels.work_of(kernels.Setting(width=8, outputs=outputs, inputs=3, features=4, members=2))
    ours, tutorial = kernels.ours(work), kernels.tutorial(work)
    assert ours.common.shape == (2, 3, 2, 3)
    assert kernels.relative_difference(ours, tutorial) < 1e-5
    changed = MemberKernels(ours.common, 1.01 * ours.individual)
    assert kernels.relative_difference(changed, tutorial) == pytest.approx(0.01, rel=1e-2)


def test_a_record_holds_ratios_and_can_be_written(monkeypatch):
    memory = {"ours": 2.0, "tutorial": 30.0}
    monkeypatch.setattr(kernels, "peaks", lambda setting: memory)
    monkeypatch.setattr(kernels, "timed", lambda work, repeats: ({"ours": 0.5, "tutorial": 4.0}, 1e-7))
    found = json.loads(json.dumps(kernels.record(kernels.TINY, kernels.TINY, repeats=1)))
    assert set(found) == KEYS | {"ten_outputs", "torch", "threads", "repeats"}
    assert set(found["ten_outputs"]) == KEYS
    assert (found["speedup"], found["memory_ratio"]) == (8.0, 15.0)
    assert found["peak_megabytes"] == memory
    assert found["setting"]["width"] == kernels.TINY.width
    assert found["torch"] == torch.__version__


def test_seconds_and_megabytes_are_measured():
    seconds, difference = kernels.timed(kernels.work_of(kernels.TINY), repeats=1)
    assert min(seconds.values()) > 0
    assert difference < 1e-5
    assert kernels.peak(kernels.TINY, "ours") > 50  # a process with torch in it is larger than this


def test_the_written_record_reached_what_was_aimed_at():
    found = json.loads((Path(kernels.__file__).parent / "results" / "kernels.json").read_text())
    for each in (found, found["ten_outputs"]):
        assert each["speedup"] >= 5
        assert each["memory_ratio"] >= 10
        assert each["relative_difference"] <= 1e-4
