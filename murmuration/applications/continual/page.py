"""The HTML page of a stream of tasks: scores of the methods, accuracy matrices, changes, generated inputs, memory."""

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from torch import Tensor

from murmuration.applications.continual.ensembles import Identification
from murmuration.applications.continual.harness import AccuracyMatrix, Outcome
from murmuration.applications.continual.learner import MEMORY
from murmuration.applications.continual.methods import METHODS
from murmuration.applications.continual.task_streams import TaskStream
from murmuration.data import ImagePreparation
from murmuration.reports.figures import Figure, axis, colour, dash, heat, layout, plot_text, scatter, symbol
from murmuration.reports.formatting import MISSING, duration, number, percent, plural, shorten
from murmuration.reports.html import Markup, definitions, figure, grid, join, png, row_head, section, table, tag, text
from murmuration.reports.page import framed

Outcomes = Mapping[str, Outcome]
COLUMNS = ("final accuracy", "forgetting", "task identified", "memory", "time")
REFERENCE = "lda"
FEW = 12  # tasks of a matrix with a number in every cell
IMAGES = "display:flex;flex-wrap:wrap;gap:4px;margin:4px 0 16px"
IMAGE = "width:56px;height:56px;image-rendering:pixelated;display:block"


def continual_page(outcomes: Outcomes, stream: TaskStream, settings: Mapping[str, Any]) -> str:
    """Return the page on some methods in one stream."""
    parts = [summary(outcomes, stream), scores(outcomes), matrices(outcomes, stream), changes(outcomes, stream)]
    parts += [identification(outcomes), generated(outcomes, stream), memory(outcomes), settings_list(settings, stream)]
    return framed("Continual learning", f"{stream.name} · {', '.join(outcomes)}", join(parts))


def sentences(outcomes: Outcomes, stream: TaskStream) -> list[str]:
    """Return the summary: which method is best, what discriminant analysis reaches, what is forgotten and noticed."""
    lines = []
    accuracies = {name: outcome.accuracy for name, outcome in outcomes.items() if not METHODS[name].joint}
    order = sorted(accuracies, key=lambda name: -accuracies[name].final_average)  # the best first
    if order:
        best = accuracies[order[0]]
        name = "Streaming discriminant analysis" if order[0] == REFERENCE else order[0]
        ahead = f"{name} has the highest final accuracy," if len(order) > 1 else f"{name} reaches a final accuracy of"
        lines.append(f"{ahead} {accuracy_text(best)} (one standard error), over {plural(len(stream.tasks), 'task')}.")
        if REFERENCE in accuracies and order[0] != REFERENCE:
            other = accuracies[REFERENCE]
            gap = best.final_average - other.final_average
            sure = "more" if gap > np.hypot(other.standard_error, best.standard_error) else "less"
            reaches = f"which needs no training, reaches {percent(other.final_average)}"
            difference = f"the difference is {sure} than one standard error"
            lines.append(f"Streaming discriminant analysis, {reaches}: {difference}.")
    for name in order:
        lost, detection, noticed = accuracies[name].forgetting, outcomes[name].record["detection"], ""
        if detection is not None:
            total, alarms = len(detection["changes"]), plural(detection["false_alarms"], "false alarm")
            noticed = f"; it noticed {total - detection['misses']} of {plural(total, 'change')} and gave {alarms}"
        did = f"lost {percent(lost)}" if lost >= 0 else f"gained {percent(-lost)}"
        lines.append(f"{name} {did} of accuracy on earlier tasks{noticed}.")
    if stream.scenario == "class" and any(outcome.record["detection"] for outcome in outcomes.values()):
        lines.append("Every task brings labels of its own, which give a change away: detection is easy here.")
    return lines


def accuracy_text(accuracy: AccuracyMatrix) -> str:
    return f"{percent(accuracy.final_average)} ± {percent(accuracy.standard_error)}"


def summary(outcomes: Outcomes, stream: TaskStream) -> Markup:
    kind = "each with classes of its own" if stream.scenario == "class" else "with the same labels"
    reading = f"{plural(len(stream.tasks), 'task')}, {kind}, learned one after another. Old data is not seen again."
    lines = join(tag("p", sentence, "lead") for sentence in sentences(outcomes, stream))
    return section("summary", "Summary", reading, lines)


