"""What makes networks differ: initialisation, batch order, or both, at several learning rates.

Every cell of {same, different} initialisation x {same, different} batches x learning rates is trained several times
with other seeds, and the members of one training are compared with each other (Fort, Hu and Lakshminarayanan 2019,
appendix B). Noise, such as dropout, belongs to the batches: it is the same where they are the same. Members with the
same initialisation and the same batches are then equal to the bit, and so must be their predictions.
"""

import hashlib
import itertools
import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from murmuration.core.recipe import Recipe
from murmuration.data import Data
from murmuration.likelihoods import CLASSIFICATION
from murmuration.models.nets.source import Net
from murmuration.prediction.ensemble import Ensemble
from murmuration.runs import directory as run_files
from murmuration.studies.cells import Arrays, Cells
from murmuration.studies.landscape import Array, Result, Show, silent
from murmuration.studies.similarity import network_similarity
from murmuration.studies.verdicts import Estimate, Verdict, estimate
from murmuration.studies.weight_space import points_of
from murmuration.system.errors import Misuse, require_integer
from murmuration.system.records import plain_json
from murmuration.training.fitting import fit, resume
from murmuration.training.plan import Plan
from murmuration.training.resolve import resolve

LEVELS = ("same", "different")
MEASURES = ("disagreement", "diversity", "cosine", "distance", "accuracy")  # means over pairs, or over members
DECIDED = ("lr", "same", "batch_order", "trajectory")  # settings of `fit` that the factorial decides itself


