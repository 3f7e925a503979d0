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
    from murmuration.recipe import Plan, Recipe

PARTS = {"status": str, "recipe": dict, "plan": dict, "net": dict, "data": dict, "likelihood": dict, "engine": dict}


@dataclass(frozen=True)
class Order:
    """What to train, besides the recipe."""

    data: "Data"
    plan: "Plan"
    net: str | None = None
    noise_std: float | None = None


def train_run(order: Order, recipe: "Recipe", path: Path, *, quiet: bool) -> "Ensemble":
    """The ensemble of a new run in `path`."""
    from murmuration.fitting import fit

    with training_bar(order.plan.epochs, quiet, recipe.name) as show:
        return fit(
            order.net, order.data, recipe=recipe, plan=order.plan, noise_std=order.noise_std, out=path, show=show
        )


def resume_run(path: Path, data: "Data", *, quiet: bool) -> "Ensemble":
    """The ensemble of a run that is there, finished first if it is not."""
    from murmuration.fitting import resume

    manifest = manifest_of(path)
    with training_bar(manifest["plan"]["epochs"], quiet, manifest["recipe"]["name"]) as show:
        return resume(path, data=data, show=show)


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
    from murmuration.fitting import reopen

    return reopen(manifest_of(path))


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
