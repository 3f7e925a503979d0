"""What a report says of members that met, against numbers written down by hand and against a real run."""

import math
from dataclasses import replace

import pytest
import report_samples
from report_reading import figures, section_names, tables

import murmuration as mm
from murmuration.errors import Misuse
from murmuration.evaluation import evaluate_ensemble
from murmuration.recipe import Plan
from murmuration.reports import Field1D, Field2D, Report, render
from murmuration.reports.check import elements
from murmuration.reports.coupling_records import MEASURES, Meetings, meetings_of
from murmuration.reports.coupling_section import curves, meetings
from murmuration.reports.entries import entry_of
from murmuration.reports.pictures import common_reach

HISTORY = [
    {"epoch": 1, "train_loss": [1.0], "coupling": {"mean_kernel": 0.3, "cosine": 0.9, "push_to_loss": 0.001}},
    {"epoch": 2, "train_loss": [0.5]},  # nobody met
    {"epoch": 3, "train_loss": [0.2], "coupling": {"mean_kernel": 0.2, "cosine": None, "push_to_loss": 2.0}},
]
MANIFEST = {"coupling_seconds": {"steps": 80.0, "coupling": 6.0}, "sweep": {"0": 0.5, "0.4": 0.25}, "alpha": 0.4}


def told(found: Meetings | None) -> Report:
    """A report of two recipes, the second of which met."""
    plain = report_samples.classification()
    return replace(plain, entries=(plain.entries[0], replace(plain.entries[1], meetings=found)))


def test_a_run_without_meetings_has_no_section():
    assert meetings_of([{"epoch": 1, "train_loss": [1.0]}], {}) is None
    assert meetings(report_samples.classification()) == ""
    assert meetings(told(Meetings())) == ""


def test_history_and_manifest_become_a_record():
    found = meetings_of(HISTORY, MANIFEST)
    assert found is not None
    assert found.epochs == (1, 3)
    assert found.measures["push_to_loss"] == (0.001, 2.0)
    assert found.measures["cosine"][0] == 0.9
    assert math.isnan(found.measures["cosine"][1])
    assert found.share == 6 / 80
    assert math.isnan(Meetings().share)


def test_curves_hold_the_numbers_in_the_colour_of_the_recipe():
    report = told(meetings_of(HISTORY, MANIFEST))
    drawn = curves(report, "push_to_loss", "x")
    assert drawn is not None
    (line,) = drawn.data
    assert (line["x"], line["y"], line["name"]) == ([1.0, 3.0], [0.001, 2.0], "forde")
    assert line["line"]["color"] == "var(--series-2)"  # that of the second entry everywhere else
    assert drawn.layout["yaxis"]["type"] == "log"  # over three powers of ten
    assert "type" not in curves(report, "mean_kernel", "x").layout["yaxis"]


def test_the_page_tells_time_and_sweep():
    page = render(told(meetings_of(HISTORY, MANIFEST)))
    assert "meetings" in section_names(elements(page))
    drawn = figures(elements(page))
    assert {f"meetings-{name.replace('_', '-')}" for name in MEASURES} <= set(drawn)
    cells = tables(page)
    assert ["forde", "1 min 20 s", "6.00 s", "7.5 %"] in [row for each in cells for row in each]
    (sweep,) = [each for each in cells if each[0] == ["Alpha", "Validation NLL"]]
    assert sweep[1:] == [["0", "0.500"], ["0.4", "0.250★"]]


def test_records_refuse_what_does_not_fit():
    with pytest.raises(Misuse, match=r"alpha=0\.2 was not tried: the sweep has 0, 0\.4"):
        Meetings(sweep={"0": 0.5, "0.4": 0.25}, alpha=0.2)
    with pytest.raises(Misuse, match="meetings"):
        Meetings((1, 2), {"cosine": (0.5,)})


def test_a_real_run_fills_the_record():
    data = mm.open_data("five-gaussians")
    plan = Plan(members=3, epochs=2, engine="stacked")
    entry = entry_of(evaluate_ensemble(mm.fit("mlp", data, recipe="forde-identity", plan=plan), data))
    assert entry.meetings is not None
    assert entry.meetings.epochs == (1, 2)
    assert all(0 <= value <= 1 for value in entry.meetings.measures["mean_kernel"])
    assert all(-1 <= value <= 1 for value in entry.meetings.measures["cosine"])
    assert all(value > 0 for value in entry.meetings.measures["push_to_loss"])
    assert 0 < entry.meetings.share < 1
    alone = entry_of(evaluate_ensemble(mm.fit("mlp", data, recipe="deep-ensemble", plan=plan), data))
    assert alone.meetings is None


def test_fields_share_one_scale_and_a_wild_one_is_cut():
    narrow = Field1D([0.0, 1.0], [0.0, 1.0], [0.0, 0.0], [0.5, 0.5], [0.0, 1.0], [0.0, 2.0])
    wide = replace(narrow, epistemic_std=[100.0, 0.5])
    assert common_reach([narrow]) == (-1.0, 2.0)
    assert common_reach([narrow, wide]) == (-3.0, 5.0)  # the targets' range of two, and one and a half of it beyond
    maps = [Field2D([0, 1], [0], [[0.2, 0.4]]), Field2D([0, 1], [0], [[0.1, math.nan]])]
    assert common_reach(maps) == (0.0, 0.4)
    assert common_reach([]) is None
