"""Telling two groups apart: by hand, by closed forms, by other libraries, and by simulated coverage."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import norm, t as student
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torchmetrics.functional.classification import binary_auroc, binary_average_precision

from murmuration.evaluation.metrics import Detection, Score, score_detection
from murmuration.evaluation.metrics.detection import (
    EDGES,
    average_precision,
    both_precisions,
    cell_counts,
    fpr95_interval,
    limits_apart,
    precision_interval,
    resampled_precisions,
)
from murmuration.evaluation.metrics.ranking import delong_interval
from murmuration.system.errors import Misuse


def groups(familiar: int, foreign: int, distance: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.sort(rng.normal(size=familiar)), np.sort(rng.normal(size=foreign) + distance)


def joined(familiar: np.ndarray, foreign: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([0, 1], [len(familiar), len(foreign)]), np.concatenate([familiar, foreign])


def test_three_against_three_with_ties_by_hand() -> None:
    found = score_detection([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], resamples=10)
    # Pairs: 2 beats 1 and ties 2; 3 beats 1 and 2 and ties 3; 4 beats all. 6 + 2/2 of 9.
    assert float(found.auroc) == pytest.approx(7 / 9, abs=1e-15)
    # Precision at 4, 3 and 2: 1 of 1, 2 of 3, 3 of 5.
    assert float(found.aupr) == pytest.approx((1 + 2 / 3 + 3 / 5) / 3, abs=1e-15)
    # The mirror image of the above: 1 of 1, 2 of 3, 3 of 5.
    assert float(found.aupr_in) == pytest.approx((1 + 2 / 3 + 3 / 5) / 3, abs=1e-15)
    # 95 % of three are all three: the threshold is 3, and two of the foreign are at or below it.
    assert float(found.fpr95) == pytest.approx(2 / 3, abs=1e-15)


def test_fpr95_at_twenty_leaves_out_exactly_one() -> None:
    familiar = np.arange(20.0)
    found = score_detection(familiar, [17.5, 18.0, 18.5, 19.0], resamples=10)
    assert float(found.fpr95) == 0.5  # the threshold is 18


def test_a_score_that_says_nothing() -> None:
    found = score_detection(np.zeros(30), np.zeros(10), resamples=50)
    assert float(found.auroc) == 0.5
    assert float(found.aupr) == 0.25  # the share of the foreign
    assert float(found.fpr95) == 1
    assert found.auroc.low < 0.3 < 0.7 < found.auroc.high  # ten trials


@pytest.mark.parametrize("grain", [None, 0.5])
def test_agrees_with_other_libraries(grain: float | None) -> None:
    familiar, foreign = groups(203, 57, 0.8)
    if grain:  # many ties
        familiar, foreign = (np.round(group / grain) * grain for group in (familiar, foreign))
    found, (truth, scores) = score_detection(familiar, foreign, resamples=10), joined(familiar, foreign)
    assert float(found.auroc) == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
    assert float(found.aupr) == pytest.approx(average_precision_score(truth, scores), abs=1e-12)
    assert float(found.aupr_in) == pytest.approx(average_precision_score(1 - truth, -scores), abs=1e-12)
    wrong, right, _ = roc_curve(1 - truth, -scores, drop_intermediate=False)
    assert float(found.fpr95) == pytest.approx(wrong[right >= 0.95][0], abs=1e-12)
    preds, target = torch.from_numpy(scores).sigmoid(), torch.from_numpy(truth)
    assert float(found.auroc) == pytest.approx(binary_auroc(preds, target).item(), abs=1e-6)
    assert float(found.aupr) == pytest.approx(binary_average_precision(preds, target).item(), abs=1e-6)


@pytest.mark.parametrize("distance", [0.0, 1.0, 3.0])
def test_the_auroc_of_two_gaussians(distance: float) -> None:
    area, low, high = delong_interval(*groups(4000, 4000, distance, seed=1))
    truth = norm.cdf(distance / math.sqrt(2))
    assert abs(area - truth) < 4 * (high - low) / (2 * 1.96)
    assert high - low < 0.03


def test_delongs_interval_by_brute_force_over_pairs() -> None:
    familiar, foreign = groups(7, 5, 0.7, seed=3)
    wins = np.array([[float(b > a) + 0.5 * (a == b) for a in familiar] for b in foreign])  # (M, N)
    parts = wins.mean(1).var(ddof=1) / 5, wins.mean(0).var(ddof=1) / 7
    variance, freedom = sum(parts), sum(parts) ** 2 / (parts[0] ** 2 / 4 + parts[1] ** 2 / 6)  # Satterthwaite
    area, low, high = delong_interval(familiar, foreign)
    assert area == pytest.approx(wins.mean(), abs=1e-15)
    deviation = math.sqrt(variance) / (area * (1 - area))  # on the logit scale, by the delta method
    ends = [math.log(end / (1 - end)) - math.log(area / (1 - area)) for end in (low, high)]
    np.testing.assert_allclose(ends, student.ppf([0.025, 0.975], freedom) * deviation, rtol=1e-12)


def test_delongs_interval_is_as_wide_as_a_bootstrap() -> None:
    familiar, foreign = groups(300, 200, 1.0, seed=2)
    rng, wins = np.random.default_rng(0), (foreign[:, None] > familiar).astype(float)
    drawn = [rng.multinomial(size, [1 / size] * size, size=2000) / size for size in (200, 300)]
    areas = ((drawn[0] @ wins) * drawn[1]).sum(1)
    _, low, high = delong_interval(familiar, foreign)
    assert (high - low) / (2 * 1.96) == pytest.approx(np.std(areas), rel=0.06)  # 4 errors of a spread of 2000


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    count, distance = 100, 1.5
    truths = auroc, aupr, fpr95 = (
        norm.cdf(distance / math.sqrt(2)),
        population_precision(distance),
        norm.cdf(norm.ppf(0.95) - distance),
    )
    assert (round(auroc, 3), round(aupr, 3), round(fpr95, 3)) == (0.856, 0.854, 0.558)
    held = np.zeros(3)
    for seed in range(200):
        found = score_detection(*groups(count, count, distance, seed=seed), seed=seed, resamples=200)
        scores = (found.auroc, found.aupr, found.fpr95)
        held += [score.low <= truth <= score.high for score, truth in zip(scores, truths, strict=True)]
    # Of 200 at 95 %: a standard error of 1.5 %; three of them, and 1 % for 200 resamples.
    assert (held / 200 >= 0.95 - 0.055).all(), held
    assert (held / 200 <= 0.995).all(), held


def population_precision(distance: float) -> float:
    """The area under the precision-recall curve of two Gaussians in equal numbers."""
    t = np.linspace(-10, 10 + distance, 20_001)
    right, wrong = norm.sf(t - distance), norm.sf(t)
    return float(np.trapezoid(right / (right + wrong) * norm.pdf(t - distance), t))


def test_the_resampled_precision_is_that_of_resampled_scores() -> None:
    familiar, foreign = groups(60, 40, 1.0, seed=5)
    rng, by_hand = np.random.default_rng(1), []
    for _ in range(2000):
        by_hand.append(average_precision(np.sort(rng.choice(foreign, 40)), np.sort(rng.choice(familiar, 60))))
    drawn = resampled_precisions(cell_counts(familiar, foreign), seed=0, resamples=4000)[0]
    error = np.std(by_hand) * math.sqrt(1 / 2000 + 1 / 4000)
    assert abs(drawn.mean() - np.mean(by_hand)) < 4 * error
    assert drawn.std() == pytest.approx(np.std(by_hand), rel=0.08)


def test_cells_keep_the_precision_and_its_spread() -> None:
    familiar, foreign = groups(3000, 2500, 1.5, seed=6)
    exact = average_precision(foreign, familiar)
    few, all_of_them = cell_counts(familiar, foreign, most=500), cell_counts(familiar, foreign, most=3000)
    assert few.shape[1] < all_of_them.shape[1] == 5500
    assert abs(both_precisions(*few)[0] - exact) < 2e-3
    np.testing.assert_allclose(both_precisions(*all_of_them)[0], exact, rtol=1e-12)
    in_cells, exactly = (resampled_precisions(cells, seed=0, resamples=500) for cells in (few, all_of_them))
    # Two spreads of 500 resamples each: a relative error of 1 / sqrt(500), so 4 of them are 18 %.
    np.testing.assert_allclose(in_cells.std(1), exactly.std(1), rtol=0.18)


def test_groups_wholly_apart_still_leave_room_for_doubt() -> None:
    found = score_detection(np.arange(50.0), np.arange(100.0, 120.0), resamples=50)
    assert [float(score) for score in (found.auroc, found.aupr, found.fpr95)] == [1, 1, 0]
    z2 = norm.ppf(0.975) ** 2
    assert found.auroc.low == pytest.approx(20 / (20 + z2), abs=1e-12)  # Wilson, 20 of 20
    assert found.aupr.low == pytest.approx(np.mean([i / (i + z2) for i in range(1, 21)]), abs=1e-12)
    assert 1 / 20 < found.fpr95.high < 3 / 20  # a share of zero out of twenty
    assert (found.auroc.high, found.aupr.high, found.fpr95.low) == (1, 1, 0)


def test_the_limit_of_groups_apart_is_the_precision_with_wrong_examples_added() -> None:
    sought, others = np.arange(10.0, 16.0), np.arange(9.0)
    above, below = limits_apart(6, 9, doubt=2)
    assert above == pytest.approx(average_precision(sought, np.append(others, [20.0, 20.0])), abs=1e-15)
    assert below == pytest.approx(average_precision(np.append([-1.0, -1.0], sought), others), abs=1e-15)


def test_an_inverted_score_is_the_mirror_image() -> None:
    familiar, foreign = groups(80, 60, 1.0)
    found, mirrored = score_detection(familiar, foreign), score_detection(-familiar, -foreign)
    assert float(mirrored.auroc) == pytest.approx(1 - found.auroc, abs=1e-14)
    assert mirrored.auroc.low == pytest.approx(1 - found.auroc.high, abs=1e-14)
    swapped = score_detection(-foreign, -familiar)
    assert float(swapped.aupr) == pytest.approx(float(found.aupr_in), abs=1e-14)


def test_only_the_order_of_scores_counts() -> None:
    familiar, foreign = groups(80, 60, 1.0)
    assert score_detection(np.exp(familiar), np.exp(foreign)).to_json() == score_detection(familiar, foreign).to_json()
    shuffled = np.random.default_rng(0).permutation(foreign)
    assert score_detection(familiar, shuffled).to_json() == score_detection(familiar, foreign).to_json()


def test_the_interval_of_a_rare_group_stays_positive() -> None:
    found = score_detection(*groups(20_000, 10, 0.5), resamples=200)
    assert 0 < found.aupr.low < found.aupr < found.aupr.high < 0.1


def test_every_interval_holds_its_value_however_few_there_are() -> None:
    for familiar, foreign in itertools.product(([0.0], [0.0, 1.0], [2.0, 1.0, 1.0]), repeat=2):
        for score in vars(score_detection(familiar, foreign, resamples=30)).values():
            assert 0 <= score.low <= float(score) <= score.high <= 1


def test_a_resample_without_mistakes_does_not_blow_the_interval_up() -> None:
    score = precision_interval(np.array([1.0, 3.0]), np.array([0.0, 2.0]), np.array([1.0, 0.5, 0.8]))
    assert float(score) == pytest.approx((1 + 2 / 3) / 2, abs=1e-15)
    assert 0.3 < score.low < score < score.high < 1


def test_resampling_does_not_grow_with_the_inputs() -> None:
    """Counts in cells are resampled, of which there are at most two for each of the edges of either group and one."""
    few, many = (cell_counts(*groups(count, count // 5, 1.0)) for count in (10_000, 200_000))
    assert few.shape[1] <= many.shape[1] <= 4 * EDGES + 1
    assert many.sum() == 240_000


def test_intervals_of_a_million_inputs() -> None:
    familiar, foreign = groups(1_000_000, 200_000, 1.0)
    found = score_detection(familiar, foreign, resamples=500)
    assert abs(found.auroc - norm.cdf(1 / math.sqrt(2))) < 4 * (found.auroc.high - found.auroc.low) / 3.92
    # The spread of FPR95 by the delta method: of the binomial, and of the quantile times the ratio of densities.
    share, edge = norm.cdf(norm.ppf(0.95) - 1), norm.ppf(0.95)
    ratio = norm.pdf(edge - 1) / norm.pdf(edge)
    spread = math.sqrt(share * (1 - share) / 200_000 + 0.95 * 0.05 / 1_000_000 * ratio**2)
    # The width between two quantiles of 500 resamples has a relative error of 4.3 %.
    assert (found.fpr95.high - found.fpr95.low) / 3.92 == pytest.approx(spread, rel=0.17)


def test_the_same_seed_gives_the_same_numbers_and_another_gives_others() -> None:
    familiar, foreign = groups(50, 50, 1.0)
    assert score_detection(familiar, foreign, seed=1) == score_detection(familiar, foreign, seed=1)
    first, second = (fpr95_interval(familiar, foreign, seed=seed, resamples=50) for seed in (1, 2))
    assert first.low != second.low


def test_a_record_can_be_written_down() -> None:
    found = Detection(*(Score(0.5, 0.4, 0.6) for _ in range(4)))
    assert found.to_json()["fpr95"] == {"value": 0.5, "low": 0.4, "high": 0.6}


@pytest.mark.parametrize(
    ("familiar", "foreign", "message"),
    [
        ([], [1.0], r"in-distribution scores of shape \(0,\): expected one number per input, \(N,\), and at least one"),
        ([1.0], [[1.0]], r"OOD scores of shape \(1, 1\): expected one number per input"),
        ([1.0], [0.0, math.nan, math.nan], r"OOD scores are NaN at \[1\] and 1 other places: expected numbers"),
    ],
)
def test_bad_scores_are_refused_in_one_line(familiar: list, foreign: list, message: str) -> None:
    with pytest.raises(Misuse, match=message) as error:
        score_detection(familiar, foreign)
    assert "\n" not in str(error.value)


def test_an_area_of_few_positives_is_not_sure() -> None:
    """Of random scores, with two of forty positive, the interval leaves out one half in fewer than one in six draws."""
    rng = np.random.default_rng(0)
    draws = [delong_interval(np.sort(rng.normal(size=38)), np.sort(rng.normal(size=2))) for _ in range(400)]
    missed = np.mean([not low <= 0.5 <= high for _, low, high in draws])
    assert missed < 1 / 6  # 0.19 with the normal quantile; standard error 0.02
