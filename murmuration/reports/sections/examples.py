"""The test examples with the highest uncertainty, each as an image or a table row with the members' predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from murmuration.data import ArrayPreparation, ImagePreparation, Preparation, TablePreparation
from murmuration.data.columns import find_column
from murmuration.data.inputs import visible_inputs
from murmuration.data.preparation import Column, NumericColumn, TextColumn
from murmuration.data.raw import is_table
from murmuration.evaluation import EvalSet, Evaluation
from murmuration.evaluation.metrics import describe
from murmuration.likelihoods import REGRESSION
from murmuration.prediction.predictive import Predictive
from murmuration.reports.formatting import number, plural, shorten
from murmuration.reports.html import NOTHING, Markup, definitions, details, join, png, section, tag, text
from murmuration.reports.report import Report

MOST_EXAMPLES = 10
CHANNELS = (1, 3, 4)  # of an image that can be shown
RANKED_BY = {"classification": "entropy", "regression": "total_std"}
MEASURES = {
    "classification": ("confidence", "aleatoric", "epistemic"),
    "regression": ("total_std", "aleatoric_std", "epistemic_std"),
}
SMALL = 64  # images up to this size are enlarged with visible pixels
COLUMNS = 4  # of a row shown at once; the others open on demand
VOTES = 4
VOTED = "bars count the members that predict each class. Some are ambiguous or wrongly labelled"


@dataclass(frozen=True)
class Example:
    """One test example as a reader recognises it."""

    label: str  # the target, as text
    prediction: str
    image: NDArray[np.uint8] | None = None  # (H, W) or (H, W, C) with C in 1, 3, 4
    row: Mapping[str, Any] = field(default_factory=dict)  # column -> value
    measures: Mapping[str, float] = field(default_factory=dict)  # uncertainty -> value
    votes: Mapping[str, int] = field(default_factory=dict)  # class -> members that chose it
    member_predictions: Sequence[float] = ()  # regression: each member's mean
    index: int | None = None  # position in the test split


def examples(report: Report) -> Markup:
    """Return the most uncertain examples of the leading recipe."""
    ensembles = [e for e in report.evaluations if e.predictions > 1] or [report.leader]  # members can disagree
    leader = min(ensembles, key=lambda e: float(e.scores["nll"]))
    whose = f" by {leader.name}" if len(report.evaluations) > 1 else ""
    marks = "ticks are the predictions of members" if report.task == REGRESSION else VOTED
    reading = f"The {report.words.examples} ranked most uncertain{whose}; {marks}."
    shown = cards(uncertain_examples(leader), report.task)
    return section("examples", "Most uncertain examples", reading, shown, folded=report.is_comparison)


def uncertain_examples(evaluation: Evaluation, shown: int = MOST_EXAMPLES) -> tuple[Example, ...]:
    """Return the examples of the highest total uncertainty, in falling order; only these are predicted again."""
    eval_set, columns = evaluation.eval_set, evaluation.examples.columns
    if evaluation.ensemble is None:
        return ()
    places = np.argsort(-columns[RANKED_BY[eval_set.task]], kind="stable")[:shown]
    preparation, inputs = visible_inputs(eval_set.split, eval_set.preparation, places.copy())
    x = inputs if preparation is eval_set.preparation else eval_set.split.prepared[places.copy()]
    predicted = eval_set.predicted
    predictive = evaluation.ensemble.predict(x, prepared=True) if predicted is None else predicted.at(places.copy())
    names = MEASURES[eval_set.task][: 3 if len(predictive.outputs) > 1 else 2]
    return tuple(
        Example(
            label=target_text(columns["label" if eval_set.classes else "target"], place, eval_set.classes),
            prediction=target_text(columns["predicted"], place, eval_set.classes),
            image=image_of(preparation, inputs[turn]),
            row=given_row(eval_set, int(place)) or row_of(preparation, inputs[turn]),
            measures={name: float(columns[name][place]) for name in names},
            votes=votes_of(predictive, turn, eval_set.classes),
            member_predictions=member_means(predictive, turn),
            index=int(place),
        )
        for turn, place in enumerate(places)
    )


def cards(shown: Sequence[Example], task: str) -> Markup:
    """Examples side by side; nothing when there are none."""
    kind = "gallery images" if all(example.image is not None for example in shown) else "gallery"
    return tag("div", join(_card(example, task) for example in shown), kind)


def _card(example: Example, task: str) -> Markup:
    right = example.label == example.prediction
    mark = tag("span", "✓ right", "mark right") if right else tag("span", "✗ wrong", "mark wrong")
    predicted = f"{text(example.prediction)} {mark if task == 'classification' else ''}"
    answer = definitions([("true", example.label), ("predicted", Markup(predicted))], "answer")
    measures = ((describe(name).label.lower(), number(value)) for name, value in example.measures.items())
    items = [(shorten(str(name), 40), _value(value)) for name, value in example.row.items()]
    more = details(plural(len(items) - COLUMNS, "more column"), definitions(items[COLUMNS:], "row"))
    row = join([definitions(items[:COLUMNS], "row"), more])
    parts = [_image(example), answer, definitions(measures, "measures"), _votes(example), _interval_bar(example), row]
    return tag("article", join(parts), "example")


def _image(example: Example) -> Markup:
    if example.image is None:
        return NOTHING
    place = f" {example.index}" if example.index is not None else ""
    alt = f"Test image{place}, true {example.label}, predicted {example.prediction}"
    kind = "small" if max(example.image.shape[:2]) <= SMALL else "large"
    return Markup(f'<img class="{kind}" src="{png(example.image)}" alt="{text(alt)}">')


def _votes(example: Example) -> Markup:
    """Bars of how many members chose each class, the commonest first."""
    ranked = sorted(example.votes.items(), key=lambda vote: -vote[1])
    total = sum(example.votes.values())
    if not total:
        return NOTHING
    bars = []
    for name, count in ranked[:VOTES]:
        bar = f'<span class="bar"><span style="width:{100 * count / total:.0f}%"></span></span>'
        who = f'<span class="who">{text(shorten(name, 16))}</span>'
        bars.append(Markup(f'<li>{who}{bar}<span class="count">{count}</span></li>'))
    more = tag("p", f"and {len(ranked) - VOTES} more classes", "note") if len(ranked) > VOTES else NOTHING
    return Markup(f'<ul class="votes" aria-label="votes of {total} members">{join(bars)}</ul>{more}')


def _interval_bar(example: Example) -> Markup:
    """Return the members' predictions as ticks on a line between the smallest and the largest."""
    values = np.asarray(example.member_predictions, dtype=float)
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return NOTHING
    low, high = float(values.min()), float(values.max())
    places = 4 + 192 * (values - low) / (high - low if high > low else 1.0)
    ticks = "".join(f'<line x1="{place:.1f}" x2="{place:.1f}" y1="3" y2="17"/>' for place in places)
    label = text(f"{len(values)} members predict {number(low)} to {number(high)}")
    return Markup(
        f'<svg class="interval-bar" viewBox="0 0 200 20" role="img" aria-label="{label}">'
        f'<line class="base" x1="4" x2="196" y1="10" y2="10"/>{ticks}</svg><p class="note">{label}</p>'
    )


