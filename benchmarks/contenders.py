"""Contenders of benchmarks/tables.py: our recipes, and what a practitioner would take instead, with its usual defaults.

A contender takes the three splits of a table as pandas tables and returns a function from a split to a `Predictive`.
Training rows are trained on; validation rows stop early where the method does so, and give a point regression the
standard deviation of its residuals. Nothing is tuned. Categories that training rows do not have, and missing ones, are
missing values; each method gets the encoding that its documentation asks for. One thread each.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import torch

import murmuration as mm

SMALLEST = 1e-6  # of a class probability
Predictor = Callable[[mm.Split], mm.Predictive]
Fit = Callable[[mm.Data, int], Predictor]


@dataclass(frozen=True)
class Contender:
    """A method with a name: `fit(data, seed)` returns its predictor."""

    fit: Fit
    settings: str
    packages: tuple[str, ...] = ("scikit-learn",)
    splits: int = 5
    seconds: float = 1.0  # of CPU for 1,000 training rows, roughly, before any was measured

    @property
    def missing(self) -> str:
        """The first of its packages that is not installed, or nothing."""
        names = (name for name in self.packages if name not in ("scikit-learn", "torch-murmuration"))
        return next((name for name in names if find_spec(name) is None), "")

    def versions(self) -> dict[str, str]:
        return {name: package_version(name) for name in self.packages}


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return mm.__version__ if name == "torch-murmuration" else ""


# ---- predictions


def clipped(probs: np.ndarray) -> np.ndarray:
    """Class probabilities (N, K) of at least 1e-6, up to rounding, that sum to one."""
    kept = np.clip(np.nan_to_num(probs.astype(np.float64)), SMALLEST, None)
    return kept / kept.sum(-1, keepdims=True)


def from_classes(predict_proba: Callable[[mm.Split], np.ndarray]) -> Predictor:
    return lambda split: mm.Predictive.from_probs(clipped(predict_proba(split))[None])


def from_points(predict: Callable[[mm.Split], np.ndarray], val: mm.Split) -> Predictor:
    """Gaussians around a point prediction with the root mean square of the residuals of validation rows."""
    std = float(np.sqrt(np.mean((predict(val) - values(val)) ** 2)))
    return lambda split: mm.Predictive.from_moments(np.reshape(predict(split), (1, -1, 1)), max(std, 1e-12))


def values(split: mm.Split) -> np.ndarray:
    """Targets (N,): class indices or numbers."""
    return split.y.numpy().reshape(len(split))


# ---- encodings, all fitted on training rows


def text_columns(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]


def as_categories(train: pd.DataFrame) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Columns of text with the category type of pandas, by the levels of training rows."""
    kinds = {name: pd.CategoricalDtype(sorted(train[name].dropna().unique())) for name in text_columns(train)}
    return lambda frame: frame.astype({name: float for name in frame if name not in kinds} | kinds)


def as_codes(train: pd.DataFrame) -> Callable[[pd.DataFrame], np.ndarray]:
    """Numbers (N, D): whole numbers for categories, NaN for missing values."""
    typed, texts = as_categories(train), text_columns(train)

    def codes(frame: pd.DataFrame) -> np.ndarray:
        known = typed(frame)
        return known.assign(**{name: known[name].cat.codes.replace(-1, np.nan) for name in texts}).to_numpy(float)

    return codes


