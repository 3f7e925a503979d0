"""The page on a plane of a weight space: accuracy, loss and agreement, with trajectories and samples."""

from typing import Any

import numpy as np

from murmuration.reports.figures import Figure, colour, symbol, thin
from murmuration.reports.formatting import number, percent
from murmuration.reports.html import Markup, details, figure, grid, join, section, table
from murmuration.studies.pages.maps import (
    LABELS,
    MAP_HEIGHT,
    contour,
    equal_axes,
    label_at,
    marked,
    upper_colour,
    verdict_section,
)
from murmuration.studies.planes import Overlay, Plane

MOST = 60  # points of a trajectory or of samples that are drawn
INKS = (1, 2, 3, 4, 6)  # places of the palette that are not the blue of the maps
HOVER = "%{customdata[0]}: loss %{customdata[1]:.3g}, accuracy %{customdata[2]:.1%}, %{customdata[3]:.0%} outside"


def plane_sections(record: Plane) -> Markup:
    """Return the sections of the page on one plane."""
    through = "the origin of the weight space and two networks" if record.origin == "zero" else "three networks"
    reading = f"The plane contains {through}. Distances are Euclidean, in units of the weights."
    colours = (
        "Dark is better. Colours are exact on the plane. Trajectories and samples lie beside it and are projected onto "
        "it; how far beside is in the table of networks."
    )
    agreeing = (
        "The fraction of test examples for which a point of the plane predicts the same class as a trained network. "
        "Two networks are different functions where the regions that agree with them are different."
    )
    differing = (
        "Disagreement divided by the error rate of the point: 0 for the same predictions, about 1 where a point "
        "differs from the network as often as it errs."
    )
    maps = {name: figure(drawing) for name, drawing in plane_figures(record).items()}
    scores = [drawing for name, drawing in maps.items() if name in LABELS]
    agreement = grid(drawing for name, drawing in maps.items() if name.startswith("agreement"))
    disagreement = grid(drawing for name, drawing in maps.items() if name.startswith("normalised"))
    more = details("More scores", grid(scores[2:]))
    parts = [
        verdict_section(record.verdicts, "What the plane shows", reading),
        section("scores", "Accuracy and loss", colours, join([grid(scores[:2]), more])),
        section("agreement", "Agreement with each network", agreeing, agreement),
        section("disagreement", "Normalised disagreement", differing, details("Maps", disagreement)),
        networks_section(record),
    ]
    return join(parts)


def plane_figures(record: Plane) -> dict[str, Figure]:
    """Return all maps of a plane by the score they show; agreement_0 is agreement with the first network."""
    names = [name for name in ("accuracy", "train_loss", "loss", "train_accuracy") if drawable(record, name)]
    maps = {name: score_map(record, name) for name in names}
    if drawable(record, "agreement"):
        maps |= {f"agreement_{turn}": agreement_map(record, turn) for turn in range(len(record.names))}
        maps |= {f"normalised_disagreement_{turn}": disagreement_map(record, turn) for turn in range(len(record.names))}
    return maps


def drawable(found: Plane, name: str) -> bool:
    return name in found.scores and bool(np.isfinite(found.scores[name]).any())


def score_map(record: Plane, name: str) -> Figure:
    """Return accuracy or loss on the plane; the colours of a loss end at its upper quartile."""
    values, share = record.scores[name], name.endswith("accuracy")
    high = 1.0 if share else upper_colour(values)
    trace = contour(record.x, record.y, values, high=high, label=LABELS[name], percent=share, reverse=not share)
    at = record.anchors.scores[name][-len(record.names) :]
    values_text = ", ".join(f"{n} {percent(v) if share else number(v)}" for n, v in zip(record.names, at, strict=True))
    return _map(record, name, LABELS[name].capitalize(), f"{LABELS[name]} on the plane: {values_text}", trace)


