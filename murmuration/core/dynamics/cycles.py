"""Cyclical learning rates: snapshot ensembles, and stochastic-gradient MCMC.

Snapshot ensembles (Huang et al. 2017): one run, the weights at the end of every cycle. The optimizer is that of plain
training, under a cosine schedule with warm restarts; M trained members give M x cycles members of the ensemble.

Fast geometric ensembling (FGE, Garipov et al. 2018): the learning rate falls and rises linearly, every `period` epochs,
and the weights are kept at each minimum. Published for networks that are trained already.

Cyclical stochastic-gradient MCMC (cSG-MCMC, Zhang et al. 2020): Langevin steps under a cyclical learning rate.

Every cycle explores first, without noise, at a high learning rate; in its last part (`sampling`) noise makes the steps
those of a sampler, and `samples` points are collected. With the mean loss of N examples, its gradient g, the weight
decay d (a Gaussian prior of precision N d), the learning rate lr, the friction a and the temperature T, a step is

    v <- (1 - a) v - lr (g + d w) + sqrt(2 a lr T / N) z,    w <- w + v

a = 1 is SGLD (Welling and Teh 2011), a < 1 SGHMC (Chen et al. 2014; published here: 0.9). T = 1 targets the
posterior; the released code of Zhang et al. has T = 1/N (write `temperature=2e-5` for N = 50,000). On the quadratic
loss L w^2 / 2 the SGLD chain has the stationary variance 2 T / (N L (2 - lr L)): that of the posterior for a small lr.
Gradients are clipped at a norm of 3 for each member: the likelihood of a learned noise has unbounded ones, and without
a bound the first large one throws the chain to weights of finite but useless loss. Classification hardly reaches it.
At a cycle's start only the learning rate returns to its first value; weights stay. Chains are the trained members; the
ensemble has chains x cycles x samples members.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

import murmuration.core.dynamics.base as base
from murmuration.core.dynamics.base import Dynamics, OptState, StepTime, Streams, Tensors, UpdateRule, WeightPath
from murmuration.core.dynamics.schedules import TrainTime
from murmuration.core.population import Population
from murmuration.system.errors import Misuse


class Collected(Dynamics):
    """Training on a cyclical learning rate whose members are points of the path."""

    name: ClassVar[str]

    def check(self, *, total: TrainTime, stochastic: bool, schedule: str | None, own_rule: bool, early: bool) -> None:
        base.refuse_early_stopping(self.name, early)
        if schedule is not None and schedule != self.schedule():
            problem = f"its cycles are the schedule {self.schedule()}; leave it out"
            raise Misuse(f"schedule {schedule} with dynamics {self.name}: {problem}")

    def collect(self, path: WeightPath, population: Population, rows: Tensor) -> None:
        """Collect a copy of the members at these rows as one more point."""
        name = str(len(path.points))
        path.points[name] = population.clone()
        path.counts[name] = torch.zeros(population.members, dtype=torch.int64).index_fill(0, rows, 1)

    def finish(self, path: WeightPath, population: Population, streams: Streams) -> tuple[Population, Tensor]:
        """Return all collected points as members, in order; a member that was never collected has its last weights."""
        counts = [path.counts[name] for name in path.points]
        never = (torch.stack(counts).sum(0) if counts else torch.zeros(population.members)) == 0
        rows = [count.nonzero().flatten() for count in (*counts, never)]
        points = zip((*path.points.values(), population), rows, strict=True)
        parts = [point.with_own_copies().take(members) for point, members in points if len(members)]
        return Population.concatenate(parts), torch.cat(rows)


@dataclass(frozen=True)
class Snapshot(Collected):
    """Plain training that collects the weights at the end of every learning-rate cycle.

    Attributes:
        name: Name of the dynamics.
        cycles: Number of cycles.
    """

    name: ClassVar[str] = "snapshot"

    cycles: int = 5

    def __post_init__(self) -> None:
        if self.cycles < 1:
            raise Misuse(f"cycles={self.cycles}: need at least 1")

    def check(self, *, total: TrainTime, stochastic: bool, schedule: str | None, own_rule: bool, early: bool) -> None:
        super().check(total=total, stochastic=stochastic, schedule=schedule, own_rule=own_rule, early=early)
        if self.copies(total) > total.step:
            cycles = f"cycles={self.copies(total)} of dynamics {self.name}"
            raise Misuse(f"{cycles} in {total.step} steps: train longer, or write fewer cycles")

    def schedule(self) -> str:
        return f"cyclic:{self.cycles}"

    def keep(self, time: TrainTime) -> bool:
        return time.step in cycle_ends(self.cycles, time)

    def copies(self, total: TrainTime) -> int:
        return self.cycles


@dataclass(frozen=True)
class Fge(Collected):
    """Plain training on a triangular learning rate that collects the weights at each of its minima.

    Attributes:
        name: Name of the dynamics.
        period: Epochs of a cycle.
        low: Lowest learning rate over the first one.
    """

    name: ClassVar[str] = "fge"

    period: float = 2.0
    low: float = 0.2

    def __post_init__(self) -> None:
        if not (math.isfinite(self.period) and self.period > 0 and 0 < self.low <= 1):
            need = "need a number of epochs above 0, and a ratio above 0 and at most 1"
            raise Misuse(f"period={self.period}, low={self.low} of dynamics fge: {need}")

    def check(self, *, total: TrainTime, stochastic: bool, schedule: str | None, own_rule: bool, early: bool) -> None:
        super().check(total=total, stochastic=stochastic, schedule=schedule, own_rule=own_rule, early=early)
        if not self.minima(total):
            problem = "no minimum of the learning rate within the run; train longer, or write a shorter period"
            raise Misuse(f"period={self.period:g} epochs of dynamics fge in {total.step} steps: {problem}")

    def schedule(self) -> str:
        return f"triangle:{self.period:g},{self.low:g}"

    def minima(self, time: TrainTime) -> list[int]:
        """Return the steps after those with the lowest learning rate.

        >>> Fge(period=2).minima(TrainTime(0, 4, 6))
        [5, 13, 21]
        """
        length, total = self.period * time.steps_per_epoch, time.steps_per_epoch * time.epochs
        ends = (math.floor((cycle + 0.5) * length) + 1 for cycle in range(math.ceil(total / length)))
        return sorted({end for end in ends if end <= total})

    def keep(self, time: TrainTime) -> bool:
        return time.step in self.minima(time)

    def copies(self, total: TrainTime) -> int:
        return len(self.minima(total))


def cycle_ends(cycles: int, time: TrainTime) -> list[int]:
    """Return the steps after which a cycle of the learning rate ends.

    >>> cycle_ends(3, TrainTime(0, 5, 2))
    [4, 7, 10]
    """
    total = time.steps_per_epoch * time.epochs
    return [-(-total * (cycle + 1) // cycles) for cycle in range(cycles)]


@dataclass(frozen=True)
class CyclicalSgmcmc(Snapshot):
    """Langevin dynamics on a cyclical schedule; several points of every cycle are collected.

    Attributes:
        cycles: Number of cycles.
        samples: Points of every cycle, evenly over its sampling part (at most one per step); the last is its end.
        sampling: Fraction of a cycle, at its end, in which noise is added and points are collected.
        friction: a; 1 for SGLD, below 1 for SGHMC.
        temperature: T.
        lr_multiplier: Multiplier of the plan's learning rate: 0.1 for the usual 0.005.
        clip_norm: Largest gradient norm of a member, if the plan does not set one; inf for no bound.
        examples: N; 0 for the number of training examples.
    """

    name: ClassVar[str] = "csgmcmc"

    cycles: int = 4
    samples: int = 3
    sampling: float = 0.2
    friction: float = 1.0
    temperature: float = 1.0
    lr_multiplier: float = 20.0
    clip_norm: float = 3.0
    examples: int = 0

    def __post_init__(self) -> None:
        cycles, samples, examples, sampling = self.cycles, self.samples, self.examples, self.sampling
        friction, temperature, lr_multiplier = self.friction, self.temperature, self.lr_multiplier
        if cycles < 1 or samples < 1 or examples < 0:
            raise Misuse(f"{cycles=!s}, {samples=!s}, {examples=!s}: need at least 1, 1 and 0")
        if not 0 < sampling <= 1 or not 0 < friction <= 1:
            raise Misuse(f"{sampling=!s}, {friction=!s}: need numbers above 0 and at most 1, such as 0.2")
        if not 0 <= temperature < math.inf or not 0 < lr_multiplier < math.inf:
            need = "need a temperature that is not negative and a positive multiplier"
            raise Misuse(f"{temperature=!s}, {lr_multiplier=!s}: {need}")
        if not self.clip_norm > 0:
            raise Misuse(f"clip_norm={self.clip_norm}: need a positive number such as 3, or inf")

    def prepare(self, examples: int) -> "CyclicalSgmcmc":
        return self if self.examples else replace(self, examples=examples)

    def check(self, *, total: TrainTime, stochastic: bool, schedule: str | None, own_rule: bool, early: bool) -> None:
        super().check(total=total, stochastic=stochastic, schedule=schedule, own_rule=own_rule, early=early)
        if self.sampling * total.step < self.cycles:
            settings = f"cycles={self.cycles}, sampling={self.sampling} of dynamics csgmcmc in {total.step} steps"
            raise Misuse(f"{settings}: no step of a cycle would add noise; train longer, or write fewer cycles")
        if stochastic:
            raise Misuse("dynamics csgmcmc with random weights: it samples point weights itself; write weights point")
        if own_rule:
            raise Misuse("an optimizer with dynamics csgmcmc: its Langevin steps take the place of one; leave it out")

    def gradient_bound(self) -> float | None:
        return self.clip_norm if math.isfinite(self.clip_norm) else None

    def rule(self, optimizer: UpdateRule) -> UpdateRule:
        decay = getattr(optimizer, "weight_decay", 0.0)
        if decay and getattr(optimizer, "decay", "coupled") != "coupled":
            problem = "its prior acts through the gradient; write decay coupled"
            raise Misuse(f"decoupled weight decay with dynamics csgmcmc: {problem}")
        if getattr(optimizer, "l1", 0.0):
            raise Misuse("l1 with dynamics csgmcmc: proximal steps would leave its posterior; leave it out")
        return Langevin(self, decay)

    def noisy(self, time: TrainTime) -> bool:
        """Return whether the step at this time adds noise: in the last part of every cycle."""
        cycle = time.steps_per_epoch * time.epochs / self.cycles
        return time.step % cycle >= (1 - self.sampling) * cycle

    def keep(self, time: TrainTime) -> bool:
        window = self.sampling * time.steps_per_epoch * time.epochs / self.cycles
        ends = cycle_ends(self.cycles, time)
        return time.step in {end - round(back * window / self.samples) for end in ends for back in range(self.samples)}

    def copies(self, total: TrainTime) -> int:
        return self.cycles * self.samples


@dataclass(frozen=True)
class Langevin:
    """The update rule of SGLD and SGHMC.

    Attributes:
        chain: Settings of the dynamics.
        weight_decay: Weight decay d, which acts through the gradient.
    """

    chain: CyclicalSgmcmc
    weight_decay: float = 0.0

    def init(self, parameters: dict[str, Tensor]) -> OptState:
        return {"velocity": {name: torch.zeros_like(p) for name, p in parameters.items()}}

    def update(self, parameters: Tensors, gradients: Tensors, state: list[Tensors], when: StepTime) -> None:
        """Move all parameters in place; noise is added only in the sampling part of a cycle."""
        chain, velocities = self.chain, state[0]
        lr = when.lr * chain.lr_multiplier
        torch._foreach_mul_(velocities, 1 - chain.friction)
        torch._foreach_add_(velocities, gradients, alpha=-lr)
        if self.weight_decay:
            torch._foreach_add_(velocities, parameters, alpha=-lr * self.weight_decay)
        if chain.temperature and chain.noisy(when.time):
            size = math.sqrt(2 * chain.friction * lr * chain.temperature / chain.examples)
            torch._foreach_add_(velocities, when.draw(parameters), alpha=size)
        torch._foreach_add_(parameters, velocities)
