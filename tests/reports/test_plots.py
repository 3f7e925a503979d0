"""`mm.plots`: the figures of the pages as valid plotly figures with the same data, and refusals in one line."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import report_factories as made
import torch
from check_report import elements
from prediction_factories import classification_sample, regression_sample
from report_reading import figures
from test_members import FOUND

import murmuration as mm
from murmuration.evaluation.metrics import shown_in
from murmuration.likelihoods import MultiLabel
from murmuration.reports import Report, plots, render
from murmuration.reports.sections.members import CURVES

PAGE = (Path(__file__).parents[2] / "docs" / "plots.md").read_text()
STYLE = files("murmuration.reports").joinpath("style.css").read_text(encoding="utf-8")
PLAN = {"members": 3, "epochs": 2, "engine": "loop", "batch_size": 128}


def with_parts(kind: Callable[..., mm.Evaluation], name: str, **fields: Any) -> mm.Evaluation:
    """An evaluation with shift, OOD inputs, groups, and members that agree to different degrees."""
    found, agreement = made.full(kind, name, **fields), np.array([[1, 0.9, 0.6], [0.9, 1, 0.7], [0.6, 0.7, 1]])
    return replace(found, examples=replace(found.examples, agreement=agreement))


def trained(source: str, recipe: str, **evaluated: Any) -> mm.Evaluation:
    data = mm.open_data(source)
    return mm.evaluate(mm.fit("mlp", data, recipe=recipe, **PLAN), data, name=recipe, **evaluated)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """Two recipes with made-up predictions and two that were trained, of either task."""
    found = {}
    for task, kind, source in (
        ("classification", made.classification, "two-moons"),
        ("regression", made.regression, "gaps-1d"),
    ):
        found[task] = made.report(with_parts(kind, "sharp", distortion=2.0), with_parts(kind, "plain"))
        pair = [trained(source, "deep-ensemble"), replace(trained(source, "forde"), weights=FOUND)]
        found[f"trained {task}"] = made.report(*pair)
    return found


@pytest.fixture(scope="module")
def alone(reports: dict[str, Report]) -> mm.Evaluation:
    """One member, without shift, OOD inputs, groups, conformal sets and an ensemble."""
    return made.evaluation_of(*classification_sample(60, members=1), "alone")


def at(report: Report, place: str) -> str:
    return report.evaluations[int(place)].name


def ood_set(report: Report, place: str) -> str:
    return report.evaluations[0].ood[int(place)].name


DRAWN: dict[str, Callable[..., go.Figure]] = {  # id of a figure on the page -> the same in Python
    r"confusion-(\d)": lambda r, i, **how: plots.confusion_matrix(r, name=at(r, i), **how),
    r"differences": lambda r, **how: plots.differences(r, **how),
    r"roc": lambda r, **how: plots.roc(r, **how),
    r"precision-recall": lambda r, **how: plots.precision_recall(r, **how),
    r"costs-(\d)": lambda r, i, **how: plots.threshold_costs(r, name=at(r, i), **how),
    r"predictions-(\d)": lambda r, i, **how: plots.parity(r, name=at(r, i), **how),
    r"calibration-(\d)": lambda r, i, **how: plots.reliability(r, name=at(r, i), **how),
    r"uncertainty-(\d)": lambda r, i, **how: plots.uncertainty_histogram(r, name=at(r, i), **how),
    r"uncertainty-classes-(\d)": lambda r, i, **how: plots.uncertainty_by_class(r, name=at(r, i), **how),
    r"risk-coverage": lambda r, **how: plots.risk_coverage(r, **how),
    r"conformal-subsets-(\d)": lambda r, i, **how: plots.conformal_coverage(r, name=at(r, i), **how),
    r"field-(\d)": lambda r, i, **how: plots.input_space(r, name=at(r, i), **how),
    r"shift-(\d)": lambda r, i, **how: plots.shift(r, shown_in("shift", r.task)[int(i)], **how),
    r"ood-(\d)-auroc": lambda r, i, **how: plots.ood_auroc(r, ood=ood_set(r, i), **how),
    r"ood-(\d)-(\d)-([a-z-]+)": lambda r, i, j, key, **how: plots.ood_histogram(
        r, key.replace("-", "_"), ood=ood_set(r, i), name=at(r, j), **how
    ),
    r"groups-(\d)": lambda r, i, **how: plots.groups(r, list(r.evaluations[0].groups)[int(i)], **how),
    r"agreement-(\d)": lambda r, i, **how: plots.member_agreement(r, name=at(r, i), **how),
    r"training-(\d)-(\d)": lambda r, i, j, **how: plots.training_curves(r, CURVES[int(j)], name=at(r, i), **how),
    r"coupling-([a-z-]+)": lambda r, key, **how: plots.coupling(r, key.replace("-", "_"), **how),
    r"weights-1": lambda r, **how: plots.signal_to_noise(r, name="forde", **how),  # the only one that has any
}


def on_page(page: str, theme: str) -> dict[str, list[Any]]:
    """The traces of every figure of a page, in the colours of a theme."""
    side = ("light", "dark").index(theme)
    both = re.findall(r"(--[\w-]+): light-dark\((.*?\)?), ([#r].*)\);", STYLE)
    inks = {name: pair[side] for name, *pair in both}
    text = json.dumps({name: figure["data"] for name, figure in figures(elements(page)).items()})
    found: dict[str, list[Any]] = json.loads(re.sub(r"var\((--[\w-]+)\)", lambda named: inks[named[1]], text))
    return found


def check(drawn: go.Figure, data: list[Any]) -> None:
    """A figure that shows these traces in concrete colours."""
    assert isinstance(drawn, go.Figure)
    text = drawn.to_json()
    assert "var(--" not in text
    assert json.loads(text)["data"] == data


@pytest.mark.slow
def test_every_figure_of_the_page_is_a_plotly_figure_with_the_same_data(reports: dict[str, Report]) -> None:
    drawn = set()
    for turn, report in enumerate(reports.values()):
        theme = ("light", "dark")[turn % 2]
        for name, data in on_page(render(report), theme).items():
            ((match, draw),) = [
                (match, draw) for pattern, draw in DRAWN.items() if (match := re.fullmatch(pattern, name))
            ]
            check(draw(report, *match.groups(), theme=theme), data)
            drawn.add(match.re.pattern)
    assert drawn == set(DRAWN)
    called = {name for draw in DRAWN.values() for name in draw.__code__.co_names if name in plots.__all__}
    elsewhere = {"figure_image", "column_importance", "partial_dependence", "drift"}  # with the pages they belong to
    assert called | elsewhere == set(plots.__all__)


def test_a_comparison_is_drawn_as_its_report(reports) -> None:
    report = reports["classification"]
    comparison, name = mm.Comparison(report, 0), report.names[0]
    assert plots.differences(comparison) == plots.differences(report)
    assert plots.reliability(comparison, name=name) == plots.reliability(report, name=name)


def test_the_page_on_figures_lists_every_function() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (yes|) ?\|$", PAGE, re.MULTILINE)
    assert sorted(name for name, _ in rows) == plots.__all__
    taking = {name for name in plots.__all__ if "y" in signature(getattr(plots, name)).parameters}
    assert {name for name, listed in rows if listed} == taking


def test_the_program_of_the_page_on_figures_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert program.count('"mlp", data') == 2
    exec(program.replace('"mlp", data', '"mlp", data, epochs=1'), {})


def test_predictions_with_targets_are_drawn_as_their_evaluation_is() -> None:
    for sample, more in ((classification_sample, ["confusion_matrix"]), (regression_sample, ["parity"])):
        pred, y = sample(200)
        found = made.evaluation_of(pred, y, "predictions")
        for name in ("reliability", "risk_coverage", "uncertainty_histogram", "member_agreement", *more):
            draw = getattr(plots, name)
            assert draw(pred, y).data == draw(found).data
    classes = plots.uncertainty_by_class(*classification_sample(200))
    assert classes.layout.yaxis.ticktext == ("0", "1", "2", "3")


def test_themes_are_the_colours_of_the_style_sheet(alone: mm.Evaluation) -> None:
    light, dark = (plots.reliability(alone, theme=theme) for theme in ("light", "dark"))
    assert (light.layout.paper_bgcolor, dark.layout.paper_bgcolor) == ("#ffffff", "#1a212b")
    assert (light.data[1].line.color, dark.data[1].line.color) == ("#0072b2", "#56b4e9")
    assert light.layout.title.text == "alone"
    assert light.layout.template.layout.to_plotly_json() == {}  # nothing of plotly's own look
    with pytest.raises(mm.Misuse, match="unknown theme 'drak': did you mean 'dark'"):
        plots.reliability(alone, theme="drak")  # type: ignore[arg-type]


def test_text_that_looks_like_a_colour_stays_text(alone: mm.Evaluation) -> None:
    named = [replace(alone, name="var(--ink)"), replace(alone, name="<b>")]
    assert [trace.name for trace in plots.risk_coverage(named).data] == ["var(--ink)", "&lt;b&gt;"]


def test_many_classes_are_drawn_when_asked_for() -> None:
    pred, y = classification_sample(200, classes=40)
    drawn = plots.confusion_matrix(pred, y)
    assert len(drawn.data[0].z) == 40
    assert drawn.layout.height > 480


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("conformal_coverage", "no evaluation has conformal sets"),
        ("coupling", "no evaluation has statistics of a coupling"),
        ("groups", "no evaluation has groups"),
        ("input_space", "the input space of 'alone' cannot be drawn"),
        ("member_agreement", "'alone' has one member"),
        ("ood_auroc", "no evaluation has out-of-distribution inputs"),
        ("ood_histogram", "no evaluation has out-of-distribution inputs"),
        ("parity", "against targets of a classification"),
        ("shift", "no evaluation has scores under corruption"),
        ("signal_to_noise", "'alone' has no Gaussian weights"),
        ("training_curves", "'alone' has no training history"),
    ],
)
def test_a_missing_part_is_refused_in_one_line(name: str, words: str, alone: mm.Evaluation) -> None:
    with pytest.raises(mm.Misuse, match=words) as refused:
        getattr(plots, name)(alone)
    assert "\n" not in str(refused.value)


def test_what_cannot_be_drawn_is_refused(reports: dict[str, Report], alone: mm.Evaluation) -> None:
    report, pred = reports["regression"], regression_sample(20)[0]
    two = regression_sample(20, targets=2)
    labels = mm.Predictive(torch.zeros(1, 5, 2), MultiLabel(2))
    for draw, words in (
        (lambda: plots.confusion_matrix(report, name="plain"), "a confusion matrix of a regression"),
        (lambda: plots.uncertainty_by_class(report, name="plain"), "'plain' has no classes"),
        (lambda: plots.parity(*two), "against targets of several targets"),
        (lambda: plots.reliability(report), "2 evaluations for a figure of one: give name=, one of sharp, plain"),
        (lambda: plots.reliability(report, name="shrap"), "unknown evaluation 'shrap': did you mean 'sharp'"),
        (lambda: plots.shift(report, "nlll"), "unknown score under corruption 'nlll': did you mean 'nll'"),
        (lambda: plots.reliability(pred), "a Predictive without targets"),
        (lambda: plots.reliability(alone, [0]), "y beside an evaluation"),
        (lambda: plots.reliability(labels, torch.zeros(5, 2)), "predictions of task 'multi-label'"),
        (lambda: plots.shift(pred), "Predictive: expected an evaluation"),  # type: ignore[arg-type]
        (lambda: plots.shift("x"), "str: expected an evaluation"),  # type: ignore[arg-type]
        (lambda: plots.risk_coverage([alone, report.evaluations[0]]), "expected those of one task"),
    ):
        with pytest.raises(mm.Misuse, match=re.escape(words)) as refused:
            draw()
        assert "\n" not in str(refused.value)


def test_without_plotly_the_refusal_says_what_to_install(alone: mm.Evaluation, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(mm.Misuse, match=r"^mm.plots needs plotly: pip install 'torch-murmuration\[plots\]'$"):
        mm.plots.reliability(alone)
