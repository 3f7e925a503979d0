"""Several flows that learn the same stream, and three ways to tell which task an input is of.

| by | the task of an input x is that with |
|---|---|
| `density` | the largest mean over flows of log p(x given the task) |
| `disagreement` | the smallest standard deviation over flows of log p(x given the task): epistemic uncertainty |
| `typicality` | the least deviation of x from inputs that the flows themselves draw from the task |

The first flow detects the tasks, the others are told what it found. Instead of flows that were trained separately there
may be draws of one with Bayesian coupling nets.
"""

import copy
import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from murmuration.applications.continual.flows import bayesian_layers
from murmuration.applications.continual.hcl import COMPARED, HCL, Snapshot
from murmuration.applications.continual.latents import LatentClasses
from murmuration.applications.continual.learner import State, named_by_part, nothing_seen
from murmuration.core.population import below
from murmuration.likelihoods import Categorical
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse, unknown

Identification = Literal["density", "disagreement", "typicality"]


class HCLEnsemble:
    """M learners with the same settings but for their seeds; all but the first must be told the tasks."""

    def __init__(self, learners: Sequence[HCL]) -> None:
        if not learners or any(learner.config.agnostic for learner in learners[1:]):
            raise Misuse(f"{len(learners)} learners: expected at least one, all but the first with agnostic=False")
        self.learners = list(learners)

    @property
    def task(self) -> int | None:
        return self.learners[0].task

    def observe(self, x: Tensor, y: Tensor, task: int | None = None) -> dict[str, float]:
        """Return every flow learns from a batch, unless the first is not sure which task it is of."""
        first, *followers = self.learners
        losses = first.observe(x, y, task)
        for learner in followers if first.learned else ():
            learner.observe(x, y, first.task)
        return losses

    @torch.no_grad()
    def predict(self, x: Tensor) -> Predictive:
        """Return predictions (M, N, C) over the classes of all tasks, in the order of the first flow's."""
        pairs, parts = self.learners[0].current().pairs(), []
        for learner in self.learners:
            z, _ = learner.flow(learner.continuous(x, training=False))
            classes = learner.current()
            parts.append(classes.log_density(z)[:, [classes.table[pair] for pair in pairs]])
        return Predictive(torch.stack(parts), Categorical(len(pairs)))

    def classify(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the label (N,) and the task (N,) of the class with the largest mean probability."""
        self.learners[0].check(x)
        classes = self.learners[0].current()
        if not len(classes):
            raise nothing_seen()
        index = self.predict(x).mean.argmax(1)
        return classes.labels[index], classes.tasks[index]

    def identify(self, x: Tensor, by: Identification) -> Tensor:
        """Return the task (N,) of each input."""
        if by not in get_args(Identification):
            raise unknown("identification", by, get_args(Identification))
        tasks = sorted(self.learners[0].settled)
        if by == "typicality":
            scores = -torch.stack([untypicality(learner, x, tasks) for learner in self.learners]).mean(0)
        else:
            densities = torch.stack([statistics_by_task(learner, x, tasks)[..., 0] for learner in self.learners])
            scores = densities.mean(0) if by == "density" else -densities.std(0, correction=0)
        return torch.tensor(tasks)[scores.argmax(1)]

    def memory(self) -> dict[str, int]:
        """Return bytes by kind, of all flows."""
        parts = [learner.memory() for learner in self.learners]
        return {kind: sum(part[kind] for part in parts) for kind in parts[0]}

    def state(self) -> State:
        states = {str(m): learner.state() for m, learner in enumerate(self.learners)}
        tensors = named_by_part({m: state.tensors for m, state in states.items()})
        return State(tensors, {m: state.facts for m, state in states.items()})

    def restore(self, state: State) -> None:
        for m, learner in enumerate(self.learners):
            learner.restore(State(below(state.tensors, str(m)), state.facts[str(m)]))


class BayesianHCL(HCLEnsemble):
    """One learner whose flow has Bayesian coupling nets; the flows that predict are draws of its weights."""

    def __init__(self, learner: HCL, members: int) -> None:
        if not bayesian_layers(learner.flow) or members < 1:
            raise Misuse(f"members={members}: expected at least 1, and a flow with Bayesian coupling nets")
        self.learner, self.members = learner, members
        self.flows: list[HCL] | None = None  # None: the learner has changed since they were drawn

    @property
    def learners(self) -> list[HCL]:  # type: ignore[override]
        """The learner with drawn weights, once for each member; the draws are the same until it learns again."""
        if self.flows is None:
            self.learner.current()  # once for all
            rng = torch.Generator().manual_seed(self.learner.config.seed)
            self.flows = []
            for _ in range(self.members):
                learner = copy.copy(self.learner)
                learner.flow = copy.deepcopy(self.learner.flow)
                for layer in bayesian_layers(learner.flow):
                    layer.redraw(rng)
                self.flows.append(learner)
        return self.flows

    @property
    def task(self) -> int | None:
        return self.learner.task

    def observe(self, x: Tensor, y: Tensor, task: int | None = None) -> dict[str, float]:
        self.flows = None
        return self.learner.observe(x, y, task)

    def memory(self) -> dict[str, int]:
        return self.learner.memory()

    def state(self) -> State:
        return self.learner.state()

    def restore(self, state: State) -> None:
        self.flows = None
        self.learner.restore(state)


@torch.no_grad()
def statistics_by_task(learner: HCL, x: Tensor, tasks: Sequence[int]) -> Tensor:
    """Return log density, log density in latent space and log-determinant (N, T, 3) of each input under each task.

    The classes of a task are equally likely.
    """
    z, log_det = learner.flow(learner.continuous(x, training=False))
    return by_task(learner.current(), z, log_det, tasks)


def by_task(classes: LatentClasses, z: Tensor, log_det: Tensor, tasks: Sequence[int]) -> Tensor:
    every = classes.log_density(z)  # (N, C)
    parts = []
    for task in tasks:
        own = every[:, classes.tasks == task]
        latent = own.logsumexp(1) - math.log(own.shape[1])
        parts.append(torch.stack([latent + log_det, latent, log_det], dim=1))
    return torch.stack(parts, dim=1)


@torch.no_grad()
def untypicality(learner: HCL, x: Tensor, tasks: Sequence[int]) -> Tensor:
    """Return the largest deviation (N, T) of three statistics of an input from those of inputs drawn from each task."""
    statistics = statistics_by_task(learner, x, tasks)
    source = Snapshot(learner.flow, learner.current(), learner.largest)
    rng = torch.Generator().manual_seed(learner.config.seed)
    deviations = []
    for place, task in enumerate(tasks):
        inputs, z, _ = source.draw(COMPARED, rng, task)
        reference = by_task(learner.current(), z, learner.flow(inputs)[1], [task])[:, 0]  # (n, 3)
        away = (statistics[:, place] - reference.mean(0)).abs() / reference.std(0).clamp_min(1e-6)
        deviations.append(away.max(1).values)
    return torch.stack(deviations, dim=1)
