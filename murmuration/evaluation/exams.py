"""Examples that ensembles are judged by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from murmuration.data import Data, Preparation, Split, Task, open_split, preparation_from_json


@dataclass(frozen=True)
class Exam:
    """Examples that ensembles are judged by, and what it takes to show them to a person."""

    name: str
    task: Task
    split: Split
    classes: tuple[str, ...]  # empty for regression
    preparation: Preparation
    sizes: Mapping[str, int] = field(default_factory=dict)  # part -> number of examples
    fingerprint: str = ""
    train: Split | None = None  # what was learned from, where it is at hand
    val: Split | None = None  # what post-hoc steps may be fitted on, where it is at hand


def exam_of(data: Data) -> Exam:
    """The exam that the test split of a data set is."""
    sizes = {part: len(getattr(data, part)) for part in ("train", "val", "test")}
    return Exam(
        data.name,
        data.task,
        data.test,
        data.classes,
        data.preparation,
        sizes,
        data.fingerprint,
        data.train,
        data.val,
    )


def exam_on(source: Any, manifest: Mapping[str, Any], target: str | tuple[str, ...] | None = None) -> Exam:
    """The exam that other examples are for a run: prepared as its own were, with its classes."""
    record = manifest["data"]
    task, classes = record["task"], tuple(record["classes"])
    preparation = preparation_from_json(record["preparation"])
    split = open_split(source, preparation=preparation, task=task, classes=classes, target=target)
    return Exam(str(source), task, split, classes, preparation, {"test": len(split)})
