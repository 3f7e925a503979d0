"""Calibrators: frozen maps from a `Predictive` to a better calibrated one of the same members, inputs and classes.

| method | classification | regression |
|---|---|---|
| `temperature` | logits divided by one temperature, or one per label (Guo et al. 2017) | the distribution scaled |
| `noise_scaling` | | the noise of members scaled |
| `moment_matching` | | one Gaussian of the mixture's moments, its std scaled |
| `member_temperature` | a temperature for each member | a noise factor for each member |
| `pool_temperature` | a temperature for the mean probabilities | |
| `vector` | a factor and a shift for each class's logit (Guo et al. 2017) | |
| `isotonic` | a monotone map for each class's mean probability (Zadrozny & Elkan 2002) | |
| `logit_adjustment` | mean probabilities divided by a power of the class frequencies (Menon et al. 2021) | |
"""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

import murmuration.prediction.posthoc.losses as losses
import murmuration.prediction.posthoc.std_scaling as std_scaling
from murmuration.data.targets import as_numbers
from murmuration.likelihoods import CLASSIFICATION, MULTI_LABEL, REGRESSION, TASKS, Categorical
from murmuration.prediction.checks import SMALLEST_STORED, inputs_at_once
from murmuration.prediction.posthoc.calibrator import VALID, Calibrator, Path, check_predictive, check_range, span
from murmuration.prediction.predictive import SMALLEST_PROBABILITY, Predictive
from murmuration.system.errors import Misuse, described, unknown
from murmuration.system.option_text import number
from murmuration.system.records import damaged

MIN_EXAMPLES = 2  # to fit on
LOG_TEMPERATURES = math.log(0.02), math.log(50.0)  # searched: without mistakes among the examples the optimum is 0
PRIOR_STD = 0.5  # of log T: of 0.25 to 1.5 and none, the best on held-out halves of the validation rows of four tables
PRIOR_STDS = 0.06, 0.12, 0.25, 0.5  # of log T, to choose from
LARGEST_LOSS = -math.log(SMALLEST_PROBABILITY)  # that `Predictive.log_prob` reports of classes
VECTOR_PRIOR_STD = 1.0  # of the normal prior of `vector` around (1, 0), counted once against N examples

Knots = tuple[tuple[float, ...], tuple[float, ...]]  # increasing probabilities, and the frequency at each
UNCHANGED: Knots = ((0.0, 1.0), (0.0, 1.0))  # frequencies as predicted


# Temperatures


@dataclass(frozen=True)
class Temperature(Calibrator):
    """Every member's logits divided by the same temperature: above 1 softens, below 1 sharpens (Guo et al. 2017).

    >>> round(Temperature(2.0)(Predictive.from_probs([[0.8, 0.2]])).confidence.item(), 6)  # odds of 4 become 2
    0.666667
    """

    temperature: float
    name: ClassVar[str] = "temperature"
    prior_stds: ClassVar[tuple[float, ...]] = PRIOR_STDS

    @classmethod
    def identity(cls, pred: Predictive) -> "Temperature":
        return cls(1.0)

    @classmethod
    def path(cls, pred: Predictive, y: Tensor) -> Path:
        """Return the temperatures exp(t) of a mixture of classes."""

        def losses_at(t: float) -> Tensor:
            return losses.mixture_losses(pred, y, lambda logits: logits / math.exp(t)).clamp_max(LARGEST_LOSS)

        return Path(lambda t: cls(math.exp(t)), losses_at, lambda t, s: t.square() / (2 * s**2), LOG_TEMPERATURES)

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
    """Logits divided by one temperature per member."""

    temperatures: tuple[float, ...]  # (S,)
    name: ClassVar[str] = "member_temperature"
    prior_stds: ClassVar[tuple[float, ...]] = PRIOR_STDS

    @classmethod
    def identity(cls, pred: Predictive) -> "MemberTemperature":
        return cls((1.0,) * len(pred.outputs))

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
    """Fit the temperature T, shared by all members, that is most probable given labels y (N,).

    It minimises the mean loss of the mixture plus (log T)^2 / (2 N prior_std^2): log T has a normal prior around 0.
    Without it (`prior_std=math.inf`), T has no lower bound on a few examples that are all classified correctly. With
    one member the mean loss is convex in 1 / T (Guo et al. 2017); with several it need not be, hence the scan before
    the search. The temperature stays in [0.02, 50].
    """

    def loss(log_temperature: float) -> float:
        values = losses.mixture_losses(pred, y, lambda logits: logits / math.exp(log_temperature))
        return values.mean().item() + log_temperature**2 / (2 * len(y) * prior_std**2)

    best = losses.minimise_scalar(loss, low=LOG_TEMPERATURES[0], high=LOG_TEMPERATURES[1])
    return losses.better_of(pred, y, Temperature(math.exp(best)), Temperature(1.0))


