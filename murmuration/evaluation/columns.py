"""What the columns of a table do: importance for error and uncertainty, partial dependence, unusual rows, drift.

All functions take an ensemble that was trained on a table, and tables with the same columns.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from murmuration.data import Data, Split, TablePreparation
from murmuration.data.columns import find_column, to_numbers, to_texts
from murmuration.data.formats import load_source
from murmuration.data.inputs import as_trained, join_inputs
from murmuration.data.preparation import CategoricalColumn, NumericColumn, Preparation, TextColumn
from murmuration.data.raw import LoadOptions, is_table
from murmuration.data.streamed import Streamed
from murmuration.evaluation.metrics import holm
from murmuration.likelihoods import REGRESSION
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc.conformal import SetRule
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse, listed, notes_once, unknown

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
Show = Callable[[str, int, int], None]

ROWS = 500  # that are predicted, at most
REPEATS = 5  # shuffles of a column
SURE = 1e-12  # a variance of uncertainty below this share of its mean square is rounding
POINTS = 20  # of a numeric column
NEIGHBOURS = 5  # the mean distance to so many nearest training rows counts
DEFAULT_COUNT = 10
NAMED = 3  # columns of a row
MEASURED = 5000  # training rows, at most
LEVEL = 0.01  # probability of any false alarm
LEAST = 0.1  # size of a change that counts: distance of two distributions, from 0 to 1
MIN_EXPECTED_ROWS = 5  # expected rows of a category in the chi-square test: rarer ones are pooled
MIN_ROWS = 20  # rows of a table


# Permutation importance


@dataclass(frozen=True, eq=False)
class ColumnImportance:
    """How much the predictions need every column: (C, repeats) each, one number for a shuffle.

    A column is shuffled among the rows, and the ensemble predicts again. The increase of the negative log-likelihood is
    the importance for the error (Breiman 2001). An uncertainty u has no target to be compared with: the importance of
    column j for it is the share of its variance that needs the column,

        E (u(x) - u(x with x_j of another row))^2 / (2 Var u),

    the total index of Sobol' by the estimator of Jansen (1999). It is 0 for a column that changes no uncertainty and 1
    for one that decides it alone. Shares of columns that act together overlap, so that they may sum to more than 1.
    Shuffling breaks the dependence between columns: rows that could not occur are predicted too.
    """

    columns: tuple[str, ...]
    error: Array  # increase of the negative log-likelihood, in nats
    epistemic: Array | None  # share of the variance of the epistemic uncertainty; None of one network
    total: Array  # share of the variance of the total uncertainty
    rows: int

    @property
    def order(self) -> list[int]:
        """The columns by their importance for the error, the largest first."""
        return np.argsort(-self.error.mean(1), kind="stable").tolist()

    def summary(self, kind: str) -> tuple[Array, Array]:
        """Return the mean (C,) over shuffles of `error`, `epistemic` or `total`, and its standard error (C,)."""
        values = getattr(self, kind)
        return values.mean(1), values.std(1, ddof=1) / np.sqrt(values.shape[1])

    def frame(self) -> "pd.DataFrame":
        """Return one row for every column, the most important first."""
        import pandas as pd

        columns: dict[str, Any] = {"column": self.columns}
        for kind in ("error", "epistemic", "total"):
            if getattr(self, kind) is not None:
                columns[kind], columns[f"{kind}_se"] = self.summary(kind)
        return pd.DataFrame(columns).iloc[self.order].reset_index(drop=True)

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "columns": self.frame().to_dict("records")}

    @property
    def sentences(self) -> tuple[str, ...]:
        """Which column matters most for the error, and which for the epistemic uncertainty."""
        mean, error = self.summary("error")
        first = self.order[0]
        texts = []
        if mean[first] > 2 * error[first]:
            texts.append(f"the error depends most on {self.columns[first]}: shuffled, it costs {mean[first]:.3g} nats")
        if self.epistemic is not None:
            share, spread = self.summary("epistemic")
            most = int(share.argmax())
            if share[most] > 2 * spread[most]:
                needed = f"{100 * min(share[most], 1):.0f} % of its variance needs the column"
                texts.append(f"the epistemic uncertainty depends most on {self.columns[most]}: {needed}")
        return tuple(texts)


@notes_once
def column_importance(
    ensemble: Ensemble,
    data: Any,
    *,
    rows: int | None = ROWS,
    repeats: int = REPEATS,
    seed: int = 0,
    show: Show = lambda what, done, total: None,
) -> ColumnImportance:
    """Measure how much the predictions of an ensemble need every column, by shuffling it.

    Args:
        ensemble: An ensemble that was trained on a table.
        data: Labelled rows: a `Data` (its test split), a split, or what `ensemble.labelled` takes.
        rows: Largest number of rows, chosen at random; None for all.
        repeats: Shuffles of every column.
        seed: Seed of the shuffles.
        show: Callback (column, done, total).

    Returns:
        The importance for the error and for the uncertainty.

    Raises:
        Misuse: With fewer than 2 repeats or rows.
    """
    if repeats < 2:
        raise Misuse(f"repeats={repeats}: need at least 2, for a standard error")
    table, split = labelled_table(ensemble, data)
    rng = np.random.default_rng(seed)
    if rows is not None and len(table) > rows:
        sample = np.sort(rng.permutation(len(table))[:rows])
        table, split = table.iloc[sample], split[sample]
    if len(table) < 2:
        raise Misuse(f"{len(table)} rows: a column is shuffled among at least 2")

    def measured(some: Any) -> tuple[Tensor, ...]:
        pred = ensemble.predict(some)
        return -pred.log_prob(split.y).double(), *uncertainties(pred)

    before = measured(table)
    columns = [column.name for column in table_preparation(ensemble).columns]
    increases = np.zeros((3, len(columns), repeats))
    for place, name in enumerate(columns):
        show(name, place, len(columns))
        for turn in range(repeats):
            after = measured(shuffled(table, name, rng.permutation(len(table))))
            increases[0, place, turn] = float((after[0] - before[0]).mean())
            increases[1:, place, turn] = [share(u, v) for u, v in zip(before[1:], after[1:], strict=True)]
    epistemic = increases[1] if members_differ(ensemble) else None
    return ColumnImportance(tuple(columns), increases[0], epistemic, increases[2], len(table))


def table_preparation(ensemble: Ensemble) -> TablePreparation:
    """Return the preparation of an ensemble that was trained on a table; refuse others."""
    if not isinstance(ensemble.preparation, TablePreparation):
        raise Misuse("columns belong to tables: the ensemble was trained on other inputs")
    return ensemble.preparation


def members_differ(ensemble: Ensemble) -> bool:
    """Return whether predictions of the same input can differ: only then is there epistemic uncertainty."""
    return ensemble.members > 1 or ensemble.recipe.weights.stochastic


def labelled_table(ensemble: Ensemble, data: Any) -> tuple[Any, Split]:
    """Return the pandas table of labelled rows, and the rows as a split; refuses what is no table."""
    table_preparation(ensemble)
    split = data.test if isinstance(data, Data) else data if isinstance(data, Split) else ensemble.labelled(data)
    if not is_table(split.x):
        raise Misuse("the split holds no table: give a split of a table as it was opened")
    return split.x, split


def uncertainties(pred: Predictive) -> tuple[Tensor, Tensor]:
    """Epistemic and total uncertainty, (N,) each.

    Entropies in nats for classes, standard deviations for a regression: of several targets the root of the mean
    variance.
    """
    if pred.task == REGRESSION:
        epistemic, total = (var.mean(-1).clamp_min(0).sqrt() for var in (pred.epistemic_var, pred.total_var))
    else:
        epistemic, total = pred.mutual_information, pred.entropy
    return epistemic.double(), total.double()


def key_of(table: Any, name: str) -> Any:
    """Return the column's name in the table, which need not be a text."""
    return name if name in table.columns else next(key for key in table.columns if str(key) == name)


