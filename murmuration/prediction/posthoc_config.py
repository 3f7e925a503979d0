"""`PostHocConfig`: the settings of the post-hoc steps. This module does not import torch: the command line reads it."""

from dataclasses import dataclass
from typing import Annotated

from murmuration.system.settings import Doc, Fraction, Positive, check_settings, documented


@documented
@dataclass(frozen=True)
class PostHocConfig:
    """What to fit on validation examples after training: a calibrator, conformal rules and abstention rules."""

    calibrate: Annotated[
        str | None,
        Doc(
            "Calibration method, see `murmur list calibrators`; settings may follow a colon. none: no calibrator. By "
            "default temperature; vector if training weighed classes unequally; none for regressions that temperature "
            "does not serve."
        ),
    ] = None
    coverage: Annotated[float, Doc("Target coverage of conformal prediction sets and intervals."), Fraction(0.9)] = 0.9
    conformal: Annotated[
        str | None,
        Doc("Conformal method of written predictions; see `murmur list conformal`. By default lac or quantile."),
    ] = None
    max_error_rate: Annotated[
        float, Doc("Largest acceptable error rate among answered inputs (selective prediction)."), Fraction(0.05)
    ] = 0.05
    error_cost: Annotated[float, Doc("Cost of a wrong answer."), Positive(0.2)] = 1.0
    abstain_cost: Annotated[
        float | None,
        Doc("Cost of abstaining; by default 0.2 in classification, and no such rule in regression."),
        Positive(0.2),
    ] = None

    def __post_init__(self) -> None:
        check_settings(self)
