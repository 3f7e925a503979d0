"""Classification scores against hand-computed values, other libraries, and simulations with a known truth."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from netcal.metrics import ECE
from score_factories import overall_means
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from torchmetrics.functional.classification import multiclass_calibration_error

from murmuration.evaluation.metrics import MEASURES, ExampleScores, Score, columns, score, score_examples
from murmuration.evaluation.metrics.calibration_error import adaptive_bins, confidence_bins
from murmuration.likelihoods import Categorical
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Failure, Misuse


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tensors here are small: a second thread costs more than it brings, above all on a busy machine."""
    torch.set_num_threads(1)


def ensemble(inputs: int = 600, members: int = 4, classes: int = 5, seed: int = 0) -> tuple[Predictive, np.ndarray]:
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(inputs, classes))
    logits = 2 * shared + rng.normal(size=(members, inputs, classes))
    labels = (shared + rng.gumbel(size=shared.shape)).argmax(-1)
    return Predictive(torch.tensor(logits), Categorical(classes)), labels


def two_classes(confidence: np.ndarray, right: np.ndarray) -> tuple[Predictive, np.ndarray]:
    """One model that says class 0 with that confidence (at least one half), and whether it is right."""
    return Predictive.from_probs(np.stack([confidence, 1 - confidence], -1)), np.where(right, 0, 1)


def value(name: str, pred: Predictive, y: np.ndarray) -> float:
    """The score without an interval."""
    return value_of(name, columns(pred, y))


def value_of(name: str, table: dict[str, np.ndarray]) -> float:
    measure = MEASURES["classification"][name]
    return float(measure.finish(measure.combine(overall_means(measure.features(table)))))


def test_parity_with_sklearn() -> None:
    pred, y = ensemble()
    scores, probs = score(pred, y), pred.mean.numpy()
    assert scores["accuracy"] == accuracy_score(y, probs.argmax(-1))
    assert scores["nll"] == pytest.approx(log_loss(y, probs), abs=1e-12)
    per_class = sum(brier_score_loss(y == c, probs[:, c]) for c in range(5))
    assert scores["brier"] == pytest.approx(per_class, abs=1e-12)


def test_calibration_parity_with_torchmetrics_and_netcal() -> None:
    pred, y = ensemble()
    probs = pred.mean
    for name, norm in (("ece", "l1"), ("mce", "max")):
        theirs = multiclass_calibration_error(probs, torch.tensor(y), 5, n_bins=15, norm=norm)
        assert value(name, pred, y) == pytest.approx(theirs.item(), abs=1e-6)
    assert value("ece", pred, y) == pytest.approx(ECE(15).measure(probs.numpy(), y), abs=1e-9)


def test_confidence_of_exactly_one_is_in_the_last_bin() -> None:
    """Two sure predictions, one wrong, share (14/15, 1] with two right ones of 0.95: |0.975 - 0.75| = 0.225.

    torchmetrics 1.9 puts confidence 1.0 in a sixteenth bin of its own and answers 0.275, with a largest gap of 0.5.
    """
    pred, y = two_classes(np.array([1.0, 1.0, 0.95, 0.95]), np.array([True, False, True, True]))
    assert value("ece", pred, y) == pytest.approx(0.225, abs=1e-12)
    assert value("mce", pred, y) == pytest.approx(0.225, abs=1e-12)
    theirs = multiclass_calibration_error(pred.mean.float(), torch.tensor(y), 2, n_bins=15, norm="l1")
    assert theirs.item() == pytest.approx(0.275, abs=1e-6)
    assert ECE(15).measure(pred.mean.numpy(), y) == pytest.approx(0.225, abs=1e-6)


def test_confidence_on_an_edge_belongs_to_the_bin_below() -> None:
    """0.6 = 9/15 ends its bin: |0.6 - 0.5| / 2 + |0.65 - 1| / 2 = 0.225; torchmetrics puts it above and says 0.125."""
    table = {"confidence": np.array([0.6, 0.6, 0.65, 0.65]), "correct": np.array([True, False, True, True])}
    assert value_of("ece", table) == pytest.approx(0.225, abs=1e-12)
    probs = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.65, 0.35], [0.65, 0.35]], dtype=torch.float64)
    theirs = multiclass_calibration_error(probs, torch.tensor([0, 1, 0, 0]), 2, n_bins=15)
    assert theirs.item() == pytest.approx(0.125, abs=1e-6)


