"""The page as a browser would read it: structure, escaping, numbers, images, and the file on disk."""

import base64
import html
import io
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import report_factories as made
from check_report import TRACES, Element, elements, report_check
from PIL import Image
from report_reading import figures, section_names, tables

from murmuration.evaluation.metrics import MEASURES, shown_in
from murmuration.reports import render, write_report
from murmuration.reports.figures import BREAK
from murmuration.reports.formatting import number, percent
from murmuration.reports.html import png
from murmuration.reports.page import SECTIONS
from murmuration.reports.sections.examples import Example, cards
from murmuration.system.errors import Failure, Misuse

HOSTILE = "</script><script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>\"'&"
NAMES = ("classification", "regression", "small")


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_one_container_with_words_for_it(name: str, parsed: dict[str, list[Element]]) -> None:
    places = [each for each in parsed[name] if each.attributes.get("class") == "plot"]
    assert {each.attributes["id"] for each in places} == set(figures(parsed[name]))
    assert all(each.attributes["role"] == "img" and each.attributes["aria-label"] for each in places)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_points_outside(name: str, parsed: dict[str, list[Element]]) -> None:
    for each in parsed[name]:
        for attribute in ("src", "href", "srcset", "action"):
            assert each.attributes.get(attribute, "#").startswith(("#", "data:image/png;base64,"))
        styles = each.attributes.get("style", "") + (each.text if each.tag == "style" else "")
        assert "url(" not in styles
        assert "@import" not in styles
    assert not {"link", "iframe", "object", "embed", "base"} & {each.tag for each in parsed[name]}


def test_links_lead_to_all_sections_in_groups(pages: dict[str, str], parsed: dict[str, list[Element]]) -> None:
    links = [e.attributes["href"][1:] for e in parsed["classification"] if e.tag == "a"]
    assert links == section_names(parsed["classification"])
    shown = re.findall(r'<span class="group">(\w+)</span>', pages["classification"])
    assert shown == list(SECTIONS)


def test_sections_follow_the_data(parsed: dict[str, list[Element]]) -> None:
    assert section_names(parsed["small"]) == [
        *("summary", "scores", "classes", "calibration", "uncertainty", "abstention", "provenance")
    ]
    both = {"conformal", "shift", "ood", "groups", "recipes", "members"}
    assert both <= set(section_names(parsed["regression"])) & set(section_names(parsed["classification"])) | {"members"}
    assert "predictions" in section_names(parsed["regression"])
    assert "classes" not in section_names(parsed["regression"])


def test_the_page_opens_with_a_verdict(pages: dict[str, str]) -> None:
    compared, small = pages["classification"], pages["small"]
    assert compared.index('class="verdict"') < compared.index('id="differences"') < compared.index("<table>")
    assert small.index('class="verdict"') < small.index('class="cards"') < small.index("<table>")


def score_tables(page: str) -> list[list[list[str]]]:
    """The table of scores and, where recipes are compared, its continuation."""
    return [board for board in tables(page) if board[0][0] == "Score"]


def name_of_row(row: list[str]) -> str:
    """The score of a row of that table."""
    label = row[0].split("|")[0].strip(" ↑↓")
    return next(name for name, measure in MEASURES["classification"].items() if measure.label == label)


def test_the_score_table_shows_the_record() -> None:
    report = made.report(made.classification("sharp", distortion=2.0), made.classification("plain"))
    page = render(report)
    board, more = score_tables(page)
    assert board[0] == more[0] == ["Score", "sharp", "plain", "No input"]
    names = [n for n in shown_in("table", "classification") if n in report.evaluations[0].scores]
    assert len(board) + len(more) - 2 == len(names)
    rows = sorted([*board[1:], *more[1:]], key=lambda row: names.index(name_of_row(row)))
    for row, name in zip(rows, names, strict=True):
        measure = MEASURES["classification"][name]
        assert row[0].startswith(measure.label)
        assert html.escape(measure.meaning) in page
        for cell, each in zip(row[1:], report.evaluations, strict=False):
            show = percent if measure.proportion else number
            assert cell.split(" | ")[0].strip(" ★") == show(each.scores[name])
        without = report.baseline.scores.get(name, math.nan) if not measure.needs_members else math.nan
        assert row[3].split(" | ")[0] == show(without)


