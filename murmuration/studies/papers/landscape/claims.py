"""The claims of the paper, each with what was measured here and what was published.

Claims are judged from the record alone. The claims of a part that was not run are "not run".
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

Judgement = Literal["holds", "does not hold", "not run"]
Parts = dict[str, Any]
# Jensen-Shannon divergence on SVHN, 5 networks each, MediumCNN (Fort et al. 2019, section 5)
SVHN = {"independent": 0.384, "trajectory": 0.153, "random": 0.155, "pca": 0.087, "diagonal": 0.034}
LATE = 10  # checkpoints at the end of a path
QUALITATIVE = "a figure, no number"


@dataclass(frozen=True)
class Claim:
    """A claim, whether it holds here, the numbers behind that, and those of the paper."""

    name: str
    statement: str
    verdict: Judgement
    measured: str
    published: str
    figure: str  # of the paper


@dataclass(frozen=True)
class Question:
    """A claim before it is judged: the part of the record that decides it, and how."""

    name: str
    part: str
    judge: str | Callable[[Any], tuple[bool, str] | None]  # a verdict's claim, or part -> holds, numbers; None: unknown
    figure: str
    published: str = QUALITATIVE


def off_diagonal(matrix: Any, last: int | None = None) -> float:
    """Return the mean of a symmetric matrix without its diagonal, of its last rows and columns only if asked for.

    >>> off_diagonal([[1, 0.2], [0.2, 1]])
    0.2
    """
    values = np.array(matrix, dtype=float)
    values = values if last is None else values[-last:, -last:]
    return float(values[~np.eye(len(values), dtype=bool)].mean()) if len(values) > 1 else math.nan


def late(part: Any, matrix: str) -> float:
    """Return the mean over late checkpoints of one member, then over members; NaN without paths."""
    means = [off_diagonal(path[matrix], LATE) for name, path in part.items() if name.startswith("path")]
    return float(np.mean(means)) if means else math.nan


def orthogonal(part: Any) -> tuple[bool, str]:
    between, within = off_diagonal(part["members"]["cosine"]), late(part, "cosine")
    text = f"cosine {between:.3f} between runs, {within:.3f} between the last {LATE} checkpoints of a run"
    return between < 0.1 and within > 0.9, text


def different(part: Any) -> tuple[bool, str]:
    between, within = off_diagonal(part["members"]["disagreement"]), late(part, "disagreement")
    text = f"runs disagree on {between:.1%} of the inputs, the last {LATE} checkpoints of a run on {within:.1%}"
    return between >= 2 * within, text


def stated(claim: str, part: Any) -> tuple[bool, str] | None:
    """Return the judgement of a claim that the record has verdicts of: it holds if all of them do."""
    verdicts = [verdict for verdict in verdicts_in(part) if verdict["claim"] == claim]
    sentences = "; ".join(verdict["sentence"].rstrip(".") for verdict in verdicts)
    return (all(verdict["holds"] for verdict in verdicts), sentences) if verdicts else None


def verdicts_in(part: Any) -> list[dict[str, Any]]:
    """Return all verdicts of a record, of its parts too."""
    if not isinstance(part, dict):
        return []
    inner = [verdict for value in part.values() for verdict in verdicts_in(value)]
    return [*part.get("verdicts", []), *inner]


def fitted(part: Any) -> tuple[bool, str] | None:
    exponent = part["exponents"].get("subspaces")
    if exponent is None:
        return None
    text = f"e = {exponent['value']:.2f} ({exponent['low']:.2f} to {exponent['high']:.2f})"
    return exponent["high"] < 1, text


def ordered_divergences(part: Any) -> tuple[bool, str] | None:
    """Check that on OOD inputs independent runs diverge most, then path and random samples, PCA, diagonal."""
    divergences = {
        group: next(condition["value"] for condition in conditions if condition["ood"])
        for group, conditions in part["divergences"].items()
        if any(condition["ood"] for condition in conditions)
    }
    if not SVHN.keys() <= divergences.keys():
        return None
    middle = (divergences["trajectory"], divergences["random"])
    holds = divergences["independent"] > max(middle) and min(middle) > divergences["pca"] > divergences["diagonal"]
    return holds, ", ".join(f"{group} {divergences[group]:.3f}" for group in SVHN)


STATEMENTS = {  # of the paper, by the name of the claim
    "orthogonal": "Runs end at orthogonal weights (cosine below 0.1); late checkpoints of a run "
    "point the same way (above 0.9).",
    "different functions": "Runs disagree at least twice as often as the last checkpoints of one run.",
    "clusters": "In a t-SNE of predictions, runs end apart.",
    "subspaces stay": "Samples of a subspace stay at their own run.",
    "radial": "Training moves weights outward from the origin.",
    "similar accuracy": "Different optima have similar accuracy.",
    "own directions": "The plane around each trajectory agrees with its own optimum and not with the other.",
    "barrier": "The straight line between optima has a barrier.",
    "tunnel": "Optima are connected by a tunnel whose barrier is below 20 % of the straight line's.",
    "functions along the tunnel": "Predictions change along the tunnel although the loss does not.",
    "diversity at equal accuracy": "At equal accuracy (within 2 points), independent runs are more diverse than "
    "samples of every subspace.",
    "exponent": "Wrong labels change more easily than right ones: the fitted exponent is below 1.",
    "size": "Every run that is added improves the Brier score, and all together the accuracy.",
    "benefits add up": "Brier score: ensemble with subspaces at least as good as the ensemble, that as a subspace, "
    "that as one run.",
    "shift": "Independent runs diverge most, and the gap to subspaces is larger at the highest severity than without.",
    "out of distribution": "Jensen-Shannon divergence on OOD inputs: independent, then trajectory and random, "
    "then PCA, then diagonal.",
    "initialisation": "Initialisation adds more diversity than batch order.",
    "batch order": "Batch order adds more diversity at a larger learning rate.",
    "determinism": "The same initialisation and the same batches give the same network.",
    "chains": "Independently initialised cSG-MCMC chains are more diverse than cycles of one chain.",
}
SVHN_TEXT = "SVHN: " + ", ".join(f"{group} {value}" for group, value in SVHN.items())
QUESTIONS = (
    Question("orthogonal", "similarity", orthogonal, "2a, 3a", '"essentially orthogonal" (section 4)'),
    Question(
        "different functions",
        "similarity",
        different,
        "2b, 3b",
        "0.26 to 0.29 between runs in a public re-implementation of SmallCNN",
    ),
    Question("clusters", "tsne", "runs end in functions of their own", "2c"),
    Question("subspaces stay", "tsne", "samples of a subspace stay at their run", "4", "all of them, by the figure"),
    Question("radial", "plane", "radial movement outward", "5, S1"),
    Question("similar accuracy", "plane", "similar accuracy", "5, S1"),
    Question("own directions", "plane", "each direction agrees with its own optimum", "5"),
    Question("barrier", "tunnel", "barrier on the straight line", "S2"),
    Question("tunnel", "tunnel", "low loss along the tunnel path", "S2"),
    Question("functions along the tunnel", "tunnel", "functions change along the tunnel path", "S2, S3"),
    Question(
        "diversity at equal accuracy",
        "trade-off",
        "at equal accuracy independent networks are more diverse than samples",
        "6, 7, S6",
    ),
    Question("exponent", "trade-off", fitted, "S6", "e = 0.22 (ResNet20v1, CIFAR-100)"),
    Question("size", "sizes", "every run improves the Brier score, and all together the accuracy", "8"),
    Question("benefits add up", "sizes", "gains of ensembling and sampling add up", "8"),
    Question("shift", "sizes", "independent runs diverge most, the more so under corruption", "9"),
    Question("out of distribution", "sizes", ordered_divergences, "section 5", SVHN_TEXT),
    Question("initialisation", "factorial", "initialisation matters more than batch order", "S4"),
    Question("batch order", "factorial", "batch order matters more at a larger learning rate", "S4"),
    Question("determinism", "factorial", "the same numbers give the same network", "S4", "diversity 0 on TPU"),
    Question(
        "chains",
        "chains",
        "independent chains are more diverse than cycles of one chain",
        "S5",
        "significant on CIFAR-10 and CIFAR-100 (ResNet-18)",
    ),
)


def claims(parts: Parts) -> list[Claim]:
    """Return every claim, judged from the parts of a record."""
    judged = []
    for question in QUESTIONS:
        statement, published = STATEMENTS[question.name], question.published
        judge = partial(stated, question.judge) if isinstance(question.judge, str) else question.judge
        outcome = judge(parts[question.part]) if question.part in parts else None
        verdict: Judgement = "not run" if outcome is None else "holds" if outcome[0] else "does not hold"
        measured = "" if outcome is None else outcome[1]
        judged.append(Claim(question.name, statement, verdict, measured, published, question.figure))
    return judged
