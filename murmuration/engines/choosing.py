"""Choosing an engine by measuring: no strategy is fastest for every network, batch and machine."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from murmuration.engines.team import Engine, engine
from murmuration.weights import NotDirect

TIMED = 4  # steps of a trial after the first, which warms caches up
ENOUGH = 2.0  # seconds after which a trial has seen enough
HOPELESS = 2.5  # a candidate whose first step is this much slower than the best so far is not tried further


@dataclass(frozen=True)
class Choice:
    """An engine, and one line on why it was taken."""

    engine: Engine
    reason: str


Trial = Callable[[Engine], AbstractContextManager[Callable[[], object]]]  # an engine -> a function that makes one step


def choose(requested: str, trial: Trial, members: int) -> Choice:
    """The requested engine if the network allows it, or for `auto` the fastest one in a short trial."""
    if requested == "loop" or (requested == "auto" and members == 1):
        return Choice(engine("loop"), "as requested" if requested == "loop" else "there is one member")
    candidates = ["threads", "loop", "stacked", "threads-stacked"] if requested == "auto" else [requested]
    seconds: dict[Engine, float] = {}
    refused = []
    for name in candidates:
        try:
            timed = TIMED if requested == "auto" else 0
            candidate, time_taken = _try_out(name, trial, timed, min(seconds.values(), default=None))
            seconds[candidate] = time_taken
        except Exception as error:  # whatever a network raises when it is run this way is a reason not to
            refused.append(f"{name} cannot run this net ({_one_line(error)})")
    if not seconds:
        return Choice(engine("loop"), f"{refused[0]}; members take turns instead")
    best = min(seconds, key=lambda candidate: seconds[candidate])
    if requested != "auto":
        return Choice(best, "as requested")
    measured = ", ".join(f"{e.name} {1e3 * s:.1f}" for e, s in sorted(seconds.items(), key=lambda pair: pair[1]))
    return Choice(best, "; ".join([f"fastest of (ms a step) {measured}", *refused]))


def _try_out(name: str, trial: Trial, timed: int, best: float | None) -> tuple[Engine, float]:
    """The engine and its seconds a step; a stacked one runs directly where the network allows it, else under vmap."""
    if engine(name).stacked:
        try:
            return _time(engine(name, direct=True), trial, timed, best)
        except NotDirect:
            pass
    return _time(engine(name), trial, timed, best)


def _time(candidate: Engine, trial: Trial, timed: int, best: float | None) -> tuple[Engine, float]:
    times: list[float] = []
    with trial(candidate) as step:
        while len(times) <= timed and sum(times) < ENOUGH:
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
            if best is not None and times[0] > HOPELESS * best:
                break
    return candidate, min(times)


def _one_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:160]
