"""`PostHoc`: a calibrator, conformal rules and abstention rules, fitted on validation examples and kept with a run.

The calibrator is chosen between several priors towards the identity, and none, by held-out log-loss (`Choice`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import murmuration.prediction.posthoc.calibration as calibration
import murmuration.prediction.posthoc.conformal as conformal
import murmuration.prediction.posthoc.losses as losses
from murmuration.likelihoods import CLASSIFICATION, MULTI_LABEL, REGRESSION
from murmuration.prediction.outside import MOST_BASELINE, Baseline, fit_baseline
from murmuration.prediction.posthoc.abstention import ABSTAIN_COST, Abstention, by_cost, by_error_rate, by_risk_control
from murmuration.prediction.posthoc.calibrator import Calibrator, Path, calibrate
from murmuration.prediction.posthoc.conformal import IntervalRule, Rule, SetRule
from murmuration.prediction.posthoc_config import PostHocConfig
from murmuration.prediction.predictive import SMALLEST_PROBABILITY, Predictive
from murmuration.system.errors import Failure, Misuse, did_you_mean, listed, shortened, unknown, warn
from murmuration.system.records import from_json

FEWEST = 20  # validation examples: half of them for the calibrator, half for the rules
UNCERTAINTY = {"classification": "confidence", "regression": "total_std"}  # that abstention rules compare
NONE, TEMPERATURE, VECTOR = "none", "temperature", "vector"
UNEQUAL = 1.1  # mean weights of classes that differ by more are unequal
COST = "cost"
ABSTENTION_RULES = (COST, "error-rate", "risk-control")
DEFAULT_METHOD = {"classification": "lac", "regression": "quantile"}
ERRORS = 1.0  # standard errors that a held-out gain must exceed
LEVEL = 0.02  # largest probability of such a gain where the uncalibrated predictions are right
DRAWS, FEW_DRAWS = 499, 16  # of every target from the predictions, for few examples and for more than MANY
TAILS = 5  # degrees of freedom of the noise of such draws: Gaussians are not thought right in their tails
TINY = 1e-6  # gain of the log-loss that is none
MANY = 1000  # examples whose total log-loss is normal enough
POINTS = 33  # of one number between, and beyond, the identity and its best value
FOLDS = 5  # of calibrators of several numbers

Fit = Callable[[float], Calibrator]  # of a prior std


# The choice of a calibrator


@dataclass(frozen=True)
class Choice:
    """Why a calibrator is applied, or none: the record that is kept with it.

    A calibrator fitted on a few examples often makes predictions worse. `choose_calibrator` fits it under priors of
    several strengths, estimates by how much each lowers the log-loss of examples that it was not fitted on, and takes
    the one whose gain minus its standard error is largest. It is kept only if that is positive, and if targets drawn
    from the uncalibrated predictions themselves would seldom gain as much by the same calibrator. Without the second
    condition a few examples that are all right would sharpen every classifier: their losses hardly vary, and neither
    does their gain.
    """

    method: str  # as asked for
    kept: bool  # False: the identity is applied
    prior_std: float  # of the best candidate, kept or not; smaller is nearer to the identity
    gain: float  # by which it lowers the log-loss of held-out examples, in nats, on average
    error: float  # standard error of the gain
    p_value: float  # probability of such a gain where the uncalibrated predictions are right

    @property
    def about(self) -> str:
        """Return the decision in one sentence, without its full stop."""
        if abs(self.gain) < TINY:
            return f"{self.method} is left out: the NLL of held-out examples does not change"
        held_out = f"the NLL of held-out examples {'falls' if self.gain > 0 else 'rises'} by {abs(self.gain):.3g}"
        measured = f"{held_out} (standard error {self.error:.2g})"
        if self.kept:
            return f"{self.method} is kept: {measured}, prior std {self.prior_std:g}"
        if self.gain > ERRORS * self.error:
            return f"{self.method} is left out: {measured}, not significant (p = {self.p_value:.2g}, level {LEVEL:g})"
        return f"{self.method} is left out: {measured}, no gain beyond noise"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A prior and the losses (N,) of every example under the calibrator fitted on the others."""

    prior_std: float
    held_out: Tensor
    fit: Fit

    def gain(self, before: Tensor) -> tuple[float, float]:
        """Return the mean by which losses (N,) fall, and its standard error."""
        falls = before - self.held_out
        return falls.mean().item(), (falls.std() / math.sqrt(len(falls))).item()