def as_numbers(train: pd.DataFrame) -> Any:
    """The usual pipeline for linear models: medians, standard scores, indicators of levels."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    texts = text_columns(train)
    numbers = [name for name in train if name not in texts]
    scaled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    levels = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing", missing_values=np.nan),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    return make_column_transformer((scaled, numbers), (levels, texts))


def estimator(
    classifier: Callable[[int], Any], regressor: Callable[[int], Any], encode: Callable[[pd.DataFrame], Any]
) -> Fit:
    """A pair of scikit-learn estimators behind an encoding."""

    def fit(data: mm.Data, seed: int) -> Predictor:
        prepare = encode(data.train.x)
        if hasattr(prepare, "fit"):
            prepare = prepare.fit(data.train.x).transform
        classes = data.task == "classification"
        model = (classifier if classes else regressor)(seed).fit(prepare(data.train.x), values(data.train))
        if classes:
            return from_classes(lambda split: model.predict_proba(prepare(split.x)))
        return from_points(lambda split: model.predict(prepare(split.x)), data.val)

    return fit


# ---- scikit-learn


def prior(data: mm.Data, seed: int) -> Predictor:
    """No inputs: class frequencies with one count added, or the mean and standard deviation of training targets."""
    y = values(data.train)
    if data.task == "regression":
        return lambda split: mm.Predictive.from_moments(np.full((1, len(split), 1), y.mean()), float(y.std()))
    counts = np.bincount(y, minlength=len(data.classes)) + 1.0
    return lambda split: mm.Predictive.from_probs(np.tile(counts / counts.sum(), (1, len(split), 1)))


def linear(data: mm.Data, seed: int) -> Predictor:
    from sklearn.linear_model import LogisticRegression, RidgeCV

    return estimator(lambda seed: LogisticRegression(max_iter=1000), lambda seed: RidgeCV(), as_numbers)(data, seed)


def random_forest(data: mm.Data, seed: int) -> Predictor:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    pair = (
        lambda seed: RandomForestClassifier(random_state=seed),
        lambda seed: RandomForestRegressor(random_state=seed),
    )
    return estimator(*pair, as_codes)(data, seed)


def hist_gradient_boosting(data: mm.Data, seed: int) -> Predictor:
    from sklearn.ensemble import (
        HistGradientBoostingClassifier as Classifier,
        HistGradientBoostingRegressor as Regressor,
    )

    options = {"categorical_features": "from_dtype"}
    pair = (lambda seed: Classifier(random_state=seed, **options), lambda seed: Regressor(random_state=seed, **options))
    return estimator(*pair, as_categories)(data, seed)


# ---- boosted trees of other packages


def xgboost(data: mm.Data, seed: int) -> Predictor:
    from xgboost import XGBClassifier, XGBRegressor

    options: dict[str, Any] = {"enable_categorical": True, "n_jobs": 1}
    pair = (lambda seed: XGBClassifier(seed=seed, **options), lambda seed: XGBRegressor(seed=seed, **options))
    return estimator(*pair, as_categories)(data, seed)


def lightgbm(data: mm.Data, seed: int) -> Predictor:
    from lightgbm import LGBMClassifier, LGBMRegressor

    options: dict[str, Any] = {"n_jobs": 1, "verbose": -1}
    pair = (lambda seed: LGBMClassifier(seed=seed, **options), lambda seed: LGBMRegressor(seed=seed, **options))
    plain = [f"x{place}" for place in range(data.train.x.shape[1])]  # it refuses some characters in names

    def encode(train: pd.DataFrame) -> Callable[[pd.DataFrame], pd.DataFrame]:
        typed = as_categories(train)
        return lambda frame: typed(frame).set_axis(plain, axis=1)

    return estimator(*pair, encode)(data, seed)


def catboost(data: mm.Data, seed: int, loss: str = "RMSEWithUncertainty") -> Predictor:
    """Log loss, or the Gaussian log-likelihood: a mean and a variance of every row. `RMSE` predicts points."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    texts = text_columns(data.train.x)

    def prepare(split: mm.Split) -> pd.DataFrame:
        return split.x.assign(**{name: split.x[name].fillna("missing").astype(str) for name in texts})

    options: dict[str, Any] = {"random_seed": seed, "thread_count": 1, "verbose": 0, "allow_writing_files": False}
    options["cat_features"] = texts
    x, y = prepare(data.train), values(data.train)
    if data.task == "classification":
        model = CatBoostClassifier(**options).fit(x, y)
        return from_classes(lambda split: model.predict_proba(prepare(split)))
    model = CatBoostRegressor(loss_function=loss, **options).fit(x, y)
    if loss == "RMSE":
        return from_points(lambda split: model.predict(prepare(split)), data.val)

    def predict(split: mm.Split) -> mm.Predictive:
        mean, var = model.predict(prepare(split)).T
        return mm.Predictive.from_moments(mean.reshape(1, -1, 1), np.sqrt(var).reshape(1, -1, 1))

    return predict


