"""One cell: members trained as its arm says, and what they are worth."""

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.data import Data, Split
from murmuration.engines import Engine, assemble, member_outputs
from murmuration.likelihoods import likelihood_for
from murmuration.metrics import columns
from murmuration.nets.dense import mlp
from murmuration.papers.embedded.settings import Arm, Cell, Setting, arm_named
from murmuration.papers.embedded.tangents import Pull, pull_of, smooth_gamma
from murmuration.population import Population
from murmuration.predictive import Predictive
from murmuration.recipe import Plan
from murmuration.training import Job, Progress, begin, choose_engine, train

SMOOTH = "smooth"


@dataclass(frozen=True)
class Silent:
    """A watcher who does nothing."""

    def after_step(self, progress: Progress) -> None:
        return None

    def after_epoch(self, progress: Progress) -> None:
        return None


def job_of(data: Data, arm: Arm, plan: Plan, *, neurons: int, layers: int) -> Job:
    """The training of members with this many neurons in each hidden layer."""

    def build() -> nn.Module:
        return mlp(data.input_shape, len(data.classes), hidden=(neurons,) * layers)

    likelihood = likelihood_for(data.task, data.train.y, len(data.classes))
    return Job(build, data, likelihood, arm.recipe("embedded"), plan)


def trained_cell(cell: Cell, setting: Setting, data: Data) -> dict[str, Any]:
    """All numbers of one cell of trained members."""
    arm, start = arm_named(cell.arm), time.perf_counter()
    neurons, members = setting.neurons(cell.width), cell.models
    if arm.kind == "wider":
        shape = Shape(math.prod(data.input_shape), len(data.classes), setting.layers)
        neurons, members = wide_enough(shape, embedded_parameters(shape, neurons, cell.models)), 1
    job = job_of(data, arm, setting.plan(members, cell.seed), neurons=neurons, layers=setting.layers)
    progress = begin(job)
    pull = pull_at_start(job, progress, setting)
    if arm.recipe("").shares.gamma == SMOOTH:
        job = replace(job, gamma=smooth_gamma(members, pull.ratio if pull else 0.0))
    engine = choose_engine(job, progress).engine
    population = train(job, engine, progress, Silent())
    return {
        **cell._asdict(),
        "neurons": neurons,
        "parameters": population.parameters_stored(),
        **scores(job, engine, population),
        "tangent_ratio": pull.ratio if pull else None,
        "top_alignment": pull.top if pull else None,
        "fallen": len(progress.state.trouble),
        "seconds": round(time.perf_counter() - start, 2),
    }


def pull_at_start(job: Job, progress: Progress, setting: Setting) -> Pull | None:
    """The pull between members before the first step."""
    family = replace(job, gamma=1.0).method().weights  # what a weight is does not depend on gamma
    x = job.data.train.x[: setting.inputs]
    return pull_of(job.member(0), progress.state.population, family, x, setting.most)


def scores(job: Job, engine: Engine, population: Population) -> dict[str, float | None]:
    """Accuracies and disagreement of trained members; nothing where none is left."""
    if not population.members:
        return dict.fromkeys(("accuracy", "member_accuracy", "member_train_accuracy", "disagreement", "nll"))
    test = columns(predicted(job, engine, population, job.data.test), job.data.test.y)
    train_votes = predicted(job, engine, population, job.data.train).votes  # (M, N)
    right: Tensor = train_votes == job.data.train.y
    return {
        "accuracy": float(test["correct"].mean()),
        "member_accuracy": float(test["expected_correct"].mean()),
        "member_train_accuracy": float(right.float().mean()),
        "disagreement": float(test["disagreement"].mean()),
        "nll": -float(test["log_prob"].mean()),
    }


def predicted(job: Job, engine: Engine, population: Population, split: Split) -> Predictive:
    family = replace(job, gamma=1.0).method().weights
    with assemble(engine, job.member(0)) as team, torch.no_grad():
        return Predictive(member_outputs(team, family, population, split.x), job.likelihood)


@dataclass(frozen=True)
class Shape:
    """A dense network: inputs, outputs and hidden layers."""

    inputs: int
    outputs: int
    layers: int


def embedded_parameters(shape: Shape, neurons: int, members: int) -> int:
    """Stored numbers of M members: kernels once; for each member two factors and a bias a neuron, and output biases.

    >>> embedded_parameters(Shape(64, 10, 2), 64, 8)
    11984
    """
    kernels = neurons * (shape.inputs + (shape.layers - 1) * neurons + shape.outputs)
    return kernels + members * (3 * shape.layers * neurons + shape.outputs)


def wide_enough(shape: Shape, parameters: int) -> int:
    """The width of hidden layers at which one plain network has as nearly as can be so many parameters.

    Solves (L - 1) n² + n (inputs + outputs + L) + outputs = parameters.

    >>> wide_enough(Shape(64, 10, 2), 64 * 64 + 64 * 76 + 10)
    64
    """
    square, linear, rest = shape.layers - 1, shape.inputs + shape.outputs + shape.layers, parameters - shape.outputs
    root = (-linear + math.sqrt(linear**2 + 4 * square * rest)) / (2 * square) if square else rest / linear
    return max(1, round(root))
