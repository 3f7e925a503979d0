"""Transfer of covariance: features of rare classes drawn around their means with the covariance of common classes.

A class of a few examples has a usable mean and no usable covariance. If features of all classes vary alike, those of
common classes can stand in (Yin et al. 2019; Yang et al. 2021). With residuals R_h (n_h, D) of common class h around
its mean, R_h' g / sqrt(n_h - 1) with g of n_h standard normal numbers is a draw from its empirical covariance, which
is never formed: D may be thousands.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from murmuration.system.errors import Misuse
from murmuration.system.streams import ALL_MEMBERS, generator


@dataclass(frozen=True)
class Transfer:
    """Settings of covariance transfer: which classes lend, to how many, up to how many examples."""

    many: int = 100  # classes with more training examples are common and lend; all others borrow
    neighbours: int | None = 2  # common classes, those of nearest mean, whose covariances are averaged; None: all
    up_to: int | None = None  # examples of a borrowing class after drawing; None: as many as the largest class

    def __post_init__(self) -> None:
        if self.many < 1:
            raise Misuse(f"many={self.many}: expected a number of examples, at least 1")
        if self.neighbours is not None and self.neighbours < 1:
            raise Misuse(f"neighbours={self.neighbours}: expected a number of classes, or None for all")


def transfer_covariance(
    features: Tensor, y: Tensor, transfer: Transfer | None = None, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return features (N', D) and labels (N',): those given, and after them draws for the rare classes.

    >>> x, y = torch.randn(210, 4), torch.tensor([0] * 200 + [1] * 10)
    >>> more, labels = transfer_covariance(x, y)
    >>> labels.bincount(), torch.equal(more[:210], x)
    (tensor([200, 200]), True)
    """
    options, counts = transfer or Transfer(), y.bincount()
    common = (counts > options.many).nonzero().flatten()
    if not len(common):
        raise Misuse(f"no class has more than {options.many} examples, the largest {int(counts.max())}: give many=")
    means = {label: features[y == label].mean(0) for label in counts.nonzero().flatten().tolist()}
    residuals = {label: features[y == label] - means[label] for label in common.tolist()}
    target, parts, labels = options.up_to or int(counts.max()), [features], [y]
    for label, mean in means.items():
        missing = target - int(counts[label])
        if label in residuals or missing <= 0:
            continue
        distances = {lender: float((means[lender] - mean).square().sum()) for lender in residuals}
        lenders = sorted(distances, key=distances.__getitem__)[: options.neighbours]  # nearest first; None: all
        stream = generator(seed, "transfer", ALL_MEMBERS, label)
        noise = []
        for lent in (residuals[lender] for lender in lenders):
            normal = torch.randn(missing, len(lent), generator=stream, dtype=torch.float64).to(features)
            noise.append(normal @ lent / (len(lent) - 1) ** 0.5)
        parts.append(mean + torch.stack(noise).sum(0) / len(lenders) ** 0.5)
        labels.append(torch.full((missing,), label, dtype=y.dtype))
    return torch.cat(parts), torch.cat(labels)