def fit_member_temperature(pred: Predictive, y: Tensor, prior_std: float = PRIOR_STD) -> MemberTemperature:
    """Fit each member's temperature to labels y (N,), by the loss of this member alone.

    Averaging reduces confidence: members that are calibrated one by one can leave their mixture underconfident, the
    more so the more they disagree (Rahaman & Thiery 2021; Wu & Gales 2021). `temperature` fits the mixture itself.
    """
    members = (replace(pred, outputs=outputs[None], weights=None) for outputs in pred.outputs)
    return MemberTemperature(tuple(fit_temperature(member, y, prior_std).temperature for member in members))


@dataclass(frozen=True)
class LabelTemperatures(Calibrator):
    """Logits of a multi-label task divided by one temperature per label, shared by all members."""

    temperatures: tuple[float, ...]  # (K,)
    name: ClassVar[str] = "temperature"
    task: ClassVar[str] = MULTI_LABEL

    @classmethod
    def identity(cls, pred: Predictive) -> "LabelTemperatures":
        return cls((1.0,) * pred.outputs.shape[-1])

    @property
    def about(self) -> str:
        return f"the logits of each label divided by a temperature of its own, {span(self.temperatures)}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred, labels=len(self.temperatures))
        if set(self.temperatures) == {1.0}:
            return pred
        return pred.with_logits(pred.logits / pred.logits.new_tensor(self.temperatures))


def labels_alone(pred: Predictive, y: Tensor) -> Iterator[tuple[Predictive, Tensor]]:
    """Yield each label of y (N, K) as a classification of two classes, with logits 0 and z."""
    for z, labels in zip(pred.logits.unbind(-1), y.unbind(-1), strict=True):
        yield Predictive(torch.stack([torch.zeros_like(z), z], -1), Categorical(2), pred.weights), labels.long()


def fit_label_temperatures(pred: Predictive, y: Tensor, prior_std: float = PRIOR_STD) -> LabelTemperatures:
    """Fit each label's temperature to y (N, K), by the loss of the mixture on this label alone."""
    fitted = [fit_temperature(label_pred, labels, prior_std) for label_pred, labels in labels_alone(pred, y)]
    return LabelTemperatures(tuple(label.temperature for label in fitted))


# A factor and a shift for each class


@dataclass(frozen=True)
class VectorScaling(Calibrator):
    """Each class's logit z_k replaced by factor_k z_k + shift_k (Guo et al. 2017). Predicted classes may change."""

    factors: tuple[float, ...]  # (K,)
    shifts: tuple[float, ...]  # (K,)
    name: ClassVar[str] = "vector"
    valid: ClassVar[tuple[float, float]] = (-VALID[1], VALID[1])
    prior_stds: ClassVar[tuple[float, ...]] = (0.1, 0.3, 1.0)  # of the numbers themselves

    @classmethod
    def identity(cls, pred: Predictive) -> "VectorScaling":
        width = pred.outputs.shape[-1]
        return cls((1.0,) * width, (0.0,) * width)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.factors) != len(self.shifts):
            raise damaged("shifts", list(self.shifts), f"{len(self.factors)} numbers, as many as factors")

    @property
    def about(self) -> str:
        factors, shifts = span(self.factors), span(self.shifts)
        return f"the logit of each class multiplied by a factor of its own ({factors}) and shifted ({shifts})"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred, classes=len(self.factors))
        if set(self.factors) == {1.0} and set(self.shifts) == {0.0}:
            return pred
        logits = losses.clipped_logits(pred)
        return pred.with_logits(logits * logits.new_tensor(self.factors) + logits.new_tensor(self.shifts))


