"""The page as a browser would read it: structure, escaping, numbers, pictures, and the file on disk."""

import base64
import dataclasses
import io
import os
import re
from pathlib import Path

import numpy as np
import pytest
import report_samples
from PIL import Image
from report_reading import figures, section_names, tables

from murmuration.errors import Failure, Misuse
from murmuration.reports import (
    DataCard,
    Entry,
    Example,
    Histogram,
    Reliability,
    Report,
    RiskCoverage,
    render,
    report_check,
    write_report,
)
from murmuration.reports.check import Element, elements
from murmuration.reports.markup import png

HOSTILE = "</script><script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>\"'&"
NAMES = ("classification", "regression", "moons")


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


def test_links_in_the_contents_lead_to_sections(parsed: dict[str, list[Element]]) -> None:
    links = [e.attributes["href"][1:] for e in parsed["classification"] if e.tag == "a"]
    assert links == section_names(parsed["classification"])
    assert len(links) == 12


def test_sections_follow_the_data(parsed: dict[str, list[Element]]) -> None:
    assert section_names(parsed["moons"]) == ["summary", "scores", "field", "provenance"]
    assert "parity" in section_names(parsed["regression"])
    assert "parity" not in section_names(parsed["classification"])
    bare = Report("t", "regression", DataCard("d"), (Entry("a"),))
    assert section_names(elements(render(bare))) == ["summary", "provenance"]


def test_table_of_scores_shows_the_record_to_three_digits(pages: dict[str, str]) -> None:
    report = report_samples.classification()
    board = tables(pages["classification"])[0]
    assert board[0][:4] == ["Recipe", "Accuracy ↑", "NLL ↓", "ECE ↓"]
    for row, entry in zip(board[1:], report.entries, strict=True):
        assert row[0] == entry.name
        shown = re.findall(r"\d[\d.e-]*", row[2])
        for text, value in zip(shown, entry.scores["nll"], strict=True):
            assert abs(float(text) - value) <= 0.005 * value  # half a unit of the third digit


def test_best_is_marked_by_direction_and_neutral_scores_never(pages: dict[str, str]) -> None:
    board = tables(pages["classification"])[0]
    stars = {head: [row[place].count("★") for row in board[1:]] for place, head in enumerate(board[0])}
    assert stars["Accuracy ↑"] == [0, 1]
    assert stars["NLL ↓"] == [0, 1]
    assert stars["Mutual information "] == [0, 0]


def test_one_recipe_alone_is_not_called_best(pages: dict[str, str]) -> None:
    assert "★" not in "".join(cell for row in tables(pages["moons"])[0] for cell in row)


@pytest.mark.parametrize("shape", [(8, 8), (5, 7, 3), (4, 6, 4), (3, 9, 1)])
def test_png_addresses_decode_to_the_same_pixels(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    address = png(pixels)
    assert address.startswith("data:image/png;base64,")
    decoded = np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))))
    assert np.array_equal(decoded, pixels[..., 0] if shape[-1] == 1 else pixels)


def test_images_of_the_page_are_those_of_the_record(parsed: dict[str, list[Element]]) -> None:
    shown = [each.attributes for each in parsed["classification"] if each.tag == "img"]
    images = [example.image for example in report_samples.classification().examples]
    for each, image in zip(shown, images, strict=True):
        decoded = np.asarray(Image.open(io.BytesIO(base64.b64decode(each["src"].split(",")[1]))))
        assert np.array_equal(decoded, image)
        assert each["alt"].startswith("Test image")


def test_images_that_are_not_bytes_are_refused() -> None:
    with pytest.raises(Misuse, match=r"image of shape \(8, 8\) and type float64; give uint8"):
        png(np.zeros((8, 8)))


