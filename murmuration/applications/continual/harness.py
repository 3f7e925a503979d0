"""A learner in a stream of tasks from the first batch to the last: scores, changes noticed, memory, checkpoints.

A run killed at any time continues from its last checkpoint with the same bits: batches are addressed by their step, and
a checkpoint holds all that a learner depends on. Checkpoints are safetensors and JSON.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from murmuration.applications.continual.accuracy import AccuracyMatrix
from murmuration.applications.continual.ensembles import HCLEnsemble, Identification
from murmuration.applications.continual.hcl import HCL
from murmuration.applications.continual.learner import Learner, State
from murmuration.applications.continual.methods import MethodSettings, method_named
from murmuration.applications.continual.task_streams import BatchPlan, TaskStream, batches, segment_starts
from murmuration.system.errors import Failure
from murmuration.system.files import digest_of, read_record, read_tensors, write_record, write_tensors

EVERY = 30.0  # seconds between checkpoints
POINTS = 200  # of the recorded losses
SHOWN = 8  # generated inputs of each task
Show = Callable[[str, int, int], None]


def silent(text: str, done: int, total: int) -> None:
    """Show no progress."""


@dataclass
class Progress:
    """What has been recorded of a run so far, as JSON holds it."""

    step: int = 0
    accuracy: list[list[float | None]] = field(default_factory=list)  # after each segment, on each task
    task_id: list[list[float | None]] = field(default_factory=list)  # fraction of inputs whose task is found
    events: list[list[int]] = field(
        default_factory=list
    )  # [step, task at hand from there on, by the learner's numbers]
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
        values = np.array(self.record["accuracy"]["accuracy"], dtype=float)
        return AccuracyMatrix(values, tuple(self.record["accuracy"]["examples"]))


def run_method(
    name: str,
    stream: TaskStream,
    plan: BatchPlan,
    settings: MethodSettings,
    *,
    place: Path | None = None,
    show: Show = silent,
    every: float = EVERY,
) -> Outcome:
    """Run a method, by name, on a stream of tasks.

    Args:
        name: A name of `METHODS`.
        stream: Stream of tasks.
        plan: Batches of the stream.
        settings: Settings of the methods.
        place: Directory for checkpoints, from which an interrupted run resumes.
        show: Progress callback `show(text, done, total)`.
        every: Seconds between checkpoints.

    Returns:
        The record of scores, and inputs drawn from flows.
    """
    method = method_named(name)
    stream, told = method.stream(stream, settings), method.is_told(settings)
    learner = method.build(stream, settings)
    return run_learner(learner, stream, method.plan(plan), told=told, place=place, show=show, every=every, name=name)


def run_learner(
    learner: Learner,
    stream: TaskStream,
    plan: BatchPlan,
    *,
    told: bool = False,
    place: Path | None = None,
    show: Show = silent,
    every: float = EVERY,
    name: str = "",
) -> Outcome:
    """Return a learner in a stream, told the task of every batch or not."""
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
            scores = evaluated(learner, stream, batch.segment, told, progress.counts)
            progress.accuracy.append(scores[0])
            progress.task_id.append(scores[1])
        if place is not None and (ends or time.monotonic() - saved >= every):
            progress.seconds = time.monotonic() - begun
            save(place, learner, progress, stream, plan)
            saved = time.monotonic()
    progress.seconds = time.monotonic() - begun
    return Outcome(record_of(learner, stream, plan, progress, starts, told), samples_of(learner))


def note_losses(progress: Progress, step: int, losses: dict[str, float], length: int) -> None:
    """Record losses; every so many steps their means."""
    progress.open.append(losses)
    if (step + 1) % length:
        return
    names = sorted({name for batch_losses in progress.open for name in batch_losses})
    means = {
        name: float(np.mean([batch_losses[name] for batch_losses in progress.open if name in batch_losses]))
        for name in names
    }
    progress.losses.append({"step": step + 1, **means})
    progress.open = []


def note_task(progress: Progress, step: int, task: int, found: int | None) -> None:
    """Record the task at hand by the learner's numbers."""
    if found is None:
        return
    if not progress.events or progress.events[-1][1] != found:
        progress.events.append([step, found])
    row = progress.counts.setdefault(str(found), {})
    row[str(task)] = row.get(str(task), 0) + 1


def evaluated(
    learner: Learner, stream: TaskStream, segment: int, told: bool, counts: dict[str, dict[str, int]]
) -> tuple[list[float | None], list[float | None]]:
    """Return accuracy and task-ID accuracy on the test examples of every task seen; None for the others.

    Where classes belong to one task, the task is that of the predicted class. Otherwise it is that which the learner
    names; its own numbers are translated to the task that most of their batches came from.
    """
    accuracy: list[float | None] = [None] * len(stream.tasks)
    task_id: list[float | None] = [None] * len(stream.tasks)
    for task in stream.seen(segment):
        test = stream.tasks[task].test
        labels, tasks = learner.classify(test.prepared)
        accuracy[task] = float((labels == test.y).double().mean())
        if stream.scenario == "class":
            own = torch.isin(labels, torch.tensor(stream.tasks[task].labels))
        elif (tasks < 0).all():
            continue
        else:
            meaning = meanings(counts)
            own = torch.tensor([(named if told else meaning.get(named, -1)) == task for named in tasks.tolist()])
        task_id[task] = float(own.double().mean())
    return accuracy, task_id


