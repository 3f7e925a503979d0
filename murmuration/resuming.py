"""`mm.resume`: continue a killed run of any kind; a run of an application is finished as the application does it."""

from pathlib import Path
from typing import Any

from murmuration import fitting
from murmuration.applications import pruning, superres
from murmuration.ensemble import Ensemble
from murmuration.runs import read_run


def resume(path: str | Path, *, data: Any = None, **settings: Any) -> Ensemble:
    """Continue a killed run; the ensemble is the one the undisturbed run would have left, bit for bit.

    `settings` are those of `fitting.resume`: a run on a network, data, recipe objects or an optimizer of the caller's
    own needs them again as `net`, `data`, `recipe` and `optimizer`. Fine-tuning after pruning records its scores.
    """
    manifest = read_run(Path(path))
    if data is None and superres.is_patches(manifest):
        data = superres.reopen(manifest)
    return (pruning.resume if "pruning" in manifest else fitting.resume)(path, data=data, **settings)
