"""How well a population does as weights go: scores on validation examples against sparsity.

The test split is never looked at: a sparsity that was chosen by it would look better than it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from murmuration.applications.pruning.counting import counts_of, sparsity_of
from murmuration.applications.pruning.masks import pruned
from murmuration.applications.pruning.rules import Pruning
from murmuration.data import Split
from murmuration.ensemble import Ensemble
from murmuration.errors import Misuse
from murmuration.metrics import MEASURES, Score, evaluate
from murmuration.population import Population
from murmuration.weights import Outline

LEVELS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)
EXAMPLES = 2000  # validation examples that the curve is drawn by, at most
DRAWS = 10  # of a member that answers by chance
MAIN = {"classification": "accuracy", "regression": "rmse"}

Show = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Point:
    """A population that was pruned so far, and what it scores on validation examples."""

    asked: float  # the share of weights, or of channels, that was to go
    sparsity: float  # the share of kernels' weights that is gone
    nonzero: int  # parameters left
    scores: dict[str, Score]  # accuracy or rmse, and nll

    def to_json(self) -> dict[str, Any]:
        return {"asked": self.asked, "sparsity": self.sparsity, "nonzero": self.nonzero, **written(self.scores)}


def written(scores: Mapping[str, Score]) -> dict[str, dict[str, float]]:
    return {name: score.to_json() for name, score in scores.items()}


def with_population(ensemble: Ensemble, population: Population) -> Ensemble:
    """The ensemble with other weights, and without the post-hoc steps that were fitted to the old ones."""
    return replace(ensemble, groups=(replace(ensemble.groups[0], population=population),), posthoc=None)


def scores_on(ensemble: Ensemble, split: Split) -> dict[str, Score]:
    """Accuracy or RMSE, and NLL, on the first examples of a split."""
    task = ensemble.manifest["data"]["task"]
    x, y = split.x[:EXAMPLES], split.y[:EXAMPLES]
    pred = ensemble.predict(x, draws=DRAWS if ensemble.family.chance else None, calibrated=False)
    return evaluate(pred, y).scores(measures={name: MEASURES[task][name] for name in (MAIN[task], "nll")})


def curve_of(ensemble: Ensemble, outline: Outline, split: Split, pruning: Pruning, show: Show) -> list[Point]:
    """Scores at growing sparsities, each pruned from the ensemble as it is, without further training."""
    population, found = ensemble.groups[0].population, []
    for turn, level in enumerate(LEVELS):
        show(f"{level:.0%}", turn, len(LEVELS))
        asked = replace(pruning, sparsity=level, threshold=None)
        left = pruned(population, ensemble.recipe.weighs, outline, asked) if level else population
        scores = scores_on(with_population(ensemble, left), split)
        found.append(Point(level, sparsity_of(left, outline), counts_of(left).nonzero, scores))
    return found


def farthest(curve: Sequence[Point], tolerance: float) -> float:
    """The largest sparsity up to which validation accuracy falls by no more than the tolerance at any level.

    Of a regression: up to which RMSE rises by no more than that part of itself.
    """
    if not 0 <= tolerance < 1:
        raise Misuse(f"tolerance={tolerance}: need a share of at least 0 and below 1, such as 0.01")
    reached = 0.0
    for point in curve:
        if loss_against(curve[0], point) > tolerance + 1e-9:  # shares of examples are rounded
            break
        reached = point.asked
    return reached


def loss_against(dense: Point, point: Point) -> float:
    """How much accuracy was lost, or by which part RMSE grew."""
    if "accuracy" in dense.scores:
        return float(dense.scores["accuracy"]) - float(point.scores["accuracy"])
    return float(point.scores["rmse"]) / max(float(dense.scores["rmse"]), 1e-30) - 1
