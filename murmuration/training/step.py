"""One training step, for every method.

    local      each member, alone:   realise its weights -> outputs -> loss, and its signature
    couple     all members, once:    signatures -> cotangents
    pull back  each member, alone:   one backward pass from (loss, signature) with cotangents (1, c)
    share      own gradients as they are; shared gradients gamma / M times their sum over members
    move       an optimiser step

Members meet only in `couple` and `share`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from murmuration.coupling import Coupling, Shown
from murmuration.dynamics import Moments
from murmuration.engines import Team
from murmuration.likelihoods import link_of
from murmuration.population import Named, Population, keep_zeros, rows_of
from murmuration.streams import Noise, global_stream, normals
from murmuration.training.meeting import Local, Pulled, meet, pull_back, pulled_early
from murmuration.training.moving import Method, decay_apart, update
from murmuration.weights import Realised, Structure, run_members


@dataclass
class State:
    """What a step changes."""

    population: Population
    moments: Moments  # of the own tensors
    shared_moments: Moments
    active: Tensor  # (M,) bool: members that still move
    step: int = 0
    trouble: dict[int, str] = field(default_factory=dict)  # member -> what went wrong with it
    felt: dict[str, float] = field(default_factory=dict)  # what the last measured meeting was like
    seconds: dict[str, float] = field(default_factory=dict)  # spent in steps, and of these in coupling


@dataclass(frozen=True)
class Batch:
    """Where each member's examples are; a group fetches its own when it runs."""

    fetch: Callable[[slice], tuple[Tensor, Tensor]]  # members -> x (m, B, ...), y (m, B, ...)
    lr: float
    measured: bool = False  # whether to find out what pushes members, the loss or the others


def step(team: Team, method: Method, state: State, batch: Batch) -> Tensor:
    """Move every active member once; returns the members' losses (M,), NaN where a member stands still."""
    start = time.perf_counter()
    groups = team.engine.groups(state.population.members)
    coupling = _coupling_now(method, state)
    drive = 1.0 if method.coupling is None else method.coupling.drive(state.step)

    def alone(group: slice) -> Local:
        return local(team, method, state, group, batch)

    mover, decays = decay_apart(method, state.population.own) if coupling and coupling.mixes else (method, {})

    def finish(here: Local, pulled: Pulled | None = None) -> list[Tensor]:
        own, shared = pulled or pull_back(here, drive=drive)
        move(mover, state, here, own, batch.lr)
        return shared

    if coupling is None:  # nobody waits for anybody: a group's graph is freed before the next is built
        groups = [group for group in groups if state.active[group].any()]
        done = team.map(lambda group: (here := alone(group), finish(here)), groups)
        places, shared = [here for here, _ in done], [gradients for _, gradients in done]
    else:
        places = team.map(alone, groups)
        met = meet(team, coupling, places, step=state.step, measured=batch.measured, decays=decays)
        state.felt = met.felt or state.felt
        spend(state, "coupling", met.seconds)
        shared = team.map(finish, places, met.gradients)
    share(method, state, shared, batch.lr)
    state.step += 1
    spend(state, "steps", time.perf_counter() - start)
    return _gather_losses(state, places)


def local(team: Team, method: Method, state: State, members: slice, batch: Batch) -> Local:
    """The group's losses and signatures, with the graph that leads to them."""
    group = state.population.group(members)
    own, shared = _leaves(without_nonsense(group.own, state.active[members])), _leaves(group.shared)
    before = {name: tensor.clone() for name, tensor in group.buffers.items()}
    first = method.first_member + members.start
    noise = [Noise(method.seed, first + i, state.step) for i in range(group.members)]
    x, y = batch.fetch(members)
    coupling = _coupling_now(method, state)
    if coupling is not None and coupling.needs_inputs:
        x = x.detach().requires_grad_()
    draw = partial(method.weights.realise, own, shared, noise, buffers=before, training=True)
    realised = draw()
    weights = {**realised.own, **{name: t.expand(group.members, *t.shape) for name, t in realised.shared.items()}}
    tensors, structure, signature = realised.with_buffers(group.buffers), team.structure(training=True), None

    def run(other: Named, inputs: Tensor) -> Tensor:
        again = other is weights  # from the leaves on: the graph of this pass may be gone by then
        chosen = draw() if again else Realised(other, {}, realised.spec)
        copies = {name: tensor.clone() for name, tensor in before.items()}
        return run_members(structure, chosen.with_buffers(copies), inputs, noise, team.engine.direct)

    with global_stream(method.seed, "noise", first, state.step, redirect=team.engine.name == "loop"):
        passed = one_pass(team, coupling, structure, tensors, x, noise)
        rows = [method.likelihood.loss(passed.outputs, y)]
        for _ in range(1, method.bound.samples):
            other = draw().with_buffers(group.buffers)
            rows.append(method.likelihood.loss(run_members(structure, other, x, noise, team.engine.direct), y))
        cost = method.weights.complexity(own, shared, before, noise, realised.stds) if method.bound.beta else None
        losses = method.bound.combine(rows).mean(-1)
        losses = losses if cost is None else losses + method.bound.kl_weight(state.step) * cost
        here = Local(members, own, shared, losses, state.active[members], None, before)
        if coupling is not None and coupling.stands_apart and passed.apart is None:
            here = pulled_early(here, coupling.drive(state.step))
            passed, losses = replace(passed, outputs=passed.outputs.detach()), here.losses
        if coupling is not None:
            seen = (passed.outputs, losses, passed.features, run, partial(normals, noise), passed.apart)
            signature = coupling.signature(Shown(weights, tuple(own), x, y, *seen, link_of(method.likelihood)))
    return replace(here, signature=signature)


