"""The page on similarity of networks: heat maps of cosine, disagreement, diversity and CKA."""

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from murmuration.reports.figures import Figure, axis, heat, layout, plot_text
from murmuration.reports.formatting import finite_mean, number, percent
from murmuration.reports.html import Markup, details, figure, grid, join, section, table
from murmuration.studies.pages.maps import verdict_section
from murmuration.studies.similarity import Similarity, verdicts_of, without_diagonal

WRITTEN = 12  # networks up to which cells hold their numbers


class Matrix(NamedTuple):
    """How a matrix is drawn."""

    title: str
    low: float  # ends of the colours
    high: float | None  # None: the largest value
    digits: int = 2
    least: float = 1e-3  # the colours of smaller values do not reach the end of the scale


MATRICES = {
    "cosine": Matrix("Cosine of weights", 0.0, 1.0),
    "disagreement": Matrix("Disagreement of predictions", 0.0, None, 3, least=0.1),
    "cka": Matrix("CKA of features", 0.0, 1.0),
    "diversity": Matrix("Normalised diversity", 0.0, None, least=1.0),
}
READINGS = {
    "members": "One row and one column for each member; the diagonal, a member with itself, is left blank.",
    "path": "One row and one column for each checkpoint, by epoch from the lower left; a square of equal colour on the "
    "diagonal is a stretch of training that does not change what the network is.",
    "samples": "One row and one column for each network, groups one after another: blocks on the diagonal are groups.",
}


def similarity_sections(records: Mapping[str, Similarity]) -> Markup:
    """Return the sections of the page on some sets of networks, by name."""
    reading = (
        "Networks can be far apart in weight space and alike in what they predict, or the other way round: a "
        "permutation of hidden units changes all weights and no prediction."
    )
    parts = [verdict_section(verdicts_of(records), "What the networks have in common", reading)]
    headings = [(record, place, heading(name, record)) for place, (name, record) in enumerate(records.items())]
    return join([*parts, *itertools.starmap(maps_section, headings), *itertools.starmap(means_section, headings)])


def similarity_figures(found: Similarity, place: int = 0) -> dict[str, Figure]:
    """Return the heat maps of one set of networks by the matrix they show; `place` tells sets of one page apart."""
    return {name: matrix_map(found, name, place) for name in MATRICES if name in found.matrices}


def maps_section(record: Similarity, place: int, title: str) -> Markup:
    """Return the heat maps of one set of networks."""
    maps = {name: figure(map_figure) for name, map_figure in similarity_figures(record, place).items()}
    shared_maps = grid(map_figure for name, map_figure in maps.items() if name != "diversity")
    more = details("Disagreement over the error rate", grid([maps["diversity"]]))
    return section(f"maps-{place}", title, READINGS[record.subject], join([shared_maps, more]))


def heading(name: str, found: Similarity) -> str:
    """Return what the networks are: members, a path, or samples by the name of their sampler."""
    if found.subject == "path":
        return f"Path of member {found.groups[0]}"
    return "Members" if found.subject == "members" else f"Samples by {name}"


def matrix_map(record: Similarity, name: str, place: int) -> Figure:
    """Return one matrix (m, m) as a heat map; a path from the lower left, other networks from the upper left."""
    look, cells = MATRICES[name], without_diagonal(record.matrices[name])
    kind = {"path": "epoch", "members": "member", "samples": "network"}[record.subject]
    gap, text = int(len(cells) <= WRITTEN), {}
    if gap:
        text = {"texttemplate": f"%{{z:.{look.digits}f}}", "textfont": {"size": 10}, "showscale": False}
    ticks: dict[str, Any] = {"showgrid": False, "constrain": "domain", "type": "category", "nticks": 10}
    up = axis(kind) | ticks | {"scaleanchor": "x"} | ({} if record.subject == "path" else {"autorange": "reversed"})
    names = list(map(plot_text, record.names))
    low = min(look.low, float(np.nanmin(cells, initial=look.low)))
    high = look.high or max(float(np.nanmax(cells, initial=0)), look.least)
    trace = heat(cells) | {"x": names, "y": names, "zmin": low, "zmax": high, "xgap": gap, "ygap": gap} | text
    trace["hovertemplate"] = f"{kind} %{{x}} and %{{y}}: %{{z:.3f}}<extra></extra>"
    mean = finite_mean(cells.ravel())
    label = f"{look.title} of {len(cells)} networks: {number(mean)} on average over pairs"
    return Figure(f"{name}-{place}", look.title, label, [trace], layout(axis(kind) | ticks, up), 360)


def means_section(record: Similarity, place: int, title: str) -> Markup:
    """Return a table of means over pairs."""
    grouped = 1 < len(set(record.groups)) < len(record.groups)
    kinds = [("All pairs", None)] + ([("Within a group", True), ("Between groups", False)] if grouped else [])
    names = [name for name in MATRICES if name in record.matrices]
    rows = [(label, [number(record.mean(name, same_group=same)) for name in names]) for label, same in kinds]
    counted = f"{len(record.names)} networks with accuracies from {percent(record.accuracy.min())} to "
    reading = f"{counted}{percent(record.accuracy.max())} on {record.examples:,} examples."
    columns = ["Mean over", *(MATRICES[name].title for name in names)]
    heading_text = f"Numbers: {title[0].lower()}{title[1:]}"
    return section(f"means-{place}", heading_text, reading, table("Means over pairs of networks", columns, rows))
