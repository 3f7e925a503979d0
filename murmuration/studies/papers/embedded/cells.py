"""One cell: members trained as the arm says, with scores and their tangent kernels before training, or a measurement.

Two measurements with plain gradient descent: the largest stable step, and the number of steps to a training loss.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.core.engines import Engine, assemble, member_outputs
from murmuration.core.population import Population
from murmuration.core.tangent_kernels import smooth_gamma
from murmuration.core.weights import NetworkWeights
from murmuration.data import Data, Split
from murmuration.evaluation.metrics import columns
from murmuration.likelihoods import likelihood_for
from murmuration.prediction.predictive import Predictive
from murmuration.studies.papers.embedded.settings import Arm, Cell, Setting, arm_named
from murmuration.studies.papers.record import cpu_seconds
from murmuration.studies.tangent_kernels import member_kernels
from murmuration.training import Progress, TrainSpec, begin, choose_engine, train
from murmuration.training.batches import plan_slices
from murmuration.training.plan import Plan
from murmuration.training.tuning import Unwatched

HALVES = range(-20, 9)  # learning rates that are tried are powers of the square root of 2


@dataclass(frozen=True)
class KernelSummary:
    """Two numbers of the tangent kernels between members."""

    ratio: float  # T_o / T_d
    top: float  # the largest eigenvalue of the members' matrix of alignments, whose diagonal is 1


def train_spec(data: Data, arm: Arm, plan: Plan, build: Callable[[], nn.Module]) -> TrainSpec:
    """Return the training spec of members of this network."""
    likelihood = likelihood_for(data.task, data.train.y, len(data.classes))
    return TrainSpec(build, data, likelihood, arm.recipe("embedded"), plan)


def train_cell(cell: Cell, setting: Setting, data: Data) -> dict[str, Any]:
    """Return the entry of one cell of trained members in the record."""
    arm, start = arm_named(cell.arm), cpu_seconds()
    neurons, members = setting.neurons(cell.width), cell.models
    if arm.kind == "wider":
        neurons, members = matching_width(setting, data, embedded_parameters(setting, data, neurons, cell.models)), 1
    spec = train_spec(data, arm, setting.plan(members, cell.seed), setting.build(data, neurons))
    progress = begin(spec)
    x = data.train.prepared[: setting.inputs]
    kernels = measure_kernels(spec.member(0), progress.state.population, spec.method.weights, x, setting.most)
    if arm.recipe("").sharing.gamma == "smooth":
        spec = replace(spec, gamma=smooth_gamma(members, kernels.ratio if kernels else 0.0))
    engine = choose_engine(spec, progress).engine
    population = train(spec, engine, progress, Unwatched())
    return {
        **cell._asdict(),
        "neurons": neurons,
        "parameters": population.parameters_stored(),
        **scores(spec, engine, population),
        "tangent_ratio": kernels.ratio if kernels else None,
        "top_alignment": kernels.top if kernels else None,
        "diverged": len(progress.state.diverged),
        "seconds": round(cpu_seconds() - start, 2),
    }


def measure_kernels(
    module: nn.Module, population: Population, family: NetworkWeights, x: Tensor, most: int
) -> KernelSummary | None:
    """Return the summary for at most `most` members, on inputs x (n, ...).

    None if there are more, or nothing is shared.

    The kernels are those of the parameters as they are stored, on which gradient descent acts.
    """
    if not 2 <= population.members <= most or not population.shared:
        return None
    common = member_kernels(module, population, family, x).common
    return summarise_kernels(common.double().diagonal(dim1=1, dim2=3).mean(-1))


def summarise_kernels(matrix: Tensor) -> KernelSummary:
    """Return the summary of a matrix (M, M) of kernels between members.

    An alignment is T_ab / sqrt(T_aa T_bb). Without the roots the largest eigenvalue would mostly be that of the member
    with the largest kernel.

    >>> found = summarise_kernels(torch.tensor([[2.0, 2.0], [2.0, 8.0]], dtype=torch.float64))
    >>> found.ratio, round(found.top, 9)
    (0.4, 1.5)
    """
    members, own = len(matrix), matrix.diagonal()
    off_diagonal = float(matrix.sum() - own.sum()) / (members * (members - 1))
    alignment = matrix / own.sqrt().outer(own.sqrt())
    return KernelSummary(off_diagonal / float(own.mean()), float(torch.linalg.eigvalsh(alignment)[-1]))


def scores(spec: TrainSpec, engine: Engine, population: Population) -> dict[str, float | None]:
    """Return accuracies and disagreement of trained members; None where no member is left."""
    if not population.members:
        return dict.fromkeys(("accuracy", "member_accuracy", "member_train_accuracy", "disagreement", "nll"))
    test = columns(predict(spec, engine, population, spec.data.test), spec.data.test.y)
    train_votes = predict(spec, engine, population, spec.data.train).votes  # (M, N)
    right: Tensor = train_votes == spec.data.train.y
    return {
        "accuracy": float(test["correct"].mean()),
        "member_accuracy": float(test["expected_correct"].mean()),
        "member_train_accuracy": float(right.float().mean()),
        "disagreement": float(test["disagreement"].mean()),
        "nll": -float(test["log_prob"].mean()),
    }


def predict(spec: TrainSpec, engine: Engine, population: Population, split: Split) -> Predictive:
    with assemble(engine, spec.member(0)) as team, torch.no_grad():
        return Predictive(member_outputs(team, spec.method.weights, population, split.prepared), spec.likelihood)


def embedded_parameters(setting: Setting, data: Data, neurons: int, members: int) -> int:
    """Return the numbers that M independent members store: kernels once, factors and biases for each."""
    spec = train_spec(data, arm_named("independent"), setting.plan(members, 0), setting.build(data, neurons))
    return begin(spec).state.population.parameters_stored()


def matching_width(setting: Setting, data: Data, parameters: int) -> int:
    """Return the width at which one plain network has most nearly this many parameters."""

    def excess(neurons: int) -> int:
        return sum(p.numel() for p in setting.build(data, neurons)().parameters()) - parameters

    high = 2
    while excess(high) < 0:
        high *= 2
    above = bisect_left(range(high), 0, lo=1, key=excess)
    return min((max(1, above - 1), above), key=lambda neurons: abs(excess(neurons)))


@dataclass(frozen=True)
class StopAtLoss:
    """A callback that ends the training once the mean training loss of an epoch is low enough."""

    loss: float

    def after_step(self, progress: Progress) -> None: ...

    def after_epoch(self, progress: Progress) -> None:
        if mean_losses(progress)[-1] <= self.loss:
            progress.state.active.fill_(False)


def mean_losses(progress: Progress) -> list[float]:
    """Return the training loss of every epoch, mean over members."""
    return [statistics.fmean(epoch["train_loss"]) for epoch in progress.history]


def run_training(cell: Cell, setting: Setting, data: Data, plan: Plan, watcher: Unwatched | StopAtLoss) -> Progress:
    """Return the progress at the end of a training run."""
    spec = train_spec(data, arm_named(cell.arm), plan, setting.build(data, setting.neurons(cell.width)))
    progress = begin(spec)
    train(spec, choose_engine(spec, progress).engine, progress, watcher)
    return progress


def find_largest_step(cell: Cell, setting: Setting, data: Data) -> dict[str, Any]:
    """Return the largest learning rate at which members learn, by bisection over rates sqrt(2) apart.

    At larger rates losses diverge, or end at ln K or above, the loss of a uniform prediction.
    """

    def learns(power: int) -> bool:
        plan = replace(setting.plain(cell.models, cell.seed), lr=2 ** (power / 2), epochs=setting.largest_step_epochs)
        progress = run_training(cell, setting, data, plan, Unwatched())
        return not progress.state.diverged and mean_losses(progress)[-1] < math.log(len(data.classes))

    low, high = HALVES.start, HALVES.stop  # the first is assumed to learn, the last not to
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if learns(middle) else (low, middle)
    return {**cell._asdict(), "value": 2 ** (low / 2)}


def count_steps(cell: Cell, setting: Setting, data: Data) -> dict[str, Any]:
    """Return steps until the mean training loss is half of ln K; None if it is not reached.

    Between epochs the logarithm of the loss is interpolated linearly.
    """
    averaged = arm_named(cell.arm).recipe("").sharing.gamma == 1
    epochs = setting.steps_epochs * (cell.models if averaged else 1)
    plan = replace(setting.plain(cell.models, cell.seed), lr=setting.steps_lr, epochs=epochs)
    goal = math.log(len(data.classes)) / 2
    progress = run_training(cell, setting, data, plan, StopAtLoss(goal))
    reached = crossing([math.log(len(data.classes)), *mean_losses(progress)], goal)
    steps_per_epoch = len(plan_slices(len(data.train), plan))
    return {**cell._asdict(), "value": None if reached is None else reached * steps_per_epoch}


def crossing(losses: list[float], goal: float) -> float | None:
    """Return the first position, interpolated between indices, at which positive losses reach the goal.

    >>> crossing([4.0, 1.0], 2.0), crossing([4.0, 3.0], 2.0)
    (0.5, None)
    """
    for place, (before, after) in enumerate(pairwise(losses)):
        if after <= goal:
            return place + (math.log(before / goal) / math.log(before / after) if before > goal else 0.0)
    return None
