"""What a report says of a pruned run: how far it was pruned, at what price, and what is left."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from murmuration.reports.measured import Score


@dataclass(frozen=True)
class Level:
    """One sparsity that was tried, without further training."""

    asked: float  # the share of weights, or of channels, that was to go
    sparsity: float  # the share of kernels' weights that was gone
    nonzero: int
    scores: Mapping[str, Score]  # on validation examples


@dataclass(frozen=True)
class Pruned:
    """How a run was pruned, as its manifest tells it."""

    of: str
    rule: str
    scope: str
    structured: bool
    reached: float  # the share of kernels' weights that is gone
    counts: Mapping[str, int]  # dense, nonzero, numbers, numbers_before
    threshold: float | None = None
    sparsity: float | None = None
    chosen: bool = False  # whether validation examples decided how far
    finetune: int = 0  # epochs
    layers: Sequence[tuple[str, int, float]] = ()  # kernel, weights of one member, share left
    curve: Sequence[Level] = ()
    pruned: Mapping[str, Score] = field(default_factory=dict)
    finetuned: Mapping[str, Score] = field(default_factory=dict)
    compact: Mapping[str, int] = field(default_factory=dict)  # counts of the smaller network, if there is one

    @property
    def names(self) -> list[str]:
        """The scores of the curve."""
        return list(self.curve[0].scores) if self.curve else []


def pruned_of(manifest: Mapping[str, Any]) -> Pruned | None:
    """What a run's manifest tells of its pruning; None where nothing was pruned."""
    record = manifest.get("pruning")
    if record is None:
        return None
    plain = ("of", "rule", "scope", "structured", "reached", "counts", "threshold", "sparsity", "chosen", "finetune")
    return Pruned(
        **{key: record[key] for key in plain},
        layers=[(layer["name"], layer["weights"], layer["kept"]) for layer in record["layers"]],
        curve=[Level(p["asked"], p["sparsity"], p["nonzero"], _scores(p)) for p in record["curve"]],
        pruned=_scores(record.get("pruned", {})),
        finetuned=_scores(record.get("finetuned", {})),
        compact=record.get("compact", {}),
    )


def _scores(record: Mapping[str, Any]) -> dict[str, Score]:
    found = {name: value for name, value in record.items() if isinstance(value, Mapping)}
    return {name: (_number(v["value"]), _number(v["low"]), _number(v["high"])) for name, v in found.items()}


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
