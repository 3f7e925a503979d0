"""A learner in a stream of tasks from the first batch to the last: scores, changes noticed, memory, checkpoints.

A run killed at any time continues from its last checkpoint with the same bits: batches are addressed by their step, and
a checkpoint holds all that a learner depends on. Checkpoints are safetensors and JSON.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from murmuration.applications.continual.ensembles import HCLEnsemble, Identification
from murmuration.applications.continual.hcl import HCL
from murmuration.applications.continual.learner import Learner, State
from murmuration.applications.continual.methods import MethodSettings, fit_to_tasks, method_named
from murmuration.applications.continual.task_streams import BatchPlan, TaskStream, batches, segment_starts
from murmuration.system.errors import Failure, Misuse
from murmuration.system.files import digest_of, read_record, read_tensors, write_record, write_tensors

EVERY = 30.0  # seconds between checkpoints
POINTS = 200  # of the recorded losses
SHOWN = 8  # generated inputs of each task
Show = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class AccuracyMatrix:
    """Accuracy (S, T): row i after segment i of the stream, column j on task j; NaN until the task has been learned.

    >>> nan = float("nan")
    >>> matrix = AccuracyMatrix(np.array([[0.98, nan, nan], [0.90, 0.95, nan], [0.80, 0.85, 0.97]]))
    >>> round(matrix.final_average, 6), round(matrix.forgetting, 2)
    (0.873333, 0.14)
    """

    values: NDArray[np.float64]
    examples: tuple[int, ...] = ()  # test examples of each task, for the standard error

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or not self.values.size or np.isnan(self.values[-1]).any():
            expected = "one row for each segment and one column for each task, all known in the last row"
            raise Misuse(f"accuracies of shape {self.values.shape}: expected {expected}")

    @property
    def final_average(self) -> float:
        """The mean accuracy over all tasks at the end."""
        return float(np.mean(self.values[-1]))

    @property
    def standard_error(self) -> float:
        """Of the final average, by the test examples of each task; NaN if their numbers are not known."""
        last = self.values[-1]
        error = np.sqrt(np.sum(last * (1 - last) / np.array(self.examples))) / len(last) if self.examples else math.nan
        return float(error)

    @property
    def forgetting(self) -> float:
        """Accuracy on a task when first learned minus at the end, mean over tasks learned before the last row."""
        learned = np.argmax(~np.isnan(self.values), axis=0)  # (T,) the first row of each task
        earlier = learned < len(self.values) - 1
        lost = self.values[learned, np.arange(len(learned))] - self.values[-1]
        return float(lost[earlier].mean()) if earlier.any() else 0.0

    @property
    def largest_forgetting(self) -> float:
        """The best accuracy on a task at any time minus that at the end, mean over the same tasks."""
        earlier = ~np.isnan(self.values[:-1]).all(axis=0)
        if not earlier.any():
            return 0.0
        return float((np.nanmax(self.values[:, earlier], axis=0) - self.values[-1, earlier]).mean())

    def to_json(self) -> dict[str, Any]:
        rows = [[None if np.isnan(value) else float(value) for value in row] for row in self.values]
        names = ("final_average", "standard_error", "forgetting", "largest_forgetting")
        return {"accuracy": rows, "examples": list(self.examples), **{name: getattr(self, name) for name in names}}


@dataclass
class Progress:
    """What has been recorded of a run so far, as JSON holds it."""

    step: int = 0
    accuracy: list[list[float | None]] = field(default_factory=list)  # after each segment, on each task
    task_id: list[list[float | None]] = field(default_factory=list)  # fraction of inputs whose task is found
    events: list[list[int]] = field(default_factory=list)  # [step, task from there on, by the learner's numbers]
    counts: dict[str, dict[str, int]] = field(default_factory=dict)  # learner's task -> task of the stream -> batches
    losses: list[dict[str, float]] = field(default_factory=list)  # means over some steps, and the last step
    open: list[dict[str, float]] = field(default_factory=list)  # losses of which there is no mean yet
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The scores of a run, as JSON holds them, and inputs (n, ...) drawn from each task of a flow."""

    record: dict[str, Any]
    samples: dict[int, Tensor]

    @property
    def accuracy(self) -> AccuracyMatrix:
        """The matrix of `AccuracyMatrix.to_json`."""
        record = self.record["accuracy"]
        return AccuracyMatrix(np.array(record["accuracy"], dtype=float), tuple(record["examples"]))


def run_method(name: str, stream: TaskStream, plan: BatchPlan, settings: MethodSettings, **options: Any) -> Outcome:
    """Run a method, by name, on a stream of tasks.

    Args:
        name: A name of `METHODS`.
        stream: Stream of tasks.
        plan: Batches of the stream.
        settings: Settings of the methods.
        **options: `place`, `show` and `every` of `run_learner`.

    Returns:
        The record of scores, and inputs drawn from flows.
    """
    method = method_named(name)
    used, batch_plan = method.stream(stream, settings), method.plan(plan)
    if method.flow and not method.is_told(settings):
        starts = segment_starts(used, batch_plan)
        settings = fit_to_tasks(settings, [end - start for start, end in pairwise(starts)])
    learner = method.build(used, settings)
    return run_learner(learner, used, batch_plan, told=method.is_told(settings), name=name, **options)