def identified(
    learner: HCLEnsemble, stream: TaskStream, told: bool, counts: dict[str, dict[str, int]]
) -> dict[str, float]:
    """Return the fraction of test inputs whose task is found, mean over tasks, by each way of identification."""
    meaning = meanings(counts)
    rates_by_way = {}
    for by in get_args(Identification):
        rates = []
        for task, task_data in enumerate(stream.tasks):
            named = learner.identify(task_data.test.prepared, by).tolist()
            rates.append(float(np.mean([(name if told else meaning.get(name, -1)) == task for name in named])))
        rates_by_way[by] = float(np.mean(rates))
    return rates_by_way


def meanings(counts: dict[str, dict[str, int]]) -> dict[int, int]:
    """Return the task of the stream that most batches of each of the learner's tasks came from."""
    return {int(learned): int(max(row, key=lambda task: row[task])) for learned, row in counts.items()}


@dataclass(frozen=True)
class Detection:
    """How the changes of a stream were noticed."""

    changes: list[dict[str, Any]]  # segment, task, recurring, delay in batches or None, right: the task was named so
    false_alarms: int

    @property
    def misses(self) -> int:
        return sum(change["delay"] is None for change in self.changes)

    @property
    def mean_delay(self) -> float:
        """In batches, over the changes that were noticed; NaN if none was."""
        delays = [change["delay"] for change in self.changes if change["delay"] is not None]
        return float(np.mean(delays)) if delays else math.nan

    def to_json(self) -> dict[str, Any]:
        recurring = [change for change in self.changes if change["recurring"]]
        return {
            "changes": self.changes,
            "false_alarms": self.false_alarms,
            "misses": self.misses,
            "mean_delay": self.mean_delay if math.isfinite(self.mean_delay) else None,
            "recurring": len(recurring),
            "recognised": sum(change["right"] for change in recurring),
        }


def detection_of(
    order: Sequence[int], starts: Sequence[int], events: Sequence[Sequence[int]], meaning: dict[int, int]
) -> Detection:
    """Return delays, misses and false alarms, from the true order of tasks and the tasks that a learner named.

    The first change that a learner notices in a segment is its detection, every other one a false alarm. It is right
    if it names an earlier task where one recurs, and a task of its own where none does.

    >>> found = detection_of([0, 1, 0], [0, 10, 20, 30], [[0, 0], [12, 1], [25, 0], [28, 2]], {0: 0, 1: 1, 2: 0})
    >>> [change["delay"] for change in found.changes], found.false_alarms, found.misses
    ([2, 5], 1, 0)
    """
    changes = []
    named: set[int] = {learned for step, learned in events if step < starts[1]}
    alarms = len([step for step, _ in events[1:] if step < starts[1]])
    for segment in range(1, len(order)):
        inside = [(step, learned) for step, learned in events if starts[segment] <= step < starts[segment + 1]]
        recurring = order[segment] in order[:segment]
        first = inside[0] if inside else None
        right = first is not None and (meaning.get(first[1]) == order[segment] if recurring else first[1] not in named)
        delay = None if first is None else first[0] - starts[segment]
        changes.append(
            {"segment": segment, "task": order[segment], "recurring": recurring, "delay": delay, "right": right}
        )
        named |= {learned for _, learned in inside}
        alarms += max(0, len(inside) - 1)
    return Detection(changes, alarms)


def record_of(
    learner: Learner, stream: TaskStream, plan: BatchPlan, progress: Progress, starts: list[int], told: bool
) -> dict[str, Any]:
    """Return the scores of a finished run."""
    values = np.array(progress.accuracy, dtype=float)
    matrix = AccuracyMatrix(values, tuple(len(task.test) for task in stream.tasks))
    named = [value for value in progress.task_id[-1] if value is not None]
    detection = None
    if progress.events and not told:
        order = [tasks[0] for tasks in stream.segments]
        detection = detection_of(order, starts, progress.events, meanings(progress.counts)).to_json()
    more: dict[str, Any] = {}
    first = learner.learners[0] if isinstance(learner, HCLEnsemble) else learner
    if isinstance(first, HCL):
        more = {"rejected": first.rejected / max(first.drawn, 1), "tasks_found": len(first.settled)}
    if isinstance(learner, HCLEnsemble):
        more |= {"identified": identified(learner, stream, told, progress.counts)}
    return {
        "accuracy": matrix.to_json(),
        "task_id": {"accuracy": progress.task_id, "final_average": float(np.mean(named)) if named else None},
        "detection": detection,
        "told": told,
        "events": progress.events,
        "counts": progress.counts,
        "starts": starts,
        "losses": progress.losses,
        "memory": learner.memory(),
        "steps": progress.step,
        "seconds": progress.seconds,
        **more,
    }


def samples_of(learner: Learner) -> dict[int, Tensor]:
    """Return inputs (n, ...) drawn from each task of a flow; none of other learners."""
    first = learner.learners[0] if isinstance(learner, HCLEnsemble) else learner
    if not isinstance(first, HCL):
        return {}
    return {task: first.generated(task, SHOWN) for task in sorted(first.settled)}


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
        raise Failure(
            f"{place} holds a checkpoint of another stream, or the data has changed: choose another directory"
        )
    learner.restore(State(read_tensors(place / record["file"], record["sha256"]), record["facts"]))
    return Progress(**record["progress"])


def identity(stream: TaskStream, plan: BatchPlan) -> dict[str, Any]:
    """Return what has to be the same for a run to continue."""
    return {"data": stream.fingerprint, "segments": [list(s) for s in stream.segments], "plan": vars(plan)}
