"""The command: one network for each approach to rare classes, judged by paired differences of class accuracy."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from murmuration.applications.longtail import Transfer, retrain_heads
from murmuration.core.recipe import make_recipe
from murmuration.data import Data, open_data
from murmuration.models.nets import build_net, nets, with_cosine_head
from murmuration.prediction.ensemble import Ensemble
from murmuration.reports.formatting import MISSING
from murmuration.reports.html import join, section, table
from murmuration.reports.page import framed
from murmuration.studies.papers import Options, Outcome, ScreenTable, Show, check_least, choose_settings
from murmuration.studies.papers.longtail.published import WORK
from murmuration.studies.papers.longtail.settings import PROFILES, REFERENCE, ROWS, Row, Setting
from murmuration.studies.papers.page import settings_section, verdict_table, verdicts_section
from murmuration.studies.papers.record import (
    Record,
    bits,
    cpu_seconds,
    finished_record,
    hexadecimal,
    open_record,
    save_record,
)
from murmuration.studies.verdicts import Estimate, Verdict, crossed_estimate, mean_interval
from murmuration.system.errors import Misuse
from murmuration.system.records import plain_json
from murmuration.training.fitting import fit

CLAIMS = {  # family -> name, claim, measure
    "re-sampling": ("L1", "re-sampling raises the mean accuracy of classes", "all"),
    "loss": ("L2", "losses made for long tails raise the mean accuracy of classes", "all"),
    "transfer": ("L3", "transfer from common classes raises the accuracy of rare ones", "rare"),
}


def reproduce(options: Options, out: Path, show: Show, command: str = "") -> Outcome:
    """Return the record with verdicts, the page and the tables; finished cells are not computed again."""
    setting = choose_settings(PROFILES, options)
    check_least(setting, epochs=1, examples=2)
    opened = open_cut(setting.data, setting.imbalance)
    record = open_record(
        out, "longtail", setting, extends=("methods", "seeds", "device"), data=about(opened, setting), cells=[]
    )
    done = {(cell["row"], cell["seed"]) for cell in record["cells"]}
    cells = [(row, seed) for seed in setting.seeds for row in ROWS if row in setting.methods]
    for place, (row, seed) in enumerate(cells):
        show(f"{row}, seed {seed}", place, len(cells))
        if (row, seed) not in done:
            record["cells"].append(plain_json(measure(setting, row, seed)))
            save_record(out, record)
    show("", len(cells), len(cells))
    judged = verdicts(record)
    rows = score_rows(record, setting)
    screen = ScreenTable(f"{setting.data}, imbalance {setting.imbalance:g}", ["", *COLUMNS], [[n, *r] for n, r in rows])
    full_record = finished_record(record, judged, [screen], sum(cell["cpu_seconds"] for cell in record["cells"]))
    save_record(out, full_record)
    return Outcome(full_record, page(record, setting, judged, command), [screen, verdict_table(judged)])


@lru_cache(1)
def open_cut(source: str, imbalance: float) -> Data:
    """Return the data with a long tail of its training rows, the same for all seeds."""
    data = open_data(source, imbalance=imbalance)
    if data.task != "classification":
        raise Misuse(f"--data {source}: got a {data.task}, expected data with classes, such as digits")
    return data


def about(data: Data, setting: Setting) -> dict[str, Any]:
    """Return name, training examples by class, the rare half of the classes, and the labels of the test examples."""
    counts = data.train.y.bincount(minlength=len(data.classes)).numpy()
    rare, labels = np.argsort(counts)[: len(counts) // 2], data.test[: setting.examples].y
    facts = {"name": data.name, "fingerprint": data.fingerprint, "counts": counts, "rare": rare, "labels": labels}
    record: dict[str, Any] = plain_json(facts)
    return record


def builder(setting: Setting, row: Row, data: Data) -> Callable[[], nn.Module]:
    """Return a function that builds the network, without dropout, and with a cosine head where the loss takes one."""
    options: dict[str, Any] = {"dropout": 0.0} if "dropout" in nets()[setting.net].options else {}
    build = partial(build_net, setting.net, data.input_shape, len(data.classes), **options)
    return (lambda: with_cosine_head(build())) if row.loss == "ldam-drw" else build


def train(setting: Setting, row: Row, data: Data, seed: int) -> Ensemble:
    """Return the network of a row; heads of the reference are changed after training."""
    plan, recipe = setting.plan(row, seed), make_recipe("single")
    few = replace(data, val=data.val[:200])  # nothing is chosen by it
    net = fit(builder(setting, row, data), few, recipe=recipe, plan=plan, likelihood=row.loss)
    if not row.heads:
        return net
    if row.heads == "re-trained":
        return retrain_heads(net, data, seed=seed)
    many = min(100, int(data.train.y.bincount().max()) - 1)
    return retrain_heads(net, data, transfer=Transfer(many=many), sampler="instance", seed=seed)


def measure(setting: Setting, name: str, seed: int) -> dict[str, Any]:
    """Return one cell: NLL, and which test examples are right."""
    start, data = cpu_seconds(), open_cut(setting.data, setting.imbalance)
    test = data.test[: setting.examples]
    predictive = train(setting, ROWS[name], data, seed).predict(test, calibrated=False)
    correct = hexadecimal((predictive.predicted == test.y).numpy())
    nll, seconds = float(-predictive.log_prob(test.y).mean()), round(cpu_seconds() - start, 1)
    return {"row": name, "seed": seed, "nll": nll, "correct": correct, "cpu_seconds": seconds}


def class_weights(label: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.float64]:
    """Return weights (N,) with which the mean over examples is the mean over classes of their accuracies.

    >>> class_weights(np.array([0, 0, 1, 2]), np.array([0, 1])).tolist()
    [1.0, 1.0, 2.0, 0.0]
    """
    counts = np.bincount(label, minlength=int(max(label.max(), *classes)) + 1)
    present = [c for c in classes if counts[c]]
    weights = np.zeros(len(label))
    for c in present:
        weights[label == c] = len(label) / (len(present) * counts[c])
    return weights


def accuracies(record: Record, name: str, measure: str) -> dict[int, NDArray[np.float64]]:
    """Return for every seed values (N,) whose mean is the mean accuracy over all classes, or over the rare half."""
    label = np.array(record["data"]["labels"])
    classes = np.unique(label) if measure == "all" else np.array(record["data"]["rare"])
    weights = class_weights(label, classes)
    return {c["seed"]: weights * bits(c["correct"], len(label)) for c in record["cells"] if c["row"] == name}


def gain(record: Record, name: str, measure: str) -> Estimate | None:
    """Return class accuracy of a row less that of cross-entropy, over runs and examples; None without both."""
    ours, others = accuracies(record, name, measure), accuracies(record, REFERENCE, measure)
    seeds = sorted(ours.keys() & others.keys())
    if not seeds or name == REFERENCE:
        return None
    differences = np.stack([ours[seed] - others[seed] for seed in seeds])  # (R, N)
    return crossed_estimate(f"{name}: accuracy of {measure} classes, gain", differences, 0, math.inf)


def verdicts(record: Record) -> list[Verdict]:
    """Return the verdict on each family: whether all of its rows gain."""
    judged = []
    for family, (name, claim, measure) in CLAIMS.items():
        gains = [gain(record, row, measure) for row, entry in ROWS.items() if entry.family == family]
        estimates = tuple(estimate for estimate in gains if estimate is not None)
        missing = () if estimates else (f"methods of {family}, and {REFERENCE}",)
        judged.append(Verdict(name, claim, estimates, missing=missing))
    return judged


COLUMNS = ("all classes, %", "published", "rare half, %", "NLL", "CPU seconds")


def score_rows(record: Record, setting: Setting) -> list[tuple[str, list[str]]]:
    """Return one row for each approach: means over seeds with half the width of their intervals."""
    rows = []
    for name in ROWS:
        cells = [cell for cell in record["cells"] if cell["row"] == name]
        if cells:
            shown = WORK.number("losses", name, f"{setting.imbalance:g}") if "cifar-10" in setting.data else None
            groups = [accuracies(record, name, group).values() for group in ("all", "rare")]
            scores = [spread([100 * float(run.mean()) for run in runs], 1) for runs in groups]
            seconds = sum(cell["cpu_seconds"] for cell in cells) / len(cells)
            published = f"{shown.value:g}" if shown else MISSING
            rows.append(
                (name, [scores[0], published, scores[1], spread([cell["nll"] for cell in cells], 3), f"{seconds:.0f}"])
            )
    return rows


def spread(values: Sequence[float], digits: int) -> str:
    """Return the mean of values with half the width of its 95 % interval.

    >>> spread([90.0, 92.0], 1)
    '91.0 ± 12.7'
    """
    mean, low, high = mean_interval(values)
    return f"{mean:.{digits}f} ± {(high - low) / 2:.{digits}f}" if math.isfinite(low) else f"{mean:.{digits}f}"


def page(record: Record, setting: Setting, judged: Sequence[Verdict], command: str) -> str:
    """Return the whole page."""
    about_claims = (
        "Differences to cross-entropy are paired by test example and seed; accuracy is the mean over classes. A family "
        "holds if each of its members gains."
    )
    reading = "Means over seeds with half the width of their 95 % intervals. The rare half are the smaller classes."
    facts = {
        "Command": command,
        "Data": f"{record['data']['name']}, imbalance {setting.imbalance:g}; training examples by class "
        + ", ".join(map(str, sorted(record["data"]["counts"], reverse=True))),
        "Training": f"{setting.net}, {setting.optimizer}, rate {setting.lr:g} along a cosine, {setting.epochs} epochs "
        f"of batches of {setting.batch_size}",
        "Seeds": ", ".join(map(str, setting.seeds)),
        "Rows": "; ".join(f"{name}: {ROWS[name].about}" for name in setting.methods),
        "CPU seconds": f"{sum(cell['cpu_seconds'] for cell in record['cells']):,.0f}",
        "Versions": ", ".join(f"{name} {version}" for name, version in record["versions"].items()),
    }
    board = table("Approaches", ("Approach", *COLUMNS), score_rows(record, setting))
    parts = [
        verdicts_section(judged, about_claims),
        section("rows", "Approaches", reading, board),
        settings_section(facts, "The settings of all runs."),
    ]
    return framed("Rare classes", record["data"]["name"], join(parts))