def shuffled(table: Any, name: str, order: np.ndarray) -> Any:
    """Return the table with one column's values taken from other rows, its type and all other columns as they are."""
    key = key_of(table, name)
    return table.assign(**{key: table[key].iloc[order].array})


def share(before: Tensor, after: Tensor) -> float:
    """Return the share of the variance of an uncertainty (N,) that is lost by the change; 0 if it does not vary."""
    variance = float(before.var(correction=0))
    if not variance > SURE * float(before.square().mean()):
        return 0.0
    return float((before - after).square().mean()) / (2 * variance)


# Partial dependence


@dataclass(frozen=True, eq=False)
class PartialDependence:
    """The prediction as a function of one column, over the values (G,) of a grid (Friedman 2001).

    All rows get the same value of the column, each member predicts them, and the mean over rows is the member's curve.
    The mean of the curves is the partial dependence; their standard deviation over members is its epistemic part: where
    no training rows were, members continue in different ways.
    """

    column: str
    values: tuple[Any, ...]  # numbers, or texts of categories
    numeric: bool
    outputs: tuple[str, ...]  # classes or targets, K
    members: NDArray[np.float64]  # (S, G, K) curves: class probabilities, or means of targets
    weights: NDArray[np.float64]  # (S,) of the members
    rows: int

    @property
    def mean(self) -> NDArray[np.float64]:
        """The partial dependence (G, K)."""
        return np.einsum("s,sgk->gk", self.weights, self.members)

    @property
    def std(self) -> NDArray[np.float64]:
        """The standard deviation (G, K) of the members' curves."""
        return np.sqrt(np.einsum("s,sgk->gk", self.weights, (self.members - self.mean) ** 2))

    def to_json(self) -> dict[str, Any]:
        about = {"column": self.column, "values": list(self.values), "outputs": list(self.outputs), "rows": self.rows}
        return {**about, "mean": self.mean.tolist(), "std": self.std.tolist()}


