"""Claims about ensemble size, with intervals over runs and examples (Fort, Hu and Lakshminarayanan 2019, section 5)."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from murmuration.evaluation.metrics.per_example import brier
from murmuration.studies.diversity import INDEPENDENT, MATCHED
from murmuration.studies.verdicts import Verdict, jackknife_estimate

if TYPE_CHECKING:
    from murmuration.studies.sizes import Sizes

Array = NDArray[np.float64]
ORIGINAL, PATH = "original", "trajectory"  # methods beside the samplers: final weights, checkpoints
RIGHT, BRIER = 0, 1  # rows of scores by example
Place = tuple[str, int]  # name of OOD inputs or "", severity


@dataclass(frozen=True)
class ByExample:
    """What intervals of the verdicts need: scores and divergences of every example."""

    scores: Mapping[str, Mapping[tuple[int, ...], Array]]  # method -> runs of an ensemble -> (2, N), on clean inputs
    divergences: Mapping[str, Mapping[Place, Array]]  # group -> (R, N), mean over corruptions; independent: (1, N)

    def runs(self, method: str) -> int:
        """Return the number of runs of a method."""
        return max(map(len, self.scores.get(method, {(): None})))

    def single(self, method: str, runs: Sequence[int], row: int) -> Array:
        """Return a score (N,) of one run, mean over some runs."""
        return np.mean([self.scores[method][(run,)][row] for run in runs], axis=0)

    def ensemble(self, method: str, runs: Sequence[int], row: int) -> Array:
        """Return a score (N,) of the ensemble of some runs."""
        return self.scores[method][tuple(runs)][row]


def example_scores(probs: Tensor, labels: Tensor) -> dict[tuple[int, ...], Array]:
    """Return whether it is right and the Brier score (2, N) of single runs, of all, and of all but one.

    From probabilities (R, N, K) of R runs.
    """
    everything = tuple(range(len(probs)))
    scores = {}
    for runs in {everything, *((run,) for run in everything), *itertools.combinations(everything, len(probs) - 1)}:
        if runs:
            mean = probs[list(runs)].double().mean(0)
            scores[runs] = np.stack([(mean.argmax(-1) == labels).double().numpy(), brier(mean, labels).numpy()])
    return scores


def size_verdicts(record: "Sizes", values: ByExample) -> tuple[Verdict, ...]:
    """Return claims of Fort et al. (2019) that these scores can decide, with intervals over runs and examples."""
    judged = [growth_verdict(values), addition_verdict(record, values), divergence_verdict(record, values)]
    return tuple(verdict for verdict in [*judged, *order_verdicts(record, values)] if verdict is not None)


def growth_verdict(values: ByExample) -> Verdict | None:
    """Return whether an ensemble of all runs is better than one run."""
    runs = values.runs(ORIGINAL)
    if runs < 2:
        return None

    def gain(row: int) -> Callable[[list[int]], Array]:
        return lambda rows: values.ensemble(ORIGINAL, rows, row) - values.single(ORIGINAL, rows, row)

    estimates = (
        jackknife_estimate(f"Brier score, {runs} runs less one", gain(BRIER), {"runs": runs}, -math.inf, 0.0),
        jackknife_estimate(f"accuracy, {runs} runs less one", gain(RIGHT), {"runs": runs}, 0.0, math.inf),
    )
    note = "the mean Brier score over subsets cannot rise with their size (Jensen's inequality)"
    return Verdict(
        "size", "an ensemble of all runs has a better Brier score and accuracy than one run", estimates, note
    )


def addition_verdict(record: "Sizes", values: ByExample) -> Verdict | None:
    """Return whether sampling improves one run and the ensemble, and ensembling more than sampling.

    Of the paper's best sampler, random subspaces; the first one where it is missing.
    """
    runs = values.runs(ORIGINAL)
    samplers = [name for name in record.samplers if values.runs(name) == runs]
    if not samplers or runs < 2:
        return None
    sampler = "random" if "random" in samplers else samplers[0]

    def gap(better: tuple[str, bool], worse: tuple[str, bool]) -> Callable[[list[int]], Array]:
        """Return the Brier score (N,) of one variant less another's; a variant is a method, alone or as an ensemble."""
        score = {True: values.ensemble, False: values.single}
        return lambda rows: score[better[1]](better[0], rows, BRIER) - score[worse[1]](worse[0], rows, BRIER)

    base, sampled, ensemble, both = (ORIGINAL, False), (sampler, False), (ORIGINAL, True), (sampler, True)
    compared = {
        f"ensemble with {sampler} subspaces less ensemble": (both, ensemble),
        f"ensemble less {sampler} subspace": (ensemble, sampled),
        f"{sampler} subspace less one run": (sampled, base),
    }
    estimates = tuple(
        jackknife_estimate(f"Brier score, {what}", gap(*pair), {"runs": runs}, -math.inf, 0.0)
        for what, pair in compared.items()
    )
    errors = {name: record.score(name, runs, "brier") for name in (ORIGINAL, *samplers)}
    note = f"Brier scores of {runs} runs: {', '.join(f'{name} {error:.3f}' for name, error in errors.items())}"
    return Verdict(
        "benefits add up", "gains of ensembling and sampling add up, and ensembling gains more", estimates, note
    )


