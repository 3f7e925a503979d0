"""One self-contained HTML file out of a report."""

import base64
import hashlib
import os
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

import murmuration.reports.coupling_section as coupling_section
import murmuration.reports.doubt_section as doubt_section
import murmuration.reports.gallery as gallery
import murmuration.reports.making as making
import murmuration.reports.pruning_section as pruning_section
import murmuration.reports.sections as sections
import murmuration.reports.shift_section as shift_section
import murmuration.reports.summary as summary
import murmuration.reports.trust_sections as trust_sections
import murmuration.reports.weights_section as weights_section
from murmuration.errors import Failure
from murmuration.files import write_bytes
from murmuration.reports.markup import Markup, join, text
from murmuration.reports.records import Report

SECTIONS = (
    summary.opening,
    sections.notes,
    sections.scores,
    sections.reliability,
    trust_sections.calibration,
    sections.risk_coverage,
    trust_sections.rules,
    sections.histograms,
    doubt_section.doubts,
    sections.parity,
    sections.fields,
    trust_sections.sets,
    shift_section.shift,
    trust_sections.foreign,
    trust_sections.groups,
    gallery.gallery,
    sections.recipes,
    coupling_section.meetings,
    weights_section.weights,
    pruning_section.pruning,
    making.members,
    making.training,
    making.costs,
    making.provenance,
)

LOGO = Markup(
    '<svg class="logo" viewBox="0 0 64 40" role="img" aria-label="A group of birds">'
    + "".join(
        f'<path transform="translate({x} {y}) scale({size})" d="M-6-3Q-2-4 0 0Q2-4 6-3Q2-2 0 2Q-2-2-6-3Z"/>'
        for x, y, size in (
            *((8, 26, 0.7), (17, 19, 0.9), (20, 31, 0.6), (28, 12, 1.1), (30, 24, 1.2), (33, 34, 0.7)),
            *((41, 17, 1.3), (43, 29, 0.9), (53, 10, 1.0), (55, 22, 0.8)),
        )
    )
    + "</svg>"
)


NO_SCRIPT = (
    '<noscript><p class="warning">Figures are drawn by a script, which is switched off here. '
    "The tables hold the numbers.</p></noscript>"
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


def render(report: Report) -> str:
    """The whole page of a report."""
    return framed(report.title, _subtitle(report), join(build(report) for build in SECTIONS))


def framed(title: str, subtitle: str, body: Markup) -> str:
    """A page around sections: style and plotly's script inside, nothing fetched from anywhere.

    A content security policy names the two scripts by their hash and forbids all requests, so that neither a
    slip of ours nor a hostile class name can make a browser run or load anything else.
    """
    theme, plotly = _resource("theme.js"), _plotly()
    return f"""<!DOCTYPE html>
<html lang="en" class="no-script">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy([theme, plotly])}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="murmuration">
<title>{text(title)}</title>
<style>
{_resource("style.css")}</style>
<script>{theme}</script>
</head>
<body>
<header>
{LOGO}
<div><h1>{text(title)}</h1><p>{text(subtitle)}</p></div>
<button type="button" id="theme" aria-label="Switch between light and dark">◐</button>
</header>
<nav aria-label="Sections"><ul>{_contents(body)}</ul></nav>
<main>
{NO_SCRIPT}
{body}
</main>
<footer><p>Written by murmuration. The file is complete in itself and loads nothing.</p></footer>
<script id="plotly">{plotly}</script>
</body>
</html>
"""


def write_report(path: str | os.PathLike[str], report: Report) -> None:
    """Write the page to `path`, whole or not at all."""
    target, content = Path(path), render(report).encode("utf-8")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"report '{target}' could not be written ({error.strerror}); give another path") from None
    write_bytes(target, content)


def policy(scripts: list[str]) -> str:
    """The content security policy that runs these scripts alone and loads nothing."""
    hashes = " ".join(f"'{script_hash(script)}'" for script in scripts)
    return f"{POLICY}; script-src {hashes}"


def script_hash(script: str) -> str:
    """The hash of a script's text as a content security policy writes it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _subtitle(report: Report) -> str:
    return " · ".join(part for part in (report.data.name, report.task, report.date) if part)


def _contents(body: str) -> Markup:
    titles = re.findall(r'<h2 id="([\w-]+)-title">(.*?)</h2>', body)
    return Markup("".join(f'<li><a href="#{name}">{title}</a></li>' for name, title in titles))


def _resource(name: str) -> str:
    return files("murmuration.reports").joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
