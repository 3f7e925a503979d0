"""Two-dimensional sections of a weight space: the radial plane through the origin and two optima (Fort et al. 2019).

The plane is spanned by e1 = θ1 / |θ1| and the part of θ2 orthogonal to it. Scores on a grid of the plane are exact;
trajectories and samples, which lie beside the plane, are projected onto it, with the relative length of what the
projection leaves out. With origin="anchor" the plane passes through three networks (Garipov et al. 2018).

`stitched_view` shows a path that no plane contains (figure S3): between the rays through two vertices lies a wedge of
the plane through both and the origin, and wedge after wedge is laid beside the one before it, so that rays are shared.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from murmuration.studies.cells import Arrays, Cells
from murmuration.studies.landscape import Array, Result, Show, digest, landscape_of, long_frame, silent
from murmuration.studies.similarity import normalised_diversity
from murmuration.studies.verdicts import Estimate, Verdict, estimate, jackknife_estimate, student
from murmuration.studies.weight_space import Networks, Points
from murmuration.system.errors import Misuse, unknown

Origin = Literal["zero", "anchor"]
ALIKE_ACCURACY, ALIKE_LOSS = 0.03, 0.1  # differences, of losses relative ones, that count as none
COLLINEAR = 1e-6  # of the length of the second anchor: an orthogonal part below this is rounding
Kind = Literal["anchors", "trajectory", "samples"]


class Checkpoints(Protocol):
    """The weights of members during their training, as `Trajectory` has them."""

    def vectors(self, member: int) -> Iterable[Tensor]: ...


@dataclass(frozen=True, eq=False)
class PlaneBasis:
    """An orthonormal basis of a plane in a weight space, in double precision."""

    e1: Tensor  # (P,)
    e2: Tensor  # (P,)
    centre: Tensor | None = None  # (P,), the point (0, 0); None: the origin of the weight space

    def point(self, x: float, y: float) -> Tensor:
        """Return the weight vector (P,) at coordinates of the plane, in single precision."""
        offset = x * self.e1 + y * self.e2
        return (offset if self.centre is None else offset + self.centre).float()

    def project(self, vector: Tensor) -> tuple[float, float, float]:
        """Return x and y of the projection of a vector (P,), and |vector - projection| / |vector|, from the centre."""
        offset = vector.double() if self.centre is None else vector.double() - self.centre
        x, y = float(offset @ self.e1), float(offset @ self.e2)
        length = float(offset.norm())
        beside = float((offset - x * self.e1 - y * self.e2).norm())
        return x, y, beside / length if length else 0.0


def plane_basis(first: Tensor, second: Tensor, centre: Tensor | None = None) -> PlaneBasis:
    """Compute an orthonormal basis of the plane through a centre and two vectors, by Gram and Schmidt.

    Args:
        first: Weight vector (P,); e1 points to it.
        second: Weight vector (P,).
        centre: Point (0, 0) of the plane, (P,); the origin of the weight space by default.

    Returns:
        The basis, in double precision.

    Raises:
        Misuse: If the three points lie on one line.

    >>> basis = plane_basis(torch.tensor([2.0, 0, 0]), torch.tensor([3.0, 4, 0]))
    >>> basis.project(torch.tensor([3.0, 4, 0]))
    (3.0, 4.0, 0.0)
    """
    middle = None if centre is None else centre.double()
    one, two = (vector.double() if middle is None else vector.double() - middle for vector in (first, second))
    if not one.norm():
        raise Misuse("the first network has the weights of the plane's centre: give another")
    e1 = one / one.norm()
    orthogonal = two - (two @ e1) * e1
    orthogonal = orthogonal - (orthogonal @ e1) * e1  # once more, for what rounding left
    if orthogonal.norm() <= COLLINEAR * two.norm():
        raise Misuse("the networks lie on one line with the plane's centre: give two that are not multiples")
    return PlaneBasis(e1, orthogonal / orthogonal.norm(), middle)


def grid_axis(values: Sequence[float], count: int, margin: float) -> Array:
    """Return `count` equally spaced coordinates that cover the values, with a margin in units of their range.

    >>> grid_axis([0.0, 10.0], 3, 0.2).tolist()
    [-2.0, 5.0, 12.0]
    """
    low, high = min(values), max(values)
    beside = margin * (high - low)
    return np.linspace(low - beside, high + beside, count)


@dataclass(frozen=True, eq=False)
class Overlay:
    """Networks on or beside the plane: their projections, and the scores of the networks themselves."""

    name: str
    kind: Kind
    x: Array  # (m,)
    y: Array  # (m,)
    residual: Array  # (m,), distance from the plane over the distance from its centre
    norm: Array  # (m,), length of the weight vector
    scores: Arrays  # loss (m,), accuracy (m,), agreement (R, m), ...


@dataclass(frozen=True, eq=False)
class Plane(Result):
    """Scores on a grid of a plane, and networks projected onto it."""

    origin: Origin
    names: tuple[str, ...]  # of the reference networks that agreement is with
    x: Array  # (G,)
    y: Array  # (G,)
    scores: Arrays  # loss (G, G), accuracy (G, G), agreement (R, G, G), ...: rows by y, columns by x
    anchors: Overlay  # the plane's centre and the reference networks
    overlays: tuple[Overlay, ...]  # trajectories and samples
    examples: int
    marks: Tensor  # (R, N) of `Landscape`
    growth: Array  # (m,) of every network with a trajectory: length of its weights over that at the first checkpoint

    @property
    def normalised_disagreement(self) -> Array:
        """D (R, G, G) of every point with every reference network, by the accuracy of the point."""
        return normalised_diversity(1 - self.scores["agreement"], self.scores["accuracy"])

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Claims of Fort et al. (2019) on the radial plane, with intervals over examples or runs."""
        verdicts = [similar_scores(self)]
        if self.origin == "zero":
            verdicts += [outward(self)] if len(self.growth) else []
            verdicts += [] if np.isnan(self.scores["agreement"]).all() else [agreement_regions(self)]
        return tuple(verdicts)

    def frame(self) -> pd.DataFrame:
        """Return one row per number.

        Kind ("grid", "anchors", "trajectory", "samples"), name, index, x, y, measure, value.
        """
        x, y = (overlay.ravel() for overlay in np.meshgrid(self.x, self.y))
        scores = self.scores | {"normalised_disagreement": self.normalised_disagreement}
        flat = {name: values.reshape(*values.shape[:-2], -1) for name, values in scores.items()}
        parts = [long_frame(flat, {"kind": "grid", "name": "", "index": np.arange(len(x)), "x": x, "y": y})]
        for group in (self.anchors, *self.overlays):
            places = {
                "kind": group.kind,
                "name": group.name,
                "index": np.arange(len(group.x)),
                "x": group.x,
                "y": group.y,
            }
            parts.append(long_frame(group.scores | {"residual": group.residual, "norm": group.norm}, places))
        return pd.concat(parts, ignore_index=True)