def test_two_classes_are_scored_by_the_predicted_one() -> None:
    """Confidence 0.9 and three of four right: 0.15, whichever class was predicted.

    netcal 1.4 takes two columns for the probability of class 1 alone and answers (0.1 + 0.4) / 2.
    """
    probs, y = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]]), np.array([0, 0, 1, 0])
    assert value("ece", Predictive.from_probs(probs), y) == pytest.approx(0.15, abs=1e-12)
    assert ECE(15).measure(probs, y) == pytest.approx(0.25, abs=1e-9)


def test_an_ensemble_of_equals_is_its_member() -> None:
    pred, y = ensemble(members=1)
    alone, five = score(pred, y), score(pred.select([0] * 5), y)
    for name, number in alone.items():
        assert five[name] == pytest.approx(number, abs=1e-12), name


def test_bins_are_closed_on_the_right_and_lose_nobody() -> None:
    edges = np.arange(16) / 15
    assert confidence_bins(edges).tolist() == [0, *range(15)]
    assert confidence_bins(edges[:-1] + 1e-9).tolist() == list(range(15))
    confidence = np.random.default_rng(0).random(10_000)
    assert np.bincount(confidence_bins(confidence), minlength=15).sum() == 10_000
    mass = np.bincount(adaptive_bins(confidence), minlength=15)
    assert mass.max() - mass.min() <= 1
    assert len(set(adaptive_bins(np.array([0.3] * 50 + [0.9] * 50)))) == 2  # equals stay together


@pytest.mark.parametrize("name", ["ece", "ece_adaptive", "mce"])
def test_calibration_error_of_constant_confidence(name: str) -> None:
    calibrated = two_classes(np.full(50, 0.8), np.arange(50) < 40)
    assert value(name, *calibrated) == pytest.approx(0, abs=1e-12)
    overconfident = two_classes(np.full(50, 0.9), np.arange(50) < 25)
    assert value(name, *overconfident) == pytest.approx(0.4, abs=1e-12)


def test_error_of_a_calibrated_model_is_the_noise_of_its_bins() -> None:
    """A bin's gap is then a mean of binomial errors: |gap| has mean sqrt(2 v / pi) and variance (1 - 2/pi) v."""
    rng = np.random.default_rng(1)
    confidence = rng.uniform(0.5, 1, size=30_000)
    sample = {"confidence": confidence, "correct": rng.random(30_000) < confidence}
    noise = np.bincount(confidence_bins(confidence), confidence * (1 - confidence)) / 30_000**2  # a bin's, in the mean
    expected, spread = np.sqrt(2 * noise / math.pi).sum(), math.sqrt((1 - 2 / math.pi) * noise.sum())
    assert abs(value_of("ece", sample) - expected) < 4 * spread


def test_debiased_error_is_zero_on_average_where_the_plain_one_is_not() -> None:
    """A calibrated simulator: the squared estimate has mean zero, exactly; plain ECE is far above it."""
    rng = np.random.default_rng(0)
    plain, roots = [], []
    for _ in range(400):
        confidence = rng.uniform(0.5, 1, size=300)
        sample = {"confidence": confidence, "correct": rng.random(300) < confidence}
        plain.append(value_of("ece", sample))
        roots.append(value_of("ece_debiased", sample))
    squares = np.sign(roots) * np.square(roots)
    assert abs(squares.mean()) < 4 * squares.std() / math.sqrt(400)
    assert np.mean(plain) > 0.03
    assert abs(np.mean(roots)) < 0.2 * np.mean(plain)


def test_debiased_square_is_unbiased_for_a_known_gap() -> None:
    rng = np.random.default_rng(1)
    squares = []
    for _ in range(400):
        error = value_of("ece_debiased", {"confidence": np.full(60, 0.9), "correct": rng.random(60) < 0.7})
        squares.append(error * abs(error))
    assert abs(np.mean(squares) - 0.2**2) < 4 * np.std(squares) / math.sqrt(400)


