"""Calibrators: frozen maps from a `Predictive` to a better calibrated one of the same members, inputs and classes.

| method | classification | regression |
|---|---|---|
| `temperature` | logits divided by one temperature, or one per label (Guo et al. 2017) | the distribution scaled |
| `member_temperature` | a temperature for each member | a noise factor for each member |
| `pool_temperature` | a temperature for the mean probabilities | |
| `vector` | a factor and a shift for each class's logit (Guo et al. 2017) | |
| `isotonic` | a monotone map for each class's mean probability (Zadrozny & Elkan 2002) | |
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

import murmuration.posthoc.losses as losses
from murmuration.errors import Misuse, unknown
from murmuration.likelihoods import MULTI_LABEL, REGRESSION, TASKS, Categorical, Quantiles
from murmuration.posthoc.serialization import damaged
from murmuration.predictive import SMALLEST_STORED, Predictive, inputs_at_once

FEWEST = 2  # examples to fit on
TEMPERATURES = 0.02, 50.0  # searched range: without mistakes among the examples the optimum is 0
FACTORS = 1e-4, 1e4  # range of a fitted std factor: without errors among the examples the optimum is 0
PRIOR_STD = 0.5  # of log T: of 0.25 to 1.5 and none, the best on held-out halves of the validation rows of four tables
VALID = 1e-9, 1e9  # range of a temperature or factor in a record
RIDGE = 1.0  # precision of the normal prior of `vector` around (1, 0), counted once against N examples

Knots = tuple[tuple[float, ...], tuple[float, ...]]  # increasing probabilities, and the frequency at each


@dataclass(frozen=True)
class Calibrator(ABC):
    """A map from predictives to predictives, fitted on held-out examples; its fields are the fitted numbers."""

    name: ClassVar[str]  # the method that fitted it, a key of `CALIBRATORS`
    task: ClassVar[str] = "classification"  # it was fitted for
    valid: ClassVar[tuple[float, float]] = VALID

    def __post_init__(self) -> None:
        for field in fields(self):
            check_range(getattr(self, field.name), field.name, *self.valid)

    @property
    @abstractmethod
    def about(self) -> str:
        """A one-line description with the fitted numbers."""

    @abstractmethod
    def __call__(self, pred: Predictive) -> Predictive:
        """The calibrated predictive; the given one is not modified."""


def check_predictive(calibrator: Calibrator, pred: Predictive, **fitted: int) -> None:
    """Refuse a predictive of another task, or of other numbers of members, classes or targets, than was fitted on."""
    if pred.task != calibrator.task:
        raise Misuse(
            f"calibrator '{calibrator.name}' was fitted for {calibrator.task}, and this is a {pred.task}: "
            "fit another with fit_calibrator"
        )
    width = pred.outputs.shape[-1] if pred.task == "classification" else pred.mean.shape[-1]
    got = {"members": len(pred.outputs), "classes": width, "labels": width, "targets": width}
    for what, count in fitted.items():
        if count != got[what]:
            raise Misuse(
                f"calibrator '{calibrator.name}' was fitted on {count} {what}, got {got[what]}: "
                "fit another with fit_calibrator on predictions like these"
            )


def check_range(values: Any, name: str, low: float, high: float) -> None:
    """Refuse numbers outside [low, high], NaN included, and empty tuples of numbers or tuples."""
    if isinstance(values, tuple):
        if not values:
            raise damaged(name, [], "at least one entry")
        for i, value in enumerate(values):
            check_range(value, f"{name}[{i}]", low, high)
    elif not low <= values <= high:
        raise damaged(name, values, f"a number from {low:g} to {high:g}")


def span(values: Sequence[float]) -> str:
    """The smallest and the largest value as text.

    >>> span([1.5, 1.1234]), span([2.0])
    ('1.12 to 1.5', '2')
    """
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low} to {high}"


# Temperatures


@dataclass(frozen=True)
class Temperature(Calibrator):
    """Every member's logits divided by the same temperature: above 1 softens, below 1 sharpens (Guo et al. 2017).

    >>> round(Temperature(2.0)(Predictive.from_probs([[0.8, 0.2]])).confidence.item(), 6)  # odds of 4 become 2
    0.666667
    """

    temperature: float
    name: ClassVar[str] = "temperature"

    @property
    def about(self) -> str:
        return f"every logit divided by {self.temperature:.3g}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred)
        if self.temperature == 1:  # not even in the last digit, which decides between equal probabilities
            return pred
        return pred.with_logits(losses.clipped_logits(pred) / self.temperature)


@dataclass(frozen=True)
class MemberTemperature(Calibrator):
    """Each member's logits divided by a temperature of its own."""

    temperatures: tuple[float, ...]  # (S,)
    name: ClassVar[str] = "member_temperature"

    @property
    def about(self) -> str:
        return f"the logits of each member divided by a temperature of its own, {span(self.temperatures)}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred, members=len(self.temperatures))
        if set(self.temperatures) == {1.0}:
            return pred
        logits = losses.clipped_logits(pred)
        return pred.with_logits(logits / logits.new_tensor(self.temperatures)[:, None, None])


