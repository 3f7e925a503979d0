"""Out-of-distribution detection: how well uncertainty separates OOD inputs from the evaluation set.

Every score of a predictive, and every distance to training data in feature space, is larger for inputs that look more
OOD; `metrics.score_detection` measures how well it separates them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from murmuration.core.engines.outputs import CHUNK
from murmuration.evaluation.eval_set import EvalSet
from murmuration.evaluation.metrics import Detection, score_detection
from murmuration.evaluation.metrics.per_example import check_no_nan
from murmuration.likelihoods import Gaussian
from murmuration.prediction.checks import checked_members, inputs_at_once
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Failure, Misuse

BINS = 30  # of a histogram
HISTOGRAM_SCORES = ("entropy", "mutual_information", "total_std", "epistemic_std")  # uncertainties drawn as histograms
NEIGHBOURS = 10  # the distance to this nearest training example counts
INSPECTED = 64  # inputs that suffice to see whether outputs are logits or logarithms of probabilities
MEASURED = 1000  # training examples, at most, whose median distance is a member's unit
LEAST_SHRINKAGE = 1e-6  # of a covariance: a unit that never varied in training must not divide by zero
OPERATORS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# Squared distance to the nearest class mean in features, by their covariance (Lee et al. 2018), and distance to the
# 10th nearest training example in features of length one (Sun et al. 2022).
FEATURE_DISTANCES = ("mahalanobis", "nearest_neighbours")


# Scores of a predictive


def several_members(pred: Predictive) -> bool:
    return int((pred.member_weights > 0).sum()) > 1


def has_logits(pred: Predictive) -> bool:
    """Return whether outputs say more than their probabilities: not so where their exponentials sum to one."""
    return bool((pred.at(slice(INSPECTED)).logits.logsumexp(-1).abs() > 1e-5).any())


def has_spread(pred: Predictive) -> bool:
    """Return whether the width of the predictions can differ between inputs."""
    return several_members(pred) or not isinstance(pred.likelihood, Gaussian)


def lacking(pred: Predictive) -> Tensor:
    """1 - confidence (N,), summed over the other classes: nothing is lost where the confidence rounds to one."""
    return pred.mean.scatter(-1, pred.mean.argmax(-1, keepdim=True), 0.0).sum(-1)


def root_mean(name: str) -> Callable[[Predictive], Tensor]:
    """Return the root (N,) of the mean over targets of a variance (N, K)."""
    return lambda pred: getattr(pred, name).mean(-1).sqrt()


@dataclass(frozen=True)
class OodScore:
    """A score of a predictive that should be larger for OOD inputs."""

    task: str
    function: Callable[[Predictive], Tensor]  # -> (N,)
    applies: Callable[[Predictive], bool] = lambda pred: True  # whether it can tell inputs of this predictive apart


C, R = "classification", "regression"
OOD_SCORES = {
    "max_probability": OodScore(C, lacking),  # 1 - confidence (Hendrycks and Gimpel 2017)
    "entropy": OodScore(C, attrgetter("entropy")),  # total uncertainty
    "mutual_information": OodScore(C, attrgetter("mutual_information"), several_members),  # epistemic uncertainty
    "expected_entropy": OodScore(C, attrgetter("expected_entropy")),  # aleatoric uncertainty
    "energy": OodScore(C, attrgetter("energy"), has_logits),  # minus the logsumexp of the logits (Liu et al. 2020)
    "logit_variance": OodScore(C, attrgetter("logit_variance"), several_members),
    "total_std": OodScore(R, root_mean("total_var"), has_spread),
    "epistemic_std": OodScore(R, root_mean("epistemic_var"), several_members),  # of the members' means
}


def ood_columns(pred: Predictive) -> dict[str, np.ndarray]:
    """Return all scores (N,) of the task by name, without those that cannot tell inputs of this predictive apart.

    Left out are: what compares members, where there is one; energy, where only probabilities are known; the
    total deviation of one member with constant noise. A few inputs at a time are unfolded in memory.

    >>> list(ood_columns(Predictive.from_probs([[0.9, 0.1]])))
    ['max_probability', 'entropy', 'expected_entropy']
    """
    check_no_nan(pred.outputs)
    if pred.task not in (C, R):
        raise Misuse(f"out-of-distribution scores of a {pred.task} task: there are none; compare pred.entropy instead")
    applicable = {name: s for name, s in OOD_SCORES.items() if s.task == pred.task and s.applies(pred)}
    parts: dict[str, list[np.ndarray]] = {name: [] for name in applicable}
    with torch.no_grad():
        for batch in pred.batches(inputs_at_once(pred.outputs)):
            for name, score in applicable.items():
                parts[name].append(score.function(batch).cpu().numpy())
    return {name: np.concatenate(values) for name, values in parts.items()}


# Distances in feature space


@dataclass(frozen=True, eq=False, repr=False)
class MemberDistance:
    """What one member's features were in training."""

    means: Tensor  # (C, D) of each class, or one
    factor: Tensor  # (D, D) lower Cholesky factor of the covariance around them
    bank: Tensor  # (n, D) float32, training features at length one
    units: dict[str, float]  # the median distance of training examples by name: what distances are divided by