def plane(
    networks: Networks,
    examples: Any,
    *,
    train: Any = None,
    anchors: Sequence[int] = (0, 1),
    origin: Origin = "zero",
    grid: int = 21,
    margin: float = 0.2,
    trajectory: Checkpoints | None = None,
    samples: Mapping[str, Points | Iterable[Tensor]] | None = None,
    folder: Path | None = None,
    show: Show = silent,
) -> Plane:
    """Score a grid of the plane through networks: loss, accuracy and agreement.

    Args:
        networks: An ensemble, `Points`, or modules of one architecture.
        examples: Labelled test examples: a `Data`, a split, or a pair (x, y).
        train: Training examples; by default those of a `Data`.
        anchors: Indices of two networks, or of three with origin="anchor".
        origin: "zero": the plane passes through the origin of the weight space and two networks. "anchor": through
            three networks, the first of which is the point (0, 0).
        grid: Points of the grid on either axis.
        margin: Margin around the networks, as a fraction of their extent.
        trajectory: Checkpoints of the same networks; they are projected, and scored where they are.
        samples: Points or weight vectors (P,) by name, such as those of `sample_subspace`; treated alike.
        folder: Directory for finished parts, from which an interrupted computation resumes; None stores nothing.
        show: Progress callback `show(text, done, total)`.

    Returns:
        Scores on the grid, and the projected networks.

    Raises:
        Misuse: For a wrong number of anchors, or networks on one line with the centre.
    """
    if origin not in ("zero", "anchor"):
        raise unknown("origin", origin, ("zero", "anchor"))
    expected = 2 if origin == "zero" else 3
    if len(anchors) != expected:
        raise Misuse(f"{len(anchors)} anchors with origin='{origin}': expected the numbers of {expected} networks")
    if grid < 2 or margin < 0:
        raise Misuse(f"grid={grid}, margin={margin}: expected at least 2 points and a margin of at least 0")
    landscape = landscape_of(networks, examples, train=train, references=anchors)
    vectors = [landscape.points.vectors[member] for member in anchors]
    if origin == "zero":
        basis, corners = plane_basis(vectors[0], vectors[1]), [torch.zeros_like(vectors[0]), *vectors]
    else:
        basis, corners = plane_basis(vectors[1], vectors[2], centre=vectors[0]), vectors
    names = tuple(f"network {member}" for member in anchors)
    groups: list[tuple[str, Kind, Callable[[], Iterable[Tensor]]]] = [("anchors", "anchors", lambda: corners)]
    if trajectory is not None:
        groups += [(f"training of network {m}", "trajectory", partial(trajectory.vectors, m)) for m in anchors]
    for name, sampled in (samples or {}).items():
        rows = sampled.vectors if isinstance(sampled, Points) else sampled
        groups.append((name, "samples", partial(iter, list(rows) if isinstance(rows, Iterator) else rows)))
    groups = [group for group in groups if any(True for _ in group[2]())]
    places = [  # of every group: x, y, residual and norm (4, m)
        np.array([(*basis.project(v), float(v.double().norm())) for v in read()]).T for _, _, read in groups
    ]
    x, y = (grid_axis(values.tolist(), grid, margin) for values in places[0][:2])
    about = {
        "examples": landscape.digest(),
        "networks": digest(*vectors),
        "axes": [x.tolist(), y.tolist()],
        "groups": [[group[0], place.tolist()] for group, place in zip(groups, places, strict=True)],
    }
    cells, grid_rows, overlays, total = Cells(folder, about), [], [], grid + len(groups)
    for turn, height in enumerate(y):
        show(f"row {turn + 1}", turn, total)
        points = (basis.point(float(coordinate), height) for coordinate in x)
        grid_rows.append(cells(f"row-{turn}", partial(landscape, points)))
    for turn, ((name, kind, read), place) in enumerate(zip(groups, places, strict=True)):
        show(name, grid + turn, total)
        scores = cells(f"networks-{turn}", partial(landscape, read()))
        overlays.append(Overlay(name, kind, place[0], place[1], place[2], place[3], scores))
    show("", total, total)
    scores = {name: np.stack([row[name] for row in grid_rows], axis=-2) for name in grid_rows[0]}
    about_networks = len(landscape.test), landscape.marks, path_growth(landscape.points, trajectory)
    return Plane(origin, names, x, y, scores, overlays[0], tuple(overlays[1:]), *about_networks)


