"""Which task a batch comes from, when nobody says: typicality of a few statistics of the batch.

For every task the values of the statistics on its last batches are kept. A batch whose statistics all lie within
`threshold` standard deviations of their means is typical for the task, above and below alike: a flow may give a higher
density to data of another kind (Nalisnick et al. 2019). With `rule="dose"` a batch is scored by the sum of the log
densities of its statistics, each estimated from the batches before (DoSE, Morningstar et al. 2021).
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from murmuration.applications.continual.settings import Expected
from murmuration.system.errors import Misuse
from murmuration.system.settings import check_settings

Change = Literal["same", "recurring", "new", "unsure"]
FLOOR = 1e-6  # of a standard deviation
RULE = Expected("deviation or dose", lambda rule: rule in ("deviation", "dose"))
DEVIATIONS = Expected("a positive number of standard deviations, such as 5", lambda value: value > 0)


def at_least(least: int) -> Expected:
    return Expected(f"a whole number, at least {least}", lambda value: value >= least)


@dataclass(frozen=True)
class DetectionConfig:
    """Settings of the detector."""

    window: Annotated[int, at_least(2)] = 100  # batches that statistics are remembered for
    threshold: Annotated[float, DEVIATIONS] = 5.0  # standard deviations
    warmup: Annotated[int, at_least(0)] = 100  # batches of a new task that are not tested: statistics move fast
    confirm: Annotated[int, at_least(1)] = 2  # batches in a row that make a change
    rule: Annotated[str, RULE] = "deviation"

    def __post_init__(self) -> None:
        check_settings(self)


def deviation(values: Sequence[float], value: float) -> float:
    """Return how many standard deviations a value lies from the mean of some others.

    >>> round(deviation([10, 11, 9, 10.5, 9.5], 13), 4)
    3.7947
    """
    if len(values) < 2:
        return 0.0
    sample = np.asarray(values, dtype=float)
    return abs(value - float(sample.mean())) / max(float(sample.std(ddof=1)), FLOOR)


def dose_deviation(windows: Sequence[Sequence[float]], values: Sequence[float]) -> float:
    """Return how many standard deviations the DoSE score of a batch lies below the scores of the batches before.

    The score is the sum over statistics of log KDE(value), with Gaussian kernels of Silverman's bandwidth; each batch
    before is scored by the others.
    """
    history = np.asarray(windows, dtype=float)  # (statistics, batches)
    if history.shape[1] < 3:
        return 0.0
    width = 1.06 * np.maximum(history.std(1, ddof=1), FLOOR) * history.shape[1] ** -0.2
    scaled = (history - np.asarray(values, dtype=float)[:, None]) / width[:, None]  # (statistics, batches)
    among = (history[:, :, None] - history[:, None, :]) / width[:, None, None]
    among[:, np.arange(history.shape[1]), np.arange(history.shape[1])] = np.inf  # a batch does not score itself
    score = np.logaddexp.reduce(-(scaled**2) / 2, axis=1).sum()
    scores = np.logaddexp.reduce(-(among**2) / 2, axis=2).sum(0)
    return float((scores.mean() - score) / max(scores.std(ddof=1), FLOOR))


@dataclass
class TaskDetector:
    """The statistics of all tasks, and the task at hand; updated by every batch."""

    config: DetectionConfig = field(default_factory=DetectionConfig)
    task: int = 0
    seen: int = 0  # batches of the task at hand since it began
    suspicious: int = 0  # atypical batches in a row
    windows: dict[int, list[deque[float]]] = field(default_factory=dict)  # task -> a window for each statistic

    def distance(self, statistics: Sequence[float], task: int) -> float:
        """Return the largest deviation of the statistics of a batch from those of a task; 0 before there are any."""
        if task not in self.windows:
            return 0.0
        if self.config.rule == "dose":
            return dose_deviation(self.windows[task], statistics)
        return max(deviation(w, s) for w, s in zip(self.windows[task], statistics, strict=True))

    def is_typical(self, statistics: Sequence[float]) -> bool:
        """Return whether a batch with these statistics is taken as one of the task at hand."""
        return self.seen < self.config.warmup or self.distance(statistics, self.task) <= self.config.threshold

    def observe(self, by_task: Mapping[int, Sequence[float]]) -> Change:
        """Decide on a batch from its statistics under every known task, and under the task at hand.

        Returns:
            Whether it is of the task at hand, of a known one, of a new one, or not decided yet.
        """
        statistics = by_task[self.task]
        if not all(math.isfinite(value) for value in statistics):
            raise Misuse("a statistic of the batch is not finite: the flow has diverged")
        if self.is_typical(statistics):
            self.remember(statistics)
            return "same"
        self.suspicious += 1
        if self.suspicious < self.config.confirm:
            return "unsure"
        nearest = self.nearest({t: by_task[t] for t in self.windows if t != self.task and t in by_task})
        if nearest is not None:
            self.begin(nearest, known=True)
            self.remember(by_task[nearest])
            return "recurring"
        self.begin(max(self.windows, default=self.task) + 1, known=False)
        return "new"

    def nearest(self, by_task: Mapping[int, Sequence[float]]) -> int | None:
        """Return the task for which a batch is most typical, by its statistics; None if it is for none of them."""
        distances = {task: self.distance(statistics, task) for task, statistics in by_task.items()}
        task = min(distances, key=distances.__getitem__, default=None)
        return task if task is not None and distances[task] <= self.config.threshold else None

    def begin(self, task: int, *, known: bool) -> None:
        """Make a task the one at hand; a known one needs no warm-up."""
        self.task, self.suspicious = task, 0
        self.seen = self.config.warmup if known else 0

    def shift(self, task: int, by: Sequence[float]) -> None:
        """Add numbers to all statistics of a task: the flow has changed since they were taken."""
        for window, amount in zip(self.windows.get(task, []), by, strict=False):
            for place in range(len(window)):
                window[place] += amount

    def state(self) -> dict[str, Any]:
        """Return everything but the settings, as JSON holds it."""
        windows = {str(task): [list(window) for window in task_windows] for task, task_windows in self.windows.items()}
        return {"task": self.task, "seen": self.seen, "suspicious": self.suspicious, "windows": windows}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self.task, self.seen, self.suspicious = state["task"], state["seen"], state["suspicious"]
        length, stored = self.config.window, state["windows"].items()
        self.windows = {int(task): [deque(values, maxlen=length) for values in windows] for task, windows in stored}

    def remember(self, statistics: Sequence[float]) -> None:
        """Add the statistics of a batch to those of the task at hand."""
        windows = self.windows.setdefault(self.task, [deque(maxlen=self.config.window) for _ in statistics])
        for window, value in zip(windows, statistics, strict=True):
            window.append(float(value))
        self.seen, self.suspicious = self.seen + 1, 0
