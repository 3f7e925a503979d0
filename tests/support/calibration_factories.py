"""Predictives with a known optimal calibration: their targets are drawn from it."""

import numpy as np
import torch
from torch import Tensor

from murmuration.likelihoods import Categorical
from murmuration.prediction.predictive import Predictive


def draw_labels(probs: Tensor, seed: int) -> Tensor:
    """Labels (N,) drawn from probabilities (N, K)."""
    return torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(seed)).squeeze(-1)


def random_logits(members: int, inputs: int, classes: int, *, seed: int = 0, noise: float = 1.0) -> Tensor:
    """Logits (S, N, K) in double precision: what members share, and `noise` of their own."""
    generator = torch.Generator().manual_seed(seed)
    shared = 2 * torch.randn(1, inputs, classes, dtype=torch.float64, generator=generator)
    return shared + noise * torch.randn(members, inputs, classes, dtype=torch.float64, generator=generator)


def tempered(temperature: float, *, members: int = 1, inputs: int = 20_000, seed: int = 0) -> tuple[Predictive, Tensor]:
    """Logits of four classes, and labels drawn from the mixture of softmax(z / temperature)."""
    logits = random_logits(members, inputs, 4, seed=seed)
    return Predictive(logits, Categorical(4)), draw_labels((logits / temperature).softmax(-1).mean(0), seed + 1)


def overconfident(
    *, members: int = 4, inputs: int = 1500, weights: list[float] | None = None
) -> tuple[Predictive, Tensor]:
    """Overconfident weighted members of three classes, biased towards one of them."""
    truth = random_logits(1, inputs, 3, seed=5)[0]
    logits = truth + random_logits(members, inputs, 3, seed=6) + torch.tensor([0.8, 0.0, -0.4], dtype=torch.float64)
    shares = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    return Predictive(1.5 * logits, Categorical(3), shares), draw_labels(truth.softmax(-1), 7)


def gaussian_mixture(
    *, factor: float, inputs: int = 5000, targets: int = 2, seed: int = 0
) -> tuple[Predictive, Tensor]:
    """Three weighted members, and targets drawn from their mixture scaled by `factor` around its mean."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(3, inputs, targets))
    stds = 0.3 + rng.random((3, inputs, targets))
    weights = np.array([0.5, 0.3, 0.2])
    middle = np.tensordot(weights, means, 1)
    who = rng.choice(3, size=inputs, p=weights)
    rows = np.arange(inputs)
    drawn = means[who, rows] + stds[who, rows] * rng.normal(size=(inputs, targets))
    return Predictive.from_moments(means, stds, weights), torch.from_numpy(middle + factor * (drawn - middle))


def mean_loss(pred: Predictive, y: Tensor) -> float:
    return -pred.log_prob(y).mean().item()