@dataclass(frozen=True, eq=False, repr=False)
class FeatureDistance:
    """Training features of members of an ensemble, for distances from them."""

    indices: tuple[int, ...]  # of the members
    members: tuple[MemberDistance, ...]

    def __repr__(self) -> str:
        count, width = self.members[0].bank.shape
        return f"FeatureDistance(members={len(self.members)}, examples={count}, features={width})"


def fit_feature_distance(
    ensemble: Ensemble,
    x: Any,
    y: Any = None,
    *,
    seed: int = 0,
    most: int = 5000,
    members_used: Sequence[int] | None = None,
) -> FeatureDistance:
    """Return what distances in feature space need, from training inputs (N, ...) of which at most `most` are drawn.

    With labels y (N,) the Mahalanobis distance is to the nearest class mean, with one covariance for all
    classes; without, and for regression, there is one mean. A member takes 4 `most` D + 8 D^2 bytes for D
    features: `members_used` limits the members where that is too much.
    """
    if not len(x):
        raise Misuse("no training inputs to fit feature distances on: expected at least one")
    sample = torch.from_numpy(np.random.default_rng(seed).permutation(len(x))[:most])
    inputs = torch.as_tensor(x)[sample]
    labels = class_labels(ensemble, y, len(x))[sample]
    every = range(ensemble.members) if members_used is None else members_used
    members = (checked_members(list(every), count=ensemble.members) % ensemble.members).tolist()
    fits = []
    for index in members:
        features = torch.cat(list(module_features(ensemble.member(index), inputs)))
        if not features.isfinite().all():
            raise Failure(f"features of member {index} are not finite: it diverged; leave it out by members_used")
        fits.append(fit_member(features, labels))
    return FeatureDistance(tuple(members), tuple(fits))


def distance_columns(fitted: FeatureDistance, ensemble: Ensemble, x: Any) -> dict[str, np.ndarray]:
    """Return the distances (N,) of inputs (N, ...) from training features, by name: see `FEATURE_DISTANCES`.

    Each member's distance is divided by its median on training examples, so that members count alike, and
    the mean over members is taken. A few inputs at a time are passed through one member after another.
    """
    totals = {name: np.zeros(len(x)) for name in FEATURE_DISTANCES}
    inputs = torch.as_tensor(x)
    for index, member in zip(fitted.indices, fitted.members, strict=True):
        parts = [member_distances(member, features) for features in module_features(ensemble.member(index), inputs)]
        for name, total in totals.items():
            total += torch.cat([part[name] for part in parts]).numpy() / member.units[name]
    return {name: total / len(fitted.members) for name, total in totals.items()}


def class_labels(ensemble: Ensemble, y: Any, count: int) -> Tensor:
    """Return the class (N,) of each training example; the same for all where there are none."""
    if y is None or (ensemble.likelihood is not None and ensemble.likelihood.task != "classification"):
        return torch.zeros(count, dtype=torch.long)
    labels = torch.as_tensor(y)
    if labels.shape != (count,):
        raise Misuse(f"labels of shape {tuple(labels.shape)} for {count} inputs: expected ({count},)")
    return labels.long()


@torch.no_grad()
def module_features(module: nn.Module, x: Tensor) -> Iterator[Tensor]:
    """Yield features (n, D) of a few inputs at a time: the inputs of the last linear operator, in double precision.

    The module keeps the hooks.
    """
    entered = {}

    def keep(operator: nn.Module, given: tuple[Tensor, ...]) -> None:
        entered["last"] = given[0]

    for part in module.modules():
        if isinstance(part, OPERATORS):
            part.register_forward_pre_hook(keep)
    device = next((tensor.device for tensor in module.parameters()), torch.device("cpu"))
    for inputs in x.split(CHUNK):
        module(inputs.float().to(device))
        if "last" not in entered:
            raise Misuse(f"{type(module).__name__} runs no linear or convolutional layer: feature distances need one")
        yield entered.pop("last").flatten(1).double().cpu()


def fit_member(features: Tensor, labels: Tensor) -> MemberDistance:
    """Return what distances from training features (n, D) need, with the labels (n,) of their classes."""
    _, group = labels.unique(return_inverse=True)
    counts = group.bincount().double()[:, None]
    means = features.new_zeros(len(counts), features.shape[1]).index_add_(0, group, features) / counts
    factor = torch.linalg.cholesky(shrunk_covariance(features - means[group]))
    unmeasured = MemberDistance(means, factor, unit_length(features).float(), {})
    # Each of them is in the bank, at distance zero from itself.
    distances = member_distances(unmeasured, features[:MEASURED], neighbours=NEIGHBOURS + 1)
    return replace(unmeasured, units={name: values.median().item() or 1.0 for name, values in distances.items()})


