"""AUROC and average precision of two classes, against scikit-learn and against resampling by brute force."""

import numpy as np
import pytest
from prediction_factories import classification_sample
from sklearn.metrics import average_precision_score, roc_auc_score

from murmuration.evaluation.metrics import ExampleScores, score_examples


def two(count: int, seed: int = 0, ties: bool = False) -> ExampleScores:
    pred, y = classification_sample(count, classes=2, seed=seed)
    found = score_examples(pred, y)
    if ties:
        found.columns["positive_prob"] = found.columns["positive_prob"].round(1)
    return found


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_both_equal_those_of_scikit_learn(seed, ties):
    found = two(200, seed, ties)
    scores, labels, values = found.scores(), found.columns["label"], found.columns["positive_prob"]
    assert scores["auroc"] == pytest.approx(roc_auc_score(labels, values), abs=1e-12)
    assert scores["average_precision"] == pytest.approx(average_precision_score(labels, values), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["auroc", "average_precision"])
def test_intervals_are_as_wide_as_those_of_whole_resamples(name):
    """2,000 resamples know a width to 2 %, the influence function is right to first order: 20 % in all."""
    found, rng = two(400), np.random.default_rng(1)
    labels, values = found.columns["label"], found.columns["positive_prob"]
    drawn = []
    for _ in range(2000):
        rows = rng.integers(400, size=400)
        score = roc_auc_score if name == "auroc" else average_precision_score
        drawn.append(score(labels[rows], values[rows]))
    width = np.subtract(*np.quantile(drawn, [0.975, 0.025]))
    ours = found.scores()[name]
    assert (ours.high - ours.low) == pytest.approx(width, rel=0.2)
    assert 0 <= ours.low <= ours <= ours.high <= 1


def test_other_numbers_of_classes_and_one_class_alone_have_neither():
    pred, y = classification_sample(50, classes=2)
    for evaluation in (score_examples(*classification_sample(50, classes=3)), score_examples(pred, np.ones_like(y))):
        assert not {"auroc", "average_precision"} & set(evaluation.scores())
