"""The guard against members that leave the finite numbers."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from murmuration.core.gradients import GroupResult
    from murmuration.core.state import State


@dataclass(frozen=True)
class Divergence:
    """A member that left the finite numbers.

    Attributes:
        reason: What was not finite, and when.
        restored: Epoch whose weights it returned to; 0: initial weights; None: not yet returned.
    """

    reason: str
    restored: int | None = None

    def __str__(self) -> str:
        if self.restored is None:
            return self.reason
        if self.restored == 0:
            return f"{self.reason}; has its initial weights and is left out of the ensemble"
        return f"{self.reason}; has its weights of epoch {self.restored}"


def rows_to_move(state: "State", result: "GroupResult", one_by_one: bool) -> list[slice | int]:
    """Return the rows of a group that may move: the group as a whole if all of its losses are finite.

    A member whose loss is not finite is deactivated, and its buffers are restored. A gradient that is not finite shows
    in the next loss or in the epoch's validation: checking every gradient would cost a tenth of a small network's step.
    """
    active, losses, first = state.active[result.members], result.losses, result.members.start
    # A finite sum has finite terms; it takes a third of the time of a check of each.
    if not one_by_one and bool(active.all()) and math.isfinite(float(losses.sum())):
        return [result.members]
    finite = active & losses.isfinite().to("cpu")
    for name, before in result.buffers_before.items():
        state.population.buffers[name][result.members][~finite] = before[~finite]
    for i in (active & ~finite).nonzero().flatten().tolist():
        state.diverged[first + i] = Divergence(f"loss {float(losses[i])} at step {state.step}")
        state.active[first + i] = False
    return [first + int(i) for i in finite.nonzero()] if one_by_one or not bool(finite.all()) else [result.members]


def all_finite(state: "State") -> bool:
    """Return whether every member that diverged has returned to finite weights."""
    return all(divergence.restored is not None for divergence in state.diverged.values())


def without_diverged(own: dict[str, Tensor], active: Tensor) -> dict[str, Tensor]:
    """Replace what is not finite in inactive members' tensors (m, ...): their gradients are multiplied by zero."""
    if bool(active.all()):
        return own
    rows = (~active).nonzero().flatten()
    return {name: t.index_copy(0, rows.to(t.device), t[rows].nan_to_num(0, 0, 0)) for name, t in own.items()}
