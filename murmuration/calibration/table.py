"""The methods by name: which task each serves, how it is fitted, and how a fitted one is read back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from murmuration.calibration.pooling import Isotonic, PoolTemperature, fit_isotonic, fit_pool_temperature
from murmuration.calibration.records import Calibrator, damaged
from murmuration.calibration.stretches import MemberNoise, Stretch, fit_member_noise, fit_stretch
from murmuration.calibration.temperatures import (
    MemberTemperature,
    Temperature,
    fit_member_temperature,
    fit_temperature,
)
from murmuration.calibration.vectors import Vector, fit_vector
from murmuration.errors import Misuse, unknown
from murmuration.predictive import Predictive

TASKS = ("classification", "regression")
FEWEST = 2  # examples to fit on


@dataclass(frozen=True)
class Method:
    """One way to calibrate: what it does in one sentence, and for each task it serves, how it is fitted and read."""

    about: str
    fits: dict[str, Callable[[Predictive, Tensor], Calibrator]]
    reads: dict[str, Callable[[dict[str, Any]], Calibrator]]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks it serves."""
        return tuple(self.fits)


CALIBRATORS: dict[str, Method] = {
    "temperature": Method(
        "one number for all members, fitted to their mixture: logits are divided by it, distributions stretched",
        {"classification": fit_temperature, "regression": fit_stretch},
        {"classification": Temperature.from_json, "regression": Stretch.from_json},
    ),
    "member_temperature": Method(
        "one number for each member, fitted to this member alone",
        {"classification": fit_member_temperature, "regression": fit_member_noise},
        {"classification": MemberTemperature.from_json, "regression": MemberNoise.from_json},
    ),
    "pool_temperature": Method(
        "one number for the mean probabilities: pool the members, then calibrate the pool",
        {"classification": fit_pool_temperature},
        {"classification": PoolTemperature.from_json},
    ),
    "vector": Method(
        "a factor and a shift for each class's logit, fitted to the mixture of members",
        {"classification": fit_vector},
        {"classification": Vector.from_json},
    ),
    "isotonic": Method(
        "a rising map for each class from its mean probability to its observed frequency",
        {"classification": fit_isotonic},
        {"classification": Isotonic.from_json},
    ),
}


def calibrator_names(task: str) -> list[str]:
    """The methods that serve a task.

    >>> calibrator_names("regression")
    ['temperature', 'member_temperature']
    """
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    return [name for name, method in CALIBRATORS.items() if task in method.tasks]


def fit_calibrator(method: str, pred: Predictive, y: Any) -> Calibrator:
    """The calibrator that the method fits to a predictive and the targets y, (N,) labels or (N, K) numbers.

    Fit on examples that were neither trained on nor will be scored: on training examples networks look surer than
    they are elsewhere.
    """
    if method not in CALIBRATORS:
        raise unknown("calibrator", method, CALIBRATORS)
    if pred.task not in CALIBRATORS[method].tasks:
        raise Misuse(
            f"calibrator '{method}' belongs to classification, and this is a {pred.task}: "
            "write 'temperature' instead, or take conformal intervals"
        )
    inputs = pred.outputs.shape[1]
    if inputs < FEWEST:
        raise Misuse(f"{inputs} example to fit calibrator '{method}' on: expected at least {FEWEST}, better hundreds")
    check_finite(pred)
    targets = pred.labels(y) if pred.task == "classification" else pred.targets(y)
    return CALIBRATORS[method].fits[pred.task](pred, targets)


def check_finite(pred: Predictive) -> None:
    """Nothing, if every output is a number; a logit of minus infinity is one, unless a whole row is."""
    classes = pred.task == "classification"
    good = pred.outputs.amax(-1).isfinite() if classes else pred.outputs.isfinite().all(-1)  # (S, N); amax keeps NaN
    if not good.all():
        member, row = (~good).nonzero()[0].tolist()
        raise Misuse(
            f"outputs of member {member} for input {row} are not finite: expected numbers; "
            "leave out the members that diverged with select"
        )


def calibrator_from_json(record: Any) -> Calibrator:
    """The calibrator that `to_json` wrote down, checked: a record is data from outside.

    >>> calibrator_from_json(Temperature(1.37).to_json()).about
    'every logit divided by 1.37'
    """
    if not isinstance(record, dict):
        raise damaged("the record", record, "an object with name and task")
    name, task = record.get("name"), record.get("task")
    if not isinstance(name, str) or name not in CALIBRATORS:
        raise damaged("name", name, f"one of {', '.join(CALIBRATORS)}")
    reads = CALIBRATORS[name].reads
    if not isinstance(task, str) or task not in reads:
        raise damaged("task", task, f"{' or '.join(reads)} for '{name}'")
    return reads[task](record)
