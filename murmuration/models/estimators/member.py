"""`Model`: a fitted member that is not a network; a likelihood interprets its outputs like those of a network."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.data import Data, Preparation, Split, TablePreparation
from murmuration.data.streamed import Streamed
from murmuration.likelihoods import CLASSIFICATION, Categorical, Likelihood
from murmuration.likelihoods.regression import SMALLEST_STD, Gaussian, HeteroscedasticGaussian, Quantiles
from murmuration.models.estimators.natural_boosting import Examples
from murmuration.models.estimators.table import COLUMNS, ModelKind, Request, check_model, kind_of, name_of
from murmuration.system.errors import Misuse
from murmuration.system.streams import stream_seed

MIN_PROBABILITY = 1e-30  # of a probability, so that its logarithm is a number in single precision
MOST_CATEGORIES = 254  # of one column that scikit-learn's histograms take as categories
CATEGORICAL, NUMERIC, TEXT = "categorical", "numeric", "text"


@dataclass(frozen=True)
class Layout:
    """The prepared inputs (N, D) that belong to each column of a table: its kind and their number, in order.

    A numeric column is one prepared input, or two if the second flags missing values; a categorical column is one-hot;
    every word of a free text counts as a numeric column.
    Trees split on the order of numbers, so that standardised values serve them as well as raw ones.
    """

    columns: tuple[tuple[str, int], ...]

    @staticmethod
    def of(preparation: Preparation, width: int) -> "Layout":
        """Return the layout of D = `width` inputs of this preparation; all numeric if it is not that of a table."""
        if not isinstance(preparation, TablePreparation):
            return Layout(((NUMERIC, 1),) * width)
        widths = ((column.kind, len(column.prepared_names)) for column in preparation.columns)
        parts = (((NUMERIC, 1),) * width if kind == TEXT else ((kind, width),) for kind, width in widths)
        return Layout(tuple(chain.from_iterable(parts)))

    @cached_property
    def categorical(self) -> np.ndarray:
        """Which columns (C,) are categories; those of very many levels count as numbers."""
        return np.array([kind == CATEGORICAL and width <= MOST_CATEGORIES for kind, width in self.columns])

    def table(self, x: np.ndarray) -> np.ndarray:
        """Convert prepared inputs (N, D) to columns (N, C) float64: numbers, NaN where missing, and category codes."""
        columns = np.empty((len(x), len(self.columns)))
        first = 0
        for i, (kind, width) in enumerate(self.columns):
            part = x[:, first : first + width]
            if kind == CATEGORICAL:
                columns[:, i] = part.argmax(1)
            else:
                columns[:, i] = part[:, 0] if width == 1 else np.where(part[:, 1] > 0.5, np.nan, part[:, 0])
            first += width
        return columns


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model: prepared inputs (N, D) -> outputs (N, width) of its likelihood.

    Estimators of a regression predict standardised targets: one for each target, or for each target and quantile.
    """

    name: str  # of `MODELS`, or the class of a user's estimator
    estimators: tuple[Any, ...]
    layout: Layout
    likelihood: Likelihood
    labels: tuple[int, ...] = ()  # the classes that its training examples had
    noise: tuple[float, ...] = ()  # (K,): the factor of its own standard deviations, or the standard deviation itself

    @property
    def kind(self) -> ModelKind:
        return kind_of(self.name)

    def outputs(self, x: Tensor) -> Tensor:
        """Compute outputs (N, width) float32 for prepared inputs (N, ...)."""
        if not len(x):
            raise Misuse(f"inputs of shape {tuple(x.shape)}: expected at least one row")
        inputs = inputs_of(self.kind, self.layout, x)
        if self.likelihood.task == CLASSIFICATION:
            return torch.from_numpy(np.log(np.maximum(self.class_probs(inputs), MIN_PROBABILITY))).float()
        if isinstance(self.likelihood, Quantiles) and self.kind.quantiles:  # an estimator for each
            quantiles = [self.kind.mean_std(estimator, inputs)[0] for estimator in self.estimators]
            return torch.from_numpy(np.stack(quantiles, 1)).float()
        return regression_outputs(self.likelihood, *self.mean_std(inputs))

    def class_probs(self, inputs: np.ndarray) -> np.ndarray:
        """Predict class probabilities (N, K), zero for a class without training examples."""
        estimator = self.estimators[0]
        if hasattr(estimator, "predict_proba"):
            predicted = estimator.predict_proba(inputs)
        else:  # a LightGBM booster, which returns one number for two classes
            predicted = np.asarray(estimator.predict(inputs))
            predicted = np.stack([1 - predicted, predicted], 1) if predicted.ndim == 1 else predicted
        probs = np.zeros((len(inputs), self.likelihood.width))
        probs[:, self.labels] = predicted
        uniform = self.kind.smoothing
        return (1 - uniform) * probs + uniform / probs.shape[1]

    def mean_std(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predict means and standard deviations (N, K) of standardised targets."""
        parts = [self.kind.mean_std(estimator, inputs) for estimator in self.estimators]
        stds = [np.ones(len(inputs)) if std is None else std for _, std in parts]
        return np.stack([mean for mean, _ in parts], 1), np.stack(stds, 1) * np.array(self.noise)


def inputs_of(kind: ModelKind, layout: Layout, x: Tensor) -> np.ndarray:
    """Convert prepared inputs (N, ...) for a model: columns of a table (N, C), or all side by side (N, D)."""
    flat = x.detach().cpu().flatten(1).numpy()
    return layout.table(flat) if kind.inputs == COLUMNS else flat


def regression_outputs(likelihood: Likelihood, mean: np.ndarray, std: np.ndarray) -> Tensor:
    """Return outputs (N, width) float32 whose distribution has these standardised means and deviations (N, K).

    A Gaussian of fixed noise keeps its noise; quantiles are those of the Gaussian.
    """
    means, stds = torch.from_numpy(mean), torch.from_numpy(std)
    if isinstance(likelihood, Quantiles):
        scores = torch.tensor([NormalDist().inv_cdf(level) for level in likelihood.levels], dtype=torch.float64)
        return (means[..., None] + stds[..., None] * scores).flatten(-2).float()
    if isinstance(likelihood, Gaussian):
        return means.float()
    assert isinstance(likelihood, HeteroscedasticGaussian)
    raw = (stds / likelihood.inflation - SMALLEST_STD).clamp_min(1e-6)  # softplus(r) = raw
    return torch.cat([means, raw + torch.log(-torch.expm1(-raw))], -1).float()


def check_fit(estimator: Any, data: Data, likelihood: Likelihood) -> None:
    """Refuse a model that cannot be fitted to these data, or cannot predict for this likelihood."""
    check_model(estimator, data.task)
    kind, link = type(likelihood), getattr(likelihood, "link", "softmax")
    if kind not in (Gaussian, HeteroscedasticGaussian, Quantiles, Categorical) or link != "softmax":
        raise Misuse(f"{kind.__name__} with a model that is not a network: leave likelihood= and link= out")
    if isinstance(data.train.prepared, Streamed):
        raise Misuse(f"{name_of(estimator)} on examples that are read when needed: write in_memory=True")
    if not len(data.val):
        raise Misuse(f"{data.name} has no validation examples: fitting needs some; give val= a share such as 0.15")


def fit_members(estimator: Any, data: Data, likelihood: Likelihood, *, members: int, seed: int) -> tuple[Model, ...]:
    """Fit members of one model to the training examples, or to bootstrap samples of them if there are several.

    Validation examples stop boosting early and scale the standard deviations of regressions.

    Args:
        estimator: A name of `MODELS`, or a scikit-learn estimator, which is copied.
        data: Data with a validation split, in memory.
        likelihood: Likelihood of the ensemble.
        members: Number of members.
        seed: Seed of the bootstrap samples and of the estimators.

    Returns:
        The fitted members.

    Raises:
        Misuse: If the model does not fit the task, the data or the likelihood.
    """
    check_fit(estimator, data, likelihood)
    layout = Layout.of(data.preparation, data.train.prepared[:1].numel())
    models = []
    for member in range(members):
        number, train = stream_seed(seed, "models", member), data.train
        if members > 1:
            train = train[np.random.default_rng(number).integers(len(train), size=len(train))]
        models.append(fit_model(estimator, train, data.val, likelihood, layout, number))
    return tuple(models)


def fit_model(estimator: Any, train: Split, val: Split, likelihood: Likelihood, layout: Layout, seed: int) -> Model:
    """Fit one model."""
    kind, blank = kind_of(estimator), Model(name_of(estimator), (), layout, likelihood)
    fitting, checking = inputs_of(kind, layout, train.prepared), inputs_of(kind, layout, val.prepared)
    categorical = layout.categorical if kind.inputs == COLUMNS else np.zeros(fitting.shape[1], dtype=bool)
    weight, val_weight = (None if part.weight is None else part.weight.double().numpy() for part in (train, val))

    def fitted(y: np.ndarray, y_val: np.ndarray, level: float | None = None) -> Any:
        rows = np.isfinite(y_val)  # False for classes without training examples
        outer = Examples(checking[rows], y_val[rows], None if val_weight is None else val_weight[rows])
        return kind.fit(Request(likelihood.task, Examples(fitting, y, weight), outer, seed % 2**32, categorical, level))

    if likelihood.task == CLASSIFICATION:
        labels = np.unique(train.y.numpy())
        codes = np.full(likelihood.width, np.nan)
        codes[labels] = np.arange(len(labels))
        y = codes[train.y.numpy()].astype(np.int64)
        return replace(blank, estimators=(fitted(y, codes[val.y.numpy()]),), labels=tuple(labels.tolist()))
    shift, scale = (np.array(unit) for unit in likelihood.units)  # type: ignore[attr-defined]
    targets, val_targets = ((part.y.double().numpy() - shift) / scale for part in (train, val))  # (N, K)
    pairs = list(zip(targets.T, val_targets.T, strict=True))
    if isinstance(likelihood, Quantiles) and kind.quantiles:
        return replace(blank, estimators=tuple(fitted(*pair, level) for pair in pairs for level in likelihood.levels))
    model = replace(blank, estimators=tuple(fitted(*pair) for pair in pairs), noise=(1.0,) * len(pairs))
    if kind.own_std:
        return model
    mean, std = model.mean_std(checking)  # (K,) noise: residuals over the model's standard deviations, if it has some
    ratio = np.average(((val_targets - mean) / std) ** 2, axis=0, weights=val_weight)
    return replace(model, noise=tuple(np.sqrt(np.maximum(ratio, SMALLEST_STD**2)).tolist()))
