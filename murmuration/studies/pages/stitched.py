"""The page on the stitched view of a path: wedges between consecutive vertices, side by side around the origin."""

import numpy as np

from murmuration.reports.figures import Figure
from murmuration.reports.formatting import number, percent
from murmuration.reports.html import Markup, figure, grid, join, section, table
from murmuration.studies.landscape import Array
from murmuration.studies.pages.maps import LABELS, MAP_HEIGHT, contour, equal_axes, label_at, marked, upper_colour
from murmuration.studies.stitching import StitchedView

PIXELS = 161  # of a map, along the longer axis


def stitched_sections(found: StitchedView) -> Markup:
    """Return the sections of the page on one stitched view."""
    return join([verdict(found), maps_section(found), vertices_section(found)])


def verdict(found: StitchedView) -> Markup:
    """Return what the vertices have in common and what not, in two sentences."""
    score = "accuracy" if np.isfinite(found.vertices["accuracy"]).all() else "loss"
    write = percent if score == "accuracy" else number
    low, high = (write(float(end(found.vertices[score]))) for end in (np.min, np.max))
    words = f"Along the vertices of the path the {LABELS[score]} stays between {low} and {high}."
    if score == "accuracy":
        first, last = found.vertices["agreement"]
        words += (
            f" Agreement with the first network falls from 100 % to {percent(float(first[-1]))}, agreement with the "
            f"last rises from {percent(float(last[0]))} to 100 %."
        )
    reading = (
        "Every wedge is a plane through the origin and two consecutive vertices of the path; neighbouring wedges share "
        "a ray, on which their values coincide. Radius and angle are those of weight space."
    )
    return section("wedges", "What the wedges show", reading, Markup(f'<p class="lead">{words}</p>'))


def stitched_figures(view: StitchedView) -> dict[str, Figure]:
    """Return all maps of the wedges by the score they show; agreement_0 is agreement with the first network."""
    classifies = bool(np.isfinite(view.scores["accuracy"]).any())
    names = ["accuracy" if classifies else "loss", *(["train_loss"] if "train_loss" in view.scores else [])]
    ends = (0, 1) if classifies else ()
    maps = {name: score_map(view, name) for name in names}
    return maps | {f"agreement_{end}": agreement_map(view, end) for end in ends}


def maps_section(view: StitchedView) -> Markup:
    reading = (
        "Dark is better, or more alike. Where accuracy is high all along the vertices and agreement with one end is "
        "not, the path connects different functions."
    )
    maps = grid(map(figure, stitched_figures(view).values()))
    return section("maps", "Accuracy, loss and agreement", reading, maps)


def score_map(found: StitchedView, name: str) -> Figure:
    """Return accuracy or loss over the wedges."""
    share = name.endswith("accuracy")
    high = 1.0 if share else upper_colour(found.scores[name])
    return _map(found, name, LABELS[name], found.scores[name], high, share, reverse=not share)


def agreement_map(found: StitchedView, end: int) -> Figure:
    """Return agreement with one end of the path over the wedges."""
    label = f"agreement with the {('first', 'last')[end]} network"
    return _map(found, f"agreement-{end}", label, found.scores["agreement"][end], 1.0, True)


def _map(
    view: StitchedView, name: str, label: str, values: Array, high: float, share: bool, reverse: bool = False
) -> Figure:
    x, y, cells = cartesian(view, values)
    trace = contour(x, y, cells, high=high, label=label, percent=share, reverse=reverse)
    across, up = (view.vertex_radius * f(view.scale * view.vertex_angle) for f in (np.cos, np.sin))
    way = marked("lines+markers", across, up, "vertices of the path", "var(--series-2)", size=6)
    notes = [label_at(0.0, 0.0, "origin"), label_at(across[0], up[0], "first"), label_at(across[-1], up[-1], "last")]
    look = equal_axes("radius · cos(angle)", "radius · sin(angle)") | {"annotations": notes}
    wedges, write = len(view.vertex_angle) - 1, percent if share else number
    label_text = f"{label} over {wedges} wedges, from {write(float(values.min()))} to {write(float(values.max()))}"
    return Figure(
        f"stitched-{name.replace('_', '-')}", label.capitalize(), label_text, [trace, way], look, MAP_HEIGHT - 50
    )


def cartesian(found: StitchedView, values: Array) -> tuple[Array, Array, Array]:
    """Return values (A, R) on rays as values (H, W) on a cartesian grid, bilinear in angle and radius; NaN outside.

    Angles are those of the drawing: all wedges together at most a full turn.
    """
    from scipy.ndimage import map_coordinates

    angle, reach = found.scale * found.angle, float(found.radius[-1])
    rim = np.linspace(0, angle[-1], 360)
    spans = [np.array([0, *(reach * f(rim))]) for f in (np.cos, np.sin)]
    step = max(float(np.ptp(span)) for span in spans) / (PIXELS - 1)
    x, y = (np.arange(span.min(), span.max() + step / 2, step) for span in spans)
    across, up = np.meshgrid(x, y)
    turn, distance = np.arctan2(up, across) % (2 * np.pi), np.hypot(across, up)
    row = np.interp(turn, angle, np.arange(len(angle)))
    column = np.clip(distance / reach, 0, 1) * (len(found.radius) - 1)
    mixed = map_coordinates(values, [row, column], order=1, mode="nearest")
    return x, y, np.where((distance <= reach) & (turn <= angle[-1]), mixed, np.nan)


def vertices_section(found: StitchedView) -> Markup:
    """Return a table of the vertices."""
    columns = ["Vertex", "Angle", "Length", "Accuracy", "Loss", "Agrees with first", "with last"]
    rows = []
    for place, (angle, length) in enumerate(zip(found.vertex_angle, found.vertex_radius, strict=True)):
        scores = found.vertices
        cells = [f"{np.degrees(angle):.1f}°", number(length), percent(scores["accuracy"][place])]
        cells += [number(scores["loss"][place]), *(percent(row[place]) for row in scores["agreement"])]
        rows.append((f"{place}", cells))
    note = "" if found.scale == 1 else f" Angles are drawn {number(found.scale)} times as large, to fit a full turn."
    reading = f"Angles are sums of angles between consecutive vertices.{note}"
    return section("vertices", "Vertices", reading, table("Vertices of the path", columns, rows))
