"""Two and three processes against one: every preset, resuming by other numbers of processes, refusals, collectives."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import processes
import pytest
import torch
from processes import SETTINGS, TOGETHER, digits
from safetensors.torch import load_file

import murmuration as mm
from murmuration.core.recipe import make_recipe

pytestmark = pytest.mark.slow
BOUND = 2e-5  # of weights after a few steps of 3e-3, where sums over members or over weights are taken in another order
SIZES = (2, 3)
RESUMED = ("deep-ensemble", "batch-ensemble", "multi-swag")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Callable[[int], Path]:
    """The folder that so many processes have written, each group started once."""
    folder = tmp_path_factory.mktemp("processes")

    @cache
    def start(size: int) -> Path:
        if size == 3:  # which continue what two have begun
            start(2)
        script = Path(processes.__file__)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(script), str(size), str(folder / str(size))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return folder / str(size)

    return start


def is_independent(name: str) -> bool:
    recipe = make_recipe(SETTINGS[name]["recipe"].partition(":")[0] if name in SETTINGS else name)
    alone = recipe.coupling is None and recipe.sharing.what == "own"
    return alone and name not in ("backbone", "single, a batch in parts")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*TOGETHER, *SETTINGS])
def test_processes_train_what_one_trains(name, size, runs):
    alone, found = (load_file(runs(count) / f"{name}.safetensors") for count in (1, size))
    assert alone.keys() == found.keys()
    if is_independent(name):
        assert all(torch.equal(alone[key], found[key]) for key in alone)
        first, second = ((runs(count) / f"{name}.json").read_text() for count in (1, size))
        assert first == second  # losses, scores and what was kept of every epoch
        return
    bound = 5 * BOUND if "in parts" in name else BOUND  # losses too are sums of parts then
    for key, tensor in alone.items():
        torch.testing.assert_close(found[key], tensor, rtol=0, atol=bound)


@pytest.mark.parametrize("name", ["deep-ensemble", "multi-swag"])
@pytest.mark.parametrize("size", SIZES)
def test_the_run_directory_has_the_same_bytes(name, size, runs):
    alone, found = (runs(count) / f"whole-{name}" for count in (1, size))
    assert (alone / "members.safetensors").read_bytes() == (found / "members.safetensors").read_bytes()
    assert (alone / "history.jsonl").read_bytes() == (found / "history.jsonl").read_bytes()
    manifest = json.loads((found / "run.json").read_text())
    assert manifest["ranks"] == size
    assert not (found / "checkpoints").exists()


@pytest.mark.parametrize("name", RESUMED)
def test_three_processes_continue_what_two_have_begun(name, runs):
    runs(3)
    whole, found = (
        load_file(runs(count) / f"{what}-{name}" / "members.safetensors")
        for count, what in ((1, "whole"), (2, "stopped"))
    )
    for key, tensor in whole.items():
        if is_independent(name):
            assert torch.equal(found[key], tensor)
        else:
            torch.testing.assert_close(found[key], tensor, rtol=0, atol=BOUND)


@pytest.mark.parametrize("name", RESUMED)
def test_one_process_continues_what_three_have_begun(name, runs):
    path = runs(3) / f"stopped-{name}"
    files = sorted(file.name for file in (path / "checkpoints").glob("*.safetensors"))
    step = files[0].partition("-1-of")[0]  # they stop together, at the next step at which they meet
    assert files == [f"{step}-{rank}-of-3.safetensors" for rank in (1, 2, 3)]
    found = mm.resume(path, data=digits()).groups[0].population.to_tensors()
    whole = mm.load(runs(1) / f"whole-{name}").groups[0].population.to_tensors()
    for key, tensor in whole.items():
        if is_independent(name):
            assert torch.equal(found[key], tensor)
        else:
            torch.testing.assert_close(found[key], tensor, rtol=0, atol=BOUND)


@pytest.mark.parametrize("size", SIZES)
def test_every_process_refuses_what_does_not_fit(size, runs):
    messages = [json.loads((runs(size) / f"rank-{rank}.json").read_text())["refusals"] for rank in range(size)]
    data, plan, recipe, few, one, counts, *parts = messages[0]
    assert "rank 1 has other data" in data
    assert "rank 1 has a plan with seed=1, and rank 0 with seed=0: give all processes the same" in plan
    assert "rank 1 has a recipe with name=forde, and rank 0 with name=deep-ensemble" in recipe
    assert few.startswith(f"Misuse: {size} processes for {size - 1} members: start {size - 1} with torchrun")
    assert one.startswith("Misuse: rank 1: unknown net 'no-net'")
    assert "members=2, and rank 0 with members=1" in counts
    assert all("\n" not in message and message != "done" for each in messages for message in each)
    wrong = ("coupling input-gradients", "a net with dropout", "a net with batch normalisation")
    for message, what in zip(parts, wrong, strict=True):
        assert message.startswith(f"Misuse: ranks_per_member={size} with {what}")
    for place in (0, 1, 2, 3, 5, 6, 7, 8):
        assert {each[place] for each in messages} == {messages[0][place]}


@pytest.mark.parametrize("size", SIZES)
def test_collectives_return_the_whole_and_count_their_bytes(size, runs):
    for rank in range(size):
        found = json.loads((runs(size) / f"rank-{rank}.json").read_text())["exchanged"]
        assert [found[name] for name in ("gathered", "columns", "rows")] == [True] * 3
        assert found["flags"] == [7 * row > 10 for row in range(5)]
        assert found["sum"] == [[size, size], [sum(range(size))]]
        most, blocks = -(-5 // size), [len(range(-(-5 * r // size), -(-5 * (r + 1) // size))) for r in range(size)]
        widths = [len(range(-(-7 * r // size), -(-7 * (r + 1) // size))) for r in range(size)]
        gather = (size - 1) * most * (7 * 4 + 1)
        there, back = (5 - blocks[rank]) * widths[rank] * 4, blocks[rank] * (7 - widths[rank]) * 4
        assert found["moved"] == {"gather": gather, "exchange": there + back, "sum": 2 * 4 + 8}