def choose_calibrator(
    method: str,
    pred: Predictive,
    y: Any,
    counts: Sequence[float] | None = None,
    class_weights: Sequence[float] | None = None,
) -> tuple[Calibrator, Choice | None]:
    """Choose the calibrator of a method that helps on held-out examples, or its identity; return it with the record.

    A method with settings written after its name (`temperature:prior_std=0.5`) is fitted as it says, without a choice;
    so is `logit_adjustment`, whose aim is not the log-loss. The `temperature` of a regression chooses also between
    scaling means and noise together, the noise alone, and one Gaussian of the mixture's moments. `vector` begins with
    what unequal weights of classes did to the logits.
    """
    name, settings = calibration.parse_method(method)
    if settings or calibration.method_named(name).balances_classes:
        return calibration.fit_calibrator(method, pred, y, counts), None
    calibration.check_fit(name, pred)
    targets = pred.checked(y)
    if calibration.method_named(name).fits[pred.task][0] is calibration.LabelTemperatures:
        return choose_label_temperatures(pred, targets)
    weights = weights_of_classes(pred, class_weights)
    if name == VECTOR and weights is not None:
        return choose_unweighted(pred, targets, weights)
    return best_or_identity(name, pred, targets, LEVEL)


def choose_unweighted(pred: Predictive, y: Tensor, weights: Sequence[float]) -> tuple[Calibrator, Choice]:
    """Undo the weights of classes, then choose a vector scaling of what is left, or none.

    Training on examples that weigh w_c by class learns probabilities proportional to w_c p_c, so the logit of a class
    is too large by log w_c. That shift is known and always applied; a factor and a further shift of each class must
    help on held-out examples, as those of every other calibrator.
    """
    shifts = tuple(-math.log(weight) if weight > 0 else 0.0 for weight in weights)
    unweighted = calibration.VectorScaling((1.0,) * len(shifts), shifts)
    moved = calibrate(unweighted, pred)
    fitted, choice = best_or_identity(VECTOR, moved, y, LEVEL)
    assert isinstance(fitted, calibration.VectorScaling)
    joined = (factor * own + more for factor, own, more in zip(fitted.factors, shifts, fitted.shifts, strict=True))
    both = calibration.VectorScaling(fitted.factors, tuple(joined))
    falls = moved.log_prob(y) - pred.log_prob(y)
    gain = falls.mean().item() + (choice.gain if choice.kept else 0.0)
    error = (falls.std() / math.sqrt(len(falls))).item()
    return both, Choice(VECTOR, True, choice.prior_std if choice.kept else 0.0, gain, error, luck(pred, both, gain))


def best_or_identity(name: str, pred: Predictive, y: Tensor, level: float) -> tuple[Calibrator, Choice]:
    """Return the candidate of the largest gain minus its standard error, or the identity; and the record."""
    before = -pred.log_prob(y)
    gains = [(candidate, *candidate.gain(before)) for candidate in candidates(name, pred, y)]
    best, gain, error = max(gains, key=lambda row: row[1] - ERRORS * row[2])
    fitted = best.fit(best.prior_std)
    p_value = luck(pred, fitted, gain) if gain > ERRORS * error else 1.0
    helps = gain > ERRORS * error and p_value <= level
    choice = Choice(name, helps, best.prior_std, gain, error, p_value)
    return fitted if helps else calibration.method_named(name).fits[pred.task][0].identity(pred), choice


