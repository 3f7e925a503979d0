"""Paths between two trained networks: straight lines, tunnels of low loss and curves, with scores along them.

Along a path the loss is compared with the line between the losses of its ends: what exceeds it is the barrier. Low loss
along a path does not make its networks alike, so agreement with both ends is scored too (Fort et al. 2019).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import murmuration.studies.connectors as connectors
from murmuration.studies.alignment import align
from murmuration.studies.cells import Arrays, Cells
from murmuration.studies.landscape import Array, Result, Show, digest, landscape_of, long_frame, silent
from murmuration.studies.verdicts import Estimate, Verdict, jackknife_estimate
from murmuration.studies.weight_space import Networks
from murmuration.system.errors import Misuse, unknown
from murmuration.system.records import plain_json

PATHS = ("linear", "aligned", "tunnel", "bezier", "polygon")
DEFAULT = ("linear", "tunnel", "bezier")
LINEAR, PER_SEGMENT, CURVE = 25, 10, 61  # points at which paths are scored
TOLERANCE = 0.05  # of the linear barrier: the excess of a segment of a tunnel up to which it is not refined
SMALLEST_BARRIER = 1e-3  # the same as a loss, for ends between which there is no barrier
LOW = 0.2  # of the linear barrier: a connection below this is of low loss


@dataclass(frozen=True)
class Barrier:
    """How far the loss rises along a path."""

    excess: float  # max over the path of the loss above the line between the losses of the ends
    rise: float  # max over the path - loss of the worse end
    accuracy_drop: float  # accuracy of the worse end - min over the path; NaN of a regression
    at: float  # fraction of the path's length at which the excess is largest


@dataclass(frozen=True, eq=False)
class ScoredPath:
    """Scores along a path, from its first end to its last."""

    name: str
    length: Array  # (n,), of the path up to each point
    norm: Array  # (n,), length of the weight vector
    scores: Arrays  # loss (n,), accuracy (n,), agreement (2, n), train_loss (n,), train_accuracy (n,)
    vertices: tuple[int, ...] = ()  # points that are vertices of a chain, both ends included
    excess: Array = field(default_factory=lambda: np.empty(0))  # (N',) of `Landscape.along`

    @property
    def fraction(self) -> Array:
        """The fraction (n,) of the path's length up to each point; equal steps where it has none."""
        total = self.length[-1]
        return self.length / total if total else np.linspace(0, 1, len(self.length))

    @property
    def measure(self) -> str:
        """The loss that barriers are of: that of training examples where they were given."""
        return "train_loss" if "train_loss" in self.scores else "loss"

    @property
    def split(self) -> str:
        """The examples that this loss is a mean over."""
        return "training" if self.measure == "train_loss" else "test"

    def barrier(self, measure: str | None = None) -> Barrier:
        """Return the barrier of "train_loss" or "loss" (of test examples)."""
        name = measure or self.measure
        accuracy = self.scores["train_accuracy" if name == "train_loss" else "accuracy"]
        return barrier(self.fraction, self.scores[name], accuracy)

    def to_json(self) -> dict[str, Any]:
        barriers = {"barrier": self.barrier(), "test_barrier": self.barrier("loss")}
        kept = {name: value for name, value in vars(self).items() if name != "excess"}
        return plain_json(kept | barriers | {"summary": self.summary()})

    def summary(self) -> dict[str, float]:
        """Return lowest, highest, mean, and mean over the length, of every score along the path."""
        steps = np.diff(self.length)
        summary: dict[str, float] = {}
        for name, values in self.scores.items():
            if values.ndim == 1:
                middles = (values[1:] + values[:-1]) / 2
                by_length = np.average(middles, weights=steps) if steps.sum() else values.mean()
                ends = {"min": values.min(), "max": values.max(), "mean": values.mean(), "by_length": by_length}
                summary |= {f"{name}_{end}": float(value) for end, value in ends.items()}
        return summary


def barrier(fraction: Array, loss: Array, accuracy: Array | None = None) -> Barrier:
    """Compute how far losses along a path rise above the line between the losses of its ends.

    Args:
        fraction: Fractions (n,) of the path's length.
        loss: Losses (n,).
        accuracy: Accuracies (n,), or None.

    Returns:
        The barrier.

    >>> barrier(np.array([0, 0.5, 1]), np.array([1.0, 3.0, 2.0]))
    Barrier(excess=1.5, rise=1.0, accuracy_drop=nan, at=0.5)
    """
    excess = loss - (loss[0] + fraction * (loss[-1] - loss[0]))
    highest = int(excess.argmax())
    drop = math.nan if accuracy is None else float(min(accuracy[0], accuracy[-1]) - accuracy.min())
    rise = float(loss.max() - max(loss[0], loss[-1]))
    return Barrier(float(excess[highest]), rise, drop, float(fraction[highest]))


