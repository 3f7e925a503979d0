"""How numbers and scores are written for a reader: digits, labels, directions, one-sentence explanations."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from murmuration.reports.records import Score

MISSING = "\u2013"  # a dash
MINUS, TIMES = "\u2212", "\u00d7"
ARROWS = {"higher": "↑", "lower": "↓", "": ""}


class Meaning(NamedTuple):
    """What a score's name stands for."""

    label: str
    better: str  # "higher", "lower", or "" when neither
    reading: str


MEANINGS = {
    "accuracy": Meaning("Accuracy", "higher", "Share of test examples whose most probable class is the true one."),
    "nll": Meaning(
        "NLL",
        "lower",
        "Surprise at the truth, in nats: being wrong costs, being sure and wrong costs much more.",
    ),
    "brier": Meaning(
        "Brier", "lower", "Squared distance between the predicted probabilities and what happened, 0 to 2."
    ),
    "ece": Meaning("ECE", "lower", "Average gap between confidence and accuracy: 0.02 means off by two points."),
    "ece_adaptive": Meaning("ECE, adaptive", "lower", "The same gap, in bins that hold equally many examples."),
    "ece_debiased": Meaning("ECE, debiased", "lower", "The gap less what noise alone would show; it may fall below 0."),
    "mce": Meaning("MCE", "lower", "The largest gap between confidence and accuracy in any bin."),
    "ece_pooled": Meaning(
        "ECE, pooled", "lower", "The gap when the predictions under all corruptions are judged together."
    ),
    "brier_fair": Meaning(
        "Brier, fair", "lower", "The Brier score that infinitely many such members would be expected to have."
    ),
    "augrc": Meaning(
        "AUGRC", "lower", "Mean share of all examples answered wrongly, when the least certain are set aside first."
    ),
    "aurc": Meaning("AURC", "lower", "Mean error rate when the least certain examples are set aside first."),
    "error_auroc": Meaning(
        "Error AUROC",
        "higher",
        "How well uncertainty ranks wrong predictions above right ones; 0.5 is chance.",
    ),
    "ood_auroc": Meaning(
        "OOD AUROC", "higher", "How well uncertainty tells foreign inputs from familiar ones; 0.5 is chance."
    ),
    "auroc": Meaning(
        "AUROC", "higher", "Chance that a foreign input looks less certain than a familiar one; 0.5 is a coin toss."
    ),
    "aupr": Meaning(
        "AUPR",
        "higher",
        "Mean share of foreign inputs among those flagged; a coin toss gets the share of foreign inputs in the mix.",
    ),
    "fpr95": Meaning(
        "FPR95", "lower", "Share of foreign inputs let in by the threshold that lets in 95 % of the familiar ones."
    ),
    "coverage": Meaning(
        "Coverage", "", "Share of truths inside the predicted sets; it should reach what was promised."
    ),
    "set_size": Meaning(
        "Set size", "lower", "Mean size of the predicted sets: worth something if their coverage is right."
    ),
    "energy": Meaning(
        "Energy", "", "How weakly the networks respond to an input, before their outputs become probabilities."
    ),
    "max_probability": Meaning(f"1 {MINUS} max. probability", "", "How far the highest probability is from one."),
    "logit_variance": Meaning("Logit variance", "", "How far the members' raw outputs lie apart."),
    "mahalanobis": Meaning(
        "Mahalanobis distance", "", "Distance of an input's features to those of the nearest class, by their spread."
    ),
    "nearest_neighbours": Meaning(
        "Nearest neighbours", "", "Distance of an input's features to the tenth nearest training example."
    ),
    "confidence": Meaning("Confidence", "", "Probability of the class that was predicted."),
    "entropy": Meaning("Entropy", "", "Total uncertainty of a prediction, in nats."),
    "expected_entropy": Meaning("Expected entropy", "", "The part of it that the members agree on, in nats."),
    "mutual_information": Meaning(
        "Mutual information", "", "The part of it on which the members disagree (JS), in nats."
    ),
    "aleatoric": Meaning(
        "Aleatoric", "", "Variance of the label that all answers agree on, summed over the classes: noise."
    ),
    "epistemic": Meaning(
        "Epistemic", "", "Variance of the probabilities from answer to answer, summed over the classes: disagreement."
    ),
    "disagreement": Meaning("Disagreement", "", "Share of pairs of members that choose different classes."),
    "member_accuracy": Meaning("Member accuracy", "higher", "Accuracy of one member alone, on average."),
    "member_nll": Meaning("Member NLL", "lower", "NLL of one member alone, on average."),
    "member_brier": Meaning("Member Brier", "lower", "Brier score of one member alone, on average."),
    "diversity": Meaning("Diversity", "", "What averaging gains: a member's Brier score less the ensemble's."),
    "rmse": Meaning("RMSE", "lower", "Typical size of an error, in the target's unit; large errors weigh more."),
    "mae": Meaning("MAE", "lower", "Average size of an error, in the target's unit."),
    "crps": Meaning(
        "CRPS", "lower", "Distance between the predicted distribution and the truth, in the target's unit."
    ),
    "rmse_fair": Meaning(
        "RMSE, fair", "lower", "The RMSE that infinitely many such members would be expected to have."
    ),
    "crps_fair": Meaning(
        "CRPS, fair", "lower", "The CRPS that infinitely many such members would be expected to have."
    ),
    "coverage_50": Meaning("Coverage, 50 %", "", "Share of truths inside the 50 % interval; it should be one half."),
    "coverage_90": Meaning("Coverage, 90 %", "", "Share of truths inside the 90 % interval; less is overconfident."),
    "coverage_95": Meaning("Coverage, 95 %", "", "Share of truths inside the 95 % interval; less is overconfident."),
    "sharpness": Meaning(
        "Sharpness", "lower", "Mean width of the 90 % interval: worth something if its coverage is right."
    ),
    "total_std": Meaning("Total spread", "", "Standard deviation of the prediction, noise and disagreement together."),
    "aleatoric_std": Meaning("Aleatoric spread", "", "Standard deviation of the noise that the members expect."),
    "epistemic_std": Meaning("Epistemic spread", "", "Standard deviation of the members' means: their disagreement."),
    "mean_kernel": Meaning("Mean kernel", "", "How alike two members look to each other, from 0 to 1."),
    "cosine": Meaning("Cosine", "", "Between what two members show each other; 1 for the same direction."),
    "push_to_loss": Meaning("Push to loss", "", "Length of the repulsion's gradient over that of the loss."),
    "member_rmse": Meaning("Member RMSE", "lower", "RMSE of one member alone, on average."),
}


