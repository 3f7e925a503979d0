"""Models that are not networks, by name: how each is fitted, and the distribution that it predicts."""

import importlib.util
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from murmuration.likelihoods import CLASSIFICATION, REGRESSION
from murmuration.models.estimators.natural_boosting import Examples, NaturalBoosting
from murmuration.system.errors import Misuse, unknown

ROUNDS, PATIENCE = 500, 20  # of boosting: at most, and without a better validation loss
SMALLEST_STD_OF_TREES = 0.05  # of the trees of a forest, in standard deviations of the target
BOTH = (CLASSIFICATION, REGRESSION)
COLUMNS, PREPARED = "columns", "prepared"  # inputs: columns with categories and missing values, or those of networks


@dataclass(frozen=True, eq=False)
class Request:
    """What a model is fitted to: one target, or one of its quantiles."""

    task: str
    train: Examples
    val: Examples
    seed: int
    categorical: np.ndarray  # (D,) which inputs are codes of categories
    level: float | None = None  # of a quantile; None: classes, or the mean

    def fit(self, estimator: Any, **more: Any) -> Any:
        """Fit an estimator to the training examples; `more` are further arguments of its `fit`."""
        return estimator.fit(self.train.x, self.train.y, sample_weight=self.train.weight, **more)


def estimator_class(package: str, prefix: str, task: str) -> Any:
    """Import the class of a package for a task, such as `XGBClassifier` or `XGBRegressor`."""
    return getattr(import_module(package), prefix + ("Classifier" if task == CLASSIFICATION else "Regressor"))


MeanStd = tuple[np.ndarray, np.ndarray | None]  # (N,) each; None: the model predicts no standard deviation


def predicted_mean(estimator: Any, x: np.ndarray) -> MeanStd:
    """Predict (N,), with the standard deviation of an estimator that has one (`return_std`)."""
    if "return_std" in inspect.signature(estimator.predict).parameters:
        mean, std = estimator.predict(x, return_std=True)
        return mean, std
    return np.asarray(estimator.predict(x), dtype=float).reshape(len(x)), None


@dataclass(frozen=True)
class ModelKind:
    """One row of `MODELS`."""

    about: str
    fit: Callable[[Request], Any]
    tasks: tuple[str, ...] = BOTH
    inputs: str = COLUMNS
    package: str = "sklearn"  # by whose format it is stored; skops for scikit-learn
    mean_std: Callable[[Any, np.ndarray], MeanStd] = predicted_mean
    own_std: bool = False  # whether its standard deviation is taken as it is, instead of scaled to validation residuals
    quantiles: bool = False  # whether it can be fitted to a quantile
    smoothing: float = 0.0  # the share of uniform class probabilities: trees with one vote each give zeros


def fit_ridge(request: Request) -> Any:
    from sklearn.linear_model import RidgeCV

    return request.fit(RidgeCV(alphas=np.logspace(-3, 4, 15)))


def fit_logistic(request: Request) -> Any:
    from sklearn.linear_model import LogisticRegression

    return request.fit(LogisticRegression(max_iter=1000))


def fit_forest(request: Request) -> Any:
    return request.fit(estimator_class("sklearn.ensemble", "RandomForest", request.task)(random_state=request.seed))


def std_of_trees(estimator: Any, x: np.ndarray) -> MeanStd:
    """Return the mean (N,) of the trees of a forest, and their standard deviation (N,) with a floor."""
    trees = np.stack([tree.predict(x) for tree in estimator.estimators_])  # (T, N)
    return trees.mean(0), np.sqrt(trees.var(0) + SMALLEST_STD_OF_TREES**2)


def fit_histograms(request: Request) -> Any:
    settings: dict[str, Any] = {"max_iter": ROUNDS, "early_stopping": True, "n_iter_no_change": PATIENCE}
    if request.categorical.any():
        settings["categorical_features"] = request.categorical
    if request.level is not None:
        settings |= {"loss": "quantile", "quantile": request.level}
    kind, val = estimator_class("sklearn.ensemble", "HistGradientBoosting", request.task), request.val
    estimator = kind(random_state=request.seed, **settings)
    return request.fit(estimator, X_val=val.x, y_val=val.y, sample_weight_val=val.weight)


