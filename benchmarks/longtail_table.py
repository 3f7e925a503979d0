"""The tables of long-tailed recognition, from its record: scores of every row, and differences between rows."""

from collections.abc import Iterator
from itertools import groupby
from statistics import fmean
from typing import Any

import pandas as pd
from table_text import bold, difference, markdown, plus_minus, spread

GROUPS = ("all", "many", "medium", "few")
CHANGED = ("re-trained heads", "normalised heads", "transferred covariance")
SAMPLERS = ("square-root", "balanced", "progressive")
COMPARISONS = {  # question -> row, and the row that it is compared with
    "the loss: balanced softmax, not cross-entropy": ("balanced-softmax", "cross-entropy"),
    "the loss: class-balanced": ("class-balanced", "cross-entropy"),
    "the loss: LDAM, re-weighted late": ("ldam-drw", "cross-entropy"),
    **{f"the sampler: {name}": (f"{name} sampler", "cross-entropy") for name in SAMPLERS},
    "after training: logit adjustment": ("cross-entropy, logit adjustment", "cross-entropy"),
    **{f"after training: {name}": (f"cross-entropy, {name}", "cross-entropy") for name in CHANGED},
    "logit adjustment after training, not in the loss": ("cross-entropy, logit adjustment", "balanced-softmax"),
    "three networks, not one: cross-entropy": ("cross-entropy, ensemble", "cross-entropy"),
    "three networks, not one: balanced softmax": ("balanced-softmax, ensemble", "balanced-softmax"),
    "three networks, not one: LDAM, re-weighted late": ("ldam-drw, ensemble", "ldam-drw"),
    "RIDE, not three networks of its loss": ("ride", "ldam-drw, ensemble"),
    "RIDE: mean logits, not mean probabilities": ("ride, mean logits", "ride"),
    "SADE, not three networks of balanced softmax": ("sade", "balanced-softmax, ensemble"),
    "SADE: mean logits, not mean probabilities": ("sade, mean logits", "sade"),
    "SADE by mean logits, not three networks of balanced softmax": ("sade, mean logits", "balanced-softmax, ensemble"),
    "SADE: weights found on test images, not equal ones": ("sade, test-time weights", "sade"),
    "repulsive heads, not one network of their loss": ("repulsive heads", "balanced-softmax"),
    "repulsive heads, not three networks": ("repulsive heads", "balanced-softmax, ensemble"),
}
Seeds = dict[int, dict[str, Any]]  # seed -> scores
Rows = dict[str, Seeds]


def longtail_table(record: dict[str, Any]) -> str:
    """Tabulate mean class accuracy in percent and NLL for each data set and factor, the best rows first.

    Behind ± is half of a 95 % interval: of several seeds the t-interval of their mean, of one that over test examples.
    """
    return "\n\n".join(_scores(run, rows) for run, rows in _tables(record))


def longtail_differences(record: dict[str, Any]) -> str:
    """Tabulate differences between rows of the same seeds for each data set at its largest factor."""
    tables: dict[str, str] = {}
    for run, rows in _tables(record):
        if run["data"] not in tables:
            title = f"**{run['data']}, imbalance {run['factor']:g}**, points of mean class accuracy."
            tables[run["data"]] = f"{title}\n\n{_differences(rows)}"
    return "\n\n".join(tables.values())


def _tables(record: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Rows]]:
    """Yield a run and all rows of every data set and factor, the largest factor first."""

    def place(run: dict[str, Any]) -> tuple[str, float]:
        return run["data"], -run["factor"]

    for _, runs in groupby(sorted(record["runs"], key=place), place):
        rows: Rows = {}
        for run in runs:
            for name, scores in run["rows"].items():
                rows.setdefault(name, {})[run["seed"]] = scores
        yield run, rows


def _scores(run: dict[str, Any], rows: Rows) -> str:
    settings, most = run["settings"], max(map(len, rows.values()))
    measures = [*_groups(rows), "NLL"]
    means = pd.DataFrame({name: {m: fmean(_values(seeds, m)) for m in measures} for name, seeds in rows.items()}).T
    best = {measure: means[measure].min() if measure == "NLL" else means[measure].max() for measure in measures}
    table = markdown(
        {"method": name if len(rows[name]) == most else f"{name} ({_number(len(rows[name]))})"}
        | {measure: bold(_text(rows[name], measure), mean[measure] == best[measure]) for measure in measures}
        for name, mean in means.sort_values("all", ascending=False, kind="stable").iterrows()
    )
    return (
        f"**{run['data']}, imbalance {run['factor']:g}**: {run['examples']['train']:,} training examples; "
        f"{settings['net']}, {settings['epochs']} epochs, batches of {settings['batch_size']}, learning rate "
        f"{settings['lr']:g}{', bf16' if settings.get('precision') == 'bf16' else ''}; {_number(most)}.\n\n{table}"
    )


def _differences(rows: Rows) -> str:
    table = []
    for question, (name, other) in COMPARISONS.items():
        one, two = rows.get(name, {}), rows.get(other, {})
        pairs = [(one[seed], two[seed]) for seed in one if seed in two]
        points = {group: [100 * (a[group][0] - b[group][0]) for a, b in pairs] for group in _groups(rows)}
        if pairs:
            cells = {group: difference(values, "+z.1f") for group, values in points.items()}
            table.append({"comparison": question} | cells)
    return markdown(table)


def _groups(rows: Rows) -> list[str]:
    """Return the groups of classes that the data has."""
    return [group for group in GROUPS if any(group in scores for seeds in rows.values() for scores in seeds.values())]


def _values(seeds: Seeds, measure: str) -> list[float]:
    """Return the NLL, or the accuracy of a group, by seed."""
    return [scores["nll"] if measure == "NLL" else scores[measure][0] for scores in seeds.values()]


def _text(seeds: Seeds, measure: str) -> str:
    if measure == "NLL":
        return spread(_values(seeds, measure))
    if len(seeds) > 1:
        return spread([100 * accuracy for accuracy in _values(seeds, measure)], ".1f")
    ((value, low, high),) = (scores[measure] for scores in seeds.values())
    return plus_minus((100 * value, 50 * (high - low)), ".1f")


def _number(seeds: int) -> str:
    return f"{seeds} seed{'s' if seeds > 1 else ''}"
