"""A job carried out: watched, written down as it goes, and finished with what validation examples teach."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from murmuration.engines import Engine
from murmuration.engines import engine as engine_named
from murmuration.ensemble import Ensemble, MemberGroup, save_posthoc
from murmuration.errors import Failure, Misuse
from murmuration.posthoc import FEWEST
from murmuration.runs import forget, read_json, save_checkpoint, save_members, write_json
from murmuration.training import Job, Progress, train
from murmuration.training.batches import steps_per_epoch
from murmuration.training.frozen import whole
from murmuration.training.tuning import chosen, sweep, wants_sweep

SWEEP = "sweep.json"  # of alphas, in the run directory
CHECKPOINT_SECONDS = 30.0  # a killed run loses at most about this much

Show = Callable[[str, int, int, dict[str, Any] | None], None]  # what is said, steps done, steps in all, last record


def say_nothing(text: str, done: int, total: int, record: dict[str, Any] | None) -> None:
    """A show for nobody."""


@dataclass
class Desk:
    """Who looks on while a run is carried out: shows progress and writes checkpoints."""

    out: str | Path | None
    show: Show
    checkpoint_seconds: float
    made: Path | None = None  # the topmost directory that was made for the run
    total: int = 0
    saved: float = 0.0

    def after_step(self, progress: Progress) -> None:
        self.show("", progress.state.step, self.total, None)
        self._save_if_due(progress)

    def after_epoch(self, progress: Progress) -> None:
        self.show("", progress.state.step, self.total, progress.history[-1])
        self._save_if_due(progress)

    def _save_if_due(self, progress: Progress) -> None:
        if self.out is not None and time.monotonic() - self.saved >= self.checkpoint_seconds:
            save_checkpoint(Path(self.out), progress)
            self.saved = time.monotonic()


def carry_out(
    job: Job, work: Job, engine: Engine, progress: Progress, manifest: dict[str, Any], desk: Desk
) -> Ensemble:
    """The ensemble that a job leaves; `work` is what is trained, which is less than the job on a frozen backbone."""
    desk.total = steps_per_epoch(len(job.data.train), job.plan.batch_size) * job.plan.epochs
    work, tuning = _tuned(work, engine, desk)
    desk.saved = time.monotonic()
    population = whole(train(work, engine, progress, desk), job.backbone)
    _require_someone(progress)
    trouble = {str(member): text for member, text in progress.state.trouble.items()}
    complete = {**manifest, **tuning, "seconds": progress.seconds, "trouble": trouble}
    if work.coupling is not None:
        complete["coupling_seconds"] = dict(progress.state.seconds)
    if job.backbone is not None:  # heads may have been stacked in a way that whole networks cannot
        engine = engine_named("threads")
        complete["engine"] = {**manifest["engine"], **asdict(engine)}
    group = MemberGroup(job.member(0), population)
    plain = Ensemble((group,), job.likelihood, engine, job.recipe, complete, progress.history)
    ensemble = with_posthoc(plain, job, desk.show)
    if desk.out is not None:
        try:
            save_posthoc(Path(desk.out), ensemble.posthoc)
            save_members(Path(desk.out), population, complete, progress.history)
        except Failure:  # a full disk, say: what cannot be continued is not left behind
            forget(Path(desk.out), desk.made or Path(desk.out))
            raise
    return ensemble


def _tuned(job: Job, engine: Engine, desk: Desk) -> tuple[Job, dict[str, Any]]:
    """The job with what validation must decide first, and the record of how it decided; a killed sweep goes on."""
    if not wants_sweep(job):
        return job, {}
    file = Path(desk.out) / SWEEP if desk.out is not None else None
    done = read_json(file) if file is not None and file.exists() else {}

    def save(found: dict[str, float]) -> None:
        if file is not None:
            write_json(file, found)

    found = sweep(job, engine, done, save, lambda text: desk.show(text, 0, 0, None))
    alpha = chosen(found)
    desk.show(f"alpha {alpha:g} has the lowest NLL on corrupted validation examples", 0, 0, None)
    return replace(job, alpha=alpha), {"sweep": found, "alpha": alpha}


def with_posthoc(ensemble: Ensemble, job: Job, show: Show) -> Ensemble:
    """The ensemble with the post-hoc steps that the plan asks for, if there are examples to fit them on."""
    val, config = job.data.val, job.plan.posthoc
    if config is None:
        return ensemble
    if len(val) < FEWEST:
        show(f"no post-hoc steps: {len(val)} validation examples, and they take {FEWEST}", 0, 0, None)
        return ensemble
    try:
        return ensemble.fit_posthoc(val.x, val.y, config)
    except (Misuse, Failure) as error:  # a trained ensemble is not lost because it cannot be calibrated
        show(f"no post-hoc steps: {error}", 0, 0, None)
        return ensemble


def _require_someone(progress: Progress) -> None:
    """A run in which every member fell before its first sound epoch has nothing to offer."""
    lost = [text for text in progress.state.trouble.values() if "as initialised" in text]
    if len(lost) == progress.state.population.members:
        raise Failure(f"no member could be trained ({lost[0]}): lower the learning rate")
