"""Gaussian weights N(mean, std^2), learned by gradient (Bayes by Backprop, Blundell et al. 2015).

The mean is stored under the weight's own name, the parameter of its standard deviation beside it as `K:std_param`:

| std_param | stored | standard deviation |
|---|---|---|
| `rho` | one per weight | softplus(rho) |
| `std` | one per weight | itself, for dynamics that keep it positive |
| `alpha` | log alpha, one per weight | sqrt(alpha) abs(mean): Gaussian dropout with p / (1 - p) = alpha |
| `alpha-channel` | log alpha, one per output channel | the same |
| `alpha-layer` | log alpha, one per kernel | the same; all its weights then have one signal-to-noise ratio |

With alpha a weight of mean zero has almost no variance, and its gradient vanishes.

A training pass is noisy in one of three ways:

| estimator | noise |
|---|---|
| `draw` | weights are drawn once per pass, the same for all examples |
| `local` | outputs of linear operators are drawn: gradients of less variance (Kingma et al. 2015) |
| `flipout` | one draw of weights, with random signs for every example (Wen et al. 2018) |

For dense layers the outputs of one example have the same distribution under all three. For convolutions `local` has the
right mean and variance at every position and no covariance between positions, though one kernel acts on all: its passes
are not draws of a function. Predictions therefore always draw weights, and hold a draw for all inputs.

With `init_from` the means begin at trained weights, which are the centres of the priors too, and the standard
deviations at `init_std_ratio` times their absolute values (MOPED, Krishnan et al. 2020).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

import murmuration.core.weights.priors as priors
from murmuration.core.population import Named, Population, is_auxiliary, kept_mask, rows_of
from murmuration.core.weights.elbo import ELBO, REDUCTIONS, WEIGHTINGS
from murmuration.core.weights.family import INTO, OUT, ForwardSpec, MovesStd, Realised, Rows, Streams, WeightFamily
from murmuration.core.weights.kernel_trace import Kernel, KernelTrace, bias_of
from murmuration.system.errors import Misuse, unknown
from murmuration.system.streams import Noise, many_normals, normals

STD_PARAM, VARIANCE, DELTA, CENTRE = ":std_param", ":variance", ":delta", ":centre"  # auxiliary tensors of a weight
ESTIMATORS = ("local", "draw", "flipout")
STD_PARAMS = ("rho", "std", "alpha", "alpha-channel", "alpha-layer")
CHOICES: dict[str, Sequence[str]] = {"estimator": ESTIMATORS, "std_param": STD_PARAMS, "bias": ("gaussian", "point")}
CHOICES |= {"weighting": WEIGHTINGS, "reduction": REDUCTIONS}
LOG_ALPHA = 8.0  # bound of abs(log alpha)
TINY = 1e-20  # keeps the logarithm of a standard deviation of zero finite
LEAST_MEAN = 1e-8  # alpha acts on at least this: a standard deviation of exactly zero would have an infinite KL


@dataclass(frozen=True)
class Gaussian(WeightFamily):
    """Independent Gaussian weights.

    Attributes:
        estimator: Noise of training passes: "local", "draw" or "flipout"; see the module docstring.
        where: Tensors that are distributions: "all", "last", "factors", or patterns of names separated by ";".
        bias: Whether biases are distributions too: "gaussian" or "point".
        std_param: Stored parameter of standard deviations: "rho", "std", "alpha", "alpha-channel" or "alpha-layer".
        init_std_ratio: Initial standard deviation, relative to that of a tensor's initial values.
        init_from: True (the network passed to `fit`) or a run, whose weights means and priors start at.
        prior: Prior of the weights.
        beta: Temperature: the weight of the KL. 1 is Bayes, which underfits small data sets.
        weighting: Distribution of the KL over the batches of an epoch, "uniform" or "blundell".
        kl_warmup: Fraction of the epochs over which beta grows from 0.
        samples: Passes per step.
        reduction: How several passes are combined, "elbo" or "log-mean-exp".
        draws: Predictions per member.
    """

    stochastic = True
    point_estimates = False
    estimator: str = "local"
    where: str = "all"
    bias: str = "gaussian"
    std_param: str = "rho"
    init_std_ratio: float = 0.1
    init_from: bool | str = False
    prior: priors.Prior = field(default=priors.HePrior())
    beta: float = 0.01
    weighting: str = "uniform"
    kl_warmup: float = 0.25
    samples: int = 1
    reduction: str = "elbo"
    draws: int = 30

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise unknown(name, getattr(self, name), choices)
        if not 0 < self.init_std_ratio < math.inf or not 0 <= self.beta < math.inf or not 0 <= self.kl_warmup <= 1:
            raise Misuse(
                f"init_std_ratio={self.init_std_ratio}, beta={self.beta}, kl_warmup={self.kl_warmup}: need"
                " init_std_ratio above 0, beta not negative, kl_warmup from 0 to 1"
            )
        if self.samples < 1 or self.draws < 1:
            raise Misuse(f"samples={self.samples}, draws={self.draws}: need at least 1 each")
        if not isinstance(self.prior, priors.Prior):
            raise Misuse(f"prior={self.prior!r}: need a Prior, such as HePrior() or GaussianPrior(0.1)")
        if type(self.prior).cost is priors.Prior.cost:
            name = type(self.prior).__name__
            raise Misuse(f"prior={name}: it has no cost; define {name}.cost(weights, std, draw), the KL of each weight")

    def check_dynamics(self, dynamics: MovesStd) -> None:
        """Refuse standard deviations that nothing keeps positive, and a prior that would count twice or not at all."""
        if not dynamics.moves_std:
            if self.std_param == "std":
                raise Misuse("std_param=std with a dynamics that may make it negative: write std_param=rho, or ivon")
            return
        if self.std_param != "std" or self.beta or self.where == "factors":
            raise Misuse(
                f"weights gaussian with std_param={self.std_param}, beta={self.beta:g}, where={self.where} and a"
                " dynamics that moves standard deviations, whose decay is the prior, around 0: write weights"
                " gaussian:estimator=draw,std_param=std,beta=0"
            )
        if self.init_std_ratio != Gaussian.init_std_ratio or self.init_from:
            raise Misuse(
                f"init_std_ratio={self.init_std_ratio:g}, init_from={self.init_from} with a dynamics that sets the"
                " first standard deviations, around fresh weights: leave init_std_ratio and init_from out"
            )

    def objective(self, examples: int, steps_per_epoch: int, epochs: int) -> ELBO:
        settings = (self.beta, self.weighting, self.kl_warmup, self.samples, self.reduction)
        return ELBO(examples, steps_per_epoch, epochs, *settings)

    def without_warmup(self) -> "Gaussian":
        return replace(self, kl_warmup=0.0)

    def check_trace(self, trace: KernelTrace) -> None:
        """Refuse a network of which some weights would stay point estimates, or whose last layer is not known.

        Patterns of names are as complete as they are; drawn weights do not depend on the operators they are used in.
        """
        if self.where == "last":
            made_by = ", ".join(trace.final) or "no layer that could be found"
            unknown_layer = not set(trace.final) or not set(trace.final) <= set(trace.names)
            if unknown_layer or (len(trace.final) > 1 and not trace.side_by_side):
                name = (trace.final or ("head.weight",))[0].rpartition(".")[0]
                raise Misuse(
                    f"where=last: the outputs are made by {made_by}, so the last layer is not known; name its"
                    f" parameters, such as where={name}.*"
                )
        if self.estimator == "draw":
            return
        if self.where == "all":
            trace.require_supported("draw whole weights with weights gaussian:estimator=draw")
        if trace.recomputed:
            names = [name for kernel in trace.kernels for name in (kernel.name, *kernel.biases) if kernel.trained]
            trace.require_once(self.matching(names, trace), "its noise")

    @property
    def _patterns(self) -> list[str]:
        """The patterns of names, if that is what `where` is."""
        words = ("all", "last", "factors")
        return [] if self.where in words else [pattern.strip() for pattern in self.where.split(";")]

    def matching(self, names: Sequence[str], trace: KernelTrace) -> list[str]:
        """Return the names of these tensors that `where` and `bias` make distributions."""
        biases = {bias for kernel in trace.kernels for bias in kernel.biases} | set(trace.biases)
        kernels = {*trace.names, *(name for name, _ in trace.unsupported)}  # the latter where weights are drawn
        biases |= {bias_of(name) for name, _ in trace.unsupported} & set(names)
        last = {name for k in trace.kernels if k.name in trace.last for name in (k.name, *k.biases)}

        def wanted(name: str) -> bool:
            if self.where == "factors":
                return name.endswith((INTO, OUT))
            if name in biases and self.bias == "point":
                return False
            if self.where == "last":
                return name in last
            patterns = self._patterns
            return any(fnmatchcase(name, p) for p in patterns) if patterns else name in kernels or name in biases

        return [name for name in names if wanted(name)]

    def init(
        self, population: Population, trace: KernelTrace, streams: Streams, initial_std: float | None = None
    ) -> Population:
        """Return the population with a standard deviation beside every tensor that is to be a distribution.

        With `init_from` the trained weights are stored as the centres of the priors, among the buffers. A pattern
        without a match raises Misuse.
        """
        every, members = [*population.own, *population.shared], population.members
        names = self.matching(every, trace)
        idle = [pattern for pattern in self._patterns if not any(fnmatchcase(name, pattern) for name in every)]
        for pattern in idle or ([] if names or self.where == "factors" else [self.where]):  # one member has no factors
            raise Misuse(f"where={pattern} matches no tensor of the net: write all, last, factors or patterns of names")
        kernels = {kernel.name: kernel for kernel in trace.kernels}
        if initial_std is not None and any(is_auxiliary(name) for name in names):
            raise Misuse(f"where={self.where} makes factors distributions, and ivon would pull them to 0: write all")

        def first(name: str, mean: Tensor) -> Tensor:
            std = self._first_std(name, mean) if initial_std is None else torch.full_like(mean, initial_std)
            return std_to_param(self.std_param, std, mean, kernels.get(name))

        own = {name: population.own[name] for name in names if name in population.own}
        shared = {name: population.shared[name] for name in names if name in population.shared}
        own_std = {name + STD_PARAM: torch.stack([first(name, row) for row in mean]) for name, mean in own.items()}
        shared_std = {name + STD_PARAM: first(name, mean) for name, mean in shared.items()}
        trained = {**own, **{name: mean.expand(members, *mean.shape) for name, mean in shared.items()}}
        centres = {name + CENTRE: mean.clone() for name, mean in trained.items() if self._begins_trained(name)}
        own, shared = {**population.own, **own_std}, {**population.shared, **shared_std}
        return replace(population, own=own, shared=shared, buffers={**population.buffers, **centres})

    def _begins_trained(self, name: str) -> bool:
        """Return whether a tensor begins at trained weights; rank-one factors never do."""
        return bool(self.init_from) and not is_auxiliary(name)

    def _first_std(self, name: str, mean: Tensor) -> Tensor:
        """Return initial standard deviations; a constant tensor, such as a bias of zeros, is taken to have std 0.1."""
        if self._begins_trained(name):
            return self.init_std_ratio * mean.abs()
        scale = mean.std() if mean.numel() > 1 else mean.new_zeros(())
        if not bool(scale > 0):
            scale = torch.as_tensor(0.1, dtype=mean.dtype)
        return torch.full_like(mean, self.init_std_ratio) * scale

    def realise(
        self, spec: ForwardSpec, own: Named, shared: Named, noise: Sequence[Noise], *, buffers: Named, training: bool
    ) -> Realised:
        """Draw weights, or in training under `local` and `flipout` return means with `K:variance` or `K:delta`.

        A bias under flipout gets independent noise for every example, as under local reparameterisation. Pruned
        weights, whose means are zero already, have no variance.
        """
        by_operators = training and self.estimator != "draw"
        kernels = spec.kernels.values() if by_operators else ()
        noisy = {n for kernel in kernels if kernel.form == "plain" for n in (kernel.name, *kernel.biases)}
        rows: Rows = {1: self.std_row(own, 1), 0: self.std_row(shared, 0)}
        weights = {
            axes: {name: tensor for name, tensor in named.items() if not name.endswith(STD_PARAM)}
            for axes, named in ((1, own), (0, shared))
        }
        means, stds = {}, {}  # of tensors that are drawn here
        for named, axes in ((own, 1), (shared, 0)):
            row, names = rows[axes], distribution_names(named)
            if row is None:
                continue
            local = {n for n in names if n in noisy and (self.estimator == "local" or named[n].dim() - axes == 1)}
            likes = [named[name] for name in names]
            parts = priors.split_flat(row, likes, axes) if len(local) < len(names) else likes
            squares = priors.split_flat(row.square(), likes, axes) if local else likes
            for name, std, variance in zip(names, parts, squares, strict=True):
                mask = kept_mask(name, buffers, own=bool(axes))
                if name in local:
                    weights[axes][name + VARIANCE] = variance if mask is None else variance * mask
                else:
                    means[name] = named[name] if axes else named[name].expand(len(noise), *named[name].shape)
                    stds[name] = std if mask is None else std * mask
        for name, eps in zip(means, many_normals(noise, list(means.values())), strict=True):
            if name in noisy:
                weights[1][name + DELTA] = stds[name] * eps
            else:
                weights[1][name] = torch.addcmul(means[name], stds[name], eps)
                weights[0].pop(name, None)
        return Realised(weights[1], weights[0], spec, rows)

    def complexity(
        self, spec: ForwardSpec, own: Named, shared: Named, buffers: Named, noise: Sequence[Noise], stds: Rows | None
    ) -> Tensor:
        """Compute KL(q || p) of each of m members (m,), in nats; shared tensors cost each of them the same.

        A KL that is estimated by draws uses each member's own stream, also for shared tensors, so that it does not
        depend on how members are grouped.
        """
        total = next(iter({**own, **shared}.values())).new_zeros(len(noise))
        for named, axes in ((own, 1), (shared, 0)):
            row = self.std_row(named, axes) if stds is None else stds[axes]
            if row is None:
                continue
            tensors = [_weight_tensor(name, named, buffers, spec, axes) for name in distribution_names(named)]
            draw = partial(normals, noise) if axes else lambda t: normals(noise, t.expand(len(noise), *t.shape))
            total = total + priors.total_cost(self.prior, tensors, row, draw, axes=axes)
        return total

    def for_draws(self, population: Population) -> "tuple[Gaussian, Population]":
        """Return the same distributions with their standard deviations stored directly."""
        own, shared = (
            {**named, **{name + STD_PARAM: self._std(name, named) for name in distribution_names(named)}}
            for named in (population.own, population.shared)
        )
        return replace(self, std_param="std"), replace(population, own=own, shared=shared)

    def std(self, name: str, named: Named) -> Tensor | None:
        return self._std(name, named) if name + STD_PARAM in named else None

    def _std(self, name: str, named: Named) -> Tensor:
        return std_from(self.std_param, named[name + STD_PARAM], named[name])

    def std_row(self, named: Named, axes: int) -> Tensor | None:
        """Return the standard deviations of all distributions side by side, (P,) or with a leading member axis (m, P).

        Where each weight has a parameter of its own, all are computed at once: a small tensor takes as long as a large.
        """
        names = distribution_names(named)
        if not names:
            return None
        if self.std_param in ("rho", "std"):
            row = priors.concat_flat([named[name + STD_PARAM] for name in names], axes)
            return std_from(self.std_param, row, row)
        return priors.concat_flat([self._std(name, named) for name in names], axes)

    def posteriors(self, population: Population, spec: ForwardSpec) -> list[priors.WeightPosterior]:
        """Return the distributions of a population, on the CPU, with a leading member axis of length M or 1."""
        population = population.map(lambda tensor: tensor.detach().cpu())
        shared = {name: tensor[None] for name, tensor in population.shared.items()}
        first = rows_of(population.buffers, slice(1))
        return [
            priors.WeightPosterior(
                name, own, _weight_tensor(name, named, buffers, spec, axes=1), self._std(name, named), self.prior
            )
            for own, named, buffers in ((True, population.own, population.buffers), (False, shared, first))
            for name in distribution_names(named)
        ]


def distribution_names(named: Named) -> list[str]:
    """Return names of the tensors that have a standard deviation beside them, sorted: the order survives storage.

    >>> one = torch.ones(1)
    >>> distribution_names({"b": one, "b:std_param": one, "a": one, "a:std_param": one, "c": one})
    ['a', 'b']
    """
    return sorted(key.removesuffix(STD_PARAM) for key in named if key.endswith(STD_PARAM))


def _weight_tensor(name: str, named: Named, buffers: Named, spec: ForwardSpec, axes: int) -> priors.WeightTensor:
    centre = buffers.get(name + CENTRE, 1.0 if name.endswith((INTO, OUT)) else 0.0)  # fresh factors lie around 1
    centre = centre if axes or isinstance(centre, float) else centre[0]
    mask = kept_mask(name, buffers, own=bool(axes))
    return priors.WeightTensor(named[name], centre, spec.kernels.get(name), mask, axes)


def softplus_inverse(values: Tensor) -> Tensor:
    """Return the rho (...) whose softplus these positive values (...) are, also where exp would overflow.

    >>> F.softplus(softplus_inverse(torch.tensor([0.05, 1.0, 1000.0])))
    tensor([5.0000e-02, 1.0000e+00, 1.0000e+03])
    """
    return torch.where(values > 20, values, (torch.expm1(values.clamp(max=20)) + TINY).log())


def stored_shape(std_param: str, shape: tuple[int, ...], kernel: Kernel | None = None) -> tuple[int, ...]:
    """Return the shape of the parameter stored for the standard deviations of a mean of this shape.

    The output channels of a transposed kernel (inputs, outputs / groups, ...) are on its second axis, per group.

    >>> stored_shape("alpha-channel", (16, 3, 5, 5))
    (16, 1, 1, 1)
    """
    if std_param in ("rho", "std", "alpha") or not shape:
        return shape
    if std_param == "alpha-layer":
        return (1,) * len(shape)
    if kernel is not None and kernel.transposed:
        return (kernel.groups, shape[1], *(1,) * (len(shape) - 2))
    return (shape[0], *(1,) * (len(shape) - 1))


def std_from(std_param: str, stored: Tensor, mean: Tensor) -> Tensor:
    """Return standard deviations like the mean (...), from the stored parameter."""
    if std_param == "rho":
        return F.softplus(stored)
    if std_param == "std":
        return stored
    for axis, (stored_size, size) in enumerate(zip(stored.shape, mean.shape, strict=True)):
        if stored_size not in (1, size):  # groups of a transposed kernel
            stored = stored.repeat_interleave(size // stored_size, axis)
    return (0.5 * stored.clamp(-LOG_ALPHA, LOG_ALPHA)).exp() * mean.abs().clamp_min(LEAST_MEAN)


def std_to_param(std_param: str, std: Tensor, mean: Tensor, kernel: Kernel | None = None) -> Tensor:
    """Return the stored parameter for standard deviations (...) of a mean (...): their geometric mean if shared."""
    if std_param == "rho":
        return softplus_inverse(std)
    if std_param == "std":
        return std
    log_alpha = 2 * ((std + TINY).log() - mean.abs().clamp_min(LEAST_MEAN).log())
    log_alpha = log_alpha.clamp(-LOG_ALPHA, LOG_ALPHA)  # before averaging: one weight of zero must not decide the mean
    for axis, stored_size in enumerate(stored_shape(std_param, tuple(mean.shape), kernel)):
        log_alpha = log_alpha.unflatten(axis, (stored_size, -1)).mean(axis + 1)
    return log_alpha
