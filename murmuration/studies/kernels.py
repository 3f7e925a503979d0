"""Diagnosis of members that share weights: whether they learn independently or together, from their tangent kernels.

With w the parameters that all members share and train, the tangent kernel of members a and b is <df_a(x)/dw,
df_b(x)/dw>, here summed over inputs and averaged over outputs: how far a step of b along its own gradient moves a. T_d
is its mean over members, T_o its mean over pairs of different ones; S_d and S_o are the same means of products of
outputs at the start, over several initialisations (Velikanov et al. 2022). `regime` names the regimes,
`infinite_width.py` computes the same numbers in the limit of infinitely wide layers.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from murmuration.core.engines import assemble, engine, member_outputs
from murmuration.core.recipe import Recipe
from murmuration.core.tangent_kernels import check_members, smooth_gamma, trace_ratio
from murmuration.core.weights import Structure, trace_kernels
from murmuration.core.weights.distributions import Distribution
from murmuration.data import Data, open_data
from murmuration.models.nets.source import Net
from murmuration.prediction.ensemble import Ensemble, MemberGroup
from murmuration.runs.manifest import Manifest
from murmuration.studies.infinite_width import Kernels, architecture_of, limit_kernels
from murmuration.studies.tangent_kernels import member_kernels
from murmuration.system.devices import CPU
from murmuration.system.errors import Failure, Misuse
from murmuration.system.option_text import short
from murmuration.system.records import plain_json
from murmuration.training import TrainSpec
from murmuration.training.head_only import head_only_spec, with_backbone
from murmuration.training.loading import source_again
from murmuration.training.plan import Plan, plan_from_json
from murmuration.training.resolve import resolve

RegimeName = Literal["independent", "between", "collective", "degenerate"]

IDENTICAL = 1e-6  # ratios this near 1 count as 1: members are the same function up to rounding
WEAK = 0.1  # of (M - 1) |T_o| / T_d: independent up to here
STRONG = 1.0  # of (M - 1) T_o / T_d: collective from here on
Stage = Literal["before", "after", "limit"]
INPUTS = 32
EXTRA_SEEDS = 8  # initialisations besides the one that is trained: S_o / S_d is a mean over all of them
FULL = 0.25  # M / N from which the slowest combination of members learns at a quarter of the usual speed, or less
NEAR = 1.5  # a gamma within this factor of the smooth one is right

VERDICTS = {
    "independent": "independent: a step of one member hardly changes the others; each trains like a separate network",
    "between": "between independent and collective: steps of the other members move a member {pull:.2g} times "
    "as far as its own",
    "collective": "collective: steps of the other members move a member {pull:.2g} times as far as its own",
    "degenerate": "degenerate: all members are the same function; on the same batches they stay so, on own batches "
    "only the batches distinguish them",
}
AGAINST = "between: members counteract each other; steps of the others undo {undone:.2g} of a member's own"
WITH_ADAM = (
    "with adam gamma has almost no effect, since adam normalises gradients; with sgd it scales the learning "
    "rate of shared weights"
)
BY_CONSTRUCTION = "independent by construction: members share nothing that is trained, so T_o = 0"


@dataclass(frozen=True)
class Regime:
    """A regime, and the ratios it follows from."""

    name: RegimeName
    covariance_ratio: float  # S_o / S_d, covariance of two members' initial outputs over the variance of one
    tangent_ratio: float  # T_o / T_d, tangent kernel between two members over that within one
    pull: float  # (M - 1) T_o / T_d, effect of all other members' steps on a member over that of its own
    gamma: float  # `smooth_gamma` of the tangent ratio


def regime(covariance_ratio: float, tangent_ratio: float, members: int) -> Regime:
    """Return the regime of `members` members from S_o / S_d and T_o / T_d.

    "degenerate": both ratios are 1 within 1e-6, so that members stay the same function. "collective": (M - 1) T_o >=
    T_d, the other members' steps move a member at least as far as its own. "independent": (M - 1) |T_o| <= T_d / 10; a
    single member is independent. Otherwise "between".

    The criterion uses all members and not the ratio of two: T_o / T_d = 0.1 is little for two members and much for a
    hundred, and for one distribution of factors it falls with depth.

    >>> regime(0.65, 0.35, members=10).name, regime(0.0, 0.001, members=10).name
    ('collective', 'independent')
    """
    check_members(members)
    pull = (members - 1) * tangent_ratio
    name: RegimeName = "between"
    if members > 1 and max(abs(covariance_ratio - 1), abs(tangent_ratio - 1)) <= IDENTICAL:
        name = "degenerate"
    elif pull >= STRONG:
        name = "collective"
    elif abs(pull) <= WEAK:
        name = "independent"
    return Regime(name, covariance_ratio, tangent_ratio, pull, smooth_gamma(members, tangent_ratio))


def regime_of(kernels: Kernels, members: int) -> Regime:
    """Return the regime from the traces of kernels (n, n) of one set of inputs with itself."""
    covariance_ratio = trace_ratio(kernels.covariance_same, kernels.covariance_other)
    return regime(covariance_ratio, trace_ratio(kernels.tangent_same, kernels.tangent_other), members)


def capacity_ratio(members: int, width: int) -> float:
    """Return M / N for independent members in a layer of width N.

    From 1 on some combination of members cannot learn.
    """
    check_members(members)
    return members / width


def wishart_edges(members: int, width: int) -> tuple[float, float]:
    """Return edges of the spectrum of U U' / N for U (M, N) of mean 0, variance 1 (Marchenko and Pastur 1967).

    (1 - sqrt(M/N))² and (1 + sqrt(M/N))²: the first is the learning speed of the slowest combination of members, 0 from
    M = N on. Exact as both grow; at finite sizes off by about N^(-2/3).

    >>> wishart_edges(25, 100)
    (0.25, 2.25)
    """
    root = math.sqrt(capacity_ratio(members, width))
    return max(1 - root, 0.0) ** 2, (1 + root) ** 2


def relative_mean(factors: Distribution) -> float:
    """Return |E u| / sqrt(E u²), from 0 (independent) to 1 (constant)."""
    return abs(factors.mean) / math.sqrt(factors.second_moment)


def spike_threshold(members: int, width: int) -> float:
    """Return (M N)^(-1/4), the relative mean of factors below which they act as if it were zero at this width.

    To leading order in a small mean: there the largest eigenvalue of U U' / N leaves the bulk.
    """
    check_members(members)
    return (members * width) ** -0.25


@dataclass(frozen=True, eq=False)
class KernelDiagnosis:
    """How members of one ensemble act on each other: before training, after it, or in the limit of infinite width."""

    stage: Stage
    recipe: Recipe
    inputs: int  # over which all values are means
    regime: Regime  # after training its covariance_ratio is that of the trained outputs
    correlation: float  # of two members' outputs over the inputs, mean over pairs
    own_fraction: float  # of a member's kernel: contribution of its own parameters, at equal learning rates
    alignment: NDArray[np.float64]  # (M, M) tr K_ab / sqrt(tr K_aa tr K_bb) by shared parameters
    shares: bool  # whether any trained parameter is shared
    layer: str = ""  # the last kernel
    width: int = 0  # its input channels; 0 if unknown
    initialisations: int = 1
    optimizer: str = ""  # that trained the ensemble; empty if it was trained elsewhere

    @property
    def members(self) -> int:
        return len(self.alignment)

    @property
    def capacity(self) -> float:
        """M / N, with N the input channels of the last kernel; NaN where members share nothing."""
        return capacity_ratio(self.members, self.width) if self.shares and self.width else math.nan

    @property
    def slowest(self) -> float:
        """(1 - sqrt(M/N))², the relative speed of the slowest combination of members; NaN without a capacity."""
        return wishart_edges(self.members, self.width)[0] if math.isfinite(self.capacity) else math.nan

    @property
    def verdict(self) -> str:
        """The regime in a sentence."""
        if not self.shares:
            return BY_CONSTRUCTION
        name, pull = self.regime.name, self.regime.pull
        return AGAINST.format(undone=-pull) if name == "between" and pull < 0 else VERDICTS[name].format(pull=pull)

    @property
    def advice(self) -> tuple[str, ...]:
        """Advice, most important first."""
        if not self.shares:
            return ("gamma does not matter: there is no shared step to scale",)
        if self.regime.name == "degenerate":
            return (diversity_advice(self),)
        adam = (WITH_ADAM,) if self.optimizer == "adam" else ()
        return (*bias_advice(self), gamma_advice(self), *adam, *capacity_advice(self))

    def to_json(self) -> dict[str, Any]:
        ratios = {name: value for name, value in vars(self.regime).items() if name != "name"}
        if self.stage == "after":
            ratios["covariance_ratio"] = None
        fields = {name: value for name, value in vars(self).items() if name not in ("recipe", "optimizer")}
        derived = {name: getattr(self, name) for name in ("verdict", "members", "capacity", "slowest", "advice")}
        return plain_json({**fields, "regime": self.regime.name, **ratios, **derived})


def kernel_diagnosis(ensemble: Ensemble, x: Tensor, *, inputs: int = INPUTS, seed: int = 0) -> KernelDiagnosis:
    """Diagnose from tangent kernels how members of a trained ensemble act on each other.

    Networks run without dropout, Gaussian weights at their means. Time grows as members times inputs times outputs.

    Args:
        ensemble: Ensemble with at least two members.
        x: Prepared inputs (N, ...).
        inputs: Size of the random subset of `x` that is used.
        seed: Seed of the subset.

    Returns:
        The regime, with the ratios it follows from and advice.
    """
    sample = subset(x, inputs, seed)
    return diagnose("after", ensemble, sample, output_products(ensemble, sample), initialisations=1)


def kernels_before(
    net: Net | None = None, data: Any = "digits", *, inputs: int = INPUTS, **settings: Any
) -> KernelDiagnosis:
    """Diagnose the ensemble that `fit` with the same arguments would start from; nothing is trained.

    Args:
        net: Network, as in `fit`.
        data: Data, as in `fit`.
        inputs: Number of test inputs.
        **settings: `recipe`, `members`, `seed` and `plan`, as in `fit`.

    Returns:
        The regime before training.

    >>> kernels_before("mlp", "two-moons", recipe="batch-ensemble", members=8).regime.name
    'collective'
    """
    spec = planned_spec(net, data, **settings)
    return start_diagnosis(spec, spec.data.test.prepared, inputs=inputs)


def kernels_at_infinite_width(
    net: Net | None = None, data: Any = "digits", *, inputs: int = INPUTS, **settings: Any
) -> KernelDiagnosis:
    """Diagnose the limit of `kernels_before` for infinitely wide hidden layers.

    Args:
        net: Fully connected ReLU network, as in `fit`.
        data: Data, as in `fit`.
        inputs: Number of test inputs.
        **settings: `recipe`, `members`, `seed` and `plan`, as in `fit`.

    Returns:
        The regime in the limit; see `limit_diagnosis`.

    Raises:
        Misuse: For another network, or a recipe whose limit is not known.

    >>> kernels_at_infinite_width("mlp", "two-moons", recipe="batch-ensemble", members=8).regime.name
    'collective'
    """
    spec = planned_spec(net, data, **settings)
    return limit_diagnosis(spec, spec.data.test.prepared, inputs=inputs)


def planned_spec(
    net: Net | None,
    data: Any,
    *,
    recipe: str | Recipe = "deep-ensemble",
    members: int | None = None,
    seed: int | None = None,
    plan: Plan | None = None,
) -> TrainSpec:
    """Return the training spec that `fit` with these arguments would carry out."""
    settings = {name: value for name, value in (("members", members), ("seed", seed)) if value is not None}
    return resolve(net, open_data(data), recipe, plan, settings).spec()[0]


def kernels_before_run(
    ensemble: Ensemble, data: Data, x: Tensor, *, net: Net | None = None, inputs: int = INPUTS
) -> KernelDiagnosis:
    """Return the diagnosis of a trained run's members before training, rebuilt from its manifest.

    `data` is the run's.
    """
    spec = spec_of(ensemble, data, net)
    first, now = (members.groups[0].population for members in (initial_ensemble(spec), ensemble))
    if changed := (first.own.keys() ^ now.own.keys()) | (first.shared.keys() ^ now.shared.keys()):
        raise Failure(
            f"the run is of another version, with other initial members: '{min(changed)}' was not shared as it is now"
        )
    return start_diagnosis(spec, x, inputs=inputs)


def start_diagnosis(spec: TrainSpec, x: Tensor, *, inputs: int = INPUTS, further: int = EXTRA_SEEDS) -> KernelDiagnosis:
    """Return the diagnosis of a spec's members before the first step, on some of the inputs x (N, ...).

    The tangent kernels are those of the members that will be trained. S_o / S_d is a mean over these and the members
    of the next `further` seeds, since one initialisation with few outputs estimates it poorly.
    """
    sample, first = subset(x, inputs, 0), initial_ensemble(spec)
    plans = (replace(spec.plan, seed=spec.plan.seed + 1 + turn) for turn in range(further))
    ensembles = (initial_ensemble(replace(spec, plan=plan)) for plan in plans)
    products = output_products(first, sample) + sum(output_products(ensemble, sample) for ensemble in ensembles)
    return diagnose("before", first, sample, products, initialisations=1 + further)


def limit_diagnosis(spec: TrainSpec, x: Tensor, *, inputs: int = INPUTS) -> KernelDiagnosis:
    """Return the diagnosis of a spec's members at infinite width, on some of the inputs x (N, ...).

    Layers keep their ratios of widths, weights the variances of the first member's initialisation. For chains of Linear
    and ReLU layers whose members differ by rank-one factors or fixed masks; biases are left out (`architecture_of`).
    """
    recipe, sample = spec.recipe, subset(x, inputs, 0)
    sharing, weights = recipe.sharing, recipe.weights
    mask = weights.mask_distribution
    masked = sharing.what == "all" and mask is not None
    if not masked and not (sharing.rank_one and weights.point_estimates and mask is None):
        raise Misuse(
            f"sharing {recipe.text('sharing')} with weights {recipe.text('weights')}: the limit of infinite width is"
            " known for members that differ by rank-one factors, or by fixed masks"
        )
    ends = {"first": sharing.first, "last": sharing.last}
    architecture = architecture_of(spec.member(0), factors=sharing.init, mask=mask, **ends)
    kernels = limit_kernels(architecture, sample.flatten(1), sample.flatten(1))
    limit = regime_of(kernels, spec.plan.members)
    alignment = np.full((spec.plan.members,) * 2, limit.tangent_ratio)
    np.fill_diagonal(alignment, 1.0)
    # The own fraction tends to 0: a weight matrix has N times as many entries as a factor.
    own_fraction, optimizer = math.nan, str(spec.plan.optimizer or "adam")
    ratios = (limit, math.nan, own_fraction)
    return KernelDiagnosis("limit", recipe, len(sample), *ratios, alignment, shares=True, optimizer=optimizer)


def subset(x: Tensor, inputs: int, seed: int) -> Tensor:
    """Return a random subset of the inputs, by a seed; all of them, in order, if there are no more."""
    if inputs < 1:
        raise Misuse(f"inputs={inputs}: need at least 1")
    if len(x) <= inputs:
        return x
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:inputs]]


def spec_of(ensemble: Ensemble, data: Data, net: Net | None = None) -> TrainSpec:
    """Return the spec of the run that trained this ensemble, from its manifest."""
    ensemble = ensemble.to(CPU)
    manifest, likelihood = ensemble.manifest, ensemble.likelihood
    if not manifest.plan or likelihood is None:
        raise Misuse(
            "the ensemble was not trained by this library: its initial members are unknown, use kernel_diagnosis"
        )
    source = source_again(manifest, net)
    body = ensemble.member(0) if ensemble.recipe.sharing.frozen else None  # not trained
    plan = plan_from_json(manifest.plan, device=CPU)
    return TrainSpec(source.build, data, likelihood, ensemble.recipe, plan, backbone=body)


def initial_ensemble(spec: TrainSpec) -> Ensemble:
    """Return the members of a spec before the first step, as an ensemble."""
    require_several(spec.plan.members)
    if spec.recipe.sharing.needs_parts:
        Structure(spec.member(0)).require_parts()
    two = spec.data.train[:2]  # enough to trace the network
    heads = head_only_spec(replace(spec, data=replace(spec.data, train=two, val=two, test=two)))
    group = MemberGroup(spec.member(0), with_backbone(heads.method.initial_members(), spec.backbone))
    kernels = spec.method.trace.to_json() if spec.recipe.needs_kernels else None
    manifest = Manifest(plan=spec.plan.to_json(), kernels=kernels)
    return Ensemble((group,), spec.likelihood, engine("loop"), spec.recipe, manifest)


def require_several(members: int) -> None:
    if members < 2:
        raise Misuse(f"the ensemble has {members} member: kernels between members need at least 2")


def diagnose(stage: Stage, ensemble: Ensemble, x: Tensor, products: Tensor, *, initialisations: int) -> KernelDiagnosis:
    """Return the diagnosis of an ensemble on inputs x (n, ...), with the products (M, M) of its outputs."""
    require_several(ensemble.members)
    group, plan = ensemble.to(CPU).groups[0], ensemble.manifest.plan
    shares = len(ensemble.groups) == 1 and bool(group.population.shared)
    gram, own = torch.eye(ensemble.members, dtype=torch.float64), 1.0
    if shares:
        blocks = member_kernels(group.module, group.population, ensemble.family, x)
        gram = torch.einsum("aibi->ab", blocks.common.double())
        individual = torch.einsum("aii->", blocks.individual.double()).item()
        own = individual / (individual + gram.trace().item())
    kernels = trace_kernels(group.module, x[:2]).kernels if shares else ()
    layer, width = (kernels[-1].name, kernels[-1].channels) if kernels else ("", 0)
    optimizer = "" if plan is None else str(plan.get("optimizer") or "adam")
    facts: dict[str, Any] = {"layer": layer, "width": width, "optimizer": optimizer, "initialisations": initialisations}
    correlation, alignment = mean_correlation(deterministic_outputs(ensemble, x)), cosines(gram).numpy()
    about = (stage, ensemble.recipe, len(x), regime(ratio(products), ratio(gram), ensemble.members))
    return KernelDiagnosis(*about, correlation, own, alignment, shares, **facts)


def deterministic_outputs(ensemble: Ensemble, x: Tensor) -> Tensor:
    """Return deterministic outputs (M, n, K) of all members, in double precision."""
    outputs = []
    for group in ensemble.groups:
        with assemble(engine("loop"), group.module) as team:
            outputs.append(member_outputs(team, ensemble.family.deterministic(), group.population, x))
    return torch.cat(outputs).double()


def output_products(ensemble: Ensemble, x: Tensor) -> Tensor:
    """Return mean products (M, M) of members' outputs, over inputs and outputs; initial outputs have mean zero."""
    flat = deterministic_outputs(ensemble, x).flatten(1)
    return flat @ flat.mT / flat.shape[1]


