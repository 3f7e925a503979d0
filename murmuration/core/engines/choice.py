"""The choice of an engine: by a rule (`auto`) or by measurement (`fastest`).

No engine is fastest for every network, batch and machine, and engines round differently. The rule depends on the
network and the number of cores alone, so that the same seed gives the same bits; a measurement may come out differently
the next time. Where both were measured on two cores, they agreed: dense networks are stacked, convolutional ones run in
threads.
"""

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass

from murmuration.core.engines.team import Engine, engine
from murmuration.system.errors import first_line

ROUNDS = 5  # interleaved rounds, after one step to fill caches
TURN_SECONDS = 0.03  # minimum of a turn: threads of the previous engine keep spinning for a few milliseconds
MAX_SECONDS = 4.0  # no new round begins after this time
SLOWDOWN = 2.5  # a candidate whose first turn is this much slower than the best is not measured again


@dataclass(frozen=True)
class Choice:
    """An engine, and why it was chosen.

    Attributes:
        engine: The engine.
        reason: The reason in one line.
    """

    engine: Engine
    reason: str


Step = Callable[[], object]
Trial = Callable[[Engine], AbstractContextManager[Step]]  # engine -> a function that makes one training step on it


def choose(requested: str, trial: Trial, members: int, cores: int | None = None) -> Choice:
    """Choose an engine.

    Args:
        requested: "auto" (by rule), "fastest" (by measurement) or the name of an engine.
        trial: Makes one training step on an engine.
        members: Number of members.
        cores: Cores of this process, if several processes share the machine.

    Returns:
        The engine and the reason; `loop` if the network cannot run on the requested engine.
    """
    if requested == "loop" or (requested in ("auto", "fastest") and members == 1):
        return Choice(engine("loop"), "as requested" if requested == "loop" else "there is one member")
    if requested == "auto":
        return by_rule(trial, cores)
    candidates = ["threads", "loop", "stacked", "threads-stacked"] if requested == "fastest" else [requested]
    steps: dict[Engine, Step] = {}
    refused, reason = [], ""
    with ExitStack() as stack:
        for name in candidates:
            for candidate in dict.fromkeys(engine(name, direct, cores) for direct in (True, False)):
                try:  # stacked members run directly if possible, else by vmap
                    step = stack.enter_context(trial(candidate))
                    step()
                except Exception as error:  # any error of the network on this engine rules the engine out
                    reason = first_line(error)[:160]
                else:
                    steps[candidate] = step
                    break
            else:
                refused.append(f"{name} cannot run this net ({reason})")
        if not steps:
            return Choice(engine("loop"), f"{refused[0]}; members take turns instead")
        if requested != "fastest":
            return Choice(next(iter(steps)), "as requested")
        seconds = _measure(steps)
    best = min(seconds, key=lambda candidate: seconds[candidate])
    measured = ", ".join(f"{e.name} {1e3 * s:.1f}" for e, s in sorted(seconds.items(), key=lambda pair: pair[1]))
    return Choice(best, "; ".join([f"fastest of (ms a step) {measured}", *refused]))


def by_rule(trial: Trial, cores: int | None = None) -> Choice:
    """Choose stacked members if every operator takes a member axis, else threads if there are several cores.

    If several processes share a machine, each has a thread for each of its own cores, even for only one.
    """
    stacked, threads = engine("stacked", direct=True), engine("threads", cores=cores)
    with suppress(Exception), trial(stacked) as step:  # UnsupportedOp, or any error of the network on a member axis
        step()
        return Choice(stacked, "all operators take a member axis")
    if threads.workers > 1 or cores is not None:
        return Choice(threads, "one core per member")
    return Choice(engine("loop"), "there is one core")


def _measure(steps: dict[Engine, Step]) -> dict[Engine, float]:
    """Return the median seconds per step of each engine; turns are interleaved, to share disturbances evenly."""
    start = time.perf_counter()
    times = {candidate: [_seconds(step)] for candidate, step in steps.items()}
    best = min(first[0] for first in times.values())
    for _ in range(ROUNDS):
        if time.perf_counter() - start > MAX_SECONDS:
            break
        for candidate, step in steps.items():
            if times[candidate][0] < SLOWDOWN * best:
                times[candidate].append(_seconds(step))
    return {candidate: statistics.median(seconds) for candidate, seconds in times.items()}


def _seconds(step: Step) -> float:
    """Return the mean seconds per step in one turn."""
    start, steps = time.perf_counter(), 0
    while not steps or time.perf_counter() - start < TURN_SECONDS:
        step()
        steps += 1
    return (time.perf_counter() - start) / steps