def choose_label_temperatures(pred: Predictive, y: Tensor) -> tuple[Calibrator, Choice]:
    """Choose the temperature of each label (N, K), or 1; the record sums up those that are kept.

    The level of the test is divided by the number of labels.
    """
    level = LEVEL / y.shape[1]
    fits = [best_or_identity("temperature", *label, level) for label in calibration.labels_alone(pred, y)]
    choices = [choice for _, choice in fits]
    reported = [c for c in choices if c.kept] or [max(choices, key=lambda c: c.gain - c.error)]
    total, error = sum(c.gain for c in reported), math.sqrt(sum(c.error**2 for c in reported))
    p_value, prior_std = min(1.0, min(c.p_value for c in reported) * y.shape[1]), max(c.prior_std for c in reported)
    record = Choice("temperature", reported[0].kept, prior_std, total, error, p_value)
    temperatures = tuple(calibrator.temperature for calibrator, _ in fits)  # type: ignore[attr-defined]
    return calibration.LabelTemperatures(temperatures), record


# Candidates


def candidates(name: str, pred: Predictive, y: Tensor) -> Iterator[Candidate]:
    """Yield every candidate of a method: its calibrators under priors of several strengths."""
    for method in (name, *calibration.method_named(name).fits[pred.task][0].alternatives):
        row = calibration.method_named(method)
        kind, _ = row.fits[pred.task]
        if kind.serves(pred):
            path = kind.path(pred, y)
            yield from by_folds(row.fit, pred, y, kind.prior_stds) if path is None else on_path(path, kind.prior_stds)


def by_folds(
    fit: Callable[..., Calibrator], pred: Predictive, y: Tensor, prior_stds: Sequence[float]
) -> Iterator[Candidate]:
    """Yield candidates of calibrators of several numbers, each fitted without one fold of the examples at a time."""
    order = np.random.default_rng(0).permutation(len(y))
    folds = [torch.from_numpy(np.sort(fold)) for fold in np.array_split(order, min(FOLDS, len(y)))]
    for prior_std in prior_stds:
        fit_prior = fit if math.isinf(prior_std) else partial(fit, prior_std=prior_std)
        held_out = torch.empty(len(y), dtype=torch.float64, device=y.device)
        for fold in folds:
            training = torch.from_numpy(np.setdiff1d(order, fold))
            held_out[fold] = -calibrate(fit_prior(pred.at(training), y[training]), pred.at(fold)).log_prob(y[fold])
        yield Candidate(prior_std, held_out, lambda _, fit_prior=fit_prior: fit_prior(pred, y))  # type: ignore[misc]


def on_path(path: Path, prior_stds: Sequence[float]) -> Iterator[Candidate]:
    """Yield candidates of one number, with each example left out in turn; losses on a grid serve all of them."""
    furthest = path.best(max(prior_stds), *path.ends)
    reach = max(abs(furthest), 1 / math.sqrt(len(path.losses(0.0)))) / 2
    low, high = (max(path.ends[0], min(0.0, furthest) - reach), min(path.ends[1], max(0.0, furthest) + reach))
    grid = torch.tensor(sorted({*np.linspace(low, high, POINTS).tolist(), 0.0, furthest}), dtype=torch.float64)
    table = torch.stack([path.losses(t) for t in grid.tolist()])  # (G, N)
    for prior_std in prior_stds:
        total = table.sum(1) + path.penalty(grid, prior_std).to(table)  # (G,)
        held_out = table.gather(0, (total[:, None] - table).argmin(0)[None])[0]
        near = int(total.argmin())
        ends = float(grid[max(near - 1, 0)]), float(grid[min(near + 1, len(grid) - 1)])
        yield Candidate(prior_std, held_out, lambda s, ends=ends: path.make(path.best(s, *ends)))  # type: ignore[misc]
    if not path.is_identity:
        yield Candidate(0.0, path.losses(0.0), lambda _: path.make(0.0))


# The test


