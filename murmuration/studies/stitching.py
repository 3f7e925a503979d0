"""Planes through the origin and consecutive vertices of a path, stitched together (Fort et al. 2019, figure S3).

Between the rays through two vertices lies a wedge of the plane through both and the origin. Wedge after wedge is laid
beside the one before it, so that the ray through a vertex is shared: one figure shows the whole path although no
plane contains it.
"""

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from torch import Tensor

from murmuration.studies.cells import Arrays, Cells
from murmuration.studies.landscape import Array, Result, Show, digest, landscape_of, long_frame, silent
from murmuration.studies.planes import plane_basis
from murmuration.studies.weight_space import Networks
from murmuration.system.errors import Misuse


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