def test_debiased_square_is_the_mean_over_pairs() -> None:
    """Four gaps in one bin: the mean of d_i d_j over the 12 ordered pairs."""
    confidence, right = np.array([0.91, 0.9, 0.92, 0.88]), np.array([1, 0, 1, 1])
    d = right - confidence
    pairs = (d.sum() ** 2 - (d**2).sum()) / 12
    expected = math.copysign(math.sqrt(abs(pairs)), pairs)
    assert value("ece_debiased", *two_classes(confidence, right == 1)) == pytest.approx(expected, abs=1e-12)


def test_brier_by_hand() -> None:
    def brier(probs: list[float]) -> float:
        return value("brier", Predictive.from_probs([probs]), np.array([0]))

    assert brier([1.0, 0.0, 0.0]) == 0
    assert brier([0.0, 1.0, 0.0]) == pytest.approx(2)
    assert brier([0.1] * 10) == pytest.approx(0.9)
    assert brier([0.7, 0.2, 0.1]) == pytest.approx(0.14)


@pytest.mark.parametrize("weights", [None, [0.4, 0.3, 0.2, 0.1]])
def test_brier_is_the_members_brier_minus_diversity(weights: list[float] | None) -> None:
    base, y = ensemble()
    given = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    scores = score(Predictive(base.outputs, base.likelihood, given), y)
    assert scores["brier"] == pytest.approx(scores["member_brier"] - scores["diversity"], abs=1e-12)
    assert scores["nll"] <= scores["member_nll"]


@pytest.mark.parametrize("weights", [None, [0.4, 0.3, 0.2, 0.1]])
def test_diversity_is_the_squared_distance_of_members_from_their_mean(weights: list[float] | None) -> None:
    base, y = ensemble()
    pred = Predictive.from_probs(base.probs, weights)
    expected = pred.average((pred.probs - pred.mean).square().sum(-1))
    np.testing.assert_allclose(columns(pred, y)["diversity"], expected, atol=1e-14)


def test_member_scores_are_means_of_single_scores() -> None:
    pred, y = ensemble()
    whole, singles = score(pred, y), [score(pred.select([i]), y) for i in range(4)]
    for ours, theirs in (("member_accuracy", "accuracy"), ("member_nll", "nll"), ("member_brier", "brier")):
        assert whole[ours] == pytest.approx(np.mean([s[theirs] for s in singles]), abs=1e-12)
        assert singles[0][ours] == pytest.approx(singles[0][theirs], abs=1e-12)
    assert (singles[0]["diversity"], singles[0]["diversity"].high) == (0, 0)


def test_area_under_the_risk_curve_by_hand() -> None:
    """Errors at ranks 2 and 4: risks 0, 1/2, 1/3, 1/2."""
    sample = two_classes(np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, False]))
    assert value("aurc", *sample) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4, abs=1e-12)
    tied = two_classes(np.full(10, 0.7), np.arange(10) < 6)
    assert value("aurc", *tied) == pytest.approx(0.4, abs=1e-12)  # no order: the error rate


def test_area_interval_agrees_with_resampling_the_inputs() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, size=500)
    right = rng.random(500) < confidence
    ours = score(*two_classes(confidence, right))["aurc"]
    drawn = []
    for _ in range(400):
        rows = rng.integers(500, size=500)
        order = np.argsort(-confidence[rows], kind="stable")
        drawn.append(np.mean(np.cumsum(~right[rows][order]) / np.arange(1, 501)))
    assert (ours.high - ours.low) == pytest.approx(3.92 * np.std(drawn), rel=0.15)


def test_chunks_equal_the_whole() -> None:
    pred, y = ensemble()
    whole = score_examples(pred, y)
    chunked = ExampleScores.from_chunks(zip(pred.batches(37), torch.tensor(y).split(37), strict=True))
    assert list(whole.columns) == list(chunked.columns)
    for name, values in whole.columns.items():
        np.testing.assert_allclose(values, chunked.columns[name], atol=1e-14, err_msg=name)
    np.testing.assert_array_equal(whole.agreement, chunked.agreement)
    assert whole.scores()["ece"] == pytest.approx(chunked.scores()["ece"], abs=1e-13)


