"""Two small measurements by plain gradient descent: the largest stable step, and how many steps learning takes."""

import math
import statistics
from dataclasses import dataclass, replace
from typing import Any

from murmuration.data import Data
from murmuration.papers.embedded.cells import Silent, job_of
from murmuration.papers.embedded.settings import Cell, Setting, arm_named
from murmuration.recipe import Plan
from murmuration.training import Progress, begin, choose_engine, train
from murmuration.training.batches import steps_per_epoch

HALVES = range(-20, 9)  # steps that are tried are powers of the square root of 2


@dataclass(frozen=True)
class Until:
    """A watcher who ends the training once the mean training loss of an epoch is low enough."""

    loss: float

    def after_step(self, progress: Progress) -> None:
        return None

    def after_epoch(self, progress: Progress) -> None:
        if mean_loss(progress, -1) <= self.loss:
            progress.state.active.fill_(False)


def mean_loss(progress: Progress, epoch: int) -> float:
    return statistics.fmean(progress.history[epoch]["train_loss"])


def carried_out(cell: Cell, setting: Setting, data: Data, plan: Plan, watcher: Silent | Until) -> Progress:
    """Where training stands when it ends."""
    job = job_of(data, arm_named(cell.arm), plan, neurons=setting.neurons(cell.width), layers=setting.layers)
    progress = begin(job)
    train(job, choose_engine(job, progress).engine, progress, watcher)
    return progress


def largest_step_cell(cell: Cell, setting: Setting, data: Data) -> dict[str, Any]:
    """The largest step with which members learn anything, found by halving a range of steps sqrt(2) apart.

    With a step that is too large losses grow without bound, or end where nothing has been learnt: at ln K or above.
    """

    def learns(power: int) -> bool:
        plan = replace(setting.plain(cell.models, cell.seed), lr=2 ** (power / 2), epochs=setting.largest_step_epochs)
        progress = carried_out(cell, setting, data, plan, Silent())
        return not progress.state.trouble and mean_loss(progress, -1) < math.log(len(data.classes))

    low, high = HALVES.start, HALVES.stop  # the first is taken to learn, the last not to
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if learns(middle) else (low, middle)
    return {**cell._asdict(), "value": 2 ** (low / 2)}


def steps_cell(cell: Cell, setting: Setting, data: Data) -> dict[str, Any]:
    """How many steps members need until their mean training loss is half of ln K; None if they never get there.

    Between epochs the logarithm of the loss is taken to fall on a straight line.
    """
    averaged = arm_named(cell.arm).recipe("").shares.gamma == 1
    epochs = setting.steps_epochs * (cell.models if averaged else 1)
    plan = replace(setting.plain(cell.models, cell.seed), lr=setting.steps_lr, epochs=epochs)
    goal = math.log(len(data.classes)) / 2
    progress = carried_out(cell, setting, data, plan, Until(goal))
    losses = [mean_loss(progress, epoch) for epoch in range(len(progress.history))]
    reached = crossing([math.log(len(data.classes)), *losses], goal)
    each = steps_per_epoch(len(data.train), plan.batch_size)
    return {**cell._asdict(), "value": None if reached is None else reached * each}


def crossing(losses: list[float], goal: float) -> float | None:
    """The first place, between indices too, at which positive losses are down at the goal.

    >>> crossing([4.0, 1.0], 2.0), crossing([4.0, 3.0], 2.0)
    (0.5, None)
    """
    for place in range(1, len(losses)):
        before, after = losses[place - 1], losses[place]
        if after <= goal:
            return place - 1 + (math.log(before / goal) / math.log(before / after) if before > goal else 0.0)
    return None
