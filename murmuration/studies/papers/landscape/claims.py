"""The claims of the paper: the parts that decide them, their verdicts here, and what was published.

The studies judge; here the verdicts of all parts of a record come together. A record without intervals decides nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from murmuration.studies.papers.landscape.published import SVHN
from murmuration.studies.papers.published import QUALITATIVE
from murmuration.studies.verdicts import Verdict

NO_INTERVAL = "the record has no interval"
UNDECIDED = "these runs do not have what it needs"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper: the part whose study judges it under this name, and where it is published."""

    name: str
    part: str
    claim: str
    source: str
    published: str = QUALITATIVE


CLAIMS = (
    Claim(
        "orthogonal",
        "similarity",
        "Runs end at orthogonal weights (cosine below 0.1).",
        "figures 2a, 3a",
        '"essentially orthogonal"',
    ),
    Claim(
        "one end", "similarity", "Late checkpoints of a run point the same way (cosine above 0.9).", "figures 2a, 3a"
    ),
    Claim(
        "different functions",
        "similarity",
        "Runs disagree at least twice as often as the last checkpoints of one run.",
        "figures 2b, 3b",
    ),
    Claim("clusters", "tsne", "In a t-SNE of predictions, runs end apart.", "figure 2c"),
    Claim(
        "subspaces stay",
        "tsne",
        "Samples of a subspace stay at their own run (at least 95 % of them).",
        "figure 4",
        "all of them, by the figure",
    ),
    Claim("radial", "plane", "Training moves weights outward from the origin.", "figures 5, S1"),
    Claim("similar accuracy", "plane", "Different optima have similar accuracy (within 3 points).", "figures 5, S1"),
    Claim(
        "own directions", "plane", "The plane around each optimum agrees with it and not with the other.", "figure 5"
    ),
    Claim("barrier", "tunnel", "The straight line between optima has a barrier.", "figure S2"),
    Claim(
        "tunnel",
        "tunnel",
        "Optima are connected by a tunnel whose barrier is below 20 % of the straight line's.",
        "figure S2",
    ),
    Claim(
        "functions along the tunnel",
        "tunnel",
        "Predictions change along the tunnel although the loss does not.",
        "figures S2, S3",
    ),
    Claim(
        "diversity at equal accuracy",
        "trade-off",
        "At equal accuracy (within 2 points), independent runs are more diverse than samples of every subspace.",
        "figures 6, 7",
    ),
    Claim(
        "equivalent conclusions",
        "trade-off",
        "The Kullback-Leibler divergence leads to the same conclusion.",
        "section 4.3",
        '"equivalent conclusions"',
    ),
    Claim(
        "exponent",
        "trade-off",
        "Wrong labels change more easily than right ones: the fitted exponent is below 1.",
        "figure S6",
        "e = 0.22 (ResNet20v1, CIFAR-100)",
    ),
    Claim("size", "sizes", "An ensemble has a better Brier score and accuracy than one run.", "figure 8"),
    Claim(
        "benefits add up",
        "sizes",
        "Gains of ensembling and of subspace sampling add up, and ensembling gains more (Brier score).",
        "figure 8",
    ),
    Claim(
        "shift",
        "sizes",
        "Independent runs diverge most, and the gap to subspaces is larger at the highest severity than without.",
        "figure 9",
    ),
    Claim(
        "out of distribution",
        "sizes",
        "Jensen-Shannon divergence on OOD inputs: independent, then trajectory and random, then PCA, then diagonal.",
        "section 5",
        "SVHN: " + ", ".join(f"{group} {value}" for group, value in SVHN.items()),
    ),
    Claim("initialisation", "factorial", "Initialisation adds more diversity than batch order.", "figure S4"),
    Claim("batch order", "factorial", "Batch order adds more diversity at a larger learning rate.", "figure S4"),
    Claim(
        "complementary",
        "factorial",
        "Initialisation and batch order are complementary: both together are more diverse than either alone.",
        "appendix B",
    ),
    Claim(
        "determinism",
        "factorial",
        "The same initialisation and the same batches give the same network.",
        "appendix B",
        "diversity 0 on TPU",
    ),
    Claim(
        "chains",
        "chains",
        "Vanilla ensembles, and independently initialised chains, are more diverse than cycles of one cSG-MCMC chain.",
        "figure S5",
        "significant on CIFAR-10 and CIFAR-100 (ResNet-18)",
    ),
)


def verdicts(parts: Mapping[str, Any]) -> list[Verdict]:
    """Return the verdict on every claim, from the parts of a record as JSON."""
    return [verdict(claim, parts) for claim in CLAIMS]


def verdict(claim: Claim, parts: Mapping[str, Any]) -> Verdict:
    """Return the verdict of a part on a claim; of several, such as those of two sets of OOD inputs, all estimates."""
    known: dict[str, Any] = {"published": claim.published, "source": claim.source}
    if claim.part not in parts:
        note = f"needs the part {claim.part}"
        return Verdict(claim.name, claim.claim, (), note, missing=(claim.part,), **known)
    records = parts[claim.part].get("verdicts")
    judged = [Verdict.from_json(row) for row in records or () if row.get("name") == claim.name]
    estimates = tuple(estimate for one in judged for estimate in one.estimates)
    missing = UNDECIDED if records is not None and all("estimates" in row for row in records) else NO_INTERVAL
    note = "; ".join(dict.fromkeys(one.note for one in judged if one.note)) if judged else missing
    return Verdict(claim.name, claim.claim, estimates, note, **known)
