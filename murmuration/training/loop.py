"""The training loop: epochs of steps, validation after each, collection of weights, and a record of every epoch."""

import math
import time
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from murmuration.core.divergence import Divergence
from murmuration.core.dynamics import WeightPath
from murmuration.core.engines import Engine, Team, assemble, member_outputs, outputs_by_ranks
from murmuration.core.flat_buffers import pack
from murmuration.core.method import collect, final_members
from murmuration.core.population import Population, is_auxiliary
from murmuration.core.state import State, StepConfig
from murmuration.core.step import step
from murmuration.data import Split
from murmuration.likelihoods.classes import Experts
from murmuration.models.nets.validation import digest
from murmuration.runs.checkpoints import Progress
from murmuration.system.errors import StopTraining, warn
from murmuration.system.records import plain_json
from murmuration.training.batch_norm import refresh_batch_norm
from murmuration.training.batches import epoch_batches, learning_rate
from murmuration.training.spec import TrainSpec


class Watcher(Protocol):
    """An observer of training: shows progress, writes checkpoints; `after_epoch` may raise `StopTraining`."""

    def after_step(self, progress: Progress) -> None: ...

    def after_epoch(self, progress: Progress) -> None: ...


def begin(spec: TrainSpec) -> Progress:
    """Begin a run: return its progress before the first step, or refuse a network or settings unfit for the recipe."""
    population = spec.start()
    warn_of_equal_members(spec, population)
    warn_of_lone_member(spec)
    return start_from(spec, population.to(spec.plan.device))


def warn_of_equal_members(spec: TrainSpec, population: Population) -> None:
    """Warn of members that begin with the same weights and are trained on the same batches, or differ by these alone.

    Members whose first weights were asked to be the same (`same`) may differ by their batches without a warning.
    """
    plan = spec.plan
    own = [*population.own.values(), *(t for name, t in population.buffers.items() if is_auxiliary(name))]
    equal = all(torch.equal(tensor, tensor[:1].expand_as(tensor)) for tensor in own)
    if not spec.ranks.alone:
        digests = spec.ranks.texts(digest(*(tensor[:1] for tensor in own)) if equal else "")
        equal = "" not in digests and len(set(digests)) == 1
    if plan.members == 1 or not equal:
        return
    same = "all members begin with the same weights"
    nets = [] if spec.init_from else [spec.member(0), spec.member(1)]
    if nets and {*nets[0].parameters()} & {*nets[1].parameters()}:
        cause = "the function returned the same object twice"
        warn(f"{same}, as {cause}: build a new network in each call")
        return
    if plan.order == "same":
        result = "be identical" if "noise" in plan.same else "differ by dropout and other noise alone"
        warn(f"{same} and see the same batches: they will {result}")
    elif "initialisation" not in plan.same:
        advice = "write reset='head' or another part; in Python also init_from=[one network for each member]"
        reason = f"(0 of {len(own)} tensors differ): only the order of batches makes them differ"
        warn(f"{same} {reason}; {advice}")


def warn_of_lone_member(spec: TrainSpec) -> None:
    """Warn of a method of interacting or different members that gets one member."""
    recipe, result = spec.recipe, "it is trained as a network alone; write members=2 or more"
    if spec.plan.members == 1 and (recipe.coupling is not None or isinstance(spec.likelihood, Experts)):
        reason = f"coupling {recipe.text('coupling')}" if recipe.coupling is not None else "the loss of several experts"
        warn(f"one member and {reason}: {result}")


def start_from(spec: TrainSpec, population: Population) -> Progress:
    """Return the progress of a run that begins with these members."""
    members = population.members
    spec.method.refuse_unused_optimizer(population, spec.plan.optimizer)
    return Progress(
        spec.method.init_state(population),
        kept=population.clone(),
        kept_epoch=torch.zeros(members, dtype=torch.int64),
        loss_sum=torch.zeros(members, dtype=torch.float64),
        best=torch.full((members,), math.inf),
        waited=torch.zeros(members, dtype=torch.int64),
    )


def train(spec: TrainSpec, engine: Engine, progress: Progress, watcher: Watcher) -> Population:
    """Train from where `progress` stands to the end; returns the members of the ensemble."""
    config, state = spec.method.step_config, progress.state
    state.population = replace(state.population, own=pack(state.population.own))  # those of a checkpoint are apart
    state.opt_state = {kind: pack(named) for kind, named in state.opt_state.items()}
    state.noise = spec.method.noise
    with assemble(engine, spec.member(0), spec.ranks) as team:
        while state.step < spec.end.step and spec.ranks.any(bool(state.active.any())):
            start, cpu = time.perf_counter(), time.process_time()
            run_epoch(team, config, spec, progress, watcher)
            validate(team, config, spec, progress)
            progress.seconds += time.perf_counter() - start
            progress.cpu_seconds += time.process_time() - cpu
            try:
                watcher.after_epoch(progress)
            except StopTraining:
                refuse_unfinished(spec, state)
                break
        if spec.plan.patience is not None:
            state.population.copy_members(progress.kept, torch.arange(len(spec.rows)))
            state.population.copy_shared(progress.kept)
        return finish(team, spec, progress)


