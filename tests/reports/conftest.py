"""Pages rendered once for all tests of reports."""

import pytest
import report_samples

from murmuration.reports import render
from murmuration.reports.check import Element, elements


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    kinds = (report_samples.classification, report_samples.regression, report_samples.moons)
    return {kind.__name__: render(kind()) for kind in kinds}


@pytest.fixture(scope="session")
def parsed(pages: dict[str, str]) -> dict[str, list[Element]]:
    return {name: elements(page) for name, page in pages.items()}
