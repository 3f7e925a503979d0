"""The command: streams of tasks learned by one flow and by the methods it is compared with, judged over seeds."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from murmuration.applications.continual.harness import run_method
from murmuration.applications.continual.task_streams import TaskStream, open_stream
from murmuration.reports.formatting import MISSING
from murmuration.reports.html import join, section, table
from murmuration.reports.page import framed
from murmuration.studies.papers import Options, Outcome, ScreenTable, Show, check_least, check_parts, choose_settings
from murmuration.studies.papers.hcl.published import WORK
from murmuration.studies.papers.hcl.settings import PARTS, PROFILES, ROWS, Setting
from murmuration.studies.papers.page import settings_section, verdict_table, verdicts_section
from murmuration.studies.papers.record import Record, cpu_seconds, finished_record, open_record, save_record
from murmuration.studies.verdicts import Verdict, estimate, mean_interval
from murmuration.system.errors import Misuse, unknown
from murmuration.system.records import plain_json

DETECTED = "hcl-fr-lda"  # the row whose detection is measured: statistics settle within a task
FOUND = 0.9  # share of changes that counts as all but a few
ALARMS = 0.1  # false alarms a change that count as none


def reproduce(options: Options, out: Path, show: Show, command: str = "") -> Outcome:
    """Return the record with verdicts, the page and the table of methods; finished cells are not computed again."""
    setting = choose_settings(PROFILES, options)
    check_least(setting, epochs=1)
    check_parts(setting.parts, PARTS)
    for name in setting.methods:
        if name not in ROWS:
            raise unknown("method", name, ROWS)
    if not setting.seeds or min(setting.seeds) < 0:
        raise Misuse(f"seeds={','.join(map(str, setting.seeds))}: expected whole numbers of at least 0")
    record = open_record(out, "hcl", setting, extends=("parts", "methods", "seeds"), cells=[])
    done = {(cell["part"], cell["row"], cell["seed"]) for cell in record["cells"]}
    cells = cells_of(setting)
    for place, (part, row, seed) in enumerate(cells):
        show(f"{part}, {row}, seed {seed}", place, len(cells))
        if (part, row, seed) not in done:
            record["cells"].append(
                plain_json(compute(setting, part, row, seed, out / "pieces" / f"{part}-{row}-{seed}"))
            )
            save_record(out, record)
    show("", len(cells), len(cells))
    judged = verdicts(record["cells"])
    rows = method_rows(record["cells"], setting)
    screen = ScreenTable(f"split:{setting.data}:{setting.tasks}", ["", *COLUMNS], [[name, *row] for name, row in rows])
    full_record = finished_record(record, judged, [screen], sum(cell["cpu_seconds"] for cell in record["cells"]))
    save_record(out, full_record)
    return Outcome(full_record, page(record, setting, judged, command), [screen, verdict_table(judged)])


def cells_of(setting: Setting) -> list[tuple[str, str, int]]:
    """Return part, row and seed of every run, seed by seed."""
    rows = {"streams": setting.methods, "detection": (DETECTED,)}
    return [(part, row, seed) for seed in setting.seeds for part in setting.parts for row in rows[part]]


def stream_of(setting: Setting, part: str, seed: int) -> TaskStream:
    """Return the stream of tasks of a part, as vectors."""
    if part == "streams":
        text = f"split:{setting.data}:{setting.tasks}"
        return open_stream(text, examples=setting.train, seed=seed).flat()
    tasks = max(setting.order)
    text = f"split:{setting.data}:{tasks}x2"
    return open_stream(text, scenario="domain", order=setting.order, examples=setting.train, seed=seed).flat()


def compute(setting: Setting, part: str, row: str, seed: int, place: Path) -> dict[str, Any]:
    """Return the scores of one run, continued from its checkpoint in `place`."""
    start = cpu_seconds()
    epochs = setting.epochs if part == "streams" else setting.detection_epochs
    method, settings = ROWS[row].method, setting.of(ROWS[row], seed)
    outcome = run_method(method, stream_of(setting, part, seed), setting.plan(epochs, seed), settings, place=place)
    noticed, scores = outcome.record["detection"], outcome.accuracy
    kept = ("misses", "false_alarms", "mean_delay", "recurring", "recognised")
    return {
        "part": part,
        "row": row,
        "seed": seed,
        "final": scores.final_average,
        "forgetting": scores.forgetting,
        "task_id": outcome.record["task_id"]["final_average"],
        "detection": noticed and {key: noticed[key] for key in kept} | {"changes": len(noticed["changes"])},
        "memory": sum(outcome.record["memory"].values()),
        "cpu_seconds": round(cpu_seconds() - start, 1),
    }


def of_row(cells: Sequence[dict[str, Any]], row: str, key: str, part: str = "streams") -> dict[int, float]:
    """Return one score of a row, by seed."""
    return {c["seed"]: c[key] for c in cells if (c["part"], c["row"]) == (part, row) and c[key] is not None}


def differences(cells: Sequence[dict[str, Any]], one: str, other: str, key: str) -> list[float]:
    """Return a score of one row less that of another, for every seed that has both."""
    first, second = of_row(cells, one, key), of_row(cells, other, key)
    return [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]


def verdicts(cells: Sequence[dict[str, Any]]) -> list[Verdict]:
    """Return the verdicts on the claims of the work, from paired differences over seeds."""
    gains = differences(cells, "hcl-fr", "adam", "final")
    better = differences(cells, "hcl-fr", "hcl-gr", "final")
    forgotten = differences(cells, "hcl-gr", "hcl-fr", "forgetting")
    noticed = [c["detection"] for c in cells if c["part"] == "detection" and c["detection"]]
    shares = [1 - one["misses"] / one["changes"] for one in noticed]
    alarms = [one["false_alarms"] / one["changes"] for one in noticed]
    streams = () if gains else ("the methods hcl-fr and adam of the part streams",)
    replays = () if better else ("the methods hcl-fr and hcl-gr of the part streams",)
    table, fr_gr = "tables 2 and 3", "90.89 and 84.65 on Split-MNIST, 89.44 and 80.29 on Split-CIFAR-10"
    return [
        Verdict(
            "H1",
            "one flow learns the tasks one after another, where plain training forgets them",
            (estimate("final accuracy, HCL-FR less plain training", gains, 0, math.inf),) if gains else (),
            missing=streams,
            published="final accuracies of 59.66 to 96.38",
            source=table,
        ),
        Verdict(
            "H2",
            "functional replay ends at a higher accuracy than generative replay on split data",
            (estimate("final accuracy, HCL-FR less HCL-GR", better, 0, math.inf),) if better else (),
            missing=replays,
            published=f"{fr_gr} (FR, GR)",
            source=table,
        ),
        Verdict(
            "H3",
            "functional replay forgets less than generative replay",
            (estimate("forgetting, HCL-GR less HCL-FR", forgotten, 0, math.inf),) if forgotten else (),
            missing=replays,
        ),
        Verdict(
            "H4",
            "changes of task are noticed although nobody announces them",
            (
                estimate("share of changes noticed", shares, FOUND, math.inf),
                estimate("false alarms a change", alarms, -math.inf, ALARMS),
            )
            if noticed
            else (),
            "tasks with the same labels, one of which comes back; a flow that starts as LDA",
            missing=() if noticed else ("the part detection",),
        ),
    ]


COLUMNS = ("final accuracy, %", "published", "forgetting, %", "task identified, %", "memory, MB", "CPU seconds")


def method_rows(cells: Sequence[dict[str, Any]], setting: Setting) -> list[tuple[str, list[str]]]:
    """Return a row for each method: means over seeds with 95 % intervals, beside the published numbers."""
    rows = []
    for name, row in ROWS.items():
        final = of_row(cells, name, "final")
        if not final:
            continue
        number = WORK.number("final accuracy", row.published, setting.stream)
        scores = [percent(of_row(cells, name, key)) for key in ("final", "forgetting", "task_id")]
        memory = next(iter(of_row(cells, name, "memory").values())) / 2**20
        seconds = sum(of_row(cells, name, "cpu_seconds").values()) / len(final)
        published = f"{number.value:g}" if number else MISSING
        rows.append((name, [scores[0], published, *scores[1:], f"{memory:.2f}", f"{seconds:.0f}"]))
    return rows


def percent(values: dict[int, float]) -> str:
    """Return the mean over seeds in percent, with half the width of its interval.

    >>> percent({0: 0.9, 1: 0.92}), percent({})
    ('91.0 ± 12.7', '–')
    """
    if not values:
        return MISSING
    mean, low, high = mean_interval([100 * value for value in values.values()])
    return f"{mean:.1f} ± {(high - low) / 2:.1f}" if math.isfinite(low) else f"{mean:.1f}"


def page(record: Record, setting: Setting, judged: Sequence[Verdict], command: str) -> str:
    """Return the whole page."""
    about = (
        "HCL learns tasks one after another with one normalising flow and a Gaussian for each class. Intervals are "
        "Student's t over seeds, of paired differences where two methods are compared."
    )
    rows = method_rows(record["cells"], setting)
    reading = (
        "Mean accuracy over all tasks after the last one, mean over seeds with half the width of its 95 % interval. "
        "Published numbers stand beside the published form of the method alone, and beside the same stream."
    )
    facts = {
        "Command": command,
        "Stream": f"split:{setting.data}:{setting.tasks}, as vectors",
        "Training examples": f"{setting.train or 'all'} of each task",
        "Training": f"{setting.epochs} epochs of batches of {setting.batch_size}, the same for all methods",
        "Seeds": ", ".join(map(str, setting.seeds)),
        "Methods": "; ".join(f"{name}: {ROWS[name].about}" for name in setting.methods),
        "Detection": f"tasks in the order {', '.join(map(str, setting.order))}, {setting.detection_epochs} epochs",
        "CPU seconds": f"{sum(cell['cpu_seconds'] for cell in record['cells']):,.0f}",
        "Versions": ", ".join(f"{name} {version}" for name, version in record["versions"].items()),
    }
    parts = [
        verdicts_section(judged, about),
        section("methods", "Methods", reading, table("Final accuracy", ("Method", *COLUMNS), rows)),
        settings_section(facts, "The settings of all runs."),
    ]
    return framed("One flow for a stream of tasks", f"split:{setting.data}:{setting.tasks}", join(parts))
