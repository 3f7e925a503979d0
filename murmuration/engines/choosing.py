"""Choosing an engine by measuring: no strategy is fastest for every network, batch and machine."""

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from murmuration.engines.team import Engine, engine

ROUNDS = 5  # interleaved rounds, after a first step that warms caches up
TURN = 0.03  # seconds a turn lasts at least: threads of the engine before go on spinning for a few milliseconds
ENOUGH = 4.0  # seconds after which the rounds end
HOPELESS = 2.5  # a candidate whose first step is this much slower than the best first step leaves the race


@dataclass(frozen=True)
class Choice:
    """An engine, and one line on why it was taken."""

    engine: Engine
    reason: str


Step = Callable[[], object]
Trial = Callable[[Engine], AbstractContextManager[Step]]  # an engine -> a function that makes one step on it


def choose(requested: str, trial: Trial, members: int) -> Choice:
    """The requested engine if the network allows it, or for `auto` the fastest one in a short race."""
    if requested == "loop" or (requested == "auto" and members == 1):
        return Choice(engine("loop"), "as requested" if requested == "loop" else "there is one member")
    candidates = ["threads", "loop", "stacked", "threads-stacked"] if requested == "auto" else [requested]
    with ExitStack() as stack:
        runners, refused = _line_up(candidates, trial, stack)
        if not runners:
            return Choice(engine("loop"), f"{refused[0]}; members take turns instead")
        if requested != "auto":
            return Choice(next(iter(runners)), "as requested")
        seconds = _race(runners)
    best = min(seconds, key=lambda runner: seconds[runner])
    measured = ", ".join(f"{e.name} {1e3 * s:.1f}" for e, s in sorted(seconds.items(), key=lambda pair: pair[1]))
    return Choice(best, "; ".join([f"fastest of (ms a step) {measured}", *refused]))


def _line_up(candidates: list[str], trial: Trial, stack: ExitStack) -> tuple[dict[Engine, Step], list[str]]:
    """The candidates that can make a step, and why the others cannot."""
    runners: dict[Engine, Step] = {}
    refused = []
    for name in candidates:
        try:
            runner, step = _first_step(name, trial, stack)
            runners[runner] = step
        except Exception as error:  # whatever a network raises when it is run this way is a reason not to
            refused.append(f"{name} cannot run this net ({_one_line(error)})")
    return runners, refused


def _first_step(name: str, trial: Trial, stack: ExitStack) -> tuple[Engine, Step]:
    """The engine after one step; a stacked one runs directly where the network allows it, else under vmap."""
    if engine(name).stacked:
        try:
            step = stack.enter_context(trial(engine(name, direct=True)))
            step()
            return engine(name, direct=True), step
        except Exception:  # NotDirect, or an operator that trips over the member axis: vmap may still do
            pass
    step = stack.enter_context(trial(engine(name)))
    step()
    return engine(name), step


def _race(runners: dict[Engine, Step]) -> dict[Engine, float]:
    """The usual seconds a step of each, taking turns so that a disturbance of the machine meets all alike."""
    start = time.perf_counter()
    times = {runner: [_seconds(step)] for runner, step in runners.items()}
    best = min(first[0] for first in times.values())
    for _ in range(ROUNDS):
        if time.perf_counter() - start > ENOUGH:
            break
        for runner, step in runners.items():
            if times[runner][0] < HOPELESS * best:
                times[runner].append(_seconds(step))
    return {runner: statistics.median(found) for runner, found in times.items()}


def _seconds(step: Step) -> float:
    """Seconds a step in one turn."""
    start, steps = time.perf_counter(), 0
    while not steps or time.perf_counter() - start < TURN:
        step()
        steps += 1
    return (time.perf_counter() - start) / steps


def _one_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:160]
