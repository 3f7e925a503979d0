"""The same sets and intervals as MAPIE on the same predictions, and where its conventions differ, how."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mapie.classification import SplitConformalClassifier
from mapie.conformity_scores.bounds.std_normalised import StdConformityScore
from mapie.regression import ConformalizedQuantileRegressor, SplitConformalRegressor
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import StratifiedShuffleSplit

from murmuration.prediction.posthoc import conformal
from murmuration.prediction.posthoc.conformal import SetRule, fit_conformal
from murmuration.prediction.predictive import Predictive

SEED = 7


class Probabilities(ClassifierMixin, BaseEstimator):
    """An estimator whose features are its class probabilities."""

    def __init__(self, count: int = 8) -> None:
        self.count = count

    @property
    def classes_(self) -> np.ndarray:
        return np.arange(self.count)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, x: Any, y: Any = None) -> "Probabilities":
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x)

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x).argmax(1)


class Column(RegressorMixin, BaseEstimator):
    """An estimator that predicts one of its features; its standard deviation is the last."""

    def __init__(self, column: int = 0) -> None:
        self.column = column

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, x: Any, y: Any = None) -> "Column":
        return self

    def predict(self, x: np.ndarray, return_std: bool = False) -> Any:
        return (x[:, self.column], x[:, -1]) if return_std else x[:, self.column]


def classification(inputs: int = 600, count: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = 1.5 * rng.normal(size=(inputs, count))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    shown = np.exp(logits + 0.5 * rng.normal(size=logits.shape))
    probs = shown / shown.sum(1, keepdims=True)
    return Predictive.from_probs(probs).mean.numpy(), labels  # both sides see the same rounding


@pytest.fixture
def same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The uniform numbers MAPIE draws, for calibration examples and again for new inputs."""

    def draws(seed: int, moment: int, first: int, count: int) -> np.ndarray:
        return np.random.RandomState(seed).uniform(size=count)

    monkeypatch.setattr(conformal, "uniforms", draws)


def theirs(score: str, calibration: tuple, new: np.ndarray, last: bool | str = True) -> tuple[np.ndarray, Any]:
    """MAPIE's sets (N, K) and its conformity score."""
    model = SplitConformalClassifier(
        Probabilities(), confidence_level=0.9, conformity_score=score, prefit=True, random_state=SEED
    ).conformalize(*calibration)
    params = {} if score == "lac" else {"include_last_label": last}
    sets = model.predict_set(new, conformity_score_params=params)[1][:, :, 0]
    return sets, model._mapie_classifier.conformity_score_function_


def ours(method: str, calibration: tuple, **options: Any) -> SetRule:
    rule = fit_conformal(method, Predictive.from_probs(calibration[0]), calibration[1], seed=SEED, **options)
    assert isinstance(rule, SetRule)
    return replace(rule, never_empty=False)


def test_lac_gives_the_same_sets() -> None:
    probs, labels = classification()
    calibration, new = (probs[:251], labels[:251]), probs[251:]
    sets, score = theirs("lac", calibration, new)
    rule = ours("lac", calibration)
    assert rule.threshold == pytest.approx(score.quantiles_[0], abs=1e-12)
    assert (rule.sets(Predictive.from_probs(new)) == sets).all()


@pytest.mark.usefixtures("same_draws")
def test_aps_gives_the_same_sets_with_and_without_chance() -> None:
    probs, labels = classification()
    calibration, new = (probs[:251], labels[:251]), probs[251:]
    rule, pred = ours("aps", calibration), Predictive.from_probs(new)
    sets, score = theirs("aps", calibration, new, "randomized")
    assert rule.threshold == pytest.approx(score.quantiles_[0], abs=1e-12)
    assert (rule.sets(pred) == sets).all()
    assert (replace(rule, randomised=False).sets(pred) == theirs("aps", calibration, new, True)[0]).all()


