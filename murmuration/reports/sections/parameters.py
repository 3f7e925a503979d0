"""Parameters: what each is in the network, and what the recipe makes of it."""

from murmuration.core.roles import COLUMNS, ParameterRoles
from murmuration.reports.html import Markup, details, join, section, table, tag
from murmuration.reports.report import Report

READING = (
    "The parameters of one network, as a pass over training examples shows them: own copies of each member, shared or "
    "fixed; Gaussian or point estimates; scaled by each member, or with dropped inputs; and why the recipe leaves some "
    "alone."
)


def parameters(report: Report) -> Markup:
    """Return a summary and a table for every recipe."""
    stored = {e.name: e.manifest.parameters for e in report.evaluations if e.manifest.parameters}
    paragraphs, tables = [], []
    for name, entry in stored.items():
        roles = ParameterRoles.from_json(entry)
        paragraphs.append(tag("p", f"{name}: {roles.summary}" if len(stored) > 1 else roles.summary))
        rows = [(row["parameter"], list(row.values())[1:]) for row in roles.columns()]
        board = tag("div", table(f"Parameters of {name}", map(str.capitalize, COLUMNS), rows), "words")
        tables.append(details(f"Every parameter: {name}", board))
    return section("parameters", "Parameters", READING, join([*paragraphs, *tables]))
