"""Training and continuing runs, with a bar to look at."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmuration.cli.screen import NOTHING_WRITTEN, Interrupted, training_bar
from murmuration.errors import Failure

if TYPE_CHECKING:
    from murmuration.data import Data
    from murmuration.ensemble import Ensemble
    from murmuration.posthoc.fit import PostHoc
    from murmuration.recipe import Plan, Recipe

PARTS = {"status": str, "recipe": dict, "plan": dict, "net": dict, "data": dict, "likelihood": dict, "engine": dict}


@dataclass(frozen=True)
class Order:
    """What to train, besides the recipe."""

    data: "Data"
    plan: "Plan"
    net: str | None = None
    noise_std: float | None = None
    link: str | None = None


def train_run(order: Order, recipe: "Recipe", path: Path, *, quiet: bool) -> "Ensemble":
    """The ensemble of a new run in `path`."""
    from murmuration.fitting import fit

    with training_bar(order.plan.epochs, quiet, recipe.name) as show:
        return fit(
            order.net,
            order.data,
            recipe=recipe,
            plan=order.plan,
            noise_std=order.noise_std,
            link=order.link,
            out=path,
            show=show,
        )


def resume_run(path: Path, data: "Data", *, quiet: bool) -> "Ensemble":
    """The ensemble of a run that is there, finished first if it is not."""
    from murmuration.applications import pruning
    from murmuration.fitting import resume

    manifest = manifest_of(path)
    if manifest["status"] == "complete":
        return loaded(path)
    with training_bar(manifest["plan"]["epochs"], quiet, manifest["recipe"]["name"]) as show:
        return (pruning.resume if "pruning" in manifest else resume)(path, data=data, show=show)


def loaded(path: Path, *, posthoc: bool = True) -> "Ensemble":
    """The ensemble of a finished run, with its post-hoc steps if there are some; damaged ones name the way out."""
    from dataclasses import replace

    from murmuration.errors import Misuse
    from murmuration.fitting import load

    ensemble = load(path, posthoc=False)
    if not posthoc:
        return ensemble
    try:
        return replace(ensemble, posthoc=own_posthoc(path, ensemble))
    except (Misuse, Failure) as error:
        raise Failure(f"{error}; fit them again with murmur calibrate {path}") from None


def own_posthoc(path: Path, ensemble: "Ensemble") -> "PostHoc | None":
    """The post-hoc steps of a run, tried on one input of zeros: those of another run do not pass."""
    import torch

    from murmuration.ensemble import load_posthoc
    from murmuration.errors import Misuse
    from murmuration.runs import POSTHOC

    guard = load_posthoc(path)
    if guard is None:
        return None
    try:
        made = guard.calibrated(ensemble.predict(torch.zeros(1, *ensemble.manifest["input_shape"]), calibrated=False))
        for rule in guard.conformal:
            rule.regions(made)
        guard.answered(made)
    except Misuse as error:
        raise Failure(f"{path / POSTHOC} is not this run's: {error}") from None
    return guard


def manifest_of(path: Path) -> dict[str, Any]:
    """The manifest of a run, refused if a part of it is gone."""
    from murmuration.runs import read_run

    manifest = read_run(path)
    missing = [part for part in PARTS if not isinstance(manifest.get(part), PARTS[part])]
    if missing:
        raise Failure(f"{path / 'run.json'} has no '{missing[0]}': the run is damaged")
    return manifest


def reopened(path: Path) -> "Data":
    """The data that a run was trained on."""
    from murmuration.applications import superres
    from murmuration.fitting import reopen

    manifest = manifest_of(path)
    return reopen(manifest, superres.reopen(manifest) if superres.is_patches(manifest) else None)


@contextmanager
def resumable(path: Path) -> Iterator[None]:
    """Ctrl-C in here tells how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        begun = (path / "run.json").exists()
        raise Interrupted(f"continue with murmur resume {path}" if begun else NOTHING_WRITTEN) from None


def free_path(data: str, recipe: str) -> Path:
    """The first directory `runs/<data>-<recipe>-<n>` that is not there yet."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(data).stem or data).strip("-.") or "data"
    n = 1
    while (path := Path("runs") / f"{stem}-{recipe}-{n}").exists():
        n += 1
    return path
