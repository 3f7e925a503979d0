"""Streams of tasks: the classes of one data set a few at a time, or several data sets one after another.

| written as | tasks |
|---|---|
| `split:digits:5x2` | 5 tasks of 2 classes each, in the order of the labels; also `split:digits:0+1/4+7`, by name |
| `a.csv b.csv c.csv` | one task for each data set, of any format that the library reads |

In the scenario `class` no label stands in two tasks; in `domain` tasks share their labels, so that only the inputs tell
them apart (van de Ven et al. 2022). A split in the scenario `domain` has labels 0, 1, ... inside each task. Inputs are
prepared by statistics of the first task alone: later tasks are not known when it begins.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from murmuration.applications.continual.settings import BatchPlan as BatchPlan
from murmuration.data import ImagePreparation, Preparation, Split
from murmuration.data.dataset import encode_targets, fit_preparation
from murmuration.data.formats import load_source
from murmuration.data.inputs import prepare_raw
from murmuration.data.raw import LoadOptions, RawData, take
from murmuration.data.splits import split_rows
from murmuration.system.errors import Misuse, listed, require_integer, unknown
from murmuration.system.streams import generator

Scenario = Literal["class", "domain"]
SPLIT = "split:"
USAGE = "split:DATA:5x2, split:DATA:0+1/2+3, or several data sets"


@dataclass(frozen=True, eq=False)
class Task:
    """One task: prepared examples to learn from and to test on."""

    name: str
    labels: tuple[int, ...]
    train: Split
    test: Split


@dataclass(frozen=True, eq=False)
class TaskStream:
    """Tasks, and the order in which they are learned."""

    name: str
    tasks: tuple[Task, ...]
    classes: tuple[str, ...]  # names of the labels
    scenario: Scenario
    segments: tuple[tuple[int, ...], ...]  # tasks whose examples are learned together: one each, all for joint training
    preparation: Preparation
    fingerprint: str

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.tasks[0].train.prepared.shape[1:])

    @property
    def has_images(self) -> bool:
        """Whether inputs are images (C, H, W)."""
        return isinstance(self.preparation, ImagePreparation) and len(self.input_shape) == 3

    def joint(self) -> "TaskStream":
        """Return the same tasks, all learned at once."""
        return replace(self, segments=(tuple(range(len(self.tasks))),))

    def flat(self) -> "TaskStream":
        """Return the same tasks with inputs (N, D)."""
        flat = len(self.input_shape) == 1
        return self if flat else replace(self, tasks=changed(self.tasks, lambda x: x.flatten(1)))

    def seen(self, segment: int) -> list[int]:
        """Return the tasks of a segment and of those before it."""
        return sorted({*chain(*self.segments[: segment + 1])})

    def segment_rows(self, segment: int) -> tuple[Tensor, Tensor]:
        """Return inputs (N, ...) and labels (N,) to learn from.

        A task that comes n times shows other examples each time.
        """
        occurrences, before = (Counter(chain(*segments)) for segments in (self.segments, self.segments[:segment]))
        parts = [self.tasks[task].train[before[task] :: occurrences[task]] for task in self.segments[segment]]
        return torch.cat([part.prepared for part in parts]), torch.cat([part.y for part in parts])


class Batch(NamedTuple):
    """Some examples of one segment."""

    step: int  # from the start of the stream
    segment: int
    x: Tensor  # (N, ...)
    y: Tensor  # (N,) int64


def segment_starts(stream: TaskStream, plan: BatchPlan) -> list[int]:
    """Return the first step of every segment, and the number of all steps."""
    labels = [stream.segment_rows(segment)[1] for segment in range(len(stream.segments))]
    return list(accumulate((plan.epochs * math.ceil(len(y) / plan.batch_size) for y in labels), initial=0))


def batches(stream: TaskStream, plan: BatchPlan, start: int = 0) -> Iterator[Batch]:
    """Yield the batches of a stream from a step on: a batch is the same wherever one starts.

    An epoch is cut into batches of almost equal size: a small last one would have untypical statistics.
    """
    for segment, begin in enumerate(segment_starts(stream, plan)[:-1]):
        x, y = stream.segment_rows(segment)
        count = math.ceil(len(y) / plan.batch_size)
        for epoch in range(max(0, start - begin) // count, plan.epochs):
            order = torch.randperm(len(y), generator=generator(plan.seed, "batches", segment, epoch))
            for step, rows in enumerate(torch.tensor_split(order, count), begin + epoch * count):
                if step >= start:
                    yield Batch(step, segment, x[rows], y[rows])


def open_stream(
    sources: str | Sequence[Any],
    *,
    scenario: Scenario | None = None,
    order: Sequence[int] | None = None,
    target: str | None = None,
    prepare: Any = "standardise",
    size: tuple[int, int] | None = None,
    drop: Sequence[str] = (),
    project: int | None = None,
    examples: int | None = None,
    seed: int = 0,
) -> TaskStream:
    """Open a stream of tasks from `split:DATA:5x2` or from several data sets with rows to train on and to test on.

    Args:
        sources: A text `split:DATA:GROUPS`, or several data sets.
        scenario: "class" if every task has its own classes, "domain" if all have the same labels; inferred by default.
        order: Numbers of tasks, from 1, in which a task may recur; by default every task once.
        target: Target column of tables.
        prepare: Scaling of the inputs, by the statistics of the first task.
        size: Size of images.
        drop: Columns of tables to leave out.
        project: Dimensions of a random projection of the inputs.
        examples: Largest number of training examples of a task.
        seed: Random seed.

    Returns:
        The stream.

    Raises:
        Misuse: For tasks with fewer than two classes, without examples, or with inputs that do not fit the first.

    >>> stream = open_stream("split:digits:5x2")
    >>> [task.name for task in stream.tasks], stream.input_shape
    (['0, 1', '2, 3', '4, 5', '6, 7', '8, 9'], (1, 8, 8))
    """
    opened = [sources] if isinstance(sources, str) else list(sources)
    if scenario is not None and scenario not in get_args(Scenario):
        raise unknown("scenario", scenario, get_args(Scenario))
    options = LoadOptions(target, seed, size=size, drop=tuple(drop), in_memory=True)
    if len(opened) == 1:
        kind = scenario or "class"
        parts, classes, name = split_parts(opened[0], options, kind)
    elif any(isinstance(source, str) and source.startswith(SPLIT) for source in opened):
        raise Misuse(f"{listed(map(str, opened))}: expected one split:DATA:5x2 alone, or several data sets")
    else:
        parts, classes, name = listed_parts(opened, options)
        kind = scenario or scenario_of(parts)
    check_labels(parts, kind, classes)
    tasks, preparation = prepared_tasks(parts, prepare, examples, seed)
    if project is not None:
        tasks = projected(tasks, project, seed)
    digests = "".join(dict.fromkeys(part.digest for part in parts))
    return TaskStream(name, tasks, classes, kind, segments_of(order, len(tasks)), preparation, digests)


class Part(NamedTuple):
    """One task before its inputs are prepared."""

    name: str
    raw: RawData
    labels: tuple[int, ...]
    train: tuple[Any, Tensor]  # raw inputs (N, ...) and labels (N,)
    test: tuple[Any, Tensor]
    digest: str  # of the data set it comes from


def loaded(source: Any, options: LoadOptions) -> tuple[Part, tuple[str, ...]]:
    """Return a data set as one task of all its classes, and their names."""
    name, raw = load_source(source, options)
    integers = all(getattr(part.targets, "dtype", np.dtype(float)).kind in "iu" for part in raw.parts.values())
    # Whole numbers are classes here.
    task, classes, targets = encode_targets(raw, "classification" if integers else None)
    if task != "classification":
        raise Misuse(f"{name} is {task}: a stream of tasks needs a target of classes")
    labels = {part: y.numpy() for part, y in targets.items()}
    rows = split_rows(labels, options.seed, val=None if "val" in raw.parts else 0.0)
    pairs = []
    for split, indices in (rows["train"], rows["test"]):
        pairs.append((take(raw.parts[split].inputs, indices), targets[split][torch.from_numpy(indices)]))
    train, test = pairs
    return Part(name, raw, tuple(range(len(classes))), train, test, raw.fingerprint()), classes


def split_parts(text: Any, options: LoadOptions, scenario: Scenario) -> tuple[list[Part], tuple[str, ...], str]:
    """Return the tasks of `split:DATA:GROUPS`, the names of the labels and that of the stream."""
    if not isinstance(text, str) or not text.startswith(SPLIT) or text.count(":") < 2:
        raise Misuse(f"'{text}' is one data set, which is one task: write {USAGE}")
    source, _, groups = text.removeprefix(SPLIT).rpartition(":")
    whole, classes = loaded(source, options)
    members, parts = class_groups(groups, classes, text), []
    for group in members:
        names = ", ".join(classes[label] for label in group)
        train, test = (with_labels(x, y, group, scenario) for x, y in (whole.train, whole.test))
        labels = group if scenario == "class" else tuple(range(len(group)))
        parts.append(whole._replace(name=names, labels=labels, train=train, test=test))
    if scenario == "domain":
        classes = tuple(map(str, range(max(map(len, members)))))
    return parts, classes, f"split:{whole.name}:{groups}"


def with_labels(x: Any, y: Tensor, group: tuple[int, ...], scenario: Scenario) -> tuple[Any, Tensor]:
    """Return the rows whose label is in a group; for domains, the label is its place in the group."""
    rows = torch.isin(y, torch.tensor(group)).nonzero().flatten()
    labels = y[rows]
    if scenario == "domain":
        labels = (labels[:, None] == torch.tensor(group)).int().argmax(1)
    return take(x, rows.numpy()), labels


def class_groups(text: str, classes: tuple[str, ...], stream: str) -> list[tuple[int, ...]]:
    """Return the labels of each task: of `5x2` the first ten classes, two by two; of `cat+dog/cow+hen` those named.

    >>> class_groups("2x2", tuple("abcd"), "split:x:2x2"), class_groups("a+d/b+c", tuple("abcd"), "")
    ([(0, 1), (2, 3)], [(0, 3), (1, 2)])
    """
    counted = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if counted:
        tasks, per_task = map(int, counted.groups())
        if tasks * per_task > len(classes):
            shortage = f"'{stream}' asks for {tasks * per_task} classes, and the data has {len(classes)}"
            fitting = f"{max(1, len(classes) // per_task)}x{per_task}"
            raise Misuse(f"{shortage}: it would end in the middle; write {fitting}")
        return [tuple(range(task * per_task, (task + 1) * per_task)) for task in range(tasks)]
    groups = [tuple(name.strip() for name in group.split("+")) for group in text.split("/")]
    if len(groups) == 1:
        raise Misuse(f"'{stream}' ends in '{text}': expected tasks x classes such as 5x2, or names such as 0+1/2+3")
    for name in (name for group in groups for name in group):
        if name not in classes:
            raise unknown("class", name, classes)
    return [tuple(classes.index(name) for name in group) for group in groups]


def listed_parts(sources: Sequence[Any], options: LoadOptions) -> tuple[list[Part], tuple[str, ...], str]:
    """Return one task for each data set, with labels by the names of their classes, and the name of the stream."""
    if not sources:
        raise Misuse(f"no data: write {USAGE}")
    opened = []
    for place, source in enumerate(sources):
        try:
            opened.append(loaded(source, options))
        except Misuse as error:
            named = f" ({source})" if isinstance(source, str | Path) else ""
            raise Misuse(f"task {place + 1}{named}: {error}") from None
    classes = tuple(dict.fromkeys(name for _, names in opened for name in names))
    parts = []
    for part, names in opened:
        table = torch.tensor([classes.index(label) for label in names])
        train, test = ((x, table[y]) for x, y in (part.train, part.test))
        parts.append(part._replace(labels=tuple(train[1].unique().tolist()), train=train, test=test))
    return parts, classes, " ".join(part.name for part in parts)


def scenario_of(parts: Sequence[Part]) -> Scenario:
    """Return domains if all tasks have the same labels, classes if no two have one in common.

    Else it has to be said.
    """
    groups = [set(part.labels) for part in parts]
    if all(group == groups[0] for group in groups):
        return "domain"
    if sum(map(len, groups)) == len(set.union(*groups)):
        return "class"
    raise Misuse("the tasks have some labels in common and others not: write scenario='domain' if that is meant")


def check_labels(parts: Sequence[Part], scenario: Scenario, classes: tuple[str, ...]) -> None:
    """Refuse tasks with fewer than two classes, without examples, and labels of two tasks where each has its own."""
    owner: dict[int, int] = {}
    for place, part in enumerate(parts):
        number = f"task {place + 1} ({part.name})"
        for kind, (_, y) in (("train on", part.train), ("test on", part.test)):
            if not len(y):
                raise Misuse(f"{number} has no examples to {kind}: expected some of every task")
        labels = set(part.train[1].tolist())
        if len(labels) < 2:
            raise Misuse(f"{number} has one class, {classes[min(labels)]}: expected at least 2 in every task")
        for label in part.labels if scenario == "class" else ():
            if label in owner:
                both = f"class {classes[label]} is in tasks {owner[label] + 1} and {place + 1}"
                raise Misuse(f"{both}: expected a class in one task, or scenario='domain'")
            owner[label] = place


def prepared_tasks(
    parts: Sequence[Part], prepare: Any, examples: int | None, seed: int
) -> tuple[tuple[Task, ...], Preparation]:
    """Prepare the inputs of all tasks by the statistics of the first; keep at most `examples` to train on."""
    if examples is not None:
        require_integer("examples", examples, 2)
    preparation = fit_preparation(parts[0].raw, parts[0].train[0], prepare, None)
    tasks = []
    for place, part in enumerate(parts):
        x, y = part.train
        if examples is not None and len(y) > examples:
            order = torch.randperm(len(y), generator=generator(seed, "examples", place))[:examples].sort().values
            x, y = take(x, order.numpy()), y[order]
        try:
            both = [Split(prepare_raw(inputs, part.raw.peak, preparation), y) for inputs, y in ((x, y), part.test)]
        except Misuse as error:
            raise Misuse(f"task {place + 1} ({part.name}) does not fit task 1: {error}") from None
        tasks.append(Task(part.name, part.labels, *both))
    return tuple(tasks), preparation


def projected(tasks: Sequence[Task], dimensions: int, seed: int) -> tuple[Task, ...]:
    """Return the tasks with flat inputs (N, dimensions), by one random projection with orthonormal rows."""
    width = math.prod(tasks[0].train.prepared.shape[1:])
    if not 2 <= dimensions <= width:
        raise Misuse(f"project={dimensions}: expected at least 2 and at most {width}, the width of the inputs")
    gaussian = torch.randn(width, dimensions, generator=generator(seed, "draws", 0), dtype=torch.float64)
    matrix = torch.linalg.qr(gaussian).Q.float()  # (D, d)
    return changed(tasks, lambda x: x.flatten(1) @ matrix)


def changed(tasks: Sequence[Task], change: Callable[[Tensor], Tensor]) -> tuple[Task, ...]:
    """Return the tasks with a function applied to all inputs."""
    splits = ([Split(change(split.prepared), split.y) for split in (task.train, task.test)] for task in tasks)
    return tuple(replace(task, train=train, test=test) for task, (train, test) in zip(tasks, splits, strict=True))


def segments_of(order: Sequence[int] | None, tasks: int) -> tuple[tuple[int, ...], ...]:
    """Return the segments of a stream: every task once, or those of an order."""
    if order is None:
        return tuple((task,) for task in range(tasks))
    text = ",".join(map(str, order))
    if not order or any(not 1 <= task <= tasks for task in order):
        raise Misuse(f"order={text}: expected numbers of tasks, 1 to {tasks}")
    repeated = [a for a, b in pairwise(order) if a == b]
    if repeated:
        raise Misuse(f"order={text}: task {repeated[0]} follows itself; expected another task after each")
    unseen = sorted(set(range(1, tasks + 1)) - set(order))
    if unseen:
        raise Misuse(f"order={text} leaves out task {unseen[0]}: expected every task at least once")
    return tuple((task - 1,) for task in order)