def divergence_verdict(record: "Sizes", values: ByExample) -> Verdict | None:
    """Return whether independent runs diverge more than networks around one run, the more so under corruption.

    Groups whose mean prediction is less accurate than one run, by more than 2 points, do not count: bad networks
    diverge.
    """
    last, groups = record.severities[-1], [group for group in values.divergences if group in record.methods]
    if INDEPENDENT not in values.divergences or not groups:
        return None
    level = record.score(ORIGINAL, 1, "accuracy")
    accurate = [group for group in groups if record.score(group, 1, "accuracy") >= level - MATCHED]
    worse = [group for group in groups if group not in accurate]

    def gap(group: str, severity: int, rows: list[int]) -> Array:
        place = "", severity
        return values.divergences[INDEPENDENT][place][0] - values.divergences[group][place][rows].mean(0)

    estimates = []
    for group in accurate:
        above: dict[str, Any] = {"sizes": {"runs": values.runs(group)}, "least": 0.0, "most": math.inf}
        own, theirs = (record.divergence(name, last) for name in (INDEPENDENT, group))
        what = f"independent less {group}{f', severity {last}' if last else ''} ({own:.3g} less {theirs:.3g})"
        estimates.append(jackknife_estimate(what, partial(gap, group, last), **above))
        clean = values.divergences[group]["", 0]
        if last and clean.shape == values.divergences[group]["", last].shape:  # official files may have other images
            grown = lambda rows, group=group: gap(group, last, rows) - gap(group, 0, rows)  # noqa: E731
            estimates.append(jackknife_estimate(f"the same less that on clean inputs, {group}", grown, **above))
    note = f"divergence of {record.together} networks"
    note += f"; {', '.join(worse)} does not count, being less accurate than one run" if worse else ""
    claim = "independent runs diverge most" + (", the more so under corruption" if last else "")
    return Verdict("shift", claim, tuple(estimates), note)


ORDER = (  # of divergences on OOD inputs (Fort et al. 2019, section 5)
    (INDEPENDENT, PATH),
    (INDEPENDENT, "random"),
    (PATH, "pca"),
    ("random", "pca"),
    ("pca", "diagonal"),
)


def order_verdicts(record: "Sizes", values: ByExample) -> Iterator[Verdict]:
    """Yield for each set of OOD inputs whether divergences are in the published order."""
    claim = "on OOD inputs independent runs diverge most, then path and random samples, then PCA, then diagonal"
    for name in record.ood_names if {group for pair in ORDER for group in pair} <= values.divergences.keys() else ():
        estimates = []
        for more, less in ORDER:
            first, second = (values.divergences[group][name, 0] for group in (more, less))  # (R, N)

            def gap(rows: list[int], first: Array = first, second: Array = second) -> Array:
                return (first if len(first) == 1 else first[rows]).mean(0) - second[rows].mean(0)

            means = f"{first.mean():.3g} less {second.mean():.3g}"
            sizes = {"runs": len(second)}
            estimates.append(jackknife_estimate(f"{more} less {less} ({means})", gap, sizes, 0.0, math.inf))
        yield Verdict("out of distribution", claim, tuple(estimates), f"{name}, {record.together} networks")