def fit_natural(request: Request) -> NaturalBoosting:
    return NaturalBoosting.fit(request.train, request.val, seed=request.seed)


def fit_xgboost(request: Request) -> Any:
    settings: dict[str, Any] = {"n_estimators": ROUNDS, "learning_rate": 0.1, "early_stopping_rounds": PATIENCE}
    settings |= {"enable_categorical": True, "feature_types": ["c" if c else "q" for c in request.categorical]}
    if request.level is not None:
        settings |= {"objective": "reg:quantileerror", "quantile_alpha": request.level}
    estimator = estimator_class("xgboost", "XGB", request.task)(random_state=request.seed, n_jobs=1, **settings)
    return request.fit(estimator, eval_set=[(request.val.x, request.val.y)], verbose=False)


def fit_lightgbm(request: Request) -> Any:
    from lightgbm import early_stopping

    settings: dict[str, Any] = {"n_estimators": ROUNDS, "random_state": request.seed, "n_jobs": 1, "verbose": -1}
    if request.level is not None:
        settings |= {"objective": "quantile", "alpha": request.level}
    estimator = estimator_class("lightgbm", "LGBM", request.task)(deterministic=True, **settings)
    more: dict[str, Any] = {"callbacks": [early_stopping(PATIENCE, verbose=False)]}
    more["categorical_feature"] = np.flatnonzero(request.categorical).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return request.fit(estimator, eval_set=[(request.val.x, request.val.y)], **more).booster_


def fit_catboost(request: Request) -> Any:
    settings: dict[str, Any] = {"iterations": ROUNDS, "random_seed": request.seed % 2**31, "thread_count": 1}
    settings |= {"early_stopping_rounds": PATIENCE, "verbose": False, "allow_writing_files": False}
    if request.task != CLASSIFICATION:
        quantile = f"Quantile:alpha={request.level}"
        settings["loss_function"] = "RMSEWithUncertainty" if request.level is None else quantile
    estimator = estimator_class("catboost", "CatBoost", request.task)(**settings)
    return request.fit(estimator, eval_set=(request.val.x, request.val.y))


def catboost_mean_std(estimator: Any, x: np.ndarray) -> MeanStd:
    """Predict the mean and standard deviation (N,) of a CatBoost Gaussian, or a quantile without one."""
    raw = np.asarray(estimator.predict(x, prediction_type="RawFormulaVal"))
    if raw.ndim == 1:
        return raw, None
    mean, var = estimator.predict(x, prediction_type="RMSEWithUncertainty").T
    return mean, np.sqrt(var)


RIDGE = "linear regression with the L2 penalty of the lowest leave-one-out error"
FOREST = "100 randomised trees (Breiman 2001); the standard deviation of trees is the uncertainty of a regression"
HISTOGRAMS = "gradient boosting on histograms, categories and missing values as they are, early stopping on validation"
NATURAL = "boosted mean and standard deviation of a Gaussian (NGBoost, Duan et al. 2020)"
CATBOOST = "CatBoost with a predicted variance, where it is installed"
MODELS: dict[str, ModelKind] = {
    "ridge": ModelKind(RIDGE, fit_ridge, (REGRESSION,), PREPARED),
    "logistic": ModelKind("logistic regression with an L2 penalty", fit_logistic, (CLASSIFICATION,), PREPARED),
    "random-forest": ModelKind(FOREST, fit_forest, inputs=PREPARED, mean_std=std_of_trees, smoothing=0.01),
    "hist-gradient-boosting": ModelKind(HISTOGRAMS, fit_histograms, quantiles=True),
    "natural-boosting": ModelKind(
        NATURAL, fit_natural, (REGRESSION,), PREPARED, mean_std=NaturalBoosting.mean_std, own_std=True
    ),
    "xgboost": ModelKind("XGBoost, where it is installed", fit_xgboost, package="xgboost", quantiles=True),
    "lightgbm": ModelKind("LightGBM, where it is installed", fit_lightgbm, package="lightgbm", quantiles=True),
    "catboost": ModelKind(
        CATBOOST, fit_catboost, BOTH, PREPARED, "catboost", catboost_mean_std, own_std=True, quantiles=True
    ),
}
BASELINES = ("ridge", "logistic", "hist-gradient-boosting")  # of tables, those for the task


