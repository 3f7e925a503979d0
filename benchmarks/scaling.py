"""How much faster two processes train than one: one core each, turns interleaved in one run.

    python benchmarks/scaling.py            a table
    python benchmarks/scaling.py --json     one JSON object on standard output

One process on one core trains all members; two processes on a core each train half of them and exchange what the
recipe needs. All are forks of one program and take turns, so that a disturbance of the machine reaches both; ratios of
median seconds a step are reported. `bytes_per_step` is what a process receives in a step, counted and by the formula of
docs/reference/processes.md.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from murmuration.core.engines import ALONE, Ranks, assemble, find_ranks
from murmuration.core.recipe import make_recipe
from murmuration.core.step import step
from murmuration.data import open_data
from murmuration.likelihoods import Categorical
from murmuration.models.nets import build_net
from murmuration.system.memory import keep_freed_memory
from murmuration.training import TrainSpec, begin, choose_engine
from murmuration.training.batches import epoch_batches
from murmuration.training.plan import plan_for

SHAPE, CLASSES, SEED, PROCESSES = (3, 32, 32), 10, 0, 2
RECIPES = {"independent": "deep-ensemble", "forde": "forde", "weights": "weight-rde", "shared": "batch-ensemble"}
TIMED = ("independent", "forde")
STOP = "stop"  # the last request


def specification(recipe: str, net: str, members: int, batch: int, ranks: Ranks) -> TrainSpec:
    """Members of a network on random images."""
    source = torch.Generator().manual_seed(SEED)
    x = torch.randn(2 * batch, *SHAPE, generator=source).numpy()
    y = torch.randint(CLASSES, (2 * batch,), generator=source).numpy()
    data = open_data((x, y), val=0.1, test=0.1)
    chosen = make_recipe(recipe)
    plan = plan_for(chosen, members=members, batch_size=batch, seed=SEED, posthoc=None)
    return TrainSpec(lambda: build_net(net, SHAPE, CLASSES), data, Categorical(CLASSES), chosen, plan, ranks=ranks)


def serve(ask: Any, answer: Any, members: int, batch: int, net: str, ranks: Callable[[], Ranks]) -> None:
    """Make the steps that the lines of `ask` request, and answer with seconds and bytes a step."""
    torch.set_num_threads(1)
    known: dict[str, Any] = {}
    for line in ask:
        name, count = line.split()
        if name == STOP:
            return
        if name not in known:
            spec = specification(RECIPES[name], net, members, batch, replace(ranks(), cores=1))
            progress = begin(spec)
            team = assemble(choose_engine(spec, progress).engine, spec.member(0), spec.ranks)
            known[name] = spec, progress.state, team.__enter__(), spec.method.step_config
        spec, state, members_team, config = known[name]
        one = epoch_batches(spec.train_split, spec.plan, 0, spec.schedule, spec.rows)(0)
        before, start = sum(spec.ranks.moved.values()), time.perf_counter()
        for _ in range(int(count)):
            step(members_team, config, state, one)
        seconds = (time.perf_counter() - start) / int(count)
        moved = (sum(spec.ranks.moved.values()) - before) / int(count)
        width = 0 if spec.method.coupling is None else features_of(spec)
        shared = sum(t.numel() for t in state.population.shared.values())
        own = sum(t[0].numel() for t in state.population.own.values())
        record = {"seconds": seconds, "moved": moved, "features": width, "shared": shared, "own": own}
        print(json.dumps(record), file=answer, flush=True)


def features_of(spec: TrainSpec) -> int:
    """The numbers of one member's input-gradient features on a batch; 0 in other spaces."""
    assert spec.method.coupling is not None
    metric = getattr(spec.method.coupling.space, "metric", None)
    if metric is None:
        return 0
    batch, width = spec.plan.batch_size, torch.Size(SHAPE).numel()
    return int(spec.method.coupling.space.rows(batch) * metric(torch.zeros(1, 1, width)).shape[-1])


