"""The page of the experiment: verdicts, panels, kernels and settings in one file."""

import math
from collections.abc import Callable

from murmuration.papers.embedded.figures import PANELS, between_panel, line_panel, parameters_panel, probe_panel
from murmuration.papers.embedded.predictions import verdicts
from murmuration.papers.embedded.record import Record, Results
from murmuration.papers.embedded.settings import ARMS, BETWEEN, PROBED
from murmuration.papers.verdicts import Estimate, Verdict, mean_interval
from murmuration.reports.formatting import MISSING, number
from murmuration.reports.html import Markup, details, figure, grid, join, section, table, tag, text
from murmuration.reports.page import framed

TITLE = "Ensembles inside one network"
MARKS = {"holds": "right", "does not hold": "wrong", "cannot tell": ""}


def page(record: Record, command: str = "") -> str:
    """The whole page."""
    found = Results(record)
    data = record["data"]
    parts: tuple[Callable[[Results], Markup], ...] = (opening, main_figure, other_arms, regimes, probes, tables)
    body = join([*(part(found) for part in parts), settings(found, command)])
    return framed(
        TITLE, f"{data['name']} · {len(found.cells):,} cells · seeds {', '.join(map(str, found.seeds))}", body
    )


def opening(found: Results) -> Markup:
    """The predictions and their verdicts."""
    told = verdicts(found.record)
    count = {word: sum(each.word == word for each in told) for word in MARKS}
    lead = "; ".join(f"{many} {word}" for word, many in count.items() if many)
    rows = [verdict_row(each) for each in told]
    table_markup = table("Predictions of theory", [text(word) for word in ("Verdict", "Prediction", "Estimates")], rows)
    reading = (
        "The members of an embedded ensemble share the kernels of one network and differ by one factor per neuron. The "
        "theory of infinitely wide networks says when they learn like separate networks. A prediction holds if the "
        "95 % intervals (Student's t over seeds) of all its estimates lie in the predicted region, and does not hold "
        "if one lies outside; otherwise these runs cannot tell."
    )
    lines = [tag("p", text(f"Of {len(told)} predictions: {lead}."), "lead"), tag("div", table_markup, "words")]
    return section("verdicts", "Predictions and verdicts", reading, join(lines))


def verdict_row(verdict: Verdict) -> tuple[Markup, list[Markup]]:
    """The name with the verdict, and two cells: the claim, and the estimates with a note."""
    head = join([text(verdict.name), tag("span", text(verdict.word), f"mark {MARKS[verdict.word]}".strip())])
    lines = []
    for each in verdict.estimates:
        about = tag("small", text(f"{each.what}; predicted {each.region}"))
        lines.append(tag("div", join([tag("span", text(estimate_text(each))), about])))
    note = [tag("small", text(verdict.note))] if verdict.note else []
    return head, [text(verdict.claim), join([*lines, *note])]


def estimate_text(estimate: Estimate) -> str:
    """The estimate with its interval."""
    value, low, high = (number(round(each, 9)) for each in (estimate.value, estimate.low, estimate.high))
    return f"{value} ({low} to {high})" if math.isfinite(estimate.low) else value


def main_figure(found: Results) -> Markup:
    """The four panels of the figure in the paper."""
    if "independent" not in found.arms:
        return Markup("")
    letters = dict(zip(PANELS, "abc", strict=False))
    plots = [figure(line_panel(found, "independent", score, letters.get(score, ""))) for score in PANELS]
    reading = (
        "Solid: members inside one network, in the independent regime. Dotted, in the same colour: as many separate "
        "networks of that width. N is the number of neurons in each of two hidden layers. Whiskers are one standard "
        "error over seeds. Accuracy is drawn by the logarithm of the error."
    )
    body = join([grid(plots), figure(parameters_panel(found))])
    return section("figure", "Independent members", reading, body)


def other_arms(found: Results) -> Markup:
    """The same panels for every other arm."""
    shown = [arm for arm in found.arms if arm not in ("independent", "naive")]
    parts = []
    for arm in shown:
        scores = ["accuracy", "member_train_accuracy"] if arm == "single" else list(PANELS)
        plots = grid(figure(line_panel(found, arm, score)) for score in scores)
        parts.append(join([tag("h3", text(f"{arm}: {ARMS[arm].about}"), "part"), plots]))
    reading = "Dotted, as before, are separate networks."
    return section("arms", "Other ways to embed", reading, join(parts))


