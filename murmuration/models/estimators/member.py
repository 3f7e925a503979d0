"""`Model`: a fitted member that is not a network, whose outputs a likelihood interprets as those of a network."""

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.data import Data, Split
from murmuration.data.streamed import Streamed
from murmuration.likelihoods import (
    CLASSIFICATION,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Quantiles,
)
from murmuration.likelihoods.regression import SMALLEST_STD
from murmuration.models.estimators.layout import Layout
from murmuration.models.estimators.table import COLUMNS, Examples, ModelKind, Request, check_model, kind_of, name_of
from murmuration.system.errors import Misuse
from murmuration.system.streams import stream_seed

SMALLEST = 1e-30  # of a probability, so that its logarithm is a number in single precision


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model: prepared inputs (N, D) -> outputs (N, width) of its likelihood.

    Estimators of a regression predict standardised targets: one for each target, or for each target and quantile.
    """

    name: str  # of `MODELS`, or the class of a caller's own estimator
    estimators: tuple[Any, ...]
    layout: Layout
    likelihood: Likelihood
    labels: tuple[int, ...] = ()  # the classes that its training examples had
    noise: tuple[float, ...] = ()  # (K,): the factor of its own standard deviations, or the standard deviation itself

    @property
    def kind(self) -> ModelKind:
        return kind_of(self.name)

    def outputs(self, x: Tensor) -> Tensor:
        """Outputs (N, width) float32 for prepared inputs (N, ...)."""
        inputs = inputs_of(self.kind, self.layout, x)
        if self.likelihood.task == CLASSIFICATION:
            return class_outputs(self.class_probs(inputs))
        if self.fits_quantiles:
            found = [self.kind.mean_std(each, inputs)[0] for each in self.estimators]
            return torch.from_numpy(np.stack(found, 1)).float()
        return regression_outputs(self.likelihood, *self.mean_std(inputs))

    @property
    def fits_quantiles(self) -> bool:
        """Whether there is an estimator for every quantile of the likelihood."""
        return isinstance(self.likelihood, Quantiles) and self.kind.quantiles

    def class_probs(self, inputs: np.ndarray) -> np.ndarray:
        """Class probabilities (N, K); a class that no training example had keeps zero."""
        estimator = self.estimators[0]
        some = estimator.predict_proba(inputs) if hasattr(estimator, "predict_proba") else votes(estimator, inputs)
        found = np.zeros((len(inputs), self.likelihood.width))
        found[:, self.labels] = some
        uniform = self.kind.smoothing
        return (1 - uniform) * found + uniform / found.shape[1]

    def mean_std(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations (N, K) of standardised targets."""
        parts = [self.kind.mean_std(each, inputs) for each in self.estimators]
        stds = [np.ones(len(inputs)) if std is None else std for _, std in parts]
        return np.stack([mean for mean, _ in parts], 1), np.stack(stds, 1) * np.array(self.noise)


def votes(booster: Any, inputs: np.ndarray) -> np.ndarray:
    """Class probabilities (N, K) of a LightGBM booster, which has one number for two classes."""
    found = np.asarray(booster.predict(inputs))
    return np.stack([1 - found, found], 1) if found.ndim == 1 else found


def inputs_of(kind: ModelKind, layout: Layout, x: Tensor) -> np.ndarray:
    """Prepared inputs (N, ...) as a model takes them: columns of a table (N, C), or all side by side (N, D)."""
    flat = x.detach().cpu().flatten(1).numpy()
    return layout.table(flat) if kind.inputs == COLUMNS else flat


def class_outputs(probs: np.ndarray) -> Tensor:
    """Logits (N, K) float32 of class probabilities."""
    return torch.from_numpy(np.log(np.maximum(probs, SMALLEST))).float()


def regression_outputs(likelihood: Likelihood, mean: np.ndarray, std: np.ndarray) -> Tensor:
    """Outputs (N, width) float32 whose distribution has these means and standard deviations (N, K), standardised.

    Noise of one known standard deviation stays as it is; quantiles are those of the Gaussian.
    """
    means, stds = torch.from_numpy(mean), torch.from_numpy(std)
    if isinstance(likelihood, Quantiles):
        places = torch.tensor([NormalDist().inv_cdf(level) for level in likelihood.levels], dtype=torch.float64)
        return (means[..., None] + stds[..., None] * places).flatten(-2).float()
    if isinstance(likelihood, Gaussian):
        return means.float()
    assert isinstance(likelihood, HeteroscedasticGaussian)
    raw = (stds / likelihood.inflation - SMALLEST_STD).clamp_min(1e-6)  # softplus(r) = raw
    return torch.cat([means, raw + torch.log(-torch.expm1(-raw))], -1).float()