def luck(pred: Predictive, calibrator: Calibrator, gain: float) -> float:
    """Return the probability of such a gain for targets that are drawn from the predictions.

    On average they lose by it: no other distribution has a lower expected loss than their own. Noise of a regression is
    drawn with heavier tails, those of Student's t. Several labels per input and regressions other than Gaussian ones
    are not tested: 0.
    """
    if pred.task == MULTI_LABEL or (pred.task == REGRESSION and not pred.is_gaussian):
        return 0.0
    gains = own_gains(pred, calibrator, DRAWS if pred.outputs.shape[1] <= MANY else FEW_DRAWS)  # (D, N)
    if len(gains) < DRAWS:
        error = (gains.var(0).sum() * (1 + 1 / len(gains))).sqrt() / gains.shape[1]
        return 0.5 * math.erfc(float((gain - gains.mean()) / error) / math.sqrt(2))
    return (1 + int((gains.mean(1) >= gain).sum())) / (1 + len(gains))


def own_gains(pred: Predictive, calibrator: Calibrator, draws: int) -> Tensor:
    """Compute by how much the calibrator lowers the losses (D, N) of targets drawn from the predictions."""
    rng, (members, count, _) = np.random.default_rng(0), pred.outputs.shape
    if pred.task != REGRESSION:
        probs, other = (p.mean.clamp_min(SMALLEST_PROBABILITY) for p in (pred, calibrate(calibrator, pred)))  # (N, K)
        levels = torch.from_numpy(rng.random((count, draws))).to(probs)
        labels = torch.searchsorted(probs.cumsum(-1), levels).clamp_max(probs.shape[1] - 1)  # (N, D)
        return (other.log() - probs.log()).gather(1, labels).T
    mean, std, rows = pred.member_mean, pred.member_var.sqrt(), torch.arange(count)
    after, gains = calibrate(calibrator, pred), []
    weights = (pred.member_weights / pred.member_weights.sum()).cpu().numpy()
    most = max(1, losses.ELEMENTS // (members * count * mean.shape[-1]))
    for size in [most] * (draws // most) + [draws % most] * (draws % most > 0):
        who = torch.from_numpy(rng.choice(members, (size, count), p=weights))
        noise = math.sqrt(1 - 2 / TAILS) * torch.from_numpy(rng.standard_t(TAILS, (size, *mean.shape[1:]))).to(mean)
        y, repeated_rows = (mean[who, rows] + std[who, rows] * noise).flatten(0, 1), rows.repeat(size)  # (size N, K)
        gains.append((after.at(repeated_rows).log_prob(y) - pred.at(repeated_rows).log_prob(y)).view(size, count))
    return torch.cat(gains)


# All steps


@dataclass(frozen=True)
class PostHoc:
    """The fitted post-hoc steps of an ensemble.

    Attributes:
        calibrator: The calibrator, or None.
        conformal: Conformal rules; predictions are written with the first.
        abstention: Abstention rules.
        calibrator_examples: Number of examples that the calibrator was fitted on.
        rule_examples: Number of examples that the rules were fitted on.
        choice: Why the calibrator is applied or is the identity; None if the caller decided.
        baseline: The prediction without any input, which predictions far outside of the training range approach.
    """

    calibrator: Calibrator | None
    conformal: tuple[Rule, ...]
    abstention: tuple[Abstention, ...]
    calibrator_examples: int
    rule_examples: int
    choice: Choice | None = None
    baseline: Baseline | None = None

    @property
    def summary(self) -> str:
        """Return the calibrator, and the conformal rule that predictions are written with, in one line."""
        rules = [f"conformal {rule.method} of coverage {rule.coverage:g}" for rule in self.conformal[:1]]
        return ", ".join([f"calibrator {self.calibrator_name}", *rules])

    @property
    def calibrator_name(self) -> str:
        """Return the name of the calibrator that changes predictions, "none", or that its identity was kept."""
        if self.calibrator is not None and self.choice is not None and not self.choice.kept:
            return f"{NONE} (identity kept)"
        return NONE if self.calibrator is None else self.calibrator.name

    def __post_init__(self) -> None:
        """Refuse parts of several tasks, two of one name, and abstention rules other than `fit_posthoc` makes."""
        counts = (self.calibrator_examples, self.rule_examples)
        if min(counts) < 0:
            raise Misuse(f"{counts} examples: expected two counts")
        tasks = {"classification" if isinstance(rule, SetRule) else "regression" for rule in self.conformal}
        tasks |= {self.calibrator.task} if self.calibrator is not None else set()
        uncertainties = {UNCERTAINTY[task] for task in tasks if task in UNCERTAINTY} or set(UNCERTAINTY.values())
        methods, names = [rule.method for rule in self.conformal], [rule.name for rule in self.abstention]
        if len(tasks) > 1 or len({*methods, *names}) < len(methods) + len(names):
            raise Misuse(f"{', '.join([*sorted(tasks), *methods, *names])}: expected one of each")
        for rule in self.abstention:
            is_known = rule.name in ABSTENTION_RULES and rule.uncertainty in uncertainties
            if not is_known or bool(rule.costs) != (rule.name == COST):
                got = f"rule '{rule.name:.40}' by '{rule.uncertainty:.40}' with {len(rule.costs)} costs"
                raise Misuse(f"{got}: expected {', '.join(ABSTENTION_RULES)}; the first with two")

    def calibrated(self, pred: Predictive) -> Predictive:
        """Apply the calibrator.

        Args:
            pred: Uncalibrated predictions.

        Returns:
            The calibrated predictive, with `pred` as its `uncalibrated`; `pred` itself without a calibrator.

        Raises:
            Misuse: If the calibrator was fitted on other members or classes.
        """
        calibrated = pred if self.calibrator is None else calibrate(self.calibrator, pred)
        if calibrated is pred:
            return pred
        labels = {name: getattr(pred, name) for name in ("names", "posthoc", "keys", "outside")}
        return replace(calibrated, uncalibrated=pred, **labels)

    def widened(self, pred: Predictive) -> Predictive:
        """Mix predictions for inputs far outside of the training range with the baseline.

        Args:
            pred: Calibrated predictions.

        Returns:
            The same predictions for other inputs; `pred` itself if no input is far outside.
        """
        if self.baseline is None or pred.outside is None or not (pred.outside.weight > 0).any():
            return pred
        return replace(pred, baseline=self.baseline)

    def per_example(self, pred: Predictive, y: Any, *, first: int = 0) -> dict[str, np.ndarray]:
        """Apply all rules to labelled examples.

        Args:
            pred: Calibrated predictions.
            y: Labels (N,), or targets (N, K).
            first: Index of the first input in its data set, which random sets depend on.

        Returns:
            Columns (N,): covered and region size for each conformal rule, answered for each abstention rule.
        """
        columns: dict[str, np.ndarray] = {}
        for rule in self.conformal:
            regions = rule.regions(pred, first=first)
            columns[f"covered_{rule.method}"] = conformal.covered(regions, y)
            columns[f"size_{rule.method}"] = conformal.region_sizes(regions)
        return {**columns, **self.answered(pred)}

    def columns(self, pred: Predictive, first: int = 0) -> dict[str, np.ndarray]:
        """Return the conformal sets or intervals and the decisions that are written with predictions.

        Args:
            pred: Calibrated predictions.
            first: As for `per_example`.

        Returns:
            The set or interval (N, K) by the first conformal rule, and whether the rule by cost answers (N,).
        """
        columns: dict[str, np.ndarray] = {}
        for rule in self.conformal[:1]:
            regions = conformal.arrays(rule.regions(pred, first=first))
            names = ("set",) if len(regions) == 1 else ("conformal_low", "conformal_high")
            columns = {f"{name}_{100 * rule.coverage:g}": part for name, part in zip(names, regions, strict=True)}
        for answered in list(self.answered(pred).values())[:1]:
            columns["answered"] = answered
        return columns

    def answered(self, pred: Predictive) -> dict[str, np.ndarray]:
        """Decide which inputs to answer.

        Args:
            pred: Calibrated predictions.

        Returns:
            A mask (N,) for each abstention rule. Inputs whose prediction is mostly the baseline are not answered.
        """
        if not self.abstention:
            return {}
        values = uncertainty_of(pred)
        near = np.ones(len(values), dtype=bool)
        if pred.outside is not None and self.baseline is not None:
            near = (pred.outside.weight <= MOST_BASELINE).cpu().numpy()
        return {f"answered_{rule.name}": rule.answers(values) & near for rule in self.abstention}


def posthoc_from_json(record: Any) -> PostHoc:
    """Return the post-hoc steps that `to_json` wrote, every part checked."""
    kinds = (*calibration.calibrator_kinds(), SetRule, IntervalRule, Abstention, Choice, Baseline)
    stored = record.get("calibrator") if isinstance(record, dict) else None
    name = stored.get("type") if isinstance(stored, dict) else None
    if isinstance(name, str) and name not in {kind.__name__ for kind in kinds}:
        advice = "import the package that adds it to CALIBRATORS first, or load with posthoc=False"
        raise Failure(f"the calibrator {shortened(name, 60)} is unknown here: {advice}")
    if isinstance(record, dict) and record.get("type") == PostHoc.__name__:
        record = {"baseline": None, **record}  # runs before there was one
    return from_json(record, PostHoc, "post-hoc record", kinds)


def check_config(config: PostHocConfig, task: str) -> None:
    """Refuse a calibrator or conformal method that the task does not have."""
    names, method = (*calibration.calibrator_names(task), NONE), config.calibrate or TEMPERATURE
    if (name := method.partition(":")[0]) not in names:
        raise unknown(f"calibrator for {task}", name, names)
    if name != NONE:
        calibration.parse_method(method)
    if task == MULTI_LABEL:
        if config.conformal is not None:
            raise Misuse(f"conformal={config.conformal} for multi-label: there are no sets of labels; leave it out")
        return
    conformal_methods(task, config.conformal)


def fit_posthoc(
    pred: Predictive,
    y: Any,
    config: PostHocConfig | None = None,
    counts: Sequence[float] | None = None,
    class_weights: Sequence[float] | None = None,
) -> PostHoc:
    """Fit a calibrator, conformal rules and abstention rules on examples that were not trained on.

    The calibrator is fitted on one random half and the rules on the other: conformal coverage is guaranteed only if
    calibration used other examples. The calibrator is applied if it helps held-out examples (`choose_calibrator`).
    Without a calibrator the rules have all examples; a multi-label task has only a calibrator, fitted on all.

    Args:
        pred: Predictions of one ensemble on validation examples, or out-of-fold predictions of models that were each
            trained without a fold of the data, joined by `Predictive.concatenate`.
        y: Their labels (N,), or targets (N, K).
        config: What to fit; None: the defaults.
        counts: Training examples of each class, for calibrators that need them.
        class_weights: Mean sample weight of the training examples of each class, if they had weights.

    Returns:
        The fitted steps.

    Raises:
        Misuse: With fewer than 20 examples, or a method that the task does not have.
    """
    config = config or PostHocConfig()
    check_config(config, pred.task)
    if len(targets := pred.checked(y)) < FEWEST:
        raise Misuse(f"{len(targets)} validation examples: expected at least {FEWEST} to fit post-hoc steps on")
    method = default_calibrator(pred, class_weights) if config.calibrate is None else config.calibrate
    config = replace(config, calibrate=method)
    width = pred.outputs.shape[-1]
    baseline = fit_baseline(targets, pred.task, width)
    if pred.task == MULTI_LABEL:
        fitted = (None, None) if method == NONE else choose_calibrator(method, pred, targets)
        return PostHoc(fitted[0], (), (), 0 if fitted[0] is None else len(targets), 0, fitted[1], baseline)
    first, second = halves(len(targets), config)
    calibrator, choice = None, None
    if method != NONE:
        calibrator, choice = choose_calibrator(method, pred.at(first), targets[first], counts, class_weights)
    held_out, y = pred.at(second) if calibrator is None else calibrate(calibrator, pred.at(second)), targets[second]
    held_out = replace(held_out, outside=pred.at(second).outside, baseline=baseline)
    methods = conformal_methods(pred.task, config.conformal)
    rules = tuple(conformal.fit_conformal(method, held_out, y, coverage=config.coverage) for method in methods)
    return PostHoc(calibrator, rules, fit_abstention(held_out, y, config), len(first), len(second), choice, baseline)


def default_calibrator(pred: Predictive, class_weights: Sequence[float] | None = None) -> str:
    """Return the calibrator of a config that names none; predictions that it does not serve get a note and none.

    Weights of classes, or of examples that weigh classes unequally, multiply the odds of a class by its weight. No
    temperature undoes that, but a shift of its logit does.
    """
    if weights_of_classes(pred, class_weights) is not None:
        reason = "training weighed classes unequally, and a temperature cannot undo the shift of their probabilities"
        warn(f"calibrated by '{VECTOR}': {reason}; another by calibrate=")
        return VECTOR
    if calibration.method_named(TEMPERATURE).fits[pred.task][0].serves(pred):
        return TEMPERATURE
    other = type(pred.likelihood).__name__
    warn(f"no calibrator: '{TEMPERATURE}' needs Gaussians, and {other} predicts others; conformal intervals are fitted")
    return NONE


def weights_of_classes(pred: Predictive, class_weights: Sequence[float] | None) -> list[float] | None:
    """Return how much an example of each class counted in training, or None if all counted about the same.

    Weights of the likelihood and mean weights of the examples of each class multiply.
    """
    if pred.task != CLASSIFICATION:
        return None
    width, own = pred.outputs.shape[-1], getattr(pred.likelihood, "class_weight", None)
    factors = [w for w in (own, class_weights) if isinstance(w, list | tuple) and len(w) == width]
    weights = [math.prod(pair) for pair in zip(*factors, strict=True)]
    present = [weight for weight in weights if weight > 0]
    return weights if present and max(present) > UNEQUAL * min(present) else None


def halves(count: int, config: PostHocConfig) -> tuple[Tensor, Tensor]:
    """Return the indices, in order, of the examples for the calibrator and for the rules: a fixed random split."""
    half = count // 2 if config.calibrate != NONE else 0
    order = torch.from_numpy(np.random.default_rng(0).permutation(count))
    return order[:half].sort().values, order[half:].sort().values


def conformal_methods(task: str, chosen: str | None) -> list[str]:
    """Return the conformal methods of a task, the chosen one first."""
    methods = conformal.CONFORMAL_METHODS[task]
    if chosen is not None and chosen not in methods:
        known = f"{did_you_mean(chosen, methods)}Known: {listed(sorted(methods))}"
        raise Misuse(f"conformal='{chosen}': unknown conformal method for {task}: {known}")
    first = chosen or DEFAULT_METHOD[task]
    return [first, *(method for method in methods if method != first)]


def fit_abstention(pred: Predictive, targets: Tensor, config: PostHocConfig) -> tuple[Abstention, ...]:
    """Return the rules by cost, error rate and risk control; a regression has one by cost, if abstaining has a cost."""
    values, kind, classes = uncertainty_of(pred), UNCERTAINTY[pred.task], pred.task == "classification"
    wrong = (pred.predicted != targets).double() if classes else (pred.mean - targets).abs().mean(-1)
    costs = wrong.cpu().numpy()  # (N,): 1 if the class is wrong, or the mean absolute error
    cost = ABSTAIN_COST if config.abstain_cost is None and classes else config.abstain_cost
    rules = []
    if cost is not None:
        rules.append(by_cost(values, costs, error_cost=config.error_cost, abstain_cost=cost, uncertainty=kind))
    if classes:
        rules.append(by_error_rate(values, costs, max_error_rate=config.max_error_rate, uncertainty=kind))
        rules.append(by_risk_control(values, costs, max_risk=config.max_error_rate, uncertainty=kind))
    return tuple(rules)


def uncertainty_of(pred: Predictive) -> np.ndarray:
    """Return the values (N,) that abstention rules compare: confidence, or the total standard deviation."""
    return (pred.confidence if pred.task == "classification" else pred.total_var.mean(-1).sqrt()).cpu().numpy()
