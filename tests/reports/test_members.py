"""Members, training curves, coupling, weights and provenance, against numbers written down by hand and a real run."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import report_factories as made
from check_report import elements, report_check
from report_reading import figures, section_names, tables

import murmuration as mm
from murmuration.core.coupling import input_gradients
from murmuration.core.recipe import make_recipe
from murmuration.data import Data, open_data
from murmuration.evaluation import evaluate_ensemble
from murmuration.evaluation.weight_diagnosis import SNR_EDGES, Diagnosis, Layer
from murmuration.reports import render, report_of, write_report
from murmuration.reports.formatting import members_and_draws
from murmuration.reports.sections.members import (
    COUPLING,
    agreement_figure,
    by_member,
    coupling,
    coupling_figure,
    members,
    provenance,
    training_figure,
)
from murmuration.reports.sections.weights import weights
from murmuration.runs.manifest import Manifest
from murmuration.training.plan import Plan

HISTORY = [
    {"epoch": 1, "train_loss": [1.0], "coupling": {"mean_kernel": 0.3, "cosine": 0.9, "push_to_loss": 0.001}},
    {"epoch": 2, "train_loss": [0.5]},  # no coupling measured
    {"epoch": 3, "train_loss": [0.2], "coupling": {"mean_kernel": 0.2, "cosine": None, "push_to_loss": 2.0}},
]
SECONDS = {"steps": 80.0, "coupling": 6.0}
MANIFEST = Manifest(coupling_seconds=SECONDS, sweep={"0": 0.5, "0.4": 0.25}, chosen="0.4")
COUNTS = tuple(int(place == 12) * 100 for place in range(len(SNR_EDGES) - 1))
FOUND = Diagnosis("he", 0.1, 1, 30, 1000, (Layer("head.weight", 100, 250.0, 0.87, 0.3, COUNTS),), 0.3, 0.8, 0.2)


@pytest.fixture(scope="module")
def plain():
    return made.classification("plain")


# Training


def test_training_separates_members_by_gaps_and_failed_ones_by_trace(plain) -> None:
    rows = [{"epoch": e, "val_nll": [1.0 / e, 2.0 / e, 3.0 / e], "ensemble": {"val_nll": 0.5 / e}} for e in (1, 2)]
    found = replace(plain, ensemble=made.trained(rows, Manifest(diverged={"1": "diverged"})))
    figure = training_figure(found, "val_nll", 0, "x")
    assert figure is not None
    running, failed, together = figure.data
    assert running["x"] == [1, 2, None, 1, 2, None]
    assert running["y"] == [1.0, 0.5, None, 3.0, 1.5, None]
    assert (failed["name"], failed["y"]) == ("failed members", [2.0, 1.0, None])
    assert together["y"] == [0.5, 0.25]


def test_stopped_members_have_no_training_loss(plain) -> None:
    """A stopped member is recorded with a loss of 0: its line ends, and the axis stays logarithmic."""
    rows = [
        {"epoch": 1, "train_loss": [1.0, 2.0], "active": [True, True]},
        {"epoch": 2, "train_loss": [0.5, 0.0], "active": [True, False]},
        {"epoch": 3, "train_loss": [0.05, 0.0], "active": [True, False]},
    ]
    figure = training_figure(replace(plain, ensemble=made.trained(rows)), "train_loss", 0, "x")
    assert figure is not None
    assert figure.data[0]["y"] == [1.0, 0.5, 0.05, None, 2.0, None, None, None]
    assert figure.layout["yaxis"]["type"] == "log"
    assert training_figure(replace(plain, ensemble=made.trained([])), "train_loss", 0, "x") is None


# Agreement


def test_agreement_of_draws_is_folded_to_members() -> None:
    draws = np.array([[1, 0.8, 0.5, 0.6], [0.8, 1, 0.7, 0.6], [0.5, 0.7, 1, 0.9], [0.6, 0.6, 0.9, 1]])
    np.testing.assert_allclose(by_member(draws, 2), [[0.8, 0.6], [0.6, 0.9]])


def test_members_that_all_agree_alike_are_told_and_not_drawn(plain) -> None:
    alike = np.full((3, 3), 0.985) + 0.004 * np.eye(3)
    same = replace(plain, examples=replace(plain.examples, agreement=alike))
    told = members(made.report(same))
    assert figures(elements(told)) == {}
    assert "two members agree on 98.5 % of the test examples on average" in told
    matrix = np.array([[1, 0.9, 0.6], [0.9, 1, 0.7], [0.6, 0.7, 1]])
    different = replace(plain, examples=replace(plain.examples, agreement=matrix))
    assert list(figures(elements(members(made.report(different))))) == ["agreement-0"]
    drawn = agreement_figure(different, "x")
    assert drawn is not None
    assert drawn.data[0]["zmin"] == 0.6
    assert "0.733 on average" in drawn.label


def test_each_member_alone_stands_beside_the_ensemble(plain) -> None:
    board = next(each for each in tables(members(made.report(plain))) if each[0][0] == "Member")
    assert [row[0] for row in board[1:]] == ["member 0", "member 1", "member 2", "mean", "all together"]
    drawn = replace(plain, ensemble=made.trained([], draws=3))
    page = members(made.report(drawn))
    assert f"{members_and_draws(1, 3)}; two draws of a member agree to" in page


# Coupling


def coupled(plain):
    return made.report(plain, replace(plain, name="forde", ensemble=made.trained(HISTORY, MANIFEST)))


def test_a_run_without_coupling_has_no_section(plain) -> None:
    assert coupling(made.report(plain)) == ""
    assert coupling(made.report(replace(plain, ensemble=made.trained([{"epoch": 1, "train_loss": [1.0]}])))) == ""


def test_coupling_curves_hold_the_numbers_in_the_colour_of_the_recipe(plain) -> None:
    drawn = coupling_figure(coupled(plain), "push_to_loss", "x")
    assert drawn is not None
    (line,) = drawn.data
    assert (line["x"], line["y"], line["name"]) == ([1.0, 3.0], [0.001, 2.0], "forde")
    assert line["line"]["color"] == "var(--series-2)"  # that of the second recipe everywhere else
    assert drawn.layout["yaxis"]["type"] == "log"  # over three powers of ten
    kernel = coupling_figure(coupled(plain), "mean_kernel", "x")
    assert kernel is not None
    assert "type" not in kernel.layout["yaxis"]


def test_the_section_has_time_and_sweep(plain) -> None:
    page = coupling(coupled(plain))
    assert {f"coupling-{name.replace('_', '-')}" for name in COUPLING} == set(figures(elements(page)))
    cells = tables(page)
    assert ["forde", "1 min 20 s", "6.00 s", "7.5 %"] in [row for each in cells for row in each]
    (sweep,) = [each for each in cells if each[0] == ["Alpha", "Validation NLL"]]
    assert sweep[1:] == [["0", "0.500"], ["0.4", "0.250★"]]


def test_a_real_run_fills_the_section() -> None:
    data = mm.open_data("five-gaussians")
    plan = Plan(members=3, epochs=2, engine="stacked")
    found = evaluate_ensemble(mm.fit("mlp", data, recipe="forde-identity", plan=plan, posthoc=None), data)
    report = made.report(found)
    for name, low, high in (("mean_kernel", 0, 1), ("cosine", -1, 1), ("push_to_loss", 0, math.inf)):
        drawn = coupling_figure(report, name, "x")
        assert drawn is not None
        assert drawn.data[0]["x"] == [1, 2]
        assert all(low <= value <= high for value in drawn.data[0]["y"])
    assert "coupling" in section_names(elements(render(report)))


def test_the_alpha_that_a_run_chose_is_marked_in_its_report(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(input_gradients, "ALPHAS", (0.0, 0.4, 1.0))
    data, plan = mm.open_data("five-gaussians"), Plan(members=2, epochs=1)
    mm.fit("mlp", data, recipe="forde-tuned", plan=plan, posthoc=None, out=tmp_path)
    ensemble = mm.load(tmp_path, posthoc=False)
    chosen = json.loads((tmp_path / "run.json").read_text())["chosen"]
    assert ensemble.manifest.chosen == chosen in ("0", "0.4", "1")
    cells = tables(coupling(made.report(evaluate_ensemble(ensemble, data))))
    (sweep,) = [rows for rows in cells if rows[0] == ["Alpha", "Validation NLL"]]
    assert [alpha for alpha, nll in sweep[1:] if nll.endswith("★")] == [chosen]


# Weights


def test_weights_have_a_sentence_a_table_and_layers(plain) -> None:
    page = weights(made.report(replace(plain, weights=FOUND)))
    assert "<p>87 % of the weights have collapsed to the prior" in page
    for cell in ("87.0 %", "250", "0.250", "0.800 (0.200)", members_and_draws(1, 30), "prior he", "head.weight"):
        assert cell in page, cell
    both = weights(made.report(replace(plain, weights=FOUND), replace(plain, name="b", weights=FOUND)))
    assert "<p>plain: 87 % of the weights" in both
    assert "<p>b: 87 % of the weights" in both
    untold = replace(FOUND, distance=None, noise=None, untold=("No <distance>.",))
    page = weights(made.report(replace(plain, weights=untold)))
    assert "<p>No &lt;distance&gt;.</p>" in page
    assert "Distance to prior:" not in page
    assert weights(made.report(plain)) == ""


def test_the_whole_page_of_real_runs(digits: Data, tmp_path: Path) -> None:
    little = open_data((digits.train.prepared[:200], digits.train.y[:200]))
    plan = mm.Plan(members=2, epochs=2, engine="loop")
    bayes = mm.fit(
        "mlp", little, recipe=make_recipe("deep-ensemble", weights="gaussian:draws=3"), plan=plan, posthoc=None
    )
    single = mm.fit("mlp", little, recipe="single", plan=replace(plan, members=1), posthoc=None)
    report = report_of([evaluate_ensemble(bayes, little, "bayes"), evaluate_ensemble(single, little, "single")])
    assert any(note.startswith("bayes: ") and "collapsed to the prior" in note for note in report.notes)
    write_report(tmp_path / "report.html", report)
    assert report_check(tmp_path / "report.html") == []
    text = (tmp_path / "report.html").read_text()
    assert {"weights", "recipes", "members", "examples"} <= set(section_names(elements(text)))
    assert "murmuration" in provenance(report)
