"""Settings of the post-hoc steps; they stand apart so that a training plan can hold them."""

import math
from dataclasses import dataclass

from murmuration.errors import Misuse


@dataclass(frozen=True)
class PostHocConfig:
    """What to fit on validation examples after training: a calibrator, conformal sets and rules of abstention."""

    calibrate: str = "temperature"  # a name of `CALIBRATORS`, or "none"
    level: float = 0.9  # the share of truths that sets and intervals promise to hold
    sets: str | None = None  # the method of the sets that predictions are written with; None: the task's usual one
    risk: float = 0.05  # the share of wrong answers that is put up with
    error_cost: float = 1.0
    decline_cost: float | None = None  # None: 0.2 for classes; numbers have no usual one

    def __post_init__(self) -> None:
        for field, usual in (("level", 0.9), ("risk", 0.05)):
            if not 0 < getattr(self, field) < 1:
                raise Misuse(f"{field}={getattr(self, field)}: need a share between 0 and 1, such as {usual}")
        costs = {"error_cost": self.error_cost, "decline_cost": self.decline_cost}
        for field, cost in costs.items():
            if cost is not None and not (math.isfinite(cost) and cost > 0):
                raise Misuse(f"{field}={cost}: need a positive number such as 0.2")
