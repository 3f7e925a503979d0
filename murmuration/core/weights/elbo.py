"""The evidence lower bound (ELBO): the weight of KL(q || p) beside the mean loss of a batch.

The objective of an epoch of M batches of B of the N training examples is, in nats,

    sum over examples of -log p(y | x, w)  +  beta KL(q || p)

| convention | loss of a batch | weight of KL |
|---|---|---|
| sum | sum of the batch's losses | w_i, which add to 1 over an epoch |
| dataset | N times their mean | M w_i |
| mean | their mean; the convention of this library | M w_i / N |

`uniform` has w_i = 1 / M, `blundell` w_i = 2^(M - i) / (2^M - 1): most of the KL at the start of an epoch (Blundell
et al. 2015). `beta` is a temperature: below 1 the posterior is colder than Bayes' (Wenzel et al. 2020). With
`kl_warmup`, beta grows linearly from 0 over that fraction of the epochs (Soenderby et al. 2016).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from murmuration.likelihoods.base import weighted
from murmuration.system.errors import unknown

WEIGHTINGS = ("uniform", "blundell")
REDUCTIONS = ("elbo", "log-mean-exp")


@dataclass(frozen=True)
class ELBO:
    """The objective of a step; with the default beta of 0 it is the mean loss of one pass.

    Attributes:
        examples: Number N of training examples.
        steps_per_epoch: Steps per epoch.
        epochs: Epochs.
        beta: Temperature: the weight of the KL.
        weighting: Distribution of the KL over the batches of an epoch, "uniform" or "blundell".
        kl_warmup: Fraction of the epochs over which beta grows from 0.
        samples: Passes per step.
        reduction: How several passes are combined, "elbo" or "log-mean-exp".
    """

    examples: int = 1
    steps_per_epoch: int = 1
    epochs: int = 1
    beta: float = 0.0
    weighting: str = "uniform"
    kl_warmup: float = 0.25
    samples: int = 1
    reduction: str = "elbo"

    def kl_weight(self, step: int) -> float:
        """Return the factor of KL(q || p) beside the mean loss of a batch, at a step counted from 0."""
        epoch, index = divmod(step, self.steps_per_epoch)
        per_mean = self.steps_per_epoch * batch_weight(self.weighting, index, self.steps_per_epoch)
        return self.beta * warmup_factor(epoch, self.epochs, self.kl_warmup) * per_mean / self.examples

    def losses(
        self,
        passes: Iterator[Tensor],
        loss: Callable[[Tensor, Tensor | None], Tensor],
        weight: Tensor | None,
        complexity: Callable[[], Tensor | None],
        step: int,
    ) -> Tensor:
        """Compute the objective (m,) of m members at a step.

        Args:
            passes: Yields the outputs (m, B, K) of one pass after another, each with other draws of the weights.
            loss: Returns the losses (m, B) of outputs, times sample weights if there are any.
            weight: Sample weights (m, B).
            complexity: Returns KL(q || p) of each member (m,), or None.
            step: Step of training, counted from 0.

        Returns:
            The objective (m,).
        """
        one_pass = self.samples == 1
        rows = [loss(next(passes), weight if one_pass else None) for _ in range(self.samples)]
        cost = complexity() if self.beta else None
        losses = weighted(self.combine(rows), None if one_pass else weight).mean(-1)
        return losses if cost is None else losses + self.kl_weight(step) * cost

    def combine(self, losses: list[Tensor]) -> Tensor:
        """Combine the losses (...) of each example in one or several passes."""
        return losses[0] if len(losses) == 1 else reduce_losses(torch.stack(losses), self.reduction)


def batch_weight(weighting: str, index: int, batches: int) -> float:
    """Return the fraction w_i of an epoch's KL that belongs to its batch `index` of 0 .. M - 1.

    >>> [round(15 * batch_weight("blundell", i, 4)) for i in range(4)]
    [8, 4, 2, 1]
    """
    if weighting not in WEIGHTINGS:
        raise unknown("weighting", weighting, WEIGHTINGS)
    if weighting == "uniform":
        return 1 / batches
    return 2.0 ** -(index + 1) / (1 - 2.0**-batches)


def warmup_factor(epoch: int, epochs: int, fraction: float = 0.25) -> float:
    """Return the factor of beta in an epoch 0, 1, ...: it grows linearly from 0 to 1 over a fraction of all epochs.

    >>> [warmup_factor(epoch, 12) for epoch in range(5)]
    [0.0, 0.3333333333333333, 0.6666666666666666, 1.0, 1.0]
    """
    duration = int(epochs * fraction)
    return min(epoch / duration, 1.0) if duration else 1.0


def reduce_losses(losses: Tensor, reduction: str) -> Tensor:
    """Reduce losses (S, ...) of S draws to (...): their mean (`elbo`), or minus the log of the mean likelihood.

    The second is the tighter bound of Burda et al. (2016), never above the first; losses under different numbers of
    draws cannot be compared under it.
    """
    if reduction not in REDUCTIONS:
        raise unknown("reduction", reduction, REDUCTIONS)
    if len(losses) == 1:
        return losses[0]
    if reduction == "elbo":
        return losses.mean(0)
    count = torch.tensor(float(len(losses)), dtype=losses.dtype, device=losses.device)
    return count.log() - torch.logsumexp(-losses, 0)
