"""t-SNE of predictions: runs, their checkpoints and samples around them as points of a plane.

A network is the vector of its class probabilities on fixed inputs. t-SNE (van der Maaten and Hinton 2008) places the
networks in a plane by minimising the Kullback-Leibler divergence of neighbour probabilities Q in the plane from those P
of the vectors. A map shows neighbours and no distances, so the record has numbers beside it: distances between runs
over distances within them, in predictions and in the map, and how many samples are nearest to their own run.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from murmuration.likelihoods import Categorical
from murmuration.studies.landscape import Result
from murmuration.studies.similarity import LATE
from murmuration.studies.subspaces import COUNT, draw_vectors, neighbourhood
from murmuration.studies.trajectory import Trajectory
from murmuration.studies.verdicts import Verdict, estimate, jackknife_estimate
from murmuration.studies.weight_space import Networks, labelled_outputs
from murmuration.system.errors import Misuse

Array = NDArray[np.float64]
Kind = Literal["path", "sample"]
PERPLEXITY = 30.0
STAY = 0.95  # share of samples that have to stay at their run
HALVINGS = 64  # of the range of precisions in which a perplexity is sought


def conditional_probabilities(squared: Array, perplexity: float) -> Array:
    """Return P (n, n): row i is exp(-b_i |z_i - z_j|²), normalised over j != i, and has the entropy log perplexity.

    `squared` are squared distances (n, n). b_i is found by bisection.
    """
    count = len(squared)
    if not 1 <= perplexity <= count - 1:
        raise Misuse(f"perplexity={perplexity:g} of {count} points: expected a number from 1 to {count - 1}")
    away = ~np.eye(count, dtype=bool)
    rows = squared[away].reshape(count, count - 1)
    rows = rows - rows.min(1, keepdims=True)  # leaves P as it is and avoids underflow
    scale = np.maximum(rows.mean(1, keepdims=True), np.finfo(float).tiny)
    low, high = np.full((count, 1), -60.0), np.full((count, 1), 60.0)  # of log b, in units of 1 / scale
    probabilities = np.full_like(rows, 1 / (count - 1))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        weights = np.exp(-np.exp(middle) / scale * rows)
        probabilities = weights / weights.sum(1, keepdims=True)
        entropy = -(probabilities * np.log(np.maximum(probabilities, np.finfo(float).tiny))).sum(1, keepdims=True)
        wide = entropy > math.log(perplexity)
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    matrix = np.zeros((count, count))
    matrix[away] = probabilities.ravel()
    return matrix


def kl_objective(squared: Array, positions: Array, perplexity: float) -> float:
    """Compute the divergence of Q from P that t-SNE minimises.

    Args:
        squared: Squared distances (n, n) of the points.
        positions: Their positions (n, 2) in the plane.
        perplexity: Perplexity of every row of P.

    Returns:
        The Kullback-Leibler divergence, in nats.
    """
    conditional = conditional_probabilities(squared, perplexity)
    p = (conditional + conditional.T) / (2 * len(conditional))
    q = 1 / (1 + squared_distances(positions))
    np.fill_diagonal(q, 0)
    q /= q.sum()
    tiny = np.finfo(float).tiny
    return float((p * (np.log(np.maximum(p, tiny)) - np.log(np.maximum(q, tiny)))).sum())


def squared_distances(rows: Array) -> Array:
    """Return squared Euclidean distances (n, n) of rows (n, D)."""
    rows = np.asarray(rows, dtype=float)
    rows = rows - rows.mean(0)
    squares = (rows**2).sum(1)
    squared = np.maximum(squares[:, None] + squares[None, :] - 2 * rows @ rows.T, 0)
    np.fill_diagonal(squared, 0)
    return (squared + squared.T) / 2


def principal_coordinates(rows: Array) -> Array:
    """Return coordinates (n, r) of rows (n, D) on all their principal directions.

    The same distances in fewer columns.
    """
    centred = np.asarray(rows, dtype=float) - np.asarray(rows, dtype=float).mean(0)
    values, vectors = np.linalg.eigh(centred @ centred.T)
    keep = values > 1e-12 * max(values[-1], np.finfo(float).tiny)
    return (vectors[:, keep] * np.sqrt(values[keep]))[:, ::-1]


def tsne(rows: Array, *, perplexity: float = PERPLEXITY, seed: int = 0, iterations: int = 1000) -> Array:
    """Place rows in a plane by scikit-learn's t-SNE, starting from their principal components.

    Args:
        rows: Points (n, D).
        perplexity: Effective number of neighbours.
        seed: Random seed.
        iterations: Iterations of the optimisation.

    Returns:
        Positions (n, 2).
    """
    from sklearn.manifold import TSNE

    reduced = principal_coordinates(rows).astype(np.float32)
    if reduced.shape[1] < 2:
        return np.pad(reduced, ((0, 0), (0, 2 - reduced.shape[1]))).astype(float)
    model = TSNE(perplexity=perplexity, init="pca", learning_rate="auto", random_state=seed, max_iter=iterations)
    return model.fit_transform(reduced).astype(float)


@dataclass(frozen=True, eq=False)
class Separation:
    """How far apart runs are in one space."""

    between: float  # mean distance of late checkpoints of different runs
    within: float  # mean distance of late checkpoints of one run
    own_run: float  # fraction of samples whose nearest checkpoint is of their own run; NaN without samples
    own_runs: tuple[float, ...]  # the same for the samples of each run that has any
    DERIVED: ClassVar[tuple[str, ...]] = ("ratio",)

    @property
    def ratio(self) -> float:
        return self.between / self.within if self.within > 0 else math.inf if self.between > 0 else math.nan


def separation(squared: Array, runs: Sequence[int], kinds: Sequence[Kind], late: Sequence[bool]) -> Separation:
    """Compute how far apart runs are from squared distances (n, n) of their networks."""
    distance, run = np.sqrt(squared), np.array(runs)
    path, latest = np.array(kinds) == "path", np.array(late)
    pairs = np.outer(latest & path, latest & path) & ~np.eye(len(run), dtype=bool)
    same_run = run[:, None] == run[None, :]
    samples = np.flatnonzero(~path)
    nearest = run[path][distance[np.ix_(samples, np.flatnonzero(path))].argmin(1)] if len(samples) else run[:0]
    stays = np.asarray(nearest == run[samples], dtype=float)
    return Separation(
        mean_of(distance[pairs & ~same_run]),
        mean_of(distance[pairs & same_run]),
        mean_of(stays),
        tuple(float(stays[run[samples] == one].mean()) for one in np.unique(run[samples])),
    )


def map_verdicts(squared: Array, rows: Sequence["Row"], apart: Separation, on_map: Separation) -> tuple[Verdict, ...]:
    """Return claims of Fort et al. (2019) on networks with these squared distances, with intervals over runs."""
    runs, verdicts = list(dict.fromkeys(row.run for row in rows)), []

    def ratio(chosen: list[int]) -> float:
        names = [runs[place] for place in chosen]
        kept = [place for place, row in enumerate(rows) if row.run in names]
        columns = zip(*((rows[place].run, rows[place].kind, rows[place].late) for place in kept), strict=True)
        return separation(squared[np.ix_(kept, kept)], *columns).ratio

    if math.isfinite(apart.ratio):
        further = jackknife_estimate(
            "distance between runs over that within one", ratio, {"runs": len(runs)}, 1.0, math.inf
        )
        note = f"late checkpoints; {on_map.ratio:.3g} on the map"
        verdicts.append(Verdict("clusters", "runs end apart from one another in their predictions", (further,), note))
    if apart.own_runs:
        what = "share of samples nearest to a checkpoint of their own run"
        stays = estimate(what, apart.own_runs, STAY, math.inf, "runs")
        note = f"in predictions; {on_map.own_run:.1%} on the map"
        claim = f"samples of a subspace stay at their own run (at least {STAY:.0%} of them)"
        verdicts.append(Verdict("subspaces stay", claim, (stays,), note))
    return tuple(verdicts)


def mean_of(values: Array) -> float:
    """Return the mean, NaN of nothing."""
    return float(values.mean()) if values.size else math.nan


@dataclass(frozen=True, eq=False)
class Embedding(Result):
    """Networks in a plane, by t-SNE of their predictions."""

    positions: Array  # (n, 2)
    runs: tuple[int, ...]  # the member that each network belongs to
    kinds: tuple[Kind, ...]
    methods: tuple[str, ...]  # "path", or the sampler
    epochs: tuple[float, ...]  # of checkpoints; NaN for samples
    predictions: Separation
    map: Separation
    kl: float  # the objective of t-SNE at the positions
    perplexity: float
    examples: int
    verdicts: tuple[Verdict, ...] = ()

    def frame(self) -> pd.DataFrame:
        """Return one row for each number: run, kind, method, epoch, measure ("x" or "y") and value."""
        columns = {"run": self.runs, "kind": self.kinds, "method": self.methods, "epoch": self.epochs}
        positions = dict(zip("xy", self.positions.T, strict=True))
        return pd.DataFrame(columns | positions).melt(list(columns), var_name="measure")


@dataclass(frozen=True)
class Row:
    """A network to place: its run, its kind and method, its epoch, and whether it is at the end of a path."""

    run: int
    kind: Kind
    method: str
    epoch: float = math.nan
    late: bool = False


def embed(
    predictions: Any, rows: Sequence[Row], *, examples: int, perplexity: float = PERPLEXITY, seed: int = 0
) -> Embedding:
    """Return the embedding of networks with flattened predictions (n, D); the perplexity is at most a third of them."""
    vectors = np.asarray(predictions, dtype=float)
    if len(vectors) != len(rows) or len(rows) < 4:
        raise Misuse(f"{len(vectors)} predictions of {len(rows)} networks: need as many of each, and at least 4")
    perplexity = min(perplexity, (len(rows) - 1) / 3)
    positions = tsne(vectors, perplexity=perplexity, seed=seed)
    squared = squared_distances(vectors)
    runs, kinds, methods, epochs, late = zip(*map(astuple, rows), strict=True)
    apart = separation(squared, runs, kinds, late)
    on_map = separation(squared_distances(positions), runs, kinds, late)
    kl = kl_objective(squared, positions, perplexity)
    verdicts = map_verdicts(squared, rows, apart, on_map)
    return Embedding(positions, runs, kinds, methods, epochs, apart, on_map, kl, perplexity, examples, verdicts)


def embed_paths(
    networks: Networks,
    trajectory: Trajectory,
    data: Any,
    *,
    members: Sequence[int] = (0, 1, 2),
    samplers: Mapping[str, Mapping[str, Any]] | Sequence[str] = (),
    count: int = COUNT,
    examples: int = 500,
    perplexity: float = PERPLEXITY,
    val: Any = None,
    train: Any = None,
    seed: int = 0,
) -> Embedding:
    """Embed checkpoints of members, and samples around them, in one t-SNE map of their predictions.

    Args:
        networks: An ensemble, `Points`, or modules of one architecture.
        trajectory: Paths of the members.
        data: Labelled examples: a `Data` (its test split), a split, or a pair (x, y).
        members: Indices of the members.
        samplers: Names of `SAMPLERS`, or their settings by name.
        count: Samples of each sampler around each member.
        examples: Number of inputs whose predictions are compared.
        perplexity: Perplexity of t-SNE, at most a third of the number of networks.
        val: Labelled examples by whose accuracy random samples are accepted.
        train: Training examples for batch-norm statistics; needed by networks with batch-norm layers.
        seed: Random seed.

    Returns:
        Positions of all networks, and how far apart runs are in predictions and on the map.

    Raises:
        Misuse: If none of the members exists.
    """
    outputs, _ = labelled_outputs(networks, data, train)
    outputs, points = replace(outputs, x=outputs.x[:examples]), outputs.points
    settings_of = samplers if isinstance(samplers, Mapping) else {name: {} for name in samplers}
    rows: list[Row] = []
    predictions: list[Tensor] = []
    late = len(trajectory) - LATE
    for member in (index for index in members if index < len(points)):
        checkpoints = [Row(member, "path", "path", e, i >= late) for i, e in enumerate(trajectory.epochs)]
        placed: list[tuple[Iterable[Tensor], Iterable[Row]]] = [(trajectory.vectors(member), checkpoints)]
        around = neighbourhood(networks, trajectory, member, val=val, train=train, seed=seed)
        for name, settings in settings_of.items():
            samples = itertools.repeat(Row(member, "sample", name))
            placed.append((draw_vectors(around, name, count, **settings), samples))
        for vectors, rows_of_vectors in placed:
            for output, row in zip(outputs(vectors), rows_of_vectors, strict=False):
                likelihood = points.likelihood or Categorical(output.shape[-1])
                predictions.append(likelihood.probs(output).flatten())
                rows.append(row)
    if not rows:
        raise Misuse(f"members {list(members)} of {len(points)}: none of them exists")
    return embed(torch.stack(predictions), rows, examples=len(outputs.x), perplexity=perplexity, seed=seed)
