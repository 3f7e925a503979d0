"""Weights of experts found on unlabelled test inputs (SADE, Zhang et al. 2022).

Experts for common and for rare classes are each stable under augmentation where they are strong. The weights that make
the mixture agree most with itself on two augmented views of every test input therefore favour the experts that fit
the classes of the test inputs, without labels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.data import AUGMENTATIONS, augment
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse, unknown
from murmuration.system.streams import ALL_MEMBERS, generator

SMALLEST = 0.05  # weight at which the search stops: no expert is left out
STEPS, LR = 200, 0.1


def expert_weights(
    ensemble: Ensemble, x: Tensor, augmentations: tuple[str, ...] = ("pad-crop", "flip"), seed: int = 0
) -> Tensor:
    """Weight members by their agreement on two augmented views of unlabelled images.

    Use the weights as `replace(ensemble.predict(images), weights=weights)`.

    Args:
        ensemble: Ensemble of experts.
        x: Prepared images (N, C, H, W).
        augmentations: Names of augmentations that make the views.
        seed: Random seed of the views.

    Returns:
        Weights (S,) of the members.

    Raises:
        Misuse: For inputs that are not images, or without augmentations.
    """
    for name in augmentations:
        if name not in AUGMENTATIONS:
            raise unknown("augmentation", name, AUGMENTATIONS)
    if x.dim() != 4 or not augmentations:
        amount = f"{len(augmentations)} augmentations"
        raise Misuse(f"inputs of shape {tuple(x.shape)} with {amount}: expected images, and some")
    views = [augment(x, augmentations, generator(seed, "views", ALL_MEMBERS, view)) for view in range(2)]
    return agreement_weights(*(ensemble.predict(view, prepared=True, calibrated=False) for view in views))


def agreement_weights(first: Predictive, second: Predictive) -> Tensor:
    """Return the weights (S,) of members that maximise the agreement of two predictives of the same inputs.

    The agreement is the mean over inputs of the cosine between the mean class probabilities of the two. Gradient ascent
    on the logits of the weights begins with equal ones and stops where a weight falls to 0.05.
    """
    one, other = (predictive.probs.detach().double() for predictive in (first, second))  # (S, N, K)
    if one.shape != other.shape:
        raise Misuse(f"predictions of shapes {tuple(one.shape)} and {tuple(other.shape)}: expected the same inputs")
    logits = torch.zeros(len(one), dtype=torch.float64, requires_grad=True)
    best = logits.softmax(0).detach()
    for _ in range(STEPS):
        (gradient,) = torch.autograd.grad(agreement(logits.softmax(0), one, other), logits)
        moved = (logits + LR * gradient / gradient.norm().clamp_min(1e-12)).detach()
        weights = moved.softmax(0)
        if weights.min() < SMALLEST or agreement(weights, one, other) <= agreement(best, one, other):
            break
        best, logits = weights, moved.requires_grad_()
    return best


def agreement(weights: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Return the mean cosine () between two mixtures of class probabilities (S, N, K) with weights (S,)."""
    first, second = (torch.einsum("s,snk->nk", weights, probs) for probs in (one, other))
    return F.cosine_similarity(first, second).mean()
