"""The page of the reproduction: verdicts, the lengthscale figure, tables with published numbers, toys, settings."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from murmuration.core.coupling.input_gradients import ALPHAS
from murmuration.data import open_data
from murmuration.reports.figures import Figure, axis, colour, layout, numbers, scatter, symbol
from murmuration.reports.formatting import MISSING, duration
from murmuration.reports.html import Markup, figure, grid, join, section, table, tag
from murmuration.reports.page import framed
from murmuration.reports.sections.input_space import LineField, PlaneField, common_reach, line_figure, plane_figure
from murmuration.studies.papers.forde.cells import load_columns
from murmuration.studies.papers.forde.claims import NAMES, Results
from murmuration.studies.papers.forde.published import ALPHA_FORMS, ALPHA_PANELS, DATA_SETS, FIGURE, WORK, printed
from murmuration.studies.papers.forde.settings import REFERENCE, Setting, arm_of
from murmuration.studies.papers.forde.tables import (
    MEASURES,
    SCORES,
    alpha_columns,
    alpha_rows,
    chosen_alpha,
    gain_text,
    mean_text,
    panels,
    published_gain,
    toy_rows,
)
from murmuration.studies.papers.forde.toys import RECIPES, TOYS, Toy
from murmuration.studies.papers.page import settings_section, verdicts_section
from murmuration.studies.verdicts import Verdict, mean_interval


def page(results: Results, out: Path, judged: Sequence[Verdict], command: str = "") -> str:
    """Return the whole page."""
    record = results.record
    data, setting = record["data"], record["setting"]
    subject = f"{data['name']} · {setting['net']} · {setting['members']} members" if data else "toys"
    about = (
        "FoRDE trains an ensemble whose members repel each other in the space of their input gradients. Differences "
        "are paired: the same seeds and the same test images."
    )
    groups = {
        "Claims": verdicts_section(judged, about),
        "Lengthscales": sweep_section(results),
        "Tables": join([*(table_section(results, item) for item in DATA_SETS), gains_section(results)]),
        "Toys": join(toy_section(results, out, name) for name in TOYS),
        "Settings": facts_section(results, command),
    }
    shown = {name: body for name, body in groups.items() if body}
    seeds = sorted({entry["seed"] for entry in (*record["cells"], *record["toys"])})
    subtitle = f"{subject} · seeds {', '.join(map(str, seeds))}"
    return framed("Input-gradient space particle inference", subtitle, join(shown.values()), shown)


def sweep_section(results: Results) -> Markup:
    """Return the lengthscale figure: accuracy and NLL against alpha, clean and by severity, and the published one."""
    seeds = results.seeds_of(REFERENCE, *map(arm_of, ALPHAS))
    if not seeds:
        return Markup("")
    plots = [sweep_panel(results, part, name, title) for name in SCORES for part, title in panels(results).items()]
    published = [published_panel(part) for part in ALPHA_PANELS]
    chosen = [chosen_alpha(results, seed) for seed in seeds]
    rows = [(alpha, cells) for alpha, *cells in alpha_rows(results)]
    reading = (
        "Alpha leads from equal lengthscales (0) to those of principal components (1). Dotted: the deep ensemble. "
        "Whiskers are 95 % intervals over seeds, unpaired; the verdict on the slope is paired. Below: the published "
        "figure, CIFAR-100 and ten ResNet-18, as read from it. "
        f"Validation chose {', '.join(chosen)}, seed by seed. {ALPHA_FORMS}"
    )
    body = [grid(map(figure, plots)), tag("h3", "As published"), grid(map(figure, published))]
    body.append(table("By alpha", ["Alpha", *alpha_columns(results)], rows))
    return section("sweep", "Lengthscales", reading, join(body))


def sweep_panel(results: Results, part: str, name: str, title: str) -> Figure | None:
    """Return one score of one group of severities against alpha."""
    scale = 100 if name == "accuracy" else 1
    intervals = [mean_interval(results.scores(arm_of(alpha), part, name)) for alpha in ALPHAS]
    reference = mean_interval(results.scores(REFERENCE, part, name))[0]
    if not all(math.isfinite(mean) for mean, _, _ in (*intervals, (reference, 0, 0))):
        return None
    means = [scale * mean for mean, _, _ in intervals]
    halves = [scale * (high - low) / 2 for _, low, high in intervals]
    return alpha_figure(f"sweep-{name}-{part}", f"{SCORES[name]}, {title}", means, scale * reference, halves)


def published_panel(part: str) -> Figure:
    """Return one panel of the published figure."""
    rows = [f"{alpha:g}" for alpha in ALPHAS]
    *means, reference = [WORK.number(FIGURE, row, part) for row in (*rows, REFERENCE)]
    values = [math.nan if number is None else number.value for number in means]
    title = f"published accuracy, percent, {ALPHA_PANELS[part]}"
    return alpha_figure(f"published-{part}", title, values, math.nan if reference is None else reference.value)


def alpha_figure(
    name: str, title: str, means: Sequence[float], reference: float, halves: Sequence[float] = ()
) -> Figure:
    """Return values against alpha, with a dotted line for the deep ensemble."""
    bars = {"error_y": {"type": "data", "array": numbers(halves), "color": colour(0), "width": 3}} if halves else {}
    look = {"line": {"color": colour(0), "width": 2}, "marker": {"color": colour(0), "symbol": symbol(0), "size": 7}}
    line = scatter("lines+markers", ALPHAS, means, "FoRDE") | look | bars | {"hovertemplate": "alpha %{x}: %{y:.4g}"}
    ends = [ALPHAS[0], ALPHAS[-1]]
    dotted = scatter("lines", ends, [reference] * 2, REFERENCE)
    dotted |= {"line": {"color": colour(1), "width": 2, "dash": "dot"}, "hovertemplate": "%{y:.4g}"}
    label = f"{title}: {'; '.join(f'alpha {a:g} {m:.4g}' for a, m in zip(ALPHAS, means, strict=True))}"
    panel = layout(axis("alpha"), axis() | {"nticks": 6}) | {"showlegend": True}
    return Figure(name, title, f"{label}; {REFERENCE} {reference:.4g}", [line, dotted], panel, 260)


def measured_item(data: Mapping[str, Any] | None) -> str | None:
    """Return the table whose data set this is; None for other data."""
    name = str((data or {}).get("name", "")).lower().replace("_", "-")
    return next((item for item, source in DATA_SETS.items() if source.lower() in name), None)


def table_section(results: Results, item: str) -> Markup:
    """Return a table of the paper: measured values, and the published ones below them."""
    own = measured_item(results.record["data"])
    rows = []
    for method in results.methods:
        cells = []
        for measure, place in MEASURES.items():
            measured = mean_text(results, method, *place) if own in (None, item) else MISSING
            published = tag("small", f"published {printed(item, method, measure, spread=True)}")
            cells.append(join([tag("span", measured, "value"), published]))
        rows.append((method, cells))
    title, data = f"{item.capitalize()}: {DATA_SETS[item]}", results.record["data"]
    where = f"{data['name']} with {results.record['setting']['net']}" if data else ""
    reading = (
        f"Measured on {where}, means over seeds and half their 95 % interval (Student's t); published: "
        f"{DATA_SETS[item]}, ten ResNet-18, five seeds, where ± is as published. "
    )
    if own is None:
        reading += "Data and network differ, so compare differences between rows, not values."
    return section(item.replace(" ", "-"), title, reading, table(title, ["Method", *MEASURES], rows))


def gains_section(results: Results) -> Markup:
    """Return paired differences of every method to the deep ensemble, and the published ones below them."""
    rows = []
    for method in [method for method in results.methods if results.seeds_of(method, REFERENCE)]:
        if method == REFERENCE:
            continue
        cells = []
        for column, measure in NAMES.items():
            published = "; ".join(f"{DATA_SETS[item]} {published_gain(item, method, measure)}" for item in DATA_SETS)
            cells.append(join([tag("span", gain_text(results, method, column), "value"), tag("small", published)]))
        rows.append((method, cells))
    reading = (
        "Gains over the deep ensemble, above 0 if better: accuracies in percentage points, reductions of NLL. "
        "Intervals of 95 % are over seeds and test images, paired; below, the difference of the published means."
    )
    return section("gains", "Gains over the deep ensemble", reading, table("Gains", ["Method", *NAMES.values()], rows))


def toy_section(results: Results, out: Path, name: str) -> Markup:
    """Return the predictions of every recipe on a toy at the first seed, and uncertainty by place."""
    entries = [row for row in results.record["toys"] if row["toy"] == name]
    if not entries:
        return Markup("")
    toy, seed = TOYS[name](), min(row["seed"] for row in entries)
    recipes = [recipe for recipe in RECIPES if any((e["recipe"], e["seed"]) == (recipe, seed) for e in entries)]
    rows = [(recipe, cells) for recipe, *cells in toy_rows(results, name)]
    quantity = "epistemic deviation" if toy.noise else "entropy"
    title = "1-D toy: regression with two gaps" if toy.noise else "2-D toy: five classes"
    reading = (
        f"{results.record['setting']['toy_members']} members each, seed {seed}. The table has the mean {quantity} by "
        "place, means over seeds and half their 95 % interval."
    )
    body = [grid(map(figure, toy_figures(toy, out, recipes, seed)))]
    body.append(table(f"{quantity} by place", ["Recipe", *toy.places], rows))
    return section(f"toy-{name}", title, reading, join(body))


def toy_figures(toy: Toy, out: Path, recipes: Sequence[str], seed: int) -> list[Figure]:
    """Return one figure a recipe, all on one scale."""
    train = open_data(toy.name).train
    fields: dict[str, Any] = {}
    for recipe in recipes:
        arrays = load_columns(out, f"{toy.name}-{recipe}-{seed}")
        if toy.noise:
            points = 2 * train.prepared[:, 0].numpy(), train.y[:, 0].numpy()
            zeros = np.zeros_like(toy.grid)
            fields[recipe] = LineField(toy.grid, arrays["mean"], zeros, arrays["uncertainty"], *points)
        else:
            side = round(len(toy.grid) ** 0.5)
            values, across = arrays["uncertainty"].reshape(side, side), toy.grid[:side, 0]
            points = train.prepared.numpy(), train.y.numpy()
            fields[recipe] = PlaneField(across, -across, values, "entropy", *points)  # rows from the top
    reach = common_reach(list(fields.values()))
    if toy.noise:
        return [line_figure(recipe, field, f"{toy.name}-{recipe}", reach) for recipe, field in fields.items()]
    names = tuple(map(str, range(5)))
    return [plane_figure(recipe, field, names, f"{toy.name}-{recipe}", reach) for recipe, field in fields.items()]


def facts_section(results: Results, command: str) -> Markup:
    """Return settings, data, CPU time and versions."""
    record = results.record
    setting, data = Setting(**listed_as_tuples(record["setting"])), record["data"]
    spent = sum(entry["cpu_seconds"]["all"] for entry in (*record["cells"], *record["toys"]))
    facts = {
        "Command": command,
        "Data": f"{data['name']}, {', '.join(f'{part} {size:,}' for part, size in data['examples'].items())}"
        if data
        else "",
        "Fingerprint": data["fingerprint"] if data else "",
        "Corruptions": f"{', '.join(data['corruptions'])}; severities {', '.join(map(str, setting.severities))}"
        + (", official files" if setting.cifar_c else ", generated")
        if data
        else "",
        "Network": f"{setting.net}, {setting.members} members",
        "Training": f"{setting.epochs} epochs, batches of {setting.batch_size}, {setting.optimizer}, rate "
        f"{setting.lr:g}, schedule {setting.schedule or 'cosine'}, weight decay {setting.weight_decay or 0:g}, "
        f"augmentation {', '.join(setting.augment) or 'none'}; all members see the same batches",
        "Repulsion of FoRDE": f"weight {'1/B' if setting.weight is None else f'{setting.weight:g}'}, alpha by the form "
        f"of the {setting.form}; the other recipes as `murmur list recipes` has them",
        "Alpha of forde-tuned": "lowest NLL on validation images, clean and under corruptions kept for choosing; the "
        "test images are not used",
        "CPU time": duration(spent),
        "Versions": ", ".join(f"{name} {version}" for name, version in record["versions"].items()),
    }
    reading = (
        "Scores are of the members as trained, without a calibrator. The calibration error has 15 bins of equal width; "
        "under corruption it is the mean over corruptions and severities. The published runs trained on all images."
    )
    return settings_section(facts, reading)


def listed_as_tuples(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a record with tuples in the place of lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in setting.items()}
