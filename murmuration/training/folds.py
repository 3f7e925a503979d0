"""Cross-fitting: the members of every fold's models are the ensemble, and what is fitted afterwards learns out of fold.

Training and validation examples are divided into folds. The members of fold k train on all other folds; fold k
validates them, and their predictions for it are out of fold: nothing has been trained on these examples. Weights of a
mixture, calibrators and conformal rules are fitted on the out-of-fold predictions of all examples.
"""

import time
from collections.abc import Callable
from dataclasses import replace
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
from murmuration.system.errors import Failure, Misuse, require_integer, warn
from murmuration.system.progress import Show
from murmuration.system.streams import ALL_MEMBERS, stream_seed
from murmuration.training import TrainSpec
from murmuration.training.plan import Plan
from murmuration.training.run import blank_ensemble, with_posthoc

NETWORKS = "networks"


def pooled(data: Data) -> Data:
    """Return the data with training and validation examples together as training examples."""
    if isinstance(data.train.prepared, Streamed):
        raise Misuse("folds= on examples that are read when needed: write in_memory=True")
    splits = {name for name in ("groups", "time") if (data.source or {}).get(name) is not None}
    if splits or data.source is None:
        raise Misuse(f"folds= with rows split by {' and '.join(sorted(splits)) or 'a splitter'}: folds are random rows")
    parts = [part for part in (data.train, data.val) if len(part)]
    weight = None
    if any(part.weight is not None for part in parts):
        weight = torch.cat([torch.ones(len(part)) if part.weight is None else part.weight for part in parts])
    y, prepared = (torch.cat([getattr(part, name) for part in parts]) for name in ("y", "prepared"))
    return replace(data, train=Split(None, y, prepared, weight), val=data.val)


def fold_numbers(pool: Data, folds: int, seed: int) -> np.ndarray:
    """Return the fold (n,) of each example: at random, of sizes that differ by one at most, and stratified by class."""
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
    """Return the examples of all other folds for training, and those of one fold for validation."""
    inside = numbers == fold
    return replace(pool, train=pool.train[np.flatnonzero(~inside)], val=pool.train[np.flatnonzero(inside)])


def fit_folds(spec: TrainSpec, data: Data, folds: int, train: Callable[[TrainSpec], Ensemble], show: Show) -> Ensemble:
    """Networks of every fold, with the models of their recipe.

    `spec` is of the pooled examples of the data; `train` gives the ensemble of a specification.
    """
    recipe, plan = spec.recipe, spec.plan

    def networks(part: Data, fold: int) -> Ensemble:
        own = replace(plan, posthoc=None, first_member=plan.first_member + fold * plan.members)
        return train(replace(spec, data=part, plan=own, recipe=replace(recipe, models=())))

    ensemble = cross_fit(spec.data, folds, plan, spec.likelihood, models_for(recipe.models, data.task), networks, show)
    described = runs.describe_data(data, spec.likelihood.task)
    manifest = replace(ensemble.manifest, recipe=recipe.to_json(), plan=plan.to_json(), data=described)
    return replace(ensemble, recipe=recipe, history=[], manifest=manifest)


