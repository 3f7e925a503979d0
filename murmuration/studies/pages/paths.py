"""The page on paths between two networks: loss, accuracy and agreement along them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from murmuration.reports.figures import Figure, axis, colour, layout, scale_of, scatter
from murmuration.reports.formatting import number, percent
from murmuration.reports.html import Markup, details, figure, grid, join, section, table
from murmuration.studies.landscape import Array
from murmuration.studies.pages.maps import LABELS, verdict_section
from murmuration.studies.paths import Paths, ScoredPath

ALONG = "fraction of the path's length"
SPOKEN = {
    **{"linear": "straight line", "aligned": "aligned line", "tunnel": "tunnel"},
    **{"bezier": "Bezier curve", "polygon": "polygon"},
}
PLACES = {"linear": 0, "aligned": 3, "tunnel": 1, "bezier": 2, "polygon": 4}  # in the palette
DASHES = {"linear": "dash", "aligned": "dashdot"}


def paths_sections(record: Paths) -> Markup:
    """Return the sections of the page on the paths between two networks."""
    first, last = record.ends
    reading = (
        f"Networks {first} and {last} are {number(record.distance)} apart in weight space, and their weight vectors "
        f"have a cosine of {number(record.cosine)}. A barrier is how far the loss along a path rises above the line "
        "between the losses of its ends."
    )
    along = "Along a path of low loss both stay near the values of the ends. Vertices of the tunnel are marked."
    agreeing = (
        "The fraction of test examples for which a network on the path predicts the same class as one of its ends. A "
        "path of low loss still leads from one function to another where these lines cross."
    )
    lines = {name: figure(line) for name, line in paths_figures(record).items()}
    scores = [line for name, line in lines.items() if name in LABELS]
    agreement = grid(line for name, line in lines.items() if name.startswith("agreement"))
    more = details("More scores", grid(scores[2:]))
    parts = [
        verdict_section(record.verdicts, "What the paths show", reading),
        section("scores", "Loss and accuracy", along, join([grid(scores[:2]), more])),
        section("agreement", "Agreement with both ends", agreeing, agreement),
        table_section(record),
    ]
    return join(parts)


def paths_figures(record: Paths) -> dict[str, Figure]:
    """Return lines along all paths by the score they show; agreement_0 is agreement with the first end."""
    names = [name for name in ("train_loss", "accuracy", "loss", "train_accuracy") if drawable(record.paths, name)]
    ends = (0, 1) if drawable(record.paths, "agreement") else ()
    lines = {name: score_lines(record, name) for name in names}
    return lines | {f"agreement_{end}": agreement_lines(record, end) for end in ends}


def drawable(paths: Sequence[ScoredPath], name: str) -> bool:
    return all(name in path.scores and bool(np.isfinite(path.scores[name]).any()) for path in paths)


def score_lines(record: Paths, name: str) -> Figure:
    """Return one score along every path; a loss over more than a factor of ten on a logarithmic scale."""
    share = name.endswith("accuracy")
    values = {path.name: path.scores[name] for path in record.paths}
    up = axis(LABELS[name]) | ({"tickformat": ".0%"} if share else scale_of(np.concatenate(list(values.values()))))
    ends = "lowest" if share else "highest"
    worst = {path: float(row.min() if share else row.max()) for path, row in values.items()}
    worst_text = ", ".join(f"{SPOKEN[path]} {percent(v) if share else number(v)}" for path, v in worst.items())
    return _lines(record, name.replace("_", "-"), LABELS[name], values, up, f"{ends} on the {worst_text}", share)


def agreement_lines(record: Paths, end: int) -> Figure:
    """Return agreement with one end along every path."""
    label = f"agreement with network {record.ends[end]}"
    values = {path.name: path.scores["agreement"][end] for path in record.paths}
    lowest_text = ", ".join(f"{SPOKEN[path]} {percent(float(row.min()))}" for path, row in values.items())
    up = axis(label) | {"tickformat": ".0%"}
    return _lines(record, f"agreement-{end}", label, values, up, f"lowest on the {lowest_text}", True)


def _lines(
    record: Paths, name: str, label: str, values: dict[str, Array], up: dict[str, Any], told: str, share: bool
) -> Figure:
    data, hover = [], f"%{{x:.2f}}: {'%{y:.1%}' if share else '%{y:.3g}'}"
    for path in record.paths:
        place, row, at = PLACES[path.name], values[path.name], list(path.vertices)
        look = {"color": colour(place), "width": 2, "dash": DASHES.get(path.name, "solid")}
        line = scatter("lines", path.fraction, row, SPOKEN[path.name])
        data.append(line | {"line": look, "hovertemplate": hover})
        dots = {"marker": {"color": colour(place), "size": 6}, "showlegend": False, "hoverinfo": "skip"}
        data += [scatter("markers", path.fraction[at], row[at]) | dots] if at else []
    look = layout(axis(ALONG) | {"range": [-0.02, 1.02]}, up) | {"showlegend": True}
    return Figure(f"paths-{name}", label.capitalize(), f"{label} along the paths: {told}", data, look, 340)


def table_section(record: Paths) -> Markup:
    """Return a table of barriers and extremes of every path."""
    columns = ["Path", "Barrier", "Rise", "Accuracy drop", "Test barrier", "Length", "Lowest accuracy", "Mean loss"]
    rows = []
    for path in record.paths:
        train, test, summary = path.barrier(), path.barrier("loss"), path.summary()
        cells = [number(train.excess), number(train.rise), percent(train.accuracy_drop), number(test.excess)]
        cells += [number(path.length[-1]), percent(summary["accuracy_min"]), number(summary["loss_by_length"])]
        rows.append((SPOKEN[path.name], cells))
    split = "training" if record.paths[0].measure == "train_loss" else "test"
    reading = (
        f"A barrier is the largest {split} loss above the line between the ends, the rise that above the worse end, "
        f"and the drop is of the {split} accuracy; the last two columns are of the test examples, the mean by length."
    )
    return section("numbers", "Numbers", reading, table("Barriers of the paths", columns, rows))
