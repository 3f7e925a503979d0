"""Figures of the page of tangent kernels."""

import json

import pytest
from check_report import elements
from report_reading import figures

import murmuration as mm
from murmuration.reports.plotly_figures import coloured, colours
from murmuration.studies import plots
from murmuration.studies.kernels import kernel_diagnosis, kernels_at_infinite_width, kernels_before
from murmuration.studies.pages.kernels import kernels_page

PLAN = {"members": 3, "epochs": 2, "engine": "loop", "batch_size": 128}


def test_kernels_are_those_of_their_page() -> None:
    data = mm.open_data("two-moons")
    ensemble = mm.fit("mlp", data, recipe="batch-ensemble", **PLAN)  # type: ignore[arg-type]
    first = kernels_before("mlp", data, recipe="batch-ensemble", members=3, inputs=8)
    found = [first, kernel_diagnosis(ensemble, data.test.prepared, inputs=8)]
    page = figures(elements(kernels_page(found, title="", subtitle="")))
    assert json.loads(plots.kernels(found).to_json())["data"] == coloured(
        page["kernel-before"]["data"], colours("light")
    )
    after = json.loads(plots.kernels(found, "after").to_json())["data"]
    assert after == coloured(page["kernel-after"]["data"], colours("light"))
    limit = kernels_at_infinite_width("mlp", data, recipe="batch-ensemble", members=3, inputs=4)
    with pytest.raises(mm.Misuse, match="the limit of infinite width has none"):
        plots.kernels(limit)
