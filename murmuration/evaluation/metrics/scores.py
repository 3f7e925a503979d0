"""The table of measures: every score is a function of means, over inputs, of features of the columns.

This form is what makes intervals cheap: a bootstrap resample changes only the means, so a thousand resamples
of all scores are one matrix product.

A `Measure` also carries all that tables and reports say of a score: its label, one sentence on what it means, which
way is better, its range, and where it is shown, so that a new measure is one row here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

import murmuration.evaluation.metrics.calibration_error as calibration_error
import murmuration.evaluation.metrics.labels as labels
import murmuration.evaluation.metrics.no_input as no_input
import murmuration.evaluation.metrics.ranking as ranking
from murmuration.evaluation.metrics.intervals import Feature
from murmuration.evaluation.metrics.per_example import Columns
from murmuration.system.errors import Misuse, described, unknown

Task = Literal["classification", "multi-label", "regression"]
Better = Literal["lower", "higher", "neutral"]
Place = Literal["summary", "table", "brief", "shift", "recalibration", "compared", "imbalanced"]
Bounds = tuple[float, float]
POSITIVE, UNIT, BRIER, ANY = (0.0, np.inf), (0.0, 1.0), (0.0, 2.0), (-np.inf, np.inf)

# summary: the cards that open a report; table: the score table of a report; brief: short tables (several recipes on the
# screen, groups of examples); shift: scores followed under corruption; recalibration: scores before and after a
# calibrator; compared: paired tests of two recipes; imbalanced: in front of summary and brief where classes are
# imbalanced, in the place of those that are misleading then
PLACES: tuple[Place, ...] = get_args(Place)
MISLEADING = ("accuracy", "ece")  # where classes are imbalanced: predictions without input have good ones
TABLE: tuple[Place, ...] = ("table",)


class Description(NamedTuple):
    """How a quantity is written: its label, one sentence, and which way is better."""

    label: str
    meaning: str
    better: Better = "neutral"


def only(means: np.ndarray) -> np.ndarray:
    return means[..., 0]


@dataclass(frozen=True)
class Measure:
    """One score of one task: how it is computed, and how it is read and shown.

    Columns have the inputs as their last axis: (N,), or (S, N) where they are of members, or (K, N) of labels and of
    several targets. Those of a classification are label, predicted, correct, log_prob, brier, confidence, entropy,
    expected_entropy, mutual_information, aleatoric, epistemic, aleatoric_predicted, epistemic_predicted, disagreement,
    diversity, member_log_prob, member_brier, member_correct, expected_log_prob, expected_brier, expected_correct, with
    two members or more brier_fair, and with two classes positive_prob.

    Those of a regression are target, predicted, log_prob, squared_error, absolute_error, pit, inside_50, inside_90,
    inside_95, interval_width, aleatoric_std, epistemic_std, total_std, member_log_prob, member_squared_error,
    expected_log_prob, expected_squared_error, for Gaussians crps, for quantiles pinball, and with two members or more
    squared_error_fair and crps_fair.

    Those of a multi-label task are label, predicted, prob, correct, exact, log_prob, brier, entropy, expected_entropy,
    mutual_information, member_log_prob, expected_log_prob, expected_correct.

    Attributes:
        name: Key of the score in records.
        label: Name of the score in tables.
        meaning: One sentence for readers.
        values: Turns the columns of N inputs into one number per input (N,), whose mean is the score; or into several
            features whose means (F,) `combine` makes a statistic of, and `finish` the score.
        task: Task that the score is for.
        better: "lower", "higher" or "neutral".
        bounds: The score lies within, and so does its interval.
        combine: Turns means (..., F) of the features into the statistic (...).
        finish: Increasing function of the statistic that gives the score, such as a root.
        proportion: Whether the score is a mean of zeros and ones: Wilson's interval, written as a percentage.
        needs_members: Whether it is meaningless for one member and left out of tables then.
        shown: Places of the report that show it.
        exists: Whether the score exists for these columns; otherwise it is left out.
        interval: Computes the interval, where there is a better one than by resampling.
    """

    name: str
    label: str
    meaning: str  # one sentence
    values: Callable[[Columns], np.ndarray | list[Feature]]
    task: Task = "classification"
    better: Better = "lower"
    bounds: Bounds = ANY  # the score lies within, and so does its interval
    combine: Callable[[np.ndarray], np.ndarray] = only  # means (..., F) of the features -> statistic (...)
    finish: Callable[[np.ndarray], np.ndarray] = np.asarray  # increasing: statistic -> score, e.g. a root
    proportion: bool = False  # a mean of zeros and ones: Wilson's interval, written as a percentage
    needs_members: bool = False  # meaningless for one member: left out of tables then
    shown: tuple[Place, ...] = TABLE  # see PLACES
    exists: Callable[[Columns], bool] = lambda columns: True  # where it does not, the score is left out
    interval: Callable[[Columns], tuple[float, float]] | None = None  # where there is a better one than by resampling

    def __post_init__(self) -> None:
        if self.better not in get_args(Better):
            raise unknown("direction of a measure", self.better, get_args(Better))
        if not self.bounds[0] < self.bounds[1]:
            raise Misuse(f"measure '{self.name}': bounds {self.bounds}, expected the lower before the upper one")

    def features(self, columns: Columns) -> list[Feature]:
        """Return the features whose means the score is a function of.

        Args:
            columns: Scores and uncertainties of N inputs, by name.
        """
        try:
            values = self.values(columns)
        except KeyError as error:
            if error.args[0] in columns:
                raise
            raise unknown(f"column of measure '{self.name}'", str(error.args[0]), sorted(columns)) from None
        if isinstance(values, list) and values and isinstance(values[0], Feature):
            features = values
        else:
            features = [Feature(np.asarray(values, dtype=float))]
        valid = np.isfinite(columns["log_prob"]) if "log_prob" in columns else np.ones(len(features[0].values), bool)
        for feature in features:
            alike = feature.values.shape == valid.shape
            if not alike or np.isnan(feature.values[valid]).any():
                got = "NaN" if alike else f"the shape {feature.values.shape}"
                raise Misuse(
                    f"values of measure '{self.name}' have {got}: need one number for each of {len(valid)} inputs"
                )
        return features

    def finished(self, statistic: Any) -> np.ndarray:
        """Return the scores of statistics; refuse a `finish` that returns other numbers of them.

        Args:
            statistic: Statistics (...).
        """
        score = self.finish(np.asarray(statistic))
        if score is None or isinstance(score, list | tuple) or np.shape(score) != np.shape(statistic):
            expected = "expected an array of the shape of its argument, such as np.sqrt returns"
            raise Misuse(f"finish of measure '{self.name}' returned {described(score)}: {expected}")
        return score

    def check(self, score: float) -> float:
        """Return the score; refuse one outside its bounds.

        Args:
            score: The computed score.
        """
        low, high = self.bounds
        slack = 1e-9 * max(1.0, abs(score))
        if not low - slack <= score <= high + slack:
            raise Misuse(f"measure '{self.name}' is {score:g}: its bounds are {low:g} to {high:g}; correct either")
        return score

    @property
    def is_mean(self) -> bool:
        """Whether the score is the mean of one number per input."""
        return self.combine is only and self.finish is np.asarray


def root(square: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(square, 0))


def signed_root(square: np.ndarray) -> np.ndarray:
    return np.sign(square) * np.sqrt(np.abs(square))


def column(name: str, sign: float = 1.0) -> Callable[[Columns], np.ndarray]:
    return lambda columns: sign * columns[name]


def as_label(name: str) -> str:
    """Return a name as a label.

    >>> as_label("mutual_information")
    'Mutual information'
    """
    plain = name.replace("_", " ").strip()
    return plain[:1].upper() + plain[1:]


def uncertainty(name: str, meaning: str, bounds: Bounds = UNIT, **fields: Any) -> Measure:
    """Return the mean of the column of that name: neither way is better, and most need members that can differ."""
    settings = {"needs_members": True, "shown": (), **fields}
    return Measure(name, as_label(name), meaning, column(name), better="neutral", bounds=bounds, **settings)


def fair(name: str, source: str, label: str, subject: str, **fields: Any) -> Measure:
    """Return the score that is the mean of a column made for infinitely many members.

    Fewer members are further from the mean of all that could have been trained, so a plain score falls as
    members are added, and ensembles of different sizes cannot be compared by it. By the fair one they can: it
    is the same on average for every S (Ferro 2014; Fricker, Ferro and Stephenson 2013). It exists for what is
    quadratic in the members, and for two members at least; accuracy and nll have none.
    """
    meaning = f"{subject} that infinitely many such members would be expected to have."
    settings: dict[str, Any] = {"shown": (), "needs_members": True, "exists": lambda columns: source in columns}
    return Measure(name, f"Fair {label}", meaning, column(source), **settings, **fields)


def of_member(
    name: str, label: str, subject: str, source: str, over: str = "on average", sign: float = 1.0, **fields: Any
) -> Measure:
    """Return the mean score of one member alone, from a column of means over members."""
    meaning = f"{subject} of one member alone, {over}."
    return Measure(f"member_{name}", f"Member {label}", meaning, column(source, sign), needs_members=True, **fields)


higher_is_better = partial(Measure, better="higher", bounds=UNIT)
non_negative = partial(Measure, bounds=POSITIVE)

C: Task = "classification"
L: Task = "multi-label"
R: Task = "regression"

MEMBER_ACCURACY = of_member("accuracy", "accuracy", "Accuracy", "expected_correct", better="higher", bounds=UNIT)
MEMBER_NLL = of_member("nll", "NLL", "NLL", "expected_log_prob", sign=-1.0, bounds=POSITIVE)

CLASS_MEASURES = (
    higher_is_better(
        "accuracy",
        "Accuracy",
        "Fraction of examples whose most probable class is the true one.",
        column("correct"),
        proportion=True,
        shown=("summary", "table", "brief", "shift", "recalibration", "compared"),
    ),
    non_negative(
        "nll",
        "NLL",
        "Negative log-likelihood of the true class, in nats: confident errors cost most.",
        column("log_prob", -1.0),
        shown=("summary", "table", "brief", "shift", "recalibration", "compared"),
    ),
    Measure(
        "ece",
        "ECE",
        "Expected calibration error: mean gap between confidence and accuracy over 15 bins of equal width, biased "
        "upwards on few examples; its interval is without that bias, except for means over corruptions.",
        calibration_error.binned_gap(calibration_error.confidence_bins),
        bounds=UNIT,
        combine=calibration_error.sum_of_absolutes,
        interval=calibration_error.calibration_interval(calibration_error.confidence_bins),
        shown=("summary", "table", "brief", "shift", "recalibration"),
    ),
    Measure(
        "brier",
        "Brier",
        "Squared distance between the predicted probabilities and the one-hot label, 0 to 2.",
        column("brier"),
        bounds=BRIER,
        shown=("summary", "table", "shift", "recalibration"),
    ),
    higher_is_better(
        "auroc",
        "AUROC",
        "Probability that a random example of the second class gets a higher score than one of the first; 0.5 is "
        "chance.",
        lambda columns: ranking.placement_features(columns["positive_prob"], columns["label"] == 1),
        combine=ranking.error_area,
        exists=ranking.two_classes,
        interval=ranking.auroc_interval,
        shown=("table", "imbalanced"),
    ),
    higher_is_better(
        "average_precision",
        "AP",
        "Average precision, the area under the precision-recall curve of the second class; chance gets its frequency.",
        ranking.precision_influence,
        exists=ranking.two_classes,
        shown=("table", "imbalanced"),
    ),
    higher_is_better(
        "balanced_accuracy",
        "Balanced accuracy",
        "Accuracy within each class, averaged over classes; a constant prediction gets one over their number.",
        lambda columns: no_input.class_accuracy(columns["correct"], columns["label"]),
        interval=no_input.balanced_interval,
        shown=("table", "imbalanced"),
    ),
    fair("brier_fair", "brier_fair", "Brier", "Brier score", bounds=BRIER),
    Measure(
        "ece_adaptive",
        "ECE, adaptive",
        "ECE over 15 bins that hold equally many examples.",
        calibration_error.binned_gap(calibration_error.adaptive_bins),
        bounds=UNIT,
        combine=calibration_error.sum_of_absolutes,
        interval=calibration_error.calibration_interval(calibration_error.adaptive_bins),
        shown=(),
    ),
    Measure(
        "ece_debiased",
        "ECE, debiased",
        "Root mean square calibration error without the bias of sampling noise; may fall below 0 where there is none.",
        calibration_error.squared_gap,
        bounds=(-1.0, 1.0),
        combine=calibration_error.unbiased_square,
        finish=signed_root,
        shown=(),  # below 0 where noise has its way: no value is the best
    ),
    Measure(
        "mce",
        "MCE",
        "Maximum calibration error: the largest gap between confidence and accuracy in any bin.",
        calibration_error.counted_gap,
        bounds=UNIT,
        combine=calibration_error.largest_gap,
        interval=calibration_error.calibration_interval(calibration_error.confidence_bins, largest=True),
        shown=(),
    ),
    Measure(
        "aurc",
        "AURC",
        "Area under the risk-coverage curve: mean error rate when the least certain examples are rejected first.",
        ranking.risk_influence,
        bounds=UNIT,
    ),
    Measure(
        "augrc",
        "AUGRC",
        "Area under the generalised risk-coverage curve: mean fraction of all examples answered wrongly.",
        ranking.generalised_influence,
        bounds=(0.0, 0.5),
        shown=(),
    ),
    higher_is_better(
        "error_auroc",
        "Error AUROC",
        "Probability that a wrong prediction is less confident than a right one; 0.5 is chance.",
        lambda columns: ranking.placement_features(columns["confidence"], columns["correct"]),
        combine=ranking.error_area,
        exists=ranking.right_and_wrong,
        interval=ranking.error_interval,
        shown=(),
    ),
    uncertainty(
        "entropy", "Total uncertainty: entropy of the predictive distribution, in nats.", POSITIVE, needs_members=False
    ),
    uncertainty(
        "expected_entropy", "Aleatoric uncertainty: mean entropy of the members' predictions, in nats.", POSITIVE
    ),
    uncertainty(
        "mutual_information",
        "Epistemic uncertainty: entropy minus expected entropy, in nats; 0 where members agree.",
        POSITIVE,
        shown=("table", "shift"),
    ),
    uncertainty(
        "aleatoric",
        "Variance of the label within a member, averaged over members and summed over classes.",
        needs_members=False,
    ),
    uncertainty("epistemic", "Variance of the members' probabilities, summed over classes."),
    uncertainty("disagreement", "Fraction of pairs of members that predict different classes."),
    MEMBER_ACCURACY,
    MEMBER_NLL,
    of_member("brier", "Brier", "Brier score", "expected_brier", bounds=BRIER, shown=()),
    uncertainty("diversity", "Gain of averaging: mean Brier score of a member minus that of the ensemble.", BRIER),
)


def interval_coverage(percent: int, *shown: Place) -> Measure:
    """Return the fraction of targets inside the central predictive interval of that nominal coverage."""
    return Measure(
        f"coverage_{percent}",
        f"Coverage, {percent} %",
        f"Fraction of targets inside the {percent} % predictive interval; below {percent} % is overconfident.",
        column(f"inside_{percent}"),
        better="neutral",
        bounds=UNIT,
        proportion=True,
        shown=shown,
    )


REGRESSION_MEASURES = (
    non_negative(
        "rmse",
        "RMSE",
        "Root mean square error, in the target's unit.",
        column("squared_error"),
        finish=root,
        shown=("summary", "table", "brief", "shift", "compared"),
    ),
    Measure(
        "r2",
        "R\u00b2",
        "Share of the targets' variance that predictions explain: 1 is all, 0 no more than their mean does.",
        no_input.explained,
        better="higher",
        bounds=(-np.inf, 1.0),
        combine=no_input.mean_explained,
        exists=no_input.varied,
        shown=("summary", "table", "brief"),
    ),
    Measure(
        "nll",
        "NLL",
        "Negative log-density of the target, in nats: confident errors cost most.",
        column("log_prob", -1.0),
        shown=("summary", "table", "brief", "shift", "recalibration", "compared"),
    ),
    non_negative(
        "crps",
        "CRPS",
        "Continuous ranked probability score: distance of the predictive distribution from the target, in its unit.",
        column("crps"),
        exists=lambda columns: "crps" in columns,
        shown=("summary", "table", "shift", "recalibration"),
    ),
    Measure(
        "crps_skill",
        "CRPS skill",
        "One minus the CRPS over that of the distribution of targets without input: 1 is perfect, 0 no better.",
        no_input.crps_features,
        better="higher",
        bounds=(-np.inf, 1.0),
        combine=no_input.skill,
        exists=lambda columns: "crps" in columns and no_input.varied(columns),
    ),
    non_negative(
        "pinball",
        "Pinball",
        "Pinball loss of the predicted quantiles, mean over their levels, in the target's unit.",
        column("pinball"),
        exists=lambda columns: "pinball" in columns,
    ),
    interval_coverage(90, "summary", "table", "brief", "shift", "recalibration"),
    non_negative("mae", "MAE", "Mean absolute error, in the target's unit.", column("absolute_error")),
    non_negative(
        "sharpness",
        "Sharpness",
        "Mean width of the 90 % predictive interval: comparable only at the right coverage.",
        column("interval_width"),
    ),
    fair("rmse_fair", "squared_error_fair", "RMSE", "RMSE", finish=signed_root),
    fair("crps_fair", "crps_fair", "CRPS", "CRPS"),
    interval_coverage(50, "table"),
    interval_coverage(95),
    non_negative(
        "aurc",
        "AURC",
        "Area under the risk-coverage curve: mean absolute error when the least certain examples are rejected first.",
        ranking.risk_influence,
        shown=(),
    ),
    non_negative(
        "augrc",
        "AUGRC",
        "Area under the generalised risk-coverage curve, in absolute errors per example.",
        ranking.generalised_influence,
        shown=(),
    ),
    uncertainty(
        "aleatoric_std",
        "Mean standard deviation of the noise that members predict.",
        POSITIVE,
        needs_members=False,
        shown=TABLE,
    ),
    uncertainty("epistemic_std", "Mean standard deviation of the members' means.", POSITIVE, shown=("table", "shift")),
    of_member(
        "rmse", "RMSE", "RMSE", "expected_squared_error", "over members and inputs", bounds=POSITIVE, finish=root
    ),
    replace(MEMBER_NLL, bounds=ANY),
)

LABEL_MEASURES = (
    higher_is_better(
        "accuracy", "Accuracy", "Fraction of labels predicted right, mean over labels and examples.", column("correct")
    ),
    higher_is_better(
        "exact_match",
        "Exact match",
        "Fraction of examples all of whose labels are predicted right.",
        column("exact"),
        proportion=True,
    ),
    higher_is_better(
        "macro_f1",
        "Macro F1",
        "Harmonic mean of precision and recall of each label, averaged over labels; 0 for a label in neither.",
        labels.label_frequencies,
        combine=labels.mean_f1,
    ),
    non_negative(
        "nll",
        "NLL",
        "Negative log-likelihood of all labels of an example, in nats, under the mixture of members.",
        column("log_prob", -1.0),
    ),
    Measure(
        "ece",
        "ECE",
        "Expected calibration error of each label, probability against frequency over 15 bins, averaged over labels.",
        labels.label_gaps,
        bounds=UNIT,
        combine=labels.mean_gap,
    ),
    Measure(
        "brier",
        "Brier",
        "Squared difference of probability and label, mean over labels, 0 to 1.",
        column("brier"),
        bounds=UNIT,
    ),
    uncertainty(
        "mutual_information",
        "Epistemic uncertainty: entropy minus expected entropy of each label, in nats, summed over labels.",
        POSITIVE,
    ),
    MEMBER_ACCURACY,
    MEMBER_NLL,
)

MEASURES: dict[Task, dict[str, Measure]] = {
    C: {measure.name: measure for measure in CLASS_MEASURES},
    L: {measure.name: replace(measure, task=L) for measure in LABEL_MEASURES},
    R: {measure.name: replace(measure, task=R) for measure in REGRESSION_MEASURES},
}

QUANTITIES: dict[str, Description] = {  # shown beside the scores, computed elsewhere
    "ece_pooled": Description("ECE, pooled", "ECE of the predictions under all corruptions together.", "lower"),
    "detection_auroc": Description(
        "AUROC", "Probability that an OOD input is less certain than an in-distribution one; 0.5 is chance.", "higher"
    ),
    "detection_aupr": Description(
        "AUPR", "Average precision with the OOD inputs as positives; chance gets their frequency.", "higher"
    ),
    "detection_fpr95": Description(
        "FPR95", "Fraction of OOD inputs accepted where 95 % of in-distribution inputs are.", "lower"
    ),
    "confidence": Description("Confidence", "Probability of the predicted class."),
    "energy": Description("Energy", "Minus the log-sum-exp of the logits."),
    "max_probability": Description("1 \u2212 max. probability", "One minus the confidence."),
    "logit_variance": Description("Logit variance", "Variance of the members' logits."),
    "mahalanobis": Description("Mahalanobis distance", "Distance to the nearest class mean in feature space."),
    "nearest_neighbours": Description(
        "Nearest neighbours", "Distance to the tenth nearest training example in feature space."
    ),
    "total_std": Description("Total std", "Standard deviation of the predictive distribution."),
    "mean_kernel": Description("Mean kernel", "Mean kernel value between two members, 0 to 1."),
    "cosine": Description("Cosine", "Mean cosine between the coupling features of two members."),
    "push_to_loss": Description("Repulsion / loss gradient", "Norm of the repulsion's gradient over that of the loss."),
}


def add_measure(measure: Measure) -> Measure:
    """Register a measure: it is computed with all scores of its task, and reports show and explain it.

    Args:
        measure: The measure; its name must be new for its task.

    Returns:
        The same measure.

    Raises:
        Misuse: If it is not a `Measure`, its task or a place is unknown, or its name is taken.

    >>> import murmuration as mm
    >>> half = mm.add_measure(mm.Measure("half", "Half", "Half the accuracy.", lambda columns: columns["correct"] / 2))
    >>> float(mm.score(mm.Predictive.from_probs([[0.7, 0.3], [0.4, 0.6]]), [0, 0])["half"])
    0.25
    >>> mm.remove_measure(half)
    """
    if not isinstance(measure, Measure):
        raise Misuse(f"add_measure got {described(measure)}: write mm.Measure(name, label, meaning, values)")
    if measure.task not in MEASURES:
        raise unknown("task", measure.task, MEASURES)
    strange = [place for place in measure.shown if place not in PLACES]
    if strange:
        raise unknown("place of a measure", strange[0], PLACES)
    if measure.name in MEASURES[measure.task]:
        raise Misuse(f"there is a {measure.task} measure '{measure.name}' already: choose another name")
    MEASURES[measure.task][measure.name] = measure
    return measure


def remove_measure(measure: Measure) -> None:
    """Remove a measure that `add_measure` registered.

    Args:
        measure: The registered measure.

    Raises:
        Misuse: If it is not registered.
    """
    if MEASURES[measure.task].get(measure.name) is not measure:
        raise Misuse(f"the {measure.task} measure '{measure.name}' is not registered")
    del MEASURES[measure.task][measure.name]


def measure_of(name: str, task: Task) -> Measure:
    """Return the measure of that name."""
    if name not in MEASURES[task]:
        raise unknown(f"{task} score", name, MEASURES[task], see="murmur list measures")
    return MEASURES[task][name]


def shown_in(place: Place, task: Task, *, members: int = 2, imbalanced: bool = False) -> list[str]:
    """Return the names of the measures that are shown in a place, in the order of the table.

    Args:
        place: One of `PLACES`, such as "brief".
        task: classification, multi-label or regression.
        members: Number of members; with one, measures that need several are left out.
        imbalanced: Whether classes are imbalanced: measures that say more then come first, and those that say little
            are left out.

    Returns:
        The names.

    >>> shown_in("brief", "regression")
    ['rmse', 'r2', 'nll', 'coverage_90']
    >>> shown_in("brief", "classification", imbalanced=True)
    ['auroc', 'average_precision', 'balanced_accuracy', 'nll']
    """
    shown = [measure for measure in MEASURES[task].values() if members > 1 or not measure.needs_members]
    names = [measure.name for measure in shown if place in measure.shown]
    if not imbalanced:
        return names
    return [m.name for m in shown if "imbalanced" in m.shown] + [name for name in names if name not in MISLEADING]


def describe(name: str, task: Task = C) -> Description:
    """Return the label, meaning and direction of a score or another quantity.

    Args:
        name: The name of the quantity.
        task: The task whose measure takes precedence.

    Returns:
        Its description; an unknown name becomes its own label.

    >>> describe("ece").label, describe("my_score").label
    ('ECE', 'My score')
    """
    measure = MEASURES[task].get(name) or next((table[name] for table in MEASURES.values() if name in table), None)
    if measure is not None:
        return Description(measure.label, measure.meaning, measure.better)
    return QUANTITIES.get(name, Description(as_label(name), ""))
