"""Scores of the order that certainty gives: by hand, by closed forms, by brute force and by another library."""

import math

import numpy as np
import pytest
from scipy import stats
from score_factories import overall_means
from sklearn.metrics import roc_auc_score

from murmuration.evaluation.metrics import columns, paired_test, risk_coverage, score, score_examples
from murmuration.evaluation.metrics.ranking import delong_interval, selective, tied_order
from murmuration.evaluation.metrics.scores import MEASURES
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse


def value_of(name: str, table: dict[str, np.ndarray]) -> float:
    measure = MEASURES["classification" if "confidence" in table else "regression"][name]
    return float(measure.combine(overall_means(measure.features(table))))


def classes(confidence: list[float], right: list[bool]) -> dict[str, np.ndarray]:
    return {"confidence": np.array(confidence), "correct": np.array(right)}


def numbers(std: list[float], error: list[float]) -> dict[str, np.ndarray]:
    return {"total_std": np.array(std), "absolute_error": np.array(error)}


def sample(inputs: int = 400, seed: int = 0, digits: int = 2) -> dict[str, np.ndarray]:
    """Rounded confidences, so that there are many ties, and errors that follow them."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.5, 1, size=inputs).round(digits)
    return {"confidence": confidence, "correct": rng.random(inputs) < confidence}


def trapezoids(certainty: np.ndarray, loss: np.ndarray) -> float:
    """The area under (share kept, losses kept / N), from (0, 0), one point per distinct certainty."""
    points = [(0.0, 0.0)]
    for least in sorted(set(certainty), reverse=True):
        kept = certainty >= least
        points.append((kept.mean(), loss[kept].sum() / len(loss)))
    x, y = np.array(points).T
    return float(np.trapezoid(y, x))


def test_generalised_area_by_hand() -> None:
    """Errors at ranks 2 and 4 of 4: e_n / N = 0, 1/4, 1/4, 1/2; trapezoids (0 + 1/4 + 1/2 + 3/4) / 2 / 4."""
    table = classes([0.9, 0.8, 0.7, 0.6], [True, False, True, False])
    assert value_of("augrc", table) == pytest.approx(0.1875, abs=1e-15)
    ranks = np.array([2, 4])
    assert value_of("augrc", table) == pytest.approx((4 - ranks + 0.5).sum() / 16, abs=1e-15)
    assert value_of("augrc", classes([0.7] * 10, [True] * 6 + [False] * 4)) == pytest.approx(0.4 / 2, abs=1e-15)
    assert value_of("augrc", classes([0.7] * 3, [False] * 3)) == pytest.approx(0.5, abs=1e-15)  # the worst there is


@pytest.mark.parametrize("seed", range(3))
def test_generalised_area_is_that_of_the_curve_and_of_the_closed_form(seed: int) -> None:
    table = sample(seed=seed)
    wrong, accuracy = ~table["correct"], table["correct"].mean()
    area = roc_auc_score(wrong, -table["confidence"])
    closed = (1 - area) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2
    assert value_of("augrc", table) == pytest.approx(closed, abs=1e-13)
    assert value_of("augrc", table) == pytest.approx(trapezoids(table["confidence"], wrong), abs=1e-13)


def test_regression_ranks_by_spread_and_pays_the_absolute_error() -> None:
    """Spreads 1, 2, 3 with errors 1, 4, 1: risks 1, 5/2, 2; generalised 1/3, 5/3, 2 over steps of one third."""
    table = numbers([2.0, 1.0, 3.0], [4.0, 1.0, 1.0])
    assert value_of("aurc", table) == pytest.approx((1 + 5 / 2 + 2) / 3, abs=1e-15)
    steps = ((0 + 1 / 3) + (1 / 3 + 5 / 3) + (5 / 3 + 2)) / 2
    assert value_of("augrc", table) == pytest.approx(steps / 3, abs=1e-15)
    curve = risk_coverage(table)
    np.testing.assert_allclose(curve.risk, [1, 5 / 2, 2], atol=1e-15)
    np.testing.assert_allclose(curve.coverage, [1 / 3, 2 / 3, 1], atol=1e-15)


def test_regression_without_any_order_has_the_mean_error() -> None:
    rng = np.random.default_rng(0)
    pred, y = Predictive.from_moments(np.zeros((1, 300, 1)), 1.0), rng.normal(size=300)
    scores = score(pred, y)
    assert scores["aurc"] == pytest.approx(scores["mae"], abs=1e-14)
    assert scores["augrc"] == pytest.approx(scores["mae"] / 2, abs=1e-14)


def test_spread_that_knows_the_noise_lowers_the_risk() -> None:
    """Noise s uniform on (0, 2) and known: the risk at coverage c is E|error| of s < 2c, that is c sqrt(2/pi)."""
    rng = np.random.default_rng(0)
    std = rng.uniform(0, 2, size=20_000)
    pred = Predictive.from_moments(np.zeros((1, 20_000, 1)), std[None, :, None])
    found = score(pred, std * rng.normal(size=20_000))["aurc"]
    assert found == pytest.approx(math.sqrt(2 / math.pi) / 2, abs=4 * (found.high - found.low) / 3.92)
    assert found.low < math.sqrt(2 / math.pi) / 2 < found.high


def test_several_targets_count_alike() -> None:
    rng = np.random.default_rng(0)
    pred, y = (
        Predictive.from_moments(rng.normal(size=(2, 50, 3)), rng.uniform(1, 2, (2, 50, 3))),
        rng.normal(size=(50, 3)),
    )
    certainty, loss = selective(columns(pred, y))
    np.testing.assert_allclose(loss, (pred.mean.numpy() - y).__abs__().mean(-1), atol=1e-14)
    np.testing.assert_allclose(certainty, -pred.total_var.mean(-1).sqrt().numpy(), atol=1e-14)


@pytest.mark.parametrize("name", ["aurc", "augrc"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_spread_of_an_area_is_that_of_its_influence_values(name: str, task: str) -> None:
    """The standard error by influence values against areas of samples resampled for real, ties and all."""
    rng, inputs = np.random.default_rng(0), 300
    table = sample(inputs)
    if task == "regression":
        std = rng.uniform(0.5, 2, inputs).round(1)
        table = {"total_std": std, "absolute_error": np.abs(std * rng.normal(size=inputs))}
    values = MEASURES[task][name].features(table)[0].values  # type: ignore[index]
    drawn = []
    for _ in range(600):
        rows = rng.integers(inputs, size=inputs)
        drawn.append(value_of(name, {key: column[rows] for key, column in table.items()}))
    noise = 4 / math.sqrt(2 * 600)  # of a standard deviation from 600 draws
    assert values.std() / math.sqrt(inputs) == pytest.approx(np.std(drawn), rel=noise)


@pytest.mark.parametrize("digits", [1, 2, 12])
def test_error_ranking_against_sklearn(digits: int) -> None:
    table = sample(digits=digits)
    theirs = roc_auc_score(~table["correct"], -table["confidence"])
    assert value_of("error_auroc", table) == pytest.approx(theirs, abs=1e-13)


def test_error_ranking_by_hand() -> None:
    """Wrong at 0.6 and 0.8, right at 0.9, 0.8 and 0.5: pairs 2 of 3, and 1 and a tie of 3."""
    table = classes([0.6, 0.8, 0.9, 0.8, 0.5], [False, False, True, True, True])
    assert value_of("error_auroc", table) == pytest.approx((2 + 1.5) / 6, abs=1e-15)


def test_error_ranking_does_not_exist_without_both_kinds() -> None:
    sure = np.tile([[0.9, 0.1]], (20, 1))
    right, wrong = (score_examples(Predictive.from_probs(sure), np.full(20, label)) for label in (0, 1))
    assert "error_auroc" not in right.scores()
    assert "error_auroc" not in wrong.scores()
    with pytest.raises(Misuse, match="error_auroc does not exist for a"):
        paired_test(right, right, "error_auroc")


@pytest.mark.slow
def test_error_ranking_interval_is_delongs_and_agrees_with_resampling() -> None:
    table = sample(500, digits=12)
    probs = np.stack([table["confidence"], 1 - table["confidence"]], -1)
    found = score(Predictive.from_probs(probs), np.where(table["correct"], 0, 1))["error_auroc"]
    rng, drawn = np.random.default_rng(0), []
    for _ in range(400):
        rows = rng.integers(500, size=500)
        drawn.append(roc_auc_score(~table["correct"][rows], -table["confidence"][rows]))
    assert found.high - found.low == pytest.approx(3.92 * np.std(drawn), rel=0.15)
    measure = MEASURES["classification"]["error_auroc"]
    features = np.stack([feature.values for feature in measure.features(table)], -1)  # (N, 4)
    resampled = [measure.combine(features[rng.integers(500, size=500)].mean(0)) for _ in range(400)]
    assert np.std(resampled) == pytest.approx(np.std(drawn), rel=0.2)


def test_delong_by_hand() -> None:
    """Placements of 3 and 1 among (0, 2): 1 and 1/2; of 0 and 2 among (1, 3), higher: 1 and 1/2. Variances 1/8 each:
    two degrees of freedom.
    """
    area, low, high = delong_interval(np.array([0.0, 2.0]), np.array([1.0, 3.0]))
    half = stats.t.ppf(0.975, 2) * math.sqrt(2 * 0.125 / 2) / (0.75 * 0.25)
    assert area == 0.75
    assert (low, high) == pytest.approx([1 / (1 + math.exp(-math.log(3) + side)) for side in (half, -half)], abs=1e-12)


def test_two_errors_ranked_last_are_no_proof() -> None:
    """All errors below all others: the interval is that of two successes in two trials, not of width zero."""
    table = classes([0.9, 0.8, 0.7, 0.6, 0.5], [True, True, True, False, False])
    interval = MEASURES["classification"]["error_auroc"].interval
    assert interval is not None
    assert interval(table) == pytest.approx((0.342, 1.0), abs=1e-3)  # Wilson 1927


def test_ties_are_found() -> None:
    order, tie = tied_order(np.array([0.5, 0.9, 0.5, 0.7]))
    assert (order.tolist(), tie.tolist()) == ([1, 3, 0, 2], [0, 1, 2, 2])


def test_columns_of_no_task_are_refused() -> None:
    with pytest.raises(Misuse, match="neither 'confidence' nor 'total_std'"):
        risk_coverage({"pit": np.zeros(3)})
