"""The losses and gradients of a group that waits for no other, as a task that an engine may capture and replay."""

import time
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from murmuration.core.divergence import all_finite
from murmuration.core.engines import Team
from murmuration.core.engines.captures import StepInputs
from murmuration.core.gradients import GroupResult, local_pass, pull_back
from murmuration.core.interaction import MAX_LENGTH, couple, own_features, without_inactive
from murmuration.core.population import is_auxiliary
from murmuration.core.state import Batch, Probe, State, StepConfig
from murmuration.system.streams import RepeatableNoise


@dataclass(frozen=True)
class GroupStep:
    """Losses and gradients of members that do not interact, or of all members in one group."""

    team: Team
    config: StepConfig
    state: State
    members: slice
    batch: Batch
    probe: Probe

    @property
    def packed(self) -> slice:
        """The results that a replay packs into one buffer: gradients of the own tensors."""
        return slice(1, 1 + len(self.state.population.own))

    @cached_property
    def _fetched(self) -> Batch:
        """The batch with the examples of these members in memory."""
        examples, weight = self.batch.fetch(self.members), self.batch.weight(self.members)
        return replace(self.batch, fetch=lambda _: examples, weight=lambda _: weight)

    def inputs(self) -> StepInputs | None:
        """Return what the results depend on; None if the operators may change from step to step."""
        population = self.state.population
        changing = any(not is_auxiliary(name) for name in population.buffers)
        if not self.config.same_operators or changing or not all_finite(self.state):
            return None
        coupling, rows = self.config.coupling_at(self.state.step), range(*self.members.indices(population.members))
        (x, y), weight, noise = self._fetched.fetch(self.members), self._fetched.weight(self.members), self.state.noise
        strength = 0.0 if coupling is None else coupling.strength(self.state.step)
        factors = _factors(self.config.loss_scale(self.state.step), strength, x.device)
        return StepInputs(
            key=(self.members.start, self.members.stop, coupling is None),
            settings=(self.config.likelihood, coupling),
            held=[self.state.active, *population.own.values(), *population.shared.values()],  # a group is views of them
            given=[x, y, factors, *([] if weight is None else [weight])],
            make_noise=lambda: [RepeatableNoise(noise.seed, noise.member(row), self.state.step) for row in rows],
        )

    def run(self, inputs: StepInputs | None) -> GroupResult:
        """Compute the results."""
        begun, step = time.perf_counter(), self.state.step
        batch, noise = (self.batch, None) if inputs is None else (self._fetched, inputs.noise)
        local = local_pass(self.team, self.config, self.state, self.members, batch, noise)
        coupling, cotangent = self.config.coupling_at(step), None
        if coupling is not None:
            start = time.perf_counter()
            members = self.config.member_count(self.state.population)
            (cotangent,), _ = couple(self.team.ranks, coupling, [local], members, step)
            self.probe.spend("coupling", time.perf_counter() - start)
        result = local.result(pull_back(local, cotangent, self.config.loss_scale(step)))
        if coupling is not None:
            self.probe.spend("steps", time.perf_counter() - begun)
        return result

    def compute(self, inputs: StepInputs) -> list[Tensor]:
        """Compute the tensors of `run` as a function of `inputs` alone, and the length of the features.

        The factors of loss and repulsion are tensors, and features are taken to be finite.
        """
        for noise in inputs.noise:
            noise.rewind()
        factors = inputs.given[2]
        local = local_pass(self.team, self.config, self.state, self.members, self._fetched, inputs.noise, factors[0])
        coupling, cotangent, lengths = self.config.coupling_at(self.state.step), None, []
        if coupling is not None:
            features = own_features([local])
            lengths = [torch.linalg.vector_norm(features)]
            cotangent = without_inactive(coupling.interact(features, factors[1]).cotangents, local.active)
        return [*local.result(pull_back(local, cotangent, factors[0])).tensors(), *lengths]

    def unpack(self, tensors: list[Tensor]) -> GroupResult | None:
        """Return the result that `compute` gave; None if features were not finite."""
        if self.config.coupling_at(self.state.step) is not None and not float(tensors.pop()) < MAX_LENGTH:
            return None
        losses, *gradients = tensors
        own, active = len(self.state.population.own), self.state.active[self.members]
        return GroupResult(self.members, losses, active, gradients[:own], gradients[own:], buffers_before={})


@lru_cache(maxsize=8)
def _factors(loss_scale: float, strength: float, device: torch.device) -> Tensor:
    """Return the factors (2,) of losses and repulsion, one tensor as long as they stay the same."""
    return torch.tensor([loss_scale, strength], dtype=torch.float64, device=device)