def fit_vector(pred: Predictive, y: Tensor, prior_std: float = VECTOR_PRIOR_STD) -> VectorScaling:
    """Fit the factor and shift of each class to labels y (N,): smallest loss of the mixture, by L-BFGS from (1, 0).

    The penalty |(w, b) - (1, 0)|^2 / (2 N prior_std^2), a normal prior on each number, is added to the mean loss.
    Without it the shift of a class that never occurs would go to minus infinity; with it the class keeps a probability
    of the order 1 / N. Numbers that the examples do determine move by less than their standard error.
    """
    width = pred.outputs.shape[-1]
    start = torch.cat([torch.ones(width), torch.zeros(width)]).double().to(pred.outputs.device)
    minimum = losses.minimise(lambda point: vector_loss(pred, y, point, start, prior_std), start)
    fitted, identity = (VectorScaling(*(tuple(half.tolist()) for half in point.chunk(2))) for point in (minimum, start))
    return losses.better_of(pred, y, fitted, identity)


def vector_loss(
    pred: Predictive, y: Tensor, point: Tensor, centre: Tensor, prior_std: float = VECTOR_PRIOR_STD
) -> tuple[float, Tensor]:
    """Return the mean penalised loss of the mixture and its gradient (2 K,), at K factors followed by K shifts.

    The gradient of -log sum_s w_s p_s(y) with respect to member s's logits is r_s (p_s - onehot(y)), where the
    responsibility r_s = w_s p_s(y) / sum_t w_t p_t(y).
    """
    factors, shifts = point.chunk(2)
    away = (point - centre) / prior_std
    value, gradient = 0.5 * away.square().sum().item(), away / prior_std
    for part, labels in losses.chunks(pred, y):
        raw_logits = losses.clipped_logits(part).double()  # (S, n, K)
        logits = raw_logits * factors + shifts
        weighted = part.member_weights.log()[:, None] + losses.label_log_probs(logits, labels)  # (S, n)
        value -= weighted.logsumexp(0).sum().item()
        errors = logits.softmax(-1)
        errors.scatter_add_(-1, labels.expand(len(raw_logits), -1)[..., None], -torch.ones_like(weighted)[..., None])
        errors *= weighted.softmax(0)[..., None]
        gradient = gradient + torch.cat([(errors * raw_logits).sum((0, 1)), errors.sum((0, 1))])
    return value / len(y), gradient / len(y)


# Calibrated mean probabilities


def with_mean(pred: Predictive, q: Tensor) -> Predictive:
    """Shift members (S, N, K) so that their mean probabilities are exactly q (N, K).

    Each class is first scaled by q / mean and each member's row renormalised: a step of iterative proportional
    fitting (Deming & Stephan 1940), after which the mean is nearly q. The rest is a shift, q + lambda (p_s - mean),
    with lambda in [0, 1] the largest number per input that leaves no probability negative. Without the first step, a
    class that q makes much rarer would force lambda, and with it all disagreement, towards zero. Members do not change
    where q is their mean already.
    """
    if q.shape != pred.outputs.shape[1:]:
        raise Misuse(f"mean probabilities of shape {tuple(q.shape)}: expected {tuple(pred.outputs.shape[1:])}")
    shifted = []
    for part, rows in losses.chunks(pred, q):
        scaled = part.probs * (rows / part.mean.clamp_min(SMALLEST_STORED))  # (S, n, K)
        sums = scaled.sum(-1, keepdim=True)
        members = torch.where(sums > 0, scaled / sums, rows)  # a member with no possible class left takes the mean
        mean = part.average(members)
        values = rows + largest_lambda(members, mean, rows)[:, None] * (members - mean)
        shifted.append(part.with_logits(values.clamp_min(SMALLEST_STORED).log()))
    return Predictive.concatenate(shifted)


