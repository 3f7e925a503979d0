"""The page of the reproduction: claims, settings, figures of the paper, then every part with its own figures."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from murmuration.reports.figures import Figure, axis, colour, layout, scatter
from murmuration.reports.formatting import number
from murmuration.reports.html import Markup, figure, join, section, table, tag
from murmuration.reports.page import framed
from murmuration.studies.pages.maps import verdict_section
from murmuration.studies.papers.landscape.chains import Chains
from murmuration.studies.papers.landscape.published import WORK
from murmuration.studies.papers.landscape.settings import Setting, differences
from murmuration.studies.papers.page import settings_section as settings_section_of, verdicts_section
from murmuration.studies.verdicts import Verdict

TITLES = {"tsne": "t-SNE", "trade-off": "Diversity and accuracy", "sizes": "Ensemble size"}  # others: capitalised


def page(
    record: Mapping[str, Any], setting: Setting, verdicts: Sequence[Verdict], bodies: Mapping[str, Markup], command: str
) -> str:
    """Return the whole page."""
    about = f"{WORK.reference}, at the scale of these runs. The paper shows most results as figures."
    first = [verdicts_section(verdicts, about), settings_section(record, setting, command), items_section(verdicts)]
    groups = {"Claims": join(first)}
    groups |= {TITLES.get(part, part.capitalize()): prefixed(body, part) for part, body in bodies.items()}
    subtitle = f"{setting.data} · {setting.net} · {setting.members} runs of {setting.epochs} epochs"
    return framed(WORK.title, subtitle, join(groups.values()), groups)


def prefixed(body: Markup, part: str) -> Markup:
    """Return the sections of a part under names that are unique on the page."""
    pattern = r'<section id="([\w-]+)" aria-labelledby="\1-title">(\s*)<h2 id="\1-title">'
    named = rf'<section id="{part}-\1" aria-labelledby="{part}-\1-title">\2<h2 id="{part}-\1-title">'
    return Markup(re.sub(pattern, named, body))


def settings_section(record: Mapping[str, Any], setting: Setting, command: str) -> Markup:
    """Return what was trained, and every difference from the paper."""
    versions = ", ".join(f"{name} {value}" for name, value in record["versions"].items())
    networks = {name: written(value) for name, value in record.get("networks", {}).items()}
    facts = {"plan": record.get("plan", ""), **networks, "versions": versions, "command": command}
    rows = [(what, [tag("span", text, "wide") for text in texts]) for what, texts in differences(setting).items()]
    board = tag("div", table("Differences from the paper", ["What", "Here", "In the paper"], rows), "words")
    listed = settings_section_of(facts, "What was trained, and what differs from the paper.")
    return join([listed, section("differences", "Differences from the paper", "", board)])


def items_section(verdicts: Sequence[Verdict]) -> Markup:
    """Return every figure of the paper: its verdicts here, its command, and what the published scale takes."""
    words = {verdict.name: verdict.word for verdict in verdicts}
    rows = []
    for item in WORK.items:
        here = "; ".join(f"{name}: {words[name]}" for name in item.claims)
        commands = [tag("p", item.command), tag("p", f"As published: {item.full_scale} ({item.needs}). {item.note}")]
        rows.append(
            (item.name, [tag("div", join([tag("p", item.about), *commands]), "wide"), tag("span", here, "wide")])
        )
    board = tag("div", table("Figures of the paper", ["Figure", "What, and how", "Here"], rows), "words")
    return section("figures", "Figures of the paper", "Each figure with its commands and verdicts.", board)


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
        "Disagreement of two networks over their error rates: of runs of the ensemble, of samples of different chains "
        "at the same cycle, and of different cycles of one chain."
    )
    data = []
    for place, (name, values) in enumerate(chains.pairs.items()):
        spread = place + np.linspace(-0.2, 0.2, len(values)) if len(values) > 1 else [place]
        look = {"marker": {"color": colour(place), "size": 9}, "hovertemplate": "%{y:.3f}"}
        data.append(scatter("markers", spread, values, name) | look)
    across = axis() | {"tickvals": [0, 1, 2], "ticktext": list(chains.pairs), "range": [-0.5, 2.5], "showgrid": False}
    text = "; ".join(f"{name} {number(float(np.mean(values)))} on average" for name, values in chains.pairs.items())
    panel = layout(across, axis("normalised diversity"))
    plot = Figure("chains-diversity", "Normalised diversity", text, data, panel, 340)
    verdicts = verdict_section(chains.verdicts, "Chains and cycles", reading)
    return join([verdicts, section("pairs", "Every pair", "One point a pair of networks.", figure(plot))])