def agreement_map(record: Plane, turn: int) -> Figure:
    """Return agreement of the plane's points with one network."""
    label, values = f"agreement with {record.names[turn]}", record.scores["agreement"][turn]
    trace = contour(record.x, record.y, values, high=1.0, label=label, percent=True)
    label_text = f"{label} on the plane, from {percent(np.nanmin(values))} to {percent(np.nanmax(values))}"
    return _map(record, f"agreement-{turn}", label.capitalize(), label_text, trace)


def disagreement_map(record: Plane, turn: int) -> Figure:
    """Return normalised disagreement of the plane's points with one network; colours end at 2."""
    label, values = f"normalised disagreement with {record.names[turn]}", record.normalised_disagreement[turn]
    trace = contour(record.x, record.y, values, high=2.0, label=label)
    label_text = f"{label} on the plane, from {number(np.nanmin(values))} to {number(np.nanmax(values))}"
    return _map(record, f"disagreement-{turn}", label.capitalize(), label_text, trace)


def _map(record: Plane, name: str, title: str, label: str, trace: dict[str, Any]) -> Figure:
    """Return a map with the networks on it."""
    names = ["origin", *record.names] if record.origin == "zero" else record.names
    second = f" to {record.names[1].removeprefix('network ')}" if record.origin == "anchor" else ""
    notes = [label_at(x, y, words) for x, y, words in zip(record.anchors.x, record.anchors.y, names, strict=True)]
    look = equal_axes(f"distance along {record.names[0]}{second}", "distance orthogonal to it")
    look |= {"annotations": notes, "showlegend": bool(record.overlays)}
    return Figure(f"plane-{name.replace('_', '-')}", title, label, [trace, *overlays(record)], look, MAP_HEIGHT)


def overlays(record: Plane) -> list[dict[str, Any]]:
    """Return traces of trajectories, samples and the networks themselves, the last on top."""
    traces = []
    for place, overlay in enumerate(record.overlays):
        rows, ink = thin(len(overlay.x), MOST), colour(INKS[place % len(INKS)])
        mode, shape = ("lines+markers", "circle") if overlay.kind == "trajectory" else ("markers", symbol(place))
        name = overlay.name.replace("training of network", "training of")  # short, for the legend of a phone
        trace = marked(mode, overlay.x[rows], overlay.y[rows], name, ink, shape, size=5)
        columns = (overlay.scores["loss"], overlay.scores["accuracy"], overlay.residual)
        numbers = [[row, *(float(column[row]) for column in columns)] for row in rows]
        traces.append(trace | {"customdata": numbers, "hovertemplate": HOVER})
    ends = marked("markers", record.anchors.x, record.anchors.y, "networks", "var(--ink)", "star", size=9)
    return [*traces, ends | {"showlegend": False, "hoverinfo": "skip"}]


def networks_section(record: Plane) -> Markup:
    """Return a table of the networks on and beside the plane."""
    columns = ["Network", "Accuracy", "Loss", "Length", "Outside the plane"]
    columns += [f"Agrees with {name.removeprefix('network ')}" for name in record.names]
    names = ["origin", *record.names] if record.origin == "zero" else list(record.names)
    rows = [(name, cells(record.anchors, place)) for place, name in enumerate(names)]
    for overlay in record.overlays:
        if overlay.kind == "trajectory":
            rows += [(f"{overlay.name}, {word}", cells(overlay, place)) for word, place in (("first", 0), ("last", -1))]
        else:
            rows.append((f"{overlay.name}, mean of {len(overlay.x)}", cells(overlay, None)))
    reading = (
        "Scores of the networks themselves, not of their projections. Length is that of the weight vector; outside the "
        "plane is the fraction of it that the projection leaves out."
    )
    return section("networks", "Networks", reading, table("Networks on and beside the plane", columns, rows))


def cells(overlay: Overlay, place: int | None) -> list[str]:
    """Return numbers of one network, or means over all."""

    def value(column: np.ndarray) -> float:
        return float(column.mean() if place is None else column[place])

    texts = [percent(value(overlay.scores["accuracy"])), number(value(overlay.scores["loss"]))]
    texts += [number(value(overlay.norm)), percent(value(overlay.residual))]
    return texts + [percent(value(row)) for row in overlay.scores["agreement"]]
