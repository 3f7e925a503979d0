"""scikit-learn estimators: `EnsembleClassifier` and `EnsembleRegressor`, which train by `murmuration.fit`.

An array (N, D) is a table with the columns x0, x1, ...; NaN is a missing value in both. Settings that are None are not
passed to `murmuration.fit`, whose defaults then hold. A share of the rows validates: it stops training and calibrates
predictions; all other rows train.
"""

import inspect
import io
import zipfile
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite, check_array, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from murmuration.core.recipe import Recipe, make_recipe
from murmuration.data import DataOptions
from murmuration.data.dataset import open_training_data
from murmuration.data.numpy_arrays import as_array, dense, unmasked
from murmuration.data.raw import is_table
from murmuration.data.splits import FEWEST_ROWS
from murmuration.data.targets import as_text, is_number, refuse_mixed_labels, refuse_texts_among_numbers
from murmuration.models.nets.source import Net
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc import PostHocConfig
from murmuration.prediction.posthoc.conformal import Rule
from murmuration.prediction.posthoc.fit import FEWEST, fit_posthoc
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse, notes_once, require_integer, require_number, unknown, warn
from murmuration.system.settings import settings_of
from murmuration.training.fitting import fit, load
from murmuration.training.folds import out_of_fold
from murmuration.training.plan import Plan

PATIENCE = 10  # epochs, for early_stopping=True: the default of `n_iter_no_change` in scikit-learn
ROWS_AT_ONCE = 8  # smallest batch of a prediction; from four rows on products are bit-identical to larger ones
# settings that `fit` has by the same names
PASSED_ON = ("recipe", "epochs", "steps", "batch_size", "lr", "weight_decay", "patience", "folds", "device")
READING = {"source", *DataOptions.__dataclass_fields__}
PARAMETER_DOCS = {setting.name: setting.doc for setting in settings_of(Plan)} | {
    "net": "Network: a name, module or factory; chosen by the data by default. Or the name of a scikit-learn model.",
    "recipe": "Method: a name such as deep-ensemble, or a `murmuration.Recipe`.",
    "members": "Number of ensemble members; by default that of the recipe, or 5.",
    "n_estimators": "Another name for `members`.",
    "early_stopping": "True: `patience` of 10 epochs. False: no early stopping.",
    "validation_fraction": "Share of the rows that validate: `val` of `murmuration.open_data`.",
    "folds": "Cross-fitting with this number of folds, so that every row validates once.",
    "calibrate": "Name of a calibrator; False for none.",
    "class_weight": '"balanced", or a dict of weights by label; multiplies sample weights.',
    "random_state": "Seed; a numpy generator, or None for numpy's global one, draws it.",
    "verbose": "Whether to show a progress bar.",
    "settings": "Further keywords of `murmuration.fit`.",
}
Estimator = TypeVar("Estimator", bound=type)


def parameters_documented(estimator: Estimator) -> Estimator:
    """Complete the "Args" section of an estimator's docstring."""
    rows = "".join(f"        {name}: {PARAMETER_DOCS[name]}\n" for name in inspect.signature(estimator).parameters)
    estimator.__doc__ = (estimator.__doc__ or "").replace("    Args:\n", f"    Args:\n{rows}")
    return estimator


class Interval(NamedTuple):
    """Prediction intervals: the lower and the upper ends, each (N,), or (N, K) for K targets."""

    low: np.ndarray
    high: np.ndarray


class Uncertainty(NamedTuple):
    """The uncertainty of every prediction, each (N,), or (N, K) for K targets.

    Entropies in nats for classes, which add up to the total; standard deviations in the target's units for a
    regression, whose squares do.
    """

    aleatoric: np.ndarray  # noise of the target, which more data would not remove
    epistemic: np.ndarray  # disagreement of members, larger on rows unlike those of the training table
    total: np.ndarray