def hostile_report() -> Report:
    """Every string a user can choose, chosen by an enemy."""
    base = report_samples.classification()
    entry = dataclasses.replace(
        base.entries[0],
        name=HOSTILE,
        answers={"sharing": HOSTILE},
        scores={**base.entries[0].scores, HOSTILE: (1.0, 0.5, 1.5)},
        histograms=(Histogram(HOSTILE, [0, 1], {HOSTILE: [1]}),),
        frozen={0: HOSTILE},
        members=[{HOSTILE: 1.0}],
    )
    example = Example(HOSTILE, HOSTILE, image=base.examples[0].image, votes={HOSTILE: 2}, measures={HOSTILE: 1.0})
    row = Example(HOSTILE, "x", row={HOSTILE: HOSTILE})
    data = DataCard(HOSTILE, HOSTILE, {HOSTILE: 3}, (HOSTILE, "b"))
    return Report(
        title=HOSTILE,
        task="classification",
        data=data,
        entries=(entry, base.entries[1]),
        examples=(example, row),
        examples_of=HOSTILE,
        notes=(HOSTILE,),
        command=HOSTILE,
        versions={HOSTILE: HOSTILE},
        date=HOSTILE,
        interval=HOSTILE,
    )


def test_what_users_wrote_never_becomes_a_tag(parsed: dict[str, list[Element]], tmp_path: Path) -> None:
    page = render(hostile_report())
    path = tmp_path / "hostile.html"
    path.write_text(page, encoding="utf-8")
    assert report_check(path) == []
    found = elements(page)
    assert [each.tag for each in found if each.tag == "img"] == ["img"]
    executable = [e for e in found if e.tag == "script" and e.attributes.get("type") != "application/json"]
    assert len(executable) == 2
    assert not any("onerror" in each.attributes for each in found)
    assert "<script>alert" not in page


def test_plotly_labels_are_escaped_too() -> None:
    drawn = figures(elements(render(hostile_report())))
    names = [trace["name"] for trace in drawn["risk-coverage-curves"]["data"]]
    assert names[0].startswith("&lt;/script&gt;")
    assert "<" not in "".join(drawn["dots-0"]["layout"]["yaxis"]["ticktext"])


def test_numbers_that_are_not_finite_leave_valid_json(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    base = report_samples.classification()
    entry = dataclasses.replace(
        base.entries[0],
        scores={"accuracy": (nan, nan, nan), "nll": (inf, -inf, inf)},
        reliability=Reliability([nan, 0.5], [nan, 0.4], [nan, 0.1], [nan, inf], [0, 3]),
        risk_coverage=RiskCoverage([0.5, 1.0], [nan, inf]),
        histograms=(Histogram("entropy", [0, 1, 2], {"right": [nan, 1], "wrong": [0, 0]}),),
        history=[{"epoch": 1, "train_loss": [nan, inf], "ensemble": {"train_loss": nan}}],
        agreement=np.full((3, 3), nan),
        members=[{"accuracy": nan}, {"accuracy": inf}],
    )
    report = dataclasses.replace(base, entries=(entry,))
    path = tmp_path / "odd.html"
    write_report(path, report)
    assert report_check(path) == []
    drawn = figures(elements(path.read_text(encoding="utf-8")))
    assert drawn["reliability-0"]["data"][1]["x"] == [0.5]
    assert drawn["risk-coverage-curves"]["data"][0]["y"] == [None, None]


def test_writing_replaces_the_file_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.html"
    write_report(path, report_samples.moons())
    path.write_text("old")
    write_report(path, report_samples.moons())
    assert path.read_text(encoding="utf-8") == render(report_samples.moons())
    assert os.listdir(path.parent) == ["report.html"]


def test_failure_to_write_names_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match=r"report '.*file/report.html' could not be written \(.+\); give another path"):
        write_report(tmp_path / "file" / "report.html", report_samples.moons())


def test_a_failed_rename_keeps_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(Failure, match="the disk is full"):
        write_report(path, report_samples.moons())
    assert os.listdir(tmp_path) == ["report.html"]
    assert path.read_text() == "old"


def test_same_report_same_bytes() -> None:
    assert render(report_samples.regression()) == render(report_samples.regression())
