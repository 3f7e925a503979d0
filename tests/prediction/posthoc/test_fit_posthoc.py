"""`fit_posthoc`: which examples each part is fitted on, what is fitted, and its columns per example."""

import numpy as np
import pytest
import torch
from posthoc_factories import CASES, fitted
from prediction_factories import classification_sample, regression_sample

from murmuration.prediction.posthoc import PostHocConfig
from murmuration.prediction.posthoc.abstention import by_cost, by_error_rate, by_risk_control
from murmuration.prediction.posthoc.conformal import SetRule, fit_conformal
from murmuration.prediction.posthoc.fit import PostHoc, choose_calibrator, conformal_methods, fit_posthoc, halves
from murmuration.prediction.predictive import Predictive

EVERY = pytest.mark.parametrize("case", CASES)

# From which examples


@pytest.mark.parametrize("count", [20, 21, 1000])
def test_the_halves_share_nothing_and_leave_nothing_out(count):
    first, second = halves(count, PostHocConfig())
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(count))
    assert (len(first), len(second)) == (count // 2, count - count // 2)
    again = halves(count, PostHocConfig(coverage=0.5, conformal="aps"))
    assert torch.equal(first, again[0])
    assert torch.equal(second, again[1])
    assert first.tolist() != list(range(count // 2))  # drawn, not cut: the examples of a file may come in an order


def test_without_a_calibrator_the_rules_get_all():
    first, second = halves(30, PostHocConfig("none"))
    assert len(first) == 0
    assert second.tolist() == list(range(30))
    posthoc, pred, y = fitted("classes, aps, no calibrator")
    assert posthoc.calibrator is None
    assert posthoc.calibrated(pred) is pred
    assert (posthoc.calibrator_examples, posthoc.rule_examples) == (0, 120)
    assert posthoc.conformal[0] == fit_conformal("aps", pred, y)


def test_weights_of_members_stay_with_the_rows():
    pred, y = classification_sample(60)
    weighted = Predictive(pred.outputs, pred.likelihood, torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64))
    part = weighted.at(torch.tensor([3, 5]))
    torch.testing.assert_close(part.mean, weighted.mean[[3, 5]], rtol=0, atol=0)
    assert fit_posthoc(weighted, y).calibrator == fit_posthoc(pred.select([0, 1]), y).calibrator


# What exactly


def test_every_part_is_what_its_own_function_makes_of_its_half():
    posthoc, pred, y = fitted("classes")
    first, second = halves(200, PostHocConfig())
    calibrator, choice = choose_calibrator("temperature", pred.at(first), y[first])
    rest = calibrator(pred.at(second))
    assert (posthoc.calibrator, posthoc.choice) == (calibrator, choice)
    assert choice.kept
    assert posthoc.conformal == tuple(
        fit_conformal(method, rest, y[second]) for method in ("lac", "aps", "raps", "mondrian")
    )
    sure, wrong = rest.mean.amax(-1).numpy(), (rest.mean.argmax(-1).numpy() != y[second]).astype(float)
    assert posthoc.abstention == (by_cost(sure, wrong), by_error_rate(sure, wrong), by_risk_control(sure, wrong))
    assert (posthoc.calibrator_examples, posthoc.rule_examples) == (100, 100)


def test_settings_reach_their_part():
    posthoc, pred, y = fitted("classes, raps, costs")
    first, second = halves(301, PostHocConfig())
    rest = choose_calibrator("vector", pred.at(first), y[first])[0](pred.at(second))
    sure, wrong = rest.confidence.numpy(), (rest.predicted.numpy() != y[second]).astype(float)
    assert posthoc.conformal[0] == fit_conformal("raps", rest, y[second], coverage=0.8)
    assert [rule.method for rule in posthoc.conformal] == ["raps", "lac", "aps", "mondrian"]
    assert posthoc.abstention == (
        by_cost(sure, wrong, error_cost=5.0, abstain_cost=1.0),
        by_error_rate(sure, wrong, max_error_rate=0.1),
        by_risk_control(sure, wrong, max_risk=0.1),
    )


def test_a_regression_abstains_only_if_abstaining_has_a_cost():
    assert fitted("one target")[0].abstention == ()
    posthoc, pred, y = fitted("two targets")
    first, second = halves(151, PostHocConfig())
    rest = choose_calibrator("member_temperature", pred.at(first), y[first])[0](pred.at(second))
    spread = rest.total_var.mean(-1).sqrt().numpy()
    errors = np.abs(rest.mean.numpy() - y[second]).mean(-1)
    assert posthoc.abstention == (by_cost(spread, errors, abstain_cost=0.7, uncertainty="total_std"),)
    expected = [fit_conformal(m, rest, y[second], coverage=0.8) for m in ("normalised", "absolute", "quantile")]
    assert list(posthoc.conformal) == expected


def test_a_known_distortion_is_undone():
    """2000 examples: the temperature's standard error is about 1 / sqrt(1000 * Fisher information), near 0.1."""
    pred, y = classification_sample(2000, distortion=3.0)
    assert fit_posthoc(pred, y).calibrator.temperature == pytest.approx(3.0, abs=0.4)  # type: ignore[union-attr]
    numbers, targets = regression_sample(2000, distortion=0.25)
    factor = fit_posthoc(numbers, targets).calibrator.factors[0]  # type: ignore[union-attr]
    assert factor == pytest.approx(4.0, rel=4 / np.sqrt(2 * 1000))  # of a standard deviation, four standard errors


def test_targets_may_be_a_tensor_of_single_precision():
    pred, y = regression_sample(100)
    single = y.astype(np.float32)
    assert fit_posthoc(pred, torch.from_numpy(single[:, 0])) == fit_posthoc(pred, single.astype(np.float64))


# What is columns of each example


@EVERY
@pytest.mark.parametrize("size", [7, 64])
def test_the_columns_are_what_sets_and_rules_say_however_inputs_are_batched(case, size):
    posthoc, pred, y = fitted(case)
    changed = posthoc.calibrated(pred)
    parts, place = [], 0
    for batch in changed.batches(size):
        count = batch.outputs.shape[1]
        parts.append(posthoc.per_example(batch, y[place : place + count], first=place))
        place += count
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    expected = directly(posthoc, changed, y)
    assert list(found) == list(expected)
    for name, values in expected.items():  # quantiles of mixtures are known to 1e-12 of the spread
        np.testing.assert_allclose(found[name], values, rtol=1e-11 if name.startswith("size") else 0, err_msg=name)


def directly(posthoc: PostHoc, pred: Predictive, y: np.ndarray) -> dict[str, np.ndarray]:
    """The same columns, input by input."""
    found: dict[str, np.ndarray] = {}
    for rule in posthoc.conformal:
        if isinstance(rule, SetRule):
            sets = rule.sets(pred)
            found[f"covered_{rule.method}"] = np.array([chosen[label] for chosen, label in zip(sets, y, strict=True)])
            found[f"size_{rule.method}"] = np.array([chosen.sum() for chosen in sets])
        else:
            low, high = rule.intervals(pred)
            inside = np.array([(a <= t) & (t <= b) for a, t, b in zip(low, y, high, strict=True)]).mean(1)
            found[f"covered_{rule.method}"] = inside
            found[f"size_{rule.method}"] = np.array([(b - a).mean() for a, b in zip(low, high, strict=True)])
    for rule in posthoc.abstention:
        if pred.task == "classification":
            found[f"answered_{rule.name}"] = pred.mean.amax(-1).numpy() >= rule.threshold
        else:
            found[f"answered_{rule.name}"] = pred.total_var.mean(-1).sqrt().numpy() <= rule.threshold
    return found


@pytest.mark.parametrize("sets", ["aps", "raps"])
def test_random_sets_depend_on_the_index_of_the_input(sets):
    """The randomness of aps is real: the same inputs as if they stood elsewhere have other sets."""
    pred, y = classification_sample(400)
    posthoc = fit_posthoc(pred, y, PostHocConfig(conformal=sets))
    changed = posthoc.calibrated(pred)
    here, there = (posthoc.per_example(changed, y, first=first)[f"size_{sets}"] for first in (0, 400))
    assert (here != there).any()


def mean_coverage(sample: tuple[Predictive, np.ndarray], trials: int, train: int, test: int) -> dict[str, float]:
    """The mean empirical coverage by method over trials that fit on `train` examples and test on `test` others."""
    pred, y = sample
    found: dict[str, list[float]] = {}
    for start in range(0, trials * (train + test), train + test):
        fit, rest = torch.arange(start, start + train), torch.arange(start + train, start + train + test)
        posthoc = fit_posthoc(pred.at(fit), y[fit])
        columns = posthoc.per_example(posthoc.calibrated(pred.at(rest)), y[rest])
        for rule in posthoc.conformal:
            found.setdefault(rule.method, []).append(float(columns[f"covered_{rule.method}"].mean()))
    return {method: float(np.mean(shares)) for method, shares in found.items()}


def test_empirical_coverage_of_sets_is_nominal():
    """The mean coverage of aps and raps is exactly k / (n + 1) for the k-th of n scores; that of lac as well, since its
    scores have no ties. Empty sets get a class, so the coverage may be a little higher."""
    trials, train, test = 60, 100, 200
    sample = classification_sample(trials * (train + test), distortion=2.0, members=2, seed=5)
    nominal = np.ceil(51 * 0.9) / 51
    variance = nominal * (1 - nominal) * (1 / 52 + 1 / test)  # of Beta(k, n + 1 - k), then of a binomial
    error = 4 * np.sqrt(variance / trials)
    for method, coverage in mean_coverage(sample, trials, train, test).items():
        assert nominal - error < coverage < nominal + error + 0.02, method


@pytest.mark.slow
@pytest.mark.parametrize("targets", [1, 2])
def test_empirical_coverage_of_intervals_is_nominal(targets):
    trials, train, test = 25, 80, 100
    sample = regression_sample(trials * (train + test), targets=targets, distortion=0.3, members=2, seed=6)
    nominal = np.ceil(41 * 0.9) / 41
    error = 4 * np.sqrt(nominal * (1 - nominal) * (1 / 42 + 1 / test) / trials)
    for method, coverage in mean_coverage(sample, trials, train, test).items():
        assert abs(coverage - nominal) < error, method


def test_the_default_method_comes_first():
    assert conformal_methods("classification", None) == ["lac", "aps", "raps", "mondrian"]
    assert conformal_methods("regression", None) == ["quantile", "absolute", "normalised"]
    assert conformal_methods("regression", "absolute") == ["absolute", "quantile", "normalised"]