def run_learner(
    learner: Learner,
    stream: TaskStream,
    plan: BatchPlan,
    *,
    told: bool = False,
    place: Path | None = None,
    show: Show = lambda text, done, total: None,
    every: float = EVERY,
    name: str = "",
) -> Outcome:
    """Run a learner on a stream of tasks.

    Args:
        learner: The learner.
        stream: Stream of tasks.
        plan: Batches of the stream.
        told: Whether the learner is told the task of every batch.
        place: Directory for checkpoints, from which an interrupted run resumes.
        show: Progress callback `show(text, done, total)`.
        every: Seconds between checkpoints.
        name: Name of the method, for the progress.

    Returns:
        The record of scores, and inputs drawn from flows.
    """
    starts = segment_starts(stream, plan)
    progress = Progress() if place is None else restored(place, learner, stream, plan)
    begun, saved = time.monotonic() - progress.seconds, time.monotonic()
    for batch in batches(stream, plan, progress.step):
        task = stream.segments[batch.segment][0]
        losses = learner.observe(batch.x, batch.y, task if told else None)
        note_losses(progress, batch.step, losses, max(1, starts[-1] // POINTS))
        note_task(progress, batch.step, task, learner.task)
        progress.step = batch.step + 1
        show(f"{name} task {batch.segment + 1}/{len(stream.segments)}".strip(), progress.step, starts[-1])
        ends = progress.step == starts[batch.segment + 1]
        if ends:
            meaning = None if told else meanings(progress.counts)
            scores = evaluated(learner, stream, batch.segment, meaning)
            progress.accuracy.append(scores[0])
            progress.task_id.append(scores[1])
        if place is not None and (ends or time.monotonic() - saved >= every):
            progress.seconds = time.monotonic() - begun
            save(place, learner, progress, stream, plan)
            saved = time.monotonic()
    progress.seconds = time.monotonic() - begun
    return outcome_of(learner, stream, progress, starts, told)


def note_losses(progress: Progress, step: int, losses: dict[str, float], length: int) -> None:
    """Record losses; every so many steps their means."""
    progress.open.append(losses)
    if (step + 1) % length:
        return
    names = sorted({name for terms in progress.open for name in terms})
    means = {name: float(np.mean([terms[name] for terms in progress.open if name in terms])) for name in names}
    progress.losses.append({"step": step + 1, **means})
    progress.open = []


def note_task(progress: Progress, step: int, task: int, learned: int | None) -> None:
    """Record the task at hand by the learner's numbers."""
    if learned is None:
        return
    if not progress.events or progress.events[-1][1] != learned:
        progress.events.append([step, learned])
    row = progress.counts.setdefault(str(learned), {})
    row[str(task)] = row.get(str(task), 0) + 1


def evaluated(
    learner: Learner, stream: TaskStream, segment: int, meaning: dict[int, int] | None
) -> tuple[list[float | None], list[float | None]]:
    """Return accuracy and task-ID accuracy on the test examples of every task seen; None for the others.

    Where classes belong to one task, the task is that of the predicted class. Otherwise it is that which the learner
    names; its own numbers are translated by their `meaning`.
    """
    accuracy: list[float | None] = [None] * len(stream.tasks)
    task_id: list[float | None] = [None] * len(stream.tasks)
    for task in stream.seen(segment):
        test = stream.tasks[task].test
        labels, tasks = learner.classify(test.prepared)
        accuracy[task] = float((labels == test.y).double().mean())
        if stream.scenario == "class":
            task_id[task] = float(torch.isin(labels, torch.tensor(stream.tasks[task].labels)).double().mean())
        elif not (tasks < 0).all():
            task_id[task] = identification_rate(tasks, task, meaning)
    return accuracy, task_id


def identification_rate(named: Tensor, task: int, meaning: dict[int, int] | None) -> float:
    """Return the fraction of inputs whose named task (N,) is a task of the stream."""
    return float(np.mean([(name if meaning is None else meaning.get(name)) == task for name in named.tolist()]))


def meanings(counts: dict[str, dict[str, int]]) -> dict[int, int]:
    """Return the task of the stream that most batches of each of the learner's tasks came from."""
    return {int(learned): int(max(row, key=lambda task: row[task])) for learned, row in counts.items()}


def detection_of(
    order: Sequence[int], starts: Sequence[int], events: Sequence[Sequence[int]], meaning: dict[int, int]
) -> dict[str, Any]:
    """Return delays, misses and false alarms, from the true order of tasks and the tasks that a learner named.

    The first change that a learner notices in a segment is its detection, every other one a false alarm. It is right
    if it names an earlier task where one recurs, and a task of its own where none does. Delays are in batches.

    >>> record = detection_of([0, 1, 0], [0, 10, 20, 30], [[0, 0], [12, 1], [25, 0], [28, 2]], {0: 0, 1: 1, 2: 0})
    >>> [change["delay"] for change in record["changes"]], record["false_alarms"], record["misses"]
    ([2, 5], 1, 0)
    """
    changes: list[dict[str, Any]] = []
    named = {learned for step, learned in events if step < starts[1]}
    alarms = sum(step < starts[1] for step, _ in events[1:])
    for segment in range(1, len(order)):
        inside = [(step, learned) for step, learned in events if starts[segment] <= step < starts[segment + 1]]
        recurring, delay, right = order[segment] in order[:segment], None, False
        if inside:
            step, learned = inside[0]
            delay = step - starts[segment]
            right = meaning.get(learned) == order[segment] if recurring else learned not in named
        change = {"segment": segment, "task": order[segment], "recurring": recurring, "delay": delay, "right": right}
        changes.append(change)
        named |= {learned for _, learned in inside}
        alarms += max(0, len(inside) - 1)
    delays = [change["delay"] for change in changes if change["delay"] is not None]
    recurring_right = [change["right"] for change in changes if change["recurring"]]
    mean_delay = float(np.mean(delays)) if delays else None
    counts = {"false_alarms": alarms, "misses": len(changes) - len(delays), "mean_delay": mean_delay}
    return {"changes": changes, **counts, "recurring": len(recurring_right), "recognised": sum(recurring_right)}


def outcome_of(learner: Learner, stream: TaskStream, progress: Progress, starts: list[int], told: bool) -> Outcome:
    """Return the scores of a finished run, and inputs drawn from each task of a flow."""
    values = np.array(progress.accuracy, dtype=float)
    matrix = AccuracyMatrix(values, tuple(len(task.test) for task in stream.tasks))
    last = [value for value in progress.task_id[-1] if value is not None]
    meaning, order = None if told else meanings(progress.counts), [tasks[0] for tasks in stream.segments]
    noticed = None if meaning is None or not progress.events else detection_of(order, starts, progress.events, meaning)
    task_id = {"accuracy": progress.task_id, "final_average": float(np.mean(last)) if last else None}
    record: dict[str, Any] = {"accuracy": matrix.to_json(), "task_id": task_id, "detection": noticed, "told": told}
    record |= {"events": progress.events, "counts": progress.counts, "starts": starts, "losses": progress.losses}
    record |= {"memory": learner.memory(), "steps": progress.step, "seconds": progress.seconds}
    flow = learner.learners[0] if isinstance(learner, HCLEnsemble) else learner
    if not isinstance(flow, HCL):
        return Outcome(record, {})
    record |= {"rejected": flow.rejected / max(flow.drawn, 1), "tasks_found": len(flow.settled)}
    if isinstance(learner, HCLEnsemble):
        record["identified"] = {}
        for by in get_args(Identification):
            named = [learner.identify(task.test.prepared, by) for task in stream.tasks]
            rates = [identification_rate(tasks, place, meaning) for place, tasks in enumerate(named)]
            record["identified"][by] = float(np.mean(rates))
    return Outcome(record, {task: flow.generated(task, SHOWN) for task in sorted(flow.settled)})


LATEST = "latest.json"


def save(place: Path, learner: Learner, progress: Progress, stream: TaskStream, plan: BatchPlan) -> None:
    """Write a checkpoint: the tensors, then the file that names them, then the older tensors go."""
    place.mkdir(parents=True, exist_ok=True)
    tensors, facts = learner.state()
    file = place / f"step-{progress.step}.safetensors"
    write_tensors(file, {name: tensor.clone() for name, tensor in tensors.items()})
    record = {"file": file.name, "sha256": digest_of(file), "facts": facts, "progress": vars(progress)}
    write_record(place / LATEST, record | {"stream": identity(stream, plan)})
    for old in place.glob("step-*.safetensors"):
        if old != file:
            old.unlink(missing_ok=True)


def restored(place: Path, learner: Learner, stream: TaskStream, plan: BatchPlan) -> Progress:
    """Return the progress of the last checkpoint, with the learner as it was then; nothing if there is none."""
    if not (place / LATEST).exists():
        return Progress()
    record = read_record(place / LATEST)
    if record["stream"] != identity(stream, plan):
        reason = "holds a checkpoint of another stream, or the data has changed"
        raise Failure(f"{place} {reason}: choose another directory")
    learner.restore(State(read_tensors(place / record["file"], record["sha256"]), record["facts"]))
    return Progress(**record["progress"])


def identity(stream: TaskStream, plan: BatchPlan) -> dict[str, Any]:
    """Return what has to be the same for a run to continue."""
    return {"data": stream.fingerprint, "segments": [list(s) for s in stream.segments], "plan": vars(plan)}