@dataclass(frozen=True)
class Passed:
    """What came of one pass over a batch."""

    outputs: Tensor  # (m, B, K)
    features: Tensor | None = None  # (m, B, F) that led to them, where a coupling looks at these
    apart: tuple[Tensor, Tensor] | None = None  # outputs and inputs of the examples a coupling looks at, run apart


def one_pass(
    team: Team, coupling: Coupling | None, structure: Structure, tensors: Realised, x: Tensor, noise: Sequence[Noise]
) -> Passed:
    """One pass over inputs (m, B, ...), in such parts as the coupling needs.

    Only examples whose input gradients are differentiated pay for that, unless the network mixes examples.
    """

    def run(inputs: Tensor, part: str = "") -> Tensor:
        return run_members(structure, tensors, inputs, noise, team.engine.direct, part)

    if coupling is not None and coupling.needs_features:
        structure.require_parts()
        features = run(x, "body")
        return Passed(run(features, "head"), features)
    if coupling is None or not coupling.stands_apart or structure.mixes_examples:
        return Passed(run(x))
    rows = coupling.rows(x.shape[1])
    shown = x[:, :rows].detach().requires_grad_()
    first = run(shown)
    outputs = torch.cat([first, run(x[:, rows:])], 1) if rows < x.shape[1] else first
    return Passed(outputs, apart=(first, shown))


def spend(state: State, what: str, seconds: float) -> None:
    """Note how long something took."""
    state.seconds[what] = state.seconds.get(what, 0.0) + seconds


def _coupling_now(method: Method, state: State) -> Coupling | None:
    """The coupling, if members meet at this step."""
    return method.coupling if method.coupling is not None and method.coupling.due(state.step) else None


def move(method: Method, state: State, here: Local, gradients: list[Tensor], lr: float) -> None:
    """Update the group's own tensors in place; a member whose loss is not finite stays where it was.

    A gradient that is not finite shows in the next loss or the epoch's validation, and the member goes back to a state
    from before: asking every gradient would cost a tenth of a small network's step.
    """
    active = state.active[here.members]
    steady = active & here.losses.detach().isfinite().to("cpu")
    rows: list[slice | int] = [here.members]
    if not bool(steady.all()):
        _undo_buffers(state, here, ~steady)
        _report(state, here, active & ~steady)
        rows = [here.members.start + int(i) for i in steady.nonzero()]
    for row in rows:
        mine = gradients if isinstance(row, slice) else [g[row - here.members.start] for g in gradients]
        tensors = rows_of(state.population.own, row)
        moments = {kind: rows_of(named, row) for kind, named in state.moments.items()}
        update(method, tensors, mine, moments, lr=lr, taken=state.step)
        keep_zeros(tensors, state.population.buffers, row)


def share(method: Method, state: State, gradients: list[list[Tensor]], lr: float) -> None:
    """Move the shared tensors by gamma / M times the sum of all members' gradients."""
    if not state.population.shared or not gradients:
        return
    factor = method.gamma / state.population.members
    total = [factor * torch.stack(parts).sum(0) for parts in zip(*gradients, strict=True)]
    if not bool(get_total_norm(total).isfinite()):  # one member's nonsense must not reach what all use
        return
    update(method, state.population.shared, total, state.shared_moments, lr=lr, taken=state.step)
    keep_zeros(state.population.shared, state.population.buffers, 0)


def without_nonsense(own: Named, active: Tensor) -> Named:
    """Own tensors (m, ...), finite for members that stand still: their part of what all share is nothing times that."""
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


def _undo_buffers(state: State, here: Local, still: Tensor) -> None:
    for name, before in here.buffers_before.items():
        state.population.buffers[name][here.members][still] = before[still]


def _report(state: State, here: Local, fallen: Tensor) -> None:
    for i in fallen.nonzero().flatten().tolist():
        loss = float(here.losses[i].detach())
        state.trouble[here.members.start + i] = f"loss {loss} at step {state.step}"
        state.active[here.members.start + i] = False


def _gather_losses(state: State, places: list[Local]) -> Tensor:
    losses = torch.full((state.population.members,), torch.nan)
    for here in places:
        losses[here.members] = here.losses.detach().to("cpu", losses.dtype)
    return losses.masked_fill(~state.active, torch.nan)  # some engines run those who stand still too
