"""Colours can be read: contrast as the Web Content Accessibility Guidelines 2.2 define it, in both themes."""

import re
from importlib.resources import files

import pytest

STYLE = files("murmuration.reports").joinpath("style.css").read_text(encoding="utf-8")
PAIRS = re.findall(r"(--[\w-]+): light-dark\((#\w{6}), (#\w{6})\)", STYLE)
THEMES = {"light": {name: light for name, light, _ in PAIRS}, "dark": {name: dark for name, _, dark in PAIRS}}
TEXT = ("--ink", "--ink-soft", "--accent", "--good", "--bad")
MARKS = ("--member", *(f"--series-{place}" for place in range(1, 8)))


def luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_black_on_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("ground", ["--paper", "--page"])
def test_text_reaches_level_aa(theme: str, ground: str) -> None:
    colours = THEMES[theme]
    low = {name: contrast(colours[name], colours[ground]) for name in TEXT}
    assert {name: ratio for name, ratio in low.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_marks_of_figures_stand_out_from_the_paper(theme: str) -> None:
    colours = THEMES[theme]
    low = {name: contrast(colours[name], colours["--paper"]) for name in MARKS}
    assert {name: ratio for name, ratio in low.items() if ratio < 3} == {}


def test_figures_use_only_colours_that_the_style_defines(pages: dict[str, str]) -> None:
    used = set(
        re.findall(r'"var\((--[\w-]+)\)"', "".join(page[: page.index('id="plotly"')] for page in pages.values()))
    )
    defined = set(re.findall(r"(--[\w-]+): light-dark", STYLE))
    assert len(used) > 8
    assert used <= defined


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_on_the_strongest_shade(theme: str) -> None:
    colours = THEMES[theme]
    (most,) = map(float, re.findall(r"calc\(var\(--depth, 0%\) \* ([\d.]+)\)", STYLE))
    bad, paper = ([int(colours[name][at : at + 2], 16) for at in (1, 3, 5)] for name in ("--bad", "--paper"))
    mixed = "#" + "".join(f"{round(most * a + (1 - most) * b):02x}" for a, b in zip(bad, paper, strict=True))
    assert contrast(colours["--ink"], mixed) >= 4.5