def fit_temperature(pred: Predictive, y: Tensor, prior_std: float = PRIOR_STD) -> Temperature:
    """The temperature T, shared by all members, that is most probable given labels y (N,).

    It minimises the mean loss of the mixture plus (log T)^2 / (2 N prior_std^2): log T has a normal prior around 0.
    Without it (`prior_std=math.inf`), T has no lower bound on a few examples that are all classified correctly. With
    one member the mean loss is convex in 1 / T (Guo et al. 2017); with several it need not be, hence the scan before
    the search. The temperature stays in [0.02, 50].
    """

    def loss(log_temperature: float) -> float:
        temperature = math.exp(log_temperature)
        penalty = log_temperature**2 / (2 * len(y) * prior_std**2)
        return losses.mixture_loss(pred, y, lambda logits: logits / temperature) + penalty

    found = losses.minimise_scalar(loss, low=math.log(TEMPERATURES[0]), high=math.log(TEMPERATURES[1]))
    return losses.better_of(pred, y, Temperature(math.exp(found)), Temperature(1.0))


def fit_member_temperature(pred: Predictive, y: Tensor) -> MemberTemperature:
    """The temperature of each member that minimises the loss of this member alone on labels y (N,).

    Averaging reduces confidence: members that are calibrated one by one can leave their mixture underconfident, the
    more so the more they disagree (Rahaman & Thiery 2021; Wu & Gales 2021). `temperature` fits the mixture itself.
    """
    alone = (replace(pred, outputs=outputs[None], weights=None) for outputs in pred.outputs)
    return MemberTemperature(tuple(fit_temperature(member, y).temperature for member in alone))


@dataclass(frozen=True)
class LabelTemperatures(Calibrator):
    """The logits of each label of a multi-label task divided by a temperature of its own, shared by all members."""

    temperatures: tuple[float, ...]  # (K,)
    name: ClassVar[str] = "temperature"
    task: ClassVar[str] = MULTI_LABEL

    @property
    def about(self) -> str:
        return f"the logits of each label divided by a temperature of its own, {span(self.temperatures)}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred, labels=len(self.temperatures))
        return pred.with_logits(pred.logits / pred.logits.new_tensor(self.temperatures))


def fit_label_temperatures(pred: Predictive, y: Tensor) -> LabelTemperatures:
    """The temperature of each label that minimises the loss of the mixture on this label alone, y (N, K).

    A label with logit z is a classification of two classes with logits 0 and z.
    """
    pairs = (torch.stack([torch.zeros_like(z), z], -1) for z in pred.logits.unbind(-1))
    alone = (Predictive(logits, Categorical(2), pred.weights) for logits in pairs)
    found = [fit_temperature(each, labels.long()) for each, labels in zip(alone, y.unbind(-1), strict=True)]
    return LabelTemperatures(tuple(each.temperature for each in found))


# A factor and a shift for each class


@dataclass(frozen=True)
class VectorScaling(Calibrator):
    """Each class's logit z_k replaced by factor_k z_k + shift_k (Guo et al. 2017). Predicted classes may change."""

    factors: tuple[float, ...]  # (K,)
    shifts: tuple[float, ...]  # (K,)
    name: ClassVar[str] = "vector"
    valid: ClassVar[tuple[float, float]] = (-VALID[1], VALID[1])

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.factors) != len(self.shifts):
            raise damaged("shifts", list(self.shifts), f"{len(self.factors)} numbers, as many as factors")

    @property
    def about(self) -> str:
        words = f"multiplied by a factor of its own ({span(self.factors)}) and shifted ({span(self.shifts)})"
        return f"the logit of each class {words}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred, classes=len(self.factors))
        if set(self.factors) == {1.0} and set(self.shifts) == {0.0}:
            return pred
        logits = losses.clipped_logits(pred)
        return pred.with_logits(logits * logits.new_tensor(self.factors) + logits.new_tensor(self.shifts))


