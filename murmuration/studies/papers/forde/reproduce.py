"""The command: computes the cells that are missing, judges the claims, and draws the page."""

from functools import cache
from pathlib import Path

from murmuration.studies.papers import Options, Outcome, ScreenTable, Show, check_least, check_parts, choose_settings
from murmuration.studies.papers.forde.cells import COLUMNS, Columns, Laboratory, load_columns
from murmuration.studies.papers.forde.claims import Results, verdicts
from murmuration.studies.papers.forde.page import page
from murmuration.studies.papers.forde.settings import PARTS, PROFILES, Setting
from murmuration.studies.papers.forde.tables import MEASURES, mean_text, record_tables
from murmuration.studies.papers.forde.toys import RECIPES, TOYS
from murmuration.studies.papers.page import verdict_table
from murmuration.studies.papers.record import Record, open_record, save_record
from murmuration.system.errors import Failure
from murmuration.system.records import plain_json

EXTENDS = ("seeds", "methods", "parts", "device")


def reproduce(options: Options, out: Path, show: Show, command: str = "") -> Outcome:
    """Return the record with verdicts, the page and two tables; cells already in the record are not computed again."""
    setting = choose_settings(PROFILES, options)
    check_least(setting, members=2, epochs=1, examples=2)
    check_parts(setting.parts, PARTS)
    setting.plan(0)  # refuses an unknown device or schedule before anything is written
    record = run(out, setting, show)
    results = read_results(record, out)
    judged = verdicts(results)
    spent = sum(entry["cpu_seconds"]["all"] for entry in (*record["cells"], *record["toys"]))
    record["setting"]["seeds"] = sorted({entry["seed"] for entry in (*record["cells"], *record["toys"])})
    full_record = plain_json(
        {**record, "verdicts": judged, "tables": record_tables(results), "cpu_seconds": round(spent, 1)}
    )
    save_record(out, full_record)
    tables = [score_table(results), verdict_table(judged)] if results.methods else [verdict_table(judged)]
    return Outcome(full_record, page(results, out, judged, command), tables)


def run(out: Path, setting: Setting, show: Show) -> Record:
    """Return the record in `out` with all cells of the setting; each is stored as soon as it is computed."""
    laboratory = Laboratory(setting, out, show)
    arms = setting.arms()
    contents = {"data": laboratory.about() if arms else None}
    record = open_record(out, "forde", setting, EXTENDS, data=None, cells=[], toys=[])
    if record["data"] is not None and contents["data"] not in (None, record["data"]):
        raise Failure(f"{setting.data} has changed since {out} was begun: choose another --out")
    record["data"] = record["data"] or contents["data"]
    stored = {(cell["arm"], cell["seed"]) for cell in record["cells"]}
    for seed in setting.seeds:
        for arm in arms:
            if (arm, seed) not in stored:
                record["cells"].append(plain_json(laboratory.measure(arm, seed)))
                save_record(out, record)
    stored_toys = {(row["toy"], row["recipe"], row["seed"]) for row in record["toys"]}
    runs = [(toy, recipe, seed) for seed in setting.seeds for toy in TOYS for recipe in RECIPES]
    for turn, toy_run in enumerate(runs if "toys" in setting.parts else []):
        show(f"{toy_run[0]}, {toy_run[1]}, seed {toy_run[2]}", turn, len(runs))
        if toy_run not in stored_toys:
            record["toys"].append(plain_json(laboratory.measure_toy(*toy_run)))
            save_record(out, record)
    show("", 1, 1)
    save_record(out, record)
    return record


def read_results(record: Record, out: Path) -> Results:
    """Return queries of a record whose scores by example are in `out`."""

    @cache
    def columns(arm: str, seed: int) -> Columns:
        try:
            return load_columns(out, f"{arm}-{seed}")
        except (OSError, ValueError, KeyError):
            path = out / COLUMNS / f"{arm}-{seed}.npz"
            raise Failure(f"cannot read {path}, the scores of a cell in record.json: choose another --out") from None

    return Results(record, columns)


def score_table(results: Results) -> ScreenTable:
    """Return the scores of every method: means over seeds."""
    rows = [
        [method, *(mean_text(results, method, *measure, interval=False) for measure in MEASURES.values())]
        for method in results.methods
    ]
    return ScreenTable("means over seeds", ["", *MEASURES], rows)
