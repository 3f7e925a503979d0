"""The page on similarity of networks: heat maps of cosine, disagreement, diversity and CKA."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from murmuration.reports.figures import Figure, axis, heat, layout, plot_text
from murmuration.reports.formatting import finite_mean, number, percent
from murmuration.reports.html import Markup, details, figure, grid, join, section, table
from murmuration.studies.pages.maps import verdict_section
from murmuration.studies.similarity import Similarity, without_diagonal

WRITTEN = 12  # networks up to which cells hold their numbers


class Matrix(NamedTuple):
    """How a matrix is drawn."""

    title: str
    low: float  # ends of the colours
    high: float | None  # None: the largest value
    digits: int = 2


MATRICES = {
    "cosine": Matrix("Cosine of weights", 0.0, 1.0),
    "disagreement": Matrix("Disagreement of predictions", 0.0, None, 3),
    "cka": Matrix("CKA of features", 0.0, 1.0),
    "diversity": Matrix("Normalised diversity", 0.0, None),
}
READINGS = {
    "members": "One row and one column for each member; the diagonal, a member with itself, is left blank.",
    "path": "One row and one column for each checkpoint, by epoch from the lower left; a square of equal colour on the "
    "diagonal is a stretch of training that does not change what the network is.",
    "samples": "One row and one column for each network, groups one after another: blocks on the diagonal are groups.",
}


def similarity_sections(records: Mapping[str, Similarity]) -> Markup:
    """The sections of the page on some sets of networks, by name."""
    reading = (
        "Networks can be far apart in weight space and alike in what they predict, or the other way round: a "
        "permutation of hidden units changes all weights and no prediction."
    )
    verdicts = [
        replace(verdict, claim=f"{heading(name, each)}: {verdict.claim}")
        for name, each in records.items()
        for verdict in each.verdicts
    ]
    parts = [verdict_section(verdicts, "What the networks have in common", reading)]
    parts += [maps_section(each, place, heading(name, each)) for place, (name, each) in enumerate(records.items())]
    parts += [means_section(each, place, heading(name, each)) for place, (name, each) in enumerate(records.items())]
    return join(parts)


def similarity_figures(found: Similarity, place: int = 0) -> dict[str, Figure]:
    """The heat maps of one set of networks by the matrix they show; `place` tells sets of one page apart."""
    return {name: matrix_map(found, name, place) for name in MATRICES if name in found.matrices}


def maps_section(found: Similarity, place: int, title: str) -> Markup:
    """The heat maps of one set of networks."""
    maps = {name: figure(each) for name, each in similarity_figures(found, place).items()}
    shown = grid(each for name, each in maps.items() if name != "diversity")
    more = details("Disagreement over the error rate", grid([maps["diversity"]]))
    return section(f"maps-{place}", title, READINGS[found.subject], join([shown, more]))


def heading(name: str, found: Similarity) -> str:
    """What the networks are: members, a path, or samples by the name of their sampler."""
    if found.subject == "path":
        return f"Path of member {found.groups[0]}"
    return "Members" if found.subject == "members" else f"Samples by {name}"


def matrix_map(found: Similarity, name: str, place: int) -> Figure:
    """One matrix (m, m) as a heat map; a path from the lower left, other networks from the upper left."""
    look, cells = MATRICES[name], without_diagonal(found.matrices[name])
    kind = {"path": "epoch", "members": "member", "samples": "network"}[found.subject]
    few = len(cells) <= WRITTEN
    text = {"texttemplate": f"%{{z:.{look.digits}f}}", "textfont": {"size": 10}, "showscale": False} if few else {}
    ticks: dict[str, Any] = {"showgrid": False, "constrain": "domain", "type": "category", "nticks": 10}
    up = axis(kind) | ticks | {"scaleanchor": "x"} | ({} if found.subject == "path" else {"autorange": "reversed"})
    names = [plot_text(each) for each in found.names]
    low = min(look.low, float(np.nanmin(cells, initial=look.low)))
    high = look.high or max(float(np.nanmax(cells, initial=0)), 1e-3)
    trace = heat(cells) | {"x": names, "y": names, "zmin": low, "zmax": high, "xgap": int(few), "ygap": int(few)} | text
    trace["hovertemplate"] = f"{kind} %{{x}} and %{{y}}: %{{z:.3f}}<extra></extra>"
    mean = finite_mean(cells.ravel())
    label = f"{look.title} of {len(cells)} networks: {number(mean)} on average over pairs"
    return Figure(f"{name}-{place}", look.title, label, [trace], layout(axis(kind) | ticks, up), 360)


def means_section(found: Similarity, place: int, title: str) -> Markup:
    """A table of means over pairs."""
    grouped = 1 < len(set(found.groups)) < len(found.groups)
    kinds = [("All pairs", None)] + ([("Within a group", True), ("Between groups", False)] if grouped else [])
    names = [name for name in MATRICES if name in found.matrices]
    rows = [(label, [number(found.mean(name, same_group=same)) for name in names]) for label, same in kinds]
    known = f"{len(found.names)} networks with accuracies from {percent(found.accuracy.min())} to "
    reading = f"{known}{percent(found.accuracy.max())} on {found.examples:,} examples."
    columns = ["Mean over", *(MATRICES[name].title for name in names)]
    told = f"Numbers: {title[0].lower()}{title[1:]}"
    return section(f"means-{place}", told, reading, table("Means over pairs of networks", columns, rows))