def meaning(name: str, directions: Mapping[str, str] | None = None) -> Meaning:
    """The label, direction and reading of a score; a name nobody knows is its own label.

    >>> meaning("ece").better
    'lower'
    >>> meaning("my_score", {"my_score": "higher"})
    Meaning(label='My score', better='higher', reading='')
    """
    plain = name.replace("_", " ").strip()
    known = MEANINGS.get(name, Meaning(plain[:1].upper() + plain[1:], "", ""))
    better = (directions or {}).get(name, known.better)
    return known._replace(better="" if better == "neutral" else better)


def number(value: float) -> str:
    """A number in three significant digits, thousands grouped; a dash when it is not finite.

    >>> [number(v) for v in (0.98765, 12.345, 1234567.0, 0.00001234, 0.0, float("nan"))]
    ['0.988', '12.3', '1,234,567', '1.23e-05', '0', '–']
    """
    value = float(value)
    if not math.isfinite(value):
        return MISSING
    if abs(value) < 1e-30:  # what rounding leaves of zero
        return "0"
    if abs(value) < 1e-3 or abs(value) >= 1e9:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}")))))
    return f"{value:,.{digits}f}".replace("-", MINUS)


def finite_mean(values: Iterable[float]) -> float:
    """The mean of those values that are finite, NaN when none is.

    >>> finite_mean([1.0, float("nan"), 3.0])
    2.0
    """
    finite = [float(value) for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def interval(score: Score) -> str:
    """The two ends of a score's interval, or nothing when it has none.

    >>> interval((0.9, 0.87654, 0.93))
    '0.877 to 0.930'
    >>> interval((0.9, float("nan"), float("nan")))
    ''
    """
    _, low, high = score
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"{number(low)} to {number(high)}"


def percent(share: float) -> str:
    """A share as a percentage with one decimal.

    >>> percent(0.98765)
    '98.8 %'
    """
    return f"{100 * share:.1f} %" if math.isfinite(share) else MISSING


def duration(seconds: float) -> str:
    """A time span in the unit a person would use.

    >>> [duration(s) for s in (0.5, 75, 7320)]
    ['0.500 s', '1 min 15 s', '2 h 02 min']
    """
    if not math.isfinite(seconds):
        return MISSING
    if seconds < 60:
        return f"{number(seconds)} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def answers(members: int, draws: int = 1) -> str:
    """How many answers an ensemble gives to an input.

    >>> answers(5), answers(1, 30)
    ('5 members', '1 member × 30 draws')
    """
    told = f"{members:,} member{'' if members == 1 else 's'}"
    return f"{told} {TIMES} {draws:,} draws" if draws > 1 else told


def shorten(text: str, length: int = 28) -> str:
    """The text, cut with an ellipsis when it is longer than `length`.

    >>> shorten("a very long name indeed", 10)
    'a very lo…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"
