"""Uncertainty by class, how draws of members are counted, and what is written of weights that are distributions."""

import json

import numpy as np
import pytest
import sklearn.metrics
import torch

import murmuration as mm
from murmuration.core.recipe import make_recipe
from murmuration.data import Data, open_data
from murmuration.evaluation import evaluate_ensemble
from murmuration.evaluation.by_class import UNCERTAINTIES, class_scores, confusion_matrix, uncertainty_by_class
from murmuration.evaluation.metrics import ExampleScores
from murmuration.evaluation.record import member_scores
from murmuration.prediction.predictive import Predictive


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    return open_data((digits.train.prepared[:200], digits.train.y[:200]))


def predictive(members: int = 6) -> tuple[Predictive, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits = 2 * torch.randn(members, 60, 3, dtype=torch.float64, generator=generator)
    return Predictive.from_probs(logits.softmax(-1)), torch.arange(60) % 3


@pytest.mark.parametrize("by", ["label", "predicted"])
def test_means_by_class_are_those_of_its_examples(by: str) -> None:
    pred, y = predictive()
    found = uncertainty_by_class(ExampleScores.from_chunks([(pred, y)]), ("a", "b", "c", "never"), by)
    groups = y if by == "label" else pred.predicted
    assert [each.name for each in found] == ["a", "b", "c"]
    for k, each in enumerate(found):
        rows = groups == k
        assert each.examples == rows.sum()
        assert float(each.scores["accuracy"]) == pytest.approx((pred.predicted == y)[rows].double().mean().item())
        for kind in UNCERTAINTIES:
            score = each.scores[kind]
            assert float(score) == pytest.approx(pred.uncertainties()[kind][rows].mean().item(), abs=1e-12)
            assert score.low < score < score.high


def test_confusion_precision_and_recall_are_those_of_scikit_learn() -> None:
    pred, y = predictive()
    found = ExampleScores.from_chunks([(pred, y)])
    matrix = confusion_matrix(found, 4)
    np.testing.assert_array_equal(matrix, sklearn.metrics.confusion_matrix(y, pred.predicted, labels=range(4)))
    precision, recall, f1, _ = sklearn.metrics.precision_recall_fscore_support(y, pred.predicted, labels=range(3))
    rows = class_scores(matrix, ("a", "b", "c", "never"))
    for k, each in enumerate(rows[:3]):
        assert (each.precision, each.recall, each.f1) == pytest.approx((precision[k], recall[k], f1[k]))
        assert 0 <= each.precision.low <= each.precision <= each.precision.high <= 1
        assert (each.examples, each.predicted) == ((y == k).sum(), (pred.predicted == k).sum())
    assert np.isnan([rows[3].precision, rows[3].recall, rows[3].f1]).all()


def test_intervals_of_variances_are_not_negative() -> None:
    """One uncertain example among sure ones: a bootstrap shifted by its bias would reach below 0."""
    probs = np.tile([[0.999, 0.001]], (12, 1))
    probs[0] = 0.5
    found = uncertainty_by_class(ExampleScores.from_chunks([(Predictive.from_probs(probs), np.zeros(12, int))]), ("a",))
    for kind in UNCERTAINTIES:
        assert found[0].scores[kind].low >= 0


def test_members_scores_are_means_over_their_draws() -> None:
    pred, y = predictive()
    evaluation = ExampleScores.from_chunks([(pred, y)])
    single, drawn = member_scores(evaluation), member_scores(evaluation, draws=3)
    assert (len(single), len(drawn)) == (6, 2)
    assert drawn[1]["nll"] == pytest.approx(np.mean([row["nll"] for row in single[3:]]))
    assert drawn[0]["accuracy"] == pytest.approx(np.mean([row["accuracy"] for row in single[:3]]))


def test_a_record_tells_of_classes_and_weights(little: Data) -> None:
    plan = mm.Plan(members=2, epochs=2, engine="loop")
    ensemble = mm.fit(
        "mlp", little, recipe=make_recipe("deep-ensemble", weights="gaussian:draws=4"), plan=plan, posthoc=None
    )
    found = evaluate_ensemble(ensemble, little)
    record = json.loads(json.dumps(found.to_json()))
    assert found.draws == 4
    assert len(record["members"]) == 2
    assert {"aleatoric", "epistemic"} <= record["metrics"].keys()
    for told in ("by_true_class", "by_predicted_class"):
        rows = record["uncertainty"][told]
        assert sum(row["examples"] for row in rows) == len(little.test)
        total = sum(row["examples"] * row["epistemic"]["value"] for row in rows) / len(little.test)
        assert total == pytest.approx(record["metrics"]["epistemic"]["value"], rel=1e-9)
    weights = record["weights"]
    assert (weights["beta"], weights["draws"], weights["members"], weights["prior"]) == (0.01, 4, 2, "he")
    assert weights["kl"] == pytest.approx(sum(layer["kl"] for layer in weights["layers"]))
    assert sum(map(sum, (layer["snr_counts"] for layer in weights["layers"]))) == weights["weights"]
    assert 0 <= weights["distance"] <= 1
    assert weights["finding"]


@pytest.mark.slow
def test_points_and_numbers_have_no_such_record(little: Data) -> None:
    plain = evaluate_ensemble(mm.fit("mlp", little, members=1, epochs=1, posthoc=None), little).to_json()
    assert "weights" not in plain
    assert plain["metrics"]["epistemic"]["value"] == 0
    data = open_data("x-sin-x")
    numbers = evaluate_ensemble(mm.fit("mlp", data, recipe="bayes", epochs=1, posthoc=None), data).to_json()
    assert "uncertainty" not in numbers
    assert "that is done for classes only" in numbers["weights"]["untold"][0]