def off_diagonal(matrix: Tensor) -> Tensor:
    """Return the off-diagonal entries of a matrix (M, M)."""
    return matrix[~torch.eye(len(matrix), dtype=torch.bool)]


def ratio(gram: Tensor) -> float:
    """Return the mean of the off-diagonal entries of a matrix (M, M) over the mean of the diagonal ones.

    >>> ratio(torch.tensor([[2.0, 1.0], [1.0, 4.0]]))
    0.3333333432674408
    """
    return (off_diagonal(gram).mean() / gram.diagonal().mean()).item()


def cosines(gram: Tensor) -> Tensor:
    """Return cosines (M, M) from inner products (M, M); NaN for a member whose kernel is zero."""
    lengths = gram.diagonal().sqrt()
    return gram / torch.outer(lengths, lengths)


def mean_correlation(outputs: Tensor) -> float:
    """Return the correlation of two members' outputs (M, n, K) over inputs, each output about its mean.

    Mean over pairs.
    """
    flat = (outputs - outputs.mean(1, keepdim=True)).flatten(1)
    return off_diagonal(cosines(flat @ flat.mT)).mean().item()


def diversity_advice(diagnosis: KernelDiagnosis) -> str:
    """Return how to make members differ."""
    if diagnosis.recipe.sharing.rank_one:
        return (
            f"choose factors that differ: init={diagnosis.recipe.sharing.init} leaves all members the same; write "
            "sharing rank-one:init=rademacher,gamma=M (independent) or rank-one:init=normal_1_0.5 (collective)"
        )
    sharing = diagnosis.recipe.text("sharing")
    return f"sharing {sharing} leaves members nothing that distinguishes them: write sharing rank-one, or own"


