"""One training step, for every method.

    local      each member, alone:   realise its weights -> outputs -> loss, and its features in the coupling's space
    couple     all members, once:    features -> cotangents
    pull back  each member, alone:   one backward pass from (loss, features) with cotangents (1, c)
    share      own gradients as they are; shared gradients gamma / M times their sum over members
    move       the update rule of the dynamics

Members interact only in `couple` and `share`. A member whose loss or features are not finite has diverged: it neither
repels nor is repelled, and its gradients do not reach shared tensors.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from murmuration.core.captured import capturable, learn, replayed
from murmuration.core.dynamics import Optimizer, OptState, StepTime, TorchOptimizer
from murmuration.core.dynamics.optimizer import shrink
from murmuration.core.dynamics.sgmcmc import Langevin
from murmuration.core.engines import Ranks, Team
from murmuration.core.gradients import coupling_gradients, coupling_now, local, pull_back
from murmuration.core.population import Named, rows_of, zero_pruned
from murmuration.core.sharing import is_factor
from murmuration.core.state import Batch, Divergence, Gradients, Local, ParamGroup, State, StepConfig
from murmuration.core.vectors import join
from murmuration.core.weights.gaussian import STD_PARAM
from murmuration.system.streams import ALL_MEMBERS, Noise, many_normals


def step(team: Team, config: StepConfig, state: State, batch: Batch) -> Tensor:
    """Move every active member once; returns the members' losses (M,), NaN where a member is inactive."""
    start = time.perf_counter()
    groups = team.engine.groups(state.population.members)
    coupling = coupling_now(config, state)
    loss_scale = 1.0 if config.coupling is None else config.coupling.loss_scale(state.step)
    mixes = coupling is not None and coupling.space.mixing_estimator
    mover, decays = separate_decay(config, state.population.own) if mixes else (config, {})

    def finish(here: Local, gradients: Gradients) -> tuple[Local, list[Tensor]]:
        own, shared = gradients
        move(mover, state, here, own, batch)
        return here, shared

    def alone(group: slice) -> tuple[Local, Gradients]:
        known = capturable(team, config, state, group, batch, loss_scale)
        if known is not None and (found := replayed(team, known)) is not None:
            return found
        chosen, noise = (batch, None) if known is None else (known.batch, known.inputs.noise)
        here = local(team, config, state, group, chosen, noise)
        gradients = pull_back(here, loss_scale=loss_scale)
        learn(team, known, here, gradients)
        return here, gradients

    def together() -> list[tuple[Local, list[Tensor]]]:
        assert coupling is not None
        one = len(groups) == 1 and team.ranks.size == 1 and not mixes and not batch.measured
        known = capturable(team, config, state, groups[0], batch, loss_scale) if one else None
        if known is not None and (found := replayed(team, known)) is not None:
            return [finish(*found)]
        chosen, noise = (batch, None) if known is None else (known.batch, known.inputs.noise)
        places = team.map(lambda group: local(team, config, state, group, chosen, noise), groups)
        count, measured = config.count(state.population), batch.measured
        result = coupling_gradients(
            team, coupling, places, members=count, step=state.step, measured=measured, decays=decays
        )
        state.coupling_stats = result.stats or state.coupling_stats
        learn(team, known, places[0], result.gradients[0])
        done = team.map(finish, places, result.gradients)
        spend(state, "coupling", result.seconds)
        spend(state, "steps", time.perf_counter() - start)
        return done

    # Without coupling members need not wait for each other: a group's graph is freed before the next is built.
    active = groups if state.active.all() else [group for group in groups if state.active[group].any()]
    if coupling:
        done = together()
    elif team.ranks.parts > 1:
        done = [finish(*each) for each in sum_parts(team.ranks, team.map(alone, active), batch.fraction)]
    else:
        done = team.map(lambda group: finish(*alone(group)), active)
    share(team.ranks, config, state, [gradients for _, gradients in done], batch)
    state.step += 1
    return _gather_losses(state, [here for here, _ in done])


def sum_parts(ranks: Ranks, found: list[tuple[Local, Gradients]], fraction: float) -> list[tuple[Local, Gradients]]:
    """Losses and gradients of whole batches, from those of the parts of all processes with the same members."""
    flat = [t for here, (own, shared) in found for t in (here.losses.detach(), *own, *shared)]
    total = iter(ranks.sum_parts([fraction * each for each in flat]))
    return [
        (replace(here, losses=next(total)), ([next(total) for _ in own], [next(total) for _ in shared]))
        for here, (own, shared) in found
    ]


# share and move