def path_growth(points: Points, trajectory: Checkpoints | None) -> Array:
    """Return the length of the weights (m,) of every network over that of its first checkpoint."""
    if trajectory is None:
        return np.empty(0)
    firsts = [next(iter(trajectory.vectors(member)), None) for member in range(len(points))]
    pairs = [(end, first) for end, first in zip(points.vectors, firsts, strict=True) if first is not None]
    return np.array([float(end.double().norm() / first.double().norm()) for end, first in pairs])


def similar_scores(plane: Plane) -> Verdict:
    """Return whether two networks have equal accuracies (or, of regressions, losses), paired over examples."""
    first = 1 if plane.origin == "zero" else 0
    one, two = plane.marks[:2].double().numpy()
    if math.isnan(plane.anchors.scores["accuracy"][first]):
        change = (two - one) / max(abs(float(one.mean())), np.finfo(float).tiny)
        apart = jackknife_estimate(
            "test loss, change from one to the other", lambda: change, {}, -ALIKE_LOSS, ALIKE_LOSS
        )
        return Verdict("similar loss", "different optima have similar losses", (apart,))
    accuracies = " and ".join(f"{value:.1%}" for value in plane.anchors.scores["accuracy"][first : first + 2])
    differ = 1 - float(plane.anchors.scores["agreement"][0][first + 1])
    note = f"accuracies {accuracies}; predictions differ for {differ:.1%} of the examples"
    apart = jackknife_estimate("accuracy, one less the other", lambda: one - two, {}, -ALIKE_ACCURACY, ALIKE_ACCURACY)
    return Verdict("similar accuracy", "different optima have similar accuracies", (apart,), note)


