"""The numbers of a record as text, and the published ones: tables for the page, the screen and the documentation."""

import math
from typing import Any

from murmuration.core.coupling.input_gradients import ALPHAS
from murmuration.reports.formatting import MINUS, MISSING
from murmuration.studies.papers.forde.claims import NAMES, Results
from murmuration.studies.papers.forde.published import WORK
from murmuration.studies.papers.forde.settings import GROUPS, REFERENCE, TUNED, arm_of
from murmuration.studies.papers.forde.toys import RECIPES, TOYS
from murmuration.studies.verdicts import crossed_interval, mean_interval

MEASURES = {  # of the tables -> part of a cell and its score
    "NLL": ("clean", "nll"),
    "accuracy": ("clean", "accuracy"),
    "ECE": ("clean", "ece"),
    "cA": ("corrupted", "accuracy"),
    "cNLL": ("corrupted", "nll"),
    "cECE": ("corrupted", "ece"),
}
SCORES = {"accuracy": "accuracy, percent", "nll": "NLL"}


def record_tables(results: Results) -> list[dict[str, Any]]:
    """Return all tables of a record as text: title, columns and rows."""
    scores = [
        [method, *(mean_text(results, method, *place) for place in MEASURES.values())] for method in results.methods
    ]
    methods = [method for method in results.methods if method != REFERENCE and results.seeds_of(method, REFERENCE)]
    gains = [[method, *(gain_text(results, method, column) for column in NAMES)] for method in methods]
    tuned = results.seeds_of(TUNED)
    tables = {
        "methods": (["method", *MEASURES], scores),
        "gains over the deep ensemble": (["method", *NAMES.values()], gains),
        "alpha of forde-tuned": (["seed", "alpha"], [[str(seed), chosen_alpha(results, seed)] for seed in tuned]),
        "by alpha": (["alpha", *alpha_columns(results)], alpha_rows(results)),
    }
    for name, build in TOYS.items():
        tables[name] = (["recipe", *build().places], toy_rows(results, name))
    return [{"title": title, "columns": heads, "rows": rows} for title, (heads, rows) in tables.items() if rows]


def chosen_alpha(results: Results, seed: int) -> str:
    """Return the alpha that validation images choose at one seed."""
    return (results.arm(TUNED, seed) or MISSING).removeprefix("forde-")


def panels(results: Results) -> dict[str, str]:
    """Return the groups of severities in a record, and clean images, with their titles.

    >>> panels(Results({"setting": {"severities": [3, 4, 5]}}, lambda arm, seed: {}))
    {'clean': 'clean', 'low': 'severity 3', 'high': 'severities 4, 5'}
    """
    titles = {"clean": "clean"}
    for group, severities in GROUPS.items():
        if own := [str(severity) for severity in results.record["setting"]["severities"] if severity in severities]:
            titles[group] = f"{'severity' if len(own) == 1 else 'severities'} {', '.join(own)}"
    return titles


def alpha_columns(results: Results) -> list[str]:
    """Return the heads of the columns of `alpha_rows` after the first."""
    titles = panels(results).values()
    return [*(f"{score}, {title}" for score in SCORES.values() for title in titles), "validation NLL"]


def alpha_rows(results: Results) -> list[list[str]]:
    """Return scores by alpha, then of the deep ensemble, with the validation NLL that chooses alpha."""
    rows = []
    for arm in [*map(arm_of, ALPHAS), REFERENCE]:
        if seeds := results.seeds_of(arm):
            cells = [mean_text(results, arm, part, name, digits=2) for name in SCORES for part in panels(results)]
            validation = mean_interval([results.cells[arm, seed]["validation_nll"] for seed in seeds])
            rows.append([arm.removeprefix("forde-"), *cells, spread_text(*validation)])
    return rows if len(rows) > 1 else []


def toy_rows(results: Results, name: str) -> list[list[str]]:
    """Return the mean uncertainty of every recipe on a toy, by place."""
    rows = []
    for recipe in RECIPES:
        values = [list(results.uncertainties(name, recipe, place).values()) for place in TOYS[name]().places]
        if values[0]:
            rows.append([recipe, *(spread_text(*mean_interval(by_seed)) for by_seed in values)])
    return rows


def gain_text(results: Results, method: str, column: str) -> str:
    """Return the paired gain of a method over the deep ensemble with its interval; accuracies in percentage points."""
    scale, digits = (100, 2) if column.endswith("correct") else (1, 4)
    interval = crossed_interval(results.gain(method, REFERENCE, column))
    value, low, high = (f"{scale * bound:+.{digits}f}".replace("-", MINUS) for bound in interval)
    return f"{value} ({low} to {high})"


def mean_text(results: Results, method: str, part: str, name: str, *, interval: bool = True, digits: int = 1) -> str:
    """Return the mean of a score over seeds with half its 95 % interval; accuracies in percent, of so many digits."""
    scale, digits = (100, digits) if name == "accuracy" else (1, 3)
    mean, *limits = (scale * bound for bound in mean_interval(results.scores(method, part, name)))
    low, high = limits if interval else (math.nan, math.nan)
    return spread_text(mean, low, high, digits)


def spread_text(mean: float, low: float, high: float, digits: int = 3) -> str:
    """Return a mean with half its interval; a dash if there is none.

    >>> spread_text(0.5, 0.4, 0.6), spread_text(0.5, math.nan, math.nan)
    ('0.500 ± 0.100', '0.500')
    """
    if not math.isfinite(mean):
        return MISSING
    return f"{mean:.{digits}f}" + (f" ± {(high - low) / 2:.{digits}f}" if math.isfinite(low) else "")


def published_gain(item: str, method: str, measure: str) -> str:
    """Return the difference of two published means, above 0 if the method is better than the deep ensemble.

    >>> published_gain("table 2", "forde-pca", "cA"), published_gain("table 2", "forde-pca", "NLL")
    ('+2.4', '−0.008')
    """
    own, reference = WORK.number(item, method, measure), WORK.number(item, REFERENCE, measure)
    if own is None or reference is None:
        return MISSING
    sign, digits = (1, 1) if measure in ("accuracy", "cA") else (-1, 3 if measure == "NLL" else 2)
    return f"{sign * (own.value - reference.value):+.{digits}f}".replace("-", MINUS)
