"""Pages rendered once for all tests of reports."""

import pytest
import report_factories as made
from check_report import Element, elements

from murmuration.reports import render


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    """A full comparison of either task, and one recipe with little else."""
    kinds = {"classification": made.classification, "regression": made.regression}
    full = {
        name: made.report(made.full(kind, "sharp", distortion=2.0), made.full(kind, "plain"))
        for name, kind in kinds.items()
    }
    small = made.report(made.evaluation_of(*made.classification_sample(60, members=1), "alone"))
    return {name: render(report) for name, report in {**full, "small": small}.items()}


@pytest.fixture(scope="session")
def parsed(pages: dict[str, str]) -> dict[str, list[Element]]:
    return {name: elements(page) for name, page in pages.items()}