def test_agreement_is_the_share_of_equal_classes() -> None:
    pred, y = ensemble()
    votes = pred.probs.argmax(-1).numpy()
    expected = (votes[:, None] == votes[None]).mean(-1)
    evaluation = score_examples(pred, y)
    np.testing.assert_allclose(evaluation.agreement, expected, atol=1e-15)
    pairs = expected[np.triu_indices(4, 1)]
    assert evaluation.scores()["disagreement"] == pytest.approx(1 - pairs.mean(), abs=1e-12)


def test_score_is_a_float_that_knows_its_interval() -> None:
    accuracy = score(*ensemble())["accuracy"]
    assert isinstance(accuracy, float)
    assert accuracy.low < accuracy < accuracy.high
    assert json.loads(json.dumps(accuracy)) == float(accuracy)
    assert accuracy.to_json() == {"value": float(accuracy), "low": accuracy.low, "high": accuracy.high}
    assert copy.deepcopy(accuracy).high == accuracy.high
    assert repr(Score(0.5, 0.25, 0.75)) == "0.5 [0.25, 0.75]"
    assert str(Score(0.5, 0.25, 0.75)) == "0.5"


def test_every_score_lies_in_its_interval_and_its_bounds() -> None:
    scores = score(*ensemble())
    of_two = {"auroc", "average_precision"}
    assert list(scores) == [name for name in MEASURES["classification"] if name not in of_two]
    for name, number in scores.items():
        lowest, highest = MEASURES["classification"][name].bounds
        assert lowest <= number.low <= number <= number.high <= highest, name


def test_scores_are_the_same_for_the_same_seed_only() -> None:
    evaluation = score_examples(*ensemble())
    first, again, other = (evaluation.scores(seed=seed)["nll"] for seed in (0, 0, 1))
    assert (first.low, first.high) == (again.low, again.high)
    assert first.low != other.low
    assert first == other


def test_one_sided_samples_still_have_an_honest_accuracy_interval() -> None:
    perfect = score(*two_classes(np.full(10, 0.9), np.full(10, True)))["accuracy"]
    assert (perfect, perfect.high) == (1, 1)
    assert perfect.low == pytest.approx(0.7225, abs=1e-4)  # Wilson 1927, ten of ten


def test_inputs_are_not_changed() -> None:
    pred, y = ensemble()
    before, labels = pred.outputs.clone(), y.copy()
    score(pred, y)
    assert torch.equal(pred.outputs, before)
    assert (y == labels).all()


def test_refusals() -> None:
    pred, y = ensemble()
    with pytest.raises(Misuse, match=r"labels of shape \(3,\) for 600 inputs"):
        score(pred, y[:3])
    broken = pred.outputs.clone()
    broken[2, 5] = torch.nan
    with pytest.raises(Failure, match=r"members \[2\] of 4 output NaN.*select"):
        score(Predictive(broken, pred.likelihood), y)
    with pytest.raises(Misuse, match="no predictions to evaluate"):
        ExampleScores.from_chunks([])
    with pytest.raises(Misuse, match="a chunk has 2 members"):
        ExampleScores.from_chunks([(pred, y), (pred.select([0, 1]), y)])


def test_debiased_interval_of_a_calibrated_model_holds_zero() -> None:
    rng = np.random.default_rng(3)
    confidence = rng.uniform(0.5, 1, size=2000)
    debiased = score(*two_classes(confidence, rng.random(2000) < confidence))["ece_debiased"]
    assert debiased.low < 0 < debiased.high


def test_the_loss_of_an_ensemble_and_what_it_is_not() -> None:
    """Two members, 0.9 and 0.1 of the truth: ln 2. Two inputs of 0.9 and 0.1: not -log of their mean, which is ln 2."""
    members = Predictive.from_probs([[[0.9, 0.1]], [[0.1, 0.9]]])
    assert score(members, np.array([0]))["nll"] == pytest.approx(math.log(2), abs=1e-12)
    inputs = Predictive.from_probs([[0.9, 0.1], [0.1, 0.9]])
    assert -math.log(inputs.mean.numpy()[:, 0].mean()) == pytest.approx(math.log(2), abs=1e-12)
    assert score(inputs, np.array([0, 0]))["nll"] == pytest.approx(1.2039728, abs=6e-8)
    opposed = Predictive.from_probs([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert opposed.mutual_information.item() == pytest.approx(math.log(2), abs=1e-12)
