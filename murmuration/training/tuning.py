"""Choosing a coupling space on validation data: the lengthscales of input-gradient repulsion, on corrupted examples.

The published runs chose alpha by test accuracy. Here every candidate is trained and scored on the validation split,
clean and under corruptions reserved for this purpose (Hendrycks and Dietterich 2019 name four such, beside the fifteen
for testing), and the test split is not used.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from murmuration.core.engines import Engine, Team, assemble, outputs_by_ranks
from murmuration.core.population import Population
from murmuration.data import Data, ImagePreparation
from murmuration.data.preparation import before_features
from murmuration.data.shift import corruptions_for, shift_split
from murmuration.runs.directory import SWEEP
from murmuration.system.errors import Misuse
from murmuration.system.files import read_record, write_record
from murmuration.system.progress import Show
from murmuration.training.loop import Progress, begin, train, validation_weight
from murmuration.training.spec import TrainSpec

FOR_VALIDATION = ("speckle_noise", "gaussian_blur", "spatter", "saturate")  # corruptions of images
SEVERITIES = (1, 3, 5)
SEED = 1  # of the corruptions: not the one that evaluations use


class Unwatched:
    """A watcher that does nothing."""

    def after_step(self, progress: Progress) -> None: ...

    def after_epoch(self, progress: Progress) -> None: ...


def tune_coupling(spec: TrainSpec, engine: Engine, out: Path | None, show: Show) -> tuple[TrainSpec, dict[str, Any]]:
    """Return the specification with the coupling space that validation chooses, and the record of the choice.

    The scores of a killed run are read from its directory `out`, where each new one is saved.
    """
    coupling = spec.recipe.coupling
    spaces = {} if coupling is None or spec.plan.members == 1 else coupling.space.candidates()
    if coupling is None or not spaces:
        return spec, {}
    recipes = {name: replace(spec.recipe, coupling=replace(coupling, space=space)) for name, space in spaces.items()}
    file = None if out is None else out / SWEEP
    scores = {} if file is None or not file.exists() else read_record(file)  # candidate -> mean validation NLL
    inputs = validation_inputs(spec.data)
    for name, recipe in recipes.items():
        if name in scores:
            continue
        show(f"trying {name}, {len(scores) + 1} of {len(recipes)}", 0, 0, None)
        candidate = replace(spec, recipe=recipe)
        score = validation_nll(candidate, engine, train(candidate, engine, begin(candidate), Unwatched()), inputs)
        scores[name] = float(spec.ranks.texts(repr(score))[0])  # of the first process, for all
        if file is not None and spec.ranks.first:
            write_record(file, scores)
    best = min(scores, key=lambda name: scores[name])
    show(f"{best} has the lowest NLL on corrupted validation examples", 0, 0, None)
    return replace(spec, recipe=recipes[best]), {"sweep": scores, "chosen": best}


def validation_inputs(data: Data) -> list[Tensor]:
    """Return the validation inputs as they are, and under the corruptions reserved for choosing; all count alike."""
    try:
        inputs = corruptions_for(data.preparation)
    except Misuse:  # no corruption fits these inputs: the clean ones decide
        return [data.val.prepared]
    images = isinstance(before_features(data.preparation), ImagePreparation)
    names = [name for name in FOR_VALIDATION if name in inputs] if images else list(inputs)
    cells = [(name, severity) for name in names for severity in SEVERITIES]
    return [data.val.prepared, *(shift_split(data.val, data.preparation, *cell, seed=SEED) for cell in cells)]


def validation_nll(spec: TrainSpec, engine: Engine, population: Population, inputs: list[Tensor]) -> float:
    """Return the ensemble's NLL on the validation targets, averaged over inputs; infinite if all members diverged."""
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
