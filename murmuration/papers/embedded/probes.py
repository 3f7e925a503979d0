"""Two measurements with plain gradient descent: the largest stable step, and the number of steps to a training loss."""

import math
import statistics
from dataclasses import dataclass, replace
from typing import Any

from murmuration.data import Data
from murmuration.papers.embedded.cells import NoCallback, train_spec
from murmuration.papers.embedded.settings import Cell, Setting, arm_named
from murmuration.recipe import Plan
from murmuration.training import Progress, begin, choose_engine, train
from murmuration.training.batches import steps_per_epoch

HALVES = range(-20, 9)  # learning rates that are tried are powers of the square root of 2


@dataclass(frozen=True)
class StopAtLoss:
    """A callback that ends the training once the mean training loss of an epoch is low enough."""

    loss: float

    def after_step(self, progress: Progress) -> None:
        return None

    def after_epoch(self, progress: Progress) -> None:
        if mean_loss(progress, -1) <= self.loss:
            progress.state.active.fill_(False)


def mean_loss(progress: Progress, epoch: int) -> float:
    return statistics.fmean(progress.history[epoch]["train_loss"])


def run_training(cell: Cell, setting: Setting, data: Data, plan: Plan, watcher: NoCallback | StopAtLoss) -> Progress:
    """The progress at the end of a training run."""
    spec = train_spec(data, arm_named(cell.arm), plan, neurons=setting.neurons(cell.width), layers=setting.layers)
    progress = begin(spec)
    train(spec, choose_engine(spec, progress).engine, progress, watcher)
    return progress


def find_largest_step(cell: Cell, setting: Setting, data: Data) -> dict[str, Any]:
    """The largest learning rate at which members learn, by bisection over rates sqrt(2) apart.

    At larger rates losses diverge, or end at ln K or above, the loss of a uniform prediction.
    """

    def learns(power: int) -> bool:
        plan = replace(setting.plain(cell.models, cell.seed), lr=2 ** (power / 2), epochs=setting.largest_step_epochs)
        progress = run_training(cell, setting, data, plan, NoCallback())
        return not progress.state.diverged and mean_loss(progress, -1) < math.log(len(data.classes))

    low, high = HALVES.start, HALVES.stop  # the first is assumed to learn, the last not to
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if learns(middle) else (low, middle)
    return {**cell._asdict(), "value": 2 ** (low / 2)}


def count_steps(cell: Cell, setting: Setting, data: Data) -> dict[str, Any]:
    """Steps until the mean training loss is half of ln K; None if it is not reached.

    Between epochs the logarithm of the loss is interpolated linearly.
    """
    averaged = arm_named(cell.arm).recipe("").sharing.gamma == 1
    epochs = setting.steps_epochs * (cell.models if averaged else 1)
    plan = replace(setting.plain(cell.models, cell.seed), lr=setting.steps_lr, epochs=epochs)
    goal = math.log(len(data.classes)) / 2
    progress = run_training(cell, setting, data, plan, StopAtLoss(goal))
    losses = [mean_loss(progress, epoch) for epoch in range(len(progress.history))]
    reached = crossing([math.log(len(data.classes)), *losses], goal)
    each = steps_per_epoch(len(data.train), plan.batch_size)
    return {**cell._asdict(), "value": None if reached is None else reached * each}


def crossing(losses: list[float], goal: float) -> float | None:
    """The first position, interpolated between indices, at which positive losses reach the goal.

    >>> crossing([4.0, 1.0], 2.0), crossing([4.0, 3.0], 2.0)
    (0.5, None)
    """
    for place in range(1, len(losses)):
        before, after = losses[place - 1], losses[place]
        if after <= goal:
            return place - 1 + (math.log(before / goal) / math.log(before / after) if before > goal else 0.0)
    return None
