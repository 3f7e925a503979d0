"""What a report says of why an ensemble is unsure, and of weights that are distributions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import murmuration as mm
from murmuration.data import Data, open_data
from murmuration.errors import Misuse
from murmuration.evaluation import evaluate_ensemble
from murmuration.evaluation.weight_diagnosis import SNR_EDGES, Diagnosis, Layer
from murmuration.recipe import make_recipe
from murmuration.reports.bridge import report_of
from murmuration.reports.check import report_check
from murmuration.reports.doubt_records import ClassRow, Doubts
from murmuration.reports.doubt_section import doubts
from murmuration.reports.entries import by_member
from murmuration.reports.making import members
from murmuration.reports.page import write_report
from murmuration.reports.records import DataCard, Entry, Report
from murmuration.reports.weights_section import weights
from murmuration.reports.wording import answers

OVERALL = {
    "aleatoric": (0.05, 0.04, 0.06),
    "epistemic": (0.01, 0.008, 0.012),
    "entropy": (0.2, 0.15, 0.25),
    "expected_entropy": (0.15, 0.1, 0.2),
    "mutual_information": (0.05, 0.04, 0.06),
}
ROW = ClassRow("<three>", 12, {"accuracy": (0.9, 0.8, 1.0), **OVERALL})
COUNTS = tuple(int(place == 12) * 100 for place in range(len(SNR_EDGES) - 1))
FOUND = Diagnosis("he", 0.1, 1, 30, 1000, (Layer("head.weight", 100, 250.0, 0.87, 0.3, COUNTS),), 0.3, 0.8, 0.2)


def made(*entries: Entry) -> Report:
    return Report("title", "classification", DataCard("digits"), entries)


def test_a_table_over_all_examples_and_one_by_class() -> None:
    page = doubts(made(Entry("bayes", doubts=Doubts(2, 8, OVERALL, (ROW, replace(ROW, name="b"))))))
    assert "What is uncertain, and why" in page
    assert answers(2, 8) in page
    assert "&lt;three&gt;" in page
    assert "<three>" not in page
    assert "12 examples" in page
    assert "0.0100" in page
    assert "gives one answer" not in page
    assert 'data-figure="doubts-0"' in page


def test_one_answer_alone_is_told_to_say_nothing_of_disagreement() -> None:
    page = doubts(made(Entry("single", doubts=Doubts(1, 1, OVERALL, (ROW, replace(ROW, name="b"))))))
    assert "single gives one answer to an input." in page
    assert "1 member<" in page


def test_nothing_is_said_without_data() -> None:
    assert doubts(made(Entry("x"))) == ""
    assert weights(made(Entry("x"))) == ""


def test_many_classes_stay_out_of_the_figure() -> None:
    rows = tuple(replace(ROW, name=str(k)) for k in range(31))
    page = doubts(made(Entry("wide", doubts=Doubts(2, 1, OVERALL, rows))))
    assert "data-figure" not in page
    assert page.count("12 examples") == 31


def test_weights_are_told_in_a_sentence_a_table_and_by_layer() -> None:
    page = weights(made(Entry("bayes", weights=FOUND)))
    assert "<p>87 % of the weights have collapsed to the prior: the data taught them nothing." in page
    for cell in ("87.0 %", "250", "0.250", "0.800 (0.200)", answers(1, 30), "prior he", "head.weight"):
        assert cell in page, cell
    both = weights(made(Entry("a", weights=FOUND), Entry("b", weights=replace(FOUND, distance=0.1))))
    assert "<p>a: 87 % of the weights" in both
    assert (
        "<p>b: 87 % of the weights have collapsed to the prior: the data taught them nothing. The predictions" in both
    )
    untold = replace(FOUND, distance=None, noise=None, untold=("No <distance>.",))
    assert "<p>No &lt;distance&gt;.</p>" in weights(made(Entry("bayes", weights=untold)))
    assert "Distance to prior compares" not in weights(made(Entry("bayes", weights=untold)))


def test_agreement_of_draws_is_folded_to_members() -> None:
    draws = np.array([[1, 0.8, 0.5, 0.6], [0.8, 1, 0.7, 0.6], [0.5, 0.7, 1, 0.9], [0.6, 0.6, 0.9, 1]])
    np.testing.assert_allclose(by_member(draws, 2), [[0.8, 0.6], [0.6, 0.9]])
    assert by_member(draws, 1) is draws
    page = members(made(Entry("bayes", draws=2, agreement=by_member(draws, 2), members=[{"nll": 0.1}, {"nll": 0.2}])))
    assert f"bayes: {answers(2, 2)}; two draws of a member are alike to 0.850" in page
    assert "a draw of member 1" in page
    assert "mean of all draws" in page


def test_scores_that_are_no_triples_are_refused() -> None:
    with pytest.raises(Misuse, match="all examples"):
        Doubts(1, 1, {"aleatoric": 0.5})  # type: ignore[dict-item]


def test_the_whole_page_of_real_runs(digits: Data, tmp_path: Path) -> None:
    little = open_data((digits.train.x[:200], digits.train.y[:200]))
    plan = mm.Plan(members=2, epochs=2, engine="loop")
    bayes = mm.fit("mlp", little, recipe=make_recipe("deep-ensemble", weights="gaussian:draws=3"), plan=plan)
    single = mm.fit("mlp", little, recipe="single", plan=replace(plan, members=1))
    report = report_of([evaluate_ensemble(bayes, little, "bayes"), evaluate_ensemble(single, little, "single")])
    assert report.doubtful_of == "bayes"
    assert [len(found) for found in report.doubtful.values()] == [4, 4]
    for kind, found in report.doubtful.items():
        values = [example.measures[kind] for example in found]
        assert values == sorted(values, reverse=True)
    assert any(note.startswith("bayes: ") and "collapsed to the prior" in note for note in report.notes)
    write_report(tmp_path / "report.html", report)
    assert report_check(tmp_path / "report.html") == []
