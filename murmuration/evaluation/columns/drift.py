"""Drift of a new table against the training table: every column, missing values, uncertainty and set sizes.

Numeric columns and uncertainties are compared by the two-sample Kolmogorov-Smirnov test, categories by the chi-square
test of homogeneity, missing values by Fisher's exact test. All p-values are corrected together by the method of Holm
(1979), so that the probability of any false alarm is at most the level. A change is called drift if it is significant
and its size is not negligible: on many rows every trifle is significant.
"""

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from murmuration.data import Data, TablePreparation
from murmuration.data.columns import find_column, to_numbers, to_texts
from murmuration.data.formats import load_source
from murmuration.data.inputs import join_inputs
from murmuration.data.preparation import CategoricalColumn
from murmuration.data.raw import LoadOptions, is_table
from murmuration.data.streamed import Streamed
from murmuration.evaluation.columns.importance import uncertainties
from murmuration.evaluation.metrics import holm
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc.conformal import SetRule
from murmuration.system.errors import Misuse

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.01  # probability of any false alarm
LEAST = 0.1  # size of a change that counts: distance of two distributions, from 0 to 1
MIN_EXPECTED_ROWS = 5  # expected rows of a category in the chi-square test: rarer ones are pooled
MIN_ROWS = 20  # rows of a table


@dataclass(frozen=True)
class Change:
    """One quantity in two tables."""

    name: str
    kind: str  # numbers, categories, missing values, uncertainty or sets
    before: float  # mean, or share of missing values; NaN of categories
    after: float
    size: float  # distance of the distributions: of Kolmogorov-Smirnov, or half the summed difference of shares
    p_value: float  # before correction
    adjusted: float = 1.0  # by Holm's method, over all changes
    unseen: float = 0.0  # share of rows with a category that training did not have

    @property
    def drifted(self) -> bool:
        return self.adjusted < LEVEL and self.size >= LEAST


@dataclass(frozen=True)
class Drift:
    """A new table against the training table."""

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
        columns = [change for change in self.drifted if change.kind not in ("uncertainty", "sets")]
        uncertainty = [change for change in self.drifted if change.kind in ("uncertainty", "sets")]
        small = sum(change.adjusted < LEVEL and not change.drifted for change in self.changes)
        sizes = f"{self.rows:,} new rows against {self.train_rows:,} training rows"
        if not self.drifted:
            sentence = (
                f"No drift: no change of size {LEAST:g} or more has a corrected p-value below {LEVEL:g}, {sizes}."
            )
            return (sentence, f"{small} smaller changes are significant.") if small else (sentence,)
        names = ", ".join(f"{change.name} ({change.kind}, size {change.size:.2f})" for change in columns[:5])
        more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
        first = f"Drift in {len(columns)} of the columns: {names}{more}; {sizes}." if columns else ""
        sentences = [
            f"{change.name[0].upper()}{change.name[1:]} went from {change.before:.3g} to {change.after:.3g}."
            for change in uncertainty
        ]
        advice = "Check these columns, and train again with newer rows if the change is real."
        return tuple(text for text in (first, *sentences, advice) if text)

    def frame(self) -> "pd.DataFrame":
        import pandas as pd

        return pd.DataFrame([{**asdict(change), "drifted": change.drifted} for change in self.changes])

    def to_json(self) -> dict[str, Any]:
        changes = [{**asdict(change), "drifted": change.drifted} for change in self.changes]
        return {"rows": self.rows, "train_rows": self.train_rows, "verdict": list(self.verdict), "changes": changes}


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
        gone = missing_change(column.name, old, new)
        changes += [] if gone is None else [gone]
        categorical = isinstance(column, CategoricalColumn)
        changes += [categories_change(column.name, old, new) if categorical else numbers_change(column.name, old, new)]
    usual = data.test if len(data.test) else data.val
    changes += uncertainty_changes(ensemble, usual.x, table) if len(usual) >= MIN_ROWS else []
    adjusted = holm([change.p_value for change in changes])
    return Drift(
        tuple(replace(change, adjusted=float(p)) for change, p in zip(changes, adjusted, strict=True)),
        len(table),
        len(data.train),
    )


def read_table(source: Any) -> Any:
    """Return the rows of a file as a pandas table, its target too if it has one; a table stays as it is."""
    if is_table(source):
        return source
    _, raw = load_source(source, LoadOptions(labelled=False, in_memory=True))
    table = join_inputs([raw.parts[name].inputs for name in raw.parts])
    if not is_table(table):
        raise Misuse(f"{source} holds no table: expected a .csv or .parquet file with the columns of training")
    return table


def numbers_change(name: str, old: Any, new: Any) -> Change:
    """Return a numeric column, without its missing values."""
    before, after = (numbers[~np.isnan(numbers)] for numbers in map(to_numbers, (old, new)))
    return distance(name, "numbers", before, after)


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
    unseen = sum(count for level, count in after.items() if level not in before) / totals[1]
    if pooled.shape[1] < 2:
        return replace(nothing, size=size, unseen=unseen)
    return replace(nothing, size=size, p_value=float(stats.chi2_contingency(pooled).pvalue), unseen=unseen)


def uncertainty_changes(ensemble: Ensemble, usual: Any, table: Any) -> list[Change]:
    """Epistemic and total uncertainty, and the size of conformal sets of classes, on usual and on new rows."""
    preds = [ensemble.predict(rows) for rows in (usual, table)]
    pairs = [uncertainties(pred) for pred in preds]
    names = ("epistemic uncertainty", "total uncertainty")
    differ = ensemble.members > 1 or ensemble.recipe.weights.stochastic
    changes = [
        distance(name, "uncertainty", *(pair[place].numpy() for pair in pairs))
        for place, name in enumerate(names)
        if place or differ
    ]
    conformal = () if ensemble.posthoc is None else ensemble.posthoc.conformal
    rules = [rule for rule in conformal if isinstance(rule, SetRule)]
    if rules:
        sizes = [rules[0].sets(pred).sum(1).astype(float) for pred in preds]
        changes.append(distance("size of the conformal sets", "sets", *sizes))
    return changes
