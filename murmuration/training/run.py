"""One training run, from its first step to the complete run directory.

`run_training` trains, shows progress, writes checkpoints and the trajectory, fits the post-hoc steps and stores the
members.
"""

import copy
import math
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from murmuration.core.dynamics.trajectory import parse_trajectory
from murmuration.core.engines import ALONE, Engine, Ranks, engine as engine_named
from murmuration.core.recipe import Recipe
from murmuration.data import Data
from murmuration.likelihoods import CLASSIFICATION, MULTI_LABEL, Likelihood
from murmuration.models.estimators.member import fit_members
from murmuration.models.estimators.selection import select
from murmuration.models.estimators.table import models_for, name_of
from murmuration.prediction.ensemble import Ensemble, MemberGroup
from murmuration.prediction.outside import fit_baseline
from murmuration.prediction.posthoc.fit import FEWEST, check_config
from murmuration.runs import checkpoints, directory as runs
from murmuration.runs.manifest import Manifest
from murmuration.system.errors import Failure, Misuse, StopTraining, warn
from murmuration.system.files import write_record, write_tensors
from murmuration.system.interrupts import CHECKPOINT_SECONDS, Stopped, deferred_interrupts
from murmuration.system.progress import Show
from murmuration.system.settings import NonNegative
from murmuration.training import Progress, TrainSpec, train
from murmuration.training.head_only import with_backbone
from murmuration.training.loop import gather_population
from murmuration.training.membership import with_earlier_members
from murmuration.training.plan import Plan
from murmuration.training.tuning import tune_coupling

Callback = Callable[[dict[str, Any]], Any]  # called with the record of each epoch; may raise StopTraining
FAR_WORSE = 10.0  # nats per example, by which an ensemble that was trained is not worse than one without input
MEETING_SECONDS = 0.2  # between agreements of several processes on whether to stop or to write a checkpoint


def show_nothing(message: str, done: int, total: int, record: dict[str, Any] | None) -> None:
    """Show nothing: the default of `show`."""


@dataclass
class ProgressCallback:
    """Shows the progress of a run, writes its checkpoints and calls the callback of the user."""

    out: Path | None
    show: Show
    checkpoint_seconds: float
    new: bool = False  # whether the run was begun by this call
    ranks: Ranks = ALONE
    callback: Callback | None = None
    total: int = 0
    saved: float = 0.0
    store: Callable[[Progress], None] = lambda progress: None  # a checkpoint of the trajectory, where one is due
    trajectory: dict[str, str] = field(default_factory=dict)  # the points stored so far, with their SHA-256

    interrupted: Callable[[], int] = lambda: 0  # the signal that waits for the end of a step: Ctrl-C, SIGTERM, SIGHUP
    stopping: int = 0  # the signal that was seen
    met: tuple[int, float] = (0, 0.0)  # step and time at which processes last agreed
    next_meeting: int = 0  # the step at which they do so again

    def __post_init__(self) -> None:
        NonNegative(CHECKPOINT_SECONDS, infinite=True).check("checkpoint_seconds", self.checkpoint_seconds)

    def after_step(self, progress: Progress) -> None:
        self._report(progress, None)

    def after_epoch(self, progress: Progress) -> None:
        self._report(progress, progress.history[-1])
        stopped = False
        if self.callback is not None and self.ranks.first:
            try:
                self.callback(copy.deepcopy(progress.history[-1]))
            except StopTraining:
                stopped = True
        if self.callback is not None and self.ranks.any(stopped):
            raise StopTraining

    def _report(self, progress: Progress, record: dict[str, Any] | None) -> None:
        """Show a step, and write a checkpoint if one is due or the run is interrupted, which is then raised."""
        self.store(progress)  # before the state: a run resumed from it does not make this step again
        step = progress.state.step
        try:
            self.show("", step, self.total, record)
        except KeyboardInterrupt as error:
            self.stopping = getattr(error, "number", signal.SIGINT)
        self.stopping = self.stopping or self.interrupted()
        if step < self.next_meeting and step < self.total:
            return
        due = self.out is not None and time.monotonic() - self.saved >= self.checkpoint_seconds
        stopped, due = self.meet(step, due)
        if self.out is not None and (stopped or due):
            checkpoints.save_checkpoint(self.out, progress, self.ranks, self.trajectory)
            self.saved = time.monotonic()
        if stopped:
            hint = "" if self.out is None else f": continue with mm.resume('{self.out}')"
            raise Stopped(f"stopped after step {step} of {self.total}{hint}", stopped)

    def meet(self, step: int, due: bool) -> tuple[int, bool]:
        """Agree on the signal that stops all processes, or 0, and on writing a checkpoint; they meet again later."""
        if self.ranks.alone:
            return self.stopping, due
        now = time.monotonic()
        steps, seconds = step - self.met[0], max(now - self.met[1], 1e-6)
        gap = min(max(1, round(MEETING_SECONDS * steps / seconds)), 1000) if self.ranks.first else 0
        stopped, saves, later = self.ranks.largest(self.stopping, due, gap)
        self.met, self.next_meeting = (step, now), step + int(later)
        return int(stopped), saves > 0