def given_row(eval_set: EvalSet, place: int) -> dict[str, object]:
    """Return the columns of a row of a table as they were given; nothing of other inputs."""
    table, preparation = eval_set.split.x, eval_set.preparation
    if not is_table(table) or not isinstance(preparation, TablePreparation):
        return {}
    values = {column.name: find_column(table, column.name).iloc[[place]] for column in preparation.columns}
    return {name: "missing" if value.isna().item() else value.iloc[0] for name, value in values.items()}


def _value(value: object) -> str:
    return number(float(value)) if isinstance(value, float | np.floating) else shorten(str(value), 60)


def target_text(column: np.ndarray, place: int, classes: tuple[str, ...]) -> str:
    """Return a label or target as text; several targets are listed."""
    if classes:
        return classes[int(column[place])]
    return ", ".join(number(float(value)) for value in np.atleast_1d(column[..., place]))


def votes_of(predictive: Predictive, place: int, classes: tuple[str, ...]) -> dict[str, int]:
    """Return how many members chose each class for one input; empty for regression and for a single member."""
    if not classes or len(predictive.outputs) == 1:
        return {}
    voted, counts = np.unique(predictive.probs[:, place].argmax(-1).numpy(), return_counts=True)
    return {classes[k]: int(count) for k, count in zip(voted, counts, strict=True)}


def member_means(predictive: Predictive, place: int) -> list[float]:
    """Return each member's mean for one input, of a regression with one target."""
    if predictive.task == "classification" or predictive.member_mean.shape[-1] != 1:
        return []
    return list(predictive.member_mean[:, place, 0].tolist())


def image_of(preparation: Preparation, x: Tensor) -> np.ndarray | None:
    """Return the image (H, W, C) of one prepared input, if it is one."""
    if not isinstance(preparation, ImagePreparation) or preparation.shape[0] not in CHANNELS:
        return None
    return preparation.pixels_of(x[None])[0]


def row_of(preparation: Preparation, x: Tensor) -> dict[str, Any]:
    """Column -> value, in the units of the source, of one prepared input; empty for images."""
    if isinstance(preparation, TablePreparation):
        ends = np.cumsum([len(column.prepared_names) for column in preparation.columns])
        blocks = zip(preparation.columns, np.split(x.numpy(), ends[:-1]), strict=True)
        return {column.name: column_value(column, block) for column, block in blocks}
    if not isinstance(preparation, ArrayPreparation) or len(preparation.shape) != 1:
        return {}
    names = preparation.names or tuple(f"x{i}" for i in range(len(x)))
    values = preparation.scaling.invert(x.double().numpy()[None])[0]
    return {name: rounded(value) for name, value in zip(names, values, strict=True)}


def column_value(column: Column, block: np.ndarray) -> Any:
    """Return what the prepared columns (width,) of one column stand for."""
    if isinstance(column, NumericColumn):
        missing = column.flags_missing and block[1] > 0.5
        return "missing" if missing else rounded(column.scaling.invert(block[None, :1].astype(np.float64))[0, 0])
    if isinstance(column, TextColumn):
        return " ".join(word for word, weight in zip(column.words, block, strict=True) if weight > 0)
    names = (*column.categories, *(["missing"] if column.has_missing else []), "unseen")
    return names[int(block.argmax())]


def rounded(value: float) -> float:
    """Return a number without the digits that single precision made up."""
    return float(f"{float(value):.6g}")
