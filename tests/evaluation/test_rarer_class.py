"""Curves and costs of the rarer of two classes, against scikit-learn and by counting."""

import numpy as np
import pytest
import report_factories as made
from sklearn import metrics

from murmuration.evaluation.two_classes import (
    average_precision,
    has_two_classes,
    precision_recall_curve,
    rarer_class,
    roc_curve,
    threshold_costs,
)
from murmuration.prediction.predictive import Predictive


def evaluated(rare: int, count: int = 200):
    """An evaluation in which a fifth of the examples are of the class `rare`; probabilities have ties."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(count) < 0.2, rare, 1 - rare)
    second = np.round(1 / (1 + np.exp(-rng.normal(size=count) - 2 * y + 1)), 2).clip(0.01, 0.99)
    return made.evaluation_of(Predictive.from_probs(np.stack([1 - second, second], -1)), y, "one"), y, second


@pytest.mark.parametrize("rare", [0, 1])
def test_the_curves_of_the_rarer_class_are_those_of_scikit_learn(rare: int) -> None:
    found, y, second = evaluated(rare)
    scores = second if rare else 1 - second
    curve = rarer_class(found)
    assert curve.name == "ab"[rare]
    assert curve.share == pytest.approx((y == rare).mean())
    false, true, _ = metrics.roc_curve(y == rare, np.round(scores, 6), drop_intermediate=False)
    ours = roc_curve(curve)
    assert metrics.auc(*ours) == pytest.approx(metrics.auc(false, true))
    assert metrics.auc(*ours) == pytest.approx(float(found.scores["auroc"]))
    np.testing.assert_allclose(np.stack(ours), np.stack([false, true]))
    precision, recall, _ = metrics.precision_recall_curve(y == rare, np.round(scores, 6))
    np.testing.assert_allclose(np.stack(precision_recall_curve(curve)), np.stack([recall, precision])[:, -2::-1])
    assert float(average_precision(found)) == pytest.approx(metrics.average_precision_score(y == rare, scores))


@pytest.mark.parametrize("ratio", [1.0, 5.0])
def test_costs_count_both_mistakes_at_every_threshold(ratio: float) -> None:
    found, y, second = evaluated(1)
    curve = threshold_costs(rarer_class(found), ratio)
    for place in (0, 40, 100, 200):
        said = second.astype(np.float32) >= curve.thresholds[place]
        cost = ratio * (~said & (y == 1)).sum() + (said & (y == 0)).sum()
        assert curve.costs[place] == pytest.approx(cost / min(ratio * (y == 1).sum(), (y == 0).sum()))
    assert curve.costs[0] >= 1  # always saying it
    assert curve.calibrated == 1 / (1 + ratio)
    assert curve.cost_at(0.5) == curve.costs[100]


def test_other_classifications_have_no_such_curves() -> None:
    assert has_two_classes(evaluated(1)[0])
    assert not has_two_classes(made.classification())
    one = made.evaluation_of(Predictive.from_probs([[0.5, 0.5]] * 3), np.zeros(3, int), "one")
    assert not has_two_classes(one)
