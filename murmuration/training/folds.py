"""Cross-fitting: the members of every fold's models are the ensemble, and what is fitted afterwards learns out of fold.

Training and validation examples are divided into folds. The members of fold k train on all other folds; fold k
validates them, and their predictions for it are out of fold: nothing has been trained on these examples. Weights of a
mixture, calibrators and conformal rules are fitted on the out-of-fold predictions of all examples.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.core.recipe import Recipe
from murmuration.data import Data, Split
from murmuration.data.streamed import Streamed
from murmuration.likelihoods import REGRESSION, Likelihood
from murmuration.models.estimators.member import Model, fit_members
from murmuration.models.estimators.selection import Selection, select
from murmuration.models.estimators.table import models_for, name_of
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc.conformal import cross_intervals
from murmuration.prediction.posthoc.fit import FEWEST, PostHocConfig, fit_posthoc
from murmuration.prediction.predictive import Predictive
from murmuration.runs import directory as runs
from murmuration.system.errors import Failure, Misuse, require_integer
from murmuration.system.progress import Show
from murmuration.system.streams import ALL_MEMBERS, stream_seed
from murmuration.training import TrainSpec
from murmuration.training.plan import Plan
from murmuration.training.run import blank_ensemble, with_posthoc

FOLDS = "folds"  # in the manifest
NETWORKS = "networks"


def pooled(data: Data) -> Data:
    """The data with training and validation examples together as training examples."""
    if isinstance(data.train.prepared, Streamed):
        raise Misuse("folds= on examples that are read when needed: write in_memory=True")
    splits = {name for name in ("groups", "time") if (data.source or {}).get(name) is not None}
    if splits or data.source is None:
        raise Misuse(f"folds= with rows split by {' and '.join(sorted(splits)) or 'a splitter'}: folds are random rows")
    parts = [part for part in (data.train, data.val) if len(part)]
    weights = [torch.ones(len(part)) if part.weight is None else part.weight for part in parts]
    weight = None if all(part.weight is None for part in parts) else torch.cat(weights)
    y, prepared = (torch.cat([getattr(part, name) for part in parts]) for name in ("y", "prepared"))
    return replace(data, train=Split(None, y, prepared, weight), val=data.val)


def fold_numbers(pool: Data, folds: int, seed: int) -> np.ndarray:
    """The fold (n,) of every example: at random, of sizes that differ by one at most, and stratified by class."""
    require_integer("folds", folds, 2)
    count = len(pool.train)
    if folds > count:
        raise Misuse(f"folds={folds} for {count} examples: expected at most one fold for each")
    order = np.random.default_rng(stream_seed(seed, "folds", ALL_MEMBERS)).permutation(count)
    if pool.classes:
        order = order[np.argsort(pool.train.y.numpy()[order], kind="stable")]
    numbers = np.empty(count, dtype=np.int64)
    numbers[order] = np.arange(count) % folds
    return numbers


def one_fold(pool: Data, numbers: np.ndarray, fold: int) -> Data:
    """The examples of all other folds for training, and those of one fold for validation."""
    inside = numbers == fold
    return replace(pool, train=pool.train[np.flatnonzero(~inside)], val=pool.train[np.flatnonzero(inside)])


@dataclass(frozen=True)
class FoldMembers:
    """The members of one fold by part: its networks, if there are some, and a model of each name."""

    networks: Ensemble | None
    models: dict[str, tuple[Model, ...]]
    val: Split
    likelihood: Likelihood

    def predict(self) -> dict[str, Predictive]:
        """The out-of-fold predictions of every part."""
        x, predictives = self.val.prepared, {}
        if self.networks is not None:
            predictives[NETWORKS] = self.networks.predict(x, calibrated=False, prepared=True)
        for name, models in self.models.items():
            predictives[name] = Predictive(torch.stack([model.outputs(x) for model in models]), self.likelihood)
        return predictives


def fit_folds(spec: TrainSpec, data: Data, folds: int, train: Callable[[TrainSpec], Ensemble], show: Show) -> Ensemble:
    """Networks of every fold, with the models of their recipe.

    `spec` is of the pooled examples of the data; `train` gives the ensemble of a specification.
    """
    recipe, plan = spec.recipe, spec.plan

    def networks(part: Data, fold: int) -> Ensemble:
        own = replace(plan, posthoc=None, first_member=plan.first_member + fold * plan.members)
        return train(replace(spec, data=part, plan=own, recipe=replace(recipe, models=())))

    members_of_folds = cross_fit(
        spec.data, folds, plan, spec.likelihood, models_for(recipe.models, data.task), networks, show
    )
    record = {"recipe": recipe.to_json(), "plan": plan.to_json()}
    record["data"] = runs.describe_data(data, spec.likelihood.task)
    return replace(members_of_folds, recipe=recipe, history=[], manifest={**members_of_folds.manifest, **record})


def fit_models(
    given: Any, data: Data, recipe: Recipe, plan: Plan, likelihood: Likelihood, folds: int | None, show: Show
) -> Ensemble:
    """An ensemble of one model that is not a network, calibrated as any other; with folds, of the members of each.

    `given` is a name of `MODELS` or a scikit-learn estimator; members are fitted to bootstrap samples if there are
    several.
    """
    blank = blank_ensemble(given, data, recipe, plan, likelihood)
    if folds is not None:
        return cross_fit(pooled(data), folds, plan, likelihood, (given,), None, show, blank)
    start = time.perf_counter()
    models = fit_members(given, data, likelihood, members=plan.members, seed=plan.seed)
    manifest = {**blank.manifest, "seconds": time.perf_counter() - start}
    return with_posthoc(replace(blank, models=models, manifest=manifest), data, plan)


def cross_fit(
    pool: Data,
    folds: int,
    plan: Plan,
    likelihood: Likelihood,
    models: tuple[Any, ...],
    train: Callable[[Data, int], Ensemble] | None,
    show: Show,
    blank: Ensemble | None = None,
) -> Ensemble:
    """The ensemble of the members of all folds.

    `train` gives the networks of one fold, with its number, or is None; `models` beside them are names or estimators.
    The result is `blank`, or the networks of the first fold, with other members.
    """
    numbers, start, parts = fold_numbers(pool, folds, plan.seed), time.perf_counter(), []
    for fold in range(folds):
        data = one_fold(pool, numbers, fold)
        networks = None if train is None else train(data, fold)
        seed = stream_seed(plan.seed, "folds", fold)
        count = plan.members if train is None else 1
        fitted = {name_of(each): fit_members(each, data, likelihood, members=count, seed=seed) for each in models}
        parts.append(FoldMembers(networks, fitted, data.val, likelihood))
        show(f"fold {fold + 1} of {folds}", 0, 0, None)
    predicted = [part.predict() for part in parts]
    rows = np.concatenate([np.flatnonzero(numbers == fold) for fold in range(folds)])
    y, weight = pool.train.y[rows], None if pool.train.weight is None else pool.train.weight[rows]
    fits = out_of_fold_selection(predicted, [part.val.y for part in parts], weight)
    if len(fits.weights) > 1:
        show(f"weights by out-of-fold NLL: {fits.text}", 0, 0, None)
    apart = joined_rows([joined_parts(each, fits) for each in predicted])
    base = blank if blank is not None else parts[0].networks
    assert base is not None
    timed = replace(base, manifest={**base.manifest, "seconds": time.perf_counter() - start})
    joint = with_residuals(with_members(timed, parts, fits), apart, y, numbers[rows])
    if plan.posthoc is None:
        return joint
    if len(y) < FEWEST:
        fold_plan = f"{len(y)} examples, and it takes {FEWEST}"
        warnings.warn(f"not calibrated: {fold_plan}; give more examples", stacklevel=2)
        return joint
    counts = joint.manifest["data"]["class_counts"]
    return replace(joint, posthoc=fit_posthoc(apart, y, plan.posthoc, counts))


def out_of_fold_selection(
    predicted: list[dict[str, Predictive]], targets: list[Tensor], weight: Tensor | None
) -> Selection:
    """The weights of the parts by greedy selection on the out-of-fold predictions of all examples."""
    logs = {
        name: torch.cat([part[name].log_prob(y) for part, y in zip(predicted, targets, strict=True)])
        for name in predicted[0]
    }
    return select(logs, weight)


def joined_parts(predicted: dict[str, Predictive], found: Selection) -> Predictive:
    """The predictions of the parts of one fold as one mixture; parts of weight zero are left out."""
    parts_left = {name: pred for name, pred in predicted.items() if found.weights[name] > 0}
    weights = torch.cat([pred.member_weights * found.weights[name] for name, pred in parts_left.items()])
    outputs = torch.cat([pred.outputs for pred in parts_left.values()])
    first = next(iter(parts_left.values()))
    return replace(
        first, outputs=outputs, weights=None if len(parts_left) == 1 else weights / weights.sum(), posthoc=None
    )


def joined_rows(parts: list[Predictive]) -> Predictive:
    """The out-of-fold predictions of all folds one after another; members of several folds stand in one place."""
    if len({len(part.outputs) for part in parts}) > 1:
        raise Failure("folds with different numbers of members, as some diverged: lower the learning rate")
    return Predictive.concatenate(parts)


def with_members(ensemble: Ensemble, parts: list[FoldMembers], found: Selection) -> Ensemble:
    """The ensemble with the members of all folds: networks fold by fold, then each model fold by fold."""
    groups = tuple(group for part in parts for group in (part.networks.groups if part.networks is not None else ()))
    networks = [part.networks.members if part.networks is not None else 0 for part in parts]
    places = [fold for fold, count in enumerate(networks) for _ in range(count)]
    weights = [found.weights.get(NETWORKS, 0.0) / max(sum(networks), 1)] * sum(networks)
    models: list[Model] = []
    for name in parts[0].models:
        if found.weights[name] > 0:
            own = [(fold, model) for fold, part in enumerate(parts) for model in part.models[name]]
            models += [model for _, model in own]
            places += [fold for fold, _ in own]
            weights += [found.weights[name] / len(own)] * len(own)
    several = len(found.weights) > 1
    record: dict[str, Any] = {FOLDS: {"count": len(parts), "members": places}}
    record |= {runs.GROUPS: len(groups)} if len(groups) > 1 else {}
    record |= {"weights": weights, "selection": found.to_json()} if several else {}
    manifest = {**ensemble.manifest, **record}
    member_plan = tuple(weights) if several else ()
    return replace(ensemble, groups=groups, models=tuple(models), weights=member_plan, manifest=manifest)


def with_residuals(ensemble: Ensemble, apart: Predictive, y: Tensor, numbers: np.ndarray) -> Ensemble:
    """The ensemble with the absolute residuals of out-of-fold means, which intervals of a regression need."""
    if apart.task != REGRESSION:
        return ensemble
    residuals = (apart.mean - y).abs()
    known = {**ensemble.manifest[FOLDS], "fold": numbers.tolist(), "residuals": residuals.tolist()}
    return replace(ensemble, manifest={**ensemble.manifest, FOLDS: known})


def cross_interval(
    ensemble: Ensemble, x: Any, *, coverage: float = 0.9, method: str = "plus"
) -> tuple[np.ndarray, np.ndarray]:
    """The ends (low, high), each (N, K), of intervals of a cross-fitted regression (`folds=` of `fit`).

    `method` is plus (CV+; with one example a fold, jackknife+) or minmax. The coverage is guaranteed where
    training does not look at the examples of a fold: without early stopping on them.
    """
    record = ensemble.manifest.get(FOLDS)
    if record is None or "residuals" not in record:
        raise Misuse("intervals of folds for an ensemble without them: train a regression with folds=5")
    pred = ensemble.predict(x, calibrated=False)
    ours = fold_of_members(ensemble, pred)
    means = [pred.select((ours == fold).nonzero()[:, 0]).mean.numpy() for fold in range(record["count"])]
    return cross_intervals(np.stack(means), np.array(record["fold"]), np.array(record["residuals"]), coverage, method)


def fold_of_members(ensemble: Ensemble, pred: Predictive) -> Tensor:
    """The fold (S,) of every member, or draw of one, in predictions of a cross-fitted ensemble."""
    places, networks = torch.tensor(ensemble.manifest[FOLDS]["members"]), ensemble.networks
    draws = (len(pred.outputs) - len(ensemble.models)) // max(networks, 1)
    return torch.cat([places[:networks].repeat_interleave(draws), places[networks:]])


def out_of_fold(ensemble: Ensemble, data: Data) -> tuple[Predictive, Split]:
    """Uncalibrated predictions of a cross-fitted ensemble for the examples it was fitted to, by the members of each
    one's own fold, and the examples; fold after fold."""
    pool, count = pooled(data), ensemble.manifest[FOLDS]["count"]
    numbers, parts = fold_numbers(pool, count, ensemble.manifest["plan"]["seed"]), []
    rows = [np.flatnonzero(numbers == fold) for fold in range(count)]
    for fold, inside in enumerate(rows):
        pred = ensemble.predict(pool.train.prepared[inside], calibrated=False, prepared=True)
        parts.append(pred.select((fold_of_members(ensemble, pred) == fold).nonzero()[:, 0]))
    return joined_rows(parts), pool.train[np.concatenate(rows)]


def fit_posthoc_again(ensemble: Ensemble, data: Data, config: PostHocConfig | None) -> Ensemble:
    """The ensemble with post-hoc steps fitted on the validation examples of its run, out of fold if it has folds."""
    if FOLDS not in ensemble.manifest:
        return ensemble.fit_posthoc(data.val, config=config)
    predicted, examples = out_of_fold(ensemble, data)
    counts = ensemble.manifest["data"]["class_counts"]
    return replace(ensemble, posthoc=fit_posthoc(predicted, examples.y, config, counts))
