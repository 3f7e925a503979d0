"""The claims of the paper, each with what was measured here and what was published.

Claims are judged from the record alone. The claims of a part that was not run are "not run".
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Judgement = Literal["holds", "does not hold", "not run"]
Parts = dict[str, Any]
SVHN = {  # Jensen-Shannon divergence on SVHN, 5 networks each, MediumCNN (Fort et al. 2019, section 5)
    "independent": 0.384,
    "trajectory": 0.153,
    "random": 0.155,
    "pca": 0.087,
    "diagonal": 0.034,
}
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
    statement: str
    part: str
    judge: Callable[[Any], tuple[bool, str] | None]  # the part's record -> holds, numbers; None: it cannot tell
    published: str
    figure: str


def off_diagonal(matrix: Any, last: int | None = None) -> float:
    """Return the mean of a symmetric matrix without its diagonal, of its last rows and columns only if asked for.

    >>> off_diagonal([[1, 0.2], [0.2, 1]])
    0.2
    """
    values = np.array(matrix, dtype=float)
    values = values if last is None else values[-last:, -last:]
    return float(values[~np.eye(len(values), dtype=bool)].mean()) if len(values) > 1 else math.nan


def paths_of(part: Any) -> list[Any]:
    """Return the similarity of checkpoints of every member whose path is in the record."""
    return [similarity for name, similarity in part.items() if name.startswith("path")]


def late(part: Any, matrix: str) -> float:
    """Return the mean over late checkpoints of one member, then over members; NaN without paths."""
    means = [off_diagonal(path[matrix], LATE) for path in paths_of(part)]
    return float(np.mean(means)) if means else math.nan


def orthogonal(part: Any) -> tuple[bool, str]:
    between, within = off_diagonal(part["members"]["cosine"]), late(part, "cosine")
    text = f"cosine {between:.3f} between runs, {within:.3f} between the last {LATE} checkpoints of a run"
    return between < 0.1 and within > 0.9, text


def different(part: Any) -> tuple[bool, str]:
    between, within = off_diagonal(part["members"]["disagreement"]), late(part, "disagreement")
    text = f"runs disagree on {between:.1%} of the inputs, the last {LATE} checkpoints of a run on {within:.1%}"
    return between >= 2 * within, text


def stated(claim: str) -> Callable[[Any], tuple[bool, str] | None]:
    """Return the judgement of a claim that the record has verdicts of: it holds if all of them do."""

    def judge(part: Any) -> tuple[bool, str] | None:
        verdicts = [verdict for verdict in verdicts_in(part) if verdict["claim"] == claim]
        return (
            (
                all(verdict["holds"] for verdict in verdicts),
                "; ".join(verdict["sentence"].rstrip(".") for verdict in verdicts),
            )
            if verdicts
            else None
        )

    return judge


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
    if not {"independent", "trajectory", "random", "pca", "diagonal"} <= set(divergences):
        return None
    middle = (divergences["trajectory"], divergences["random"])
    holds = divergences["independent"] > max(middle) and min(middle) > divergences["pca"] > divergences["diagonal"]
    return holds, ", ".join(f"{group} {divergences[group]:.3f}" for group in SVHN)


QUESTIONS = (
    Question(
        "orthogonal",
        "Runs end at orthogonal weights (cosine below 0.1); late checkpoints of a run point the same way (above 0.9).",
        "similarity",
        orthogonal,
        '"essentially orthogonal" (section 4)',
        "2a, 3a",
    ),
    Question(
        "different functions",
        "Runs disagree at least twice as often as the last checkpoints of one run.",
        "similarity",
        different,
        "0.26 to 0.29 between runs in a public re-implementation of SmallCNN",
        "2b, 3b",
    ),
    Question(
        "clusters",
        "In a t-SNE of predictions, runs end apart.",
        "tsne",
        stated("runs end in functions of their own"),
        QUALITATIVE,
        "2c",
    ),
    Question(
        "subspaces stay",
        "Samples of a subspace stay at their own run.",
        "tsne",
        stated("samples of a subspace stay at their run"),
        "all of them, by the figure",
        "4",
    ),
    Question(
        "radial",
        "Training moves weights outward from the origin.",
        "plane",
        stated("radial movement outward"),
        QUALITATIVE,
        "5, S1",
    ),
    Question(
        "similar accuracy",
        "Different optima have similar accuracy.",
        "plane",
        stated("similar accuracy"),
        QUALITATIVE,
        "5, S1",
    ),
    Question(
        "own directions",
        "The plane around each trajectory agrees with its own optimum and not with the other.",
        "plane",
        stated("each direction agrees with its own optimum"),
        QUALITATIVE,
        "5",
    ),
    Question(
        "barrier",
        "The straight line between optima has a barrier.",
        "tunnel",
        stated("barrier on the straight line"),
        QUALITATIVE,
        "S2",
    ),
    Question(
        "tunnel",
        "Optima are connected by a tunnel whose barrier is below 20 % of the straight line's.",
        "tunnel",
        stated("low loss along the tunnel path"),
        QUALITATIVE,
        "S2",
    ),
    Question(
        "functions along the tunnel",
        "Predictions change along the tunnel although the loss does not.",
        "tunnel",
        stated("functions change along the tunnel path"),
        QUALITATIVE,
        "S2, S3",
    ),
    Question(
        "diversity at equal accuracy",
        "At equal accuracy (within 2 points), independent runs are more diverse than samples of every subspace.",
        "trade-off",
        stated("at equal accuracy independent networks are more diverse than samples"),
        QUALITATIVE,
        "6, 7, S6",
    ),
    Question(
        "exponent",
        "Wrong labels change more easily than right ones: the fitted exponent is below 1.",
        "trade-off",
        fitted,
        "e = 0.22 (ResNet20v1, CIFAR-100)",
        "S6",
    ),
    Question(
        "size",
        "Every run that is added improves the Brier score, and all together the accuracy.",
        "sizes",
        stated("every run improves the Brier score, and all together the accuracy"),
        QUALITATIVE,
        "8",
    ),
    Question(
        "benefits add up",
        "Brier score: ensemble with subspaces at least as good as the ensemble, that as a subspace, that as one run.",
        "sizes",
        stated("gains of ensembling and sampling add up"),
        QUALITATIVE,
        "8",
    ),
    Question(
        "shift",
        "Independent runs diverge most, and the gap to subspaces is larger at the highest severity than without.",
        "sizes",
        stated("independent runs diverge most, the more so under corruption"),
        QUALITATIVE,
        "9",
    ),
    Question(
        "out of distribution",
        "Jensen-Shannon divergence on OOD inputs: independent, then trajectory and random, then PCA, then diagonal.",
        "sizes",
        ordered_divergences,
        "SVHN: " + ", ".join(f"{group} {value}" for group, value in SVHN.items()),
        "section 5",
    ),
    Question(
        "initialisation",
        "Initialisation adds more diversity than batch order.",
        "factorial",
        stated("initialisation matters more than batch order"),
        QUALITATIVE,
        "S4",
    ),
    Question(
        "batch order",
        "Batch order adds more diversity at a larger learning rate.",
        "factorial",
        stated("batch order matters more at a larger learning rate"),
        QUALITATIVE,
        "S4",
    ),
    Question(
        "determinism",
        "The same initialisation and the same batches give the same network.",
        "factorial",
        stated("the same numbers give the same network"),
        "diversity 0 on TPU",
        "S4",
    ),
    Question(
        "chains",
        "Independently initialised cSG-MCMC chains are more diverse than cycles of one chain.",
        "chains",
        stated("independent chains are more diverse than cycles of one chain"),
        "significant on CIFAR-10 and CIFAR-100 (ResNet-18)",
        "S5",
    ),
)


def claims(parts: Parts) -> list[Claim]:
    """Return every claim, judged from the parts of a record."""
    judged = []
    for question in QUESTIONS:
        outcome = question.judge(parts[question.part]) if question.part in parts else None
        verdict: Judgement = "not run" if outcome is None else "holds" if outcome[0] else "does not hold"
        measured = "" if outcome is None else outcome[1]
        judged.append(Claim(question.name, question.statement, verdict, measured, question.published, question.figure))
    return judged
