"""What a report says of why an ensemble is unsure: over all examples, by class, and the examples that show it best."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from murmuration.reports.measured import Score, check_scores

OVERALL = ("aleatoric", "epistemic", "entropy", "expected_entropy", "mutual_information")
SHOWN = ("accuracy", "aleatoric", "epistemic", "mutual_information")  # of every class


@dataclass(frozen=True)
class ClassRow:
    """The examples of one class."""

    name: str
    examples: int
    scores: Mapping[str, Score]

    def __post_init__(self) -> None:
        check_scores(self.name, self.scores)


@dataclass(frozen=True)
class Doubts:
    """Why one ensemble is unsure."""

    members: int
    draws: int  # of each member
    overall: Mapping[str, Score]  # means over all examples
    by_class: tuple[ClassRow, ...] = field(default=())

    def __post_init__(self) -> None:
        check_scores("all examples", self.overall)

    @property
    def answers(self) -> int:
        """How many predictions are compared for each input."""
        return self.members * self.draws
