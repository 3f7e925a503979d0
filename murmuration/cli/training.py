"""Training and continuing runs, with a bar to look at."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmuration.cli.screen import Interrupted, training_bar
from murmuration.errors import Failure

if TYPE_CHECKING:
    from murmuration.data import Data
    from murmuration.ensemble import Ensemble
    from murmuration.recipe import Plan, Recipe


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

    with resumable(path), training_bar(order.plan.epochs, quiet, recipe.name) as show:
        return fit(
            order.net, order.data, recipe=recipe, plan=order.plan, noise_std=order.noise_std, out=path, show=show
        )


def resume_run(path: Path, data: "Data", *, quiet: bool) -> "Ensemble":
    """The ensemble of a run that is there, finished first if it is not."""
    from murmuration.fitting import resume
    from murmuration.runs import read_run

    manifest = read_run(path)
    with whole(path), resumable(path), training_bar(manifest["plan"]["epochs"], quiet, manifest["recipe"]["name"]) as show:
        return resume(path, data=data, show=show)


def manifest_of(path: Path) -> dict[str, Any]:
    """The manifest of a run."""
    from murmuration.runs import read_run

    return read_run(path)


def reopened(path: Path) -> "Data":
    """The data that a run was trained on."""
    from murmuration.fitting import reopen

    with whole(path):
        return reopen(manifest_of(path))


@contextmanager
def whole(path: Path) -> Iterator[None]:
    """A manifest that lacks a part is a damaged run, whichever part is missed first."""
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise Failure(f"{path / 'run.json'} is damaged: {type(error).__name__} at {error}") from error


@contextmanager
def resumable(path: Path) -> Iterator[None]:
    """Ctrl-C in here tells how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        begun = (path / "run.json").exists()
        how = f"continue with murmur resume {path}" if begun else "nothing was written"
        raise Interrupted(how) from None


def free_path(data: str, recipe: str) -> Path:
    """The first directory `runs/<data>-<recipe>-<n>` that is not there yet."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(data).stem or data).strip("-.") or "data"
    n = 1
    while (path := Path("runs") / f"{stem}-{recipe}-{n}").exists():
        n += 1
    return path