def run_training(
    full_spec: TrainSpec,
    spec: TrainSpec,
    engine: Engine,
    progress: Progress,
    manifest: Manifest,
    callback: ProgressCallback,
) -> Ensemble:
    """Train and complete a run. `spec` is what is trained: `full_spec`, or its heads alone on a frozen backbone.

    A new run that fails, on a full disk say, is removed if it has no checkpoint; else the error says how to go on.
    """
    out = callback.out
    own_path = out if spec.ranks.first else None  # of the process that writes the run
    try:
        callback.total = spec.end.step
        spec, tuning = tune_coupling(spec, engine, out, callback.show)
        callback.saved = time.monotonic()
        if out is not None and spec.plan.trajectory is not None:
            callback.trajectory = checkpoints.checked_trajectory(out)
            callback.store = trajectory_writer(full_spec, spec, out, callback.trajectory)
            callback.store(progress)
        callback.met, callback.next_meeting = (progress.state.step, time.monotonic()), progress.state.step + 1
        with deferred_interrupts(out is not None, spec.ranks.alone) as callback.interrupted:
            population = with_backbone(train(spec, engine, progress, callback), full_spec.backbone)
        if population.members == 0:
            reason = next(iter(progress.state.diverged.values())).reason
            if own_path is not None and callback.new:
                runs.remove_files(own_path)  # resumed, it would diverge again
            raise Failure(f"no member could be trained ({reason}): lower the learning rate")
        diverged = {str(member): str(divergence) for member, divergence in progress.state.diverged.items()}
        spent: dict[str, Any] = {"seconds": progress.seconds, "cpu_seconds": progress.cpu_seconds}
        changed: dict[str, Any] = {**tuning, **spent, "diverged": diverged}
        if progress.origins is not None:
            changed["origins"] = progress.origins.tolist()
        if spec.method.coupling is not None:
            changed["coupling_seconds"] = dict(progress.probe.seconds)
        if full_spec.backbone is not None:  # heads may have been stacked in a way that whole networks cannot
            engine = engine_named("threads")
            changed["engine"] = {**manifest.engine, **asdict(engine)}
        groups, data = (MemberGroup(full_spec.member(0), population),), full_spec.data
        answers = full_spec.likelihood, engine, full_spec.recipe
        manifest = replace(manifest, **changed)
        plain = Ensemble(groups, *answers, manifest, progress.history, preparation=data.preparation)
        ensemble = with_models(with_earlier_members(plain), full_spec, callback.show)
        ensemble = with_posthoc(ensemble, data, full_spec.plan)
        if spec.ranks.first:
            warn_of_failed_training(progress.history, data, full_spec.plan.patience is not None)
        if own_path is not None:
            ensemble.write(own_path)
        spec.ranks.wait()
        return ensemble
    except (RuntimeError, ValueError, MemoryError) as error:
        if own_path is not None and callback.new:
            runs.discard_run(own_path)
        if isinstance(error, Failure) and own_path is not None and runs.has_checkpoint(own_path):
            raise Failure(f"{error}; continue with mm.resume('{own_path}')") from error
        raise


def warn_of_failed_training(history: list[dict[str, Any]], data: Data, best_epoch: bool) -> None:
    """Warn of an ensemble, or of half of its members, far worse than a prediction without any input.

    With `best_epoch`, members have the weights of their best epochs, and the epoch of the best ensemble decides.
    """
    nlls: list[float] = []  # the larger one of each epoch: of the ensemble, and of the middle member
    for record in history if best_epoch else history[-1:]:
        members = [nll for nll in record["val_nll"] if nll is not None]
        both = [record["ensemble"]["val_nll"], statistics.median(members) if members else None]
        nlls += [max(nll for nll in both if nll is not None)] if any(nll is not None for nll in both) else []
    if not nlls or data.task == MULTI_LABEL or not len(data.val):
        return
    y = data.val.y
    mean, var = fit_baseline(data.train.y, data.task, len(data.classes)).moments
    if data.task == CLASSIFICATION:
        without_input = -mean.log()[y].mean().item()
    else:
        without_input = ((y - mean).square() / var + (2 * math.pi * var).log()).sum(-1).mean().item() / 2
    losses = [loss for loss in history[-1]["train_loss"] if loss is not None] if data.task == CLASSIFICATION else []
    loss = statistics.median(losses) if losses else 0.0  # few validation examples may be lucky
    if min(nlls) > without_input + FAR_WORSE or loss > without_input + 10 * FAR_WORSE:
        measured = f"validation NLL {min(nlls):.3g}" + (f", training loss {loss:.3g}" if losses else "")
        scores = f"{measured}, and NLL {without_input:.3g} without any input"
        advice = "lower the learning rate, lr, or, if the loss still falls, train for more epochs"
        warn(f"training seems to have failed ({scores}): {advice}", "failed training")


