"""Permutation importance of the columns of a table, for the error and for the uncertainty of predictions.

A column is shuffled among the rows, and the ensemble predicts again. The increase of the negative log-likelihood is the
importance for the error (Breiman 2001). An uncertainty u has no target to be compared with: the importance of column j
for it is the share of its variance that needs the column,

    E (u(x) - u(x with x_j of another row))^2 / (2 Var u),

the total index of Sobol' by the estimator of Jansen (1999). It is 0 for a column that changes no uncertainty and 1 for
one that decides it alone. Shares of columns that act together overlap, so that they may sum to more than 1. Shuffling
breaks the dependence between columns: rows that could not occur are predicted too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from murmuration.data import Data, Split, TablePreparation
from murmuration.data.raw import is_table
from murmuration.likelihoods import REGRESSION
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
Show = Callable[[str, int, int], None]

ROWS = 500  # that are predicted, at most
REPEATS = 5  # shuffles of a column
SURE = 1e-12  # a variance of uncertainty below this share of its mean square is rounding


@dataclass(frozen=True, eq=False)
class ColumnImportance:
    """How much the predictions need every column: (C, repeats) each, one number for a shuffle."""

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

        kinds = [kind for kind in ("error", "epistemic", "total") if getattr(self, kind) is not None]
        columns: dict[str, Any] = {"column": self.columns}
        for kind in kinds:
            mean, error = self.summary(kind)
            columns |= {kind: mean, f"{kind}_se": error}
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
                texts.append(
                    f"the epistemic uncertainty depends most on {self.columns[most]}: {100 * min(share[most], 1):.0f} %"
                    " of its variance needs the column"
                )
        return tuple(texts)


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
    columns = [column.name for column in ensemble.preparation.columns]  # type: ignore[union-attr]
    increases = np.zeros((3, len(columns), repeats))
    for place, name in enumerate(columns):
        show(name, place, len(columns))
        for turn in range(repeats):
            order = rng.permutation(len(table))
            after = measured(shuffled(table, name, order))
            increases[0, place, turn] = float((after[0] - before[0]).mean())
            increases[1:, place, turn] = [share(u, v) for u, v in zip(before[1:], after[1:], strict=True)]
    epistemic = increases[1] if ensemble.members > 1 or ensemble.recipe.weights.stochastic else None
    return ColumnImportance(tuple(columns), increases[0], epistemic, increases[2], len(table))


def labelled_table(ensemble: Ensemble, data: Any) -> tuple[Any, Split]:
    """Return the pandas table of labelled rows, and the rows as a split; refuses what is no table."""
    if not isinstance(ensemble.preparation, TablePreparation):
        raise Misuse("columns belong to tables: the ensemble was trained on other inputs")
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
        uncertain = [variance.mean(-1).clamp_min(0).sqrt() for variance in (pred.epistemic_var, pred.total_var)]
    else:
        uncertain = [pred.mutual_information, pred.entropy]
    return uncertain[0].double(), uncertain[1].double()


def shuffled(table: Any, name: str, order: np.ndarray) -> Any:
    """Return the table with one column's values taken from other rows, its type and all other columns as they are."""
    column = table[name] if name in table.columns else table[next(c for c in table.columns if str(c) == name)]
    return table.assign(**{column.name: column.iloc[order].array})


def share(before: Tensor, after: Tensor) -> float:
    """Return the share of the variance of an uncertainty (N,) that is lost by the change; 0 if it does not vary."""
    variance = float(before.var(correction=0))
    if not variance > SURE * float(before.square().mean()):
        return 0.0
    return float((before - after).square().mean()) / (2 * variance)