def bias_advice(diagnosis: KernelDiagnosis) -> list[str]:
    """Return advice where factors of mean zero would make members independent, but for a shared output bias."""
    sharing = diagnosis.recipe.sharing
    coupled = sharing.rank_one and sharing.bias in ("shared", "inside") and diagnosis.regime.name != "independent"
    if not (coupled and diagnosis.width):
        return []
    if relative_mean(sharing.init) > spike_threshold(diagnosis.members, diagnosis.width):
        return []
    return [f"init={sharing.init} would make members independent, but the shared bias couples them: write bias=own"]


def gamma_advice(diagnosis: KernelDiagnosis) -> str:
    """Return whether the recipe's gamma is right, and which one is."""
    members, smooth, gamma = diagnosis.members, diagnosis.regime.gamma, diagnosis.recipe.sharing.gamma
    text = gamma if isinstance(gamma, str) else short(gamma)
    value = diagnosis.recipe.sharing.gamma_of(members=members, smooth=smooth)
    if diagnosis.regime.name == "independent":
        if value * NEAR >= members:
            return f"gamma={text} is right: a member learns as fast as a separate network"
        return f"use gamma=M: with gamma={text} shared weights learn {members / value:.2g} times slower than alone"
    if not math.isfinite(smooth):
        return "no gamma helps: members' steps cancel"
    if value / NEAR <= smooth <= value * NEAR:
        return f"gamma={text} is right"
    if value > smooth:
        times = f"{value / smooth:.2g} times a separate network's"
        return f"use gamma=1: with gamma={text} members' steps add up to {times}"
    if diagnosis.regime.name == "collective":
        return f"gamma={text} is right, on the slow side: gamma={smooth:.2g} would be as fast as a separate network"
    return f"use gamma={smooth:.2g}: with gamma={text} shared weights learn {smooth / value:.2g} times slower"


def capacity_advice(diagnosis: KernelDiagnosis) -> list[str]:
    """Return advice where there are too many members for one layer."""
    if diagnosis.regime.name == "collective" or not diagnosis.capacity >= FULL or math.isnan(diagnosis.slowest):
        return []
    place = f"{diagnosis.members} members in {diagnosis.width} channels (inputs of {diagnosis.layer})"
    if diagnosis.slowest == 0:
        return [f"{place}: some combination of members cannot learn at all; use a wider network or fewer members"]
    speed = f"{diagnosis.slowest:.2g} of the usual speed"
    return [f"{place}: some combination of members learns at {speed}; a wider network helps"]
