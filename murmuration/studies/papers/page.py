"""Sections that the pages of all reproductions share: verdicts with their intervals, and settings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from murmuration.reports.formatting import number
from murmuration.reports.html import Markup, definitions, join, section, table, tag
from murmuration.studies.papers import ScreenTable
from murmuration.studies.verdicts import Estimate, Verdict, tally

MARKS = {"holds": "right", "does not hold": "wrong", "cannot tell": "", "not run": ""}
STANDARD = (
    "A claim holds if the 95 % intervals of all its estimates lie in the predicted region, and does not hold if one "
    "lies outside; otherwise these runs cannot tell."
)


def verdicts_section(verdicts: Sequence[Verdict], about: str, noun: str = "claims", warning: str = "") -> Markup:
    """Return the claims with their verdicts, estimates, intervals and published numbers."""
    board = verdict_board(verdicts, noun)
    lead = tag("p", f"Of {len(verdicts)} {noun}: {tally(verdicts)}.", "lead")
    body = join([lead, tag("p", warning, "warning") if warning else Markup(""), board])
    return section("verdicts", f"{noun.capitalize()} and verdicts", f"{about} {STANDARD}".strip(), body)


def verdict_board(verdicts: Sequence[Verdict], noun: str = "claims") -> Markup:
    """Return the table of claims."""
    rows = [verdict_row(verdict) for verdict in verdicts]
    return tag("div", table(noun.capitalize(), ("Verdict", "Claim", "Estimates"), rows), "words")


def verdict_row(verdict: Verdict) -> tuple[Markup, list[Any]]:
    """Return the name with the verdict, and two cells: the claim, and the estimates with the published numbers."""
    head = join([verdict.name, tag("span", verdict.word, f"mark {MARKS[verdict.word]}".strip())])
    lines = [
        tag("div", join([tag("span", estimate_text(estimate)), tag("small", estimate_about(estimate))]))
        for estimate in verdict.estimates
    ]
    published = f"Published ({verdict.source}): {verdict.published}." if verdict.published else ""
    notes = [tag("small", text) for text in (verdict.note, published) if text]
    return head, [tag("span", verdict.claim, "wide"), tag("div", join([*lines, *notes]), "wide")]


def estimate_about(estimate: Estimate) -> str:
    """Return what an estimate is of, its region, and what its interval is over."""
    over = f"; interval over {estimate.over}" if estimate.over and math.isfinite(estimate.low) else ""
    return f"{estimate.what}; predicted {estimate.region}{over}"


def estimate_text(estimate: Estimate) -> str:
    """Return the estimate with its interval."""
    value, low, high = (number(round(bound, 9)) for bound in (estimate.value, estimate.low, estimate.high))
    return f"{value} ({low} to {high})" if math.isfinite(estimate.low) else value


def verdict_table(verdicts: Sequence[Verdict], noun: str = "claims") -> ScreenTable:
    """Return one row per estimate of every claim, for the screen."""
    rows = []
    for verdict in verdicts:
        estimates = [[estimate.what, estimate_text(estimate), estimate.region] for estimate in verdict.estimates]
        for place, cells in enumerate(estimates or [[verdict.note, "", ""]]):
            rows.append([*(("", "") if place else (verdict.name, verdict.word)), *cells])
    return ScreenTable(noun, ["", "verdict", "estimate", "value and 95 % interval", "predicted"], rows, False)


def settings_section(facts: Mapping[str, str], reading: str) -> Markup:
    """Return settings, data and versions as definitions; empty ones are left out."""
    return section("settings", "Settings", reading, definitions(((k, v) for k, v in facts.items() if v), "facts"))
