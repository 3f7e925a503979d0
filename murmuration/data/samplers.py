"""Samplers: how often the classes of a training set are drawn.

With n_c examples of class c among N and the fraction t of the epochs that are over, class c is drawn with probability

| sampler | probability | |
|---|---|---|
| `instance` | n_c / N | every example once an epoch, in random order |
| `square-root` | sqrt(n_c) / sum of sqrt(n_j) | Mahajan et al. 2018 |
| `balanced` | 1 / K | classes equally often |
| `progressive` | (1 - t) n_c / N + t / K | from instance to balanced (Kang et al. 2020) |

All but `instance` draw with replacement: a class, then one of its examples. An epoch has N draws with every sampler.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from murmuration.system.option_text import Answer

INSTANCE = "instance"


def by_power(counts: Tensor, power: float) -> Tensor:
    """Return probabilities (K,) proportional to a power of the counts (K,); zero for classes without examples."""
    weights = torch.where(counts > 0, counts.double().clamp_min(1) ** power, 0.0)
    return weights / weights.sum()


def progressive(counts: Tensor, progress: float) -> Tensor:
    """Interpolate the probabilities (K,) from class frequencies (progress 0) to equal ones (progress 1)."""
    return (1 - progress) * by_power(counts, 1) + progress * by_power(counts, 0)


SAMPLERS: dict[str, Answer[Callable[[Tensor, float], Tensor]]] = {  # (counts, progress) -> probabilities of classes
    INSTANCE: Answer(lambda counts, progress: by_power(counts, 1), "every example once an epoch, in random order"),
    "square-root": Answer(
        lambda counts, progress: by_power(counts, 0.5), "classes by the square root of their number of examples"
    ),
    "balanced": Answer(lambda counts, progress: by_power(counts, 0), "classes equally often, with replacement"),
    "progressive": Answer(progressive, "from instance to balanced over the epochs (Kang et al. 2020)"),
}


def draw_examples(y: Tensor, sampler: str, progress: float, stream: torch.Generator) -> Tensor:
    """Draw the indices (N,) of an epoch's examples with labels y (N,): first a class, then one of its examples.

    >>> y = torch.tensor([0] * 90 + [1] * 10)
    >>> y[draw_examples(y, "balanced", 0.0, torch.Generator().manual_seed(0))].bincount()
    tensor([53, 47])
    """
    counts, by_class = y.bincount(), y.argsort(stable=True)
    classes = torch.multinomial(SAMPLERS[sampler].value(counts, progress), len(y), replacement=True, generator=stream)
    within = torch.rand(len(y), generator=stream, dtype=torch.float64) * counts[classes]  # below the count
    return by_class[(counts.cumsum(0) - counts)[classes] + within.long()]