def fit_models(
    model: Any, data: Data, recipe: Recipe, plan: Plan, likelihood: Likelihood, folds: int | None, show: Show
) -> Ensemble:
    """Fit an ensemble of one model that is not a network, calibrated as any other; with folds, of the members of each.

    `model` is a name of `MODELS` or a scikit-learn estimator; members are fitted to bootstrap samples if there are
    several.
    """
    blank = blank_ensemble(model, data, recipe, plan, likelihood)
    if folds is not None:
        return cross_fit(pooled(data), folds, plan, likelihood, (model,), None, show, blank)
    start, cpu = time.perf_counter(), time.process_time()
    models = fit_members(model, data, likelihood, members=plan.members, seed=plan.seed)
    spent: dict[str, Any] = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    manifest = replace(blank.manifest, **spent)
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
    """Return the ensemble of the members of all folds.

    `train` gives the networks of one fold, with its number, or is None; `models` beside them are names or estimators.
    The result is `blank`, or the networks of the first fold, with other members.
    """
    numbers, networks = fold_numbers(pool, folds, plan.seed), []
    start, cpu = time.perf_counter(), time.process_time()
    fitted: list[dict[str, tuple[Model, ...]]] = []  # the models of every fold by name
    predicted: list[dict[str, Predictive]] = []  # the out-of-fold predictions of every part
    for fold in range(folds):
        data, seed, members = one_fold(pool, numbers, fold), stream_seed(plan.seed, "folds", fold), plan.members
        predicted.append({})
        if train is not None:
            networks.append(train(data, fold))
            predicted[fold][NETWORKS] = networks[fold].predict(data.val.prepared, calibrated=False, prepared=True)
            members = 1
        fitted.append({name_of(m): fit_members(m, data, likelihood, members=members, seed=seed) for m in models})
        for name, fold_models in fitted[fold].items():
            outputs = torch.stack([model.outputs(data.val.prepared) for model in fold_models])
            predicted[fold][name] = Predictive(outputs, likelihood)
        show(f"fold {fold + 1} of {folds}", 0, 0, None)
    rows = np.argsort(numbers, kind="stable")  # fold after fold, as in the out-of-fold predictions
    y, weight = pool.train.y[rows], None if pool.train.weight is None else pool.train.weight[rows]
    pairs = list(zip(predicted, y.split(np.bincount(numbers).tolist()), strict=True))
    logs = {name: torch.cat([parts[name].log_prob(targets) for parts, targets in pairs]) for name in predicted[0]}
    selection = select(logs, weight)
    if len(selection.weights) > 1:
        show(f"weights by out-of-fold NLL: {selection.text}", 0, 0, None)
    out_of_folds = joined_rows([joined_parts(parts, selection) for parts in predicted])
    base = networks[0] if blank is None else blank
    spent: dict[str, Any] = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    timed = replace(base, manifest=replace(base.manifest, **spent))
    joint = with_members(timed, networks, fitted, selection)
    if out_of_folds.task == REGRESSION:  # intervals need the absolute residuals of out-of-fold means
        residuals = (out_of_folds.mean - y).abs().tolist()
        joint.manifest.folds.update(fold=numbers[rows].tolist(), residuals=residuals)
    if plan.posthoc is None:
        return joint
    if len(y) < FEWEST:
        reason = f"{len(y)} examples, and it takes {FEWEST}; give more examples"
        warn(f"not calibrated: {reason}", "too few validation examples")
        return joint
    return replace(joint, posthoc=fit_posthoc(out_of_folds, y, plan.posthoc, *class_facts(joint)))


def joined_parts(predicted: dict[str, Predictive], selection: Selection) -> Predictive:
    """Join the predictions of the parts of one fold as one mixture; parts of weight zero are left out."""
    parts = {name: pred for name, pred in predicted.items() if selection.weights[name] > 0}
    weights = torch.cat([pred.member_weights * selection.weights[name] for name, pred in parts.items()])
    outputs = torch.cat([pred.outputs for pred in parts.values()])
    first = next(iter(parts.values()))
    return replace(first, outputs=outputs, weights=None if len(parts) == 1 else weights / weights.sum(), posthoc=None)


def joined_rows(parts: list[Predictive]) -> Predictive:
    """Join the out-of-fold predictions of all folds one after another; members of several folds stand in one place."""
    if len({len(part.outputs) for part in parts}) > 1:
        raise Failure("folds with different numbers of members, as some diverged: lower the learning rate")
    return Predictive.concatenate(parts)


