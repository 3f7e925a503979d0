"""One training step, for every method.

    local      each member, alone:   realise its weights -> outputs -> loss, and its features in the coupling's space
    couple     all members, once:    features -> cotangents
    pull back  each member, alone:   one backward pass from (loss, features) with cotangents (1, c)
    share      own gradients as they are; shared gradients gamma / M times their sum over members
    move       the update rule of the dynamics

Members interact only in `couple` and `share`. A member whose loss or features are not finite has diverged: it neither
repels nor is repelled, and its gradients do not reach shared tensors.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from murmuration.coupling import Coupling, SpaceInputs
from murmuration.coupling.space import FEATURES, INPUTS, SUB_BATCH
from murmuration.dynamics import Dynamics, Optimizer, OptState, StepTime, TorchOptimizer, TrainTime, UpdateRule
from murmuration.dynamics.optimizer import Memory, shrink
from murmuration.dynamics.sgmcmc import Langevin
from murmuration.engines import Team
from murmuration.likelihoods import Likelihood, link_of, member_losses, weighted
from murmuration.population import Named, Population, rows_of, zero_pruned
from murmuration.sharing import is_factor
from murmuration.streams import ALL_MEMBERS, Noise, global_stream, many_normals, normals
from murmuration.weights import ELBO, NetworkWeights, Realised, Structure, run_members
from murmuration.weights.gaussian import STD_PARAM

START = TrainTime(0, 1, 1)
FARTHEST = 1e15  # features longer than this count as not finite: squares of their distances would overflow

Gradients = tuple[list[Tensor], list[Tensor]]  # of own tensors (m, ...) each, and of shared ones
ParamGroup = tuple[dict[str, None], UpdateRule, float]  # names, update rule, multiplier of the learning rate


@dataclass(frozen=True)
class StepConfig:
    """Everything about a step that stays the same during training."""

    likelihood: Likelihood
    weights: NetworkWeights
    coupling: Coupling | None = None
    optimizer: Optimizer | TorchOptimizer = field(default_factory=lambda: Optimizer("adam"))
    dynamics: Dynamics = field(default_factory=Dynamics)
    objective: ELBO = field(default_factory=ELBO)
    gamma: float = 1.0  # shared gradients are gamma / M times their sum over members
    factor_lr_multiplier: float = 1.0  # of factors of shared kernels
    factor_decay: bool = False  # whether weight decay acts on them
    lr_multipliers: tuple[tuple[str, float], ...] = ()  # (pattern of tensor names, multiplier); the last match counts
    clip_norm: float | None = None  # largest norm of a member's own gradients, and of the shared ones
    seed: int = 0
    first_member: int = 0
    same_noise: bool = False  # whether all members draw the noise of the first
    known_groups: dict[tuple[str, ...], "list[ParamGroup]"] = field(  # parameter groups by names of tensors
        default_factory=dict, init=False, repr=False, compare=False
    )

    def noise_member(self, index: int) -> int:
        """The member whose noise the member at this row draws."""
        return index if index == ALL_MEMBERS else self.first_member + (0 if self.same_noise else index)


@dataclass(frozen=True)
class Divergence:
    """A member that left the finite numbers, and what became of it."""

    reason: str
    restored: int | None = None  # epoch whose weights it returned to; 0: initial weights; None: not yet returned

    def __str__(self) -> str:
        if self.restored is None:
            return self.reason
        if self.restored == 0:
            return f"{self.reason}; has its initial weights and is left out of the ensemble"
        return f"{self.reason}; has its weights of epoch {self.restored}"


@dataclass
class State:
    """Everything that a step changes."""

    population: Population
    opt_state: OptState  # of the own tensors
    shared_opt_state: OptState
    active: Tensor  # (M,) bool: members that are still trained
    step: int = 0
    diverged: dict[int, Divergence] = field(default_factory=dict)
    coupling_stats: dict[str, float] = field(default_factory=dict)  # of the last measured interaction
    seconds: dict[str, float] = field(default_factory=dict)  # spent in steps, and of these in coupling
    memory: Memory = field(default_factory=dict)  # of an optimizer of the caller's own


@dataclass(frozen=True)
class Batch:
    """One step's examples; a group of members fetches its own when it runs."""

    fetch: Callable[[slice], tuple[Tensor, Tensor]]  # members -> x (m, B, ...), y (m, B, ...)
    lr: float
    measured: bool = False  # whether to measure the interaction
    time: TrainTime = START
    weight: Callable[[slice], Tensor | None] = lambda members: None  # members -> sample weights (m, B), of mean 1


