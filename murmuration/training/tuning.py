"""Choosing what the data must decide: the lengthscales of input-gradient repulsion, on corrupted validation examples.

The published runs chose alpha by test accuracy. Here every candidate is trained and scored on the validation split,
clean and under corruptions that are kept for this purpose (Hendrycks and Dietterich 2019 name four such, beside the
fifteen for testing), and the test split is never looked at.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from murmuration.coupling import ALPHAS, AUTO
from murmuration.data import Data, ImagePreparation
from murmuration.data.shift import corruptions_for, shift_inputs
from murmuration.engines import Engine, Team, assemble, member_outputs
from murmuration.errors import Misuse
from murmuration.population import Population
from murmuration.training.loop import Job, Progress, begin, train

FOR_VALIDATION = ("speckle_noise", "gaussian_blur", "spatter", "saturate")  # of pictures
SEVERITIES = (1, 3, 5)
SEED = 1  # of the corruptions: not the one that evaluations use

Sweep = dict[str, float]  # alpha -> mean validation NLL


@dataclass(frozen=True)
class Quiet:
    """A watcher that only counts."""

    seen: Callable[[Progress], None]

    def after_step(self, progress: Progress) -> None:
        self.seen(progress)

    def after_epoch(self, progress: Progress) -> None:
        self.seen(progress)


def wants_sweep(job: Job) -> bool:
    """Whether alpha is still to be chosen."""
    settings = job.recipe.repulsion
    tuned = settings is not None and settings.lengthscales == "tuned" and settings.alpha == AUTO
    return tuned and job.plan.members > 1 and job.alpha is None


def sweep(job: Job, engine: Engine, done: Sweep, save: Callable[[Sweep], None], show: Callable[[str], None]) -> Sweep:
    """The validation score of every alpha; those in `done` are not tried again, and each new one is saved at once."""
    found = dict(done)
    exams = validation_exams(job.data)
    for alpha in ALPHAS:
        if f"{alpha:g}" in found:
            continue
        show(f"trying alpha {alpha:g}, {len(found) + 1} of {len(ALPHAS)}")
        candidate = replace(job, alpha=alpha)
        population = train(candidate, engine, begin(candidate), Quiet(lambda progress: None))
        found[f"{alpha:g}"] = score(candidate, engine, population, exams)
        save(found)
    return found


def chosen(found: Sweep) -> float:
    """The alpha of the lowest score.

    >>> chosen({"0": 0.5, "0.1": 0.4, "1": 0.6})
    0.1
    """
    return float(min(found, key=lambda alpha: found[alpha]))


def validation_exams(data: Data) -> list[Tensor]:
    """The validation inputs as they are, and under the corruptions kept for choosing; cells weigh alike."""
    try:
        known = corruptions_for(data.preparation)
    except Misuse:  # inputs that no corruption fits: the clean ones decide
        return [data.val.x]
    pictures = isinstance(data.preparation, ImagePreparation)
    names = [name for name in FOR_VALIDATION if name in known] if pictures else list(known)
    cells = [(name, severity) for name in names for severity in SEVERITIES]
    return [data.val.x, *(shift_inputs(data.val.x, data.preparation, *cell, seed=SEED) for cell in cells)]


def score(job: Job, engine: Engine, population: Population, exams: list[Tensor]) -> float:
    """The ensemble's NLL on the validation targets, averaged over the exams; infinite if nobody is left to answer."""
    method = job.method()
    if population.members == 0:
        return math.inf

    def nll(team: Team, x: Tensor) -> float:
        outputs = member_outputs(team, method.weights, population, x, job.recipe.weighs.draws)
        told = job.likelihood.validate(outputs, job.data.val.y.to(outputs.device))
        return float(told["ensemble"]["val_nll"])

    with assemble(engine, job.member(0)) as team:
        mean = sum(nll(team, x) for x in exams) / len(exams)
    return math.inf if math.isnan(mean) else mean
