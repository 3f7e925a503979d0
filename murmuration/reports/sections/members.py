"""How the ensembles came about: recipes and cost, members, training curves, coupling, provenance."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import murmuration.reports.html as html
from murmuration.evaluation import Evaluation
from murmuration.evaluation.metrics import Score, describe
from murmuration.reports.figures import Figure, axis, colour, dash, layout, member_matrix, scale_of, scatter
from murmuration.reports.formatting import (
    MISSING,
    TIMES,
    count,
    duration,
    finite_mean,
    members_and_draws,
    number,
    percent,
    words_of,
)
from murmuration.reports.html import NOTHING, Markup, text
from murmuration.reports.report import Report

QUESTIONS = ("sharing", "weights", "coupling", "dynamics")
CURVES = ("train_loss", "val_nll", "val_accuracy", "val_rmse")
COUPLING = ("mean_kernel", "cosine", "push_to_loss")
ALIKE = 0.02  # agreements of pairs that differ by less are not drawn
LOWEST = 0.8  # end of the colour scale of agreements, unless some are lower
COUPLING_READING = (
    "Members that repel each other, measured in the first step of every epoch. Mean kernel: similarity of two members, "
    "0 to 1, relative to their own distances. Cosine: between the coupling features of two members. Repulsion / loss "
    "gradient: far below 1 the data decides, above 1 repulsion does."
)


def recipes(report: Report) -> Markup:
    """Return the settings of every recipe, and its cost."""
    settings, parts = [], []
    for evaluation in report.evaluations:
        if evaluation.ensemble is not None:
            answers = evaluation.ensemble.recipe.answers() if evaluation.ensemble.groups else {}
            settings.append((evaluation.name, [answers.get(question, MISSING) for question in QUESTIONS]))
        if selection := evaluation.manifest.selection:  # of the parts of a mixed ensemble
            weights, nll = selection["weights"], selection["val_nll"]
            rows = [(name, [percent(weight), number(nll[name])]) for name, weight in weights.items()]
            rows.append(("all together", [percent(1.0), number(selection["mixed_val_nll"])]))
            title = f"Parts of {evaluation.name}, weighted by greedy selection on the validation examples"
            parts.append(html.table(title, ("Part", "Weight", "Validation NLL"), rows))
    board = html.tag("div", html.table("Recipes", ["Recipe", *map(str.capitalize, QUESTIONS)], settings), "words")
    settings_board = [html.details("Settings of the recipes", board) if len(settings) > 1 else board]
    reading = "Cost and settings of every recipe. Times are comparable within this table only."
    return html.section("recipes", "Recipes and cost", reading, html.join([_costs(report), *settings_board, *parts]))


def _costs(report: Report) -> Markup:
    spent = {e.name: e.cost for e in report.evaluations if e.cost}
    finite = [cost["seconds"] for cost in spent.values() if math.isfinite(cost.get("seconds", math.nan))]
    quickest = min(finite, default=math.nan)
    rows = []
    for name, cost in spent.items():
        seconds, milliseconds = cost.get("seconds", math.nan), number(cost.get("ms_per_prediction", math.nan))
        ratio = seconds / quickest if quickest > 0 else math.nan
        sizes = [count(cost.get(key, math.nan)) for key in ("members", "parameters")]
        times = [duration(seconds), duration(cost.get("cpu_seconds", math.nan))]
        times.append(f"{ratio:.1f} {TIMES}" if math.isfinite(ratio) else MISSING)
        rows.append((name, [*sizes, *times, milliseconds if milliseconds == MISSING else f"{milliseconds} ms"]))
    columns = ("Recipe", "Members", "Parameters", "Training time", "CPU time", "Relative", "One prediction")
    return html.table("Cost of each recipe", columns, rows)


def members(report: Report) -> Markup:
    """Agreement between members, each of them alone, and training curves."""
    numbered, paragraphs = list(enumerate(report.evaluations)), []
    for evaluation in (e for e in report.evaluations if e.failures):
        failures = "; ".join(f"member {member} ({reason})" for member, reason in evaluation.failures.items())
        text = f"{evaluation.name}: members that failed during training: {failures}."
        paragraphs.append(html.tag("p", text, "warning"))
    parts = []
    for place, evaluation in numbered:
        several = evaluation.predictions > 1
        drawn = agreement_figure(evaluation, f"agreement-{place}") if several and pairs_differ(evaluation) else None
        figures = [training_figure(evaluation, m, place, f"training-{place}-{turn}") for turn, m in enumerate(CURVES)]
        history = html.details("Training curves", html.grid(map(html.figure, figures)))
        table = _member_table(evaluation) if several and evaluation.member_scores else NOTHING
        about = _agreement_text(evaluation) if several else NOTHING
        parts.append(html.join([html.grid([html.figure(drawn), html.tag("div", html.join([about, table]))]), history]))
    reading = "Members that always agree are worth no more than one; the tables hold what each scores alone."
    title = "Members" if report.eval_set.audited else "Members and training"
    body = html.join([*paragraphs, html.per_recipe(parts)])
    return html.section("members", title, reading, body, folded=report.is_comparison)


def agreement_of(evaluation: Evaluation) -> NDArray[Any]:
    """Agreement (M, M) of members, from that of all their draws; the diagonal is that of a member's own draws."""
    matrix, draws = evaluation.examples.agreement, evaluation.draws
    return matrix if draws == 1 else by_member(matrix, draws)