def ngboost(data: mm.Data, seed: int) -> Predictor:
    """Natural gradient boosting of a Gaussian, or of class probabilities (Duan et al. 2020)."""
    from ngboost import NGBClassifier, NGBRegressor
    from ngboost.distns import k_categorical

    prepare = as_numbers(data.train.x).fit(data.train.x).transform
    x, y, random = prepare(data.train.x), values(data.train), np.random.RandomState(seed)  # as it expects
    if data.task == "classification":
        model = NGBClassifier(k_categorical(len(data.classes)), verbose=False, random_state=random).fit(x, y)
        return from_classes(lambda split: model.predict_proba(prepare(split.x)))
    model = NGBRegressor(verbose=False, random_state=random).fit(x, y)

    def predict(split: mm.Split) -> mm.Predictive:
        found = model.pred_dist(prepare(split.x)).params
        return mm.Predictive.from_moments(found["loc"].reshape(1, -1, 1), found["scale"].reshape(1, -1, 1))

    return predict


# ---- ours


def recipe(name: str | None = None) -> Fit:
    """`mm.fit` with the recipe of a name, or its default, and no other setting; before calibration."""
    chosen = {} if name is None else {"recipe": name}

    def fit(data: mm.Data, seed: int) -> Predictor:
        ensemble = mm.fit(None, data, seed=seed, progress=False, **chosen)
        return lambda split: ensemble.predict(split.x, calibrated=False)

    return fit


def tabm(data: mm.Data, seed: int) -> Predictor:
    from official_tabm import fit_tabm

    return fit_tabm(data, seed)


OTHERS = {
    "prior": Contender(prior, "class frequencies, or mean and standard deviation, of training rows", seconds=0.01),
    "linear": Contender(linear, "RidgeCV(), LogisticRegression(max_iter=1000) on standard scores", seconds=0.2),
    "random-forest": Contender(random_forest, "RandomForest*()", seconds=1.5),
    "hist-gradient-boosting": Contender(hist_gradient_boosting, "HistGradientBoosting*()", seconds=1),
    "xgboost": Contender(xgboost, "XGB*()", ("xgboost",), seconds=1),
    "lightgbm": Contender(lightgbm, "LGBM*()", ("lightgbm",), seconds=1),
    "catboost": Contender(catboost, "CatBoost*(), regression by RMSEWithUncertainty", ("catboost",), seconds=5),
    "ngboost": Contender(ngboost, "NGB*()", ("ngboost",), splits=3, seconds=12),
    "tabm": Contender(
        tabm,
        "TabM.make with piecewise-linear embeddings, trained as in its example: AdamW 2e-3, batch 256, patience 16",
        ("tabm", "rtdl_num_embeddings"),
        splits=3,
        seconds=110,
    ),
}


def contender(name: str) -> Contender:
    """A contender by name: one of `OTHERS`, `default` (`mm.fit` without settings) or `ours:RECIPE`."""
    if name in OTHERS:
        return OTHERS[name]
    ours = ("torch-murmuration",)
    if name == "default":
        return Contender(recipe(), "mm.fit(None, data, seed=seed)", ours, seconds=10)
    kind, _, preset = name.partition(":")
    if kind != "ours" or not preset:
        raise SystemExit(f"contender '{name}': expected default, ours:RECIPE or one of {', '.join(OTHERS)}")
    return Contender(recipe(preset), f"mm.fit(None, data, recipe={preset!r}, seed=seed)", ours, seconds=10)


def installed(names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """The contenders whose packages are there, and of the others the package that is missing."""
    missing = {name: found for name in names if (found := contender(name).missing)}
    return [name for name in names if name not in missing], missing


def seed_all(seed: int) -> None:
    """The global generators of numpy and torch, which TabM and NGBoost draw from."""
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