def score_rows(outcomes: Outcomes) -> list[list[str]]:
    """Return one row of text for each method."""
    rows = []
    for name, outcome in outcomes.items():
        accuracy, record = outcome.accuracy, outcome.record
        named = record["task_id"]["final_average"]
        forgetting = MISSING if METHODS[name].joint else percent(accuracy.forgetting)
        needs = size(sum(record["memory"].values())), duration(record["seconds"])
        rows.append([name, accuracy_text(accuracy), forgetting, MISSING if named is None else percent(named), *needs])
    return rows


def size(amount: float) -> str:
    """Return bytes in the unit a person would use.

    >>> size(512), size(20480), size(3 * 2**20)
    ('512 B', '20.0 kB', '3.00 MB')
    """
    for unit in ("B", "kB"):
        if amount < 1024:
            return f"{number(amount)} {unit}"
        amount /= 1024
    return f"{number(amount)} MB"


def scores(outcomes: Outcomes) -> Markup:
    reading = (
        "Final accuracy is the mean over all tasks after the last one, ± one standard error by the test examples;"
        " forgetting is the accuracy on a task when it was learned minus that at the end, mean over earlier tasks. A"
        " task is identified if the predicted class, or the named task, is one of it."
    )
    rows = [(row_head(name, METHODS[name].about), cells) for name, *cells in score_rows(outcomes)]
    board = table("Scores of the methods", ("Method", *COLUMNS), rows)
    return section("scores", "Methods", reading, join([board, figure(progress_figure(outcomes))]))


def progress_figure(outcomes: Outcomes) -> Figure | None:
    """Return mean accuracy over the tasks seen so far, after each segment."""
    data = []
    for place, name in enumerate(name for name in outcomes if not METHODS[name].joint):
        means = np.nanmean(outcomes[name].accuracy.values, axis=1)
        line = scatter("lines+markers", range(1, len(means) + 1), means, name)
        look = {"color": colour(place), "symbol": symbol(place), "size": 8}
        data.append(line | {"marker": look, "line": {"color": colour(place), "dash": dash(place)}})
    if not data or len(data[0]["x"]) < 2:
        return None
    across = axis("tasks learned") | {"dtick": 1 if len(data[0]["x"]) <= FEW else None}
    panel = layout(across, axis("accuracy") | {"tickformat": ".0%", "rangemode": "tozero"}) | {"showlegend": True}
    title = "Mean accuracy over the tasks learned so far"
    return Figure("progress", title, f"{title}, by method", data, panel)


def matrices(outcomes: Outcomes, stream: TaskStream) -> Markup:
    reading = "Accuracy on the test examples of each task (columns) after each task was learned (rows)."
    maps = grid(figure(matrix(name, outcome, stream)) for name, outcome in outcomes.items())
    return section("matrix", "Accuracy matrix", reading, maps)


def matrix(name: str, outcome: Outcome, stream: TaskStream) -> Figure:
    """Return the accuracy matrix of one method as a heat map."""
    values = outcome.accuracy.values
    names = [plot_text(shorten(task.name.rpartition("/")[2], 12)) for task in stream.tasks]
    after = ["all at once"] if METHODS[name].joint else [names[tasks[0]] for tasks in stream.segments]
    trace = heat(values) | {"zmin": 0, "zmax": 1, "showscale": False, "xgap": 1, "ygap": 1}
    if max(values.shape) <= FEW:
        trace |= {"texttemplate": "%{z:.2f}", "textfont": {"size": 10}}
    trace["hovertemplate"] = "after %{y}, on task %{x}: %{z:.3f}<extra></extra>"
    across = axis("tested on") | {"tickvals": list(range(len(names))), "ticktext": names, "showgrid": False}
    down = axis("learned") | {"tickvals": list(range(len(after))), "ticktext": after, "showgrid": False}
    label = f"Accuracy matrix of {name}: final average {percent(outcome.accuracy.final_average)}"
    panel = layout(across, down | {"autorange": "reversed"})
    return Figure(f"matrix-{name}", name, label, [trace], panel, max(200, 90 + 30 * len(after)))


def changes(outcomes: Outcomes, stream: TaskStream) -> Markup:
    """Return the changes of the stream and how they were noticed, by the methods that detect tasks."""
    having = {name: outcome for name, outcome in outcomes.items() if outcome.record["detection"] is not None}
    reading = (
        "The delay is the number of batches from the first of a task to the decision that the task has changed. Every"
        " further decision inside a task is a false alarm. A recurring task should be recognised, another one be new."
    )
    rows = []
    for name, outcome in having.items():
        detection = outcome.record["detection"]
        delay = MISSING if detection["mean_delay"] is None else f"{number(detection['mean_delay'])} batches"
        recognised = f"{detection['recognised']} of {detection['recurring']}" if detection["recurring"] else MISSING
        counts = len(detection["changes"]), detection["misses"], detection["false_alarms"]
        rows.append((name, [*counts, delay, recognised, outcome.record.get("tasks_found", MISSING)]))
    columns = ("Method", "changes", "missed", "false alarms", "mean delay", "recurring recognised", "tasks found")
    timelines = [figure(timeline(name, outcome, stream)) for name, outcome in having.items()]
    board = table("Changes noticed", columns, rows)
    return section("changes", "Detection of changes", reading, join([board, *timelines]))


