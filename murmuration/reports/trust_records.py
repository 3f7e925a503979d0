"""What a report says of trust: under shift, on foreign inputs, calibrated, with sets, with a right to decline."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from murmuration.reports.measured import Histogram, Reliability, Score


@dataclass(frozen=True)
class ShiftPoint:
    """Scores under one corruption at one severity."""

    corruption: str
    severity: int  # 1 to 5
    scores: Mapping[str, Score]


@dataclass(frozen=True)
class Shift:
    """Scores under corruptions of growing severity: by corruption and severity, by corruption, and all together."""

    about: str  # "19 corruptions, 5 severities, 2,000 test examples"
    clean: Mapping[str, Score]  # severity 0
    points: tuple[ShiftPoint, ...]
    by_type: Mapping[str, Mapping[str, Score]]  # corruption -> mean over its severities
    pooled: Mapping[str, Score]  # mean over all corruptions and severities: cA, cNLL, cECE
    sheet: NDArray[Any] | None = None  # (H, W, 3) uint8: one example under every corruption


@dataclass(frozen=True)
class Detection:
    """How well one uncertainty tells foreign inputs from familiar ones."""

    auroc: Score
    aupr: Score
    fpr95: Score


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


@dataclass(frozen=True)
class Group:
    """Scores among the examples of one group."""

    column: str
    value: str
    examples: int
    scores: Mapping[str, Score]
    note: str = ""  # "worse than the rest by more than chance explains"


@dataclass(frozen=True)
class Trust:
    """All a report says of trust in one entry; what is empty is left out."""

    shift: Shift | None = None
    foreign: tuple[Foreign, ...] = ()
    calibration: Calibration | None = None
    sets: tuple[Sets, ...] = ()
    rules: tuple[Rule, ...] = ()
    groups: tuple[Group, ...] = ()
