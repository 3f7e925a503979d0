"""`mm.resume`: continue a killed run of any kind; a run of an application is finished as the application does it."""

from pathlib import Path
from typing import Any

from murmuration.prediction.ensemble import Ensemble
from murmuration.runs.directory import read_run
from murmuration.runs.kinds import run_kind
from murmuration.training import fitting


def resume(path: str | Path, *, data: Any = None, **settings: Any) -> Ensemble:
    """Continue a killed run; the result is bit-identical to that of the undisturbed run.

    Fine-tuning after pruning records its scores.

    Args:
        path: Directory of the run.
        data: The data again, if it is an object of your own.
        **settings: Further objects of your own that the run needs again: net, recipe, optimizer, likelihood, output;
            and device, show and checkpoint_seconds.
    """
    manifest = read_run(Path(path))
    kind = run_kind(manifest)
    if data is None and kind is not None and kind.reopen is not None:
        data = kind.reopen(manifest)
    finish = fitting.resume if kind is None or kind.resume is None else kind.resume
    ensemble: Ensemble = finish(path, data=data, **settings)
    return ensemble
