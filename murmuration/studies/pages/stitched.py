"""The page on the stitched view of a path: wedges between consecutive vertices, side by side around the origin."""

import numpy as np

from murmuration.reports.figures import Figure
from murmuration.reports.formatting import number, percent
from murmuration.reports.html import Markup, figure, grid, join, section, table
from murmuration.studies.landscape import Array
from murmuration.studies.pages.maps import LABELS, MAP_HEIGHT, contour, equal_axes, label_at, marked, upper_colour
from murmuration.studies.planes import StitchedView

PIXELS = 161  # of a map, along the longer axis


def stitched_sections(view: StitchedView) -> Markup:
    """Return what the vertices have in common and what not in two sentences, the maps and a table of the vertices."""
    scores = view.vertices
    score = "accuracy" if np.isfinite(scores["accuracy"]).all() else "loss"
    write = percent if score == "accuracy" else number
    low, high = (write(float(end(scores[score]))) for end in (np.min, np.max))
    words = f"Along the vertices of the path the {LABELS[score]} stays between {low} and {high}."
    if score == "accuracy":
        first, last = scores["agreement"]
        words += (
            f" Agreement with the first network falls from 100 % to {percent(float(first[-1]))}, agreement with the "
            f"last rises from {percent(float(last[0]))} to 100 %."
        )
    reading = (
        "Every wedge is a plane through the origin and two consecutive vertices of the path; neighbouring wedges share "
        "a ray, on which their values coincide. Radius and angle are those of weight space."
    )
    colours = (
        "Dark is better, or more alike. Where accuracy is high all along the vertices and agreement with one end is "
        "not, the path connects different functions."
    )
    columns = ["Vertex", "Angle", "Length", "Accuracy", "Loss", "Agrees with first", "with last"]
    rows = []
    for place, (angle, length) in enumerate(zip(view.vertex_angle, view.vertex_radius, strict=True)):
        cells = [f"{np.degrees(angle):.1f}°", number(length), percent(scores["accuracy"][place])]
        cells += [number(scores["loss"][place]), *(percent(row[place]) for row in scores["agreement"])]
        rows.append((f"{place}", cells))
    note = "" if view.scale == 1 else f" Angles are drawn {number(view.scale)} times as large, to fit a full turn."
    angles = f"Angles are sums of angles between consecutive vertices.{note}"
    parts = [
        section("wedges", "What the wedges show", reading, Markup(f'<p class="lead">{words}</p>')),
        section("maps", "Accuracy, loss and agreement", colours, grid(map(figure, stitched_figures(view).values()))),
        section("vertices", "Vertices", angles, table("Vertices of the path", columns, rows)),
    ]
    return join(parts)


def stitched_figures(view: StitchedView) -> dict[str, Figure]:
    """Return all maps of the wedges by the score they show; agreement_0 is agreement with the first network."""
    classifies = bool(np.isfinite(view.scores["accuracy"]).any())
    names = ["accuracy" if classifies else "loss", *(["train_loss"] if "train_loss" in view.scores else [])]
    maps = {name: wedges_map(view, name, LABELS[name], view.scores[name]) for name in names}
    for end, word in enumerate(("first", "last") if classifies else ()):
        label, values = f"agreement with the {word} network", view.scores["agreement"][end]
        maps[f"agreement_{end}"] = wedges_map(view, f"agreement-{end}", label, values)
    return maps


def wedges_map(view: StitchedView, name: str, label: str, values: Array) -> Figure:
    """Return accuracy, loss or agreement over the wedges."""
    reverse = name.endswith("loss")
    share, high = not reverse, upper_colour(values) if reverse else 1.0
    x, y, cells = cartesian(view, values)
    trace = contour(x, y, cells, high=high, label=label, percent=share, reverse=reverse)
    across, up = (view.vertex_radius * f(view.scale * view.vertex_angle) for f in (np.cos, np.sin))
    way = marked("lines+markers", across, up, "vertices of the path", "var(--series-2)", size=6)
    notes = [label_at(0.0, 0.0, "origin"), label_at(across[0], up[0], "first"), label_at(across[-1], up[-1], "last")]
    look = equal_axes("radius · cos(angle)", "radius · sin(angle)") | {"annotations": notes}
    wedges, write = len(view.vertex_angle) - 1, percent if share else number
    label_text = f"{label} over {wedges} wedges, from {write(float(values.min()))} to {write(float(values.max()))}"
    identifier, height = f"stitched-{name.replace('_', '-')}", MAP_HEIGHT - 50
    return Figure(identifier, label.capitalize(), label_text, [trace, way], look, height)


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