def save_first_weights(path: Path, spec: TrainSpec, progress: Progress, records: dict[str, Any] | None = None) -> None:
    """Write the weights that members begin with, unless they are random, for `resume`: it does not read them again.

    `records`, given with members that were trained before, are written as JSON beside them.
    """
    if spec.backbone is not None:
        write_tensors(path / runs.BACKBONE, spec.backbone.state_dict())
    for name, record in (records or {}).items():
        write_record(path / name, record)
    if spec.ranks.alone and (spec.init_from or records is not None):
        checkpoints.save_checkpoint(path, progress)


def trajectory_writer(
    full_spec: TrainSpec, spec: TrainSpec, path: Path, digests: dict[str, str]
) -> Callable[[Progress], None]:
    """Return a function that writes the members to the trajectory of a run after the steps at which that is due.

    It adds the SHA-256 of each file to `digests`.
    """
    assert spec.plan.trajectory is not None
    times = parse_trajectory(spec.plan.trajectory)
    due = {0, *times.steps(spec.end)}

    def store(progress: Progress) -> None:
        state, ranks = progress.state, spec.ranks
        if state.step not in due:
            return
        population = state.population if ranks.alone else gather_population(spec, state.population)
        active = ranks.gather(state.active, spec.plan.members)
        if ranks.first:
            tensors = times.tensors(with_backbone(population, full_spec.backbone))
            digests.update(runs.save_path_point(path, state.step, {**tensors, runs.ACTIVE: active}))

    return store


def blank_ensemble(model: Any, data: Data, recipe: Recipe, plan: Plan, likelihood: Likelihood) -> Ensemble:
    """Return an ensemble without members, with the manifest of a model that is not a network."""
    if recipe.answers() != Recipe().answers() or recipe.models:
        raise Misuse(f"recipe {recipe.name} is for networks, and {name_of(model)} is none: leave it out")
    if plan.posthoc is not None:
        check_config(plan.posthoc, likelihood.task)
    engine, own = engine_named("loop"), Recipe(name_of(model))
    manifest = Manifest(
        recipe=own.to_json(),
        plan=plan.to_json(),
        net={"name": own.name},
        input_shape=list(data.input_shape),
        likelihood=likelihood.to_json(),
        data=runs.describe_data(data, likelihood.task),
        engine={**asdict(engine), "reason": "members are no networks"},
        **runs.describe_process(),
    )
    return Ensemble((), likelihood, engine, own, manifest, preparation=data.preparation)


def with_models(ensemble: Ensemble, spec: TrainSpec, show: Show) -> Ensemble:
    """Networks with the models of their recipe, those for the task, weighted by greedy selection on validation NLL.

    The networks are one part of the mixture, each model another; models of weight zero are left out.
    """
    if not spec.recipe.models:
        return ensemble
    data, val = spec.data, spec.data.val
    start, cpu = time.perf_counter(), time.process_time()
    names = models_for(spec.recipe.models, data.task)
    models = {name: fit_members(name, data, spec.likelihood, members=1, seed=spec.plan.seed) for name in names}
    parts = {"networks": ensemble} | {name: replace(ensemble, groups=(), models=models[name]) for name in names}
    predicted = {name: part.predict(val.prepared, calibrated=False, prepared=True) for name, part in parts.items()}
    selection = select({name: pred.log_prob(val.y) for name, pred in predicted.items()}, val.weight)
    show(f"weights by validation NLL: {selection.text}", 0, 0, None)
    used = [name for name in names if selection.weights[name] > 0]
    share = selection.weights["networks"] / ensemble.members
    weights = [share] * ensemble.members + [selection.weights[name] for name in used]
    seconds = ensemble.manifest.seconds + time.perf_counter() - start
    spent: dict[str, Any] = {
        "seconds": seconds,
        "cpu_seconds": ensemble.manifest.cpu_seconds + time.process_time() - cpu,
    }
    record: dict[str, Any] = {"weights": weights, "selection": selection.to_json(), **spent}
    manifest = replace(ensemble.manifest, **record)
    models_used = tuple(model for name in used for model in models[name])
    return replace(ensemble, manifest=manifest, models=models_used, weights=tuple(weights))


def with_posthoc(ensemble: Ensemble, data: Data, plan: Plan) -> Ensemble:
    """Fit the post-hoc steps that the plan asks for, if there are examples, and return the ensemble with them."""
    if plan.posthoc is None:
        return ensemble
    if len(data.val) < FEWEST:
        reason = f"{len(data.val)} validation examples, and it takes {FEWEST}"
        reason += "; give more examples, a larger share of them for validation, or folds"
        about = "too few validation examples"
    else:
        try:
            return ensemble.fit_posthoc(data.val, config=plan.posthoc)
        except (Misuse, Failure) as error:  # a trained ensemble is not lost because it cannot be calibrated
            reason = about = str(error)
    warn(f"not calibrated: {reason}", about)
    return ensemble