def test_best_is_marked_by_direction_and_neutral_scores_never() -> None:
    report = made.report(made.classification("sharp", distortion=2.0), made.classification("plain"))
    board, more = score_tables(render(report))
    rows = {row[0].split("|")[0].strip(): row[1:-1] for row in (*board[1:], *more[1:])}
    better = min(report.evaluations, key=lambda each: float(each.scores["nll"])).name
    stars = ["★" in cell for cell in rows["NLL ↓"]]
    assert stars == [each.name == better for each in report.evaluations]
    assert not any("★" in cell for cell in rows["Mutual information"])
    (alone,) = score_tables(render(made.report(made.classification())))
    assert "★" not in "".join(cell for row in alone for cell in row)


def test_no_table_cell_has_scientific_notation_or_a_hyphen_for_a_minus(pages: dict[str, str]) -> None:
    cells = [cell for name in NAMES for board in tables(pages[name]) for row in board[1:] for cell in row[1:]]
    assert not [cell for cell in cells if re.search(r"\d[eE][-+]?\d", cell)]
    assert not [cell for cell in cells if re.search(r"(?<![\w])-\d", cell)]


def test_every_cell_carries_its_label_for_narrow_screens(pages: dict[str, str]) -> None:
    text = pages["classification"].partition('<script id="plotly">')[0]
    assert text.count("<td ") == text.count("<td data-label=")
    assert "<td>" not in text
    assert 'data-label="sharp"' in text


def test_the_bundle_of_plotly_draws_every_trace_that_figures_use(parsed: dict[str, list[Element]]) -> None:
    (script,) = [each.text for each in parsed["small"] if each.attributes.get("id") == "plotly"]
    assert "Licensed under the MIT license" in script[:300]
    assert set(re.findall(r'moduleType:"trace",name:"(\w+)"', script)) >= TRACES


@pytest.mark.parametrize("shape", [(8, 8), (5, 7, 3), (4, 6, 4), (3, 9, 1)])
def test_png_addresses_decode_to_the_same_pixels(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    address = png(pixels)
    assert address.startswith("data:image/png;base64,")
    decoded = np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))))
    assert np.array_equal(decoded, pixels[..., 0] if shape[-1] == 1 else pixels)


def test_cards_show_the_image_of_the_example() -> None:
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    (shown,) = [
        each
        for each in elements(cards([Example("a", "b", image=pixels, index=7)], "classification"))
        if each.tag == "img"
    ]
    decoded = np.asarray(Image.open(io.BytesIO(base64.b64decode(shown.attributes["src"].split(",")[1]))))
    assert np.array_equal(decoded, pixels)
    assert shown.attributes["alt"].startswith("Test image 7")


def test_images_that_are_not_bytes_are_refused() -> None:
    with pytest.raises(Misuse, match=r"image of shape \(8, 8\) and type float64; give uint8"):
        png(np.zeros((8, 8)))


def hostile() -> str:
    """Every string a user can choose, chosen by an enemy."""
    first = made.full(made.classification, HOSTILE)
    eval_set = replace(first.eval_set, name=HOSTILE, classes=(HOSTILE, "b", "c", "d"), fingerprint=HOSTILE)
    ood = replace(first.ood[0], name=HOSTILE)
    groups = {HOSTILE: [replace(group, value=HOSTILE + group.value) for group in first.groups["site"]]}
    subsets = {HOSTILE: np.arange(50)}
    changed = replace(first, eval_set=eval_set, ood=(ood,), groups=groups, subsets=subsets)
    other = replace(changed, name="<script>alert(2)</script>")
    return render(made.report(changed, other, command=HOSTILE, date=HOSTILE))


def test_what_users_wrote_never_becomes_a_tag(tmp_path: Path) -> None:
    page = hostile()
    path = tmp_path / "hostile.html"
    path.write_text(page, encoding="utf-8")
    assert report_check(path) == []
    found = elements(page)
    executable = [e for e in found if e.tag == "script" and e.attributes.get("type") != "application/json"]
    assert len(executable) == 2
    assert not any("onerror" in each.attributes for each in found)
    assert "<script>alert" not in page
    example = Example(HOSTILE, HOSTILE, votes={HOSTILE: 2}, measures={HOSTILE: 1.0}, row={HOSTILE: HOSTILE})
    assert "<img" not in cards([example], "classification")


def test_plotly_labels_are_escaped_too() -> None:
    drawn = figures(elements(hostile()))
    shown = [trace.get("name", "") for each in drawn.values() for trace in each["data"]]
    shown += [tick for each in drawn.values() for tick in each["layout"]["yaxis"].get("ticktext", [])]
    assert any("&lt;" in name for name in shown)
    assert not any("<" in name.replace(BREAK, " ") for name in shown)  # long names of a legend have lines