def by_member(agreement: NDArray[Any], draws: int) -> NDArray[Any]:
    """Agreement (M, M) of members from that of their draws (S, S)."""
    members = len(agreement) // draws
    blocks = agreement.reshape(members, draws, members, draws).mean((1, 3))
    own = [agreement[first : first + draws, first : first + draws] for first in range(0, len(agreement), draws)]
    np.fill_diagonal(blocks, [(block.sum() - block.trace()) / (draws * (draws - 1)) for block in own])
    return blocks


def _pairs(evaluation: Evaluation) -> NDArray[Any]:
    matrix = agreement_of(evaluation)
    pairs = matrix[~np.eye(len(matrix), dtype=bool)]
    return pairs[np.isfinite(pairs)]


def pairs_differ(evaluation: Evaluation) -> bool:
    """Return whether some pairs of members agree more than others: a map of equal values shows nothing."""
    pairs = _pairs(evaluation)
    return len(pairs) > 2 and float(pairs.max() - pairs.min()) >= ALIKE


def _agreement_text(evaluation: Evaluation) -> Markup:
    """Return the agreement of members and of draws in words."""
    pairs, words = _pairs(evaluation), []
    if len(pairs):
        show = percent if evaluation.classes else number
        mean, examples = show(float(pairs.mean())), words_of(evaluation.eval_set).examples
        relation = f"agree on {mean} of the {examples}" if evaluation.classes else f"have a correlation of {mean}"
        ends = f" ({show(pairs.min())} to {show(pairs.max())})" if len(pairs) > 2 else ""
        words.append(f"two members {relation} on average{ends}")
    if evaluation.draws > 1:
        own = finite_mean(np.diag(agreement_of(evaluation)))
        size = members_and_draws(evaluation.predictions // evaluation.draws, evaluation.draws)
        words.append(f"{size}; two draws of a member agree to {number(own)}, where 1 is the same")
    return html.tag("p", f"{evaluation.name}: {'; '.join(words)}.", "aside") if words else NOTHING


def agreement_figure(evaluation: Evaluation, name: str) -> Figure | None:
    """Agreement between members as a heat map; None where there are no pairs."""
    pairs = _pairs(evaluation)
    if not len(pairs):
        return None
    label = f"Agreement between members of {evaluation.name}: {number(float(pairs.mean()))} on average"
    title = f"{evaluation.name}: agreement of members"
    return member_matrix(name, title, label, agreement_of(evaluation), min(LOWEST, float(pairs.min())))


def _member_table(evaluation: Evaluation) -> Markup:
    scores, drawn = evaluation.member_scores, evaluation.draws > 1
    names = list(dict.fromkeys(name for row in scores for name in row))
    lines: dict[str, Mapping[str, float]] = {
        f"{'draw of member' if drawn else 'member'} {place}": row for place, row in enumerate(scores)
    }
    mean = {name: finite_mean(row.get(name, math.nan) for row in scores) for name in names}
    lines |= {"mean of draws" if drawn else "mean": mean, "all together": evaluation.uncalibrated.scores(resamples=1)}
    if evaluation.after is not None:
        lines["all together, calibrated"] = evaluation.scores
    rows = [(label, [number(row.get(name, math.nan)) for name in names]) for label, row in lines.items()]
    columns = ["Member", *(describe(name, evaluation.task).label for name in names)]
    board = html.table(f"Each member of {evaluation.name} alone", columns, rows)
    return html.details(f"Scores of each member of {evaluation.name}", board)


def history_of(evaluation: Evaluation, measure: str) -> tuple[list[Any], dict[int, list[float]], list[float]]:
    """Epochs, values of every member (NaN where it had stopped training), and those of the ensemble."""
    history = evaluation.ensemble.history if evaluation.ensemble is not None else ()
    rows = [row for row in history if len(np.atleast_1d(row.get(measure, ())))]
    epochs = [row.get("epoch", turn) for turn, row in enumerate(rows)]
    size = max((len(np.atleast_1d(row[measure])) for row in rows), default=0)
    series = {member: [_at(row, measure, member) for row in rows] for member in range(size)}
    return epochs, series, [row.get("ensemble", {}).get(measure, math.nan) for row in rows]


def _at(row: Mapping[str, Any], measure: str, member: int) -> float:
    """Return the value of a member in an epoch; NaN for the training loss of one that did not train in it."""
    values = np.atleast_1d(np.asarray(row[measure], dtype=float))
    active: Sequence[bool] = row.get("active", ())
    stopped = measure == "train_loss" and member < len(active) and not active[member]
    return math.nan if stopped or member >= len(values) else float(values[member])


def training_figure(evaluation: Evaluation, measure: str, place: int, name: str) -> Figure | None:
    """Return a measure over the epochs: thin lines for members, dotted for failed ones, thick for the ensemble."""
    epochs, series, together = history_of(evaluation, measure)
    if not series:
        return None
    running = {member: values for member, values in series.items() if member not in evaluation.failures}
    failed = {member: values for member, values in series.items() if member in evaluation.failures}
    groups = (running, "members", "solid"), (failed, "failed members", "dot")
    data = [_member_lines(epochs, *group) for group in groups if group[0]]
    if np.isfinite(np.asarray(together, dtype=float)).any():
        thick = {"line": {"color": colour(place), "width": 3}, "hovertemplate": "%{y:.4g}"}
        data.append(scatter("lines", epochs, together, "ensemble") | thick)
    label = describe(measure.removeprefix("val_").removeprefix("train_")).label
    split = "training" if measure.startswith("train") else "validation"
    scale = scale_of(value for values in series.values() for value in values)
    panel = layout(axis("epoch"), axis(f"{label}, {split}") | scale) | {"showlegend": True}
    title = f"{evaluation.name}: {label if label.isupper() else label.lower()}, {split}"
    return Figure(name, title, f"{title}, of {len(series)} members over {len(epochs)} epochs", data, panel, 260)


def _member_lines(epochs: list[Any], series: dict[int, list[float]], title: str, style: str) -> dict[str, Any]:
    """Return all members as one trace, with a gap after each: one legend line, and a file that stays small."""
    soft = "var(--member)" if style == "solid" else "var(--bad)"
    x = itertools.chain.from_iterable([*epochs, None] for _ in series)
    y = itertools.chain.from_iterable([*values, None] for values in series.values())
    return scatter("lines", x, y, title) | {
        "text": [f"member {member}" for member in series for _ in range(len(epochs) + 1)],
        "line": {"color": soft, "width": 1.2, "dash": style},
        "hovertemplate": "%{text}: %{y:.4g}<extra></extra>",
    }


def coupling(report: Report) -> Markup:
    """Statistics of the repulsion over the epochs, the time it took, and how alpha was chosen."""
    ids = {name: f"coupling-{name.replace('_', '-')}" for name in COUPLING}
    plots = html.grid(html.figure(coupling_figure(report, name, place)) for name, place in ids.items())
    rows, sweeps = [], []
    for evaluation in report.evaluations:
        spent, chosen = evaluation.manifest.coupling_seconds, evaluation.manifest.chosen
        steps, seconds = _number(spent.get("steps")), _number(spent.get("coupling"))
        if steps > 0 and math.isfinite(seconds):
            rows.append((evaluation.name, [duration(steps), duration(seconds), percent(seconds / steps)]))
        sweep = evaluation.manifest.sweep
        scores = {tried: Score(_number(nll), math.nan, math.nan) for tried, nll in sweep.items()}
        tries = [(tried, [html.score_cell(score, best=tried == chosen)]) for tried, score in scores.items()]
        caption = "NLL on clean and corrupted validation examples by alpha; ★ was chosen"
        sweeps.append(html.table(f"Lengthscales of {evaluation.name}: {caption}", ("Alpha", "Validation NLL"), tries))
    columns = ("Recipe", "All steps", "Kernels and repulsion", "Fraction")
    times = html.table("Time of the coupling, without the second backward pass", columns, rows)
    body = html.join([plots, times, *sweeps])
    return html.section("coupling", "Coupling of members", COUPLING_READING, body, folded=report.is_comparison)


def coupling_figure(report: Report, measure: str, name: str) -> Figure | None:
    """Return one statistic of the coupling over the epochs, a line for every recipe that has it."""
    data, all_values = [], []
    for place, evaluation in enumerate(report.evaluations):
        history = evaluation.ensemble.history if evaluation.ensemble is not None else ()
        rows = [row for row in history if row.get("coupling")]
        values = [_number(row["coupling"].get(measure)) for row in rows]
        if not np.isfinite(values).any():
            continue
        all_values += values
        mode, epochs = "lines" if len(values) > 1 else "markers", [row["epoch"] for row in rows]
        look = {"line": {"color": colour(place), "width": 2, "dash": dash(place)}, "hovertemplate": "%{y:.3g}"}
        data.append(scatter(mode, epochs, values, evaluation.name) | look)
    if not data:
        return None
    label = describe(measure).label
    scale = scale_of(all_values) if measure == "push_to_loss" else {}
    panel = layout(axis("epoch"), axis(label.lower()) | scale) | {"showlegend": True, "hovermode": "x"}
    return Figure(name, label, f"{label} over the epochs, by recipe", data, panel, 260)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def provenance(report: Report) -> Markup:
    """Return the exact command, the data, the seeds and the versions."""
    button = '<button type="button" class="copy" data-copy="command-text">Copy</button>'
    code = f'<pre tabindex="0"><code id="command-text">{text(report.command)}</code></pre>'
    command = Markup(f'<div class="command">{button}{code}</div>') if report.command else NOTHING
    eval_set = report.eval_set
    versions = report.leader.manifest.versions
    trained = {e.manifest.plan["seed"] for e in report.evaluations if e.manifest.plan}
    seeds = sorted(trained) if report.seeds is None else report.seeds.seeds
    facts = {
        "Data": eval_set.name,
        "Fingerprint": eval_set.fingerprint,
        "Splits": ", ".join(f"{split} {count(size)}" for split, size in eval_set.sizes.items()),
        "Classes": ", ".join(report.classes),
        "Target": report.target,
        "Seeds": ", ".join(map(str, seeds)),
        "Date": report.date,
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    listing = html.definitions(((name, value) for name, value in facts.items() if value), "facts")
    body = html.join([command, html.details("Data, seeds and versions", listing)])
    reading = "The command that repeats this report. If the fingerprint of the data differs, so will the numbers."
    return html.section("provenance", "Provenance", reading, body)
