"""Decoupled training (Kang et al. 2020): features as they were learned, and last layers changed for rare classes.

| function | last layer of each member |
|---|---|
| `retrain_heads` | trained anew on the features of its body, by balanced batches (cRT) or transferred covariance |
| `normalise_heads` | row of each class divided by its length to the power tau |
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.core.population import Population
from murmuration.core.weights import Structure
from murmuration.data import Data, Split
from murmuration.likelihoods import Categorical, Likelihood
from murmuration.models.nets.source import freshly_initialised
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc.losses import balanced_mean
from murmuration.system.errors import Misuse
from murmuration.system.streams import ALL_MEMBERS, generator
from murmuration.training.fitting import fit
from murmuration.training.head_only import with_features

TAUS = tuple(round(0.1 * step, 1) for step in range(21))  # searched powers of the lengths of rows
HEAD = "head."


@dataclass(frozen=True)
class Transfer:
    """Settings of covariance transfer: which classes lend, to how many, up to how many examples.

    A class of a few examples has a usable mean and no usable covariance. If features of all classes vary alike, those
    of common classes can stand in (Yin et al. 2019; Yang et al. 2021). With residuals R_h (n_h, D) of common class h
    around its mean, R_h' g / sqrt(n_h - 1) with g of n_h standard normal numbers is a draw from its empirical
    covariance, which is never formed: D may be thousands.
    """

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


def retrain_heads(
    ensemble: Ensemble,
    data: Data,
    *,
    transfer: Transfer | None = None,
    likelihood: Likelihood | str | None = None,
    sampler: str = "balanced",
    epochs: int = 10,
    **settings: Any,
) -> Ensemble:
    """Train new heads on the features that each member's body computes for the training examples.

    Heads begin with random weights and are trained by cross-entropy, or by `likelihood`, on batches of the `sampler`
    (classifier re-training, cRT). With `transfer`, features of rare classes are drawn first, see `Transfer`. Further
    `settings` are those of `fit`, such as lr, batch_size and seed. The bodies stay as they are, the post-hoc steps of
    the ensemble are left out.
    """
    population = require_own_heads(ensemble)
    loss = likelihood or Categorical(len(data.classes))
    if likelihood is None and ensemble.likelihood is not None and ensemble.likelihood.takes_cosines:
        raise Misuse("heads of cosines trained by cross-entropy: give likelihood=, such as 'ldam'")
    own, trained = {name: tensor.clone() for name, tensor in population.own.items()}, None
    for index in range(ensemble.members):
        network = ensemble.member(index)
        place = next(network.parameters()).device
        train, val, test = (with_features(network, split, place) for split in (data.train, data.val, data.test))
        features = replace(data, train=train, val=val, test=test)
        if transfer is not None:
            x, y = transfer_covariance(features.train.prepared, features.train.y, transfer, settings.get("seed", 0))
            features = replace(features, train=Split(None, y, x))
        more = {"first_member": index, "sampler": sampler, "epochs": epochs, "posthoc": None, **settings}
        trained = fit(new_head(network), features, recipe="single", likelihood=loss, progress=False, **more)
        for name, tensor in trained.groups[0].population.own.items():
            own[f"{HEAD}{name}"][index] = tensor[0]
    assert trained is not None
    entries = {**ensemble.manifest.entries, "heads": {"sampler": sampler, "epochs": epochs}}
    manifest = replace(ensemble.manifest, likelihood=trained.manifest.likelihood, entries=entries)
    changed = replace(ensemble, likelihood=trained.likelihood, manifest=manifest)
    return with_members(changed, replace(population, own=own))


def normalise_heads(ensemble: Ensemble, data: Data, tau: float | None = None) -> Ensemble:
    """Divide the row w of every class in the last layer, and its bias, by |w|^tau.

    Rows of common classes are longer after plain training; tau = 1 makes all equally long, tau = 0 changes nothing. The
    published form leaves the bias out.

    Args:
        ensemble: Ensemble whose members have their own heads.
        data: Data whose validation examples choose `tau`.
        tau: The power; by default that of least balanced error on the validation examples.

    Returns:
        The ensemble with the changed heads.

    Raises:
        Misuse: If the heads are not single dense layers of their own.
    """
    population = require_own_heads(ensemble)
    weight = population.own.get(f"{HEAD}weight")
    if weight is None or weight.dim() != 3:
        raise Misuse("the head is not one dense layer: expected a network that ends in nn.Linear as its part head")
    lengths = weight.flatten(2).norm(dim=2).clamp_min(torch.finfo(weight.dtype).tiny)  # (M, K)
    if tau is None:
        pred, y = ensemble.predict(data.val, calibrated=False), data.val.y

        def error(power: float) -> float:
            scaled = pred.outputs / lengths.cpu()[:, None] ** power  # outputs are linear in the rows and the bias
            return balanced_mean((replace(pred, outputs=scaled).predicted != y).double(), y)

        tau = min(TAUS, key=error)
    scale = lengths ** -float(tau)
    weights = {name: population.own[name] for name in (f"{HEAD}weight", f"{HEAD}bias") if name in population.own}
    scaled = {name: tensor * scale.view(*scale.shape, *[1] * (tensor.dim() - 2)) for name, tensor in weights.items()}
    entries = {**ensemble.manifest.entries, "heads": {"tau": float(tau)}}
    changed = replace(ensemble, manifest=replace(ensemble.manifest, entries=entries))
    return with_members(changed, replace(population, own={**population.own, **scaled}))


def new_head(network: nn.Module) -> Callable[[], nn.Module]:
    """Return a function that draws a whole network and returns its head, as a frozen backbone is given one."""
    return lambda: freshly_initialised(network).get_submodule("head")


def with_members(ensemble: Ensemble, population: Population) -> Ensemble:
    """Return the ensemble with other weights, and without the post-hoc steps that were fitted to the old ones."""
    return replace(ensemble, groups=(replace(ensemble.groups[0], population=population),), posthoc=None)


def require_own_heads(ensemble: Ensemble) -> Population:
    """Return the population of an ensemble whose members have heads of their own with point estimates."""
    if len(ensemble.groups) != 1:
        raise Misuse(f"members of {len(ensemble.groups)} architectures: expected those of one training run")
    group = ensemble.groups[0]
    Structure(group.module).require_parts()
    heads = {f"{HEAD}{name}" for name, _ in group.module.get_submodule("head").named_parameters()}
    if not ensemble.recipe.weights.point_estimates or not heads <= set(group.population.own):
        expected = "members with heads of their own and point estimates, such as deep-ensemble or last-layer-ensemble"
        raise Misuse(f"recipe {ensemble.recipe.name}: expected {expected}")
    return group.population