def is_model(model: Any) -> bool:
    """Return whether the first argument of `fit` is not a network: a name of `MODELS`, or a scikit-learn estimator.

    An estimator has `fit`, `predict` and `get_params`.
    """
    if isinstance(model, str):
        return model in MODELS
    methods = (getattr(model, name, None) for name in ("fit", "predict", "get_params"))
    return not isinstance(model, type) and all(map(callable, methods))


OF_NETWORKS = (  # settings of `fit` that mean nothing to other models
    *("epochs", "steps", "batch_size", "lr", "optimizer", "schedule", "warmup", "momentum", "weight_decay", "decay"),
    *("l1", "clip_norm", "lr_multipliers", "patience", "stop_by", "trajectory", "precision"),
)


def refuse_unused(net: Any, settings: Mapping[str, Any]) -> None:
    """Refuse settings of training that would do nothing.

    >>> refuse_unused("mlp", {"epochs": 3, "steps": 100})
    Traceback (most recent call last):
    murmuration.system.errors.Misuse: epochs=3 and steps=100: a run has one length; leave one of them out
    """
    epochs, steps = settings.get("epochs"), settings.get("steps")
    if epochs is not None and steps is not None:
        raise Misuse(f"epochs={epochs} and steps={steps}: a run has one length; leave one of them out")
    for name in OF_NETWORKS if is_model(net) else ():
        if settings.get(name) is not None:
            setting = f"{name}={settings[name]}"
            raise Misuse(f"{setting} with {name_of(net)}, which is not a network: leave {name} out")


def kind_of(model: Any) -> ModelKind:
    """Return the row of `MODELS` of a name, or one for a user's estimator, which takes the inputs of networks."""
    if isinstance(model, str):
        return MODELS[model] if model in MODELS else ModelKind(model, _refit_unknown, inputs=PREPARED)
    from sklearn.base import clone, is_classifier

    def fit(request: Request) -> Any:
        estimator, train = clone(model), request.train
        if "random_state" in estimator.get_params():
            estimator.set_params(random_state=request.seed)
        return estimator.fit(train.x, train.y, **({} if train.weight is None else {"sample_weight": train.weight}))

    return ModelKind(type(model).__name__, fit, (CLASSIFICATION if is_classifier(model) else REGRESSION,), PREPARED)


def _refit_unknown(request: Request) -> Any:
    raise Misuse("the run stores your estimator only as fitted: to fit it again, pass the estimator object to fit")


def name_of(model: Any) -> str:
    """Return the name of a model in a run directory and in tables."""
    return model if isinstance(model, str) else type(model).__name__


def check_model(model: Any, task: str) -> None:
    """Refuse a model that does not fit the task, or whose package is not installed."""
    if isinstance(model, str) and model not in MODELS:
        raise unknown("model", model, MODELS)
    kind, name = kind_of(model), name_of(model)
    if task not in kind.tasks:
        fitting = [other for other, row in MODELS.items() if task in row.tasks]
        write = f"write {' or '.join(fitting[:2])}" if fitting else "train a network"
        raise Misuse(f"{name} is for {' and '.join(kind.tasks)}, and the data is a {task}: {write}")
    if task == CLASSIFICATION and not isinstance(model, str) and not hasattr(model, "predict_proba"):
        raise Misuse(f"{name} has no predict_proba: wrap it in CalibratedClassifierCV")
    if importlib.util.find_spec(kind.package) is None:
        raise Misuse(f"model {name} needs the package {kind.package}: pip install {kind.package}")


def models_for(names: tuple[str, ...], task: str) -> tuple[str, ...]:
    """Select the models that are for the task."""
    for name in names:
        if name not in MODELS:
            raise unknown("model", name, MODELS)
    return tuple(name for name in names if task in MODELS[name].tasks)
