"""What a report says of members that met during training: how alike, how strongly pushed, at what price."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from murmuration.errors import Misuse
from murmuration.reports.measured import Numbers, same_length

MEASURES = ("mean_kernel", "cosine", "push_to_loss")


@dataclass(frozen=True)
class Meetings:
    """What was measured when members met, one number an epoch each (E,); NaN where it was not."""

    epochs: Numbers = ()
    measures: Mapping[str, Numbers] = field(default_factory=dict)  # mean_kernel, cosine, push_to_loss
    seconds: float = math.nan  # of all steps
    coupling_seconds: float = math.nan  # of these, those in which everybody waited for kernels and forces
    sweep: Mapping[str, float] = field(default_factory=dict)  # alpha that was tried -> mean validation NLL
    alpha: float | None = None  # the one that was chosen

    def __post_init__(self) -> None:
        same_length("meetings", epochs=self.epochs, **self.measures)
        if self.sweep and (self.alpha is None or f"{self.alpha:g}" not in self.sweep):
            raise Misuse(f"alpha={self.alpha} was not tried: the sweep has {', '.join(self.sweep)}; give one of these")

    @property
    def share(self) -> float:
        """The part of the steps' time that coupling took."""
        return self.coupling_seconds / self.seconds if self.seconds > 0 else math.nan


def meetings_of(history: Sequence[Mapping[str, Any]], manifest: Mapping[str, Any]) -> Meetings | None:
    """What a run's history and manifest tell of its members' meetings; None where they never met."""
    rows = [row for row in history if row.get("coupling")]
    spent, sweep = manifest.get("coupling_seconds", {}), manifest.get("sweep", {})
    if not (rows or spent or sweep):
        return None
    return Meetings(
        tuple(row["epoch"] for row in rows),
        {name: tuple(_number(row["coupling"].get(name)) for row in rows) for name in MEASURES},
        _number(spent.get("steps")),
        _number(spent.get("coupling")),
        {alpha: _number(score) for alpha, score in sweep.items()},
        manifest.get("alpha"),
    )


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
