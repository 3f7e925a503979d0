"""Losses and gradients of members: each alone, then with the others' repulsion.

local      each member, alone:   realise its weights -> outputs -> loss, and its features in the coupling's space
couple     all members, once:    features -> cotangents
pull back  each member, alone:   one backward pass from (loss, features) with cotangents (1, c)
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from murmuration.core.coupling import Coupling, SpaceInputs
from murmuration.core.coupling.space import FEATURES, INPUTS, SUB_BATCH
from murmuration.core.engines import Ranks, Team
from murmuration.core.population import Named
from murmuration.core.state import Batch, Gradients, Local, State, StepConfig
from murmuration.core.weights import Realised, Structure, run_members
from murmuration.likelihoods import identity, link_of, member_losses, weighted
from murmuration.system.streams import Noise, global_stream, normals

AnyNoise = TypeVar("AnyNoise", bound=Noise)
FARTHEST = 1e15  # features longer than this count as not finite: squares of their distances would overflow


def local(
    team: Team,
    config: StepConfig,
    state: State,
    members: slice,
    batch: Batch,
    noise: Sequence[Noise] | None = None,
) -> Local:
    """The losses and features of a group of members, with the graph that leads to them.

    `noise` is that of the members at this step (`step_noise`).
    """
    group = state.population.group(members)
    finite = all(found.restored is not None for found in state.diverged.values())
    own = _leaves(group.own if finite else finite_tensors(group.own, state.active[members]))
    shared = _leaves(group.shared)
    before = {name: tensor.clone() for name, tensor in group.buffers.items()}
    first = config.first_member + config.first_row + members.start
    noise = noise or step_noise(config, state, members, Noise)
    (x, y), weight = batch.fetch(members), batch.weight(members)
    several = config.objective.samples > 1  # draws of an example are combined before it is weighted
    number = torch.arange(first, first + group.members, device=x.device)
    coupling, features = coupling_now(config, state), None
    if coupling is not None and INPUTS in coupling.needs:
        x = x.detach().requires_grad_()
    draw = partial(config.weights.realise, own, shared, noise, buffers=before, training=True)
    realised = draw()
    weights = {**realised.own, **{name: t.expand(group.members, *t.shape) for name, t in realised.shared.items()}}
    tensors, structure = realised.with_buffers(group.buffers, group.fixed), team.structure(training=True)

    def run(other: Named, inputs: Tensor) -> Tensor:
        again = other is weights  # from the leaves on: the graph of this pass may be freed by then
        chosen = draw() if again else Realised(other, {}, realised.spec)
        copies = {name: tensor.clone() for name, tensor in before.items()}
        return run_members(structure, chosen.with_buffers(copies, group.fixed), inputs, noise, team.engine.direct)

    lone, drawn = team.engine.name == "loop", config.noise_member(members.start)
    with global_stream(config.seed, "noise", drawn, state.step, lone, x.device):
        passed = forward(team, coupling, structure, tensors, x, noise)
        rows = [member_losses(config.likelihood, passed.outputs, y, None if several else weight, number)]
        for _ in range(1, config.objective.samples):
            other = draw().with_buffers(group.buffers, group.fixed)
            outputs = run_members(structure, other, x, noise, team.engine.direct)
            rows.append(member_losses(config.likelihood, outputs, y, None, number))
        cost = config.weights.complexity(own, shared, before, noise, realised.stds) if config.objective.beta else None
        losses = weighted(config.objective.combine(rows), weight if several else None).mean(-1)
        losses = losses if cost is None else losses + config.objective.kl_weight(state.step) * cost
        here = Local(members, own, shared, losses, state.active[members], None, before)
        if coupling is not None and SUB_BATCH in coupling.needs and passed.sub_batch is None:
            here = backward_early(here, coupling.loss_scale(state.step))
            passed, losses = replace(passed, outputs=passed.outputs.detach()), here.losses
        if coupling is not None:
            inputs = SpaceInputs(
                weights=weights,
                own=tuple(own),
                x=x,
                y=y,
                outputs=passed.outputs,
                losses=losses,
                features=passed.features,
                run=run,
                draw=partial(normals, noise),
                sub_batch=passed.sub_batch,
                link=link_of(config.likelihood),
            )
            features = coupling.features(inputs)
    return replace(here, features=features)


def step_noise(config: StepConfig, state: State, members: slice, kind: type[AnyNoise]) -> list[AnyNoise]:
    """The noise of each of the members at this step."""
    rows = range(*members.indices(state.population.members))
    return [kind(config.seed, config.noise_member(row), state.step) for row in rows]


@dataclass(frozen=True)
class ForwardPass:
    """The results of one pass over a batch."""

    outputs: Tensor  # (m, B, K)
    features: Tensor | None = None  # (m, B, F) of the network's body, where the coupling needs them
    sub_batch: tuple[Tensor, Tensor] | None = None  # outputs and inputs of a separate pass over the first examples


def forward(
    team: Team, coupling: Coupling | None, structure: Structure, tensors: Realised, x: Tensor, noise: Sequence[Noise]
) -> ForwardPass:
    """One pass over inputs (m, B, ...), split as the coupling needs it.

    Only examples whose input gradients are differentiated pay for that, unless the network mixes examples.
    """

    def run(inputs: Tensor, part: str = "") -> Tensor:
        return run_members(structure, tensors, inputs, noise, team.engine.direct, part)

    if coupling is not None and FEATURES in coupling.needs:
        structure.require_parts()
        features = run(x, "body")
        return ForwardPass(run(features, "head"), features)
    if coupling is None or SUB_BATCH not in coupling.needs or structure.mixes_examples:
        return ForwardPass(run(x))
    rows = coupling.space.rows(x.shape[1])
    chosen = x[:, :rows].detach().requires_grad_()
    first = run(chosen)
    outputs = torch.cat([first, run(x[:, rows:])], 1) if rows < x.shape[1] else first
    return ForwardPass(outputs, sub_batch=(first, chosen))


# couple and pull back


@dataclass(frozen=True)
class CouplingResult:
    """The gradients of all groups after the members have interacted."""

    gradients: list[Gradients]  # one for each group
    seconds: float  # spent on the interaction itself
    stats: dict[str, float] = field(default_factory=dict)  # of the interaction, if it was measured


def coupling_gradients(
    team: Team,
    coupling: Coupling,
    places: list[Local],
    *,
    members: int,
    step: int,
    measured: bool,
    decays: Mapping[str, float],
) -> CouplingResult:
    """Each group's gradients of loss and repulsion, from the features of all members, M in all processes.

    Where loss gradients are mixed (SVGD), so is weight decay: `decays` has the decay of each own tensor that has one.
    """
    start, loss_scale = time.perf_counter(), coupling.loss_scale(step)
    cotangents, stats = couple(team.ranks, coupling, places, members=members, step=step, measured=measured)
    seconds = time.perf_counter() - start
    mixes = coupling.space.mixing_estimator
    if not mixes and not measured:
        found = team.map(lambda here, cotangent: pull_back(here, cotangent, loss_scale), places, cotangents)
        return CouplingResult(found, seconds)
    losses = team.map(lambda here: pull_back(here, loss_scale=loss_scale, keep=True), places)
    repulsions = team.map(repulsion_gradients, places, cotangents)
    if mixes:
        losses = mix(
            team.ranks,
            coupling,
            places,
            [decayed(here, each, decays, loss_scale) for here, each in zip(places, losses, strict=True)],
            members,
        )
    if measured:
        stats["push_to_loss"] = norm_of(team.ranks, repulsions) / max(norm_of(team.ranks, losses), 1e-30)
    return CouplingResult([added(*pair) for pair in zip(losses, repulsions, strict=True)], seconds, stats)


def couple(
    ranks: Ranks, coupling: Coupling, places: list[Local], *, members: int, step: int, measured: bool
) -> tuple[list[Tensor], dict[str, float]]:
    """Each group's cotangents, from the features of all members, and statistics of the interaction."""
    exchange = features_by_columns if by_columns(ranks, coupling) else features_by_rows
    own, stats = own_features(places), {}
    features, finite = exchange(ranks, own, members)
    chosen = features if finite is None else features[finite]
    cotangents = features if finite is None else torch.zeros_like(features)
    if len(chosen):
        total = ranks.total if by_columns(ranks, coupling) else identity
        found = coupling.interact(chosen, coupling.strength(step), total)
        cotangents = found.cotangents if finite is None else cotangents.index_put((finite,), found.cotangents)
        if measured:
            stats = {"mean_kernel": float(found.mean_kernel), "cosine": coupling.cosine(chosen, total)}
    if by_columns(ranks, coupling):
        cotangents = ranks.to_rows(cotangents.flatten(1), own[0].numel()).view(own.shape)
    elif ranks.size > 1:
        rows = ranks.rows(members)
        cotangents = cotangents[rows.start : rows.stop]
    if not all(here.active.all() for here in places):  # a repulsion of inactive members would reach shared tensors
        cotangents = moving(cotangents, torch.cat([here.active for here in places]))
    return list(cotangents.split([len(here.losses) for here in places])), stats


