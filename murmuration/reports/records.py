"""What a report holds: plain numbers and text in frozen records, so that anything can fill them.

Missing numbers are NaN, an empty tuple, or None for a whole record: a section without data is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from murmuration.errors import Misuse, unknown
from murmuration.evaluation.weight_diagnosis import Diagnosis
from murmuration.reports.coupling_records import Meetings
from murmuration.reports.doubt_records import Doubts
from murmuration.reports.measured import (
    KINDS,
    Histogram,
    Numbers,
    Reliability,
    RiskCoverage,
    Score,
    check_scores,
    same_length,
)
from murmuration.reports.pruning_records import Pruned
from murmuration.reports.trust_records import Trust


@dataclass(frozen=True)
class DataCard:
    """The data set a report is about."""

    name: str
    fingerprint: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)  # split -> number of examples
    classes: tuple[str, ...] = ()  # empty for regression
    target: str = ""  # what a regression predicts, with its unit


@dataclass(frozen=True)
class Cost:
    """What a recipe costs to train, to keep and to ask."""

    seconds: float = np.nan
    parameters: float = np.nan
    ms_per_prediction: float = np.nan
    members: float = np.nan


@dataclass(frozen=True)
class Parity:
    """Regression predictions against the truth, with the predicted standard deviation (all (N,))."""

    truth: Numbers
    mean: Numbers
    std: Numbers = ()

    def __post_init__(self) -> None:
        same_length("parity", truth=self.truth, mean=self.mean, **({"std": self.std} if len(self.std) else {}))


@dataclass(frozen=True)
class Field1D:
    """A regression over a line: mean and both standard deviations on a grid (G,), training points (N,)."""

    x: Numbers
    mean: Numbers
    aleatoric_std: Numbers
    epistemic_std: Numbers
    train_x: Numbers = ()
    train_y: Numbers = ()

    def __post_init__(self) -> None:
        stds = {"aleatoric_std": self.aleatoric_std, "epistemic_std": self.epistemic_std}
        same_length("field", x=self.x, mean=self.mean, **stds)
        same_length("field", train_x=self.train_x, train_y=self.train_y)


@dataclass(frozen=True)
class Field2D:
    """An uncertainty over a plane: values (H, W) on the grid y (H,) by x (W,), and training points (N, 2)."""

    x: Numbers
    y: Numbers
    values: NDArray[Any]
    name: str = "entropy"
    points: NDArray[Any] | None = None  # (N, 2)
    labels: Numbers = ()  # (N,) class indices

    def __post_init__(self) -> None:
        if np.shape(self.values) != (len(self.y), len(self.x)):
            raise Misuse(
                f"field '{self.name}': values of shape {np.shape(self.values)} on a grid of {len(self.y)} "
                f"y by {len(self.x)} x; give values of shape (len(y), len(x))"
            )
        if self.points is not None:
            same_length("field", points=self.points, **({"labels": self.labels} if len(self.labels) else {}))


@dataclass(frozen=True)
class Entry:
    """One recipe: what it is, how well it did, what it cost and how it got there."""

    name: str
    answers: Mapping[str, str] = field(default_factory=dict)  # sharing, weights, coupling, dynamics -> text
    scores: Mapping[str, Score] = field(default_factory=dict)
    reliability: Reliability | None = None
    risk_coverage: RiskCoverage | None = None
    histograms: tuple[Histogram, ...] = ()
    cost: Cost | None = None
    history: Sequence[Mapping[str, Any]] = ()  # {"epoch": 1, "train_loss": [M], "val_nll": [M], "ensemble": {...}}
    draws: int = 1  # answers of each member to an input
    agreement: NDArray[Any] | None = None  # (M, M) share of examples two members label alike, or a correlation
    members: Sequence[Mapping[str, float]] = ()  # scores of each member alone
    frozen: Mapping[int, str] = field(default_factory=dict)  # member that stopped early -> why
    parity: Parity | None = None
    field: Field1D | Field2D | None = None
    trust: Trust | None = None
    meetings: Meetings | None = None  # of members that repel each other
    doubts: Doubts | None = None  # why it is unsure, of a classification
    weights: Diagnosis | None = None  # what became of weights that are distributions
    pruned: Pruned | None = None  # how, if weights were left out

    def __post_init__(self) -> None:
        check_scores(self.name, self.scores)
        shape = np.shape(self.agreement) if self.agreement is not None else (0, 0)
        if len(shape) != 2 or shape[0] != shape[1]:
            raise Misuse(f"agreement of '{self.name}' has shape {shape}; give a square matrix (S, S)")


@dataclass(frozen=True)
class Example:
    """One test example, shown because the ensemble was unsure of it."""

    label: str  # the truth, as text
    prediction: str
    image: NDArray[np.uint8] | None = None  # (H, W) or (H, W, C) with C in 1, 3, 4
    row: Mapping[str, Any] = field(default_factory=dict)  # column -> value
    measures: Mapping[str, float] = field(default_factory=dict)  # confidence, entropy, mutual_information, std
    votes: Mapping[str, int] = field(default_factory=dict)  # class -> members that chose it
    member_predictions: Numbers = ()  # regression: each member's mean
    index: int | None = None  # position in the test split


@dataclass(frozen=True)
class Report:
    """Everything one HTML file says."""

    title: str
    task: Literal["classification", "regression"]
    data: DataCard
    entries: tuple[Entry, ...]
    examples: tuple[Example, ...] = ()
    examples_of: str = ""  # the recipe whose uncertainty ranked the examples
    doubtful: Mapping[str, tuple[Example, ...]] = field(default_factory=dict)  # uncertainty -> those with most of it
    doubtful_of: str = ""  # the recipe whose uncertainty these are
    notes: tuple[str, ...] = ()
    directions: Mapping[str, Literal["higher", "lower", "neutral"]] = field(default_factory=dict)  # of new scores
    interval: str = "95 %"  # what the intervals of the scores hold
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    seeds: Sequence[int] = ()
    date: str = ""

    def __post_init__(self) -> None:
        tasks = ("classification", "regression")
        if self.task not in tasks:
            raise unknown("task", str(self.task), tasks)
        names = [entry.name for entry in self.entries]
        if not names:
            raise Misuse("a report without entries: give at least one Entry")
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise Misuse(f"two entries are named '{repeated[0]}': give every entry its own name")
        for entry in self.entries:
            kind = entry.reliability.kind if entry.reliability is not None else KINDS[self.task][0]
            if kind not in KINDS[self.task]:
                raise Misuse(
                    f"reliability of '{entry.name}' is of kind '{kind}' in a report on {self.task}; "
                    f"give kind={' or '.join(map(repr, KINDS[self.task]))}"
                )


__all__ = [
    "Cost",
    "DataCard",
    "Entry",
    "Example",
    "Field1D",
    "Field2D",
    "Histogram",
    "Meetings",
    "Numbers",
    "Parity",
    "Reliability",
    "Report",
    "RiskCoverage",
    "Score",
    "Trust",
]