def fit_vector(pred: Predictive, y: Tensor) -> VectorScaling:
    """The factor and shift of each class that minimise the loss of the mixture on labels y (N,), by L-BFGS from (1, 0).

    The penalty |(w, b) - (1, 0)|^2 / (2 N), a standard normal prior on each number, is added to the mean loss. Without
    it the shift of a class that never occurs would go to minus infinity; with it the class keeps a probability of the
    order 1 / N. Numbers that the examples do determine move by less than their standard error.
    """
    width = pred.outputs.shape[-1]
    start = torch.cat([torch.ones(width), torch.zeros(width)]).double().to(pred.outputs.device)
    found = losses.minimise(lambda point: vector_loss(pred, y, point, start), start)
    fitted, identity = (VectorScaling(*(tuple(half.tolist()) for half in point.chunk(2))) for point in (found, start))
    return losses.better_of(pred, y, fitted, identity)


def vector_loss(pred: Predictive, y: Tensor, point: Tensor, centre: Tensor) -> tuple[float, Tensor]:
    """The mean penalised loss of the mixture and its gradient (2 K,), at K factors followed by K shifts.

    The gradient of -log sum_s w_s p_s(y) with respect to member s's logits is r_s (p_s - onehot(y)), where the
    responsibility r_s = w_s p_s(y) / sum_t w_t p_t(y).
    """
    factors, shifts = point.chunk(2)
    away = point - centre
    value, gradient = 0.5 * RIDGE * away.square().sum().item(), RIDGE * away
    for part, labels in losses.chunks(pred, y):
        given = losses.clipped_logits(part).double()  # (S, n, K)
        logits = given * factors + shifts
        weighted = part.member_weights.log()[:, None] + losses.label_log_probs(logits, labels)  # (S, n)
        value -= weighted.logsumexp(0).sum().item()
        errors = logits.softmax(-1)
        errors.scatter_add_(-1, labels.expand(len(given), -1)[..., None], -torch.ones_like(weighted)[..., None])
        errors *= weighted.softmax(0)[..., None]
        gradient = gradient + torch.cat([(errors * given).sum((0, 1)), errors.sum((0, 1))])
    return value / len(y), gradient / len(y)


# Calibrated mean probabilities


def with_mean(pred: Predictive, q: Tensor) -> Predictive:
    """Members (S, N, K) close to the given ones, whose mean probabilities are exactly q (N, K).

    Each class is first scaled by q / mean and each member's row renormalised: a step of iterative proportional
    fitting (Deming & Stephan 1940), after which the mean is nearly q. The rest is a shift, q + lambda (p_s - mean),
    with lambda in [0, 1] the largest number per input that leaves no probability negative. Without the first step, a
    class that q makes much rarer would force lambda, and with it all disagreement, towards zero. Members do not change
    where q is their mean already.
    """
    if q.shape != pred.outputs.shape[1:]:
        raise Misuse(f"mean probabilities of shape {tuple(q.shape)}: expected {tuple(pred.outputs.shape[1:])}")
    return Predictive.concatenate([_with_mean(part, rows) for part, rows in losses.chunks(pred, q)])


def _with_mean(pred: Predictive, q: Tensor) -> Predictive:
    scaled = pred.probs * (q / pred.mean.clamp_min(SMALLEST_STORED))  # (S, N, K)
    sums = scaled.sum(-1, keepdim=True)
    members = torch.where(sums > 0, scaled / sums, q)  # a member with no possible class left takes the mean
    mean = pred.average(members)
    values = q + largest_lambda(members, mean, q)[:, None] * (members - mean)
    return pred.with_logits(values.clamp_min(SMALLEST_STORED).log())


def largest_lambda(members: Tensor, mean: Tensor, q: Tensor) -> Tensor:
    """The largest lambda (N,) in [0, 1] for which q + lambda (members - mean) has no negative entry."""
    below = mean - members.amin(0)  # (N, K): only the lowest member of a class can become negative
    return torch.where(below > 0, q / below, torch.inf).amin(-1).clamp_max(1)


