"""The page of the reproduction of Bayesian convolutional networks."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from murmuration.reports.figures import Figure, axis, colour, dash, layout, scatter
from murmuration.reports.formatting import MISSING, number
from murmuration.reports.html import Markup, figure, grid, join, section, table
from murmuration.reports.page import framed
from murmuration.studies.papers import ScreenTable
from murmuration.studies.papers.bayes_cnn.published import WORK
from murmuration.studies.papers.bayes_cnn.settings import ROWS, Setting
from murmuration.studies.papers.page import settings_section, verdicts_section
from murmuration.studies.papers.record import Record
from murmuration.studies.verdicts import Verdict, mean_interval

COLUMNS = ("accuracy, %", "published", "NLL", "aleatoric", "epistemic", "numbers", "CPU seconds")
PRUNED = ("accuracy, %", "NLL", "weights removed, %")
PANELS = {
    "aleatoric": "aleatoric uncertainty of test examples",
    "epistemic": "epistemic uncertainty of test examples",
    "train_score": "accuracy on training examples",
    "median_std": "median standard deviation of a weight",
    "median_snr": "median of mean over standard deviation",
    "kl": "KL divergence from the prior, nats",
}


def page(record: Record, setting: Setting, judged: Sequence[Verdict], command: str) -> str:
    """Return the whole page."""
    about = (
        "Weights are Gaussian (Bayes by Backprop) or deterministic. Differences are paired by test example and seed; "
        "accuracies within one point count as equal."
    )
    cells = record["cells"]
    reading = (
        "Means over seeds with half the width of their 95 % intervals (Student's t), without a calibrator. Published "
        "are validation accuracies of the same network, from a program whose KL had no effect on the weights it used."
    )
    parts = [verdicts_section(judged, about)]
    if any(cell["part"] == "accuracy" for cell in cells):
        board = table("Rows", ("Row", *COLUMNS), accuracy_rows(cells, setting))
        parts.append(section("rows", "Networks and weights", reading, board))
    if any(cell["part"] == "pruning" for cell in cells):
        board = table("Pruning", ("Rule", *PRUNED), pruning_rows(cells))
        words = f"After {setting.finetune} epochs of fine-tuning; the dense network is the row bayes."
        parts.append(section("pruning", "Pruning", words, board))
    parts.append(uncertainty_section(cells))
    facts = {
        "Command": command,
        "Data": f"{record['data']['name']}, "
        + ", ".join(f"{part} {size:,}" for part, size in record["data"]["examples"].items()),
        "Training": f"Adam, rate {setting.lr:g} along a cosine, {setting.epochs} epochs of batches of "
        f"{setting.batch_size}",
        "Seeds": ", ".join(map(str, setting.seeds)),
        "Rows": "; ".join(f"{name}: {ROWS[name].net}, {ROWS[name].weights}" for name in setting.methods),
        "L1": f"{setting.l1:g}",
        "CPU seconds": f"{sum(cell['cpu_seconds'] for cell in cells):,.0f}",
        "Versions": ", ".join(f"{name} {version}" for name, version in record["versions"].items()),
    }
    parts.append(settings_section(facts, "The settings of all runs."))
    return framed("Bayesian convolutional networks", record["data"]["name"], join(parts))


def spread(values: Sequence[float], scale: float = 1.0) -> str:
    """Return the mean of values with half the width of its 95 % interval.

    >>> spread([0.9, 0.92], 100), spread([])
    ('91.0 ± 12.7', '–')
    """
    if not values:
        return MISSING
    mean, low, high = mean_interval([scale * value for value in values])
    digits = 1 if scale == 100 else 3
    return f"{mean:.{digits}f} ± {(high - low) / 2:.{digits}f}" if math.isfinite(low) else f"{mean:.{digits}f}"


def accuracy_rows(cells: Sequence[dict[str, Any]], setting: Setting) -> list[tuple[str, list[str]]]:
    """Return one row for each network and kind of weights."""
    rows = []
    for name in ROWS:
        runs = [cell for cell in cells if (cell["part"], cell["row"]) == ("accuracy", name)]
        if runs:
            published = WORK.number("accuracy", name, setting.published_data)
            scores = [spread([cell[key] for cell in runs]) for key in ("nll", "aleatoric", "epistemic")]
            seconds = sum(cell["cpu_seconds"] for cell in runs) / len(runs)
            facts = [f"{runs[0]['parameters']:,}", f"{seconds:.0f}"]
            known = f"{published.value:g}" if published else MISSING
            rows.append((name, [spread([cell["accuracy"] for cell in runs], 100), known, *scores, *facts]))
    return rows


def pruning_rows(cells: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return one row for each rule."""
    names = dict.fromkeys(cell["row"] for cell in cells if cell["part"] == "pruning")
    rows = []
    for name in names:
        runs = [cell for cell in cells if cell["row"] == name]
        accuracy, removed = (spread([cell[key] for cell in runs], 100) for key in ("accuracy", "removed"))
        rows.append((name, [accuracy, spread([cell["nll"] for cell in runs]), removed]))
    return rows


def uncertainty_section(cells: Sequence[dict[str, Any]]) -> Markup:
    """Return uncertainty, accuracy and weights by epoch, a line for each seed."""
    paths = [cell for cell in cells if cell["part"] == "uncertainty"]
    if not paths:
        return Markup("")
    plots = []
    for measure, title in PANELS.items():
        data = []
        for place, cell in enumerate(paths):
            line = scatter("lines", cell["path"]["epoch"], cell["path"][measure], f"seed {cell['seed']}")
            data.append(line | {"line": {"color": colour(place), "dash": dash(place), "width": 2}})
        ends = "; ".join(number(float(np.mean([cell["path"][measure][at] for cell in paths]))) for at in (1, -1))
        panel = layout(axis("epoch"), axis()) | {"showlegend": True}
        plots.append(Figure(f"path-{measure}", title, f"{title}, first and last epoch: {ends}", data, panel, 300))
    reading = "By checkpoint, the initial network first. Uncertainty is summed over classes (Kwon et al. 2020)."
    return section("uncertainty", "Uncertainty along training", reading, grid(map(figure, plots)))


def screen_table(cells: Sequence[dict[str, Any]], setting: Setting) -> ScreenTable:
    """Return the table of networks for the screen."""
    rows = [[name, *row] for name, row in accuracy_rows(cells, setting)]
    return ScreenTable(f"{setting.data}: means over seeds", ["", *COLUMNS], rows)


def prune_table(cells: Sequence[dict[str, Any]]) -> ScreenTable:
    """Return the table of pruned networks for the screen."""
    return ScreenTable("pruned networks", ["", *PRUNED], [[name, *row] for name, row in pruning_rows(cells)])