def moving(cotangents: Tensor, active: Tensor) -> Tensor:
    """Cotangents (M, ...), zero for members that are not active (M,)."""
    return cotangents * active.to(cotangents).view(-1, *(1,) * (cotangents.dim() - 1))


def by_columns(ranks: Ranks, coupling: Coupling) -> bool:
    """Whether ranks exchange parts of all members' features, instead of all features."""
    return ranks.size > 1 and coupling.space.separable


def own_features(places: list[Local]) -> Tensor:
    """The detached features (m, B, R) of the members of this process."""
    each = [here.features.detach() for here in places if here.features is not None]
    return torch.cat(each) if len(each) > 1 else each[0]


def features_by_rows(ranks: Ranks, own: Tensor, members: int) -> tuple[Tensor, Tensor | None]:
    """The features (M, B, R) of all members, and which rows (M,) are finite; None if all are."""
    features = ranks.gather(own, members)
    if torch.linalg.vector_norm(features) < FARTHEST:  # NaN is not less
        return features, None
    return features, finite_rows(features)


def features_by_columns(ranks: Ranks, own: Tensor, members: int) -> tuple[Tensor, Tensor | None]:
    """A part (M, 1, r) of the features of all members, from this process's (m, 1, R), and which rows are finite."""
    finite = ranks.gather(finite_rows(own), members)
    return ranks.to_columns(own.flatten(1), members).unsqueeze(1), None if bool(finite.all()) else finite


