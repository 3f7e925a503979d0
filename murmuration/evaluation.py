"""What an ensemble is worth on examples it has not seen: the numbers behind `metrics.json` and the report."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from murmuration.data import Data, Preparation, Split, Task, open_split, preparation_from_json
from murmuration.ensemble import STREAM, Ensemble
from murmuration.metrics import Evaluation, Score
from murmuration.metrics.evaluation import split as in_pieces
from murmuration.predictive import Predictive

TIMED = 1000  # inputs whose prediction is timed, at most


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


def exam_of(data: Data) -> Exam:
    """The exam that the test split of a data set is."""
    sizes = {part: len(getattr(data, part)) for part in ("train", "val", "test")}
    return Exam(data.name, data.task, data.test, data.classes, data.preparation, sizes, data.fingerprint, data.train)


def exam_on(source: Any, manifest: Mapping[str, Any], target: str | tuple[str, ...] | None = None) -> Exam:
    """The exam that other examples are for a run: prepared as its own were, with its classes."""
    record = manifest["data"]
    task, classes = record["task"], tuple(record["classes"])
    preparation = preparation_from_json(record["preparation"])
    split = open_split(source, preparation=preparation, task=task, classes=classes, target=target)
    return Exam(str(source), task, split, classes, preparation, {"test": len(split)})


@dataclass(frozen=True, eq=False, repr=False)
class Assessment:
    """How an ensemble did in an exam, and what it costs."""

    name: str
    ensemble: Ensemble
    exam: Exam
    evaluation: Evaluation
    scores: dict[str, Score]
    cost: dict[str, float]  # seconds, parameters, ms_per_prediction, members

    def __repr__(self) -> str:
        return f"Assessment({self.name!r} on {self.exam.name!r}: {len(self.exam.split)} examples)"

    @property
    def trouble(self) -> dict[int, str]:
        """Members that fell during training -> what happened to them."""
        return {int(member): text for member, text in self.ensemble.manifest.get("trouble", {}).items()}

    @property
    def members(self) -> list[dict[str, float]]:
        """The scores of each member alone."""
        return member_scores(self.evaluation)

    def to_json(self) -> dict[str, Any]:
        """The record that `metrics.json` holds; numbers that are not finite are None."""
        exam = self.exam
        return finite(
            {
                "metrics": {name: score.to_json() for name, score in self.scores.items()},
                "cost": self.cost,
                "members": self.members,
                "trouble": {str(member): text for member, text in self.trouble.items()},
                "data": {
                    "name": exam.name,
                    "task": exam.task,
                    "examples": len(exam.split),
                    "fingerprint": exam.fingerprint,
                },
            }
        )


def assess(ensemble: Ensemble, data: Data | Exam, name: str | None = None) -> Assessment:
    """The assessment of an ensemble on a data set's test split, or on any exam; predictions are used up as they come.

    >>> import murmuration as mm
    >>> data = mm.open_data("two-moons")
    >>> found = assess(mm.fit("mlp", data, members=2, epochs=1), data)
    >>> found.scores["accuracy"] > 0.5, found.cost["members"]
    (True, 2)
    """
    exam = exam_of(data) if isinstance(data, Data) else data
    evaluation = Evaluation.from_chunks(answers(ensemble, exam.split))
    chosen = name or ensemble.recipe.name
    return Assessment(chosen, ensemble, exam, evaluation, evaluation.scores(), cost_of(ensemble, exam.split.x))


def answers(ensemble: Ensemble, split: Split) -> Iterator[tuple[Predictive, Tensor]]:
    """Pairs (predictive, y) of a few examples at a time, in order."""
    for predictive, y in zip(ensemble.stream(split.x), split.y.split(STREAM), strict=True):
        yield from in_pieces(predictive, y)


def cost_of(ensemble: Ensemble, x: Tensor) -> dict[str, float]:
    """What the ensemble took to train, takes to keep, and takes to ask about inputs like x (N, ...)."""
    return {
        "seconds": float(ensemble.manifest.get("seconds", math.nan)),
        "parameters": sum(flock.population.parameters_stored() for flock in ensemble.flocks),
        "ms_per_prediction": ms_per_prediction(ensemble, x[:TIMED]),
        "members": ensemble.members,
    }


def ms_per_prediction(ensemble: Ensemble, x: Tensor) -> float:
    """Milliseconds an input takes when inputs (N, ...) are predicted together; the better of two runs."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        ensemble.predict(x)
        times.append(time.perf_counter() - start)
    return 1e3 * min(times) / len(x)


def member_scores(evaluation: Evaluation) -> list[dict[str, float]]:
    """The scores of each member alone, in the members' order."""
    columns = evaluation.columns
    table = {"nll": -columns["member_log_prob"].mean(-1)}  # each (S,)
    if evaluation.task == "classification":
        table = {"accuracy": columns["member_correct"].mean(-1), **table, "brier": columns["member_brier"].mean(-1)}
    else:
        table = {"rmse": np.sqrt(columns["member_squared_error"].mean(-1)), **table}
    return [{name: float(values[i]) for name, values in table.items()} for i in range(len(table["nll"]))]


def finite(record: Any) -> Any:
    """The record with None for every number that JSON cannot hold.

    >>> finite({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if isinstance(record, dict):
        return {key: finite(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [finite(value) for value in record]
    return None if isinstance(record, float) and not math.isfinite(record) else record
