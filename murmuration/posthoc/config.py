"""Settings of the post-hoc steps; in a file of their own, so that a training plan can hold them."""

import math
from dataclasses import dataclass

from murmuration.errors import Misuse


@dataclass(frozen=True)
class PostHocConfig:
    """What to fit on validation examples after training: a calibrator, conformal rules and abstention rules."""

    calibrate: str = "temperature"  # a name of `CALIBRATORS`, or "none"
    coverage: float = 0.9  # nominal coverage of conformal sets and intervals
    conformal: str | None = None  # method whose sets predictions are written with; None: lac or quantile, by task
    max_error_rate: float = 0.05  # among answered inputs
    error_cost: float = 1.0
    abstain_cost: float | None = None  # None: 0.2 in classification, no rule by cost in regression

    def __post_init__(self) -> None:
        for field, usual in (("coverage", 0.9), ("max_error_rate", 0.05)):
            if not 0 < getattr(self, field) < 1:
                raise Misuse(f"{field}={getattr(self, field)}: need a number between 0 and 1, such as {usual}")
        for field in ("error_cost", "abstain_cost"):
            cost = getattr(self, field)
            if cost is not None and not (math.isfinite(cost) and cost > 0):
                raise Misuse(f"{field}={cost}: need a positive number such as 0.2")