def refuse_unfinished(spec: TrainSpec, state: State) -> None:
    """Refuse to stop before the end if the dynamics collects weights on a schedule of fixed length."""
    if state.step < spec.end.step:
        stochastic = spec.recipe.weights.stochastic
        spec.method.dynamics.check(total=spec.end, stochastic=stochastic, schedule=None, own_rule=False, early=True)


def finish(team: Team, spec: TrainSpec, progress: Progress) -> Population:
    """Return the members that the dynamics makes of the collected weights, without those that are not finite.

    These are the members of rows that never were, and weights collected before validation found them diverged. Every
    process has all members then.
    """
    if not spec.ranks.alone:
        gather_members(spec, progress)
    state, method = progress.state, spec.method
    members, origins = final_members(method.dynamics, state)
    if state.diverged:
        lost = [member for member, divergence in state.diverged.items() if divergence.restored == 0]
        outputs = outputs_by_ranks(team, method.weights.deterministic(), members, spec.data.val.prepared)
        rows = (outputs.flatten(1).isfinite().all(1) & ~torch.isin(origins, torch.tensor(lost))).nonzero().flatten()
        members, origins = members.take(rows), origins[rows]
    progress.origins = origins
    if method.dynamics.refreshes_statistics and members.members:
        numbers = [method.noise.member(int(origin)) for origin in origins]
        inputs, seed = spec.data.train.prepared, spec.plan.seed
        refresh_batch_norm(team, method.weights, members, inputs, seed=seed, numbers=numbers, step=state.step)
    return members


def run_epoch(team: Team, config: StepConfig, spec: TrainSpec, progress: Progress, watcher: Watcher) -> None:
    """Make the steps of one epoch that are still to be done."""
    state, end, probe = progress.state, spec.end, progress.probe
    epoch, first = divmod(state.step, end.steps_per_epoch)
    share = (spec.ranks.part, spec.ranks.parts)
    batches = epoch_batches(spec.train_split, spec.plan, epoch, spec.schedule, spec.rows, share)
    config = replace(config, likelihood=config.likelihood.during(epoch / end.epochs))
    measured = config.coupling.repulsion.every if config.coupling is not None else 0  # contains the first interaction
    for index in range(first, end.steps_per_epoch):
        probe.measure = index < measured
        losses = step(team, config, state, batches(index), probe)
        progress.loss_sum += losses.double()  # NaN from the step on at which a member stops
        restore_diverged(progress)
        collect(spec.method.dynamics, state, end.at(state.step), spec.ranks)
        if index < end.steps_per_epoch - 1:  # after the last step of an epoch the epoch is validated first
            watcher.after_step(progress)


def validate(team: Team, config: StepConfig, spec: TrainSpec, progress: Progress) -> None:
    """Score every member on the validation split, keep finite or best weights, and write the epoch's record."""
    state, plan, split, epoch = progress.state, spec.plan, spec.data.val, len(progress.history) + 1
    ranks, rows = spec.ranks, slice(spec.rows.start, spec.rows.stop)
    own_outputs = member_outputs(team, config.weights.deterministic(), state.population, split.prepared)  # (m, N, K)
    outputs = ranks.gather(own_outputs, plan.members)  # (M, N, K)
    scores = config.likelihood.validate(outputs, split.y, validation_weight(split))
    every = torch.tensor(scores["val_nll"])  # (M,)
    nll, bad = every[rows], (~own_outputs.isfinite()).any(-1).sum(1)  # (m,) each; bad: validation examples
    for member in (state.active & ((bad > 0) | nll.isnan())).nonzero().flatten().tolist():
        examples = f"{int(bad[member])} of {len(split)} validation examples" if bad[member] else "validation examples"
        state.diverged[member] = Divergence(f"outputs not finite on {examples} after step {state.step}")
        state.active[member] = False
    active = ranks.gather(state.active, plan.members)
    state.others_active = bool(active.sum() > state.active.sum())
    criterion = nll
    if state.population.shared and bool(active.any()):  # members that share weights improve, and stop, together
        criterion = every[active].mean().expand(len(nll))
    if plan.stop_by == "ensemble":
        of_ensemble = torch.tensor(scores["ensemble"]["val_nll"], dtype=torch.float64)  # beyond single precision: inf
        criterion = of_ensemble.to(nll.dtype).repeat(len(nll))
    better = state.active & (criterion < progress.best) if plan.patience is not None else state.active.clone()
    progress.kept.copy_members(state.population, better.nonzero().flatten())
    progress.kept_epoch = torch.where(better, epoch, progress.kept_epoch)
    if progress.kept.shared and ranks.any(bool(better.any())):
        progress.kept.copy_shared(state.population)
    progress.best = torch.where(better, criterion, progress.best)
    progress.waited = torch.where(better, 0, progress.waited + 1)
    trained = state.active.clone()
    if plan.patience is not None:
        state.active &= progress.waited < min(plan.patience, 2**62)
    restore_diverged(progress)
    _write_record(spec, progress, scores, trained)


