"""Natural-gradient boosting of a Gaussian (NGBoost, Duan et al. 2020) on regression trees of scikit-learn.

The parameters of an input are theta = (mean, log std). A stage fits one tree to each component of the natural gradient
of the negative log-likelihood, searches the step length that lowers it most by doubling and halving, and goes a small
part of that step. The Fisher information of a Gaussian in (mean, log std) is diag(1 / std^2, 2), so that the natural
gradient is (mean - y, (1 - (y - mean)^2 / std^2) / 2).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

DEPTH, INNER = 3, 7  # of the trees: levels, and nodes above the leaves
STAGES, PATIENCE, RATE = 500, 25, 0.05
MIN_IN_LEAF = 5
DOUBLINGS, HALVINGS = 8, 16


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs (N, D), targets (N,) as class indices or standardised numbers, and sample weights (N,)."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class NaturalBoosting:
    """A Gaussian for every input: complete trees of depth 3 as arrays, added to a constant (mean, log std).

    T stages have one tree for each of the C = 2 components, with 7 inner nodes in the order of a heap and 8 leaves.
    """

    start: np.ndarray  # (C,)
    features: np.ndarray  # (T, C, 7) columns of the inputs
    thresholds: np.ndarray  # (T, C, 7): a value at most this one goes left
    values: np.ndarray  # (T, C, 8) of the leaves, the step length included

    @staticmethod
    def fit(train: Examples, val: Examples, *, seed: int = 0, stages: int = STAGES) -> "NaturalBoosting":
        """Boost a Gaussian of inputs (N, D) float32 and targets (N,) up to the stage of the lowest validation NLL."""
        from sklearn.tree import DecisionTreeRegressor

        (x, y), y_val = (train.x, train.y), val.y
        weights, weights_val = shares(train.weight, len(y)), shares(val.weight, len(y_val))
        mean = float(weights @ y)
        start = np.array([mean, 0.5 * math.log(max(float(weights @ (y - mean) ** 2), 1e-12))])
        theta, theta_val = np.tile(start, (len(y), 1)), np.tile(start, (len(y_val), 1))
        features = np.zeros((stages, len(start), INNER), dtype=np.int64)
        thresholds, values = np.zeros(features.shape), np.zeros((stages, len(start), INNER + 1))
        best, best_stage = float(weights_val @ nll_each(theta_val, y_val)), 0
        rng = np.random.RandomState(seed % 2**32)
        for stage in range(stages):
            trees = []
            for gradient in natural_gradient(theta, y).T:
                tree = DecisionTreeRegressor(max_depth=DEPTH, min_samples_leaf=MIN_IN_LEAF, random_state=rng)
                trees.append(tree.fit(x, gradient, sample_weight=train.weight))
            step = np.stack([tree.predict(x) for tree in trees], 1)  # (N, C)
            length = RATE * step_length(theta, step, y, weights)
            for i, tree in enumerate(trees):
                features[stage, i], thresholds[stage, i], leaves = complete_tree(tree.tree_)
                values[stage, i] = -length * leaves
            theta = theta - length * step
            theta_val = theta_val - length * np.stack([tree.predict(val.x) for tree in trees], 1)
            loss = float(weights_val @ nll_each(theta_val, y_val))
            if loss < best:
                best, best_stage = loss, stage + 1
            if stage + 1 - best_stage >= PATIENCE:
                break
        return NaturalBoosting(start, *(array[:best_stage].copy() for array in (features, thresholds, values)))

    def parameters(self, x: np.ndarray) -> np.ndarray:
        """Predict the mean and the logarithm of the standard deviation (N, C) of inputs (N, D)."""
        rows = np.arange(len(x))
        theta = np.tile(self.start, (len(x), 1))
        for features, thresholds, values in zip(self.features, self.thresholds, self.values, strict=True):
            for component in range(len(features)):
                node = np.zeros(len(x), dtype=np.int64)
                for _ in range(DEPTH):
                    node = 2 * node + 1 + (x[rows, features[component, node]] > thresholds[component, node])
                theta[:, component] += values[component, node - INNER]
        return theta

    def mean_std(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predict the mean and the standard deviation (N,) of inputs (N, D) float32."""
        mean, log_std = self.parameters(x).T
        return mean, np.exp(log_std)


def shares(weight: np.ndarray | None, count: int) -> np.ndarray:
    """Normalise sample weights (N,) to sum to one; equal weights by default."""
    return np.full(count, 1 / max(count, 1)) if weight is None else weight / weight.sum()


def nll_each(theta: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compute negative log densities (N,), without their constant, of targets (N,) under (mean, log std) (N, 2)."""
    losses: np.ndarray = 0.5 * (y - theta[:, 0]) ** 2 * np.exp(-2 * theta[:, 1]) + theta[:, 1]
    return losses


def natural_gradient(theta: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compute the natural gradient (N, 2) of the negative log density of targets (N,) at (mean, log std) (N, 2)."""
    error = theta[:, 0] - y
    return np.stack([error, (1 - error**2 * np.exp(-2 * theta[:, 1])) / 2], 1)


def step_length(theta: np.ndarray, step: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    """Search the step length, a power of two, that lowers the mean loss most: doubled while it helps, else halved."""

    def loss(length: float) -> float:
        return float(weights @ nll_each(theta - length * step, y))

    length, now = 1.0, loss(1.0)
    with np.errstate(over="ignore"):
        for _ in range(DOUBLINGS):
            further = loss(2 * length)
            if not further < now:
                break
            length, now = 2 * length, further
        before, halvings = loss(0.0), 0
        while not now < before and halvings < HALVINGS:
            length, halvings = length / 2, halvings + 1
            now = loss(length)
    return length


def complete_tree(tree: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Convert a scikit-learn tree of depth at most 3 to features (7,), thresholds (7,) and leaf values (8,).

    A leaf above the last level becomes a node with its value on both sides.
    """
    features, thresholds, values = np.zeros(INNER, dtype=np.int64), np.full(INNER, np.inf), np.zeros(INNER + 1)
    pending = [(0, 0)]  # of the heap and of the tree
    while pending:
        slot, node = pending.pop()
        if slot >= INNER:
            values[slot - INNER] = tree.value[node].item()
            continue
        low, high = int(tree.children_left[node]), int(tree.children_right[node])
        if low >= 0:
            features[slot], thresholds[slot] = tree.feature[node], tree.threshold[node]
        pending += [(2 * slot + 1, low if low >= 0 else node), (2 * slot + 2, high if low >= 0 else node)]
    return features, thresholds, values
