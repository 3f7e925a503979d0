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

DEPTH = 3
STAGES, PATIENCE, RATE = 500, 25, 0.05
MIN_IN_LEAF = 5
DOUBLINGS, HALVINGS = 8, 16


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
    def fit(
        x: np.ndarray,
        y: np.ndarray,
        x_val: np.ndarray,
        y_val: np.ndarray,
        *,
        weight: np.ndarray | None = None,
        weight_val: np.ndarray | None = None,
        seed: int = 0,
        stages: int = STAGES,
    ) -> "NaturalBoosting":
        """Boost a Gaussian of inputs (N, D) float32 and targets (N,) up to the stage of the lowest validation NLL."""
        from sklearn.tree import DecisionTreeRegressor

        weights, weights_val = shares(weight, len(y)), shares(weight_val, len(y_val))
        mean = float(weights @ y)
        start = np.array([mean, 0.5 * math.log(max(float(weights @ (y - mean) ** 2), 1e-12))])
        theta, theta_val = np.tile(start, (len(y), 1)), np.tile(start, (len(y_val), 1))
        stage_trees: list[tuple[Any, ...]] = []
        best, best_stage = float(weights_val @ nll_each(theta_val, y_val)), 0
        rng = np.random.RandomState(seed % 2**32)
        for stage in range(1, stages + 1):
            gradient, trees = natural_gradient(theta, y), []
            for component in range(gradient.shape[1]):
                tree = DecisionTreeRegressor(max_depth=DEPTH, min_samples_leaf=MIN_IN_LEAF, random_state=rng)
                trees.append(tree.fit(x, gradient[:, component], sample_weight=weight))
            step = np.stack([tree.predict(x) for tree in trees], 1)  # (N, C)
            length = RATE * step_length(theta, step, y, weights)
            parts = [complete_tree(tree.tree_) for tree in trees]
            stage_trees.append(tuple(np.stack(arrays) for arrays in zip(*parts, strict=True)))
            stage_trees[-1] = (*stage_trees[-1][:2], -length * stage_trees[-1][2])
            theta = theta - length * step
            theta_val = theta_val - length * np.stack([tree.predict(x_val) for tree in trees], 1)
            loss = float(weights_val @ nll_each(theta_val, y_val))
            if loss < best:
                best, best_stage = loss, stage
            if stage - best_stage >= PATIENCE:
                break
        return NaturalBoosting(start, *stacked(stage_trees[:best_stage], len(start)))

    def parameters(self, x: np.ndarray) -> np.ndarray:
        """Predict the mean and the logarithm of the standard deviation (N, C) of inputs (N, D)."""
        rows = np.arange(len(x))
        theta = np.tile(self.start, (len(x), 1))
        for features, thresholds, values in zip(self.features, self.thresholds, self.values, strict=True):
            for component in range(len(features)):
                node = np.zeros(len(x), dtype=np.int64)
                for _ in range(DEPTH):
                    right = x[rows, features[component, node]] > thresholds[component, node]
                    node = 2 * node + 1 + right
                theta[:, component] += values[component, node - (2**DEPTH - 1)]
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
        before = loss(0.0)
        for _ in range(HALVINGS):
            if now < before:
                break
            length /= 2
            now = loss(length)
    return length


def complete_tree(tree: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Convert a scikit-learn tree of depth at most 3 to features (7,), thresholds (7,) and leaf values (8,).

    A leaf above the last level becomes a node with its value on both sides.
    """
    inner = 2**DEPTH - 1
    features, thresholds = np.zeros(inner, dtype=np.int64), np.full(inner, np.inf)
    values = np.zeros(inner + 1)
    pending = [(0, 0)]  # of the heap and of the tree
    while pending:
        slot, node = pending.pop()
        if slot >= inner:
            values[slot - inner] = tree.value[node].item()
            continue
        low, high = int(tree.children_left[node]), int(tree.children_right[node])
        if low >= 0:
            features[slot], thresholds[slot] = tree.feature[node], tree.threshold[node]
        pending += [(2 * slot + 1, low if low >= 0 else node), (2 * slot + 2, high if low >= 0 else node)]
    return features, thresholds, values


def stacked(stage_trees: list[tuple[Any, ...]], components: int) -> list[np.ndarray]:
    """Stack the arrays of T stages, possibly none, to (T, C, ...)."""
    if stage_trees:
        return [np.stack(arrays) for arrays in zip(*stage_trees, strict=True)]
    inner = 2**DEPTH - 1
    shapes = ((0, components, inner), (0, components, inner), (0, components, inner + 1))
    return [np.zeros(shape, dtype=kind) for shape, kind in zip(shapes, (np.int64, float, float), strict=True)]
