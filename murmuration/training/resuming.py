"""`mm.resume`: continue a killed run of any kind; a run of an application is finished as the application does it."""

from pathlib import Path
from typing import Any

from murmuration.prediction.ensemble import Ensemble
from murmuration.runs.directory import read_run
from murmuration.runs.kinds import run_kind
from murmuration.training import fitting


def resume(path: str | Path, *, data: Any = None, **settings: Any) -> Ensemble:
    """Continue a killed run; the ensemble is the one the undisturbed run would have left, bit for bit.

    `settings` are those of `fitting.resume`: a run on a network, data, recipe objects or an optimizer of the caller's
    own needs them again as `net`, `data`, `recipe` and `optimizer`. Fine-tuning after pruning records its scores.
    """
    manifest = read_run(Path(path))
    kind = run_kind(manifest)
    if data is None and kind is not None and kind.reopen is not None:
        data = kind.reopen(manifest)
    finish = fitting.resume if kind is None or kind.resume is None else kind.resume
    ensemble: Ensemble = finish(path, data=data, **settings)
    return ensemble