def test_numbers_that_are_not_finite_leave_valid_json(tmp_path: Path) -> None:
    nan = float("nan")
    found = made.full(made.classification, "odd")
    scores = {
        name: made.Score(nan, nan, nan) if name != "nll" else made.Score(float("inf"), nan, nan)
        for name in found.scores
    }
    shift = made.shift_result("classification", harm=nan)
    history = [{"epoch": 1, "train_loss": [nan, float("inf")], "ensemble": {"train_loss": nan}}]
    odd = replace(found, scores=scores, shift=shift)
    object.__setattr__(odd, "ensemble", None)
    path = tmp_path / "odd.html"
    write_report(path, made.report(odd))
    assert report_check(path) == []
    from murmuration.reports.sections.members import training_figure

    drawn = training_figure(replace(found, ensemble=made.trained(history)), "train_loss", 0, "x")
    assert drawn is not None


def test_writing_replaces_the_file_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path, report = tmp_path / "deep" / "report.html", made.report(made.classification())
    write_report(path, report)
    path.write_text("old")
    write_report(path, report)
    assert path.read_text(encoding="utf-8") == render(report)
    assert os.listdir(path.parent) == ["report.html"]


def test_failure_to_write_names_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match=r"report '.*file/report.html' could not be written \(.+\); give another path"):
        write_report(tmp_path / "file" / "report.html", made.report(made.regression()))


def test_a_failed_rename_keeps_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(Failure, match="the disk is full"):
        write_report(path, made.report(made.regression()))
    assert os.listdir(tmp_path) == ["report.html"]
    assert path.read_text() == "old"


def test_same_report_same_bytes() -> None:
    assert render(made.report(made.regression())) == render(made.report(made.regression()))


def test_reports_refuse_what_cannot_be() -> None:
    with pytest.raises(Misuse, match="a report without evaluations"):
        made.report()
    with pytest.raises(Misuse, match="two evaluations are named 'one'"):
        made.report(made.regression(), made.regression())


# Parts of one recipe


def test_a_selector_names_the_recipes_whose_parts_it_shows(pages: dict[str, str]) -> None:
    page = pages["classification"]
    (selector,) = re.findall(r'<select id="recipe">(.*?)</select>', page)
    options = re.findall(r'<option value="(\d)"( selected)?>(\w+)</option>', selector)
    assert [name for _, _, name in options] == ["sharp", "plain"]
    report = made.report(
        made.full(made.classification, "sharp", distortion=2.0), made.full(made.classification, "plain")
    )
    assert [name for _, chosen, name in options if chosen] == [report.leader.name]
    parts = re.findall(r'<div class="recipe" data-recipe="(\d)">', page)
    assert parts.count("0") == parts.count("1") >= 6
    assert '<select id="recipe">' not in pages["small"]
    assert "data-recipe" not in pages["small"].partition("<body>")[2].partition('<script id="plotly">')[0]


def test_sections_on_single_recipes_open_on_demand_in_a_comparison(pages: dict[str, str]) -> None:
    folded = re.findall(r'<section id="(\w+)"[^>]*>\s*<details class="folded">', pages["classification"])
    assert {"classes", "uncertainty", "conformal", "members"} <= {*folded}
    assert not {"summary", "scores", "calibration", "shift"} & {*folded}
    assert 'class="folded"' not in pages["small"].partition("<body>")[2]


def test_the_matrix_holds_every_pair_both_ways() -> None:
    evaluations = [made.classification(name, distortion=d) for name, d in (("a", 1.0), ("b", 2.0), ("c", 3.0))]
    report = made.report(*evaluations)
    board = next(board for board in tables(render(report)) if board[0] == ["", "a", "b", "c"])
    tests = {(t.a, t.b): t for t in report.differences if t.test.name == "nll"}
    for i, row in enumerate("abc"):
        for j, column in enumerate("abc"):
            if i == j:
                assert board[1 + i][1 + j] == "\u2013"
                continue
            test = tests[(row, column) if i < j else (column, row)]
            value = float(test.test.difference) * (1 if i < j else -1)
            assert board[1 + i][1 + j].split(" | ") == [number(value), test.chance]
    drawn = figures(elements(render(report)))["differences"]
    assert len(drawn["data"]) == 2  # the line of no difference, and clean examples
    leader = report.leader.name
    assert drawn["data"][1]["x"] == pytest.approx(
        [float(e.scores["nll"]) - float(report.leader.scores["nll"]) for e in evaluations if e.name != leader], rel=1e-4
    )