def mean_probs_by_chunk(pred: Predictive) -> Tensor:
    """The mean probabilities (N, K); the members' own (S, n, K) exist for one chunk at a time."""
    return torch.cat([part.mean for part in pred.batches(inputs_at_once(pred.outputs, losses.ELEMENTS))])


@dataclass(frozen=True)
class PoolTemperature(Calibrator):
    """The mean probabilities to the power 1 / temperature, normalised; members follow by `with_mean`."""

    temperature: float
    name: ClassVar[str] = "pool_temperature"

    @property
    def about(self) -> str:
        return f"the logarithm of the mean probabilities divided by {self.temperature:.3g}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred)
        if self.temperature == 1:
            return pred
        temper = Temperature(self.temperature)
        pooled = Predictive.from_probs(mean_probs_by_chunk(pred))
        return with_mean(temper(pred), temper(pooled).probs[0])


def fit_pool_temperature(pred: Predictive, y: Tensor) -> PoolTemperature:
    """The temperature of the mean probabilities with the smallest loss on labels y (N,): convex in 1 / T.

    Pooling before calibrating repairs the underconfidence of averages (Rahaman & Thiery 2021).
    """
    found = fit_temperature(Predictive.from_probs(mean_probs_by_chunk(pred)), y)
    return losses.better_of(pred, y, PoolTemperature(found.temperature), PoolTemperature(1.0))


@dataclass(frozen=True)
class Isotonic(Calibrator):
    """Each class's mean probability mapped to the observed frequency, one class against the rest, then normalised.

    A class may get exactly 0, an infinite loss if it occurs after all (1e-12 in `log_prob`); where every class gets 0
    the mean probabilities stay.
    """

    knots: tuple[Knots, ...]  # (K,)
    name: ClassVar[str] = "isotonic"
    valid: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for k, (x, y) in enumerate(self.knots):
            increasing = all(a < b for a, b in pairwise(x)) and list(y) == sorted(y)
            if len(x) != len(y) or not increasing:
                raise damaged(f"knots[{k}]", [list(x), list(y)], "increasing probabilities, as many rising frequencies")

    @property
    def about(self) -> str:
        sizes = span([len(x) for x, _ in self.knots])
        return f"the mean probability of each class replaced by its observed frequency, interpolated from {sizes} knots"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred, classes=len(self.knots))
        mean = mean_probs_by_chunk(pred)
        mapped = torch.stack([interpolate(mean[:, k], knots) for k, knots in enumerate(self.knots)], dim=-1)
        sums = mapped.sum(-1, keepdim=True)
        return with_mean(pred, torch.where(sums > 0, mapped / sums, mean))


def interpolate(values: Tensor, knots: Knots) -> Tensor:
    """The frequencies (N,) at values (N,): linear between knots, constant beyond the first and the last."""
    x, y = (values.new_tensor(part) for part in knots)
    if len(x) == 1:
        return y.expand_as(values)
    right = torch.searchsorted(x, values.contiguous()).clamp(1, len(x) - 1)
    weight = (values - x[right - 1]) / (x[right] - x[right - 1])
    return torch.lerp(y[right - 1], y[right], weight.clamp(0, 1))


def fit_isotonic(pred: Predictive, y: Tensor) -> Isotonic:
    """The non-decreasing map of each class's mean probability with the smallest squared error, one against the rest.

    Pool-adjacent-violators (Zadrozny & Elkan 2002). It takes any monotone shape and so overfits below about a thousand
    examples of a class. Before normalisation, no class's Brier score on the fitting examples is worse than before.
    """
    from sklearn.isotonic import IsotonicRegression

    mean, labels = mean_probs_by_chunk(pred).cpu().numpy(), y.cpu().numpy()
    regression = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    knots = []
    for k in range(mean.shape[1]):
        regression.fit(mean[:, k], (labels == k).astype(float))
        knots.append((tuple(regression.X_thresholds_.tolist()), tuple(regression.y_thresholds_.tolist())))
    return Isotonic(tuple(knots))


# Regression


