"""The table of docs/papers.md: every table and figure of the reproduced works, from published numbers and records.

python benchmarks/papers_page.py --add runs/reproduce-forde mnist     keep the record of a finished reproduction, then
                                                                    rewrite the tables of all pages

A record is kept as benchmarks/results/papers/<experiment>-<name>.json: settings, versions, verdicts, tables and CPU
time, without the results of single cells.
"""

import argparse
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from table_text import markdown

from murmuration.reports.formatting import duration
from murmuration.studies.papers import EXPERIMENTS
from murmuration.studies.papers.page import estimate_text
from murmuration.studies.papers.published import Item, Work
from murmuration.studies.verdicts import WORDS, Estimate
from murmuration.system.errors import Misuse

RECORDS = Path(__file__).parent / "results" / "papers"
KEPT = ("experiment", "setting", "versions", "data", "verdicts", "tables", "cpu_seconds")
PATHS = ("data", "cifar_c", "ood")  # settings that may be paths: their last part is kept
REGION = {"least": -1, "most": 1}  # end of a region -> sign of the infinity that JSON has as null
SCALE = {"data": "{}", "net": "{}", "members": "{} members", "epochs": "{} epochs", "seeds": "seeds {}"}


def works() -> dict[str, Work]:
    """Return the published works by experiment, of those that have them as data."""
    names = {name: f"murmuration.studies.papers.{name.replace('-', '_')}.published" for name in EXPERIMENTS}
    return {name: import_module(module).WORK for name, module in names.items() if find_spec(module)}


def records_of(experiment: str) -> dict[str, dict[str, Any]]:
    """Return the kept records of an experiment by name; that without a name first."""
    paths = [RECORDS / f"{experiment}.json", *sorted(RECORDS.glob(f"{experiment}-*.json"))]
    return {path.stem: json.loads(path.read_text()) for path in paths if path.exists()}


def papers_table() -> str:
    """Return a section for each work."""
    return "\n\n".join(work_section(work, records_of(name)) for name, work in works().items())


def work_section(work: Work, records: Mapping[str, dict[str, Any]]) -> str:
    """Return the heading of a work, its tables and figures with their commands, and the claims of each record."""
    items = markdown(item_row(item, records) for item in work.items)
    notes = {item.note: [other.name for other in work.items if other.note == item.note] for item in work.items}
    lines = [f"- {', '.join(names)}: {note}" for note, names in notes.items() if note]
    parts = [f"## {work.experiment}", f"{work.title} ({work.reference}).", items, "\n".join(lines)]
    for name, record in records.items():
        spent = f"; {duration(record['cpu_seconds'])} of CPU time" if "cpu_seconds" in record else ""
        parts += [f"### {name}", f"{settings_text(record['setting'])}{spent}.", claims_table(record)]
    return "\n\n".join(parts)


def item_row(item: Item, records: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Return a table or figure, its commands, and by record what became of its claims."""
    tallies = []
    for name, record in records.items():
        words = Counter(v["verdict"] for v in record["verdicts"] if v["name"] in item.claims and v["estimates"])
        if words:
            tallies.append(f"{name}: {', '.join(f'{count} {WORDS[word][count > 1]}' for word, count in words.items())}")
    scale = f"`{item.full_scale}`" if item.full_scale else ""
    return {
        "item": f"**{item.name}**: {item.about}",
        "on a laptop": f"`{item.command}`" if item.command else "no command",
        "as published": f"{scale}{f'; {item.needs}' if item.needs else ''}",
        "claims": "<br>".join(tallies) or "not run",
    }


def claims_table(record: Mapping[str, Any]) -> str:
    """Return the claims of a record, one row for each estimate."""
    rows = []
    for verdict in record["verdicts"]:
        opening = {"claim": verdict["claim"], "verdict": f"**{verdict['verdict']}**", "published": verdict["published"]}
        for fact in verdict["estimates"]:
            ends = (math.nan if fact[name] is None else fact[name] for name in ("value", "low", "high"))
            region = [math.copysign(math.inf, sign) if fact[end] is None else fact[end] for end, sign in REGION.items()]
            estimate = Estimate(fact["what"], *ends, *region)
            measured = {"estimate": estimate.what, "here": estimate_text(estimate), "predicted": estimate.region}
            rows.append({**opening, **measured})
            opening = {"claim": "", "verdict": "", "published": ""}
    columns = ("claim", "verdict", "estimate", "here", "predicted", "published")
    return markdown([[row[column] for column in columns] for row in rows], columns)


def settings_text(setting: Mapping[str, Any]) -> str:
    """Return the scale of a record in a few words.

    >>> settings_text({"data": "digits", "members": 5, "seeds": [0, 1]})
    'digits, 5 members, seeds 0 1'
    """
    parts = []
    for name, form in SCALE.items():
        value = setting.get(name)
        if value is not None:
            parts.append(form.format(" ".join(map(str, value)) if isinstance(value, list) else value))
    return ", ".join(parts)


def trimmed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a record, without folders of the machine; one without verdicts is refused."""
    if "verdicts" not in record:
        name = record.get("experiment", "NAME")
        raise Misuse(f"the record of {name} has no verdicts: repeat `murmur reproduce {name} --out DIR`")
    kept = {name: record[name] for name in KEPT if name in record}
    setting = {name: Path(v).name if name in PATHS and isinstance(v, str) else v for name, v in kept["setting"].items()}
    kept["setting"] = setting
    if isinstance(kept.get("data"), dict) and "name" in kept["data"]:
        kept["data"] = {**kept["data"], "name": Path(kept["data"]["name"]).name}
    return kept


def add(folder: Path, name: str = "") -> Path:
    """Keep the record in the folder of a reproduction, and return its new path."""
    record = trimmed(json.loads((folder / "record.json").read_text()))
    path = RECORDS / f"{record['experiment']}{f'-{name}' if name else ''}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def record_table(record: dict[str, Any], title: str) -> str:
    """Return a table of a record by its title, as text."""
    (table,) = [table for table in record["tables"] if table["title"] == title]
    return markdown(table["rows"], table["columns"])


MAKERS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {  # place -> record, maker
    f"forde-{name}": ("papers/forde-mnist", partial(record_table, title=title))
    for name, title in {"methods": "methods", "gains": "gains over the deep ensemble", "alpha": "by alpha"}.items()
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", nargs="+", metavar="DIR [NAME]", required=True, help="a reproduction, and a name")
    folder, *name = parser.parse_args().add
    print(add(Path(folder), *name))
    import pages  # which imports this module

    pages.rewrite()


if __name__ == "__main__":
    main()
