"""Parameters: what each is in the network, and what the recipe makes of it."""

from murmuration.core.roles import COLUMNS, ParameterRoles
from murmuration.reports.html import NOTHING, Markup, details, join, section, table, tag
from murmuration.reports.report import Report

READING = (
    "The parameters of one network, as a pass over training examples shows them: own copies of each member, shared or "
    "fixed; Gaussian or point estimates; scaled by each member, or with dropped inputs; and why the recipe leaves some "
    "alone."
)


def parameters(report: Report) -> Markup:
    """Return a summary and a table for every recipe."""
    roles_by_name = {
        evaluation.name: ParameterRoles.from_json(evaluation.manifest["parameters"])
        for evaluation in report.evaluations
        if evaluation.manifest.get("parameters")
    }
    if not roles_by_name:
        return NOTHING
    compared = len(roles_by_name) > 1
    paragraphs = join(
        tag("p", f"{name}: {roles.summary}" if compared else roles.summary) for name, roles in roles_by_name.items()
    )
    tables = [details(f"Every parameter: {name}", _table(name, roles)) for name, roles in roles_by_name.items()]
    return section("parameters", "Parameters", READING, join([paragraphs, *tables]))


def _table(name: str, roles: ParameterRoles) -> Markup:
    rows = [(row["parameter"], list(row.values())[1:]) for row in roles.columns()]
    columns = [column.capitalize() for column in COLUMNS]
    return tag("div", table(f"Parameters of {name}", columns, rows), "words")