def shrunk_covariance(residuals: Tensor) -> Tensor:
    """Return the covariance (D, D) of centred residuals (n, D), shrunk towards a sphere (Ledoit and Wolf 2004)."""
    from sklearn.covariance import ledoit_wolf_shrinkage

    count, width = residuals.shape
    covariance = residuals.T @ residuals / count
    size = covariance.trace().item() / width or 1.0
    share = max(float(ledoit_wolf_shrinkage(residuals.numpy(), assume_centered=True)), LEAST_SHRINKAGE)
    return (1 - share) * covariance + share * size * torch.eye(width, dtype=covariance.dtype)


def unit_length(features: Tensor) -> Tensor:
    return features / features.norm(dim=1, keepdim=True).clamp_min(torch.finfo(features.dtype).tiny)


def member_distances(member: MemberDistance, features: Tensor, neighbours: int = NEIGHBOURS) -> dict[str, Tensor]:
    """Return the distances (n,) by name of features (n, D), float64."""
    if features.shape[1] != member.means.shape[1]:
        raise Misuse(f"{features.shape[1]} features, fitted on {member.means.shape[1]}: expected the same ensemble")
    centre = member.means.mean(0)
    whiten = partial(torch.linalg.solve_triangular, member.factor, upper=False)
    means, points = (whiten((rows - centre).T).T for rows in (member.means, features))
    similarity = unit_length(features) @ member.bank.double().T  # (n, bank)
    nearest = similarity.topk(min(neighbours, len(member.bank))).values[:, -1]
    distances = torch.cdist(points, means).square().amin(1), (2 - 2 * nearest).clamp_min(0).sqrt()
    return dict(zip(FEATURE_DISTANCES, distances, strict=True))


# Detection


@dataclass(frozen=True, eq=False)
class OodResult:
    """Detection of one set of OOD inputs by every uncertainty of an ensemble."""

    name: str
    examples: int
    detections: Mapping[str, Detection]  # uncertainty -> how well it separates the two sets
    histograms: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]  # edges (B + 1,), counts (B,) of each set

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "examples": self.examples, "uncertainties": self.detections}


@dataclass(frozen=True, eq=False)
class InDistribution:
    """The uncertainties of an ensemble on the evaluation set, which OOD inputs are compared with."""

    columns: Mapping[str, np.ndarray]  # uncertainty -> (N,)
    distance: FeatureDistance | None


def in_distribution(ensemble: Ensemble, eval_set: EvalSet) -> InDistribution:
    """Compute the uncertainties of the evaluation set.

    Args:
        ensemble: The trained ensemble.
        eval_set: The in-distribution examples.

    Returns:
        Its uncertainties, with feature distances if training examples are available.
    """
    distance = None
    if eval_set.train is not None and not ensemble.models:
        labels = eval_set.train.y if eval_set.task == "classification" else None
        distance = fit_feature_distance(ensemble, eval_set.train.prepared, labels)
    return InDistribution(uncertainties(ensemble, eval_set.split.prepared, distance), distance)


def uncertainties(ensemble: Ensemble, x: Tensor, distance: FeatureDistance | None) -> dict[str, np.ndarray]:
    """Return the uncertainties (N,) of inputs before any calibrator, larger for inputs that look more OOD."""
    tables = [ood_columns(pred) for pred in ensemble.stream(x, calibrated=False, prepared=True)]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    return {**columns, **(distance_columns(distance, ensemble, x) if distance is not None else {})}


def evaluate_ood(ensemble: Ensemble, known: InDistribution, name: str, x: Tensor) -> OodResult:
    """Score how well every uncertainty detects OOD inputs.

    Args:
        ensemble: The trained ensemble.
        known: Uncertainties of the evaluation set.
        name: Name of the OOD inputs.
        x: The prepared OOD inputs (M, ...).

    Returns:
        Detection scores and histograms by uncertainty.
    """
    scores = uncertainties(ensemble, x, known.distance)
    detections = {key: score_detection(known.columns[key], scores[key]) for key in known.columns}
    histograms = {key: histogram_of(known.columns[key], scores[key]) for key in HISTOGRAM_SCORES if key in scores}
    return OodResult(name, len(x), detections, histograms)


def histogram_of(known: np.ndarray, ood: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges (B + 1,) that span both groups, and how many of each lie between them (B,)."""
    both = np.concatenate([known, ood])
    low, high = float(both.min()), float(both.max())
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
    return edges, np.histogram(known, edges)[0], np.histogram(ood, edges)[0]
