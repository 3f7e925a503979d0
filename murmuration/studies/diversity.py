"""Diversity against accuracy: sampled networks in the plane of the two, and the curves that limit them.

A reference network has accuracy a* among C classes, another accuracy a, and they disagree on a fraction d of inputs;
D = d / (1 - a) is the normalised diversity (Fort, Hu and Lakshminarayanan 2019, appendix D). The curves are:

    independent   both err independently, errors uniform over the other classes:
                  d = 1 - a a* - (1 - a)(1 - a*) / (C - 1)
    perturbed     each label of the reference changes with probability p into any other:
                  d = p = (C - 1)(a* - a) / (C a* - 1)
    worst         right labels change and wrong ones do not: d = a* - a, the hard lower bound
    flips         right labels change with probability p+ and wrong ones with p-:
                  a = a* (1 - p+) + (1 - a*) p- / (C - 1),   d = a* p+ + (1 - a*) p-
    family        p+ = p, p- = p^e: e = 1 is the perturbed curve, e -> infinity the worst case

The appendix prints the two right-hand sides of `flips` under each other's names: with p+ = p- = p they must give d = p.
For e < 1 the accuracy of the family first rises above a*, so that it is a curve in p and not a function of a. The
independent curve is no maximum; the hard upper bound is min(1, 2 - a - a*).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from murmuration.likelihoods import CLASSIFICATION, Categorical
from murmuration.studies.cells import Arrays, Cells
from murmuration.studies.landscape import Result, Show, digest, long_frame, silent
from murmuration.studies.similarity import disagreement_bounds, normalised_diversity
from murmuration.studies.subspaces import PLANE, PLANE_COUNT, draw_vectors, neighbourhood
from murmuration.studies.trajectory import Trajectory
from murmuration.studies.verdicts import Estimate, Verdict, jackknife_estimate
from murmuration.studies.weight_space import Networks, PointOutputs, blocks, labelled_outputs, points_of
from murmuration.system.errors import Misuse
from murmuration.system.records import plain_json

Array = NDArray[np.float64]

INDEPENDENT = "independent"  # the method of the other members
SUBSPACES = "subspaces"  # all samplers together
WITHOUT_PATH = ("random", "dropout")  # samplers that need no trajectory
DRAWN = (*WITHOUT_PATH, "diagonal", "pca")  # samplers of the plane
MATCHED = 0.02  # accuracies this near count as equal
EXPONENTS = (0.02, 2.0)  # range of the exponent e
CANDIDATES = 60  # exponents at which distances are computed before the best is refined
PROBABILITIES = 100  # flip probabilities p, and as many p^e, at which a curve is computed
RESAMPLES = 500
LEVEL = 0.95
FEWEST = 5  # points that an exponent is fitted to


def check_reference(accuracy: float, classes: int) -> None:
    if classes < 2:
        raise Misuse(f"classes={classes}: need at least 2")
    if not 0 <= accuracy <= 1:
        raise Misuse(f"reference accuracy {accuracy}: expected a fraction from 0 to 1")


def independent_disagreement(a: Any, reference: float, classes: int) -> Array:
    """Return disagreement of two networks that err independently, uniformly over the other classes.

    >>> round(float(independent_disagreement(0.5, 0.71, 10)), 9)
    0.628888889
    """
    check_reference(reference, classes)
    a = np.asarray(a, dtype=float)
    return 1 - a * reference - (1 - a) * (1 - reference) / (classes - 1)


def perturbed_disagreement(a: Any, reference: float, classes: int) -> Array:
    """Return disagreement of the reference with itself after labels were changed at random, down to accuracy a.

    >>> round(float(perturbed_disagreement(0.5, 0.71, 10)), 9)
    0.309836066
    """
    check_reference(reference, classes)
    if reference * classes <= 1:
        raise Misuse(f"reference accuracy {reference} of {classes} classes: need more than chance, {1 / classes:.3g}")
    return (classes - 1) * (reference - np.asarray(a, dtype=float)) / (classes * reference - 1)


def worst_disagreement(a: Any, reference: float) -> Array:
    """Return disagreement if only right labels change, and all of them become wrong: the least at accuracy a."""
    return np.abs(reference - np.asarray(a, dtype=float))


def flipped(right: Any, wrong: Any, reference: float, classes: int) -> tuple[Array, Array]:
    """Compute accuracy and disagreement after labels of a reference network have changed at random.

    Args:
        right: Probability that a right label changes.
        wrong: Probability that a wrong label changes.
        reference: Accuracy of the reference network.
        classes: Number of classes.

    Returns:
        The accuracy, and the disagreement with the reference.

    >>> [round(float(value), 6) for value in flipped(0.25, 0.5, 2 / 3, 3)]
    [0.583333, 0.333333]
    """
    check_reference(reference, classes)
    right, wrong = np.asarray(right, dtype=float), np.asarray(wrong, dtype=float)
    accuracy = reference * (1 - right) + (1 - reference) * wrong / (classes - 1)
    return accuracy, reference * right + (1 - reference) * wrong


def family(p: Any, exponent: float, reference: float, classes: int) -> tuple[Array, Array]:
    """Compute accuracy and disagreement if right labels change with probability p and wrong ones with p^exponent.

    Args:
        p: Probabilities, of any shape.
        exponent: Exponent e of the family; 1 is the curve of random changes.
        reference: Accuracy of the reference network.
        classes: Number of classes.

    Returns:
        The accuracy and the disagreement with the reference, of the shape of `p`.
    """
    p = np.asarray(p, dtype=float)
    return flipped(p, np.where(p > 0, np.power(p, exponent), 0.0), reference, classes)


def family_curve(exponent: float, reference: float, classes: int, points: int = PROBABILITIES) -> Array:
    """Return the curve (n, 2) of accuracy and normalised diversity in the order of p, fine in p and in p^e."""
    even = np.linspace(0, 1, points + 1)
    p = np.unique(np.concatenate([even, even ** (1 / exponent)]))
    accuracy, d = family(p, exponent, reference, classes)
    return np.stack([accuracy, normalised_diversity(d, accuracy)], axis=1)


def squared_distances(points: Array, curve: Array) -> Array:
    """Return the squared distance (n,) of points (n, 2) from a curve of straight pieces (m, 2)."""
    start, step = curve[:-1], np.diff(curve, axis=0)
    length = np.maximum((step**2).sum(1), np.finfo(float).tiny)
    from_start = points[:, None] - start  # (n, m - 1, 2)
    along = np.clip((from_start * step).sum(-1) / length, 0, 1)
    return ((from_start - along[..., None] * step) ** 2).sum(-1).min(1)


@dataclass(frozen=True)
class Exponent:
    """The exponent of the family of curves that fits some networks best."""

    value: float
    low: float  # of the 95 % bootstrap interval over networks
    high: float
    residual: float  # root mean square distance from the curve, in accuracy and D
    points: int


def fit_exponent(
    accuracy: Any, diversity: Any, reference: float, classes: int, *, seed: int = 0, resamples: int = RESAMPLES
) -> Exponent:
    """Fit the exponent of `family` to networks by least squared distance in the plane of accuracy and diversity.

    The best of several exponents is refined by a bounded search between its neighbours.

    Args:
        accuracy: Accuracies (n,) of the networks.
        diversity: Their normalised diversities D (n,).
        reference: Accuracy of the reference network.
        classes: Number of classes.
        seed: Seed of the bootstrap.
        resamples: Bootstrap resamples of the networks.

    Returns:
        The exponent with its 95 % bootstrap interval over networks.

    Raises:
        Misuse: Without a network of finite diversity, or if the reference makes no errors.
    """
    from scipy.optimize import minimize_scalar

    points = np.stack([np.asarray(accuracy, dtype=float), np.asarray(diversity, dtype=float)], axis=1)
    points = points[np.isfinite(points).all(1)]
    if not len(points):
        raise Misuse("no networks to fit an exponent to: expected at least one with an accuracy below 1")
    if reference >= 1:
        raise Misuse("the reference network makes no errors: the curves of all exponents are one")
    tried = np.geomspace(*EXPONENTS, CANDIDATES)
    table = np.stack([squared_distances(points, family_curve(e, reference, classes)) for e in tried])  # (E, n)
    best = int(table.sum(1).argmin())
    ends = tried[max(best - 1, 0)], tried[min(best + 1, len(tried) - 1)]

    def mean_distance(exponent: float) -> float:
        return squared_distances(points, family_curve(exponent, reference, classes)).mean()

    fit = minimize_scalar(mean_distance, bounds=ends, method="bounded", options={"xatol": 1e-6})
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(len(points), np.full(len(points), 1 / len(points)), size=resamples)
    resampled = refined_minima(np.log(tried), weights @ table.T)
    low, high = np.exp(np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    value = float(fit.x)
    return Exponent(value, min(float(low), value), max(float(high), value), math.sqrt(float(fit.fun)), len(points))


def refined_minima(x: Array, values: Array) -> Array:
    """Return the x (B,) of the least of values (B, E) at equally spaced x (E,), refined by parabolas."""
    best = values.argmin(1)
    inner = np.clip(best, 1, len(x) - 2)
    rows = np.arange(len(values))
    before, middle, after = (values[rows, inner + shift] for shift in (-1, 0, 1))
    curvature = before - 2 * middle + after
    shift = np.where(curvature > 0, 0.5 * (before - after) / np.where(curvature > 0, curvature, 1), 0.0)
    return np.where(best == inner, x[inner] + np.clip(shift, -1, 1) * (x[1] - x[0]), x[best])


@dataclass(frozen=True, eq=False)
class SampledNetworks:
    """Networks of one method beside a reference network."""

    accuracy: Array  # (n,)
    disagreement: Array  # (n,) with the reference
    divergence: Array  # (n,) KL(reference | network) of the predictions, in nats
    terms: Mapping[str, Array] = field(default_factory=dict)  # (n, N) of "diversity" and "divergence", by example
    DERIVED: ClassVar[tuple[str, ...]] = ("diversity",)

    @property
    def diversity(self) -> Array:
        """D (n,), NaN for a network without errors."""
        return normalised_diversity(self.disagreement, self.accuracy)

    def to_json(self) -> dict[str, Any]:
        columns = ("accuracy", "disagreement", "divergence", "diversity")
        return plain_json({name: getattr(self, name) for name in columns})


@dataclass(frozen=True, eq=False)
class TradeOff(Result):
    """Diversity and accuracy of sampled networks, with the curves that limit them."""

    reference: float  # accuracy a* of the reference network
    classes: int
    examples: int
    methods: Mapping[str, SampledNetworks]  # "independent": the other members
    exponents: Mapping[str, Exponent]  # by method, and of all subspace samples together ("subspaces")
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the samplers
    DERIVED: ClassVar[tuple[str, ...]] = ("within_bounds", "verdicts")

    def curves(self, points: int = 101) -> dict[str, Array]:
        """Return curves (n, 2) of accuracy and D by name, from chance to the accuracy of the reference."""
        chance = 1 / self.classes
        if not chance < self.reference < 1:
            return {}
        a = np.linspace(chance, self.reference, points)
        disagreements = {
            "independent errors": independent_disagreement(a, self.reference, self.classes),
            "random label changes": perturbed_disagreement(a, self.reference, self.classes),
            "worst case": worst_disagreement(a, self.reference),
            "upper bound": disagreement_bounds(a, self.reference, self.classes)[1],
        }
        curves = {name: np.stack([a, normalised_diversity(d, a)], axis=1) for name, d in disagreements.items()}
        if SUBSPACES in self.exponents:
            fitted = family_curve(self.exponents[SUBSPACES].value, self.reference, self.classes, points)
            curves["fitted family"] = fitted[fitted[:, 0] >= chance]
        return curves

    @property
    def within_bounds(self) -> bool:
        """Whether every network lies between the worst case and the upper bound, up to rounding."""
        within = []
        for networks in self.methods.values():
            low, high = disagreement_bounds(networks.accuracy, self.reference, self.classes)
            within.append(((networks.disagreement >= low - 1e-9) & (networks.disagreement <= high + 1e-9)).all())
        return all(within)

    def near(self, name: str) -> Array:
        """Return which networks (n,) of a method are within 2 points of the independent ones' mean accuracy."""
        networks, level = self.methods[name], self.methods[INDEPENDENT].accuracy.mean()
        return (np.abs(networks.accuracy - level) <= MATCHED) & np.isfinite(networks.diversity)

    @property
    def matched(self) -> dict[str, tuple[float, int]]:
        """By method the mean D of networks of equal accuracy, and their number; empty without other members."""
        if INDEPENDENT not in self.methods:
            return {}
        means = {}
        for name, networks in self.methods.items():
            near = self.near(name)
            means[name] = (float(networks.diversity[near].mean()) if near.any() else math.nan, int(near.sum()))
        return means

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Claims of Fort et al. (2019) that these networks can decide, with intervals over networks and examples."""
        verdicts = [matched_verdict(self, "diversity"), matched_verdict(self, "divergence")]
        if SUBSPACES in self.exponents:
            fit = self.exponents[SUBSPACES]
            note = f"root mean square distance of {fit.residual:.2g} from the curve"
            singles = [single.value for name, single in self.exponents.items() if name not in (SUBSPACES, INDEPENDENT)]
            if len(singles) > 1:
                note += f"; by sampler e is {min(singles):.2f} to {max(singles):.2f}"
            exponent = Estimate("exponent e", fit.value, fit.low, fit.high, -math.inf, 1.0, f"{fit.points} samples")
            claim = "wrong labels change more easily than right ones: the fitted exponent is below 1"
            verdicts.append(Verdict("exponent", claim, (exponent,), note))
        return tuple(verdict for verdict in verdicts if verdict is not None)

    def to_json(self) -> dict[str, Any]:
        matched = {name: {"diversity": value, "networks": count} for name, (value, count) in self.matched.items()}
        return super().to_json() | plain_json({"matched": matched, "curves": self.curves()})

    def frame(self) -> pd.DataFrame:
        """Return one row for each number: method, network, measure and value."""
        parts = []
        for name, networks in self.methods.items():
            scores = {"accuracy": networks.accuracy, "disagreement": networks.disagreement}
            scores |= {"diversity": networks.diversity, "divergence": networks.divergence}
            parts.append(long_frame(scores, {"method": name, "network": range(len(networks.accuracy))}))
        return pd.concat(parts, ignore_index=True)


MATCHED_CLAIMS = {  # measure -> name, claim
    "diversity": (
        "diversity at equal accuracy",
        "at equal accuracy independent networks are more diverse than samples",
    ),
    "divergence": (
        "equivalent conclusions",
        "the Kullback-Leibler divergence leads to the same conclusion: at equal accuracy it is larger between "
        "independent networks",
    ),
}


def matched_verdict(record: TradeOff, measure: str) -> Verdict | None:
    """Return whether independent networks are further from the reference than the samples of equal accuracy.

    None if nothing is equal.
    """
    if INDEPENDENT not in record.methods:
        return None
    near = {name: record.near(name) for name in record.methods}
    compared = [name for name in record.methods if name != INDEPENDENT and near[name].any()]
    if not compared or not near[INDEPENDENT].any():
        return None
    tables = {name: record.methods[name].terms[measure][near[name]] for name in (INDEPENDENT, *compared)}  # (n, N)
    estimates = []
    for name in compared:
        own, sampled = tables[INDEPENDENT], tables[name]
        sizes = {"runs": len(own), f"{name} samples": len(sampled)}
        gap = lambda runs, samples, own=own, sampled=sampled: own[runs].mean(0) - sampled[samples].mean(0)  # noqa: E731
        means = f"{own.mean():.3g} less {sampled.mean():.3g}"
        label = {"diversity": "D", "divergence": "KL"}[measure]
        estimates.append(jackknife_estimate(f"{label} of runs less {name} ({means})", gap, sizes, 0.0, math.inf))
    missing = [name for name in record.methods if name not in tables]
    note = f"within {100 * MATCHED:.0f} points of accuracy {record.methods[INDEPENDENT].accuracy.mean():.1%}"
    note += f"; no sample of {', '.join(missing)} is as accurate" if missing else ""
    name, claim = MATCHED_CLAIMS[measure]
    return Verdict(name, claim, tuple(estimates), note)


def trade_off(
    networks: Networks,
    trajectory: Trajectory | None,
    data: Any,
    *,
    reference: int = 0,
    samplers: Sequence[str] | None = None,
    count: int = PLANE_COUNT,
    settings: Mapping[str, Mapping[str, Any]] = PLANE,
    others: Mapping[str, Networks] | None = None,
    val: Any = None,
    train: Any = None,
    seed: int = 0,
    folder: Path | None = None,
    show: Show = silent,
) -> TradeOff:
    """Measure diversity and accuracy of samples around one member and of the other members.

    Args:
        networks: An ensemble, `Points`, or modules of one architecture.
        trajectory: Paths of the members, or None.
        data: Labelled examples: a `Data` (its test split), a split, or a pair (x, y).
        reference: Index of the member that samples are drawn around and compared with.
        samplers: Names of `SAMPLERS`; by default "random", "dropout" and, with a trajectory, "diagonal" and "pca".
        count: Samples of each sampler.
        settings: Settings of the samplers, by name.
        others: Further networks of the same architecture by the name of their method, such as draws of SWAG.
        val: Labelled examples by whose accuracy random samples are accepted.
        train: Training examples for batch-norm statistics; needed by networks with batch-norm layers.
        seed: Random seed.
        folder: Directory for finished parts, from which an interrupted computation resumes; None stores nothing.
        show: Progress callback `show(text, done, total)`.

    Returns:
        Accuracy and disagreement of every network, with the fitted exponents.
    """
    points = points_of(networks)
    outputs, y = labelled_outputs(networks, data, train, [reference])
    names = tuple(samplers) if samplers is not None else DRAWN if trajectory is not None else WITHOUT_PATH
    sampler_settings = {name: dict(settings.get(name, {})) for name in names}
    further = {name: points_of(members_of_method).vectors for name, members_of_method in (others or {}).items()}
    around = neighbourhood(networks, trajectory, reference, val=val, train=train, seed=seed)
    other_members = [index for index in range(len(points)) if index != reference]
    sources: dict[str, Callable[[], Iterable[Tensor]]] = {
        INDEPENDENT: partial(iter, points.vectors[other_members]),
        **{name: partial(draw_vectors, around, name, count, **sampler_settings[name]) for name in names},
        **{name: partial(iter, vectors) for name, vectors in further.items()},
    }
    if not other_members:
        del sources[INDEPENDENT]
    about = {"reference": reference, "count": count, "seed": seed, "settings": sampler_settings}
    about["trajectory"] = [] if trajectory is None else list(trajectory.steps)
    digests = {"weights": digest(points.vectors, *further.values()), "data": digest(outputs.x, y)}
    cells = Cells(folder, digests | about | {"kept": "labels and divergences of examples"})
    (own,) = log_probabilities(outputs, [points.vectors[reference]])
    own_labels, width = own.argmax(-1), own.shape[-1]

    def compared(vectors: list[Tensor]) -> Arrays:
        rows = list(log_probabilities(outputs, vectors))
        divergences = [(own.exp() * (own - row)).sum(-1).float() for row in rows]
        labels = [row.argmax(-1).to(torch.int16) for row in rows]
        return {"labels": torch.stack(labels).numpy(), "divergences": torch.stack(divergences).numpy()}

    methods = {}
    for done, (name, vectors) in enumerate(sources.items()):
        show(name, done, len(sources))
        if parts := [cells(f"{name}-{part}", partial(compared, block)) for part, block in enumerate(blocks(vectors()))]:
            labels, divergences = (np.concatenate([part[key] for part in parts]) for key in ("labels", "divergences"))
            methods[name] = sampled_networks(labels, divergences, own_labels.numpy(), y.numpy())
    accuracy = (own_labels == y).double().mean().item()
    stored = {**sampler_settings, "count": count, "seed": seed}
    exponents = fitted_exponents(methods, names, accuracy, width)
    return TradeOff(accuracy, width, len(y), methods, exponents, stored)


def log_probabilities(outputs: PointOutputs, vectors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield logarithms of class probabilities (N, K) at each of some vectors (P,)."""
    for output in outputs(vectors):
        likelihood = outputs.points.likelihood or Categorical(output.shape[-1])
        if likelihood.task != CLASSIFICATION:
            raise Misuse(f"networks for {likelihood.task}: diversity compares predicted classes")
        yield likelihood.logits(output).double().log_softmax(-1)


