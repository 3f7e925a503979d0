"""Learning-rate schedules: factors of the learning rate over time, written as one word and its numbers.

Each is a function of a `TrainTime`; `SCHEDULES` lists them.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from murmuration.system.errors import Misuse, unknown
from murmuration.system.option_text import Answer

CHECKED_PARTS = 50  # parts of a run at whose ends a schedule is checked before it begins


class TrainTime(NamedTuple):
    """A time in training.

    Attributes:
        step: Step, counted from 0 over the whole run.
        steps_per_epoch: Steps per epoch.
        epochs: Epochs of the run.
    """

    step: int
    steps_per_epoch: int
    epochs: int

    @property
    def epoch(self) -> int:
        """The epoch of the step, counted from 0."""
        return self.step // self.steps_per_epoch

    @property
    def progress(self) -> float:
        """The fraction of the run that has passed, in [0, 1)."""
        return self.step / (self.steps_per_epoch * self.epochs)

    def at(self, step: int) -> "TrainTime":
        """Return the same run at another step.

        Args:
            step: Number of steps that are done.
        """
        return self._replace(step=step)


def at_least_one(text: str) -> int:
    """Parse a whole number above 0; raise ValueError otherwise."""
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def cosine(time: TrainTime, text: str) -> float:
    return 0.5 * (1 + math.cos(math.pi * time.progress))


def halve(time: TrainTime, text: str) -> float:
    return 0.5 ** (time.epoch // at_least_one(text or "10"))


def steps(time: TrainTime, text: str) -> float:
    pairs = [pair.partition("=") for pair in text.split(",")]
    factors = [(int(epoch), float(value)) for epoch, _, value in pairs]  # parse all, to reject a wrong one
    return next((value for epoch, value in reversed(factors) if time.epoch >= epoch), 1.0)


def hold_linear(time: TrainTime, text: str, start: float = 1.0) -> float:
    """Return the factor of FoRDE's schedule: 1 up to t = 0.5, then linearly to the ratio at t = 0.9, then the ratio.

    t is the epoch as a fraction of the first part of the run, `start`.
    """
    t, ratio = time.epoch / (start * time.epochs), float(text or 0.01)
    if t <= 0.5:
        return 1.0
    return 1.0 - (1.0 - ratio) * (t - 0.5) / 0.4 if t <= 0.9 else ratio


def swa(time: TrainTime, text: str) -> float:
    """Return the factor of SWA and SWAG: `hold-linear` over the part of the run before averaging starts."""
    start, ratio = (float(part) for part in (text or "0.75,0.5").split(","))
    return hold_linear(time, str(ratio), start)


def cyclic(time: TrainTime, text: str) -> float:
    cycle = time.steps_per_epoch * time.epochs / at_least_one(text or "4")
    return 0.5 * (1 + math.cos(math.pi * (time.step % cycle) / cycle))


def triangle(time: TrainTime, text: str) -> float:
    """Return the factor of Garipov et al. (2018): with t in [0, 1) within a cycle, 1 at t = 0, the ratio at t = 1/2."""
    period, low = (float(part) for part in (text or "4,0.1").split(","))
    t = time.step / time.steps_per_epoch / period % 1.0
    return 1.0 - (1.0 - low) * (2 * t if t < 0.5 else 2 - 2 * t)


SCHEDULES: dict[str, Answer[Callable[[TrainTime, str], float]]] = {
    "constant": Answer(lambda time, text: 1.0, "1"),
    "cosine": Answer(cosine, "from 1 to 0 along half a cosine, by step"),
    "halve": Answer(halve, "halve:10: halved every 10 epochs (Fort et al. 2019)"),
    "steps": Answer(steps, "steps:80=0.1,120=0.01: the last factor whose epoch has been reached"),
    "hold-linear": Answer(
        hold_linear, "hold-linear:0.01: 1 for half the run, then linear to 0.01 at nine tenths (FoRDE)"
    ),
    "swa": Answer(swa, "swa:0.75,0.5: hold-linear to 0.5 over the first 0.75 of the run, then constant (SWA)"),
    "cyclic": Answer(cyclic, "cyclic:4: four cosine cycles with warm restarts, by step (Zhang et al. 2020)"),
    "triangle": Answer(triangle, "triangle:4,0.1: from 1 to 0.1 and back every 4 epochs (fast geometric ensembling)"),
}
PUBLISHED = {
    "keras-resnet": "steps:81=0.1,121=0.01,161=0.001,181=0.0005",
    "cifar100-resnet": "steps:100=0.1,130=0.05,160=0.01,190=0.0005",
    "imagenet-resnet": "steps:80=0.1,120=0.01",
}


def learning_rate_factor(schedule: str, time: TrainTime) -> float:
    """Return the factor of the learning rate at one time.

    Args:
        schedule: A row of `SCHEDULES` with its numbers, such as `halve:10`, or a name of `PUBLISHED`.
        time: Time in training.

    Returns:
        The factor, not negative.

    Raises:
        Misuse: If the schedule is unknown or its numbers do not fit.


    >>> [1.6e-3 * learning_rate_factor("halve:10", TrainTime(epoch, 1, 40)) for epoch in (0, 9, 10, 39)]
    [0.0016, 0.0016, 0.0008, 0.0002]
    """
    name, _, numbers = PUBLISHED.get(schedule, schedule).partition(":")
    if name not in SCHEDULES:
        raise unknown("schedule", schedule, [*SCHEDULES, *PUBLISHED])
    try:
        factor = SCHEDULES[name].value(time, numbers)
    except (ValueError, ArithmeticError) as error:
        raise Misuse(f"schedule '{schedule}': numbers not understood; write e.g. halve:10 or steps:80=0.1") from error
    if not 0 <= factor < math.inf:
        problem = f"the factor of epoch {time.epoch} is {factor:g}"
        raise Misuse(f"schedule '{schedule}': {problem}; expected numbers that are not negative, e.g. halve:10")
    return factor


def check_schedule(schedule: str, epochs: int) -> None:
    """Raise Misuse if a schedule fails at one of 51 epochs spread over a run."""
    for part in range(CHECKED_PARTS + 1):
        learning_rate_factor(schedule, TrainTime(part * (epochs - 1) // CHECKED_PARTS, 1, epochs))
