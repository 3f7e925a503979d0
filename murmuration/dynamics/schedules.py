"""Learning-rate schedules, each a function of where training stands, written as one word and its numbers.

| written | factor of the learning rate |
|---|---|
| `constant` | 1 |
| `cosine` | from 1 to 0 along half a cosine, by step |
| `halve:10` | halved every 10 epochs (Fort et al. 2019) |
| `steps:80=0.1,120=0.01` | the last factor whose epoch has been reached, epochs counted from 0 |
| `hold-linear:0.01` | 1 for half the run, then straight down to 0.01 at nine tenths (SWA, FoRDE) |
| `cyclic:4` | four cosine cycles with warm restarts, by step (Zhang et al. 2020) |
| `triangle:4,0.1` | from 1 down to 0.1 and back every 4 epochs (fast geometric ensembling) |
| `keras-resnet`, `cifar100-resnet`, `imagenet-resnet` | the step schedules of the published runs |
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from murmuration.errors import Misuse, unknown


class Moment(NamedTuple):
    """Where training stands: `step` of all steps, counted from 0."""

    step: int
    steps_per_epoch: int
    epochs: int

    @property
    def epoch(self) -> int:
        return self.step // self.steps_per_epoch

    @property
    def progress(self) -> float:
        """Share of the run that is done, in [0, 1)."""
        return self.step / (self.steps_per_epoch * self.epochs)


def constant(moment: Moment, text: str) -> float:
    return 1.0


def cosine(moment: Moment, text: str) -> float:
    return 0.5 * (1 + math.cos(math.pi * moment.progress))


def halve(moment: Moment, text: str) -> float:
    return 0.5 ** (moment.epoch // int(text or 10))


def steps(moment: Moment, text: str) -> float:
    factor = 1.0
    for pair in text.split(","):
        epoch, _, value = pair.partition("=")
        if moment.epoch >= int(epoch):
            factor = float(value)
    return factor


def hold_linear(moment: Moment, text: str) -> float:
    """FoRDE's and SWAG's schedule: by epoch, t = epoch / epochs."""
    ratio, t = float(text or 0.01), moment.epoch / moment.epochs
    if t <= 0.5:
        return 1.0
    return 1.0 - (1.0 - ratio) * (t - 0.5) / 0.4 if t <= 0.9 else ratio


def cyclic(moment: Moment, text: str) -> float:
    cycle = moment.steps_per_epoch * moment.epochs / int(text or 4)
    return 0.5 * (1 + math.cos(math.pi * (moment.step % cycle) / cycle))


def triangle(moment: Moment, text: str) -> float:
    """Garipov et al. 2018: t in [0, 1) within a cycle; 1 at t = 0, the low ratio at t = 1/2."""
    period, low = (float(part) for part in (text or "4,0.1").split(","))
    t = moment.step / moment.steps_per_epoch / period % 1.0
    return 1.0 - (1.0 - low) * (2 * t if t < 0.5 else 2 - 2 * t)


SCHEDULES: dict[str, Callable[[Moment, str], float]] = {
    "constant": constant,
    "cosine": cosine,
    "halve": halve,
    "steps": steps,
    "hold-linear": hold_linear,
    "cyclic": cyclic,
    "triangle": triangle,
}
PUBLISHED = {
    "keras-resnet": "steps:81=0.1,121=0.01,161=0.001,181=0.0005",
    "cifar100-resnet": "steps:100=0.1,130=0.05,160=0.01,190=0.0005",
    "imagenet-resnet": "steps:80=0.1,120=0.01",
}


def learning_rate_factor(schedule: str, moment: Moment) -> float:
    """The factor of the learning rate at one moment.

    >>> [1.6e-3 * learning_rate_factor("halve:10", Moment(epoch, 1, 40)) for epoch in (0, 9, 10, 39)]
    [0.0016, 0.0016, 0.0008, 0.0002]
    """
    name, _, numbers = PUBLISHED.get(schedule, schedule).partition(":")
    if name not in SCHEDULES:
        raise unknown("schedule", schedule, [*SCHEDULES, *PUBLISHED])
    try:
        return SCHEDULES[name](moment, numbers)
    except (ValueError, ZeroDivisionError) as error:
        raise Misuse(f"schedule '{schedule}': numbers not understood; write e.g. halve:10 or steps:80=0.1") from error
