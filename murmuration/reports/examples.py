"""The examples an ensemble is least sure of, shown as a person would recognise them: a picture, or a row."""

from typing import Any

import numpy as np
from torch import Tensor

from murmuration.data import ArrayPreparation, ImagePreparation, Preparation, TablePreparation
from murmuration.data.preparation import Column, NumericColumn
from murmuration.evaluation import Evaluation
from murmuration.predictive import Predictive
from murmuration.reports.records import Example
from murmuration.reports.wording import number

SHOWN = 12
FEW = 4  # of each kind of uncertainty
COLOURS = (1, 3, 4)  # channels that a picture can have
RANKED_BY = {"classification": "entropy", "regression": "total_std"}
CLASS_MEASURES = ("confidence", "entropy", "mutual_information")
SPLIT_MEASURES = ("confidence", "aleatoric", "epistemic")
NUMBER_MEASURES = ("total_std", "aleatoric_std", "epistemic_std")


def uncertain_examples(evaluation: Evaluation, count: int = SHOWN, by: str | None = None) -> tuple[Example, ...]:
    """The examples with most of an uncertainty, most uncertain first; only these are predicted again."""
    eval_set, columns = evaluation.eval_set, evaluation.examples.columns
    if evaluation.ensemble is None:
        return ()
    ranked_by = by or RANKED_BY[eval_set.task]
    places = np.argsort(-columns[ranked_by], kind="stable")[:count]
    x = eval_set.split.x[places.copy()]
    predictive = evaluation.ensemble.predict(x)
    shown = measures(eval_set.task, predictive) if by is None else SPLIT_MEASURES
    return tuple(
        Example(
            label=told(columns["label" if eval_set.classes else "target"], place, eval_set.classes),
            prediction=told(columns["predicted"], place, eval_set.classes),
            image=picture(eval_set.preparation, x[turn]),
            row=row(eval_set.preparation, x[turn]),
            measures={name: float(columns[name][place]) for name in shown},
            votes=votes(predictive, turn, eval_set.classes),
            member_predictions=means(predictive, turn),
            index=int(place),
        )
        for turn, place in enumerate(places)
    )


def doubtful_examples(evaluation: Evaluation, count: int = FEW) -> dict[str, tuple[Example, ...]]:
    """Of a classification, the examples with most of each kind of uncertainty; one answer alone has one kind."""
    if evaluation.eval_set.task != "classification":
        return {}
    kinds = ("epistemic", "aleatoric") if len(evaluation.examples.agreement) > 1 else ("aleatoric",)
    return {kind: uncertain_examples(evaluation, count, kind) for kind in kinds}


def measures(task: str, predictive: Predictive) -> tuple[str, ...]:
    """The uncertainties worth showing; one member cannot disagree with itself."""
    names = CLASS_MEASURES if task == "classification" else NUMBER_MEASURES
    return names if len(predictive.outputs) > 1 else names[:2]


def told(column: np.ndarray, place: int, classes: tuple[str, ...]) -> str:
    """A label or target as text; several targets are listed."""
    if classes:
        return classes[int(column[place])]
    return ", ".join(number(float(value)) for value in np.atleast_1d(column[..., place]))


def votes(predictive: Predictive, place: int, classes: tuple[str, ...]) -> dict[str, int]:
    """How many members chose each class for one input; empty for regression and for a single member."""
    if not classes or len(predictive.outputs) == 1:
        return {}
    chosen, counts = np.unique(predictive.probs[:, place].argmax(-1).numpy(), return_counts=True)
    return {classes[k]: int(count) for k, count in zip(chosen, counts, strict=True)}


def means(predictive: Predictive, place: int) -> list[float]:
    """Each member's mean for one input, of a regression with one target."""
    if predictive.task == "classification" or predictive.member_mean.shape[-1] != 1:
        return []
    values: list[float] = predictive.member_mean[:, place, 0].tolist()
    return values


def picture(preparation: Preparation, x: Tensor) -> np.ndarray | None:
    """The picture (H, W, C) of one prepared input, if it is one."""
    if not isinstance(preparation, ImagePreparation) or preparation.shape[0] not in COLOURS:
        return None
    return preparation.pixels_of(x[None])[0]


def row(preparation: Preparation, x: Tensor) -> dict[str, Any]:
    """Column -> value, in the units of the source, of one prepared input; empty for pictures and the like."""
    if isinstance(preparation, TablePreparation):
        return table_row(preparation, x.numpy())
    if not isinstance(preparation, ArrayPreparation) or len(preparation.shape) != 1:
        return {}
    names = preparation.names or tuple(f"x{i}" for i in range(len(x)))
    values = x.double().numpy() * np.array(preparation.std) + np.array(preparation.mean)
    return {name: rounded(value) for name, value in zip(names, values, strict=True)}


def table_row(preparation: TablePreparation, x: np.ndarray) -> dict[str, Any]:
    """Column -> value of one prepared row (D,) of a table."""
    found, start = {}, 0
    for column in preparation.columns:
        width = len(column.prepared_names)
        found[column.name] = column_value(column, x[start : start + width])
        start += width
    return found


def column_value(column: Column, block: np.ndarray) -> Any:
    """What the prepared columns (width,) of one column stand for."""
    if isinstance(column, NumericColumn):
        missing = column.flags_missing and block[1] > 0.5
        return "missing" if missing else rounded(float(block[0]) * column.std + column.mean)
    names = (*column.categories, *(["missing"] if column.has_missing else []), "unseen")
    return names[int(block.argmax())]


def rounded(value: float) -> float:
    """A number without the digits that single precision made up."""
    return float(f"{float(value):.6g}")
