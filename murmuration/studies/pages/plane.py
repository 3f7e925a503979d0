"""The page on a plane of a weight space: accuracy, loss and agreement, with trajectories and samples."""

from collections.abc import Mapping
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


def plane_sections(found: Plane) -> Markup:
    """The sections of the page on one plane."""
    through = "the origin of the weight space and two networks" if found.origin == "zero" else "three networks"
    reading = f"The plane contains {through}. Distances are Euclidean, in units of the weights."
    maps = plane_figures(found)
    parts = [
        verdict_section(found.verdicts, "What the plane shows", reading),
        scores_section(maps),
        agreement_section(maps),
        disagreement_section(maps),
        networks_section(found),
    ]
    return join(parts)


def plane_figures(found: Plane) -> dict[str, Figure]:
    """All maps of a plane by the score they show; agreement_0 is agreement with the first network."""
    known = [name for name in ("accuracy", "train_loss", "loss", "train_accuracy") if drawable(found, name)]
    maps = {name: score_map(found, name) for name in known}
    if drawable(found, "agreement"):
        maps |= {f"agreement_{turn}": agreement_map(found, turn) for turn in range(len(found.names))}
        maps |= {f"normalised_disagreement_{turn}": disagreement_map(found, turn) for turn in range(len(found.names))}
    return maps


def scores_section(maps: Mapping[str, Figure]) -> Markup:
    reading = (
        "Dark is better. Colours are exact on the plane. Trajectories and samples lie beside it and are projected onto "
        "it; how far beside is in the table of networks."
    )
    drawn = [figure(each) for name, each in maps.items() if name in LABELS]
    body = join([grid(drawn[:2]), details("More scores", grid(drawn[2:]))])
    return section("scores", "Accuracy and loss", reading, body)


def agreement_section(maps: Mapping[str, Figure]) -> Markup:
    reading = (
        "The fraction of test examples for which a point of the plane predicts the same class as a trained network. "
        "Two networks are different functions where the regions that agree with them are different."
    )
    drawn = grid(figure(each) for name, each in maps.items() if name.startswith("agreement"))
    return section("agreement", "Agreement with each network", reading, drawn)


def disagreement_section(maps: Mapping[str, Figure]) -> Markup:
    reading = (
        "Disagreement divided by the error rate of the point: 0 for the same predictions, about 1 where a point "
        "differs from the network as often as it errs."
    )
    drawn = grid(figure(each) for name, each in maps.items() if name.startswith("normalised"))
    return section("disagreement", "Normalised disagreement", reading, details("Maps", drawn))


def drawable(found: Plane, name: str) -> bool:
    return name in found.scores and bool(np.isfinite(found.scores[name]).any())


def score_map(found: Plane, name: str) -> Figure:
    """Accuracy or loss on the plane; the colours of a loss end at its upper quartile."""
    values, share = found.scores[name], name.endswith("accuracy")
    high = 1.0 if share else upper_colour(values)
    trace = contour(found.x, found.y, values, high=high, label=LABELS[name], percent=share, reverse=not share)
    at = found.anchors.scores[name][-len(found.names) :]
    told = ", ".join(f"{n} {percent(v) if share else number(v)}" for n, v in zip(found.names, at, strict=True))
    return _map(found, name, LABELS[name].capitalize(), f"{LABELS[name]} on the plane: {told}", trace)


def agreement_map(found: Plane, turn: int) -> Figure:
    """Agreement of the plane's points with one network."""
    label, values = f"agreement with {found.names[turn]}", found.scores["agreement"][turn]
    trace = contour(found.x, found.y, values, high=1.0, label=label, percent=True)
    told = f"{label} on the plane, from {percent(np.nanmin(values))} to {percent(np.nanmax(values))}"
    return _map(found, f"agreement-{turn}", label.capitalize(), told, trace)


def disagreement_map(found: Plane, turn: int) -> Figure:
    """Normalised disagreement of the plane's points with one network; colours end at 2."""
    label, values = f"normalised disagreement with {found.names[turn]}", found.normalised_disagreement[turn]
    trace = contour(found.x, found.y, values, high=2.0, label=label)
    told = f"{label} on the plane, from {number(np.nanmin(values))} to {number(np.nanmax(values))}"
    return _map(found, f"disagreement-{turn}", label.capitalize(), told, trace)


def _map(found: Plane, name: str, title: str, label: str, trace: dict[str, Any]) -> Figure:
    """A map with the networks on it."""
    names = ["origin", *found.names] if found.origin == "zero" else found.names
    way = (
        f"{found.names[0]} to {found.names[1].removeprefix('network ')}" if found.origin == "anchor" else found.names[0]
    )
    notes = [label_at(x, y, words) for x, y, words in zip(found.anchors.x, found.anchors.y, names, strict=True)]
    look = equal_axes(f"distance along {way}", "distance orthogonal to it") | {
        "annotations": notes,
        "showlegend": bool(found.overlays),
    }
    return Figure(f"plane-{name.replace('_', '-')}", title, label, [trace, *overlays(found)], look, MAP_HEIGHT)


def overlays(found: Plane) -> list[dict[str, Any]]:
    """Traces of trajectories, samples and the networks themselves, the last on top."""
    drawn = []
    for place, each in enumerate(found.overlays):
        kept, ink = thin(len(each.x), MOST), colour(INKS[place % len(INKS)])
        mode, shape = ("lines+markers", "circle") if each.kind == "trajectory" else ("markers", symbol(place))
        name = each.name.replace("training of network", "training of")  # short, for the legend of a phone
        trace = marked(mode, each.x[kept], each.y[kept], name, ink, shape, size=5)
        drawn.append(trace | {"customdata": hover(each, kept), "hovertemplate": HOVER})
    ends = marked("markers", found.anchors.x, found.anchors.y, "networks", "var(--ink)", "star", size=9)
    return [*drawn, ends | {"showlegend": False, "hoverinfo": "skip"}]


def hover(each: Overlay, kept: list[int]) -> list[list[float]]:
    """Number, loss, accuracy and residual of the networks that are drawn."""
    columns = (each.scores["loss"], each.scores["accuracy"], each.residual)
    return [[place, *(float(column[place]) for column in columns)] for place in kept]


def networks_section(found: Plane) -> Markup:
    """A table of the networks on and beside the plane."""
    columns = ["Network", "Accuracy", "Loss", "Length", "Outside the plane"]
    columns += [f"Agrees with {name.removeprefix('network ')}" for name in found.names]
    names = ["origin", *found.names] if found.origin == "zero" else list(found.names)
    rows = [(name, cells(found.anchors, place)) for place, name in enumerate(names)]
    for each in found.overlays:
        if each.kind == "trajectory":
            rows += [(f"{each.name}, {word}", cells(each, place)) for word, place in (("first", 0), ("last", -1))]
        else:
            rows.append((f"{each.name}, mean of {len(each.x)}", cells(each, None)))
    reading = (
        "Scores of the networks themselves, not of their projections. Length is that of the weight vector; outside the "
        "plane is the fraction of it that the projection leaves out."
    )
    return section("networks", "Networks", reading, table("Networks on and beside the plane", columns, rows))


def cells(each: Overlay, place: int | None) -> list[str]:
    """Numbers of one network, or means over all."""

    def value(column: np.ndarray) -> float:
        return float(column.mean() if place is None else column[place])

    shown = [percent(value(each.scores["accuracy"])), number(value(each.scores["loss"]))]
    shown += [number(value(each.norm)), percent(value(each.residual))]
    return shown + [percent(value(row)) for row in each.scores["agreement"]]
