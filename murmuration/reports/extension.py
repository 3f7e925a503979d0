"""Sections that applications add to the report, registered as entry points `murmuration.report_sections`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murmuration.system.plugins import plugins

if TYPE_CHECKING:
    from murmuration.evaluation import Evaluation
    from murmuration.reports.html import Markup
    from murmuration.reports.report import Report


@dataclass(frozen=True)
class ReportSection:
    """A section of the report about runs whose manifest has an entry of an application.

    Attributes:
        key: The entry of the manifest; `metrics.json` repeats it.
        group: Group of the navigation that the section stands in.
        build: Makes the section of a report.
        mark: A word after the recipe's name in the title, such as "pruned".
        qualifier: Says in the headline what was done to the model, from the entry: "with 80 % of its weights pruned".
        finding: A sentence from the entry and the name of the model.
    """

    key: str
    group: str
    build: "Callable[[Report], Markup]"
    mark: str
    qualifier: Callable[[Mapping[str, Any]], str]
    finding: Callable[[Mapping[str, Any], str], str]


def report_sections(evaluation: "Evaluation | None" = None) -> list[ReportSection]:
    """Return the registered sections, or those that concern an evaluation."""
    sections: list[ReportSection] = list(plugins("murmuration.report_sections", ReportSection).values())
    return [section for section in sections if evaluation is None or section.key in evaluation.manifest.entries]
