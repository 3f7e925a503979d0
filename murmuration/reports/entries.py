"""An evaluation as the record a report shows of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmuration.evaluation import Evaluation
from murmuration.metrics import shown_in
from murmuration.metrics.per_example import Columns
from murmuration.reports.coupling_records import meetings_of
from murmuration.reports.curves import declining, plain, reliability_of
from murmuration.reports.doubt_records import OVERALL, ClassRow, Doubts
from murmuration.reports.doubt_records import SHOWN as OF_CLASS
from murmuration.reports.landscape import field_of, some
from murmuration.reports.pruning_records import pruned_of
from murmuration.reports.records import Cost, Entry, Histogram, Parity
from murmuration.reports.trust_entries import trust_of

BINS = 20  # of a histogram
CURVES = ("epoch", "train_loss", "val_nll", "val_accuracy", "val_rmse", "ensemble")


def entry_of(evaluation: Evaluation) -> Entry:
    """The entry of one ensemble."""
    columns, task = evaluation.examples.columns, evaluation.eval_set.task
    classes = task == "classification"
    members, ensemble = len(evaluation.examples.agreement), evaluation.ensemble
    shown = shown_in("table", task, members=members)
    scores = {name: evaluation.scores[name] for name in shown if name in evaluation.scores}
    return Entry(
        name=evaluation.name,
        answers=ensemble.recipe.answers() if ensemble is not None else {},
        scores=plain(scores),
        reliability=reliability_of(columns, task),
        risk_coverage=declining(columns) if classes else None,
        histograms=tuple(histogram(columns, name, task) for name in spread_names(task, members)),
        cost=Cost(**evaluation.cost) if evaluation.cost else None,
        history=curves(ensemble.history) if ensemble is not None else (),
        draws=evaluation.draws,
        agreement=by_member(evaluation.examples.agreement, evaluation.draws) if members > 1 else None,
        members=evaluation.member_scores if members > 1 else (),
        frozen=evaluation.failures,
        parity=None if classes or columns["target"].ndim > 1 else parity(columns),
        field=field_of(evaluation),
        trust=trust_of(evaluation),
        meetings=meetings_of(ensemble.history, ensemble.manifest) if ensemble is not None else None,
        doubts=doubts_of(evaluation),
        weights=evaluation.weights,
        pruned=pruned_of(ensemble.manifest) if ensemble is not None else None,
    )


def by_member(agreement: NDArray[Any], draws: int) -> NDArray[Any]:
    """Agreement (M, M) of members from that of all their draws (S, S): the diagonal is that of a member's own draws."""
    if draws == 1:
        return agreement
    members = len(agreement) // draws
    found = agreement.reshape(members, draws, members, draws).mean((1, 3))
    own = [agreement[first : first + draws, first : first + draws] for first in range(0, len(agreement), draws)]
    np.fill_diagonal(found, [(block.sum() - block.trace()) / (draws * (draws - 1)) for block in own])
    return found


def doubts_of(evaluation: Evaluation) -> Doubts | None:
    """Why an ensemble is unsure; nothing of a regression."""
    if evaluation.eval_set.task != "classification":
        return None
    answers = len(evaluation.examples.columns["member_log_prob"])
    rows = tuple(
        ClassRow(each.name, each.examples, plain({name: each.scores[name] for name in OF_CLASS}))
        for each in evaluation.class_uncertainty
    )
    overall = plain({name: evaluation.scores[name] for name in OVERALL})
    return Doubts(answers // evaluation.draws, evaluation.draws, overall, rows)


def spread_names(task: str, members: int) -> tuple[str, ...]:
    """The uncertainties whose distribution is shown; one member has no disagreement."""
    names = ("entropy", "mutual_information") if task == "classification" else ("total_std", "epistemic_std")
    return names if members > 1 else names[:1]


def histogram(columns: Columns, name: str, task: str) -> Histogram:
    """An uncertainty among good and among bad predictions."""
    values = columns[name]
    good = columns["correct"] if task == "classification" else columns["inside_90"] >= 1
    words = ("right", "wrong") if task == "classification" else ("truth inside the 90 % interval", "outside")
    low, high = float(values.min()), float(values.max()) or 1.0
    edges = np.linspace(low if low > high / 2 else 0.0, high if high > low else low + 1.0, BINS + 1)
    groups = dict(zip(words, (values[good], values[~good]), strict=True))
    return Histogram(name, edges, {word: np.histogram(group, edges)[0] for word, group in groups.items()})


def parity(columns: Columns) -> Parity:
    """Some of the predictions against their targets."""
    kept = some(len(columns["target"]))
    return Parity(columns["target"][kept], columns["predicted"][kept], columns["total_std"][kept])


def curves(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What a reader wants to see of the history of training."""
    return [{key: record[key] for key in CURVES if key in record} for record in history]