def outward(plane: Plane) -> Verdict:
    """Return whether the lengths of the weight vectors grow in training, and how near to the plane trajectories are."""
    trajectories = [overlay for overlay in plane.overlays if overlay.kind == "trajectory"]
    beside = max((overlay.residual[0] for overlay in trajectories), default=math.nan)
    note = f"up to {beside:.0%} of the first checkpoint's length is outside the plane"
    grown = estimate(
        "length at the end over that of the first checkpoint", plane.growth.tolist(), 1.0, math.inf, "runs"
    )
    return Verdict("radial", "training moves weights outward from the origin", (grown,), note)


def agreement_regions(plane: Plane) -> Verdict:
    """Return whether the points of the plane in the direction of one network agree with it more than with the other.

    A point belongs to the network whose direction from the origin is nearer; points nearer to the origin than a quarter
    of the networks' length are left out. An example counts only if the networks differ on it, and by at most 1: the
    interval is that of the largest variance these leave.
    """
    x, y = np.meshgrid(plane.x, plane.y)
    ends = np.stack([plane.anchors.x[1:], plane.anchors.y[1:]], 1)
    length = np.hypot(x, y)
    cosines = np.stack([(x * a + y * b) / np.hypot(a, b) for a, b in ends]) / np.where(length > 0, length, 1)
    away = (length > np.hypot(*ends.T).min() / 4) & (cosines.max(0) > math.sqrt(0.5))
    apart = 1 - float(plane.anchors.scores["agreement"][0][2])
    estimates, agreement = [], plane.scores["agreement"]
    for own, other in ((0, 1), (1, 0)):
        region = away & (cosines.argmax(0) == own)
        means = [float(agreement[network][region].mean()) for network in (own, other)]
        gap = means[0] - means[1]
        half = student(plane.examples - 1) * math.sqrt(max(apart - gap**2, 0.0) / plane.examples)
        first, second = plane.names[own], plane.names[other]
        what = f"towards {first}, agreement with it ({means[0]:.1%}) less that with {second} ({means[1]:.1%})"
        estimates.append(Estimate(what, gap, gap - half, gap + half, 0.0, math.inf, f"{plane.examples:,} examples"))
    claim = "the plane around each optimum agrees with it and not with the other"
    return Verdict("own directions", claim, tuple(estimates))


@dataclass(frozen=True, eq=False)
class StitchedView(Result):
    """Scores on rays from the origin, in polar coordinates of the stitched wedges."""

    angle: Array  # (A,), of every ray, from 0 at the first vertex to the sum of the angles between consecutive ones
    radius: Array  # (R,)
    scores: Arrays  # loss (A, R), accuracy (A, R), agreement (2, A, R), ...
    vertex_angle: Array  # (V,)
    vertex_radius: Array  # (V,), lengths of the vertices
    vertices: Arrays  # scores (V,) of the vertices themselves
    DERIVED: ClassVar[tuple[str, ...]] = ("scale",)

    @property
    def scale(self) -> float:
        """The factor by which angles are drawn: 1, unless together they exceed a full turn."""
        return min(1.0, 2 * math.pi / self.angle[-1])

    def frame(self) -> pd.DataFrame:
        """Return one row per number: kind ("grid" or "vertex"), angle, radius, measure, value."""
        angle, radius = (grid.ravel() for grid in np.meshgrid(self.angle, self.radius, indexing="ij"))
        flat = {name: values.reshape(*values.shape[:-2], -1) for name, values in self.scores.items()}
        rays = long_frame(flat, {"kind": "grid", "angle": angle, "radius": radius})
        places = {"kind": "vertex", "angle": self.vertex_angle, "radius": self.vertex_radius}
        return pd.concat([rays, long_frame(self.vertices, places)], ignore_index=True)


