"""What a report says of trust: under shift, on foreign inputs, calibrated, with sets, with a right to decline."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from murmuration.errors import Misuse
from murmuration.reports.measured import Histogram, Reliability, Score, check_scores

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class ShiftPoint:
    """Scores under one corruption at one severity."""

    corruption: str
    severity: int  # 1 to 5
    scores: Mapping[str, Score]

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise Misuse(
                f"severity {self.severity!r} of '{self.corruption}'; give a whole number from 1 to 5 "
                "(the clean scores are Shift.clean)"
            )
        check_scores(f"{self.corruption}, severity {self.severity}", self.scores)


@dataclass(frozen=True)
class Shift:
    """Scores under corruptions of growing severity: by corruption and severity, by corruption, and all together."""

    about: str  # "19 corruptions, 5 severities, 2,000 test examples"
    clean: Mapping[str, Score]  # severity 0
    points: tuple[ShiftPoint, ...]
    by_type: Mapping[str, Mapping[str, Score]]  # corruption -> mean over its severities
    pooled: Mapping[str, Score]  # mean over all corruptions and severities: cA, cNLL, cECE
    sheet: NDArray[Any] | None = None  # (H, W, 3) uint8: one example under every corruption
    by_severity: Mapping[int, Mapping[str, Score]] = field(default_factory=dict)  # mean over corruptions, if known
    sheet_about: str = ""  # what the rows and columns of the sheet are

    def __post_init__(self) -> None:
        check_scores("clean", self.clean)
        check_scores("all corruptions", self.pooled)
        for name, scores in [*self.by_type.items(), *self.by_severity.items()]:
            check_scores(str(name), scores)
        once("point of a shift", ((point.corruption, point.severity) for point in self.points))


@dataclass(frozen=True)
class Detection:
    """How well one uncertainty tells foreign inputs from familiar ones."""

    auroc: Score
    aupr: Score
    fpr95: Score

    def __post_init__(self) -> None:
        check_scores("detection", {"auroc": self.auroc, "aupr": self.aupr, "fpr95": self.fpr95})


@dataclass(frozen=True)
class Foreign:
    """One set of inputs that the ensemble should not know."""

    name: str
    examples: int
    detections: Mapping[str, Detection]  # name of the uncertainty -> how well it does
    histograms: tuple[Histogram, ...] = ()  # groups "familiar" and the set's name


@dataclass(frozen=True)
class Recalibrated:
    """Scores and reliability before and after a calibrator, on one set of examples."""

    where: str  # "test", "fog, severity 5"
    scores_before: Mapping[str, Score]
    scores_after: Mapping[str, Score]
    before: Reliability | None = None
    after: Reliability | None = None

    def __post_init__(self) -> None:
        check_scores(f"{self.where}, before", self.scores_before)
        check_scores(f"{self.where}, after", self.scores_after)
        kinds = [curve.kind for curve in (self.before, self.after) if curve is not None]
        if len(set(kinds)) > 1:
            raise Misuse(
                f"reliability on '{self.where}' is of kind '{kinds[0]}' before and '{kinds[1]}' after; give one kind"
            )


@dataclass(frozen=True)
class Calibration:
    """A calibrator fitted on examples that are not scored here."""

    method: str
    about: str  # "every logit divided by 1.37"
    fitted_on: int  # examples
    applied: bool  # whether the other numbers of the report are those after it
    changes: tuple[Recalibrated, ...]


@dataclass(frozen=True)
class Sets:
    """Prediction sets or intervals that promise to hold the truth with a probability `level`."""

    method: str
    level: float
    where: str  # "test", "digit=7", "fog, severity 5"
    coverage: Score
    size: Score  # mean number of classes, or mean width
    examples: int = 0
    verdict: str = "valid"  # under, valid or over

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise Misuse(f"level {self.level!r} of '{self.method}'; give a probability between 0 and 1, such as 0.9")
        check_scores(f"{self.method} on {self.where}", {"coverage": self.coverage, "size": self.size})


@dataclass(frozen=True)
class Rule:
    """A rule for when to decline, with its threshold chosen on other examples, and what it does on these."""

    name: str  # "error among the answered at most 1 %"
    uncertainty: str  # what is compared with the threshold
    threshold: float
    answered: Score  # share
    risk: Score  # error rate (or mean loss) among the answered
    cost: Score = (float("nan"),) * 3  # mean cost of an example, for rules that weigh costs
    where: str = "test"
    note: str = ""  # what is promised, or why nothing could be

    def __post_init__(self) -> None:
        check_scores(self.name, {"answered": self.answered, "risk": self.risk, "cost": self.cost})


@dataclass(frozen=True)
class Group:
    """Scores among the examples of one group."""

    column: str
    value: str
    examples: int
    scores: Mapping[str, Score]
    note: str = ""  # "worse than the rest by more than chance explains"

    def __post_init__(self) -> None:
        check_scores(f"{self.column}={self.value}", self.scores)


@dataclass(frozen=True)
class Trust:
    """All a report says of trust in one entry; what is empty is left out."""

    shift: Shift | None = None
    foreign: tuple[Foreign, ...] = ()
    calibration: Calibration | None = None
    sets: tuple[Sets, ...] = ()
    rules: tuple[Rule, ...] = ()
    groups: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        once("set of foreign inputs", (each.name for each in self.foreign))
        once("prediction set", ((each.method, each.level, each.where) for each in self.sets))
        once("group", ((each.column, each.value) for each in self.groups))


def once(what: str, keys: Iterable[Hashable]) -> None:
    """Refuse a record that comes twice: one would hide the other."""
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        name = ", ".join(map(str, twice[0])) if isinstance(twice[0], tuple) else str(twice[0])
        raise Misuse(f"{what} '{name}' is given twice; give each its own name or leave one out")
