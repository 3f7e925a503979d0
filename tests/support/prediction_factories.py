"""Predictions and targets from known distributions."""

import numpy as np
import torch

from murmuration.likelihoods import Categorical
from murmuration.prediction.predictive import Predictive


def classification_sample(
    count: int, *, classes: int = 4, members: int = 3, distortion: float = 1.0, seed: int = 0
) -> tuple[Predictive, np.ndarray]:
    """Logits that are `distortion` times the true ones plus a little noise of each member, and labels (N,)."""
    rng = np.random.default_rng(seed)
    true = 2 * rng.standard_normal((count, classes))
    gumbel = rng.gumbel(size=(count, classes))
    logits = distortion * (true + 0.05 * rng.standard_normal((members, count, classes)))
    return Predictive(torch.from_numpy(logits), Categorical(classes)), (true + gumbel).argmax(1)


def regression_sample(
    count: int, *, targets: int = 1, members: int = 3, distortion: float = 1.0, seed: int = 0
) -> tuple[Predictive, np.ndarray]:
    """Gaussian predictions whose spread is `distortion` times the true one, and targets (N, K)."""
    rng = np.random.default_rng(seed)
    mean, std = rng.standard_normal((count, targets)), np.exp(0.5 * rng.standard_normal((count, targets)))
    means = mean + 0.05 * rng.standard_normal((members, count, targets))
    stds = np.broadcast_to(distortion * std, means.shape)
    return Predictive.from_moments(means, stds.copy()), mean + std * rng.standard_normal((count, targets))
