"""The page of the reproduction: every claim beside the published number, then every part with its figures."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from murmuration.reports.figures import Figure, axis, colour, layout, scatter
from murmuration.reports.formatting import number
from murmuration.reports.html import Markup, figure, join, section, table, tag
from murmuration.reports.page import framed
from murmuration.studies.pages.maps import verdict_section
from murmuration.studies.papers.landscape.chains import Chains
from murmuration.studies.papers.landscape.claims import Claim
from murmuration.studies.papers.landscape.settings import NOT_ATTEMPTED

TITLES = {"tsne": "t-SNE", "trade-off": "Diversity and accuracy", "sizes": "Ensemble size"}  # others: capitalised


def page(record: Mapping[str, Any], found: Sequence[Claim], bodies: Mapping[str, Markup], command: str) -> str:
    """Return the whole page."""
    setting = record["setting"]
    groups = {"Claims": join([summary(found), claims_section(found), settings_section(record, command)])}
    groups |= {TITLES.get(part, part.capitalize()): prefixed(body, part) for part, body in bodies.items()}
    subtitle = f"{setting['data']} · {setting['net']} · {setting['members']} runs of {setting['epochs']} epochs"
    return framed("Deep ensembles: a loss landscape perspective", subtitle, join(groups.values()), groups)


def prefixed(body: Markup, part: str) -> Markup:
    """Return the sections of a part under names that are unique on the page."""
    pattern = r'<section id="([\w-]+)" aria-labelledby="\1-title">(\s*)<h2 id="\1-title">'
    named = rf'<section id="{part}-\1" aria-labelledby="{part}-\1-title">\2<h2 id="{part}-\1-title">'
    return Markup(re.sub(pattern, named, body))


def summary(claims: Sequence[Claim]) -> Markup:
    """Return how many claims hold."""
    counts = Counter(claim.verdict for claim in claims)
    run = counts["holds"] + counts["does not hold"]
    words = f"{counts['holds']} of {run} claims hold here"
    words += f"; {counts['not run']} were not run." if counts["not run"] else "."
    head = tag("p", "What does not hold:" if counts["does not hold"] else "")
    failed = [claim.statement for claim in claims if claim.verdict == "does not hold"]
    failures = tag("ul", join(tag("li", claim) for claim in failed))
    reading = "Fort, Hu and Lakshminarayanan (2019), arXiv 1912.02757, at the scale of one machine."
    return section("summary", "Which claims hold", reading, join([tag("p", words, "lead"), head, failures]))


def claims_section(claims: Sequence[Claim]) -> Markup:
    """Return every claim with its numbers and the published ones."""
    rows = []
    for claim in claims:
        source = claim.figure if claim.figure.startswith("section") else f"figure {claim.figure}"
        beside = join([tag("p", claim.measured), tag("p", f"Published: {claim.published} ({source}).")])
        rows.append((claim.verdict, [tag("span", claim.statement, "wide"), tag("div", beside, "wide")]))
    reading = "The paper shows most results as figures; the numbers of its text are given as published."
    board = tag("div", table("Claims of the paper", ("Verdict", "Claim", "Measured here"), rows), "words")
    return section("claims", "Claim by claim", reading, board)


def settings_section(record: Mapping[str, Any], command: str) -> Markup:
    """Return the settings, the networks, and what was not attempted."""
    rows = [(name, [str(value)]) for name, value in record["setting"].items() if name != "parts"]
    networks = [(name, [written(value)]) for name, value in record.get("networks", {}).items()]
    left_out = [(name, [tag("span", cost, "wide")]) for name, cost in NOT_ATTEMPTED.items()]
    parts = [
        table("Settings", ["Setting", "Value"], rows),
        table("Networks", ["What", "Value"], networks),
        tag("div", table("Not attempted", ["Figure", "What it would take"], left_out), "wrapped"),
        tag("p", f"Command: {command}") if command else Markup(""),
    ]
    return section("settings", "Settings", "What was trained, and what was left out.", join(parts))


def written(value: Any) -> str:
    """Return numbers, lists and small records as text."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {written(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(written(item) for item in value)
    return f"{value:,}" if isinstance(value, int) else number(value) if isinstance(value, float) else str(value)


def chains_section(chains: Chains) -> Markup:
    """Return diversity between chains and between cycles."""
    reading = (
        "Disagreement of two samples over their error rates, for samples of different chains at the same cycle and of "
        "different cycles of one chain."
    )
    data = []
    for place, (name, values) in enumerate(chains.pairs.items()):
        spread = place + np.linspace(-0.2, 0.2, len(values)) if len(values) > 1 else [place]
        look = {"marker": {"color": colour(place), "size": 9}, "hovertemplate": "%{y:.3f}"}
        data.append(scatter("markers", spread, values, name) | look)
    across = axis() | {"tickvals": [0, 1], "ticktext": list(chains.pairs), "range": [-0.5, 1.5], "showgrid": False}
    text = "; ".join(f"{name} {number(float(np.mean(values)))} on average" for name, values in chains.pairs.items())
    panel = layout(across, axis("normalised diversity"))
    plot = Figure("chains-diversity", "Normalised diversity", text, data, panel, 340)
    verdicts = verdict_section(chains.verdicts, "Chains and cycles", reading)
    return join([verdicts, section("pairs", "Every pair", "One point a pair of samples.", figure(plot))])