@dataclass(frozen=True, eq=False)
class Paths(Result):
    """Paths between two networks."""

    ends: tuple[int, int]  # numbers of the networks
    distance: float  # |θ1 - θ2|
    cosine: float  # of the weight vectors
    paths: tuple[ScoredPath, ...]
    examples: int  # test examples
    settings: dict[str, Any] = field(default_factory=dict)
    ordered: bool = True  # whether the nodes of the tunnel advance along the straight line
    tunnel: Tensor | None = None  # (V, P), vertices of the tunnel

    def __getitem__(self, name: str) -> ScoredPath:
        for path in self.paths:
            if path.name == name:
                return path
        raise unknown("path", name, [path.name for path in self.paths])

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Claims of Fort et al. (2019) on paths between optima, with intervals over examples."""
        named = {path.name: path for path in self.paths}
        linear = named.get("linear")
        verdicts = [] if linear is None else [linear_verdict(linear)]
        for name, path in named.items():
            if name != "linear" and linear is not None:
                verdicts.append(connection_verdict(path, linear))
            if name not in ("linear", "aligned") and not np.isnan(path.scores["agreement"]).all():
                verdicts.append(function_verdict(path, self.examples))
        return tuple(verdicts)

    def frame(self) -> pd.DataFrame:
        """Return one row per number: path, index, fraction, vertex, measure, value."""
        parts = []
        for path in self.paths:
            index = np.arange(len(path.length))
            places = {"path": path.name, "index": index, "fraction": path.fraction}
            places["vertex"] = np.isin(index, path.vertices)
            parts.append(long_frame(path.scores | {"length": path.length, "norm": path.norm}, places))
        return pd.concat(parts, ignore_index=True)


def linear_verdict(path: ScoredPath) -> Verdict:
    """Return whether the straight line between the networks has a barrier."""
    drop = path.barrier().accuracy_drop
    note = "" if math.isnan(drop) else f"the accuracy falls by {drop:.1%}"
    rise = path_estimate(
        f"{path.split} loss above the line between the ends", path.excess, SMALLEST_BARRIER, math.inf, path
    )
    return Verdict("barrier", "the straight line between optima has a barrier", (rise,), note)


def connection_verdict(path: ScoredPath, linear: ScoredPath) -> Verdict:
    """Return whether a path has a barrier below a fifth of that of the straight line, on the same examples."""
    excess, straight = path.barrier().excess, linear.barrier().excess
    longer = path.length[-1] / linear.length[-1] if linear.length[-1] else 1.0
    share = f"{excess / straight:.0%} of" if straight > 0 else "beside"
    note = f"barrier {excess:.3g}, {share} the straight line's {straight:.3g}; path {longer:.2f} times as long"
    allowed = LOW * linear.excess if LOW * straight > SMALLEST_BARRIER else SMALLEST_BARRIER
    what = f"barrier less {LOW:g} times the straight line's" if LOW * straight > SMALLEST_BARRIER else "barrier"
    below = path_estimate(what, path.excess - allowed, -math.inf, 0.0, path)
    return Verdict(path.name, f"the {path.name} path connects the optima at low loss", (below,), note)


def path_estimate(what: str, values: Array, least: float, most: float, path: ScoredPath) -> Estimate:
    """Return the mean of values (N',) of the examples that the barriers of a path are of, with its interval."""
    return jackknife_estimate(what, lambda: values, {}, least, most, f"{path.split} examples")


def function_verdict(path: ScoredPath, examples: int) -> Verdict:
    """Return whether the ends of a path are different functions, and how predictions change along it."""
    first, last = path.scores["agreement"]
    middle, apart = int(np.abs(path.fraction - 0.5).argmin()), round(examples * (1 - float(first[-1])))
    differs = np.arange(examples) < apart
    note = (
        f"agreement with the first network goes from 100.0% to {first[middle]:.1%} halfway and {first[-1]:.1%} at the "
        f"end, agreement with the second from {last[0]:.1%} to {last[middle]:.1%} and 100.0%"
    )
    changed = jackknife_estimate("share of examples on which the ends differ", lambda: differs, {}, 0.0, math.inf)
    claim = f"predictions change along the {path.name} path"
    return Verdict(f"functions along the {path.name}", claim, (changed,), note)


def straight(first: Tensor, last: Tensor, points: int) -> Iterator[Tensor]:
    """Yield vectors at equal distances from one end to the other, both ends to the last bit."""
    for t in np.linspace(0, 1, points).tolist():
        yield torch.lerp(first, last, t)


def chain(vertices: Sequence[Tensor], per_segment: int) -> Iterator[Tensor]:
    """Yield vectors along straight segments between vertices, `per_segment` steps in each."""
    for start, end in pairwise(vertices):
        yield from islice(straight(start, end, per_segment + 1), per_segment)
    yield vertices[-1]


def paths_between(
    networks: Networks,
    examples: Any,
    *,
    train: Any = None,
    ends: tuple[int, int] = (0, 1),
    paths: Sequence[str] = DEFAULT,
    nodes: int = 7,
    mode: connectors.Mode = "orthogonal",
    depth: int = 2,
    steps: int = 300,
    lr: float = 1e-3,
    curve_steps: int = 1000,
    curve_lr: float = 0.02,
    weight_decay: float = 0.0,
    batch_size: int = 128,
    dropout: bool = False,
    seed: int = 0,
    folder: Path | None = None,
    show: Show = silent,
) -> Paths:
    """Connect two networks by paths of the kinds in `PATHS`, and score them.

    "linear" is the straight line; "aligned" the straight line to the second network with its hidden units permuted to
    match those of the first (`alignment.align`). "tunnel" is a chain of optimised nodes (`connectors.tunnel_nodes`);
    "bezier" and "polygon" are trained curves of one bend (`connectors.train_curve`). These three need
    training examples.

    Args:
        networks: An ensemble, `Points`, or modules of one architecture.
        examples: Labelled test examples: a `Data`, a split, or a pair (x, y).
        train: Training examples; by default those of a `Data`.
        ends: Indices of the two networks.
        paths: Kinds of paths.
        nodes: Nodes of the tunnel before refinement.
        mode: "orthogonal" nodes keep their place along the line, "free" nodes move anywhere.
        depth: How often a segment of the tunnel may be halved.
        steps: Steps of Adam for every node.
        lr: Learning rate of the nodes.
        curve_steps: Steps of SGD for a curve.
        curve_lr: Learning rate of the curves.
        weight_decay: Weight decay of the curves.
        batch_size: Mini-batch size of nodes and curves.
        dropout: Whether gradients are computed with dropout.
        seed: Random seed.
        folder: Directory for finished parts, from which an interrupted computation resumes; None stores nothing.
        show: Progress callback `show(text, done, total)`.

    Returns:
        The scored paths, with the vertices of the tunnel.

    Raises:
        Misuse: For an unknown kind of path, or an optimised path without training examples.
    """
    for name in paths:
        if name not in PATHS:
            raise unknown("path", name, PATHS)
    landscape = landscape_of(networks, examples, train=train, references=ends)
    first, last = (landscape.points.vectors[member] for member in ends)
    settings = {"nodes": nodes, "mode": mode, "depth": depth, "steps": steps, "lr": lr, "curve_steps": curve_steps}
    settings |= {"curve_lr": curve_lr, "weight_decay": weight_decay, "batch_size": batch_size, "dropout": dropout}
    settings |= {"seed": seed}
    about = {"examples": landscape.digest(), "networks": digest(first, last), "settings": settings}
    about["excess"] = "by example"
    cells, vertices = Cells(folder, about), list[connectors.Node]()

    def scored(name: str, vectors: Iterable[Tensor], marks: Iterable[int] = ()) -> ScoredPath:
        """Return the scores of a path, which are a cell."""
        show(f"scores of the {name} path", 0, 1)
        scores = dict(cells(f"path-{name}", partial(landscape.along, vectors)))
        show("", 1, 1)
        length, norm, excess = (scores.pop(name) for name in ("length", "norm", "excess"))
        return ScoredPath(name, length, norm, scores, tuple(marks), excess)

    def optimised(name: Any) -> ScoredPath:
        """Return the scores of the tunnel, or of a kind of curve."""
        if landscape.train is None:
            raise Misuse("tunnels and curves are optimised on training examples: give train=(x, y), or a Data")
        objective = connectors.TrainingLoss(landscape.points, landscape.train, batch_size, seed, dropout)
        common: dict[str, Any] = {"cells": cells, "show": show}
        if name != "tunnel":
            common |= {"weight_decay": weight_decay, "seed": seed}
            common |= {"kind": name, "steps": curve_steps, "lr": curve_lr}
            control = connectors.train_curve(first, last, objective, **common)
            return scored(name, (connectors.curve_point(control, name, t) for t in np.linspace(0, 1, CURVE).tolist()))
        rise = scored("linear", straight(first, last, LINEAR)).barrier("train_loss").excess
        common |= {"settings": connectors.Descent(steps, lr), "tolerance": max(TOLERANCE * rise, SMALLEST_BARRIER)}
        common |= {"nodes": nodes, "mode": mode, "depth": depth}
        vertices[:] = connectors.tunnel_nodes(first, last, objective, **common)
        marks = range(0, PER_SEGMENT * (len(vertices) - 1) + 1, PER_SEGMENT)
        return scored(name, chain([node.vector for node in vertices], PER_SEGMENT), marks)

    scored_paths = []
    for name in paths:
        if name not in ("linear", "aligned"):
            scored_paths.append(optimised(name))
            continue
        pair = replace(landscape.points[[0, 0]], vectors=torch.stack([first, last]))
        end = last if name == "linear" else align(pair).points.vectors[0]
        scored_paths.append(scored(name, straight(first, end, LINEAR)))
    one, two = first.double(), last.double()
    cosine, distance = float(one @ two / (one.norm() * two.norm())), float((one - two).norm())
    tunnel = torch.stack([node.vector for node in vertices]) if vertices else None
    ordered = connectors.in_order(vertices) if vertices else True
    return Paths(ends, distance, cosine, tuple(scored_paths), len(landscape.test), settings, ordered, tunnel)