def wedge_directions(first: Tensor, second: Tensor, steps: int) -> tuple[float, list[Tensor]]:
    """Return the angle of two vectors (P,), and unit vectors (P,) at `steps` + 1 equal steps between them."""
    one, two = (vector.double() / vector.double().norm() for vector in (first, second))
    basis = plane_basis(one, two)
    x, y, _ = basis.project(two)
    angle = math.atan2(y, x)
    turns = [angle * turn / steps for turn in range(1, steps)]
    between = [math.cos(turn) * basis.e1 + math.sin(turn) * basis.e2 for turn in turns]
    return angle, [one, *between, two]  # the ends are the vertices' own directions, so that seams are shared


def stitched_view(
    networks: Networks,
    examples: Any,
    vertices: Tensor,
    *,
    train: Any = None,
    ends: tuple[int, int] = (0, 1),
    angles: int = 36,
    radii: int = 13,
    margin: float = 0.2,
    folder: Path | None = None,
    show: Show = silent,
) -> StitchedView:
    """Score the wedges between consecutive vertices of a path.

    Args:
        networks: An ensemble, `Points`, or modules of one architecture.
        examples: Labelled test examples: a `Data`, a split, or a pair (x, y).
        vertices: Weight vectors (V, P), such as `Paths.tunnel`.
        train: Training examples; by default those of a `Data`.
        ends: Indices of the networks that agreement is with.
        angles: About how many rays are divided among the wedges, by their angles.
        radii: Points of every ray, from the origin to beyond the longest vertex.
        margin: How far beyond, as a fraction of its length.
        folder: Directory for finished parts, from which an interrupted computation resumes; None stores nothing.
        show: Progress callback `show(text, done, total)`.

    Returns:
        Scores on the rays and at the vertices.
    """
    if len(vertices) < 2 or angles < 1 or radii < 2:
        raise Misuse(
            f"{len(vertices)} vertices, angles={angles}, radii={radii}: expected two vertices, one angle and two radii"
        )
    landscape = landscape_of(networks, examples, train=train, references=ends)
    rough = [wedge_directions(start, end, 1)[0] for start, end in pairwise(vertices)]
    steps = [max(1, round(angles * angle / sum(rough))) for angle in rough]
    lengths = vertices.double().norm(dim=1)
    radius = np.linspace(0, (1 + margin) * float(lengths.max()), radii)
    about = {"examples": landscape.digest(), "networks": digest(vertices, landscape.references)}
    cells = Cells(folder, about | {"steps": steps, "radius": radius.tolist()})
    rays: list[Arrays] = []
    places, vertex_angle = [], [0.0]
    for turn, ((start, end), count) in enumerate(zip(pairwise(vertices), steps, strict=True)):
        angle_between, directions = wedge_directions(start, end, count)
        for step, direction in enumerate(directions if turn == len(steps) - 1 else directions[:-1]):
            show(f"wedge {turn + 1}", len(rays), sum(steps) + 1)
            points = ((distance * direction).float() for distance in radius.tolist())
            rays.append(cells(f"ray-{len(rays)}", partial(landscape, points)))
            places.append(vertex_angle[-1] + angle_between * step / count)
        vertex_angle.append(vertex_angle[-1] + angle_between)
    scores = {name: np.stack([ray[name] for ray in rays], axis=-2) for name in rays[0]}
    vertex_scores = cells("vertices", partial(landscape, vertices))
    show("", sum(steps) + 1, sum(steps) + 1)
    return StitchedView(np.array(places), radius, scores, np.array(vertex_angle), lengths.numpy(), vertex_scores)