@dataclass(frozen=True, eq=False)
class Factorial(Result):
    """Measures (L, 2, 2, R) of L learning rates, initialisation and batches (same, different), and R runs.

    Disagreement is the fraction of examples on which two members predict different classes, diversity the same over the
    error rate, cosine that of their weights, distance the norm of the difference of weights over their mean norm.
    A measure is NaN where fewer than two members of a run could be trained.
    """

    lrs: tuple[float, ...]
    runs: int
    examples: int  # that members are compared on
    about: dict[str, Any]  # network, data, recipe and plan
    disagreement: Array
    diversity: Array
    cosine: Array
    distance: Array
    accuracy: Array

    def mean(self, measure: str) -> Array:
        """Return the mean over runs (L, 2, 2)."""
        return over_runs(getattr(self, measure))[0]

    def standard_error(self, measure: str) -> Array:
        """Return the standard error of that mean (L, 2, 2); NaN for one run."""
        return over_runs(getattr(self, measure))[1]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Claims of Fort et al. (2019), with intervals over runs, which cells share."""
        what = "largest disagreement or distance of weights"
        worst = float(
            np.nanmax([self.disagreement[:, 0, 0], self.distance[:, 0, 0]])
        )  # equal or not: an exact statement, which one run refutes
        exact = Estimate(what, worst, worst, worst, 0.0, 0.0, f"all {self.disagreement[:, 0, 0].size} pairs of cells")
        claim = "the same initialisation and the same batches give the same network"
        verdicts = [Verdict("determinism", claim, (exact,))]
        start, order, both = (
            self.disagreement[:, 1, 0],
            self.disagreement[:, 0, 1],
            self.disagreement[:, 1, 1],
        )  # (L, R)
        gap = estimate(
            "disagreement, by initialisation less by batches", trained((start - order).mean(0)), 0.0, math.inf, "runs"
        )
        note = f"disagreement {np.nanmean(start):.1%} by initialisation alone, {np.nanmean(order):.1%} by batches alone"
        verdicts.append(Verdict("initialisation", "initialisation matters more than batch order", (gap,), note))
        gains = [
            estimate(f"both less {alone} alone, learning rate {rate:g}", trained(values), 0.0, math.inf, "runs")
            for rate, *rows in zip(self.lrs, both - start, both - order, strict=True)
            for alone, values in zip(("initialisation", "batches"), rows, strict=True)
        ]
        claim = "initialisation and batch order are complementary: both together give more diversity than either alone"
        verdicts.append(Verdict("complementary", claim, tuple(gains)))
        if len(self.lrs) > 1:
            octaves = np.log2(self.lrs) - np.log2(self.lrs).mean()  # (L,)
            slopes = octaves @ order / (octaves @ octaves)
            slope = estimate(
                "disagreement by batches alone, change a doubling of the rate", trained(slopes), 0.0, math.inf, "runs"
            )
            verdicts.append(Verdict("batch order", "batch order matters more at a larger learning rate", (slope,)))
        return tuple(verdicts)

    def frame(self) -> pd.DataFrame:
        """Return one row for each learning rate, initialisation, batches and measure.

        Mean, standard error, number of runs.
        """
        rows = []
        for measure in MEASURES:
            values = getattr(self, measure)
            means, errors = over_runs(values)
            for place in np.ndindex(means.shape):
                cell = {"lr": self.lrs[place[0]], "initialisation": LEVELS[place[1]], "batches": LEVELS[place[2]]}
                counted = int(np.isfinite(values[place]).sum())
                numbers = {"mean": means[place], "standard_error": errors[place], "runs": counted}
                rows.append({**cell, "measure": measure, **numbers})
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"levels": list(LEVELS)}


def trained(values: Array) -> list[float]:
    """Return the values of the runs whose members could be trained."""
    return values[np.isfinite(values)].tolist()


def over_runs(values: Array) -> tuple[Array, Array]:
    """Return the mean of values (..., R) over runs and its standard error s / sqrt(R), without runs that are NaN.

    That is the standard deviation of the mean over bootstrap resamples of the runs, in closed form, with the divisor
    R - 1 instead of R: a resample of few runs varies too little.
    """
    count = np.isfinite(values).sum(-1).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(values, -1) / np.where(count > 0, count, np.nan)
        spread = np.nansum((values - mean[..., None]) ** 2, -1)
        return mean, np.sqrt(spread / np.where(count > 1, count - 1, np.nan) / count)


def factorial(
    net: Net | None,
    data: Any,
    *,
    recipe: str | Recipe = "deep-ensemble",
    lrs: Sequence[float] = (4e-4, 8e-4, 1.6e-3, 3.2e-3),
    runs: int = 3,
    epochs: int = 10,
    seed: int = 0,
    folder: str | Path | None = None,
    show: Show = silent,
    **settings: Any,
) -> Factorial:
    """Train and compare networks in all cells of initialisation x batches x learning rate.

    Members are compared on the test split, or on the validation split if there is none.

    Args:
        net: Network, as in `fit`.
        data: Classification data, as in `fit`.
        recipe: Recipe, as in `fit`.
        lrs: Learning rates.
        runs: Ensembles in every cell, with the seeds `seed`, `seed + 1`, ...
        epochs: Epochs of training.
        seed: First random seed.
        folder: Directory for finished runs, from which an interrupted factorial resumes; learning rates and runs can be
            added to it.
        show: Progress callback `show(text, done, total)`.
        **settings: Further settings of `fit`; `members` is 2 by default.

    Returns:
        The measures of all cells and runs.

    Raises:
        Misuse: For a regression, fewer than two members, or a setting that the factorial decides.
    """
    require_integer("runs", runs, 1)
    for name in DECIDED:
        if name in settings:
            raise Misuse(f"{name}= with factorial, which decides it: leave it out; learning rates are lrs=(0.001, ...)")
    settings = {"members": 2, "engine": "threads", **settings, "posthoc": None}
    resolved = resolve(net, data, recipe, Plan(epochs=epochs), settings)
    plan, made_recipe, opened = resolved.plan, resolved.recipe, resolved.data
    if plan.members < 2:
        raise Misuse(f"members={plan.members}: a factorial compares members; need at least 2")
    spec, source = resolved.spec()
    if spec.likelihood.task != CLASSIFICATION:
        raise Misuse("a factorial of a regression: disagreement compares predicted classes; give a classification")
    if plan.batch_order == "same":
        raise Misuse(
            f"recipe {made_recipe.name} has the same batches for all members: a factorial compares other ones too"
        )
    about = {"net": source.record, "data": opened.fingerprint, "recipe": made_recipe.to_json()}
    about["plan"] = {**plan.to_json(), **dict.fromkeys(("lr", "seed", "same", "batch_order"))}
    cells = Cells(None if folder is None else Path(folder), about)
    places = list(itertools.product(range(len(lrs)), range(2), range(2), range(runs)))
    values = {measure: np.full((len(lrs), 2, 2, runs), np.nan) for measure in MEASURES}
    for done, (rate, start, order, run) in enumerate(places):
        key = f"lr-{lrs[rate]:g}-initialisation-{LEVELS[start]}-batches-{LEVELS[order]}-seed-{seed + run}"
        show(key, done, len(places))
        common = (() if start else ("initialisation",)) + (() if order else ("batches", "noise"))
        run_plan = replace(plan, lr=lrs[rate], seed=seed + run, same=common, batch_order=None)
        path = None if cells.folder is None else cells.folder / f"{key}-{short_digest(about)}"
        for measure, value in cells(key, partial(compare_members, net, opened, made_recipe, run_plan, path)).items():
            values[measure][rate, start, order, run] = value
    show("", len(places), len(places))
    return Factorial(tuple(lrs), runs, len(opened.held_out), about, **values)


def compare_members(net: Net | None, data: Data, recipe: Recipe, plan: Plan, path: Path | None) -> Arrays:
    """Return the measures of one run: means over pairs of members, or over members; NaN with fewer than two.

    The run is written to the path while it is trained, continued if it was begun there, and removed at the end.
    """
    ensemble = train_members(net, data, recipe, plan, path)
    if path is not None:
        with run_files.locked(path):
            run_files.remove_files(path)
        run_files.remove_empty([path])
    if ensemble.members < 2:
        return {measure: np.array(math.nan) for measure in MEASURES}
    similarity = network_similarity(ensemble, data.held_out, train=data.train, cka=False)
    vectors = points_of(ensemble).vectors.double()
    apart = [(vectors[i] - vectors[j]).norm().item() for i, j in itertools.combinations(range(len(vectors)), 2)]
    distance = sum(apart) / len(apart) / vectors.norm(dim=1).mean().item()
    pairs = {measure: similarity.mean(measure) for measure in ("disagreement", "diversity", "cosine")}
    measures = {**pairs, "distance": distance, "accuracy": float(similarity.accuracy.mean())}
    return {measure: np.array(value) for measure, value in measures.items()}


def train_members(net: Net | None, data: Data, recipe: Recipe, plan: Plan, path: Path | None) -> Ensemble:
    """Return the members of one run, continued if it was begun in the path."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "all members begin with the same weights")
        if path is None or not (path / run_files.MANIFEST).exists():
            return fit(net, data, recipe=recipe, plan=plan, out=path, progress=False)
        own = None if isinstance(net, str) else net
        optimizer = plan.optimizer if callable(plan.optimizer) else None
        return resume(path, net=own, data=data, recipe=recipe, optimizer=optimizer)


def short_digest(record: dict[str, Any]) -> str:
    """Return eight digits that tell the settings of two factorials in one folder apart."""
    return hashlib.sha256(json.dumps(plain_json(record), sort_keys=True).encode()).hexdigest()[:8]