@dataclass(frozen=True)
class Local:
    """One group of m members after its forward pass."""

    members: slice
    own: Named  # leaves of the graph
    shared: Named
    losses: Tensor  # (m,)
    active: Tensor  # (m,) bool: members that are still trained; the others contribute nothing to shared gradients
    features: Tensor | None  # (m, B, R)
    buffers_before: Named  # to undo the step
    gradients: Gradients | None = None  # of the losses, where they are computed before the members interact


def step(team: Team, config: StepConfig, state: State, batch: Batch) -> Tensor:
    """Move every active member once; returns the members' losses (M,), NaN where a member is inactive."""
    start = time.perf_counter()
    groups = team.engine.groups(state.population.members)
    coupling = _coupling_now(config, state)
    loss_scale = 1.0 if config.coupling is None else config.coupling.loss_scale(state.step)

    def alone(group: slice) -> Local:
        return local(team, config, state, group, batch)

    mixes = coupling is not None and coupling.space.mixing_estimator
    mover, decays = separate_decay(config, state.population.own) if mixes else (config, {})

    def finish(here: Local, gradients: Gradients | None = None) -> list[Tensor]:
        own, shared = gradients or pull_back(here, loss_scale=loss_scale)
        move(mover, state, here, own, batch)
        return shared

    if coupling is None:  # members need not wait for each other: a group's graph is freed before the next is built
        groups = [group for group in groups if state.active[group].any()]
        done = team.map(lambda group: (here := alone(group), finish(here)), groups)
        places, shared = [here for here, _ in done], [gradients for _, gradients in done]
    else:
        places = team.map(alone, groups)
        found = coupling_gradients(team, coupling, places, step=state.step, measured=batch.measured, decays=decays)
        state.coupling_stats = found.stats or state.coupling_stats
        spend(state, "coupling", found.seconds)
        shared = team.map(finish, places, found.gradients)
    share(config, state, shared, batch)
    state.step += 1
    spend(state, "steps", time.perf_counter() - start)
    return _gather_losses(state, places)


# local: each member alone


def local(team: Team, config: StepConfig, state: State, members: slice, batch: Batch) -> Local:
    """The losses and features of a group of members, with the graph that leads to them."""
    group = state.population.group(members)
    own, shared = _leaves(finite_tensors(group.own, state.active[members])), _leaves(group.shared)
    before = {name: tensor.clone() for name, tensor in group.buffers.items()}
    first = config.first_member + members.start
    drawn = [config.noise_member(members.start + i) for i in range(group.members)]
    noise = [Noise(config.seed, member, state.step) for member in drawn]
    (x, y), weight = batch.fetch(members), batch.weight(members)
    several = config.objective.samples > 1  # draws of an example are combined before it is weighted
    number = torch.arange(first, first + group.members, device=x.device)
    coupling, features = _coupling_now(config, state), None
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

    with global_stream(config.seed, "noise", drawn[0], state.step, team.engine.name == "loop", x.device):
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
    team: Team, coupling: Coupling, places: list[Local], *, step: int, measured: bool, decays: Mapping[str, float]
) -> CouplingResult:
    """Each group's gradients of loss and repulsion, from the features of all members.

    Where loss gradients are mixed (SVGD), so is weight decay: `decays` has the decay of each own tensor that has one.
    """
    start, loss_scale = time.perf_counter(), coupling.loss_scale(step)
    cotangents, stats = couple(coupling, places, step=step, measured=measured)
    seconds = time.perf_counter() - start
    mixes = coupling.space.mixing_estimator
    if not mixes and not measured:
        found = team.map(lambda here, cotangent: pull_back(here, cotangent, loss_scale), places, cotangents)
        return CouplingResult(found, seconds)
    losses = team.map(lambda here: pull_back(here, loss_scale=loss_scale, keep=True), places)
    repulsions = team.map(repulsion_gradients, places, cotangents)
    if mixes:
        losses = mix(
            coupling,
            places,
            [decayed(here, each, decays, loss_scale) for here, each in zip(places, losses, strict=True)],
        )
    if measured:
        stats["push_to_loss"] = norm_of(repulsions) / max(norm_of(losses), 1e-30)
    return CouplingResult([added(*pair) for pair in zip(losses, repulsions, strict=True)], seconds, stats)