@dataclass(eq=False, repr=False)
class EnsembleEstimator(BaseEstimator):
    """The base of classifier and regressor: settings, tables, conformal rules and storage.

    Its fields are the parameters of the estimator; `fit` adds attributes that end in an underscore, as in scikit-learn,
    and `_validation` (uncalibrated predictions and targets of the validation rows), `_columns` (names of the inputs)
    and `_has_texts` (whether some of them are not numbers).
    """

    net: Net | None = None
    _: KW_ONLY
    recipe: str | Recipe | None = None
    members: int | None = None
    n_estimators: int | None = None
    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    weight_decay: float | None = None
    early_stopping: bool | None = None
    patience: int | None = None
    validation_fraction: float | None = None
    folds: int | None = None
    calibrate: str | bool | None = None
    device: str | None = None
    random_state: Any = None
    verbose: int | bool = False
    settings: dict[str, Any] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def fit_settings(self) -> dict[str, Any]:
        """Return the settings as keywords of `murmuration.fit`, without `net` and data."""
        keywords = {name: getattr(self, name) for name in PASSED_ON if getattr(self, name) is not None}
        for name in ("members", "n_estimators"):
            if getattr(self, name) is not None:
                require_integer(name, getattr(self, name), 1)
        if not isinstance(self.verbose, int | np.bool_):
            raise Misuse(f"verbose={self.verbose!r:.60}: expected True or False")
        if not isinstance(self.calibrate, str | bool | None):
            raise Misuse(f"calibrate={self.calibrate!r:.60}: expected the name of a calibrator, True, False or None")
        if None not in (self.members, self.n_estimators) and self.members != self.n_estimators:
            raise Misuse(f"members={self.members} and n_estimators={self.n_estimators} are the same: give one of them")
        members = self.n_estimators if self.members is None else self.members
        own = make_recipe(self.recipe) if self.recipe is not None else Recipe()
        if own.fixed_members and members not in (None, own.members):  # a grid of recipes has one number for all
            warn(f"{own.name} is trained with its own number of members, {own.members} instead of {members}")
            members = None
        keywords |= {} if members is None else {"members": members}
        if self.early_stopping is not None and not isinstance(self.early_stopping, bool | np.bool_):
            raise Misuse(f"early_stopping={self.early_stopping!r}: expected True, False or None")
        if self.early_stopping is False and self.patience is not None:
            raise Misuse(f"early_stopping=False and patience={self.patience}: leave one of them out")
        if self.early_stopping is not None:
            keywords.setdefault("patience", PATIENCE if self.early_stopping else None)
        if self.validation_fraction is not None:
            require_number("validation_fraction", self.validation_fraction, 0.15)
            if not 0 < self.validation_fraction < 1:
                raise Misuse(f"validation_fraction={self.validation_fraction}: need a number between 0 and 1")
            keywords["val"] = self.validation_fraction
            if self.folds is not None:
                both = f"folds={self.folds} and validation_fraction={self.validation_fraction}"
                raise Misuse(f"{both}: every row validates in one fold; leave one of them out")
        if self.calibrate is not None and self.calibrate is not True:
            keywords["posthoc"] = PostHocConfig(calibrate=self.calibrate or "none")
        if not isinstance(self.settings, Mapping | None):
            raise Misuse(f"settings={self.settings!r}: expected a dict such as {{'prepare': 'robust'}}, or None")
        twice = {*(self.settings or {})} & {*keywords, *self.get_params(deep=False), "seed", "target", "task", "weight"}
        if twice:
            setting = f"settings={{'{min(twice)}': ...}}"
            raise Misuse(f"{setting}: expected keywords that the estimator does not have as parameters")
        return {**keywords, **(self.settings or {}), "seed": seed_of(self.random_state)}

    def _fit(self, task: str, table: Any, targets: dict[str, np.ndarray], weight: np.ndarray | None) -> None:
        """Train on a table and its targets, each (N,), by name; rows of weight 0 are left out."""
        settings, weigh = self.fit_settings(), None
        named = table.assign(**targets)
        if weight is not None:
            weigh = free_names(["weight"], named)[0]
            named = named.assign(**{weigh: weight})[weight > 0]
        reading = {name: settings.pop(name) for name in READING & {*settings} - {"seed"}}
        data = open_training_data(named, target=tuple(targets), task=task, weight=weigh, **reading)
        self.ensemble_ = fit(self.net, data, progress=bool(self.verbose), **settings)
        self.n_iter_ = len(self.ensemble_.history)
        if self.ensemble_.manifest.folds:
            predicted, examples = out_of_fold(self.ensemble_, data)
        else:
            predicted, examples = self.ensemble_.predict(data.val, calibrated=False), data.val
        self._validation = replace(predicted, keys={}), examples.y

    def _training_table(self, X: Any, y: Any) -> Any:  # noqa: N803
        """Return the inputs of training as a pandas table."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if isinstance(y, Tensor):
            dense(y)
        table = self._table(X, reset=True)
        check_consistent_length(table, y)
        return table

    def _table(self, X: Any, *, reset: bool = False) -> Any:  # noqa: N803
        """Return inputs as a pandas table with the columns of training; refuse other columns as scikit-learn does."""
        import pandas as pd

        fewest = FEWEST_ROWS if reset else 1
        if is_table(X):
            validate_data(self, X, skip_check_array=True, reset=reset)
            if len(X) < fewest:
                got = f"Found array with {len(X)} sample(s) (shape={X.shape})"
                raise ValueError(f"{got} while a minimum of {fewest} is required.")
            table = X
        else:
            dtype = None if not reset and self._has_texts else np.float64  # texts: rows are arrays of objects
            checks = {"dtype": dtype, "ensure_all_finite": "allow-nan", "ensure_min_samples": fewest}
            values = validate_data(self, numeric(X), reset=reset, **checks)
            table = pd.DataFrame(values, columns=[f"x{i}" for i in range(values.shape[1])])
        if reset:
            self._columns = [str(name) for name in getattr(self, "feature_names_in_", table.columns)]
            self._has_texts: bool = is_table(X) and any(dtype.kind not in "iufb" for dtype in X.dtypes)
        return table.set_axis(self._columns, axis=1)

    @notes_once
    def predictive(self, X: Any) -> Predictive:  # noqa: N803
        """Return the predictive distribution of every row.

        Fewer than 8 rows are repeated: products of few rows round differently, and the prediction for a row must not
        depend on the number of rows.

        Args:
            X: Array (N, D) or pandas table with the columns of training.

        Returns:
            A `murmuration.Predictive` of N inputs.
        """
        check_is_fitted(self, "ensemble_")
        table = self._table(X)
        if len(table) >= ROWS_AT_ONCE:
            return self.ensemble_.predict(table)
        return self.ensemble_.predict(table.iloc[np.arange(ROWS_AT_ONCE) % len(table)]).at(slice(len(table)))

    def _rule(self, coverage: float, method: str | None) -> Rule:
        """Return the conformal rule of a nominal coverage, fitted on the validation rows."""
        posthoc, rows = self.ensemble_.posthoc, len(self._validation[1])
        if rows < FEWEST:
            count = sum(self.ensemble_.manifest.data["examples"].values())
            more = "folds=5, by which all rows validate, or " if self.folds is None and count >= FEWEST else ""
            raise Misuse(f"{rows} validation rows: intervals and sets need {FEWEST}; give {more}more rows")
        if posthoc is None or coverage != posthoc.conformal[0].coverage:
            plan, data = self.ensemble_.manifest.plan, self.ensemble_.manifest.data
            config = PostHocConfig(**{**(plan.get("posthoc") or {"calibrate": "none"}), "coverage": coverage})
            posthoc = fit_posthoc(*self._validation, config, data.get("class_counts"), data.get("class_weights"))
        rules = {rule.method: rule for rule in posthoc.conformal}
        if method is not None and method not in rules:
            raise unknown("conformal method", method, rules)
        return rules[method or posthoc.conformal[0].method]

    def set_output(self, *, transform: str | None = None) -> Self:
        """Return intervals, sets and uncertainties as arrays ("default") or as pandas tables ("pandas").

        `predict` and `predict_proba` always return arrays, which scorers and meta-estimators of scikit-learn expect.
        """
        if transform not in (None, "default", "pandas"):
            raise unknown("output", str(transform), ("default", "pandas"))
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}
        return self

    def _output(self, X: Any, result: Any, columns: dict[str, np.ndarray]) -> Any:  # noqa: N803
        """Return the result, or its columns (N,) as a table with the index of X, as `set_output` says."""
        own = getattr(self, "_sklearn_output_config", {})
        if own.get("transform", get_config()["transform_output"]) != "pandas":
            return result
        import pandas as pd

        return pd.DataFrame(columns, index=X.index if is_table(X) else None)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, with the ensemble as the bytes of a zipped run directory."""
        state = dict(super().__getstate__())
        if "ensemble_" in state:
            state["ensemble_"] = zipped_run(state["ensemble_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "ensemble_" in state:
            candidates = {"net": self.net, "recipe": self.recipe, **(self.settings or {})}
            own = {name: candidates.get(name) for name in ("net", "recipe", "likelihood")}
            own = {name: None if isinstance(value, str) else value for name, value in own.items()}
            self.ensemble_ = unzipped_run(state["ensemble_"], **own, output=candidates.get("output"))


@parameters_documented
@dataclass(eq=False, repr=False, kw_only=True)
class EnsembleClassifier(ClassifierMixin, EnsembleEstimator):
    """A scikit-learn classifier: an ensemble of neural networks. `murmuration.fit` decides settings that are None.

    Args:

    Attributes:
        ensemble_: The trained `murmuration.Ensemble`.
        classes_: The classes, sorted.
        n_features_in_: Number of columns of X.
        feature_names_in_: Their names, if X was a table.
        n_iter_: Number of epochs; 0 with folds.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> model = EnsembleClassifier(members=2, epochs=20, random_state=0).fit(X, y)
    >>> model.predict_proba(X).shape, model.predict_set(X, coverage=0.8).shape
    ((150, 3), (150, 3))
    """

    class_weight: str | dict[Any, float] | None = None

    @notes_once
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Train and calibrate.

        Args:
            X: Inputs (N, D), an array or a pandas table.
            y: Labels (N,) of any kind.
            sample_weight: Weights (N,); rows of weight 0 are left out.
        """
        table = self._training_table(X, y)
        y = as_array(y) if isinstance(y, Tensor) else y
        refuse_mixed_labels(as_array(y).ravel().tolist())
        refuse_texts_among_numbers(as_array(y).ravel().tolist())
        labels = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        weight = None if sample_weight is None else checked_weight(sample_weight, table)
        if not isinstance(self.class_weight, str | Mapping | None):
            raise Misuse(f"class_weight={self.class_weight!r:.60}: expected 'balanced', a dict of weights, or None")
        if self.class_weight is not None:
            by_class = compute_sample_weight(self.class_weight, labels)
            weight = by_class if weight is None else weight * by_class
        used_labels = labels if weight is None else labels[weight > 0]
        self.classes_ = np.unique(used_labels)
        if len(self.classes_) < 2:
            raise Misuse(f"{len(used_labels)} rows of one class, {self.classes_[0]}: expected at least two classes")
        self._fit("classification", table, {target_names(y, table)[0]: labels}, weight)
        names = self.ensemble_.names
        self._order = [names.index(as_text(label)) for label in self.classes_]  # places of the classes in the outputs
        return self

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the mean probabilities (N, K) of the classes, in the order of `classes_`.

        Args:
            X: Inputs (N, D), an array or a pandas table with the columns of training.
        """
        return self.predictive(X).mean.numpy()[:, self._order]

    def predict_log_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the logarithms (N, K) of the mean probabilities.

        Args:
            X: Inputs (N, D), an array or a pandas table with the columns of training.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the most probable class (N,).

        Args:
            X: Inputs (N, D), an array or a pandas table with the columns of training.
        """
        columns = self.predict_proba(X).argmax(axis=1)
        return self.classes_[columns]

    def predict_set(self, X: Any, coverage: float = 0.9, *, method: str | None = None) -> Any:  # noqa: N803
        """Return conformal prediction sets.

        Args:
            X: Array (N, D) or pandas table.
            coverage: Target probability that a set contains the true class.
            method: lac, aps, raps or mondrian (`murmuration.fit_conformal`); by default lac, or that of `fit`.

        Returns:
            A mask (N, K) of the classes in each set, in the order of `classes_`.

        Raises:
            Misuse: With fewer than 20 validation rows, or for an unknown method.
        """
        pred = self.predictive(X)
        sets = np.asarray(self._rule(coverage, method).regions(pred))[:, self._order]
        return self._output(X, sets, {str(label): sets[:, k] for k, label in enumerate(self.classes_)})

    def predict_uncertainty(self, X: Any) -> Any:  # noqa: N803
        """Return the entropy of the predictions and its parts, in nats.

        Args:
            X: Inputs (N, D), an array or a pandas table with the columns of training.

        Returns:
            `Uncertainty`, each (N,): the mean entropy of members (aleatoric), its difference to the total (epistemic),
                and the
            entropy of the mean probabilities (total).
        """
        pred = self.predictive(X)
        parts = (pred.expected_entropy, pred.mutual_information, pred.entropy)
        uncertainty = Uncertainty(*(values.numpy() for values in parts))
        return self._output(X, uncertainty, uncertainty._asdict())


@parameters_documented
class EnsembleRegressor(RegressorMixin, EnsembleEstimator):
    """A scikit-learn regressor of one target or several: an ensemble of neural networks.

    `murmuration.fit` decides settings that are None.

    Args:

    Attributes:
        ensemble_: The trained `murmuration.Ensemble`.
        n_features_in_: Number of columns of X.
        feature_names_in_: Their names, if X was a table.
        n_iter_: Number of epochs; 0 with folds.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = EnsembleRegressor(members=2, epochs=5, random_state=0).fit(X, y)
    >>> low, high = model.predict_interval(X, coverage=0.9)
    >>> bool((low < high).all())
    True
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @notes_once
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Train and calibrate.

        Args:
            X: Inputs (N, D), an array or a pandas table.
            y: One target (N,), or several (N, K).
            sample_weight: Weights (N,); rows of weight 0 are left out.
        """
        table = self._training_table(X, y)
        values = number_targets(y)
        values = column_or_1d(values, warn=True) if values.shape[1:] == (1,) else values
        check_consistent_length(table, values)
        weight = None if sample_weight is None else checked_weight(sample_weight, table)
        self._single = values.ndim == 1
        self._targets = target_names(y, table, 1 if self._single else values.shape[1])
        self._fit("regression", table, dict(zip(self._targets, values.reshape(len(values), -1).T, strict=True)), weight)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:  # noqa: N803
        """Return the mean (N,) or (N, K) of the target.

        Args:
            X: Inputs (N, D), an array or a pandas table with the columns of training.
            return_std: Whether to return the total standard deviation too.
        """
        pred = self.predictive(X)
        mean = self._shaped(pred.mean)
        return (mean, self._shaped(pred.total_var.sqrt())) if return_std else mean

    def predict_interval(self, X: Any, coverage: float = 0.9, *, method: str | None = None) -> Any:  # noqa: N803
        """Return conformal prediction intervals.

        Args:
            X: Array (N, D) or pandas table.
            coverage: Target probability that an interval contains the target.
            method: quantile, normalised or absolute (`murmuration.fit_conformal`); by default quantile, or that of
                `fit`.

        Returns:
            `Interval`: the ends low and high, each (N,) or (N, K).

        Raises:
            Misuse: With fewer than 20 validation rows, or for an unknown method.
        """
        pred = self.predictive(X)
        intervals = Interval(*map(self._shaped, self._rule(coverage, method).regions(pred)))
        if not np.isfinite(intervals.low).all():
            reason = "there are too few validation rows to know their ends; ask for less, or give more rows or folds=5"
            warn(f"intervals of coverage {coverage:g} are infinite: {reason}")
        return self._output(X, intervals, self._by_target(intervals._asdict()))

    def predict_uncertainty(self, X: Any) -> Any:  # noqa: N803
        """Return standard deviations of the target and its parts.

        Args:
            X: Inputs (N, D), an array or a pandas table with the columns of training.

        Returns:
            `Uncertainty`, each (N,) or (N, K): of the target's noise (aleatoric), of members' means (epistemic), of
                both
            (total).
        """
        pred = self.predictive(X)
        parts = (pred.aleatoric_var, pred.epistemic_var, pred.total_var)
        uncertainty = Uncertainty(*(self._shaped(values.sqrt()) for values in parts))
        return self._output(X, uncertainty, self._by_target(uncertainty._asdict()))

    def _shaped(self, values: Any) -> np.ndarray:
        """Convert values (N, K) to (N,) if training had targets (N,)."""
        array = np.asarray(values)
        return array[:, 0] if self._single else array

    def _by_target(self, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return columns (N,) by name; with several targets, names such as low_price."""
        if self._single:
            return columns
        names = enumerate(self._targets)
        return {f"{key}_{name}": values[:, k] for k, name in names for key, values in columns.items()}


def numeric(values: Any) -> Any:
    """Return values for the checks of scikit-learn; refuse what they would take for other numbers: masked, dates."""
    values = as_array(values) if isinstance(values, Tensor) else unmasked(values)
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    kind = as_array(values).dtype.kind if isinstance(values, list | tuple) and kind is None else kind
    if kind in ("m", "M"):
        raise Misuse("dates or durations in an array: expected numbers, or a pandas table with columns of dates")
    return values


def number_targets(y: Any) -> np.ndarray:
    """Return the targets (N,) or (N, K) of a regression as float64; refuse texts."""
    try:
        values: np.ndarray = check_array(numeric(y), ensure_2d=False, dtype=np.float64, input_name="y")
        return values
    except ValueError:
        texts = [value for value in np.ravel(np.asarray(y, dtype=object)).tolist() if isinstance(value, str)]
        odd = next((text for text in texts if not is_number(text)), None)
        if odd is None:
            raise
    raise Misuse(f"y holds '{odd}': expected numbers; EnsembleClassifier takes labels")


def seed_of(random_state: Any) -> int:
    """Return a whole number itself, else a seed drawn from numpy's generator."""
    if isinstance(random_state, Integral) and not isinstance(random_state, bool):
        if random_state < 0:
            raise Misuse(f"random_state={random_state}: need a whole number that is not negative")
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def checked_weight(weight: Any, table: Any) -> np.ndarray:
    """Check sample weights: (N,) float64, none negative, not all zero."""
    weights = _check_sample_weight(numeric(weight), table, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weights


def target_names(y: Any, table: Any, count: int = 1) -> list[str]:
    """Name the targets: as a pandas y, or y, y0, y1, ...; different from the columns of the table."""
    own = list(map(str, y.columns)) if is_table(y) else [getattr(y, "name", None)]
    usual = ["y"] if count == 1 else [f"y{k}" for k in range(count)]
    names = own if len(own) == count and None not in own and len({*own}) == count else usual
    return free_names([str(name) for name in names], table)


def free_names(names: list[str], table: Any) -> list[str]:
    """Add underscores to the names until no column of the table has one of them."""
    return names if not {*names} & {*table.columns} else free_names([f"{name}_" for name in names], table)


def zipped_run(ensemble: Ensemble) -> bytes:
    """Return the run directory of an ensemble as the bytes of a zip archive."""
    archive = io.BytesIO()
    with TemporaryDirectory() as folder, zipfile.ZipFile(archive, "w") as zipped:
        run = Path(folder) / "run"
        ensemble.save(run)
        for file in sorted(path for path in run.rglob("*") if path.is_file()):
            zipped.write(file, file.relative_to(run))
    return archive.getvalue()


def unzipped_run(content: bytes, **own: Any) -> Ensemble:
    """Restore the ensemble of `zipped_run`; `own` are the user-defined objects that `load` needs."""
    with TemporaryDirectory() as folder:
        zipfile.ZipFile(io.BytesIO(content)).extractall(folder)
        return load(folder, **own)
