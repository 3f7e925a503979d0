"""The checker finds each kind of damage, and names it."""

from pathlib import Path

import pytest
from check_report import report_check

from murmuration.system.errors import Failure

DAMAGE = [
    ("<main>", '<main><img src="https://cdn.example/a.png">', "<img src> points outside the file: https://cdn.example"),
    ("<main>", '<main><link rel="stylesheet" href="x.css">', "<link> loads another document"),
    ("<main>", '<main><p style="background:url(//x.example/y)">', "a style of <p> points outside the file: //x"),
    ("<main>", '<main><p onclick="go()">', "<p onclick> runs code from an attribute"),
    ("<style>", "<style>@import 'https://x.example/f.css';", "a style of <style> points outside the file"),
    ('id="calibration-0"', 'id="calibration-9"', "figure 'calibration-9' has a place but no data"),
    ('id="calibration-0"', 'id="calibration-9"', "figure 'calibration-0' has data but no place"),
    ('id="calibration-0"', 'id="calibration-1"', "id 'calibration-1' is used 2 times"),
    ('"type":"scatter"', '"type":scatter', "holds broken JSON"),
    ('"type":"scatter"', '"type":NaN', "holds broken JSON: NaN is not JSON"),
    ('"type":"scatter"', '"type":"scattergeo"', "has a trace of type 'scattergeo'"),
    ('"use strict";', '"use strict";fetch("x");', "a script of the page makes requests: fetch("),
    ('"use strict";', '"use loose";', "1 scripts are not the ones the content security policy names"),
    ('<script id="plotly">', '<script id="other">', "plotly's script is there 0 times, not once"),
    ("Content-Security-Policy", "X-Nothing", "no content security policy forbids requests"),
    ("</html>", "", "the file ends before </html>: it was cut short"),
]


def test_sound_pages_have_no_problems(pages: dict[str, str], tmp_path: Path) -> None:
    for name, page in pages.items():
        path = tmp_path / f"{name}.html"
        path.write_text(page, encoding="utf-8")
        assert report_check(path) == []


@pytest.mark.parametrize(("old", "new", "problem"), DAMAGE)
def test_damage_is_named(old: str, new: str, problem: str, pages: dict[str, str], tmp_path: Path) -> None:
    page = pages["classification"]
    assert old in page
    path = tmp_path / "damaged.html"
    path.write_text(page.replace(old, new, 1), encoding="utf-8")
    assert any(problem in found for found in report_check(path))


def test_a_file_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"report '.*none.html' could not be read .*; give an HTML file"):
        report_check(tmp_path / "none.html")
