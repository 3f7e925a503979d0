"""Evaluations on the screen: tables of scores, under shift, and on out-of-distribution inputs; and their files.

Imported when a command runs, as it loads torch.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from murmuration.cli.console import print_json, print_table, say
from murmuration.data import Data
from murmuration.evaluation import EvalSet, Evaluation, evaluate_ensemble, held_out_set
from murmuration.evaluation.metrics import MEASURES, Score, describe, shown_in
from murmuration.prediction.ensemble import Ensemble
from murmuration.reports.findings import DECIDING
from murmuration.reports.formatting import (
    ARROWS,
    duration,
    heading,
    interval,
    members_and_draws,
    number,
    plural,
    words_of,
)
from murmuration.reports.report import REPORT, report_of, results_bytes, results_json
from murmuration.reports.seeds import Seeds
from murmuration.runs.directory import replace_files
from murmuration.system.errors import Failure


def finish_run(path: Path, ensemble: Ensemble, data: Data | EvalSet, *, as_json: bool) -> None:
    """Evaluate a finished run on its test split, write metrics.json and report.html, and print the scores.

    A run without test examples is evaluated on its validation examples, one with folds out of fold, and one without
    either is not.
    """
    if not isinstance(data, EvalSet):
        if not len(data.held_out):
            return say(f"not evaluated, for {data.name} has neither test nor validation examples: {path}")
        data = held_out_set(ensemble, data)
    evaluation = evaluate_ensemble(ensemble, data)
    try:
        leave_results(path, evaluation, as_json=as_json)
    except Failure as error:  # a full disk, say
        hint = f"the run is complete, and murmur evaluate {path} writes its scores and report"
        raise Failure(f"{error}; {hint}") from error


def leave_results(
    path: Path, evaluation: Evaluation, *, as_json: bool, files: dict[str, bytes] | None = None, command: str = ""
) -> None:
    """Write metrics.json and report.html of an evaluation into a run directory, and print the scores.

    `files` are further files of the run that are replaced with them; `command` repeats the report, if it is not that
    of the run.
    """
    report = report_of([evaluation], command=command)
    record = results_json(report, run=path)
    replace_files(path, {**(files or {}), **results_bytes(record, report)})
    show_results([evaluation], record, as_json=as_json)
    if not as_json:
        say(f"report: {path / REPORT}")


def show_results(
    evaluations: Sequence[Evaluation], record: dict[str, Any], *, as_json: bool, seeds: Seeds | None = None
) -> None:
    """Print the record, or tables and sentences that hold the same."""
    if as_json:
        return print_json(record)
    of_seed = "" if seeds is None else seeds.of_first
    show_scores(evaluations, of_seed)
    if seeds is not None:
        show_seeds(evaluations[0], seeds)
    if caution := words_of(evaluations[0].eval_set).caution:
        say(caution)
    for show in (show_shift, show_ood):
        for evaluation in evaluations:
            show(evaluation, of_seed)
    show_sentences(record, "" if seeds is None else f"Seed {seeds.seeds[0]}: ")


def show_sentences(record: dict[str, Any], of_seed: str = "") -> None:
    """Print the findings, after the seed that they are of, then the verdict."""
    for sentence in (*(f"{of_seed}{note}" for note in record["notes"]), *record["verdict"]):
        say(f"- {sentence}")


def show_scores(evaluations: Sequence[Evaluation], of_seed: str = "") -> None:
    """Print all scores of one evaluation, or the main scores of several next to each other, and those without input."""
    first, eval_set = evaluations[0], evaluations[0].eval_set
    count, of_file = first.examples.inputs, first.ensemble is None
    kind = "example" if eval_set.part == "test" else f"{eval_set.part} example"
    examples = plural(count, "row") if of_file else f"{plural(count, kind)} of {eval_set.name}"
    if len(evaluations) > 1:
        names = first.shown_in("brief")
        columns = ["", *map(heading, names), *(("members", "trained in\n(CPU time)") if first.cost else ())]
        without = [score_text(first.baseline.scores.get(name)) for name in names]
        last = [f"no input:\n{first.baseline.name}", *without, *([""] * 2 if first.cost else [])]
        return print_table(
            columns, [*(compared_row(e, names) for e in evaluations), last], title=f"{examples}{of_seed}"
        )
    size = members_and_draws(first.predictions // first.draws, first.draws)
    title = f"{first.name}, {size}, {'' if of_file else 'on '}{examples}"
    single = "a member alone" if first.draws == 1 else "a draw alone"
    single += ", uncalibrated" if first.uncalibrated is not first.examples else ""
    columns = ["score", "value", "95 % interval", "better", *([single] if first.predictions > 1 else []), "no input"]
    print_table(columns, score_rows(first), title=title)


def score_rows(evaluation: Evaluation) -> list[list[str]]:
    """Return rows of scores: value, interval, and the mean of single members if there are several."""
    rows, members = [], evaluation.predictions
    for name, score in evaluation.scores.items():
        measure = MEASURES[evaluation.task][name]
        if name.startswith("member_") or (members == 1 and measure.needs_members):
            continue
        single = evaluation.scores.get(f"member_{name}")
        beside = [number(single) if single is not None else ""] if members > 1 else []
        without = evaluation.baseline.scores.get(name) if not measure.needs_members else None
        beside.append("" if without is None else number(without))
        rows.append([measure.label, number(score), interval(score), ARROWS[measure.better], *beside])
    return rows


def compared_row(evaluation: Evaluation, names: Sequence[str]) -> list[str]:
    """Return one of several evaluations: scores with intervals below, then costs if they are known."""
    scores, cost = evaluation.scores, evaluation.cost
    costs = (f"{cost['members']:,}", time_text(cost)) if cost else ()
    return [evaluation.name, *(score_text(scores.get(name)) for name in names), *costs]


def time_text(cost: Mapping[str, float]) -> str:
    """Return the time of training by the clock, over that of the CPU."""
    cpu = cost.get("cpu_seconds", math.nan)
    return duration(cost["seconds"]) + (f"\n({duration(cpu)})" if math.isfinite(cpu) else "")


def score_text(score: Score | None) -> str:
    """Return a score over its interval; nothing for one that does not exist."""
    return "" if score is None else f"{number(score)}\n{interval(score)}"


def show_seeds(evaluation: Evaluation, seeds: Seeds) -> None:
    """Print means over the training seeds, and paired differences in the deciding score."""
    names, count = evaluation.shown_in("brief"), len(seeds.seeds)
    rows = [[recipe, *map(score_text, scores)] for recipe, scores in seeds.rows(names)]
    print_table(["", *map(heading, names)], rows, title=f"means over {count} training seeds, with t-intervals")
    differences = [
        [f"{test.a} \u2212 {test.b}", number(test.difference), interval(test.difference), test.chance]
        for test in seeds.pairs(DECIDING)
    ]
    columns = ["", heading(DECIDING), "95 % t-interval", "paired t-test"]
    print_table(columns, differences, title=f"differences over {count} training seeds")


def show_shift(evaluation: Evaluation, of_seed: str = "") -> None:
    """Print scores without corruption, by severity, and over all corruptions and severities."""
    shift = evaluation.shift
    if shift is None:
        return
    levels = {"clean": shift.clean, **{f"severity {s}": scores for s, scores in shift.by_severity.items()}}
    if len(shift.by_severity) > 1:
        levels["all severities"] = shift.pooled
    names = shown_in("shift", evaluation.task, members=evaluation.predictions)
    rows = [[level, *(number(scores[name]) for name in names)] for level, scores in levels.items()]
    print_table(
        ["inputs", *map(heading, names)], rows, title=f"{evaluation.name}{of_seed}: means over {shift.description}"
    )


def show_ood(evaluation: Evaluation, of_seed: str = "") -> None:
    """Print how well every uncertainty separates each out-of-distribution set from the evaluation set."""
    for result in evaluation.ood:
        rows = [
            [describe(name).label, number(d.auroc), interval(d.auroc), number(d.aupr), number(d.fpr95)]
            for name, d in result.detections.items()
        ]
        sizes = f"{result.examples:,} of {result.name} against {evaluation.examples.inputs:,} in-distribution inputs"
        columns = ["uncertainty", "AUROC ↑", "95 % interval", "AUPR ↑", "FPR95 ↓"]
        print_table(columns, rows, title=f"{evaluation.name}{of_seed}: {sizes}")
