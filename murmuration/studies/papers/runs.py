"""Training runs of a reproduction: begun, continued after a kill, or loaded."""

from pathlib import Path
from typing import Any

from murmuration.core.recipe import Recipe
from murmuration.data import Data
from murmuration.models.nets.source import Net
from murmuration.prediction.ensemble import Ensemble
from murmuration.runs.directory import MANIFEST
from murmuration.studies.papers import Show
from murmuration.system.files import read_json
from murmuration.training.fitting import fit, load, resume
from murmuration.training.plan import Plan


def trained(path: Path, net: Net, data: Data, recipe: Recipe, plan: Plan, show: Show) -> Ensemble:
    """Return the ensemble of the run in `path`, trained as far as it is not."""
    epochs = plan.epochs

    def show_epoch(text: str, done: int, total: int, record: dict[str, Any] | None) -> None:
        if total:
            show(f"training {path.name}, epoch {min(done * epochs // total + 1, epochs)}", done, total)

    if not (path / MANIFEST).exists():
        return fit(net, data, recipe=recipe, plan=plan, out=path, progress=show_epoch)
    if read_json(path / MANIFEST)["status"] != "complete":
        return resume(path, data=data, device=plan.device, show=show_epoch)
    return load(path, posthoc=False)
