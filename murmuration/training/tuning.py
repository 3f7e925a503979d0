"""Choosing a coupling space on validation data: the lengthscales of input-gradient repulsion, on corrupted examples.

The published runs chose alpha by test accuracy. Here every candidate is trained and scored on the validation split,
clean and under corruptions reserved for this purpose (Hendrycks and Dietterich 2019 name four such, beside the fifteen
for testing), and the test split is not used.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor

from murmuration.core.coupling import Space
from murmuration.core.engines import Engine, Team, assemble, outputs_by_ranks
from murmuration.core.population import Population
from murmuration.data import Data, ImagePreparation
from murmuration.data.preparation import before_features
from murmuration.data.shift import corruptions_for, shift_split
from murmuration.system.errors import Misuse
from murmuration.training.loop import Progress, begin, train, validation_weight
from murmuration.training.spec import TrainSpec

FOR_VALIDATION = ("speckle_noise", "gaussian_blur", "spatter", "saturate")  # corruptions of images
SEVERITIES = (1, 3, 5)
SEED = 1  # of the corruptions: not the one that evaluations use

Scores = dict[str, float]  # candidate -> mean validation NLL


class Unwatched:
    """A watcher that does nothing."""

    def after_step(self, progress: Progress) -> None: ...

    def after_epoch(self, progress: Progress) -> None: ...


def score_candidates(
    spec: TrainSpec,
    engine: Engine,
    candidates: Mapping[str, Space],
    done: Scores,
    save: Callable[[Scores], None],
    show: Callable[[str], None],
) -> Scores:
    """The validation score of every candidate; those in `done` are not trained again, and each new one is saved."""
    scores = dict(done)
    inputs = validation_inputs(spec.data)
    coupling = spec.recipe.coupling
    assert coupling is not None
    for name, space in candidates.items():
        if name in scores:
            continue
        show(f"trying {name}, {len(scores) + 1} of {len(candidates)}")
        recipe = replace(spec.recipe, coupling=replace(coupling, space=space))
        candidate = replace(spec, recipe=recipe)
        population = train(candidate, engine, begin(candidate), Unwatched())
        scored = validation_nll(candidate, engine, population, inputs)
        scores[name] = float(spec.ranks.texts(repr(scored))[0])  # of the first process, for all
        save(scores)
    return scores


def best_candidate(scores: Scores) -> str:
    """The candidate of the lowest score.

    >>> best_candidate({"0": 0.5, "0.1": 0.4, "1": 0.6})
    '0.1'
    """
    return min(scores, key=lambda name: scores[name])


def validation_inputs(data: Data) -> list[Tensor]:
    """The validation inputs as they are, and under the corruptions reserved for choosing; all count alike."""
    try:
        inputs = corruptions_for(data.preparation)
    except Misuse:  # no corruption fits these inputs: the clean ones decide
        return [data.val.prepared]
    images = isinstance(before_features(data.preparation), ImagePreparation)
    names = [name for name in FOR_VALIDATION if name in inputs] if images else list(inputs)
    cells = [(name, severity) for name in names for severity in SEVERITIES]
    return [data.val.prepared, *(shift_split(data.val, data.preparation, *cell, seed=SEED) for cell in cells)]


def validation_nll(spec: TrainSpec, engine: Engine, population: Population, inputs: list[Tensor]) -> float:
    """The ensemble's NLL on the validation targets, averaged over the inputs; infinite if all members diverged."""
    if population.members == 0:
        return math.inf

    def nll(team: Team, x: Tensor) -> float:
        draws, seed = spec.recipe.weights.draws, spec.plan.seed
        outputs = outputs_by_ranks(team, spec.method.weights, population, x, draws, seed=seed)
        scores = spec.likelihood.validate(outputs, spec.data.val.y, validation_weight(spec.data.val))
        return float(scores["ensemble"]["val_nll"])

    with assemble(engine, spec.member(0), spec.ranks) as team:
        mean = sum(nll(team, x) for x in inputs) / len(inputs)
    return math.inf if math.isnan(mean) else mean