@dataclass(frozen=True)
class StdScaling(Calibrator):
    """Every deviation from the predictive mean, of members' means and of noise, multiplied by one factor per target.

    The mean stays; aleatoric, epistemic and total standard deviation and the quantiles' distances scale alike.
    """

    factors: tuple[float, ...]  # (K,)
    name: ClassVar[str] = "temperature"
    task: ClassVar[str] = "regression"

    @property
    def about(self) -> str:
        return f"the predictive distribution stretched {span(self.factors)} times around its mean"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred, targets=len(self.factors))
        factors = pred.mean.new_tensor(self.factors)
        if isinstance(pred.likelihood, Quantiles):
            return replace(pred, outputs=pred.likelihood.stretch(pred.outputs.double(), pred.mean, factors))
        means = pred.mean + factors * (pred.member_mean - pred.mean)
        return Predictive.from_moments(means, factors * pred.member_var.sqrt(), pred.weights)


@dataclass(frozen=True)
class MemberStdScaling(Calibrator):
    """Each member's noise multiplied by factors of its own; its mean, and so the epistemic variance, stays."""

    factors: tuple[tuple[float, ...], ...]  # (S, K)
    name: ClassVar[str] = "member_temperature"
    task: ClassVar[str] = "regression"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({len(row) for row in self.factors}) != 1:
            raise damaged("factors", [list(row) for row in self.factors], "as many numbers for each member")

    @property
    def about(self) -> str:
        every = [factor for member in self.factors for factor in member]
        return f"the noise of each member multiplied by a factor of its own, {span(every)}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred, members=len(self.factors), targets=len(self.factors[0]))
        factors = pred.mean.new_tensor(self.factors)[:, None, :]
        return Predictive.from_moments(pred.member_mean, factors * pred.member_var.sqrt(), pred.weights)


def fit_std(pred: Predictive, y: Tensor) -> StdScaling:
    """The factor of each target that minimises the loss of the mixture on targets y (N, K).

    The search starts at factor^2 = mean of (y - mean)^2 / total_var, which is the solution for one member.
    """
    if isinstance(pred.likelihood, Quantiles):
        return fit_quantile_std(pred, y)
    ratios = [((target - part.mean).square() / part.total_var).sum(0) for part, target in losses.chunks(pred, y)]
    start = (torch.stack(ratios).sum(0) / len(y)).sqrt().clamp(*FACTORS).log()
    low, high = (math.log(end) for end in FACTORS)
    found = losses.minimise(lambda point: std_loss(pred, y, point), start, low=low, high=high)
    return losses.better_of(pred, y, StdScaling(tuple(found.exp().tolist())), StdScaling((1.0,) * len(start)))


def fit_quantile_std(pred: Predictive, y: Tensor) -> StdScaling:
    """The same for predicted quantiles: the factor of each target in turn, by a search along its logarithm."""
    factors = [1.0] * y.shape[1]

    def scaled(k: int, log_factor: float) -> StdScaling:
        return StdScaling((*factors[:k], math.exp(log_factor), *factors[k + 1 :]))

    low, high = (math.log(end) for end in FACTORS)
    for k in range(len(factors)):
        best = losses.minimise_scalar(lambda at, k=k: losses.reported_loss(pred, y, scaled(k, at)), low=low, high=high)  # type: ignore[misc]
        factors[k] = losses.better_of(pred, y, scaled(k, best), StdScaling(tuple(factors))).factors[k]
    return StdScaling(tuple(factors))


def std_loss(pred: Predictive, y: Tensor, log_factors: Tensor) -> tuple[float, Tensor]:
    """The mean loss of the scaled mixture, without its constant, and its gradient (K,) by the log factors.

    A member's standardised error is z = (y - m) / (f std) - (m_s - m) / std, with factor f and predictive mean m.
    """
    value, gradient = 0.0, torch.zeros_like(log_factors)
    for part, target in losses.chunks(pred, y):
        std = part.member_var.sqrt()  # (S, n, K)
        errors = (target - part.mean) / (std * log_factors.exp())
        z = errors - (part.member_mean - part.mean) / std
        members = -(0.5 * z.square() + std.log() + log_factors).sum(-1)  # (S, n)
        weighted = part.member_weights.log()[:, None] + members
        value -= weighted.logsumexp(0).sum().item()
        gradient = gradient + (weighted.softmax(0)[..., None] * (1 - z * errors)).sum((0, 1))
    return value / len(y), gradient / len(y)