def identification(outcomes: Outcomes) -> Markup:
    """Return the tasks of test inputs by density, disagreement of flows and typicality, where there are several."""
    ways = get_args(Identification)
    rates = {name: outcome.record.get("identified") for name, outcome in outcomes.items()}
    rows = [(name, [percent(rate[way]) for way in ways]) for name, rate in rates.items() if rate]
    reading = (
        "Test inputs whose task is found, without their labels: by the largest density, by the smallest disagreement of"
        " the flows on it (epistemic uncertainty), by the least deviation from inputs that the flows draw."
    )
    return section("tasks", "Identification of tasks", reading, table("Tasks identified", ("Method", *ways), rows))


def timeline(name: str, outcome: Outcome, stream: TaskStream) -> Figure:
    """Return the tasks of the stream over its batches, and those that a method named."""
    starts, events = outcome.record["starts"], outcome.record["events"]
    order = [tasks[0] + 1 for tasks in stream.segments]
    true = scatter("lines", starts, [*order, order[-1]], "task")
    true |= {"line": {"shape": "hv", "color": colour(0), "width": 2}}
    steps, named = zip(*events, (starts[-1], events[-1][1]), strict=True)
    guess = scatter("lines+markers", steps, [task + 1 for task in named], f"named by {name}")
    guess |= {"line": {"shape": "hv", "color": colour(1), "dash": "dash"}, "marker": {"color": colour(1), "size": 6}}
    panel = layout(axis("batch"), axis("number of the task") | {"dtick": 1 if len(order) <= FEW else None})
    label = f"Tasks of the stream, and those named by {name}: {len(events)} decisions"
    title = f"{name}: tasks of the stream, and as they are named"
    return Figure(f"timeline-{name}", title, label, [true, guess], panel | {"showlegend": True})


def generated(outcomes: Outcomes, stream: TaskStream) -> Markup:
    """Return images drawn from each task of a flow at the end of the stream."""
    if not stream.has_images:
        return Markup("")
    blocks: list[Markup] = []
    for name, outcome in outcomes.items():
        for task, samples in outcome.samples.items():
            alt, pictures = text(f"{name}: generated, task {task + 1}"), pixels(samples, stream)
            images = join(Markup(f'<img style="{IMAGE}" src="{png(image)}" alt="{alt}">') for image in pictures)
            blocks += [tag("h3", f"{name}, task {task + 1}"), Markup(f'<div style="{IMAGES}">{images}</div>')]
    reading = "Inputs that the flow draws at the end of the stream, from the classes of each task that it has found."
    return section("generated", "Generated inputs", reading, join(blocks))


def pixels(samples: Tensor, stream: TaskStream) -> np.ndarray:
    """Return images (N, H, W, C) uint8 of generated inputs: prepared vectors (N, D), or pixels (N, C, H, W) in 0..1."""
    assert isinstance(stream.preparation, ImagePreparation)
    if samples.dim() == 2:
        return stream.preparation.pixels_of(samples.view(-1, *stream.input_shape))
    return (255 * samples).round().clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous().numpy()


def memory(outcomes: Outcomes) -> Markup:
    rows = [(name, [size(outcome.record["memory"][kind]) for kind in MEMORY]) for name, outcome in outcomes.items()]
    kinds = "the network itself, copies of it, statistics of classes, stored examples"
    board = table("Memory of the methods", ("Method", *MEMORY), rows)
    return section("memory", "Memory", f"Bytes at the end of the stream: {kinds}.", board)


def settings_list(settings: Mapping[str, Any], stream: TaskStream) -> Markup:
    names = "; ".join(f"{place + 1}: {task.name}" for place, task in enumerate(stream.tasks))
    sizes = ", ".join(f"{len(task.train):,} + {len(task.test):,}" for task in stream.tasks)
    facts = {"tasks": names, "train + test": sizes}
    facts |= {name: "by method" if value is None else str(value) for name, value in settings.items()}
    return section("settings", "Settings", "", definitions(facts.items(), "facts"))
