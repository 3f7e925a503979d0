"""How long something takes, among contenders that take turns in one process."""

import time
from collections.abc import Callable

PAUSE = 0.3  # seconds; idle OpenMP threads spin for a while after their last work


def seconds(work: Callable[[], object], times: int) -> float:
    """Seconds a call, after a pause in which the last contender's threads go to sleep and a call that wakes ours."""
    time.sleep(PAUSE)
    work()
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times