def diversity_terms(labels: Array, reference: Array, y: Array) -> Array:
    """Return terms (n, N) of D = d / (1 - a), which is no mean over examples.

    Their mean is D, their variance that of D by first-order expansion in d and a.

    Args:
        labels: Classes (n, N) predicted by some networks.
        reference: Classes (N,) predicted by the reference.
        y: Labels (N,).
    """
    right, differs = labels == y, labels != reference
    accuracy = right.mean(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        diversity = normalised_diversity(differs.mean(1), accuracy)[:, None]
        return diversity + (differs - diversity * ~right) / (1 - accuracy[:, None])


def sampled_networks(labels: Array, divergences: Array, reference: Array, y: Array) -> SampledNetworks:
    """Return networks with predicted classes (n, N) beside a reference of classes (N,), for labels (N,)."""
    kept: dict[str, Array] = {"diversity": diversity_terms(labels, reference, y).astype(np.float32)}
    kept["divergence"] = divergences
    accuracy, disagreement = (labels == y).mean(1), (labels != reference).mean(1)
    return SampledNetworks(accuracy, disagreement, divergences.astype(float).mean(1), kept)


def fitted_exponents(
    methods: Mapping[str, SampledNetworks], samplers: Sequence[str], reference: float, classes: int
) -> dict[str, Exponent]:
    """Return the exponent of each sampler with enough networks, and of all together.

    None for a reference without errors.
    """
    sampled = {name: methods[name] for name in samplers if name in methods}
    if not sampled or not 1 / classes < reference < 1:
        return {}
    columns = [(networks.accuracy, networks.disagreement, networks.divergence) for networks in sampled.values()]
    everything = SampledNetworks(*np.concatenate(columns, axis=1))
    return {
        name: fit_exponent(networks.accuracy, networks.diversity, reference, classes)
        for name, networks in {SUBSPACES: everything, **sampled}.items()
        if np.isfinite(networks.diversity).sum() >= FEWEST
    }