def with_members(
    ensemble: Ensemble, networks: list[Ensemble], fitted: list[dict[str, tuple[Model, ...]]], selection: Selection
) -> Ensemble:
    """Return the ensemble with the members of all folds: networks fold by fold, then each model fold by fold."""
    groups = tuple(group for part in networks for group in part.groups)
    places = [fold for fold, part in enumerate(networks) for _ in range(part.members)]
    weights = [selection.weights.get(NETWORKS, 0.0) / max(len(places), 1)] * len(places)
    models: list[Model] = []
    for name in fitted[0]:
        if selection.weights[name] > 0:
            own = [(fold, model) for fold, by_name in enumerate(fitted) for model in by_name[name]]
            models += [model for _, model in own]
            places += [fold for fold, _ in own]
            weights += [selection.weights[name] / len(own)] * len(own)
    record: dict[str, Any] = {"folds": {"count": len(fitted), "members": places}, "groups": max(len(groups), 1)}
    if len(selection.weights) > 1:
        record |= {"weights": weights, "selection": selection.to_json()}
    manifest = replace(ensemble.manifest, **record)
    return replace(ensemble, groups=groups, models=tuple(models), weights=tuple(manifest.weights), manifest=manifest)


def cross_interval(
    ensemble: Ensemble, x: Any, *, coverage: float = 0.9, method: str = "plus"
) -> tuple[np.ndarray, np.ndarray]:
    """Compute intervals of a cross-fitted regression (`folds=` of `fit`).

    The coverage is guaranteed where training does not look at the examples of a fold: without early stopping on them.

    Args:
        ensemble: Ensemble of several folds.
        x: Raw inputs, as `predict` takes them.
        coverage: Nominal coverage.
        method: "plus" (CV+; with one example a fold, jackknife+) or "minmax".

    Returns:
        The ends (low, high), each (N, K).
    """
    record = ensemble.manifest.folds
    if "residuals" not in record:
        raise Misuse("intervals of folds for an ensemble without them: train a regression with folds=5")
    pred = ensemble.predict(x, calibrated=False)
    ours = fold_of_members(ensemble, pred)
    means = [pred.select((ours == fold).nonzero()[:, 0]).mean.numpy() for fold in range(record["count"])]
    return cross_intervals(np.stack(means), np.array(record["fold"]), np.array(record["residuals"]), coverage, method)


def fold_of_members(ensemble: Ensemble, pred: Predictive) -> Tensor:
    """Return the fold (S,) of every member, or draw of one, in predictions of a cross-fitted ensemble."""
    places, networks = torch.tensor(ensemble.manifest.folds["members"]), ensemble.networks
    draws = (len(pred.outputs) - len(ensemble.models)) // max(networks, 1)
    return torch.cat([places[:networks].repeat_interleave(draws), places[networks:]])


def out_of_fold(ensemble: Ensemble, data: Data) -> tuple[Predictive, Split]:
    """Predict the examples that a cross-fitted ensemble was fitted to, each by the members of its own fold.

    Returns the uncalibrated predictions and the examples, fold after fold.
    """
    pool, count = pooled(data), ensemble.manifest.folds["count"]
    numbers, parts = fold_numbers(pool, count, ensemble.manifest.plan["seed"]), []
    rows = [np.flatnonzero(numbers == fold) for fold in range(count)]
    for fold, inside in enumerate(rows):
        pred = ensemble.predict(pool.train.prepared[inside], calibrated=False, prepared=True)
        parts.append(pred.select((fold_of_members(ensemble, pred) == fold).nonzero()[:, 0]))
    return joined_rows(parts), pool.train[np.concatenate(rows)]


def fit_posthoc_again(ensemble: Ensemble, data: Data, config: PostHocConfig | None) -> Ensemble:
    """Fit post-hoc steps of the ensemble on the validation examples of its run, out of fold if it has folds."""
    if not ensemble.manifest.folds:
        return ensemble.fit_posthoc(data.val, config=config)
    predicted, examples = out_of_fold(ensemble, data)
    return replace(ensemble, posthoc=fit_posthoc(predicted, examples.y, config, *class_facts(ensemble)))


def class_facts(ensemble: Ensemble) -> tuple[Any, Any]:
    """Return the number of training examples of each class, and their mean weights."""
    data = ensemble.manifest.data
    return data.get("class_counts"), data.get("class_weights")