def finite_rows(features: Tensor) -> Tensor:
    """Which rows (m,) of features (m, ...) are finite, and short enough for squares of distances to be."""
    return features.flatten(1).norm(dim=1) < FARTHEST


def pull_back(
    here: Local, cotangent: Tensor | None = None, loss_scale: float | Tensor = 1.0, *, keep: bool = False
) -> Gradients:
    """Gradients of the group's own tensors, (m, ...) each, and of the shared ones, summed over the group."""
    if here.gradients is not None:
        return here.gradients if cotangent is None else added(here.gradients, repulsion_gradients(here, cotangent))
    roots = [here.losses]
    weights: list[Tensor | None] = [loss_scale * here.active.to(here.losses)]
    if cotangent is not None and here.features is not None:
        roots.append(here.features)
        weights.append(cotangent)
    return _gradients(here, roots, weights, keep)


def backward_early(here: Local, loss_scale: float) -> Local:
    """Backpropagate the loss now and keep its gradients.

    Used when the features come from a separate forward pass: the loss graph can be freed before the members
    synchronise, so only the smaller feature graph stays in memory. Returns the group with `gradients` set and `losses`
    detached.
    """
    return replace(here, losses=here.losses.detach(), gradients=pull_back(here, loss_scale=loss_scale, keep=True))


