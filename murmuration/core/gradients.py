"""Losses and gradients of one group of members: a forward pass, then one backward pass.

local      each member, alone:   realise its weights -> outputs -> loss, and its features in the coupling's space
pull back  each member, alone:   one backward pass from (loss, features) with cotangents (1, c)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from murmuration.core.coupling import Coupling, SpaceInputs
from murmuration.core.coupling.space import FEATURES, INPUTS, SUB_BATCH
from murmuration.core.divergence import all_finite, without_diverged
from murmuration.core.engines import Team
from murmuration.core.population import Named
from murmuration.core.state import Batch, State, StepConfig
from murmuration.core.weights import Realised, Structure, run_members
from murmuration.likelihoods import link_of
from murmuration.likelihoods.base import member_losses
from murmuration.system.streams import Noise, normals

Gradients = tuple[list[Tensor], list[Tensor]]  # of own tensors (m, ...) each, and of shared ones


@dataclass(frozen=True)
class LocalPass:
    """A group of m members after its forward pass.

    Attributes:
        members: Rows of the population.
        own: Own tensors, leaves of the graph.
        shared: Shared tensors, leaves of the graph.
        losses: (m,)
        active: (m,) bool: members that are still trained; the others contribute nothing to shared gradients.
        buffers_before: Buffers before the pass, to undo it.
        features: (m, B, R) in the coupling's space.
        gradients: Of the losses, where they are computed before the members interact.
    """

    members: slice
    own: Named
    shared: Named
    losses: Tensor
    active: Tensor
    buffers_before: Named
    features: Tensor | None = None
    gradients: Gradients | None = None

    def result(self, gradients: Gradients) -> "GroupResult":
        """Return the losses of this pass with their gradients, without its graph."""
        return GroupResult(self.members, self.losses.detach(), self.active, *gradients, self.buffers_before)


@dataclass(frozen=True)
class GroupResult:
    """Losses and gradients of a group of m members.

    Attributes:
        members: Rows of the population.
        losses: (m,)
        active: (m,) bool: members that are still trained.
        own: Gradients of the own tensors, (m, ...) each.
        shared: Gradients of the shared tensors, summed over the group.
        buffers_before: Buffers before the pass, to undo it.
    """

    members: slice
    losses: Tensor
    active: Tensor
    own: list[Tensor]
    shared: list[Tensor]
    buffers_before: Named

    def tensors(self) -> list[Tensor]:
        """Return losses and gradients as one list."""
        return [self.losses, *self.own, *self.shared]

    def with_tensors(self, tensors: list[Tensor]) -> "GroupResult":
        """Return the same group with other losses and gradients, in the order of `tensors`."""
        losses, *gradients = tensors
        return replace(self, losses=losses, own=gradients[: len(self.own)], shared=gradients[len(self.own) :])


def local_pass(
    team: Team,
    config: StepConfig,
    state: State,
    members: slice,
    batch: Batch,
    noise: Sequence[Noise] | None = None,
    loss_scale: Tensor | None = None,
) -> LocalPass:
    """Compute the losses and features of a group of members, with the graph that leads to them.

    Args:
        team: Runs the network.
        config: Settings of the step.
        state: Members before the step.
        members: Rows of the group.
        batch: Examples of the step.
        noise: Noise of each member at this step; by default that of their streams.
        loss_scale: Factor of the losses at this step; by default that of the coupling.
    """
    group = state.population.group(members)
    own = group.own if all_finite(state) else without_diverged(group.own, state.active[members])
    own, shared = _leaves(own), _leaves(group.shared)
    before = {name: tensor.clone() for name, tensor in group.buffers.items()}
    noise = noise or state.noise.noise(range(*members.indices(state.population.members)), state.step)
    (x, y), weight = batch.fetch(members), batch.weight(members)
    first = state.noise.first_member + state.noise.first_row + members.start
    numbers = torch.arange(first, first + group.members, device=x.device)
    coupling = config.coupling_at(state.step)
    if coupling is not None and INPUTS in coupling.space.needs:
        x = x.detach().requires_grad_()
    draw = partial(config.weights.realise, own, shared, noise, buffers=before, training=True)
    realised, structure, direct = draw(), team.structure(training=True), team.engine.direct
    weights = {**realised.own, **{name: t.expand(group.members, *t.shape) for name, t in realised.shared.items()}}

    def run(other: Named, inputs: Tensor) -> Tensor:
        """Run other weights; those of this pass from the leaves on, as its graph may be freed by then."""
        copies = {name: tensor.clone() for name, tensor in before.items()}
        tensors = (draw() if other is weights else Realised(other, {}, realised.spec)).with_buffers(copies, group.fixed)
        return run_members(structure, tensors, inputs, noise, direct)

    def passes(first: Tensor) -> Iterator[Tensor]:
        yield first
        while True:
            yield run_members(structure, draw().with_buffers(group.buffers, group.fixed), x, noise, direct)

    address = (state.noise.seed, state.noise.member(members.start), state.step)
    with team.noise_stream(*address, x.device, repeats=config.is_built_in):
        tensors = realised.with_buffers(group.buffers, group.fixed)
        outputs, features, sub_batch = forward(coupling, structure, tensors, x, noise, direct)
        losses = config.objective.losses(
            passes(outputs),
            lambda outputs, weight: member_losses(config.likelihood, outputs, y, weight, numbers),
            weight,
            lambda: config.weights.complexity(own, shared, before, noise, realised.stds),
            state.step,
        )
        local = LocalPass(members, own, shared, losses, state.active[members], before)
        if coupling is None:
            return local
        if SUB_BATCH in coupling.space.needs and sub_batch is None:
            # Features come from a pass of their own: the loss graph is freed before the members synchronise, so that
            # only the smaller graph of the features stays in memory.
            factor = coupling.loss_scale(state.step) if loss_scale is None else loss_scale
            gradients = pull_back(local, loss_scale=factor, keep=True)
            local, outputs = replace(local, losses=losses.detach(), gradients=gradients), outputs.detach()
        sample, link = partial(normals, noise), link_of(config.likelihood)
        inputs = SpaceInputs(weights, tuple(own), x, y, outputs, local.losses, features, run, sample, sub_batch, link)
        return replace(local, features=coupling.features(inputs))


def forward(
    coupling: Coupling | None, structure: Structure, tensors: Realised, x: Tensor, noise: Sequence[Noise], direct: bool
) -> tuple[Tensor, Tensor | None, tuple[Tensor, Tensor] | None]:
    """Run one pass over inputs (m, B, ...), split as the coupling needs it.

    Only examples whose input gradients are differentiated pay for that, unless the network mixes examples.

    Returns:
        Outputs (m, B, K); features (m, B, F) of the network's body, if the coupling needs them; outputs and inputs of
        a separate pass over the first examples, if it needs that.
    """

    def run(inputs: Tensor, part: str = "") -> Tensor:
        return run_members(structure, tensors, inputs, noise, direct, part)

    if coupling is not None and FEATURES in coupling.space.needs:
        structure.require_parts()
        features = run(x, "body")
        return run(features, "head"), features, None
    if coupling is None or SUB_BATCH not in coupling.space.needs or structure.mixes_examples:
        return run(x), None, None
    rows = coupling.space.rows(x.shape[1])
    inputs = x[:, :rows].detach().requires_grad_()
    first = run(inputs)
    outputs = torch.cat([first, run(x[:, rows:])], 1) if rows < x.shape[1] else first
    return outputs, None, (first, inputs)


def pull_back(
    local: LocalPass, cotangent: Tensor | None = None, loss_scale: float | Tensor = 1.0, *, keep: bool = False
) -> Gradients:
    """Compute gradients of the group's own tensors, (m, ...) each, and of the shared ones, summed over the group.

    Args:
        local: The pass.
        cotangent: (m, B, R) of its features; None: gradients of the losses alone.
        loss_scale: Factor of the losses.
        keep: Whether the graph is needed again.
    """
    if local.gradients is not None:
        if cotangent is None:
            return local.gradients
        return add_gradients(local.gradients, repulsion_gradients(local, cotangent))
    roots, weights = [local.losses], [loss_scale * local.active.to(local.losses)]
    if cotangent is not None and local.features is not None:
        roots.append(local.features)
        weights.append(cotangent)
    return _gradients(local, roots, weights, keep)


def repulsion_gradients(local: LocalPass, cotangent: Tensor) -> Gradients:
    """Compute the gradients of the repulsion alone."""
    assert local.features is not None
    return _gradients(local, [local.features], [cotangent], keep=False)


def add_gradients(a: Gradients, b: Gradients) -> Gradients:
    """Add two lists of gradients."""
    own, shared = ([x + y for x, y in zip(*pair, strict=True)] for pair in zip(a, b, strict=True))
    return own, shared


def _gradients(local: LocalPass, roots: list[Tensor], weights: list[Tensor], keep: bool) -> Gradients:
    leaves = [*local.own.values(), *local.shared.values()]
    grads = torch.autograd.grad(roots, leaves, weights, materialize_grads=True, retain_graph=keep)
    return list(grads[: len(local.own)]), list(grads[len(local.own) :])


def _leaves(named: Named) -> Named:
    # Not detach: it shares the version counter of the whole storage, and members move while others run.
    return {name: tensor.data.requires_grad_() for name, tensor in named.items()}
