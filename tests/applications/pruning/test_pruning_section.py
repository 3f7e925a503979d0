"""The section on pruning, against a manifest written down by hand."""

import json
from dataclasses import replace

import pytest
import report_factories as made
from check_report import elements
from report_reading import figures, section_names, tables

import murmuration as mm
from murmuration.applications.pruning.section import curve, pruning, pruning_figure, sentences
from murmuration.reports import Report, render
from murmuration.reports.plotly_figures import coloured, colours
from murmuration.runs.manifest import Manifest


def score(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.02, "high": value + 0.01}


RECORD = {
    "of": "runs/x",
    "rule": "snr",
    "sparsity": 0.5,
    "threshold": None,
    "scope": "global",
    "structured": False,
    "chosen": True,
    "finetune": 2,
    "reached": 0.5,
    "counts": {"dense": 1010, "nonzero": 510, "numbers": 1020, "numbers_before": 2020},
    "layers": [{"name": "body.weight", "weights": 1000, "kept": 0.5}],
    "curve": [
        {"asked": 0.0, "sparsity": 0.0, "nonzero": 1010, "accuracy": score(0.97), "nll": score(0.1)},
        {"asked": 0.5, "sparsity": 0.5, "nonzero": 510, "accuracy": score(0.9), "nll": score(0.4)},
    ],
    "pruned": {"accuracy": score(0.9), "nll": score(0.4)},
    "finetuned": {"accuracy": score(0.96), "nll": score(0.15)},
}


def told(**changes) -> Report:
    """A report on two recipes, the second of which was pruned."""
    plain = made.classification("plain")
    entries = {"pruning": {**RECORD, **changes}} if changes.pop("pruned_run", True) else {}
    manifest = Manifest(entries=entries)
    return made.report(plain, replace(plain, name="pruned", ensemble=made.trained([], manifest)))


def test_a_run_that_was_not_pruned_has_no_section():
    assert pruning(told(pruned_run=False)) == ""


def test_the_sentences_hold_the_numbers():
    assert sentences(RECORD) == [
        "50.0 % of the kernels' weights are gone: weights by abs(mean) / std, global; "
        "validation examples chose how far.",
        "Of 1,010 parameters, 510 are not zero; 1,020 numbers describe them (2,020 before pruning), standard "
        "deviations of Gaussian weights included.",
        "Accuracy on validation examples: 0.970 before, 0.900 pruned, 0.960 after 2 epochs of fine-tuning.",
        "NLL on validation examples: 0.100 before, 0.400 pruned, 0.150 after 2 epochs of fine-tuning.",
    ]
    changed = {
        "rule": "log-alpha",
        "threshold": 3.0,
        "chosen": False,
        "finetune": 0,
        "curve": [],
        "compact": True,
        "counts": {"dense": 7, "nonzero": 7, "numbers": 14, "numbers_before": 2020},
    }
    bare = {key: value for key, value in RECORD.items() if key not in ("pruned", "finetuned")}
    assert sentences({**bare, **changed}) == [
        "50.0 % of the kernels' weights are gone: weights by log alpha, global, threshold 3.",
        "The network was rebuilt without them: 7 parameters are left; 14 numbers describe them (2,020 before pruning), "
        "standard deviations of Gaussian weights included.",
    ]


def test_curves_hold_the_numbers_and_where_the_run_stands():
    line, star, diamond = curve("x", RECORD, "accuracy", 1).data
    assert (line["x"], line["y"]) == ([0.0, 0.5], [0.97, 0.9])
    assert [round(value, 6) for value in line["error_y"]["arrayminus"]] == [0.02, 0.02]
    assert (star["x"], star["y"], diamond["x"], diamond["y"]) == ([0.5], [0.9], [0.5], [0.96])
    still = {key: value for key, value in RECORD.items() if key != "finetuned"}
    assert len(curve("x", still, "accuracy", 1).data) == 2


def test_the_page_has_curves_levels_and_layers():
    page = pruning(told())
    assert "pruning" in section_names(elements(page))
    assert {"pruning-1-accuracy", "pruning-1-nll"} <= set(figures(elements(page)))
    cells = [row for each in tables(page) for row in each]
    assert ["Weights gone", "Not zero", "Accuracy", "NLL"] in cells
    assert ["50.0 %", "510", "0.900", "0.400"] in cells
    assert ["body.weight", "1,000", "50.0 %"] in cells
    assert ["50.0 %", "50.0 %", "510", "0.900", "0.400"] in [
        row for each in tables(pruning(told(structured=True))) for row in each
    ]


def test_title_verdict_and_findings_name_the_pruning():
    plain = made.classification("bayes")
    report = made.report(replace(plain, ensemble=made.trained([], Manifest(entries={"pruning": RECORD}))))
    assert report.title == "bayes (pruned) on made up"
    assert "bayes, with 50.0 % of its kernels' weights pruned, classifies" in report.verdict[0]
    told = "The ensemble was pruned: 50.0 % of the kernels' weights were removed, and 1,020 numbers are left of 2,020."
    assert told in report.notes
    assert made.report(plain).title == "bayes on made up"
    assert not any("pruned" in note for note in made.report(plain).notes)


def test_the_figure_in_python_is_that_of_the_page():
    report = told()
    page = figures(elements(str(pruning(report))))
    for score_name in ("accuracy", "nll"):
        drawn = json.loads(pruning_figure(report, score_name, name="pruned").to_json())["data"]
        assert drawn == coloured(page[f"pruning-1-{score_name}"]["data"], colours("light"))
    with pytest.raises(mm.Misuse, match="'plain' was not pruned: write murmur prune RUN"):
        pruning_figure(report, name="plain")


def test_the_report_has_the_section_its_finding_and_its_title():
    report = told()
    assert "plain, pruned (pruned) on" in report.title
    assert 'id="pruning"' in render(report)
    assert any("pruned was pruned: 50.0 % of the kernels' weights" in sentence for sentence in report.notes)
