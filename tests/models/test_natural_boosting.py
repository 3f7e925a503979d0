"""Natural-gradient boosting of a Gaussian: closed forms, the recovered standard deviation, and NGBoost itself."""

import math

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from murmuration.models.estimators.natural_boosting import Examples, NaturalBoosting, complete_tree, natural_gradient


def toy(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs (N, 2), targets (N,), and the true mean and standard deviation (N,) of a heteroscedastic problem."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(rows, 2)).astype(np.float32)
    mean, std = np.sin(2 * x[:, 0]), np.exp(0.5 * x[:, 1] - 1)
    return x, mean + std * rng.standard_normal(rows), mean, std


def mean_nll(mean: np.ndarray, std: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(0.5 * ((y - mean) / std) ** 2 + np.log(std) + 0.5 * math.log(2 * math.pi)))


def test_the_natural_gradient_is_the_inverse_fisher_times_the_gradient():
    mean, log_std, y, step = 0.3, -0.4, 1.1, 1e-6

    def nll(mu: float, s: float) -> float:
        return 0.5 * (y - mu) ** 2 * math.exp(-2 * s) + s

    slope = np.array(
        [
            (nll(mean + step, log_std) - nll(mean - step, log_std)) / (2 * step),
            (nll(mean, log_std + step) - nll(mean, log_std - step)) / (2 * step),
        ]
    )
    fisher = np.diag([math.exp(-2 * log_std), 2.0])  # of a Gaussian in (mean, log std)
    found = natural_gradient(np.array([[mean, log_std]]), np.array([y]))[0]
    np.testing.assert_allclose(found, np.linalg.solve(fisher, slope), rtol=1e-6)


def test_without_information_the_maximum_likelihood_gaussian_is_kept():
    y = np.random.default_rng(0).normal(3.0, 2.0, size=200)
    x = np.zeros((200, 1), dtype=np.float32)
    mean, std = NaturalBoosting.fit(Examples(x, y), Examples(x, y)).mean_std(x[:3])
    np.testing.assert_allclose(mean, y.mean(), rtol=1e-9)
    np.testing.assert_allclose(std, y.std(), rtol=1e-9)


@pytest.mark.parametrize("depth", [1, 3])
def test_a_complete_tree_predicts_as_the_tree_it_was_made_of(depth):
    x, y, _, _ = toy(60, 1)
    tree = DecisionTreeRegressor(max_depth=depth, random_state=0).fit(x, y)
    features, thresholds, values = complete_tree(tree.tree_)
    model = NaturalBoosting(np.zeros(2), features[None, None], thresholds[None, None], values[None, None])
    new = toy(50, 2)[0]
    np.testing.assert_array_equal(model.parameters(new)[:, 0], tree.predict(new))


def test_the_standard_deviation_of_a_heteroscedastic_problem_is_recovered():
    x, y, _, _ = toy(2000, 3)
    x_val, y_val, _, _ = toy(500, 4)
    new, targets, true_mean, true_std = toy(2000, 5)
    model = NaturalBoosting.fit(Examples(x, y), Examples(x_val, y_val))
    mean, std = model.mean_std(new)
    assert np.corrcoef(np.log(std), np.log(true_std))[0, 1] > 0.9
    assert abs(np.mean(np.log(std) - np.log(true_std))) < 0.1
    best, constant = mean_nll(true_mean, true_std, targets), mean_nll(y.mean() + 0 * mean, y.std() + 0 * std, targets)
    assert mean_nll(mean, std, targets) < best + 0.15 * (constant - best)
    error = ((targets - mean) / std) ** 2
    assert abs(error.mean() - 1) < 0.15 + 3 * error.std() / math.sqrt(len(error))


def test_the_constant_of_weighted_examples_is_that_of_repeated_ones():
    x, y, _, _ = toy(150, 6)
    weight = np.where(np.arange(150) % 3 == 0, 2.0, 1.0)
    rows = np.repeat(np.arange(150), weight.astype(int))
    weighted = NaturalBoosting.fit(Examples(x, y, weight), Examples(x, y), stages=1)
    repeated = NaturalBoosting.fit(Examples(x[rows], y[rows]), Examples(x, y), stages=1)
    np.testing.assert_allclose(weighted.start, repeated.start, rtol=1e-12)


def test_it_is_as_good_as_ngboost():
    ngboost = pytest.importorskip("ngboost")
    x, y, _, _ = toy(400, 7)
    x_val, y_val, _, _ = toy(200, 8)
    new, targets, _, _ = toy(2000, 9)
    other = ngboost.NGBRegressor(n_estimators=200, learning_rate=0.05, verbose=False, random_state=0)
    other.fit(x, y, X_val=x_val, Y_val=y_val, early_stopping_rounds=20)
    theirs = other.pred_dist(new)
    ours = NaturalBoosting.fit(Examples(x, y), Examples(x_val, y_val)).mean_std(new)
    assert mean_nll(*ours, targets) < mean_nll(theirs.loc, theirs.scale, targets) + 0.05


def test_one_stage_goes_a_twentieth_of_the_best_power_of_two():
    x, y, _, _ = toy(300, 5)
    start = np.array([y.mean(), math.log(y.std())])
    theta = np.tile(start, (len(y), 1))
    rng, trees = np.random.RandomState(0), []
    for gradient in natural_gradient(theta, y).T:
        trees.append(DecisionTreeRegressor(max_depth=3, min_samples_leaf=5, random_state=rng).fit(x, gradient))
    step = np.stack([tree.predict(x) for tree in trees], 1)

    def loss(length: float) -> float:
        mean, log_std = (theta - length * step).T
        return mean_nll(mean, np.exp(log_std), y)

    best = min((2.0**power for power in range(-16, 9)), key=loss)
    model = NaturalBoosting.fit(Examples(x, y), Examples(x, y), stages=1)
    np.testing.assert_allclose(model.parameters(x), theta - 0.05 * best * step, rtol=1e-9, atol=1e-12)
