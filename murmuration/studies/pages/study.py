"""A study of the loss landscape around the members of an ensemble: what it works on, and what it leaves.

A study computes a record by functions of `murmuration.studies`; its page, figures and sentences follow from it.
Pieces that are computed are kept in a folder, so that a killed study can continue.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from murmuration.data import Data, Split, open_inputs
from murmuration.prediction.ensemble import Ensemble
from murmuration.reports.figures import Figure
from murmuration.reports.html import Markup
from murmuration.reports.page import framed
from murmuration.studies.landscape import Show, silent
from murmuration.studies.trajectory import Trajectory
from murmuration.studies.weight_space import PointOutputs, points_of
from murmuration.system.errors import Misuse

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Choices:
    """What can be chosen; each study uses some of them."""

    anchors: tuple[int, ...] = (0, 1)  # members by number
    grid: int = 21  # points a side of the plane
    samplers: tuple[str, ...] = ()  # (): all that the run allows
    samples: int | None = None  # of every sampler and member; None: the number of the authors' notebook
    beside: Mapping[str, Ensemble] = field(default_factory=dict)  # other runs in the same figures
    ood: Mapping[str, Split] = field(default_factory=dict)  # out-of-distribution inputs by name
    severities: tuple[int, ...] = ()  # of corruptions
    runs: int = 3  # networks of every cell of the factorial
    rates: tuple[float, ...] = (4e-4, 8e-4, 1.6e-3, 3.2e-3)  # learning rates of the factorial
    epochs: int = 10  # of the factorial


@dataclass(frozen=True)
class Subject:
    """What a study works on."""

    ensemble: Ensemble
    data: Data
    test: Split  # examples that networks are scored on
    trajectory: Trajectory | None = None
    choices: Choices = field(default_factory=Choices)
    folder: Path | None = None  # for computed pieces
    show: Show = silent

    @property
    def train(self) -> Split:
        """The training examples, prepared: losses and batch-norm statistics are computed from them."""
        return replace(self.data.train, x=None)

    def piece(self, name: str) -> Path | None:
        """Return the folder of one analysis out of several."""
        return None if self.folder is None else self.folder / name


@dataclass(frozen=True)
class Records:
    """Records of several analyses as one."""

    parts: Mapping[str, Any]  # each has frame() and to_json()

    def to_json(self) -> dict[str, Any]:
        return {name: part.to_json() for name, part in self.parts.items()}

    def frame(self) -> "pd.DataFrame":
        """Return the rows of all parts, with the name of the part in the last column."""
        import pandas as pd

        return pd.concat([part.frame().assign(part=name) for name, part in self.parts.items()], ignore_index=True)


@dataclass(frozen=True)
class Outcome:
    """What a study found."""

    record: Any  # has frame() and to_json()
    body: Markup  # sections of the page
    figures: Sequence[Figure]
    sentences: Sequence[str]

    def page(self, title: str, subtitle: str) -> str:
        return framed(title, subtitle, self.body)


@dataclass(frozen=True)
class Study:
    """One study: the title of its page, the choices it takes, how many networks it evaluates, and how it runs."""

    title: str
    choices: tuple[str, ...]
    networks: Callable[[Subject], float]  # evaluations of a network on all examples, roughly
    run: Callable[[Subject], Outcome]


def evaluation_seconds(subject: Subject, networks: float) -> float:
    """Return how long so many evaluations of a network will take, judged by four of them."""
    points = points_of(subject.ensemble)
    outputs = PointOutputs(points, subject.test.prepared, subject.train.prepared)
    list(outputs([points.vectors[0]]))
    start = time.perf_counter()
    count = sum(1 for _ in outputs([points.vectors[0]] * 4))
    return (time.perf_counter() - start) / count * networks


def ood_splits(sources: Sequence[str], ensemble: Ensemble) -> dict[str, Split]:
    """Return out-of-distribution inputs by name, adapted and prepared like those of training; they have no targets."""
    splits = {}
    if ensemble.preparation is None:
        raise Misuse("the networks have no preparation: out-of-distribution inputs must be given as tensors")
    for source in sources:
        x = open_inputs(source, preparation=ensemble.preparation, adapt=True)
        splits[Path(source).name] = Split(None, torch.zeros(len(x), dtype=torch.int64), x)
    return splits
