"""Evaluation and report of imbalanced classes: groups, macro scores, class-conditional sets, the page."""

import doctest
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from check_report import report_check
from sklearn.metrics import average_precision_score, balanced_accuracy_score, f1_score, roc_auc_score

import murmuration as mm
from murmuration.evaluation.by_class import (
    IMBALANCED,
    macro_auroc,
    macro_average_precision,
    macro_f1,
    shot_groups,
    training_counts,
)
from murmuration.evaluation.metrics.no_input import class_accuracy
from murmuration.prediction.posthoc.conformal import covered, fit_conformal


def made(count: int, seed: int, frequencies: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Labels (N,) and probabilities (N, 3) that are often right for common classes."""
    generator = np.random.default_rng(seed)
    label = generator.choice(3, size=count, p=frequencies)
    logits = generator.normal(size=(count, 3)) + np.array([2.0, 1.0, 0.5])[label][:, None] * np.eye(3)[label]
    return label, np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


def test_macro_scores_against_scikit_learn() -> None:
    label, probs = made(400, 0, (0.7, 0.2, 0.1))
    predicted = probs.argmax(1)
    one_hot = np.eye(3)[label]
    found = {
        "accuracy": class_accuracy((predicted == label).astype(float), label, range(3)),
        "f1": macro_f1(label, predicted),
        "auroc": macro_auroc(label, probs),
        "precision": macro_average_precision(label, probs),
    }
    expected = {
        "accuracy": balanced_accuracy_score(label, predicted),
        "f1": f1_score(label, predicted, average="macro"),
        "auroc": roc_auc_score(label, probs, multi_class="ovr", average="macro"),
        "precision": average_precision_score(one_hot, probs, average="macro"),
    }
    for name, value in expected.items():
        assert found[name].mean() == pytest.approx(value, abs=1e-12), name
        assert found[name].shape == (400,)


@pytest.mark.parametrize("score", ["accuracy", "f1", "auroc", "precision"])
def test_standard_errors_are_those_of_resampling(score: str) -> None:
    """The deviation of values over sqrt(N) against that of 300 bootstrap scores, which has 4 % error itself."""
    label, probs = made(500, 1, (0.6, 0.3, 0.1))

    def values(rows: np.ndarray) -> np.ndarray:
        y, p = label[rows], probs[rows]
        made_of = {
            "accuracy": lambda: class_accuracy((p.argmax(1) == y).astype(float), y, range(3)),
            "f1": lambda: macro_f1(y, p.argmax(1)),
            "auroc": lambda: macro_auroc(y, p),
            "precision": lambda: macro_average_precision(y, p),
        }
        return made_of[score]()

    generator = np.random.default_rng(2)
    drawn = [values(generator.integers(500, size=500)).mean() for _ in range(300)]
    ours = values(np.arange(500)).std() / math.sqrt(500)
    assert ours == pytest.approx(np.std(drawn), rel=0.2)


def test_class_conditional_sets_cover_every_class() -> None:
    """Coverage of 0.9 within four standard errors of both samples, for each class; lac fails for the rarest."""
    frequencies = (0.85, 0.1, 0.05)
    label, probs = made(6000, 3, frequencies)
    new, new_probs = made(6000, 4, frequencies)
    shares = {}
    for method in ("lac", "mondrian"):
        rule = fit_conformal(method, mm.Predictive.from_probs(probs), label, coverage=0.9)
        inside = covered(rule.regions(mm.Predictive.from_probs(new_probs)), new)
        shares[method] = [inside[new == each].mean() for each in range(3)]
    for each, frequency in enumerate(frequencies):
        error = 4 * math.sqrt(2 * 0.09 / (6000 * frequency))
        assert shares["mondrian"][each] == pytest.approx(0.9, abs=error)
    assert shares["lac"][2] < 0.9 - 4 * math.sqrt(2 * 0.09 / 300)


def test_a_class_of_few_calibration_examples_is_in_every_set() -> None:
    label, probs = made(200, 5, (0.97, 0.02, 0.01))
    rule = fit_conformal("mondrian", mm.Predictive.from_probs(probs), label, coverage=0.9)
    assert rule.by_class[2] == math.inf
    assert rule.regions(mm.Predictive.from_probs(probs))[:, 2].all()
    assert "unbounded" in rule.about


@pytest.fixture(scope="module")
def evaluated() -> tuple[mm.Ensemble, mm.Data, "mm.Evaluation"]:
    generator = np.random.default_rng(0)
    y = np.arange(1500) % 3
    data = mm.open_data((generator.normal(size=(1500, 3)) + np.eye(3)[y], y), imbalance=60, val=0.2, test=0.2)
    run = mm.fit("mlp", data, members=3, epochs=3)
    return run, data, mm.evaluate(run, data)


def test_the_record_has_groups_and_macro_scores(evaluated) -> None:
    run, data, found = evaluated
    counts = data.train.y.bincount().tolist()
    assert found.imbalance.counts == tuple(counts)
    assert [group.name for group in found.imbalance.groups] == ["many", "medium", "few"]
    assert {name: len(classes) for name, classes in shot_groups(counts).items()} == {"many": 1, "medium": 1, "few": 1}
    pred = run.predict(data.test)
    right = (pred.predicted == data.test.y).double()
    for group, label in zip(found.imbalance.groups, range(3), strict=True):
        assert group.scores["accuracy"] == pytest.approx(right[data.test.y == label].mean().item())
        assert group.scores["accuracy"].low <= group.scores["accuracy"] <= group.scores["accuracy"].high
        rows = data.test.y == label
        assert group.scores["mutual_information"] == pytest.approx(
            pred.mutual_information[rows].mean().item(), rel=1e-5
        )
        assert {"coverage_lac", "coverage_mondrian", "size_mondrian"} <= set(group.scores)
    expected = roc_auc_score(data.test.y, pred.mean.numpy() / pred.mean.sum(1, keepdim=True).numpy(), multi_class="ovr")
    assert found.imbalance.scores["macro_auroc"] == pytest.approx(expected, abs=1e-4)
    record = json.loads(json.dumps(found.to_json()))
    assert record["imbalance"]["groups"][2]["group"] == "few"


def test_the_page_has_a_section_where_classes_are_imbalanced(evaluated, tmp_path) -> None:
    run, data, found = evaluated
    mm.report(run, data, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert report_check(tmp_path / "r.html") == []
    for words in ("Class imbalance", "few (&lt; 20)", "Macro average precision", "Coverage, mondrian"):
        assert words in page
    manifest = replace(run.manifest, data={**run.manifest.data, "class_counts": [100, 90, 40]})
    assert training_counts(mm.Ensemble(run.groups, run.likelihood, run.engine, run.recipe, manifest)) is None
    assert max(found.imbalance.counts) / min(found.imbalance.counts) >= IMBALANCED
    assert torch.is_tensor(run.predict(data.test).mean)


def test_figures_of_the_section_are_plots_too(evaluated) -> None:
    pytest.importorskip("plotly")
    _, _, found = evaluated
    for draw in (mm.plots.shots, mm.plots.class_frequency):
        assert draw(found).data


def test_the_examples_of_the_page_run() -> None:
    page = Path(__file__).parents[3] / "docs" / "longtail.md"
    assert doctest.testfile(str(page), module_relative=False).failed == 0
