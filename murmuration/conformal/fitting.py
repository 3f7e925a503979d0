"""From predictions and labels kept aside to a rule, and from a rule's JSON to the rule."""

import math
from dataclasses import dataclass
from typing import Any

from murmuration.conformal.classes import PENALTY, SET_METHODS, START, SetRule, fit_sets
from murmuration.conformal.numbers import NUMBER_METHODS, IntervalRule, fit_intervals
from murmuration.conformal.written import from_record
from murmuration.errors import Failure, Misuse, unknown
from murmuration.predictive import Predictive

Rule = SetRule | IntervalRule


@dataclass(frozen=True)
class Method:
    """What a method does in one line, and the options it takes besides level and seed."""

    about: str
    options: tuple[str, ...] = ()


OPTIONS = {"raps": ("penalty", "start"), "normalised": ("scale",)}
METHODS: dict[str, dict[str, Method]] = {
    task: {name: Method(about, OPTIONS.get(name, ())) for name, about in table.items()}
    for task, table in (("classification", SET_METHODS), ("regression", NUMBER_METHODS))
}


def fit_conformal(
    method: str,
    pred: Predictive,
    y: Any,
    *,
    level: float = 0.9,
    seed: int = 0,
    penalty: float | None = None,
    start: int | None = None,
    scale: str | None = None,
) -> Rule:
    """The rule of that method whose sets or intervals hold the truth with probability `level` or more.

    The examples must not have been used in training or calibration, and new inputs must come from where they
    came from. `seed` fixes the chance in aps and raps; `penalty` (0.01) and `start` (5, or one less than the
    classes) belong to raps; `scale` ("epistemic" for several members, else "total") to normalised.

    >>> pred = Predictive.from_probs([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
    >>> fit_conformal("lac", pred, [0, 1, 1], level=0.5).threshold.__round__(6)
    0.3
    """
    check_method(method, pred.task, {"penalty": penalty, "start": start, "scale": scale})
    if pred.task == "regression":
        spread = ("epistemic" if len(pred.outputs) > 1 else "total") if scale is None else scale
        unfitted = IntervalRule(method, level, (), 1, spread if method == "normalised" else "none")
        return fit_intervals(unfitted, pred, y)
    classes = pred.mean.shape[1]
    ranks = (PENALTY if penalty is None else penalty, min(START, classes - 1) if start is None else start)
    blank = SetRule(method, level, math.inf, 1, classes, seed, *(ranks if method == "raps" else (0.0, 0)))
    return fit_sets(blank, pred, y)


def check_method(method: str, task: str, options: dict[str, Any]) -> None:
    """Nothing, if the task has the method and the method takes the options that are given."""
    if method not in METHODS[task]:
        raise unknown(f"{task} method", method, METHODS[task])
    strange = [name for name, value in options.items() if value is not None and name not in OPTIONS.get(method, ())]
    if strange:
        owner = next(name for name, names in OPTIONS.items() if strange[0] in names)
        raise Misuse(f"{strange[0]}={options[strange[0]]!r} belongs to '{owner}', not to '{method}': leave it out")


def rule_from_json(record: Any) -> Rule:
    """The rule that `to_json` wrote down, every field checked."""
    what, kind = "the conformal rule", record.get("kind") if isinstance(record, dict) else type(record).__name__
    if kind not in ("sets", "intervals"):
        raise Failure(f"{what} is damaged: kind {kind!r:.40}, expected 'sets' or 'intervals'")
    rest = {name: value for name, value in record.items() if name != "kind"}
    return from_record(SetRule, rest, what) if kind == "sets" else from_record(IntervalRule, rest, what)
