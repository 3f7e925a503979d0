"""The claims of the paper, decided by paired differences of examples and seeds, and a record read as `Results`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmuration.core.coupling.input_gradients import ALPHAS
from murmuration.studies.papers.forde.cells import Columns
from murmuration.studies.papers.forde.published import ALPHA_PANELS, DATA_SETS, FIGURE, WORK, printed
from murmuration.studies.papers.forde.settings import ALPHA_OF, METHODS, REFERENCE, TUNED, arm_of
from murmuration.studies.papers.record import Record
from murmuration.studies.verdicts import MIN_SEEDS, Estimate, Verdict, crossed_interval, estimate
from murmuration.system.errors import listed

Array = NDArray[Any]
ANY = math.inf
SAME = {"correct": 0.005, "nll": 0.01}  # differences of accuracy and NLL up to which two methods are as good
NAMES = {"clean.correct": "accuracy", "clean.nll": "NLL", "corrupted.correct": "cA", "corrupted.nll": "cNLL"}
TOY_PLACES = {  # toy -> place away from the data -> what it is
    "gaps-1d": {"gap": "1-D toy, in the gaps", "far": "1-D toy, beyond the data"},
    "five-gaussians": {"middle": "2-D toy, in the middle", "far": "2-D toy, far from the data"},
}
TOY_BASELINES = ("deep-ensemble", "weight-rde", "function-rde", "feature-rde")
TOY_METHOD = "forde-pca"  # the method without an addition


@dataclass(frozen=True)
class Results:
    """Queries of a record; `columns` reads the scores by example of an arm and seed."""

    record: Record
    columns: Callable[[str, int], Columns]

    @cached_property
    def cells(self) -> dict[tuple[str, int], dict[str, Any]]:
        return {(cell["arm"], cell["seed"]): cell for cell in self.record["cells"]}

    @cached_property
    def seeds(self) -> list[int]:
        return sorted({seed for _, seed in self.cells})

    @cached_property
    def methods(self) -> list[str]:
        """Methods of the tables that have results, in the order of the tables."""
        return [method for method in METHODS if self.seeds_of(method)]

    def arm(self, method: str, seed: int) -> str | None:
        """Return the arm that a method is at one seed; of tuned FoRDE that of the lowest validation NLL.

        None if it is not in the record, or a candidate is missing.
        """
        if method == TUNED:
            candidates = {arm: self.cells.get((arm, seed)) for arm in map(arm_of, ALPHAS)}
            known = {
                arm: math.inf if cell["validation_nll"] is None else cell["validation_nll"]
                for arm, cell in candidates.items()
                if cell is not None
            }
            return min(known, key=lambda arm: known[arm]) if len(known) == len(candidates) else None
        arm = arm_of(ALPHA_OF[method]) if method in ALPHA_OF else method
        return arm if (arm, seed) in self.cells else None

    def seeds_of(self, *methods: str) -> list[int]:
        """Return the seeds at which all methods have results."""
        return [seed for seed in self.seeds if all(self.arm(method, seed) is not None for method in methods)]

    def scores(self, method: str, part: str, name: str) -> list[float]:
        """Return a score of every seed: `part` is clean, corrupted, low or high."""
        arms = [(self.arm(method, seed), seed) for seed in self.seeds_of(method)]
        cells = [self.cells[arm, seed] for arm, seed in arms if arm is not None]
        return [float(cell[part][name]) for cell in cells if part in cell]

    def values(self, method: str, seed: int, name: str) -> Array:
        """Return one score (N,) by example."""
        arm = self.arm(method, seed)
        assert arm is not None
        return self.columns(arm, seed)[name]

    def gain(self, method: str, baseline: str, name: str) -> Array:
        """Return how much better a method is than a baseline, (R, N) by seed and example, in its own unit."""
        sign = -1.0 if name.endswith("nll") else 1.0
        rows = [
            sign * (self.values(method, seed, name) - self.values(baseline, seed, name))
            for seed in self.seeds_of(method, baseline)
        ]
        return np.stack(rows)

    def slope(self, name: str) -> Array:
        """Return the least-squares slope of a score in alpha, (R, N) by seed and example."""
        weights = np.array(ALPHAS) - np.mean(ALPHAS)
        weights /= (weights**2).sum()
        arms = [arm_of(alpha) for alpha in ALPHAS]
        rows = [
            sum(weight * self.values(arm, seed, name) for weight, arm in zip(weights, arms, strict=True))
            for seed in self.seeds_of(*arms)
        ]
        return np.stack(rows)

    def uncertainties(self, toy: str, recipe: str, place: str) -> dict[int, float]:
        """Return the mean uncertainty of a recipe at a place of a toy, by seed."""
        rows = [row for row in self.record["toys"] if (row["toy"], row["recipe"]) == (toy, recipe)]
        return {row["seed"]: row[place] for row in rows}


def crossed(what: str, values: Array, least: float, most: float) -> Estimate:
    """Return the mean of values (R, N) with its interval over seeds and examples, against a region.

    There is no interval for fewer than three seeds: a claim is about methods, and one pair of ensembles is not.
    """
    seeds, examples = values.shape
    mean, *limits = crossed_interval(values)
    low, high = limits if seeds >= MIN_SEEDS else (math.nan, math.nan)
    return Estimate(what, mean, low, high, least, most, f"{seeds} seeds and {examples:,} examples")


@dataclass(frozen=True)
class Comparison:
    """A claim on gains of one method over another, in the region of each score."""

    name: str
    claim: str
    method: str
    baseline: str
    regions: Mapping[str, tuple[float, float]]  # column -> region of the gain

    def judge(self, results: Results) -> Verdict:
        methods = (self.method, self.baseline)
        published = compared(methods, [NAMES[column] for column in self.regions])
        if not results.seeds_of(*methods):
            missing = tuple(method for method in methods if not results.seeds_of(method))
            return Verdict(self.name, self.claim, (), "", missing or methods, published, "tables 1 and 2")
        estimates = tuple(
            crossed(f"gain in {NAMES[column]} over {self.baseline}", results.gain(*methods, column), *region)
            for column, region in self.regions.items()
        )
        return Verdict(self.name, self.claim, estimates, "", (), published, "tables 1 and 2")


BETTER = {"corrupted.correct": (0.0, ANY), "corrupted.nll": (0.0, ANY)}
CLEAN = ("clean.correct", "clean.nll")
COMPARISONS = (
    Comparison(
        "corruption",
        "FoRDE-PCA has a higher accuracy and a lower NLL than a deep ensemble under corruption.",
        "forde-pca",
        REFERENCE,
        BETTER,
    ),
    Comparison(
        "principal components",
        "Under corruption, lengthscales from principal components are better than equal ones.",
        "forde-pca",
        "forde-identity",
        BETTER,
    ),
    Comparison(
        "clean accuracy",
        "FoRDE-Identity is at least as good as a deep ensemble on clean images (to 0.005 of accuracy and 0.01 of NLL).",
        "forde-identity",
        REFERENCE,
        {column: (-SAME[column.partition(".")[2]], ANY) for column in CLEAN},
    ),
    Comparison(
        "weights",
        "Weight-RDE is as good as a deep ensemble (to 0.005 of accuracy and 0.01 of NLL).",
        "weight-rde",
        REFERENCE,
        {column: (-SAME[column.partition(".")[2]], SAME[column.partition(".")[2]]) for column in NAMES},
    ),
    Comparison(
        "functions",
        "Function-RDE is worse than a deep ensemble.",
        "function-rde",
        REFERENCE,
        dict.fromkeys(NAMES, (-ANY, 0.0)),
    ),
)


def verdicts(results: Results) -> list[Verdict]:
    """Return every claim, judged by what the record holds."""
    first, second, *others = [comparison.judge(results) for comparison in COMPARISONS]
    toys = [
        toy_verdict(results, *names) for names in (("deep ensemble", (REFERENCE,)), ("every baseline", TOY_BASELINES))
    ]
    return [first, second, trade_off(results), *others, *toys]


def trade_off(results: Results) -> Verdict:
    """Judge the lengthscale figure: corrupted accuracy rises with alpha, clean accuracy does not."""
    claim = "Alpha trades clean accuracy for robustness: corrupted accuracy rises with it, clean accuracy does not."
    published = "; ".join(
        f"{what} {of_figure('0', part)} at alpha 0, {of_figure('1', part)} at 1" for part, what in ALPHA_PANELS.items()
    )
    if not results.seeds_of(*map(arm_of, ALPHAS)):
        return Verdict("trade-off", claim, (), "", ("sweep",), published, FIGURE)
    estimates = (
        crossed("slope of corrupted accuracy in alpha", results.slope("corrupted.correct"), 0.0, ANY),
        crossed("slope of clean accuracy in alpha", results.slope("clean.correct"), -ANY, SAME["correct"]),
    )
    note = "Of clean accuracy, a rise of up to 0.005 counts as none."
    return Verdict("trade-off", claim, estimates, note, (), published, FIGURE)


def of_figure(row: str, part: str) -> str:
    """Return an accuracy of the lengthscale figure as text."""
    number = WORK.number(FIGURE, row, part)
    return "" if number is None else f"{number.value:g}"


def compared(methods: Sequence[str], measures: Sequence[str]) -> str:
    """Return the published numbers of two methods as text.

    >>> compared(("forde-pca", "deep-ensemble"), ["cA"])
    'CIFAR-100: cA 56.1 against 54.3; CIFAR-10: cA 80.5 against 78.1'
    """
    texts = []
    for item, data in DATA_SETS.items():
        pairs = []
        for measure in measures:
            pairs.append(f"{measure} {' against '.join(printed(item, method, measure) for method in methods)}")
        texts.append(f"{data}: {', '.join(pairs)}")
    return "; ".join(texts)


def toy_verdict(results: Results, name: str, baselines: Sequence[str]) -> Verdict:
    """Judge whether FoRDE is more uncertain than the most uncertain of some baselines away from the data."""
    estimates = []
    for toy, places in TOY_PLACES.items():
        for place, what in places.items():
            by_recipe = [results.uncertainties(toy, recipe, place) for recipe in (TOY_METHOD, *baselines)]
            seeds = sorted(set.intersection(*map(set, by_recipe)))
            if seeds:
                own, *others = by_recipe
                gains = [own[seed] - max(other[seed] for other in others) for seed in seeds]
                estimates.append(estimate(f"{what}: {TOY_METHOD} minus {name}", gains, 0.0, ANY))
    missing = () if estimates else ("toys",)
    published = "a figure: higher uncertainty in all regions outside the data"
    claim = f"Away from the data of the toys, FoRDE is more uncertain than {listed(baselines)}."
    return Verdict(f"away from data, {name}", claim, tuple(estimates), "", missing, published, "toys")
