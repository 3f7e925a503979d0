"""What became of weights that are distributions: how far the data took each of them from its prior.

A weight whose own KL(q || p) is below 0.01 nats is called collapsed. Under a Gaussian prior that is a mean within 0.14
prior standard deviations of the prior's, or a standard deviation within 10 % of it: draws from q and p look alike.
In wide networks of independent Gaussian weights most can end there (Trippe and Turner 2018, Coker et al. 2022): if the
predictions have too, the network has learned nothing, and otherwise it uses but a part of its weights.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from murmuration.core.population import Named
from murmuration.core.recipe import Recipe
from murmuration.core.weights import Gaussian
from murmuration.core.weights.gaussian import STD_PARAM, softplus_inverse
from murmuration.core.weights.priors import GaussianPrior, WeightPosterior, masked_cost
from murmuration.likelihoods.mixtures import jensen_shannon_distance
from murmuration.prediction.ensemble import Ensemble
from murmuration.system.devices import CPU

COLLAPSED = 0.01  # nats a weight
HARDLY, MOST = 0.005, 0.5  # a share of collapsed weights from which there is something to say
SURE = 100.0  # a median signal-to-noise ratio from which draws hardly differ: noise of one per cent
SNR_EDGES = np.linspace(-3, 3, 25)  # of log10 of |mean| / std; values beyond are counted at the ends
INPUTS = 500  # on which predictions are held against the prior's, at most
TRIES = 16  # draws where a KL has no closed form
NEARLY_POINTS = (
    f"Half of the weights are more than {SURE:.0f} times their standard deviation: draws will hardly differ, and "
    "epistemic uncertainty will be near that of one plain network."
)


@dataclass(frozen=True)
class Layer:
    """The weights of one tensor; of several members together, but for its KL."""

    name: str
    weights: int
    kl: float  # nats, mean over members
    collapsed: float | None  # share of its weights; None where no weight can equal its prior
    median_snr: float  # of |mean| / std
    snr_counts: tuple[int, ...]  # (24,) weights between the edges of log10 SNR


@dataclass(frozen=True)
class Diagnosis:
    """What became of the weights of an ensemble that are distributions."""

    prior: str
    beta: float  # what the prior's cost was weighted with
    members: int
    draws: int  # of each member when it predicts
    examples: int  # trained on
    layers: tuple[Layer, ...]
    median_snr: float
    distance: float | None = None  # Jensen-Shannon, between mean predictions and those of the prior; 0 to 1
    noise: float | None = None  # the same between two halves of the prior's draws
    untold: tuple[str, ...] = ()  # what could not be found out, and why

    @property
    def weights(self) -> int:
        return sum(layer.weights for layer in self.layers)

    @property
    def kl(self) -> float:
        """KL(q || p) of a member, in nats."""
        return sum(layer.kl for layer in self.layers)

    @property
    def collapsed(self) -> float | None:
        """The share of all weights that have collapsed to the prior."""
        shares = [layer.collapsed for layer in self.layers if layer.collapsed is not None]
        if len(shares) < len(self.layers):
            return None
        return sum(layer.weights * share for layer, share in zip(self.layers, shares, strict=True)) / self.weights

    @property
    def finding(self) -> str:
        """What it amounts to, in plain words."""
        sentences, share = [], self.collapsed
        most = share is not None and share >= MOST
        if share is not None:
            part = "hardly any" if share < HARDLY else f"{100 * share:.0f} %"
            why = ": the data taught them nothing" if most else ""
            sentences = [f"{part.capitalize()} of the weights have collapsed to the prior{why}."]
        if self.distance is not None and self.noise is not None and self.distance <= self.noise:
            near = "The predictions are no further from the prior's than those are from each other"
            advice = f"Train longer, or with a beta below {self.beta:g}."
            sentences.append(f"{near}: the network has learned next to nothing. {advice}")
        elif most:
            advice = f"A beta below {self.beta:g} would give the data more say; a smaller network might do as well."
            sentences.append(f"The predictions come from the others. {advice}")
        return " ".join([*sentences, *([NEARLY_POINTS] if self.median_snr > SURE else [])])

    def to_json(self) -> dict[str, Any]:
        derived = {name: getattr(self, name) for name in ("weights", "kl", "collapsed", "finding")}
        return {**asdict(self), **derived, "collapsed_below": COLLAPSED, "snr_edges": SNR_EDGES.tolist()}


def diagnose(ensemble: Ensemble, x: Tensor | None = None) -> Diagnosis | None:
    """Return the diagnosis of an ensemble's weights, or None if they are not Gaussian.

    With inputs x (N, ...) the predictions for the first 500 are held against those of weights drawn from the prior,
    where there are classes; batch statistics stay as they were learned.
    """
    layers = _weights(ensemble)
    if not layers:
        return None
    weights, prior = ensemble.recipe.weights, layers[0].posterior.prior
    beta = 1.0 if ensemble.recipe.dynamics.moves_std else weights.objective(1, 1, 1).beta
    snr = torch.cat([layer.snr for layer in layers])
    distances, untold = _distances(ensemble, layers, x)
    if prior.monte_carlo:
        reason = "a Gaussian cannot equal a mixture, so each costs something whatever it is"
        untold.append(f"No weight counts as collapsed: {reason}.")
    about = str(prior), beta, ensemble.members, weights.draws, _examples(ensemble)
    return Diagnosis(*about, tuple(layer.layer() for layer in layers), float(snr.median()), *distances, tuple(untold))


@dataclass(frozen=True, eq=False)
class _Weights:
    """A tensor of distributions, (m, ...) each; m is 1 where members share it."""

    posterior: WeightPosterior

    @property
    def kept(self) -> Tensor:
        """(m, ...) bool: which are not pruned."""
        mean, mask = self.posterior.weights.mean, self.posterior.weights.kept
        return torch.ones_like(mean, dtype=torch.bool) if mask is None else mask

    @property
    def snr(self) -> Tensor:
        """|mean| / std (n,) of all that are kept."""
        return (self.posterior.weights.mean.abs() / self.posterior.std)[self.kept].double()

    def prior_std(self) -> Tensor | None:
        """Return the standard deviation (m, ...) of a Gaussian prior; None where the prior is another."""
        mean, std = self.posterior.weights.mean, self.posterior.prior.std(self.posterior.weights, self.posterior.std)
        return None if std is None else torch.as_tensor(std, dtype=mean.dtype).expand_as(mean)

    def layer(self) -> Layer:
        stream, posterior, snr = torch.Generator().manual_seed(0), self.posterior, self.snr

        def draw(like: Tensor) -> Tensor:
            return torch.randn(like.shape, generator=stream, dtype=like.dtype)

        q, times = (posterior.prior, posterior.weights, posterior.std), TRIES if posterior.prior.monte_carlo else 1
        costs = torch.stack([masked_cost(*q, draw) for _ in range(times)]).mean(0).double()  # KL(q || p) of each weight
        share = float((costs[self.kept] < COLLAPSED).double().mean()) if self.kept.any() else 0.0
        logs = snr.clamp_min(1e-30).log10().clamp(SNR_EDGES[0], SNR_EDGES[-1]).numpy()
        counts, median = np.histogram(logs, SNR_EDGES)[0].tolist(), float(snr.median()) if len(snr) else math.nan
        kl, collapsed = float(costs.sum()) / len(costs), None if posterior.prior.monte_carlo else share
        return Layer(posterior.name, int(self.kept.sum()), kl, collapsed, median, tuple(counts))


def _weights(ensemble: Ensemble) -> list[_Weights]:
    """Return the tensors of an ensemble that are distributions, with the prior that training used."""
    if not ensemble.groups:
        return []
    population, family = ensemble.groups[0].population, ensemble.family
    posteriors, dynamics = family.family.posteriors(population, family.spec), ensemble.recipe.dynamics
    if dynamics.moves_std:  # its weight decay is a prior
        std = dynamics.prepare(_examples(ensemble)).prior_std()
        assert std is not None
        posteriors = [replace(posterior, prior=GaussianPrior(float(f"{std:.6g}"))) for posterior in posteriors]
    return [_Weights(posterior) for posterior in posteriors]


def _examples(ensemble: Ensemble) -> int:
    """Return how many examples the ensemble was trained on."""
    return int(ensemble.manifest.data["examples"]["train"])


def _distances(
    ensemble: Ensemble, layers: list[_Weights], x: Tensor | None
) -> tuple[tuple[float | None, float | None], list[str]]:
    """Return the distance between posterior and prior predictions, that between prior draws, and reasons if missing."""
    if x is None:
        return (None, None), []
    stds = {layer.posterior.name: std for layer in layers if (std := layer.prior_std()) is not None}
    if len(stds) < len(layers):
        reason = f"the prior {layers[0].posterior.prior.word} is not a Gaussian to draw weights from"
        return (None, None), [f"Predictions are not compared with the prior's: {reason}."]
    after = ensemble.predict(x[:INPUTS], calibrated=False, prepared=True)
    if after.task != "classification":
        return (None, None), ["Predictions are not compared with the prior's: that is done for classes only."]
    before = from_prior(ensemble, layers, stds).predict(x[:INPUTS], calibrated=False, prepared=True)
    halves = [before.select(range(first, len(before.outputs), 2)) for first in range(min(2, len(before.outputs)))]
    pairs = ((after, before), (halves[0], halves[-1]))
    distance, noise = (float(jensen_shannon_distance(a.mean, b.mean).mean()) for a, b in pairs)
    return (distance, noise), []


def from_prior(ensemble: Ensemble, layers: list[_Weights], stds: Named) -> Ensemble:
    """Return the ensemble before training: the same network with the distributions of the prior."""
    group = ensemble.to(CPU).groups[0]
    own, shared = dict(group.population.own), dict(group.population.shared)
    for layer in layers:
        name, (place, keep) = layer.posterior.name, (own, slice(None)) if layer.posterior.own else (shared, 0)
        place[name] = (layer.posterior.weights.centre * layer.kept)[keep].to(layer.posterior.std).clone()
        place[name + STD_PARAM] = softplus_inverse(stds[name])[keep].clone()
    believed = replace(group.population, own=own, shared=shared)
    recipe = Recipe("prior", ensemble.recipe.sharing, Gaussian(draws=ensemble.recipe.weights.draws))
    return replace(ensemble, groups=(replace(group, population=believed),), recipe=recipe)
