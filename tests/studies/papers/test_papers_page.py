"""The page of published works: one row for each table and figure, claims by record, records without machine paths."""

import json
import math
from pathlib import Path
from typing import Any

import alpha_figure
import pages
import papers_page
import pytest
from markdown_tables import table_rows

from murmuration.studies.papers import EXPERIMENTS
from murmuration.studies.papers.published import Item, Work
from murmuration.studies.verdicts import Estimate, Verdict
from murmuration.system.errors import Misuse
from murmuration.system.records import plain_json

WORK = Work(
    "made",
    "A work",
    "Somebody, 2024",
    (
        Item("table 1", "methods", "murmur reproduce made", ("better", "worse"), "murmur reproduce made --x", "a GPU"),
        Item("figure 1", "a figure", "", ("other",), note="Same."),
        Item("figure 2", "a figure", "", (), note="Same."),
    ),
)
BETTER = Verdict("better", "a is better.", (Estimate("gain", 0.5, 0.25, 0.75, 0, math.inf),), "", (), "0.4", "table 1")
WORSE = Verdict("worse", "a is worse.", (Estimate("loss", 0.5, math.nan, math.nan, -math.inf, 0),))
MISSED = Verdict("other", "a figure.", (), missing=("a part",))


def record(**changes: Any) -> dict[str, Any]:
    setting = {"data": "/somewhere/mnist", "cifar_c": "/else/CIFAR-10-C", "net": "mlp", "members": 2, "seeds": [0, 1]}
    made = {"experiment": "made", "setting": setting, "versions": {}, "cells": [1], "cpu_seconds": 65.0}
    return plain_json(made | {"data": {"name": "/somewhere/mnist"}, "verdicts": [BETTER, WORSE, MISSED]} | changes)


def test_a_record_is_kept_without_cells_and_without_folders():
    kept = papers_page.trimmed(record())
    assert "cells" not in kept
    assert "/somewhere" not in json.dumps(kept)
    assert (kept["setting"]["data"], kept["setting"]["cifar_c"], kept["data"]["name"]) == (
        "mnist",
        "CIFAR-10-C",
        "mnist",
    )
    incomplete = record()
    del incomplete["verdicts"]
    with pytest.raises(Misuse, match="has no verdicts: repeat `murmur reproduce made"):
        papers_page.trimmed(incomplete)


def test_a_record_is_added_by_its_experiment_and_name(tmp_path, monkeypatch):
    monkeypatch.setattr(papers_page, "RECORDS", tmp_path / "kept")
    (tmp_path / "record.json").write_text(json.dumps(record()))
    assert papers_page.add(tmp_path, "mnist").name == "made-mnist.json"
    assert papers_page.add(tmp_path).name == "made.json"
    assert list(papers_page.records_of("made")) == ["made", "made-mnist"]


def test_every_item_has_a_row_and_every_estimate_too():
    items, claims = table_parts(papers_page.work_section(WORK, {"made-mnist": record()}))
    assert [row[0] for row in items[1:]] == ["**table 1**: methods", "**figure 1**: a figure", "**figure 2**: a figure"]
    assert items[1][1:] == [
        "`murmur reproduce made`",
        "`murmur reproduce made --x`; a GPU",
        "made-mnist: 1 holds, 1 cannot be decided by these runs",
    ]
    assert items[2][1:] == ["no command", "", "not run"]
    assert claims[1:] == [
        ["a is better.", "**holds**", "gain", "0.500 (0.250 to 0.750)", "above 0", "0.4"],
        ["a is worse.", "**cannot tell**", "loss", "0.500", "below 0", ""],
    ]
    page = papers_page.work_section(WORK, {"made-mnist": record()})
    assert "- figure 1, figure 2: Same." in page
    assert "/somewhere/mnist, mlp, 2 members, seeds 0 1; 1 min 05 s of CPU time." in page
    assert "###" not in papers_page.work_section(WORK, {})


def table_parts(section: str) -> list[list[list[str]]]:
    return [table_rows(part) for part in section.split("\n\n") if part.startswith("| ")]


def test_committed_records_are_of_works_on_the_page_and_name_their_claims():
    works, paths = papers_page.works(), sorted(papers_page.RECORDS.glob("*.json"))
    assert "forde" in works
    assert set(works) <= set(EXPERIMENTS)
    assert paths
    for path in paths:
        text = path.read_text()
        kept = json.loads(text)
        work = works[kept["experiment"]]
        assert path.stem.startswith(kept["experiment"])
        assert {claim for item in work.items for claim in item.claims} <= {v["name"] for v in kept["verdicts"]}, path
        assert not any(str(folder) in text for folder in (Path.home(), "/tmp", "/root")), path
        assert f"### {path.stem}" in pages.tables()["papers"]


def test_the_figure_of_alpha_is_that_of_its_record():
    kept = json.loads(alpha_figure.RECORD.read_text())
    assert alpha_figure.FIGURE.read_text(encoding="utf-8") == alpha_figure.figure(kept)
    assert alpha_figure.published()["severities 1 to 3"]["0.4"] == (62.97, 0.0)
    panels = alpha_figure.measured(kept)
    (table,) = [table for table in kept["tables"] if table["title"] == "by alpha"]
    assert f"{panels['clean']['0.4'][0]:.2f} ± {panels['clean']['0.4'][1]:.2f}" == table["rows"][3][1]