def move(config: StepConfig, state: State, here: Local, gradients: list[Tensor], batch: Batch) -> None:
    """Update the group's own tensors in place; a member whose loss is not finite stays unchanged.

    A gradient that is not finite shows in the next loss or in the epoch's validation, and the member returns to an
    earlier state: checking every gradient would cost a tenth of a small network's step.
    """
    active, losses = state.active[here.members], here.losses.detach()
    by_member = isinstance(config.optimizer, TorchOptimizer)
    rows: list[slice | int] = [here.members]
    # A finite sum has finite terms; it takes a third of the time of a check of each.
    if by_member or not bool(active.all()) or not math.isfinite(float(losses.sum())):
        steady = active & losses.isfinite().to("cpu")
        _undo_buffers(state, here, ~steady)
        _report(state, here, active & ~steady)
        if by_member or not bool(steady.all()):
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


def share(ranks: Ranks, config: StepConfig, state: State, gradients: list[list[Tensor]], batch: Batch) -> None:
    """Move the shared tensors by gamma / M times the sum of all members' gradients, those of other processes too."""
    shared = state.population.shared
    if not shared:
        return
    sums = [torch.stack(parts).sum(0) for parts in zip(*gradients, strict=True)]
    if ranks.size > 1:
        sums = sums or [torch.zeros_like(tensor) for tensor in shared.values()]
        counts = torch.tensor([len(gradients), int(state.active.sum())], dtype=torch.float64)
        *sums, counts = ranks.sum([*sums, counts])
        state.others_active = bool(counts[1] > state.active.sum())
        sums = sums if counts[0] else []
    if not sums:
        return
    factor = config.gamma / config.count(state.population)
    total = [factor * each for each in sums]
    norm = get_total_norm(total)
    if not bool(norm.isfinite()):  # a diverged member must not reach shared tensors
        return
    if config.clip_norm is not None and float(norm) > config.clip_norm:
        total = [gradient * (config.clip_norm / float(norm)) for gradient in total]
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

    noise: list[Noise] = []

    def draw(likes: Sequence[Tensor]) -> list[Tensor]:  # streams go on from one group of tensors to the next
        if not noise:
            noise.extend(Noise(config.seed, config.noise_member(m), state.step, "langevin") for m in members)
        found = many_normals(noise, likes if stacked else [like.unsqueeze(0) for like in likes])
        return found if stacked else [each.squeeze(0) for each in found]

    for names, rule, multiplier in param_groups(config, tensors):
        chosen, along = [tensors[name] for name in names], [slopes[name] for name in names]
        kinds = [[kind[name] for name in names if name in kind] for kind in opt_state.values()]
        when = StepTime(multiplier * batch.lr, state.step, batch.time, draw, len(members))
        kinds = [kind for kind in kinds if kind]
        # Behind some of the rows are those of other members, and one member alone has the bits of a group of one.
        whole = stacked and 1 < len(members) == state.population.members
        joined = vectors(config, chosen, along, kinds) if whole and isinstance(rule, Optimizer) else None
        if joined is not None:
            rule.update(*joined, when)
        else:
            rule.update(chosen, along, kinds, when)
        if config.optimizer.l1:
            kernels = [tensors[name] for name in names if name in config.weights.spec.kernels]
            shrink(kernels, multiplier * batch.lr * config.optimizer.l1)


def vectors(
    config: StepConfig, tensors: list[Tensor], gradients: list[Tensor], kinds: list[list[Tensor]]
) -> tuple[list[Tensor], list[Tensor], list[list[Tensor]]] | None:
    """Tensors, gradients and kinds of optimizer state, each as one vector; None if tensors or kinds are not in one."""
    find = config.vectors.find
    found = [find(place, each) for place, each in enumerate([tensors, *kinds])]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    along = find("gradients", gradients)
    return known[:1], [join(gradients) if along is None else along], [[each] for each in known[1:]]


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


def _undo_buffers(state: State, here: Local, still: Tensor) -> None:
    for name, before in here.buffers_before.items():
        state.population.buffers[name][here.members][still] = before[still]


def _report(state: State, here: Local, diverged: Tensor) -> None:
    for i in diverged.nonzero().flatten().tolist():
        loss = float(here.losses[i].detach())
        state.diverged[here.members.start + i] = Divergence(f"loss {loss} at step {state.step}")
        state.active[here.members.start + i] = False


def _gather_losses(state: State, places: list[Local]) -> Tensor:
    if len(places) == 1 and len(places[0].losses) == len(state.active) and bool(state.active.all()):
        return places[0].losses.detach().to("cpu", torch.get_default_dtype(), copy=True)
    losses = torch.full((state.population.members,), torch.nan)
    for here in places:
        losses[here.members] = here.losses.detach().to("cpu", losses.dtype)
    return losses.masked_fill(~state.active, torch.nan)  # some engines run inactive members too
