"""What pruning costs in accuracy: LeNet-5 with Gaussian weights on digits, every rule, two epochs of fine-tuning.

    python benchmarks/pruning_quality.py

Some minutes of one core; the record is benchmarks/results/pruning-digits.json. One seed, five draws a prediction, no
calibrator. The network that nothing was taken from is not trained further.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import murmuration as mm
from murmuration.applications.pruning import Pruning, plan_pruning, prune
from murmuration.applications.pruning.masks import count_parameters, prune_population, sparsity_of
from murmuration.applications.pruning.runs import validation_scores, with_population
from murmuration.core.recipe import make_recipe
from murmuration.runs.directory import versions
from murmuration.system.files import write_json

RECORD = Path(__file__).parent / "results" / "pruning-digits.json"
EPOCHS, FINETUNE = 15, 2
SPARSITIES = (0.5, 0.8, 0.9, 0.95)
RECIPE = make_recipe("bayes", weights="gaussian:beta=0.1")
PRUNINGS: dict[str, Pruning] = {
    **{f"magnitude, global, {s:.0%}": Pruning("magnitude", sparsity=s) for s in SPARSITIES},
    **{f"snr, global, {s:.0%}": Pruning("snr", sparsity=s) for s in SPARSITIES},
    **{f"snr, layer, {s:.0%}": Pruning("snr", sparsity=s, scope="layer") for s in (0.8, 0.95)},
    "log-alpha, 3": Pruning("log-alpha", threshold=3.0),
    "half the channels, compact": Pruning("magnitude", sparsity=0.5, structured=True),
}


def measured(ensemble: mm.Ensemble, data: mm.Data, part: str) -> dict[str, Any]:
    """Accuracy and NLL on a split."""
    return {name: score.to_json() for name, score in validation_scores(ensemble, getattr(data, part)).items()}


def pruned(run: Path, name: str, pruning: Pruning, out: Path) -> dict[str, Any]:
    """The scores of one pruning before and after fine-tuning."""
    plan = plan_pruning(run, pruning)
    left = prune_population(plan.ensemble.groups[0].population, plan.ensemble.recipe.weights, plan.trace, plan.pruning)
    done = prune(plan, out, finetune=FINETUNE, compact=pruning.structured)
    return {
        "name": name,
        "sparsity": sparsity_of(left, plan.trace),
        "nonzero": count_parameters(done.groups[0].population).nonzero,
        "pruned_val": measured(with_population(plan.ensemble, left), plan.data, "val"),
        "val": measured(done, plan.data, "val"),
        "test": measured(done, plan.data, "test"),
    }


def main() -> None:
    mm.keep_freed_memory()
    with tempfile.TemporaryDirectory() as scratch:
        run, data = Path(scratch) / "dense", mm.open_data("digits")
        dense = mm.fit("lenet5", data, recipe=RECIPE, epochs=EPOCHS, out=run)
        rows = [
            {
                "name": "none",
                "sparsity": 0.0,
                "nonzero": count_parameters(dense.groups[0].population).nonzero,
                "val": measured(dense, data, "val"),
                "test": measured(dense, data, "test"),
            }
        ]
        for place, (name, pruning) in enumerate(PRUNINGS.items()):
            rows.append(pruned(run, name, pruning, Path(scratch) / str(place)))
            print(json.dumps(rows[-1]), flush=True)
    examples = {part: len(getattr(data, part)) for part in ("train", "val", "test")}
    write_json(
        RECORD, {"epochs": EPOCHS, "finetune": FINETUNE, "examples": examples, "versions": versions(), "rows": rows}
    )


if __name__ == "__main__":
    main()