def fit_member_std(pred: Predictive, y: Tensor) -> MemberStdScaling:
    """The noise factor of each member and target that minimises the loss of this member alone on targets y (N, K).

    In closed form: factor^2 = mean of ((y - mean_s) / std_s)^2. Disagreement then counts twice, in each member's noise
    and in the spread of their means, so the mixture can be too wide; `temperature` fits the mixture itself.
    """
    ratios = [
        ((target - part.member_mean).square() / part.member_var).sum(1) for part, target in losses.chunks(pred, y)
    ]
    factors = (torch.stack(ratios).sum(0) / len(y)).sqrt().clamp(*FACTORS)  # (S, K)
    return MemberStdScaling(tuple(tuple(row) for row in factors.tolist()))


# The table


@dataclass(frozen=True)
class CalibrationMethod:
    """A calibration method: a one-line description, and for each task it serves its record and fit function."""

    about: str
    fits: dict[str, tuple[type, Callable[[Predictive, Tensor], Calibrator]]]


CALIBRATORS: dict[str, CalibrationMethod] = {
    "temperature": CalibrationMethod(
        "one number for all members, fitted to their mixture: logits are divided by it, distributions stretched",
        {
            "classification": (Temperature, fit_temperature),
            MULTI_LABEL: (LabelTemperatures, fit_label_temperatures),
            "regression": (StdScaling, fit_std),
        },
    ),
    "member_temperature": CalibrationMethod(
        "one number for each member, fitted to this member alone",
        {
            "classification": (MemberTemperature, fit_member_temperature),
            "regression": (MemberStdScaling, fit_member_std),
        },
    ),
    "pool_temperature": CalibrationMethod(
        "one number for the mean probabilities: pool the members, then calibrate the pool",
        {"classification": (PoolTemperature, fit_pool_temperature)},
    ),
    "vector": CalibrationMethod(
        "a factor and a shift for each class's logit, fitted to the mixture of members",
        {"classification": (VectorScaling, fit_vector)},
    ),
    "isotonic": CalibrationMethod(
        "a monotone map for each class from its mean probability to its observed frequency",
        {"classification": (Isotonic, fit_isotonic)},
    ),
}


def calibrator_kinds() -> tuple[type, ...]:
    """The record classes of all calibrators, as `from_json` needs them."""
    return tuple(kind for method in CALIBRATORS.values() for kind, _ in method.fits.values())


def calibrator_names(task: str) -> list[str]:
    """The methods that serve a task.

    >>> calibrator_names("regression")
    ['temperature', 'member_temperature']
    """
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    return [name for name, method in CALIBRATORS.items() if task in method.fits]


def fit_calibrator(method: str, pred: Predictive, y: Any) -> Calibrator:
    """A calibrator fitted to a predictive and its targets y, (N,) labels or (N, K) values.

    The examples must not have been trained on, where networks are overconfident, nor be those that are scored later.
    """
    if method not in CALIBRATORS:
        raise unknown("calibrator", method, CALIBRATORS)
    if pred.task not in CALIBRATORS[method].fits:
        raise Misuse(
            f"calibrator '{method}' belongs to classification, and this is a {pred.task}: "
            f"write 'temperature' instead{', or take conformal intervals' if pred.task == REGRESSION else ''}"
        )
    stretches = isinstance(pred.likelihood, Quantiles) and method == "temperature"
    if pred.task == REGRESSION and not (pred.is_gaussian or stretches):
        name = type(pred.likelihood).__name__
        raise Misuse(f"calibrator '{method}' needs Gaussians, and {name} predicts others: take conformal intervals")
    inputs = pred.outputs.shape[1]
    if inputs < FEWEST:
        raise Misuse(f"{inputs} example to fit calibrator '{method}' on: expected at least {FEWEST}, better hundreds")
    check_finite(pred)
    return CALIBRATORS[method].fits[pred.task][1](pred, pred.checked(y))


def check_finite(pred: Predictive) -> None:
    """Refuse outputs that are not finite; of logits, minus infinity is allowed unless a whole row is."""
    classes = pred.task == "classification"
    good = pred.outputs.amax(-1).isfinite() if classes else pred.outputs.isfinite().all(-1)  # (S, N); amax keeps NaN
    if not good.all():
        member, row = (~good).nonzero()[0].tolist()
        raise Misuse(
            f"outputs of member {member} for input {row} are not finite: expected numbers; "
            "leave out the members that diverged with select"
        )