def bytes_by_formula(name: str, members: int, found: dict[str, Any]) -> float:
    """Bytes that the first of two processes receives in a step, as docs/reference/processes.md has it."""
    size, block = PROCESSES, -(-members // PROCESSES)
    if name == "forde":
        return 4 * (size - 1) * block * found["features"]
    if name == "weights":
        width = -(-found["own"] // size)
        there, back = (members - block) * width, block * (found["own"] - width)
        return 4 * (there + back + members**2) + (size - 1) * block
    return 4 * found["shared"] + 16 if name == "shared" else 0


class Worker:
    """A fork of this program on some core that makes steps when it is asked to."""

    def __init__(self, core: int, work: Callable[[Any, Any], None]) -> None:
        (their_ask, self.ask), (self.answer, their_answer) = os.pipe(), os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})
            os.close(self.ask)
            work(os.fdopen(their_ask), os.fdopen(their_answer, "w"))
            os._exit(0)
        os.close(their_ask)
        os.close(their_answer)
        self.lines = os.fdopen(self.answer)

    def request(self, name: str, count: int) -> None:
        os.write(self.ask, f"{name} {count}\n".encode())

    def result(self) -> dict[str, Any]:
        line = self.lines.readline()
        if not line:
            sys.exit("a process has stopped")
        return dict(json.loads(line))


def measure(members: int, batch: int, net: str, rounds: int, steps: int) -> dict[str, Any]:
    """Ratios of median seconds a step, and bytes a step."""
    place = Path(tempfile.mkdtemp()) / "meeting"

    def alone(ask: Any, answer: Any) -> None:
        serve(ask, answer, members, batch, net, lambda: ALONE)

    def together(rank: int) -> Callable[[Any, Any], None]:
        def work(ask: Any, answer: Any) -> None:
            dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=PROCESSES)
            serve(ask, answer, members, batch, net, lambda: find_ranks(members))

        return work

    one = [Worker(0, alone)]
    two = [Worker(rank, together(rank)) for rank in range(PROCESSES)]
    found: dict[str, Any] = {"bytes_per_step": {}}

    def turn(workers: list[Worker], name: str, count: int) -> dict[str, Any]:
        for each in workers:
            each.request(name, count)
        results = [each.result() for each in workers]
        return {**results[0], "seconds": max(each["seconds"] for each in results)}

    for name in RECIPES:
        for workers in (one, two) if name in TIMED else (two,):
            turn(workers, name, 1)  # set up, and capture
        last = turn(two, name, 1)
        moved = {"counted": last["moved"], "formula": bytes_by_formula(name, members, last)}
        found["bytes_per_step"][name] = moved
        if name in TIMED:
            times = [(turn(one, name, steps)["seconds"], turn(two, name, steps)["seconds"]) for _ in range(rounds)]
            first, second = (statistics.median(column) for column in zip(*times, strict=True))
            found[name] = first / second
            found[f"{name}_seconds"] = [first, second]
    for each in [*one, *two]:
        each.request(STOP, 0)
        os.waitpid(each.process, 0)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--net", default="small-cnn")
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2)
    given = parser.parse_args()
    keep_freed_memory()
    if len(os.sched_getaffinity(0)) < PROCESSES:
        sys.exit(f"{PROCESSES} cores are needed")
    found = measure(given.members, given.batch_size, given.net, given.rounds, given.steps)
    if given.json:
        print(json.dumps(found))
        return
    for name in TIMED:
        before, after = found[f"{name}_seconds"]
        print(f"{name:12s} {found[name]:.2f}x  ({before:.3f} s a step by one process, {after:.3f} s by two)")
    for name, moved in found["bytes_per_step"].items():
        print(f"{name:12s} {moved['counted']:12,.0f} bytes a step, by the formula {moved['formula']:,.0f}")


if __name__ == "__main__":
    main()