def couple(
    coupling: Coupling, places: list[Local], *, step: int, measured: bool
) -> tuple[list[Tensor], dict[str, float]]:
    """Each group's cotangents, from the features of all members, and statistics of the interaction."""
    (features, finite), stats = gather_features(places), {}
    chosen = features if finite is None else features[finite]
    cotangents = features if finite is None else torch.zeros_like(features)
    if len(chosen):
        found = coupling.interact(chosen, step)
        cotangents = found.cotangents if finite is None else cotangents.index_put((finite,), found.cotangents)
        if measured:
            stats = {"mean_kernel": float(found.mean_kernel), "cosine": coupling.cosine(chosen)}
    if not all(here.active.all() for here in places):  # a repulsion of inactive members would reach shared tensors
        moving = torch.cat([here.active for here in places]).to(cotangents)
        cotangents = cotangents * moving.view(-1, *(1,) * (cotangents.dim() - 1))
    return list(cotangents.split([len(here.losses) for here in places])), stats


def gather_features(places: list[Local]) -> tuple[Tensor, Tensor | None]:
    """The detached features (M, B, R) of all members, and which rows (M,) are finite; None if all are."""
    each = [here.features.detach() for here in places if here.features is not None]
    features = torch.cat(each) if len(each) > 1 else each[0]
    if torch.linalg.vector_norm(features) < FARTHEST:  # NaN is not less
        return features, None
    return features, features.flatten(1).norm(dim=1) < FARTHEST