def regimes(found: Results) -> Markup:
    """Scores and kernels between the regimes."""
    width, (models,) = PROBED[BETWEEN]
    plots = [
        figure(between_panel(found, scores, name, title))
        for name, title, scores in (
            ("top", "largest eigenvalue of alignments at the start", {"top_alignment": "1 if members are unrelated"}),
            ("ratio", "T_o / T_d at the start", {"tangent_ratio": "T_o / T_d"}),
            ("worth", "accuracy", {"accuracy": "ensemble", "member_accuracy": "a member alone"}),
            ("apart", "disagreement between members", {"disagreement": "fraction of pairs that differ"}),
        )
    ]
    reading = (
        f"Factors m + sqrt(1 - m²) noise, from independent (m = 0) to equal (m = 1), for M = {models} and N = "
        f"{found.neurons(width)}; shared weights move by gamma = M / (1 + (M - 1) T_o / T_d). The dotted line is "
        "(M N)^(-1/4), where a layer of constant features would switch. An alignment of two members is their tangent "
        "kernel over the roots of their own."
    )
    return section("between", "Between the regimes", reading, grid(plots))


def probes(found: Results) -> Markup:
    """Largest stable step and number of steps, by gamma."""
    words = {"": "sum of gradients (gamma = M)", "-mean": "mean (gamma = 1)"}
    plots = [
        figure(probe_panel(found, {f"{arm}{end}": each for end, each in words.items()}, kind, arm, title))
        for arm, kind, title in (
            ("largest-step", "step", "largest stable step, collective"),
            ("steps", "steps", "steps to half the loss, independent"),
        )
    ]
    reading = (
        "Shared weights move by gamma / M times the sum of members' gradients. Both panels are of plain gradient "
        f"descent at N = {found.neurons(1.0)}."
    )
    return section("gamma", "Sum or mean", reading, grid(plots))


def tables(found: Results) -> Markup:
    """The values behind the panels, and the measured kernels."""
    parts = [ratio_table(found)]
    for arm in found.arms:
        for score in PANELS:
            columns = [text("N"), *(text(f"M={models}") for models in found.models)]
            rows = [
                (text(found.neurons(width)), [text(interval_text(found, arm, width, m, score)) for m in found.models])
                for width in found.widths
            ]
            parts.append(details(f"{arm}: {PANELS[score]}", table(f"{arm}: {PANELS[score]}", columns, rows)))
    reading = (
        "T_o / T_d is the tangent kernel between two members over that of one, before training: means over seeds and "
        "M, of the parameters as they are stored. Below it, means over seeds of every panel and half the width of "
        "their 95 % interval (Student's t)."
    )
    return section("numbers", "Numbers", reading, join(parts))


def ratio_table(found: Results) -> Markup:
    """T_o / T_d by arm and width."""
    arms = [arm for arm in found.arms if mean_ratio(found, arm, found.widths) != MISSING]
    if not arms:
        return Markup("")
    columns = [text("Arm"), *(text(f"N={found.neurons(width)}") for width in found.widths)]
    rows = [(text(arm), [text(mean_ratio(found, arm, [width])) for width in found.widths]) for arm in arms]
    return table("T_o / T_d before training", columns, rows)


def mean_ratio(found: Results, arm: str, widths: list[float]) -> str:
    """The mean T_o / T_d of an arm at some widths."""
    values = [v for w in widths for m in found.models if m > 1 for v in found.over_seeds(arm, w, m, "tangent_ratio")]
    return number(sum(values) / len(values)) if values else MISSING


def interval_text(found: Results, arm: str, width: float, models: int, score: str) -> str:
    """The mean over seeds and half the width of its interval."""
    mean, low, high = mean_interval(found.over_seeds(arm, width, models, score))
    if not math.isfinite(mean):
        return MISSING
    return f"{mean:.3f} ± {(high - low) / 2:.3f}" if math.isfinite(low) else f"{mean:.3f}"


def settings(found: Results, command: str) -> Markup:
    """The settings, data and versions."""
    data, diverged = found.record["data"], sum(cell.get("diverged", 0) > 0 for cell in found.cells.values())
    facts = {
        "Command": command,
        "Data": f"{data['name']}, {', '.join(f'{part} {size:,}' for part, size in data['examples'].items())}",
        "Fingerprint": data["fingerprint"],
        "Network": f"dense, {found.setting.layers} hidden layers of N = {found.setting.base} x width, ReLU",
        "Training": f"SGD, momentum {found.setting.momentum:g}, step {found.setting.lr:g} along a cosine, batches of "
        f"{found.setting.batch_size}, {found.setting.epochs} epochs; all members see the same batches",
        "Arms": "; ".join(f"{name}: {arm.sharing}, {arm.weights}" for name, arm in ARMS.items() if name in found.arms),
        "Cells with members that diverged": str(diverged),
        "Versions": ", ".join(f"{name} {version}" for name, version in found.record["versions"].items()),
    }
    items = join(Markup(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>") for name, value in facts.items() if value)
    reading = (
        "As in the theory: factors before and after each activation, own biases, and the same batches for all members."
    )
    return section("settings", "Settings", reading, tag("dl", items, "facts"))
