"""How tensors move along their gradients: what does not change from step to step, and each kind at its own pace."""

from dataclasses import dataclass, field, replace

from torch import Tensor

from murmuration.coupling import Coupling
from murmuration.dynamics import Ivon, Moments, Optimiser
from murmuration.dynamics.optimisers import shrink
from murmuration.likelihoods import Likelihood
from murmuration.population import Named
from murmuration.sharing import is_factor
from murmuration.weights import NetworkWeights
from murmuration.weights.elbo import ELBO
from murmuration.weights.gaussian import STD_PARAM, distribution_names


@dataclass(frozen=True)
class Factors:
    """How factors of shared kernels move, beside other weights."""

    pace: float = 1.0  # of their learning rate
    decay: bool = False  # whether weight decay acts on them


@dataclass(frozen=True)
class Method:
    """What does not change from step to step."""

    likelihood: Likelihood
    weights: NetworkWeights
    coupling: Coupling | None
    optimiser: Optimiser
    gamma: float = 1.0  # shared gradients are gamma / M times their sum over members
    factors: Factors = field(default_factory=lambda: Factors())
    bound: ELBO = field(default_factory=ELBO)
    seed: int = 0
    first_member: int = 0
    ivon: Ivon | None = None  # what moves distributions, if it is not the optimiser


def update(method: Method, tensors: Named, gradients: list[Tensor], moments: Moments, *, lr: float, taken: int) -> None:
    """Move tensors in place along their gradients, each kind at its own pace."""
    slopes = dict(zip(tensors, gradients, strict=True))
    for names, optimiser, pace in paces(method, tensors):
        chosen, along = [tensors[name] for name in names], [slopes[name] for name in names]
        kinds = [[kind[name] for name in names if name in kind] for kind in moments.values()]
        optimiser.update(chosen, along, [kind for kind in kinds if kind], pace * lr, taken)
        if method.optimiser.l1:
            kernels = [tensors[name] for name in names if name in method.weights.spec.kernels]
            shrink(kernels, pace * lr * method.optimiser.l1)


def moments_of(method: Method, tensors: Named) -> Moments:
    """The moments of tensors that have not moved yet."""
    found: Moments = {}
    for names, optimiser, _ in paces(method, tensors):
        for kind, named in optimiser.moments({name: tensors[name] for name in names}).items():
            found.setdefault(kind, {}).update(named)
    return found


def paces(method: Method, own: Named) -> list[tuple[dict[str, None], Optimiser | Ivon, float]]:
    """Names of tensors that move alike, by which optimiser, at what part of the learning rate."""
    found: list[tuple[dict[str, None], Optimiser | Ivon, float]] = []
    if method.ivon is not None:
        means = distribution_names(own)
        pairs = dict.fromkeys([*means, *(name + STD_PARAM for name in means)])
        found.append((pairs, method.ivon, method.ivon.pace))
        own = {name: tensor for name, tensor in own.items() if name not in pairs}
    factors = dict.fromkeys(name for name in own if is_factor(name))
    spreads = dict.fromkeys(name for name in own if name.endswith(STD_PARAM))
    others = dict.fromkeys(name for name in own if name not in factors and name not in spreads)
    calm = replace(method.optimiser, weight_decay=0.0)
    ways = [(others, method.optimiser, 1.0), (spreads, calm, 1.0)]
    ways.append((factors, method.optimiser if method.factors.decay else calm, method.factors.pace))
    alike: dict[tuple[Optimiser, float], dict[str, None]] = {}
    for names, optimiser, pace in ways:
        alike.setdefault((optimiser, pace), {}).update(names)
    return found + [(names, *way) for way, names in alike.items() if names]


def decay_apart(method: Method, own: Named) -> tuple[Method, dict[str, float]]:
    """The method without the decay that acts through gradients, and which tensors feel how much of it."""
    if method.optimiser.decay != "coupled" or not method.optimiser.weight_decay:
        return method, {}
    ways = [(names, way) for names, way, _ in paces(method, own) if isinstance(way, Optimiser)]
    decays = {name: way.weight_decay for names, way in ways for name in names}
    return replace(method, optimiser=replace(method.optimiser, weight_decay=0.0)), decays