def largest_lambda(members: Tensor, mean: Tensor, q: Tensor) -> Tensor:
    """Return the largest lambda (N,) in [0, 1] for which q + lambda (members - mean) has no negative entry."""
    below = mean - members.amin(0)  # (N, K): only the lowest member of a class can become negative
    return torch.where(below > 0, q / below, torch.inf).amin(-1).clamp_max(1)


def mean_probs_by_chunk(pred: Predictive) -> Tensor:
    """Return the mean probabilities (N, K); the members' own (S, n, K) exist for one chunk at a time."""
    return torch.cat([part.mean for part in pred.batches(inputs_at_once(pred.outputs, losses.ELEMENTS))])


class PoolTemperature(Temperature):
    """The mean probabilities to the power 1 / temperature, normalised; members follow by `with_mean`."""

    name: ClassVar[str] = "pool_temperature"

    @classmethod
    def path(cls, pred: Predictive, y: Tensor) -> Path:
        return super().path(Predictive.from_probs(mean_probs_by_chunk(pred)), y)

    @property
    def about(self) -> str:
        return f"the logarithm of the mean probabilities divided by {self.temperature:.3g}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred)
        if self.temperature == 1:
            return pred
        pooled = super().__call__(Predictive.from_probs(mean_probs_by_chunk(pred)))
        return with_mean(super().__call__(pred), pooled.probs[0])


def fit_pool_temperature(pred: Predictive, y: Tensor, prior_std: float = PRIOR_STD) -> PoolTemperature:
    """Fit the temperature of the mean probabilities to labels y (N,): a problem convex in 1 / T.

    Pooling before calibrating repairs the underconfidence of averages (Rahaman & Thiery 2021).
    """
    fitted = fit_temperature(Predictive.from_probs(mean_probs_by_chunk(pred)), y, prior_std)
    return losses.better_of(pred, y, PoolTemperature(fitted.temperature), PoolTemperature(1.0))


@dataclass(frozen=True)
class Isotonic(Calibrator):
    """Each class's mean probability mapped to the observed frequency, one class against the rest, then normalised.

    A class may get exactly 0, an infinite loss if it occurs after all (1e-12 in `log_prob`); where every class gets 0
    the mean probabilities stay.
    """

    knots: tuple[Knots, ...]  # (K,)
    name: ClassVar[str] = "isotonic"
    valid: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @classmethod
    def identity(cls, pred: Predictive) -> "Isotonic":
        return cls((UNCHANGED,) * pred.mean.shape[-1])

    def __post_init__(self) -> None:
        super().__post_init__()
        for k, (x, y) in enumerate(self.knots):
            if len(x) != len(y) or not (all(a < b for a, b in pairwise(x)) and list(y) == sorted(y)):
                raise damaged(f"knots[{k}]", [list(x), list(y)], "increasing probabilities, as many rising frequencies")

    @property
    def about(self) -> str:
        sizes = span([len(x) for x, _ in self.knots])
        return f"the mean probability of each class replaced by its observed frequency, interpolated from {sizes} knots"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred, classes=len(self.knots))
        if set(self.knots) == {UNCHANGED}:
            return pred
        mean = mean_probs_by_chunk(pred)
        mapped = torch.stack([interpolate(mean[:, k], knots) for k, knots in enumerate(self.knots)], dim=-1)
        sums = mapped.sum(-1, keepdim=True)
        return with_mean(pred, torch.where(sums > 0, mapped / sums, mean))


def interpolate(values: Tensor, knots: Knots) -> Tensor:
    """Return the frequencies (N,) at values (N,): linear between knots, constant beyond the first and the last."""
    x, y = (values.new_tensor(part) for part in knots)
    if len(x) == 1:
        return y.expand_as(values)
    right = torch.searchsorted(x, values.contiguous()).clamp(1, len(x) - 1)
    return torch.lerp(y[right - 1], y[right], ((values - x[right - 1]) / (x[right] - x[right - 1])).clamp(0, 1))