def pull_back(
    here: Local, cotangent: Tensor | None = None, loss_scale: float = 1.0, *, keep: bool = False
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


def mix(coupling: Coupling, places: list[Local], gradients: list[Gradients]) -> list[Gradients]:
    """Loss gradients averaged over members with the weights of the coupling (SVGD).

    A member whose features or gradients are not finite keeps its own and enters no other's: zero times infinity would
    reach everybody.
    """
    features, finite = gather_features(places)
    finite = features.new_ones(len(features), dtype=torch.bool) if finite is None else finite
    whole = [torch.cat(parts) for parts in zip(*(own for own, _ in gradients), strict=True)]  # (M, ...) each
    for gradient in whole:
        finite = finite & gradient.flatten(1).isfinite().all(1)
    rows = finite.nonzero().flatten()
    mixed = [gradient.clone() for gradient in whole]
    if len(rows):
        weights = coupling.space.mixing(features[rows])
        assert weights is not None
        for mine, gradient in zip(mixed, whole, strict=True):
            mine[rows] = torch.tensordot(weights.to(gradient), gradient[rows], dims=1)
    return [([g[here.members] for g in mixed], shared) for here, (_, shared) in zip(places, gradients, strict=True)]


def added(a: Gradients, b: Gradients) -> Gradients:
    """The sums of two lists of gradients."""
    first, second = ([x + y for x, y in zip(*pair, strict=True)] for pair in zip(a, b, strict=True))
    return first, second


def norm_of(gradients: list[Gradients]) -> float:
    """The norm of all gradients together."""
    return float(get_total_norm([gradient for own, shared in gradients for gradient in (*own, *shared)]))


# share and move


def move(config: StepConfig, state: State, here: Local, gradients: list[Tensor], batch: Batch) -> None:
    """Update the group's own tensors in place; a member whose loss is not finite stays unchanged.

    A gradient that is not finite shows in the next loss or in the epoch's validation, and the member returns to an
    earlier state: checking every gradient would cost a tenth of a small network's step.
    """
    active = state.active[here.members]
    steady = active & here.losses.detach().isfinite().to("cpu")
    by_member = isinstance(config.optimizer, TorchOptimizer)
    rows: list[slice | int] = [here.members]
    if by_member or not bool(steady.all()):
        _undo_buffers(state, here, ~steady)
        _report(state, here, active & ~steady)
        rows = [here.members.start + int(i) for i in steady.nonzero()]
    if config.clip_norm is not None:
        gradients = clip(gradients, config.clip_norm)
    for row in rows:
        mine = gradients if isinstance(row, slice) else [g[row - here.members.start] for g in gradients]
        tensors = rows_of(state.population.own, row)
        opt_state = {kind: rows_of(named, row) for kind, named in state.opt_state.items()}
        streams = range(row.start, row.stop) if isinstance(row, slice) else (row,)
        update(config, tensors, mine, opt_state, batch, state, streams, stacked=isinstance(row, slice))
        zero_pruned(tensors, state.population.buffers, row)


def share(config: StepConfig, state: State, gradients: list[list[Tensor]], batch: Batch) -> None:
    """Move the shared tensors by gamma / M times the sum of all members' gradients."""
    if not state.population.shared or not gradients:
        return
    factor = config.gamma / state.population.members
    total = [factor * torch.stack(parts).sum(0) for parts in zip(*gradients, strict=True)]
    norm = get_total_norm(total)
    if not bool(norm.isfinite()):  # a diverged member must not reach shared tensors
        return
    if config.clip_norm is not None and float(norm) > config.clip_norm:
        total = [gradient * (config.clip_norm / float(norm)) for gradient in total]
    shared = state.population.shared
    update(config, shared, total, state.shared_opt_state, batch, state, (ALL_MEMBERS,), stacked=False)
    zero_pruned(shared, state.population.buffers, 0)


def clip(gradients: list[Tensor], largest: float) -> list[Tensor]:
    """Gradients (m, ...) of m members, scaled so that no member's norm over all tensors exceeds `largest`."""
    if not gradients:
        return gradients
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)  # (m,)
    factors = (largest / norms.clamp_min(1e-30)).clamp_max(1.0)
    return [g * factors.to(g).view(-1, *(1,) * (g.dim() - 1)) for g in gradients]


def update(
    config: StepConfig,
    tensors: Named,
    gradients: list[Tensor],
    opt_state: OptState,
    batch: Batch,
    state: State,
    members: Sequence[int],
    *,
    stacked: bool,
) -> None:
    """Move tensors in place: stacks (m, ...) of several members, one member's (...), or shared ones (ALL_MEMBERS)."""
    slopes = dict(zip(tensors, gradients, strict=True))
    if isinstance(config.optimizer, TorchOptimizer):
        lrs = {name: batch.lr * multiplier for names, _, multiplier in param_groups(config, tensors) for name in names}
        config.optimizer.update_member(members[0], tensors, gradients, [lrs[name] for name in tensors], state.memory)
        return

    noise = [Noise(config.seed, config.noise_member(m), state.step, "langevin") for m in members]

    def draw(likes: Sequence[Tensor]) -> list[Tensor]:  # streams go on from one group of tensors to the next
        found = many_normals(noise, likes if stacked else [like.unsqueeze(0) for like in likes])
        return found if stacked else [each.squeeze(0) for each in found]

    for names, rule, multiplier in param_groups(config, tensors):
        chosen, along = [tensors[name] for name in names], [slopes[name] for name in names]
        kinds = [[kind[name] for name in names if name in kind] for kind in opt_state.values()]
        when = StepTime(multiplier * batch.lr, state.step, batch.time, draw)
        rule.update(chosen, along, [kind for kind in kinds if kind], when)
        if config.optimizer.l1:
            kernels = [tensors[name] for name in names if name in config.weights.spec.kernels]
            shrink(kernels, multiplier * batch.lr * config.optimizer.l1)