def validation_weight(split: Split) -> Tensor | None:
    """Return the sample weights (N,) of a split, if it has any that are not all zero."""
    return None if split.weight is None or not bool(split.weight.any()) else split.weight


def restore_diverged(progress: Progress) -> None:
    """Members that have diverged return to their last kept weights, the shared ones with the last of them."""
    diverged = progress.state.diverged
    new = [member for member, divergence in diverged.items() if divergence.restored is None]
    if not new:
        return
    progress.state.population.copy_members(progress.kept, torch.tensor(new))
    if not bool(progress.state.active.any()) and not progress.state.others_active:
        progress.state.population.copy_shared(progress.kept)
    for member in new:
        diverged[member] = replace(diverged[member], restored=int(progress.kept_epoch[member]))


def _write_record(spec: TrainSpec, progress: Progress, scores: dict[str, Any], trained: Tensor) -> None:
    """Append the record of an epoch; None where a member was not trained to its end, or a score is not finite."""
    state, end, members = progress.state, spec.end, spec.plan.members
    local_values = (progress.loss_sum, trained, state.active)
    sums, ended, active = (spec.ranks.gather(values, members).tolist() for values in local_values)
    record = {
        "epoch": len(progress.history) + 1,
        "lr": learning_rate(spec.plan, spec.schedule, end.at(state.step - 1)),
        "train_loss": [loss / end.steps_per_epoch if on else None for loss, on in zip(sums, ended, strict=True)],
        **scores,
        **({"coupling": dict(progress.probe.stats)} if progress.probe.stats else {}),
        "active": active,
        "diverged": {str(member): str(divergence) for member, divergence in gather_diverged(spec, state).items()},
    }
    progress.history.append(plain_json(record))
    progress.loss_sum.zero_()
    progress.probe.stats = {}


# members of all processes


def gather_members(spec: TrainSpec, progress: Progress) -> None:
    """Replace the members and the collected weights of this process by those of all, on every process."""
    state, path, members = progress.state, progress.state.path, spec.plan.members
    points = {name: gather_population(spec, point, path.counts.get(name)) for name, point in path.points.items()}
    path = WeightPath(points, {name: spec.ranks.gather(count, members) for name, count in path.counts.items()})
    diverged, active = gather_diverged(spec, state), spec.ranks.gather(state.active, members)
    population = gather_population(spec, state.population)
    progress.state = replace(state, population=population, diverged=diverged, active=active, path=path)


def gather_population(spec: TrainSpec, population: Population, counts: Tensor | None = None) -> Population:
    """Gather the members of all processes.

    Shared tensors are the same everywhere, but those collected along the path are taken from the process whose members
    were collected most often (`counts`, of its own members): one whose members have all diverged stops collecting.
    """
    ranks, members, parts = spec.ranks, spec.plan.members, (population.own, population.buffers)
    own, buffers = ({name: ranks.gather(t, members) for name, t in named.items()} for named in parts)
    fixed = {name: gather_fixed(spec, tensor) for name, tensor in population.fixed.items()}
    shared = population.shared
    if counts is not None and shared:
        row = int(ranks.gather(counts, members).argmax())
        source = next(rank for rank in range(ranks.size) if row in ranks.rows(members, rank))
        shared = {name: ranks.from_rank(tensor, source) for name, tensor in shared.items()}
    return Population(members, own, shared, buffers, fixed)


def gather_fixed(spec: TrainSpec, tensor: Tensor) -> Tensor:
    """Gather a fixed tensor of all members: stored once where it is the same for all, else (M, ...)."""
    digests = spec.ranks.texts(digest(tensor) if len(tensor) == 1 else "")
    if "" not in digests and len(set(digests)) == 1:
        return tensor
    return spec.ranks.gather(tensor.expand(len(spec.rows), *tensor.shape[1:]), spec.plan.members)


def gather_diverged(spec: TrainSpec, state: State) -> dict[int, Divergence]:
    """Gather the diverged members of all processes by their place among all members."""
    first = spec.rows.start
    own_records = [(first + row, lost.reason, lost.restored) for row, lost in state.diverged.items()]
    return {row: Divergence(*reason) for part in spec.ranks.records(own_records) for row, *reason in part}
