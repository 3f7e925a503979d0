"""One self-contained HTML file out of a report."""

import base64
import hashlib
import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from murmuration.reports.extension import report_sections
from murmuration.reports.html import NOTHING, Markup, join, text
from murmuration.reports.report import Report
from murmuration.reports.sections.abstention import abstention
from murmuration.reports.sections.calibration import calibration
from murmuration.reports.sections.columns import columns
from murmuration.reports.sections.conformal import conformal
from murmuration.reports.sections.examples import examples
from murmuration.reports.sections.groups import groups, imbalance
from murmuration.reports.sections.input_space import input_space
from murmuration.reports.sections.members import coupling, members, provenance, recipes
from murmuration.reports.sections.scores import by_class, predictions, scores
from murmuration.reports.sections.shift import out_of_distribution, shift
from murmuration.reports.sections.summary import summary
from murmuration.reports.sections.thresholds import thresholds
from murmuration.reports.sections.uncertainty import uncertainty
from murmuration.reports.sections.weights import parameters, weights
from murmuration.system.errors import Failure, Misuse
from murmuration.system.files import write_bytes

SECTIONS = {  # group of the navigation -> its sections, in order
    "Results": (summary, scores, by_class, thresholds, imbalance, predictions),
    "Uncertainty": (calibration, uncertainty, abstention, conformal, examples),
    "Robustness": (columns, input_space, shift, out_of_distribution, groups),
    "Model": (recipes, members, coupling, parameters, weights),
}
ENDS = {"Model": (provenance,)}  # sections that stand after those of applications
OF_ALL_SEEDS = (summary, provenance)

LOGO = Markup(
    '<svg class="logo" viewBox="0 0 64 40" role="img" aria-label="A flock of birds">'
    + "".join(
        f'<path transform="translate({x} {y}) scale({size})" d="M-6-3Q-2-4 0 0Q2-4 6-3Q2-2 0 2Q-2-2-6-3Z"/>'
        for x, y, size in (
            *((8, 26, 0.7), (17, 19, 0.9), (20, 31, 0.6), (28, 12, 1.1), (30, 24, 1.2), (33, 34, 0.7)),
            *((41, 17, 1.3), (43, 29, 0.9), (53, 10, 1.0), (55, 22, 0.8)),
        )
    )
    + "</svg>"
)


PLOTLY = "plotly/plotly-cartesian.min.js"  # a third of plotly.js: all traces of `check.TRACES`, no maps, no 3D
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


def render(report: Report) -> str:
    """Render a report as one HTML page.

    Args:
        report: The report.

    Returns:
        The page, which loads nothing.
    """
    parts = {}
    for name, builders in SECTIONS.items():
        more = [section.build for section in report_sections() if section.group == name]
        sections = [(build, build(report)) for build in (*builders, *more, *ENDS.get(name, ()))]
        parts[name] = join(part if build in OF_ALL_SEEDS else with_seed(part, report) for build, part in sections)
    selector = recipe_selector(report) if any("data-recipe" in part for part in parts.values()) else NOTHING
    data = f"{report.leader.examples.inputs:,} rows" if report.eval_set.audited else Path(report.eval_set.name).name
    subtitle = " · ".join(part for part in (data, report.task, report.date) if part)
    return framed(report.title, subtitle, join(parts.values()), parts, selector)


def with_seed(part: Markup, report: Report) -> Markup:
    """Return a section whose title ends with the training seed that it is of, if there are several."""
    return Markup(part.replace("</h2>", f"{text(report.of_seed)}</h2>"))


def recipe_selector(report: Report) -> Markup:
    """Return the control that chooses the recipe whose parts are shown; the recommended one at first."""
    options = [
        f'<option value="{place}"{" selected" if evaluation is report.leader else ""}>{text(evaluation.name)}</option>'
        for place, evaluation in enumerate(report.evaluations)
    ]
    label = text(f"Details of {report.words.subject}")
    return Markup(f'<label class="selector">{label} <select id="recipe">{"".join(options)}</select></label>')


def framed(
    title: str, subtitle: str, body: Markup, groups: Mapping[str, Markup] | None = None, selector: Markup = NOTHING
) -> str:
    """Return a page around sections, with links to them by group: style and plotly's script inside, nothing fetched.

    A content security policy names the two scripts by their hash and forbids all requests, so that neither a
    slip of ours nor a hostile class name can make a browser run or load anything else.
    """
    theme, plotly = _resource("theme.js"), _resource(PLOTLY)
    policy = f"{POLICY}; script-src '{script_hash(theme)}' '{script_hash(plotly)}'"
    return f"""<!DOCTYPE html>
<html lang="en" class="no-script">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
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
<nav aria-label="Sections">{_contents(groups or {"": body})}{selector}</nav>
<main>
<noscript><p class="warning">Figures are drawn by a script, which is switched off here. \
The tables hold the numbers.</p></noscript>
{body}
</main>
<footer><p>Written by murmuration. The file is complete in itself and loads nothing.</p></footer>
<script id="plotly">{plotly}</script>
</body>
</html>
"""


def write_report(path: str | os.PathLike[str], report: Report) -> None:
    """Write a report as one HTML file, atomically.

    Args:
        path: The file; missing folders are created.
        report: The report.
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise Misuse(f"report '{target}': expected a file such as report.html")
    content = render(report).encode("utf-8")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"report '{target}' could not be written ({error.strerror}); give another path") from None
    write_bytes(target, content)


def script_hash(script: str) -> str:
    """Return the hash of a script's text as a content security policy writes it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _contents(groups: Mapping[str, Markup]) -> Markup:
    """Return links to the sections of every group."""
    lists = []
    for name, body in groups.items():
        titles = re.findall(r'<h2 id="([\w-]+)-title">(.*?)</h2>', body)
        links = "".join(f'<li><a href="#{place}">{title}</a></li>' for place, title in titles)
        head = f'<span class="group">{text(name)}</span>' if name else ""
        lists += [f"<div>{head}<ul>{links}</ul></div>"] if titles else []
    return Markup("".join(lists))


@cache
def _resource(name: str) -> str:
    return files("murmuration.reports").joinpath(name).read_text(encoding="utf-8")