def check_likelihood(likelihood: Likelihood) -> None:
    """Refuse a likelihood whose outputs a model that is not a network cannot give."""
    plain = type(likelihood) in (Gaussian, HeteroscedasticGaussian, Quantiles)
    if not plain and not (type(likelihood) is Categorical and likelihood.link == "softmax"):
        raise Misuse(
            f"{type(likelihood).__name__} with a model that is not a network: leave likelihood=, link= and --loss out"
        )


def check_fit(given: Any, data: Data, likelihood: Likelihood) -> None:
    """Refuse a model that cannot be fitted to these data, or that cannot give the outputs of this likelihood."""
    check_model(given, data.task)
    check_likelihood(likelihood)
    if isinstance(data.train.prepared, Streamed):
        raise Misuse(f"{name_of(given)} on examples that are read when needed: write in_memory=True")
    if not len(data.val):
        raise Misuse(f"{data.name} has no validation examples: fitting needs some; give val= a share such as 0.15")


def fit_members(given: Any, data: Data, likelihood: Likelihood, *, members: int, seed: int) -> tuple[Model, ...]:
    """Fitted members of one model on the training examples; several are fitted to bootstrap samples (bagging).

    `given` is a name of `MODELS` or a scikit-learn estimator, which is copied. Validation examples stop boosting early
    and scale the standard deviations of regressions.
    """
    check_fit(given, data, likelihood)
    train, val = data.train, data.val
    layout = Layout.of(data.preparation, train.prepared[:1].numel())
    found = []
    for member in range(members):
        number = stream_seed(seed, "models", member)
        rows = np.random.default_rng(number).integers(len(train), size=len(train)) if members > 1 else None
        found.append(fit_model(given, train if rows is None else train[rows], val, likelihood, layout, number))
    return tuple(found)


def fit_model(given: Any, train: Split, val: Split, likelihood: Likelihood, layout: Layout, seed: int) -> Model:
    """One fitted model."""
    kind, blank = kind_of(given), Model(name_of(given), (), layout, likelihood)
    fitting, checking = inputs_of(kind, layout, train.prepared), inputs_of(kind, layout, val.prepared)
    categorical = layout.categorical if kind.inputs == COLUMNS else np.zeros(fitting.shape[1], dtype=bool)

    def fitted(y: np.ndarray, y_val: np.ndarray, level: float | None = None) -> Any:
        known = np.isfinite(y_val)  # not so for classes that the training examples lack
        weights = [None if split.weight is None else split.weight.double().numpy() for split in (train, val)]
        inner = Examples(fitting, y, weights[0])
        outer = Examples(checking, y_val, weights[1]).at(known)
        return kind.fit(Request(likelihood.task, inner, outer, seed % 2**32, categorical, level))

    if likelihood.task == CLASSIFICATION:
        labels = np.unique(train.y.numpy())
        places = np.full(likelihood.width, np.nan)
        places[labels] = np.arange(len(labels))
        y = places[train.y.numpy()].astype(np.int64)
        return replace(blank, estimators=(fitted(y, places[val.y.numpy()]),), labels=tuple(labels.tolist()))
    targets, val_targets = (standardised(likelihood, split.y) for split in (train, val))  # (N, K)
    pairs = list(zip(targets.T, val_targets.T, strict=True))
    if isinstance(likelihood, Quantiles) and kind.quantiles:
        return replace(blank, estimators=tuple(fitted(*pair, level) for pair in pairs for level in likelihood.levels))
    made = replace(blank, estimators=tuple(fitted(*pair) for pair in pairs), noise=(1.0,) * len(pairs))
    return made if kind.own_std else replace(made, noise=residual_std(made, checking, val_targets, val.weight))


def standardised(likelihood: Any, y: Tensor) -> np.ndarray:
    """Targets (N, K) in units of the likelihood, double precision."""
    shift, scale = (np.array(each) for each in likelihood.units)
    return (y.double().numpy() - shift) / scale


def residual_std(model: Model, inputs: np.ndarray, y: np.ndarray, weight: Tensor | None) -> tuple[float, ...]:
    """The root mean square (K,) of validation residuals, in units of the model's own standard deviations, if any."""
    mean, std = model.mean_std(inputs)
    rows = None if weight is None else weight.double().numpy()
    ratio = np.average(((y - mean) / std) ** 2, axis=0, weights=rows)
    return tuple(np.sqrt(np.maximum(ratio, SMALLEST_STD**2)).tolist())