@notes_once
def partial_dependence(
    ensemble: Ensemble, data: Any, column: str, *, points: int = POINTS, rows: int = ROWS
) -> PartialDependence:
    """Compute the mean prediction as a function of one column.

    Args:
        ensemble: An ensemble that was trained on a table.
        data: Rows to average over: a `Data` (its test split), a split or a table.
        column: Name of the column.
        points: Largest number of quantiles of a numeric column; a categorical column takes all its categories.
        rows: Largest number of rows, evenly spaced.

    Returns:
        The curve of every member.

    Raises:
        Misuse: If the column is unknown, or `points` is below 2.
    """
    table = data if is_table(data) else labelled_table(ensemble, data)[0]
    by_name = {spec.name: spec for spec in getattr(ensemble.preparation, "columns", ())}
    if column not in by_name:
        raise unknown("column", column, by_name)
    if isinstance(by_name[column], TextColumn):
        raise Misuse(f"column '{column}' is free text: expected a column of numbers or categories")
    if points < 2:
        raise Misuse(f"points={points}: need at least 2")
    table = table.iloc[:: max(1, -(-len(table) // rows))]
    key = key_of(table, column)
    numeric = not isinstance(by_name[column], CategoricalColumn)
    values = grid(table[key], points) if numeric else by_name[column].categories
    curves = []
    for value in values:
        pred = ensemble.predict(table.assign(**{key: in_quantity(value, by_name[column])}))
        curves.append((pred.member_mean if pred.task == REGRESSION else pred.probs).double().mean(1).numpy())  # (S, K)
    names = tuple(ensemble.names or ()) or tuple(str(k) for k in range(curves[0].shape[-1]))
    weights = pred.member_weights.double().numpy()
    return PartialDependence(column, tuple(values), numeric, names, np.stack(curves, 1), weights, len(table))


def in_quantity(value: Any, column: Any) -> Any:
    """Return a number of seconds as the date or duration that a column holds; anything else as it is."""
    import pandas as pd

    quantity = column.quantity if isinstance(column, NumericColumn) else None
    if quantity == "dates":
        return pd.Timestamp(value, unit="s")
    return pd.Timedelta(value, unit="s") if quantity == "durations" else value


def grid(values: Any, points: int) -> list[float]:
    """Return quantiles of a numeric column from the lowest to the highest, each value once."""
    present = to_numbers(values.dropna())  # dates as seconds
    if not len(present):
        raise Misuse(f"column '{values.name}' is missing in every row: expected some numbers")
    return np.unique(np.quantile(present, np.linspace(0, 1, points))).tolist()


# Unusual rows


@dataclass(frozen=True)
class UnusualRow:
    """A row far from the training rows."""

    row: int  # place in the table
    distance: float  # mean distance to the nearest training rows, over the median of that among training rows
    columns: tuple[str, ...]  # that differ most from the nearest training row, the largest difference first
    values: tuple[Any, ...]  # of these columns


@notes_once
def unusual_rows(ensemble: Ensemble, train: Any, table: Any, *, count: int = DEFAULT_COUNT) -> list[UnusualRow]:
    """Find the rows of a table that are farthest from the training rows.

    Args:
        ensemble: An ensemble that was trained on a table.
        train: The training table.
        table: The new table.
        count: Number of rows to return.

    Returns:
        The farthest rows. Distances are between prepared columns, in units of the median distance of a training row to
        its neighbours: up to about 2 is usual.

    Raises:
        Misuse: If the ensemble was trained on other inputs.
    """
    from sklearn.neighbors import NearestNeighbors

    preparation = table_preparation(ensemble)
    usual = preparation.apply(train.iloc[:: max(1, -(-len(train) // MEASURED))]).numpy()
    prepared = preparation.apply(table).numpy()
    near = min(NEIGHBOURS, len(usual) - 1)
    if near < 1:
        raise Misuse(f"{len(usual)} training rows: need at least 2 to compare rows with")
    index = NearestNeighbors().fit(usual)
    unit = np.median(index.kneighbors(n_neighbors=near)[0].mean(1))
    distances, neighbours = index.kneighbors(prepared, near)
    far = distances.mean(1) / max(unit, np.finfo(float).tiny)
    owners = [column.name for column in preparation.columns for _ in column.prepared_names]
    rows = []
    for place in np.argsort(-far, kind="stable")[:count]:
        parts: dict[str, float] = dict.fromkeys(owners, 0.0)
        for owner, part in zip(owners, (prepared[place] - usual[neighbours[place, 0]]) ** 2, strict=True):
            parts[owner] += float(part)
        names = [name for name in sorted(parts, key=lambda name: -parts[name])[:NAMED] if parts[name] > 0]
        values = [table[key_of(table, name)].iloc[place] for name in names]
        rows.append(UnusualRow(int(place), float(far[place]), tuple(names), tuple(values)))
    return rows


# Drift


@dataclass(frozen=True)
class Change:
    """One quantity in two tables."""

    name: str
    kind: str  # numbers, dates, durations, categories, missing values, uncertainty or sets
    before: float  # mean, or share of missing values; NaN of categories
    after: float
    size: float  # distance of the distributions: of Kolmogorov-Smirnov, or half the summed difference of shares
    p_value: float  # before correction
    adjusted: float = 1.0  # by Holm's method, over all changes
    unseen: float = 0.0  # share of rows with a category that training did not have
    new: tuple[str, ...] = ()  # these categories, the most frequent first

    @property
    def drifted(self) -> bool:
        return self.adjusted < LEVEL and self.size >= LEAST

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "drifted": self.drifted}


@dataclass(frozen=True)
class Drift:
    """A new table against the training table: every column, missing values, uncertainty and set sizes.

    Numeric columns and uncertainties are compared by the two-sample Kolmogorov-Smirnov test, categories by the
    chi-square test of homogeneity, missing values by Fisher's exact test. All p-values are corrected together by the
    method of Holm (1979), so that the probability of any false alarm is at most the level. A change is called drift if
    it is significant and its size is not negligible: on many rows every trifle is significant.
    """

    changes: tuple[Change, ...]
    rows: int  # of the new table
    train_rows: int

    @property
    def drifted(self) -> tuple[Change, ...]:
        """The changes that count, the largest first."""
        return tuple(sorted((change for change in self.changes if change.drifted), key=lambda change: -change.size))

    @property
    def verdict(self) -> tuple[str, ...]:
        """What changed, and what to do about it, in sentences."""
        uncertainty = [change for change in self.drifted if change.kind in ("uncertainty", "sets")]
        columns = [change for change in self.drifted if change not in uncertainty]
        unseen = [(c.name, listed(c.new, most=5), 100 * c.unseen) for c in columns if c.new]
        levels = [f"New in {name}: {new} ({share:.3g} % of the rows)." for name, new, share in unseen]
        small = sum(change.adjusted < LEVEL and not change.drifted for change in self.changes)
        sizes = f"{self.rows:,} new rows against {self.train_rows:,} training rows"
        if not self.drifted:
            none = f"No drift: no change of size {LEAST:g} or more has a corrected p-value below {LEVEL:g}, {sizes}."
            return (none, f"{small} smaller changes are significant.") if small else (none,)
        names = ", ".join(f"{change.name} ({change.kind}, size {change.size:.2f})" for change in columns[:5])
        more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
        first = f"Drift in {len(columns)} of the columns: {names}{more}; {sizes}." if columns else ""
        went = [(c.name[0].upper() + c.name[1:], c.before, c.after) for c in uncertainty]
        sentences = [f"{name} went from {before:.3g} to {after:.3g}." for name, before, after in went]
        advice = "Check these columns, and train again with newer rows if the change is real."
        return tuple(text for text in (first, *levels, *sentences, advice) if text)

    def frame(self) -> "pd.DataFrame":
        import pandas as pd

        return pd.DataFrame([change.to_json() for change in self.changes])

    def to_json(self) -> dict[str, Any]:
        changes = [change.to_json() for change in self.changes]
        return {"rows": self.rows, "train_rows": self.train_rows, "verdict": list(self.verdict), "changes": changes}


@notes_once
def drift(ensemble: Ensemble, data: Data, table: Any) -> Drift:
    """Test a new table for drift from the training table.

    Args:
        ensemble: An ensemble that was trained on a table.
        data: Its data. Test rows, or validation rows if there are none, give the usual uncertainty.
        table: The new pandas table; it needs no target.

    Returns:
        The changes of columns and uncertainty, with corrected p-values.

    Raises:
        Misuse: If either is not a table, or the new one has fewer than 20 rows.
    """
    preparation = ensemble.preparation
    if not isinstance(preparation, TablePreparation) or not is_table(data.train.x):
        streamed = isinstance(data.train.x, Streamed)
        write = ", which were not read whole: open the data with in_memory=True" if streamed else ""
        raise Misuse(f"drift compares tables: the ensemble was trained on other inputs{write}")
    if not is_table(table):
        raise Misuse(f"new data of type {type(table).__name__}: expected a table, such as pandas.read_csv(...)")
    if len(table) < MIN_ROWS:
        raise Misuse(f"{len(table)} rows: need at least {MIN_ROWS} to compare distributions")
    changes: list[Change] = []
    for column in preparation.columns:
        old, new = (find_column(frame, column.name) for frame in (data.train.x, table))
        missing = missing_change(column.name, old, new)
        changes += [] if missing is None else [missing]
        if isinstance(column, NumericColumn):
            column.require_quantity(new)
            changes.append(numbers_change(column, old, new))
        elif isinstance(column, CategoricalColumn):
            changes.append(categories_change(column.name, old, new))
    usual = data.test if len(data.test) else data.val
    changes += uncertainty_changes(ensemble, usual.x, table) if len(usual) >= MIN_ROWS else []
    adjusted = holm([change.p_value for change in changes])
    corrected = (replace(change, adjusted=float(p)) for change, p in zip(changes, adjusted, strict=True))
    return Drift(tuple(corrected), len(table), len(data.train))


def read_table(source: Any, preparation: Preparation | None) -> Any:
    """Return the rows of a file as a pandas table, its target too if it has one, read as in training."""
    if is_table(source):
        return source
    _, raw = load_source(source, LoadOptions(labelled=False, in_memory=True, **as_trained(preparation)))
    table = join_inputs([raw.parts[name].inputs for name in raw.parts])
    if not is_table(table):
        raise Misuse(f"{source} holds no table: expected a file such as new.csv with the columns of training")
    return table


def numbers_change(column: NumericColumn, old: Any, new: Any) -> Change:
    """Return a column of numbers, dates or durations, without its missing values."""
    both = (to_numbers(values, column.form, column.expected) for values in (old, new))
    before, after = (numbers[~np.isnan(numbers)] for numbers in both)
    return distance(column.name, column.quantity or "numbers", before, after)


def distance(name: str, kind: str, before: NDArray[Any], after: NDArray[Any]) -> Change:
    """Return two samples by the Kolmogorov-Smirnov test; no change where one of them is empty."""
    if not len(before) or not len(after):
        return Change(name, kind, float("nan"), float("nan"), 0.0, 1.0)
    test = stats.ks_2samp(before, after)
    return Change(name, kind, float(before.mean()), float(after.mean()), float(test.statistic), float(test.pvalue))


def missing_change(name: str, old: Any, new: Any) -> Change | None:
    """Return the share of missing values, by Fisher's exact test; None if neither table has any."""
    lacks = [np.asarray(mask.isna()) for mask in (old, new)]
    if not any(mask.any() for mask in lacks):
        return None
    counts = [[int(mask.sum()), int((~mask).sum())] for mask in lacks]
    before, after = (float(mask.mean()) for mask in lacks)
    return Change(name, "missing values", before, after, abs(after - before), float(stats.fisher_exact(counts).pvalue))


def categories_change(name: str, old: Any, new: Any) -> Change:
    """Compare categories by the chi-square test of homogeneity; pool rare ones, leave out missing values."""
    before, after = (Counter(text for text in to_texts(values).tolist() if text is not None) for values in (old, new))
    totals = sum(before.values()), sum(after.values())
    nothing = Change(name, "categories", float("nan"), float("nan"), 0.0, 1.0)
    if not all(totals):
        return nothing
    levels = sorted({*before, *after})
    counts = np.array([[counter[level] for level in levels] for counter in (before, after)])  # (2, L)
    shares = counts / counts.sum(1, keepdims=True)
    size = float(np.abs(shares[0] - shares[1]).sum() / 2)
    expected = counts.sum(0) * min(totals) / sum(totals)
    rare = expected < MIN_EXPECTED_ROWS
    pooled = np.concatenate([counts[:, ~rare], counts[:, rare].sum(1, keepdims=True)], 1)
    pooled = pooled[:, pooled.sum(0) > 0]
    new = tuple(level for level, _ in after.most_common() if level not in before)
    nothing = replace(nothing, size=size, unseen=sum(after[level] for level in new) / totals[1], new=new)
    if pooled.shape[1] < 2:
        return nothing
    return replace(nothing, p_value=float(stats.chi2_contingency(pooled).pvalue))


def uncertainty_changes(ensemble: Ensemble, usual: Any, table: Any) -> list[Change]:
    """Epistemic and total uncertainty, and the size of conformal sets of classes, on usual and on new rows."""
    preds = [ensemble.predict(rows) for rows in (usual, table)]
    pairs = [uncertainties(pred) for pred in preds]
    epistemic, total = ([values.numpy() for values in kind] for kind in zip(*pairs, strict=True))
    changes = [distance("epistemic uncertainty", "uncertainty", *epistemic)] if members_differ(ensemble) else []
    changes.append(distance("total uncertainty", "uncertainty", *total))
    conformal = () if ensemble.posthoc is None else ensemble.posthoc.conformal
    rule = next((rule for rule in conformal if isinstance(rule, SetRule)), None)
    if rule is not None:
        sizes = (rule.sets(pred).sum(1).astype(float) for pred in preds)
        changes.append(distance("size of the conformal sets", "sets", *sizes))
    return changes