@pytest.mark.usefixtures("same_draws")
def test_raps_has_the_same_threshold_and_differs_where_the_penalty_meets_the_edge() -> None:
    """MAPIE tunes penalty and start on a part of the examples; given both, thresholds on the rest agree.

    Its sets take in the class on the edge by the sum of the classes before it, without that class's own
    penalty, which its scores do count. So its sets contain ours, cover more than asked, and may differ only by
    the last class, where that is penalised.
    """
    probs, labels = classification()
    calibration, new = (probs[:400], labels[:400]), probs[400:]
    sets, score = theirs("raps", calibration, new, True)
    split = StratifiedShuffleSplit(n_splits=1, test_size=score.size_raps, random_state=SEED)
    part, _ = next(split.split(*calibration))
    start = int(np.ravel(score.k_star)[0])
    rule = ours("raps", (calibration[0][part], calibration[1][part]), penalty=float(score.lambda_star), start=start)
    assert rule.threshold == pytest.approx(np.ravel(score.quantiles_)[0], abs=1e-12)
    found = replace(rule, randomised=False).sets(Predictive.from_probs(new))
    extra = sets & ~found
    assert (found <= sets).all()
    assert extra.sum(1).max() == 1
    assert sets.sum(1)[extra.any(1)].min() > start


def test_equal_probabilities_are_all_in_for_mapie_and_ranked_here() -> None:
    """MAPIE puts in every class as probable as the last; here equals rank by number, and no more are needed."""
    probs, labels = classification()
    new = np.full((1, 8), 1 / 8)
    rule = replace(ours("aps", (probs, labels)), randomised=False)
    assert 0.5 < rule.threshold < 0.99
    assert theirs("aps", (probs, labels), new)[0].sum() == 8
    assert rule.sets(Predictive.from_probs(new)).sum() == np.floor(rule.threshold * 8) + 1


def regression(inputs: int = 500) -> tuple[Predictive, np.ndarray, np.ndarray]:
    """A predictive of three members, its low, high, median, mean and epistemic std as features, and targets."""
    rng = np.random.default_rng(1)
    mean, std = rng.normal(size=(3, inputs, 1)), rng.uniform(0.3, 1.5, size=(3, inputs, 1))
    pred = Predictive.from_moments(mean, std)
    low, high = pred.interval(0.9)
    parts = [low, high, pred.quantile(0.5), pred.mean, pred.epistemic_var.sqrt()]
    return pred, np.concatenate([part.numpy() for part in parts], 1), 1.5 * rng.normal(size=inputs)


def halves(pred: Predictive, calibration: int) -> tuple[Predictive, Predictive]:
    return replace(pred, outputs=pred.outputs[:, :calibration]), replace(pred, outputs=pred.outputs[:, calibration:])


def their_intervals(method: str, features: np.ndarray, y: np.ndarray, calibration: int) -> np.ndarray:
    """MAPIE's ends (N, 2) at level 0.9."""
    model: Any
    options = {}
    if method == "quantile":
        model = ConformalizedQuantileRegressor([Column(0), Column(1), Column(2)], prefit=True)
        options = {"symmetric_correction": True}  # one correction for both ends, as theorem 1 of the paper has it
    else:
        score = "absolute" if method == "absolute" else StdConformityScore()
        model = SplitConformalRegressor(Column(3), conformity_score=score, prefit=True)
    model.conformalize(features[:calibration], y[:calibration])
    return model.predict_interval(features[calibration:], **options)[1][:, :, 0]


@pytest.mark.parametrize(
    ("method", "calibration"),
    [("absolute", 200), ("absolute", 199), ("quantile", 200), ("quantile", 199), ("normalised", 199)],
)
def test_intervals_are_the_same(method: str, calibration: int) -> None:
    pred, features, y = regression()
    first, rest = halves(pred, calibration)
    ends = fit_conformal(method, first, y[:calibration]).intervals(rest)
    assert np.allclose(np.concatenate(ends, 1), their_intervals(method, features, y, calibration), rtol=0, atol=1e-12)


def test_the_lower_end_of_mapie_is_one_score_short_where_the_place_is_not_whole() -> None:
    """With 200 examples the place is ceil(201 * 0.9) = 181. MAPIE's standardised score takes it for the upper end.

    For the lower end it counts ceil(201 * 0.1) = 21 from the top, which is place 180: such an interval is not
    of nominal coverage 0.9. With 199 examples both counts are place 180.
    """
    pred, features, y = regression()
    first, rest = halves(pred, 200)
    low, high = fit_conformal("normalised", first, y[:200]).intervals(rest)
    found = their_intervals("normalised", features, y, 200)
    assert np.allclose(found[:, 1], high[:, 0], rtol=0, atol=1e-12)
    mean, spread = features[:, 3], features[:, 4]
    scores = np.sort(np.abs(y - mean)[:200] / spread[:200])
    assert np.allclose(found[:, 0], (mean - scores[179] * spread)[200:], rtol=0, atol=1e-12)
    assert np.allclose(low[:, 0], (mean - scores[180] * spread)[200:], rtol=0, atol=1e-12)
