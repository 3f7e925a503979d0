"""Validation scores against sparsity.

The test split is not used: a sparsity chosen on it would look better than it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from murmuration.applications.pruning.counting import count_parameters, sparsity_of
from murmuration.applications.pruning.masks import prune_population
from murmuration.applications.pruning.rules import Pruning
from murmuration.data import Split
from murmuration.ensemble import Ensemble
from murmuration.errors import Misuse
from murmuration.metrics import MEASURES, Score, score_examples
from murmuration.population import Population
from murmuration.weights import KernelTrace

LEVELS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)
EXAMPLES = 2000  # at most, for the curve
DRAWS = 10  # of a member whose predictions are random
MAIN = {"classification": "accuracy", "regression": "rmse"}

Show = Callable[[str, int, int], None]


@dataclass(frozen=True)
class CurvePoint:
    """Validation scores at one sparsity."""

    asked: float  # fraction of weights, or of channels, to be removed
    sparsity: float  # fraction of kernel weights that is removed
    nonzero: int  # parameters
    scores: dict[str, Score]  # accuracy or rmse, and nll

    def to_json(self) -> dict[str, Any]:
        return {"asked": self.asked, "sparsity": self.sparsity, "nonzero": self.nonzero, **scores_json(self.scores)}


def scores_json(scores: Mapping[str, Score]) -> dict[str, dict[str, float]]:
    return {name: score.to_json() for name, score in scores.items()}


def with_population(ensemble: Ensemble, population: Population) -> Ensemble:
    """The ensemble with other weights, and without the post-hoc steps that were fitted to the old ones."""
    return replace(ensemble, groups=(replace(ensemble.groups[0], population=population),), posthoc=None)


def validation_scores(ensemble: Ensemble, split: Split) -> dict[str, Score]:
    """Accuracy or RMSE, and NLL, on the first examples of a split."""
    task = ensemble.manifest["data"]["task"]
    x, y = split.x[:EXAMPLES], split.y[:EXAMPLES]
    pred = ensemble.predict(x, draws=DRAWS if ensemble.family.stochastic else None, calibrated=False)
    return score_examples(pred, y).scores(measures={name: MEASURES[task][name] for name in (MAIN[task], "nll")})


def sparsity_curve(
    ensemble: Ensemble, trace: KernelTrace, split: Split, pruning: Pruning, show: Show
) -> list[CurvePoint]:
    """Scores at increasing sparsities, each pruned from the given ensemble, without fine-tuning."""
    population, found = ensemble.groups[0].population, []
    for turn, level in enumerate(LEVELS):
        show(f"{level:.0%}", turn, len(LEVELS))
        asked = replace(pruning, sparsity=level, threshold=None)
        left = prune_population(population, ensemble.recipe.weights, trace, asked) if level else population
        scores = validation_scores(with_population(ensemble, left), split)
        found.append(CurvePoint(level, sparsity_of(left, trace), count_parameters(left).nonzero, scores))
    return found


def largest_sparsity(curve: Sequence[CurvePoint], tolerance: float) -> float:
    """The largest sparsity up to which validation accuracy falls by no more than the tolerance at every level.

    For regression: up to which RMSE rises by no more than that fraction.
    """
    if not 0 <= tolerance < 1:
        raise Misuse(f"tolerance={tolerance}: need a fraction of at least 0 and below 1, such as 0.01")
    reached = 0.0
    for point in curve:
        if score_loss(curve[0], point) > tolerance + 1e-9:  # accuracies are rounded
            break
        reached = point.asked
    return reached


def score_loss(dense: CurvePoint, point: CurvePoint) -> float:
    """The loss of accuracy, or the relative increase of RMSE."""
    if "accuracy" in dense.scores:
        return float(dense.scores["accuracy"]) - float(point.scores["accuracy"])
    return float(point.scores["rmse"]) / max(float(dense.scores["rmse"]), 1e-30) - 1