def repulsion_gradients(here: Local, cotangent: Tensor) -> Gradients:
    """The gradients of the repulsion alone."""
    assert here.features is not None
    return _gradients(here, [here.features], [cotangent], keep=False)


def _gradients(here: Local, roots: list[Tensor], weights: list[Tensor | None], keep: bool) -> Gradients:
    leaves = [*here.own.values(), *here.shared.values()]
    found = torch.autograd.grad(roots, leaves, weights, materialize_grads=True, retain_graph=keep)
    return list(found[: len(here.own)]), list(found[len(here.own) :])


def decayed(here: Local, gradients: Gradients, decays: Mapping[str, float], loss_scale: float) -> Gradients:
    """Gradients of a group's losses plus, for its own tensors, loss_scale * decay / 2 times their squared norm."""
    own = [
        torch.add(gradient, here.own[name].detach(), alpha=loss_scale * decays[name]) if name in decays else gradient
        for name, gradient in zip(here.own, gradients[0], strict=True)
    ]
    return own, gradients[1]


def mix(
    ranks: Ranks, coupling: Coupling, places: list[Local], gradients: list[Gradients], members: int
) -> list[Gradients]:
    """Loss gradients averaged over members with the weights of the coupling (SVGD).

    A member whose features or gradients are not finite keeps its own and enters no other's: zero times infinity would
    reach everybody. Ranks exchange parts of all members' gradients.
    """
    own = own_features(places)
    whole = [torch.cat(parts) for parts in zip(*(own for own, _ in gradients), strict=True)]  # (m, ...) each
    finite = finite_rows(own)
    for gradient in whole:
        finite = finite & gradient.flatten(1).isfinite().all(1)
    rows = ranks.gather(finite, members).nonzero().flatten()
    flat = torch.cat([gradient.flatten(1) for gradient in whole], 1)
    columns = ranks.to_columns(flat, members)  # (M, p)
    if len(rows):
        features = ranks.to_columns(own.flatten(1), members).unsqueeze(1)
        weights = coupling.space.mixing(features[rows], ranks.total)
        assert weights is not None
        columns = columns.index_copy(0, rows, weights.to(columns) @ columns[rows])
    found = ranks.to_rows(columns, flat.shape[1]).split([gradient[0].numel() for gradient in whole], 1)
    mixed = [part.view(gradient.shape) for part, gradient in zip(found, whole, strict=True)]
    return [([g[here.members] for g in mixed], shared) for here, (_, shared) in zip(places, gradients, strict=True)]


def added(a: Gradients, b: Gradients) -> Gradients:
    """The sums of two lists of gradients."""
    first, second = ([x + y for x, y in zip(*pair, strict=True)] for pair in zip(a, b, strict=True))
    return first, second


def norm_of(ranks: Ranks, gradients: list[Gradients]) -> float:
    """The norm of all gradients together."""
    norm = get_total_norm([gradient for own, shared in gradients for gradient in (*own, *shared)])
    return float(norm if ranks.size == 1 else ranks.total(norm.square()).sqrt())


def coupling_now(config: StepConfig, state: State) -> Coupling | None:
    """The coupling, if it is computed at this step."""
    return config.coupling if config.coupling is not None and config.coupling.due(state.step) else None


def finite_tensors(own: Named, active: Tensor) -> Named:
    """Own tensors (m, ...), zero where an inactive member is not finite: its gradients are multiplied by zero."""
    if bool(active.all()):
        return own
    still = [i for i, moving in enumerate(active.tolist()) if not moving]
    return {
        name: t.index_copy(0, torch.tensor(still, device=t.device), t[still].nan_to_num(0, 0, 0))
        for name, t in own.items()
    }


def _leaves(named: Named) -> Named:
    # Not detach: it shares the version counter of the whole storage, and members move while others run.
    return {name: tensor.data.requires_grad_() for name, tensor in named.items()}