def fit_isotonic(pred: Predictive, y: Tensor) -> Isotonic:
    """Fit the non-decreasing map of each class's mean probability with the smallest squared error.

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


# Class frequencies


TAUS = tuple(round(0.1 * step, 1) for step in range(31))  # searched powers of the class frequencies


@dataclass(frozen=True)
class LogitAdjustment(Calibrator):
    """Mean probabilities p replaced by p / pi^tau, normalised, for the frequencies pi of the training classes.

    With tau = 1 they are those of classes that are equally frequent (Menon et al. 2021); tau = 0 is the identity.
    Predicted classes change. Members follow their mean, see `with_mean`.
    """

    frequencies: tuple[float, ...]  # (K,)
    tau: float
    name: ClassVar[str] = "logit_adjustment"
    valid: ClassVar[tuple[float, float]] = (0.0, VALID[1])

    @classmethod
    def identity(cls, pred: Predictive) -> "LogitAdjustment":
        width = pred.mean.shape[-1]
        return cls((1 / width,) * width, 0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self.frequencies, "frequencies", VALID[0], 1.0)

    @property
    def about(self) -> str:
        return f"mean probabilities divided by the frequency of the class to the power {self.tau:.3g}, and normalised"

    def __call__(self, pred: Predictive) -> Predictive:
        check_predictive(self, pred, classes=len(self.frequencies))
        return pred if self.tau == 0 else with_mean(pred, self.adjusted(pred.mean))

    def adjusted(self, mean: Tensor) -> Tensor:
        """Return the adjusted mean probabilities (N, K)."""
        return (mean.clamp_min(SMALLEST_STORED).log() - self.tau * mean.new_tensor(self.frequencies).log()).softmax(-1)


def fit_logit_adjustment(
    pred: Predictive, y: Tensor, counts: Sequence[float] | None = None, tau: float | None = None
) -> LogitAdjustment:
    """Fit the adjustment by class frequencies, with the tau of least balanced error on labels y (N,).

    The balanced error is the mean over classes of the share of their examples that are classified wrongly; among
    equal ones the balanced log-loss decides. `counts` are the training examples of each class, those of y if None; a
    class without any counts as one. A given `tau` is taken as it is.
    """
    width = pred.outputs.shape[-1]
    class_counts = y.bincount(minlength=width) if counts is None else as_numbers(counts, "counts that are no numbers")
    if class_counts.ndim != 1 or len(class_counts) != width:
        raise Misuse(f"counts of shape {tuple(class_counts.shape)} for {width} classes: expected one for each class")
    if not class_counts.double().isfinite().all():
        raise Misuse(f"counts {class_counts.tolist()}: expected finite numbers")
    positive_counts = [max(float(count), 1.0) for count in class_counts.tolist()]
    frequencies = tuple(count / sum(positive_counts) for count in positive_counts)
    if tau is not None:
        return LogitAdjustment(frequencies, float(tau))
    mean = pred.mean  # (N, K)

    def scores(calibrator: LogitAdjustment) -> tuple[float, float]:
        probs = calibrator.adjusted(mean)
        wrong, label = probs.argmax(-1) != y, probs.gather(-1, y[:, None])[:, 0]
        return losses.balanced_mean(wrong, y), losses.balanced_mean(-label.clamp_min(SMALLEST_STORED).log(), y)

    return min((LogitAdjustment(frequencies, candidate) for candidate in TAUS), key=scores)


# The table


@dataclass(frozen=True)
class CalibrationMethod:
    """A row of `CALIBRATORS`: a calibration method and how it is fitted.

    Attributes:
        about: One-line description.
        fits: For each task that it serves, the class and the function that fits it, called with (pred, y) and the
            settings by name.
        settings: Numbers that may be written after the name, `temperature:prior_std=1`; the fit functions take them; ()
            if they take none.
        balances_classes: It balances the errors of classes: the fit function also takes the `counts` of training
            examples, settings may be 0, and there is no choice by log-loss.
    """

    about: str
    fits: dict[str, tuple[type[Calibrator], Callable[..., Calibrator]]]
    settings: tuple[str, ...] = ("prior_std",)
    balances_classes: bool = False

    def __post_init__(self) -> None:
        for _, fit in self.fits.values():
            missing = [name for name in self.settings if name not in inspect.signature(fit).parameters]
            if missing:
                raise Misuse(f"the fit function {fit} takes no {missing[0]}: give the row settings=()")

    def fit(self, pred: Predictive, y: Tensor, **options: Any) -> Calibrator:
        """Call the fit function of the task.

        Args:
            pred: Predictions to fit on.
            y: Their labels `(N,)`, or targets `(N, K)`.
            **options: Settings of the row, and `counts` if it balances classes.

        Returns:
            What the function returned.

        Raises:
            Misuse: If it returned anything but a calibrator.
        """
        kind, fit = self.fits[pred.task]
        calibrator = fit(pred, y, **options)
        if not isinstance(calibrator, Calibrator):
            name = getattr(fit, "__name__", fit)
            expected = f"expected a calibrator, such as {kind.__name__}(...)"
            raise Misuse(f"the fit function {name} of '{kind.name}' returned {described(calibrator)}: {expected}")
        return calibrator


TEMPERATURE = "one number for all members, fitted to their mixture: logits are divided by it, distributions stretched"
NOISE = "one number for the noise of all members of a regression; their means stay"
MOMENTS = "one Gaussian with the mean of a regression's mixture, and its standard deviation times one number"
MEMBER = "one number for each member, fitted to this member alone"
POOL = "one number for the mean probabilities: pool the members, then calibrate the pool"
VECTOR = "a factor and a shift for each class's logit, fitted to the mixture of members"
ISOTONIC = "a monotone map for each class from its mean probability to its observed frequency"
RARE = "probabilities divided by class frequencies to a power of least balanced error, or tau=1: for rare classes"
TEMPERATURES: dict[str, Any] = {
    CLASSIFICATION: (Temperature, fit_temperature),
    MULTI_LABEL: (LabelTemperatures, fit_label_temperatures),
    REGRESSION: (std_scaling.StdScaling, std_scaling.fit_std),
}
MEMBER_TEMPERATURES: dict[str, Any] = {
    CLASSIFICATION: (MemberTemperature, fit_member_temperature),
    REGRESSION: (std_scaling.MemberStdScaling, std_scaling.fit_member_std),
}
LOGIT_ADJUSTMENT: dict[str, Any] = {CLASSIFICATION: (LogitAdjustment, fit_logit_adjustment)}
CALIBRATORS: dict[str, CalibrationMethod] = {
    "temperature": CalibrationMethod(TEMPERATURE, TEMPERATURES),
    "noise_scaling": CalibrationMethod(NOISE, {REGRESSION: (std_scaling.NoiseScaling, std_scaling.fit_noise)}),
    "moment_matching": CalibrationMethod(MOMENTS, {REGRESSION: (std_scaling.MomentMatching, std_scaling.fit_moments)}),
    "member_temperature": CalibrationMethod(MEMBER, MEMBER_TEMPERATURES),
    "pool_temperature": CalibrationMethod(POOL, {CLASSIFICATION: (PoolTemperature, fit_pool_temperature)}),
    "vector": CalibrationMethod(VECTOR, {CLASSIFICATION: (VectorScaling, fit_vector)}),
    "isotonic": CalibrationMethod(ISOTONIC, {CLASSIFICATION: (Isotonic, fit_isotonic)}, ()),
    "logit_adjustment": CalibrationMethod(RARE, LOGIT_ADJUSTMENT, ("tau",), balances_classes=True),
}


def method_named(name: str) -> CalibrationMethod:
    """Return a row of `CALIBRATORS`; refuse an unknown name, and a row that is something else."""
    if name not in CALIBRATORS:
        raise unknown("calibrator", name, CALIBRATORS)
    row: Any = CALIBRATORS[name]
    if not isinstance(row, CalibrationMethod):
        expected = "write CALIBRATORS['{0}'] = CalibrationMethod(about, {{task: (class, fit function)}}, settings=())"
        raise Misuse(f"row '{name}' of CALIBRATORS is {described(row)}: {expected.format(name)}")
    return row


def parse_method(text: str) -> tuple[str, dict[str, float]]:
    """Split a calibration method into its name and its settings.

    >>> parse_method("logit_adjustment:tau=1"), parse_method("temperature")
    (('logit_adjustment', {'tau': 1.0}), ('temperature', {}))
    """
    if not isinstance(text, str):
        raise Misuse(f"calibrator {text!r}: need a name as text, such as 'temperature'")
    name, _, options = text.partition(":")
    settings, method = {}, method_named(name)
    for option in options.split(",") if options else ():
        key, _, value = option.partition("=")
        key = key.strip()
        if key not in method.settings:
            expected = f"{method.settings[0]}=1" if method.settings else f"no settings; write {name}"
            raise Misuse(f"calibrator '{text}': {name} has {expected}")
        settings[key] = number(value, f"{key} of calibrator {name}")
        if not (settings[key] > 0 or (settings[key] == 0 and method.balances_classes)):
            least = "that is not negative" if method.balances_classes else "above 0"
            raise Misuse(f"calibrator '{text}': expected a number {least}, such as {name}:{method.settings[0]}=1")
    return name, settings


def calibrator_kinds() -> tuple[type, ...]:
    """Return the record classes of all calibrators, as `from_json` needs them."""
    return tuple(kind for name in CALIBRATORS for kind, _ in method_named(name).fits.values())


def calibrator_names(task: str) -> list[str]:
    """Return the methods that serve a task.

    >>> calibrator_names("regression")
    ['temperature', 'noise_scaling', 'moment_matching', 'member_temperature']
    """
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    return [name for name in CALIBRATORS if task in method_named(name).fits]


def fit_calibrator(method: str, pred: Predictive, y: Any, counts: Sequence[float] | None = None) -> Calibrator:
    """Fit a calibrator on held-out examples.

    Whether it helps on other examples is not tested: `choose_calibrator` does that.

    Args:
        method: A key of `CALIBRATORS`, with settings if any: "temperature", "logit_adjustment:tau=1".
        pred: Predictions for examples that were not trained on, where networks are overconfident, and that are not
            scored later.
        y: Their labels `(N,)`, or targets `(N, K)`.
        counts: Training examples of each class, for `logit_adjustment`; those of `y` if None.

    Returns:
        A calibrator; `calibrator(pred)` is the calibrated predictive.

    Raises:
        Misuse: If the method is unknown or does not serve the task, or with fewer than two examples or outputs that
            are not finite.
    """
    name, settings = parse_method(method)
    check_fit(name, pred)
    row = method_named(name)
    options: dict[str, Any] = {"counts": counts, **settings} if row.balances_classes else settings
    return row.fit(pred, pred.checked(y), **options)


def check_fit(name: str, pred: Predictive) -> None:
    """Refuse predictions of a task that a method does not serve, too few of them, and outputs that are not finite."""
    fits = method_named(name).fits
    if pred.task not in fits:
        instead = f"write 'temperature' instead{', or take conformal intervals' if pred.task == REGRESSION else ''}"
        raise Misuse(f"calibrator '{name}' belongs to {next(iter(fits))}, and this is a {pred.task}: {instead}")
    if not fits[pred.task][0].serves(pred):
        other = type(pred.likelihood).__name__
        intervals = 'take conformal intervals alone, mm.PostHocConfig(calibrate="none") or --calibrate none'
        raise Misuse(f"calibrator '{name}' needs Gaussians, and {other} predicts others: {intervals}")
    if (inputs := pred.outputs.shape[1]) < MIN_EXAMPLES:
        least = f"expected at least {MIN_EXAMPLES}, better hundreds"
        raise Misuse(f"{inputs} example to fit calibrator '{name}' on: {least}")
    classes = pred.task == "classification"  # of logits, minus infinity is allowed unless a whole row is
    good = pred.outputs.amax(-1).isfinite() if classes else pred.outputs.isfinite().all(-1)  # (S, N); amax keeps NaN
    if not good.all():
        member, row = (~good).nonzero()[0].tolist()
        hint = "expected numbers; leave out the members that diverged with select"
        raise Misuse(f"outputs of member {member} for input {row} are not finite: {hint}")
