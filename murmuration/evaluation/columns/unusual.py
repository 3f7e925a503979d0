"""The rows of a table that are most unlike the training rows, and the columns by which they are."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.data import TablePreparation
from murmuration.prediction.ensemble import Ensemble
from murmuration.system.errors import Misuse

NEIGHBOURS = 5  # the mean distance to so many nearest training rows counts
DEFAULT_COUNT = 10
NAMED = 3  # columns of a row
MEASURED = 5000  # training rows, at most


@dataclass(frozen=True)
class UnusualRow:
    """A row far from the training rows."""

    row: int  # place in the table
    distance: float  # mean distance to the nearest training rows, over the median of that among training rows
    columns: tuple[str, ...]  # that differ most from the nearest training row, the largest difference first
    values: tuple[Any, ...]  # of these columns


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

    preparation = ensemble.preparation
    if not isinstance(preparation, TablePreparation):
        raise Misuse("columns belong to tables: the ensemble was trained on other inputs")
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
        values = [table[next(c for c in table.columns if str(c) == name)].iloc[place] for name in names]
        rows.append(UnusualRow(int(place), float(far[place]), tuple(names), tuple(values)))
    return rows
