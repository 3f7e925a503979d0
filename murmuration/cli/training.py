"""Training, resuming and loading runs, with a progress bar; imported when a command runs, as it loads torch."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import murmuration as mm
from murmuration.cli.console import CONTINUES, NOTHING_WRITTEN, Interrupted
from murmuration.prediction.ensemble import load_posthoc
from murmuration.prediction.posthoc.fit import PostHoc
from murmuration.reports.comparison import run_name
from murmuration.runs.directory import POSTHOC, read_run, require_files
from murmuration.runs.kinds import run_kind
from murmuration.runs.manifest import Manifest
from murmuration.system.errors import Failure, Misuse
from murmuration.system.progress import training_bar
from murmuration.training.fitting import reopen

PARTS = ("status", "recipe", "plan", "net", "data", "likelihood", "engine")


def resume_run(
    path: Path, data: mm.Data, net: Any = None, device: str | None = None, *, quiet: bool, checkpoint_seconds: float
) -> mm.Ensemble:
    """Return the ensemble of an existing run; resume it first if it was interrupted."""
    manifest = read_manifest(path)
    kind = run_kind(manifest)
    if manifest.status == "complete" and (kind is None or kind.is_finished(manifest)):
        require_files(path, manifest)
        return load_run(path, net=net, device=device)
    with training_bar(manifest.plan["epochs"], quiet, manifest.recipe["name"]) as show:
        return mm.resume(path, data=data, show=show, net=net, device=device, checkpoint_seconds=checkpoint_seconds)


def load_run(path: Path, *, posthoc: bool = True, net: Any = None, device: str | None = None) -> mm.Ensemble:
    """Load the ensemble of a finished run, with its post-hoc steps if it has any and they fit."""
    manifest = read_run(path)
    if manifest.given and net is None and "name" not in manifest.net:
        raise Misuse(f"{path} holds networks trained elsewhere: read it in Python, mm.load('{path}', net=...)")
    if not manifest.given:
        read_manifest(path)  # a damaged one is refused by what it lacks
    ensemble = mm.load(path, posthoc=False, net=net, device=device)
    if not posthoc:
        return ensemble
    try:
        return replace(ensemble, posthoc=checked_posthoc(path, ensemble))
    except (Misuse, Failure) as error:
        raise Failure(f"{error}; fit them again with murmur calibrate {path}") from None


def checked_posthoc(path: Path, ensemble: mm.Ensemble) -> PostHoc | None:
    """Return the post-hoc steps of a run; one input of zeros checks that they are not those of another run."""
    steps = load_posthoc(path)
    if steps is None:
        return None
    try:
        zeros = torch.zeros(1, *ensemble.manifest.input_shape, dtype=ensemble.input_dtype)
        predictive = steps.calibrated(ensemble.predict(zeros, calibrated=False, prepared=True))
        for rule in steps.conformal:
            rule.regions(predictive)
        steps.answered(predictive)
    except Misuse as error:
        raise Failure(f"{path / POSTHOC} is not this run's: {error}") from None
    return steps


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a run; a missing part is a failure."""
    manifest = read_run(path)
    if manifest.given:
        named = "name" in manifest.net
        also = f"; murmur predict and murmur evaluate {path} --on FILE take it"
        load = f"mm.load('{path}'){also}" if named else f"mm.load('{path}', net=...)"
        raise Misuse(f"{path} holds networks trained elsewhere: read it in Python, {load}")
    kind = run_kind(manifest)
    if kind is not None and kind.continue_run is not None:
        raise Misuse(f"{path} holds {kind.contents}: read its report.html, or continue it with murmur resume {path}")
    missing = [part for part in PARTS if not getattr(manifest, part)]
    if missing:
        raise Failure(f"{path / 'run.json'} has no '{missing[0]}': the run is damaged")
    return manifest


def reopen_data(path: Path) -> mm.Data:
    """Open the data that a run was trained on."""
    manifest = read_manifest(path)
    kind = run_kind(manifest)
    return reopen(manifest, kind.reopen(manifest) if kind is not None and kind.reopen is not None else None, path)


@contextmanager
def with_resume_hint(path: Path, repeatable: bool = False) -> Iterator[None]:
    """Add the command that continues the run to the message of Ctrl-C; it may be the same command again."""
    try:
        yield
    except KeyboardInterrupt:
        begun = (path / "run.json").exists()
        before = CONTINUES if repeatable else NOTHING_WRITTEN
        raise Interrupted(f"continue with murmur resume {path}" if begun else before) from None


def new_run_path(data: str, recipe: str) -> Path:
    """Return the first directory `runs/<data>-<recipe>-<n>` that does not exist."""
    stem = run_name(Path(data).stem or data) or "data"
    return derived_run_path(Path("runs") / stem, run_name(recipe))


def derived_run_path(run: Path, how: str) -> Path:
    """Return the first directory `<run>-<how>-<n>` that does not exist, for a run made from another."""
    paths = (run.with_name(f"{run.name}-{how}-{n}") for n in itertools.count(1))
    return next(path for path in paths if not path.exists())