def init_opt_state(config: StepConfig, tensors: Named) -> OptState:
    """The optimizer state of tensors that have not moved yet."""
    found: OptState = {}
    if isinstance(config.optimizer, TorchOptimizer):
        return found
    for names, rule, _ in param_groups(config, tensors):
        for kind, named in rule.init({name: tensors[name] for name in names}).items():
            found.setdefault(kind, {}).update(named)
    return found


def param_groups(config: StepConfig, tensors: Named) -> list[ParamGroup]:
    """Names of tensors that move alike, their update rule, and the multiplier of their learning rate."""
    names = tuple(tensors)
    if names not in config.known_groups:
        config.known_groups[names] = _param_groups(config, tensors)
    return config.known_groups[names]


def _param_groups(config: StepConfig, tensors: Named) -> list[ParamGroup]:
    claimed = config.dynamics.claim(tensors)
    rest = [name for name in tensors if not any(name in names for names, _, _ in claimed)]
    optimizer: Any = config.optimizer
    plain = optimizer if isinstance(optimizer, TorchOptimizer) else replace(optimizer, weight_decay=0.0)
    stds, factors = ([name for name in rest if kind(name)] for kind in (lambda n: n.endswith(STD_PARAM), is_factor))
    weights = [name for name in rest if name not in stds and name not in factors]
    alike: dict[tuple[Any, float], dict[str, None]] = {}
    for some, rule, multiplier in (
        (weights, optimizer, 1.0),
        (stds, plain, 1.0),
        (factors, optimizer if config.factor_decay else plain, config.factor_lr_multiplier),
    ):
        for name in some:
            alike.setdefault((rule, multiplier * pattern_multiplier(config, name)), {})[name] = None
    return [*claimed, *((names, config.dynamics.rule(rule), multiplier) for (rule, multiplier), names in alike.items())]


def pattern_multiplier(config: StepConfig, name: str) -> float:
    """The multiplier of the last pattern that matches a tensor's name; 1 if none does."""
    found = [factor for pattern, factor in config.lr_multipliers if fnmatchcase(name, pattern)]
    return found[-1] if found else 1.0


def separate_decay(config: StepConfig, own: Named) -> tuple[StepConfig, dict[str, float]]:
    """The configuration without coupled weight decay, and the decay of each own tensor that has one."""
    optimizer = config.optimizer
    if not isinstance(optimizer, Optimizer) or optimizer.decay != "coupled" or not optimizer.weight_decay:
        return config, {}
    groups = [(names, rule) for names, rule, _ in param_groups(config, own) if isinstance(rule, Optimizer | Langevin)]
    decays = {name: rule.weight_decay for names, rule in groups for name in names}
    return replace(config, optimizer=replace(optimizer, weight_decay=0.0)), decays


def spend(state: State, what: str, seconds: float) -> None:
    """Add to the time that a part of the steps has taken."""
    state.seconds[what] = state.seconds.get(what, 0.0) + seconds


def _coupling_now(config: StepConfig, state: State) -> Coupling | None:
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


def _undo_buffers(state: State, here: Local, still: Tensor) -> None:
    for name, before in here.buffers_before.items():
        state.population.buffers[name][here.members][still] = before[still]


def _report(state: State, here: Local, diverged: Tensor) -> None:
    for i in diverged.nonzero().flatten().tolist():
        loss = float(here.losses[i].detach())
        state.diverged[here.members.start + i] = Divergence(f"loss {loss} at step {state.step}")
        state.active[here.members.start + i] = False


def _gather_losses(state: State, places: list[Local]) -> Tensor:
    losses = torch.full((state.population.members,), torch.nan)
    for here in places:
        losses[here.members] = here.losses.detach().to("cpu", losses.dtype)
    return losses.masked_fill(~state.active, torch.nan)  # some engines run inactive members too
