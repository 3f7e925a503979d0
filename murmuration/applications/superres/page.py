"""A page of its own on enlarged photographs: pictures side by side, scores, and what the uncertainty is worth."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from murmuration.applications.superres.applying import BRIGHTEST
from murmuration.applications.superres.colours import in_bytes
from murmuration.applications.superres.judging import CROP, Judged, Photograph, averages, bins
from murmuration.reports.canvas import Figure, axis, colour, layout
from murmuration.reports.markup import Markup, figure, join, png, section, table, tag, text
from murmuration.reports.page import framed
from murmuration.reports.wording import number, percent

ROW = "display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:12px 0 28px"
PICTURE = "width:100%;height:auto;image-rendering:pixelated;display:block"
HALF, LITTLE = 0.5, ": it does not say how far off a pixel may be"
WORTH = 0.1  # a rank correlation from which one may say that a map shows where errors are


class Panel(NamedTuple):
    """One picture of a row, and what it shows."""

    label: str
    pixels: np.ndarray


def superres_page(found: Sequence[Judged], *, title: str, subtitle: str) -> str:
    """The page on a run's test photographs."""
    return framed(title, subtitle, join([verdict(found), scores(found), crops(found), uncertainty(found)]))


def verdict(found: Sequence[Judged]) -> Markup:
    """What was found, in a few sentences."""
    sentences = [tag("p", text(sentence), "lead") for sentence in told(found)]
    reading = f"Means over {len(found)} whole photographs of which no pixel was trained on; brightness alone is scored."
    return section(
        "verdict", "Is it better than bicubic, and does it know where it is wrong?", reading, join(sentences)
    )


def told(found: Sequence[Judged]) -> list[str]:
    """The verdict as sentences, none of them kinder than its number."""
    mean = averages(found)
    better = "above" if mean["gain"] >= 0 else "below"
    first = (
        f"The mean prediction has {mean['psnr']:.2f} dB, {abs(mean['gain']):.2f} dB {better} bicubic's"
        f" {mean['psnr_bicubic']:.2f} dB; structural similarity is {mean['ssim']:.3f}, bicubic's"
        f" {mean['ssim_bicubic']:.3f}."
    )
    return [first, *told_of_doubt(mean)]


def told_of_doubt(mean: dict[str, float]) -> list[str]:
    """What the standard deviations over draws are worth, as sentences."""
    rank, edges = mean["rank_correlation"], mean["edges"]
    if math.isnan(rank):
        return ["The weights are numbers and there is one network, so there is no uncertainty to show."]
    where = "tell where errors are" if rank >= WORTH else "hardly tell where errors are"
    rival = "more than" if rank > edges else "no more than"
    return [
        f"Standard deviations over draws {where}: their rank correlation with absolute errors is {rank:.2f}; that is"
        f" {rival} the edges of the bicubic picture tell for nothing ({edges:.2f}).",
        f"The spread of the draws accounts for {percent(mean['weights_share'])} of the squared error"
        f"{LITTLE if mean['weights_share'] < HALF else ''}. The noise that the likelihood assumes is"
        f" {percent(mean['noise_share'])} of it, and the 95 % intervals of both together hold"
        f" {percent(mean['coverage'])} of the pixels.",
    ]


def scores(found: Sequence[Judged]) -> Markup:
    """The table of PSNR and SSIM, a row a photograph."""
    columns = [text(name) for name in ("Photograph", *SCORE_COLUMNS)]
    rows = [(text(first), list(map(text, cells))) for first, *cells in score_rows(found)]
    reading = (
        "PSNR in decibels, from the mean squared error of the mean prediction; SSIM is at most 1. Photographs were"
        " shrunk bicubically and rounded to bytes; all pixels count, borders too."
    )
    return section("scores", "Scores", reading, table("Scores of every photograph", columns, rows))


SCORE_COLUMNS = ("PSNR bicubic", "PSNR mean", "gain", "SSIM bicubic", "SSIM mean")


def score_rows(found: Sequence[Judged]) -> list[list[str]]:
    """A row of text a photograph, and one of means."""
    records = [each.to_json() for each in found] + [{"photograph": "mean", **averages(found)}]
    return [
        [
            each["photograph"],
            *(f"{each[name]:.2f}" for name in ("psnr_bicubic", "psnr")),
            f"{each['gain']:+.2f}",
            *(f"{each[name]:.4f}" for name in ("ssim_bicubic", "ssim")),
        ]
        for each in records
    ]


def crops(found: Sequence[Judged]) -> Markup:
    """Six pictures of a window of each photograph."""
    reading = (
        f"The window of {CROP} small pixels in which bicubic errs most. Maps are black at 0 and white at the level that"
        " stands below them, each its own."
    )
    rows = [join([tag("h3", text(each.shown.name)), row_of(each.shown)]) for each in found]
    return section("crops", "Pictures", reading, join(rows))


def row_of(seen: Photograph) -> Markup:
    figures = [
        Markup(
            f'<figure style="margin:0"><img style="{PICTURE}" src="{png(panel.pixels)}"'
            f' alt="{text(seen.name)}: {text(panel.label)}"><figcaption>{text(panel.label)}</figcaption></figure>'
        )
        for panel in panels(seen)
    ]
    return Markup(f'<div style="{ROW}">{join(figures)}</div>')


def panels(seen: Photograph) -> list[Panel]:
    """The window of a photograph in six ways."""
    shown = {"small": seen.small, "bicubic": seen.bicubic, "mean prediction": seen.mean, "truth": seen.truth}
    made = [Panel(label, in_bytes(picture)) for label, picture in shown.items()]
    for label, values in {"standard deviation": seen.std, "absolute error": seen.error}.items():
        white = float(values.double().flatten().quantile(BRIGHTEST))
        made.append(Panel(f"{label}, white {number(white)}", in_bytes(values, white)))
    return made


DOUBT_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "weights_share": ("share of the draws", percent),
    "noise_share": ("share of the noise", percent),
    "correlation": ("correlation", number),
    "rank_correlation": ("by ranks", number),
    "edges": ("edges, by ranks", number),
    "coverage": ("in the 95 % interval", percent),
}


def uncertainty(found: Sequence[Judged]) -> Markup:
    """Whether standard deviations say where errors are, and how large."""
    reading = (
        "Shares are of the mean squared error: of what the draws of the weights differ by, and of the noise that the"
        " likelihood assumes. Correlations are of standard deviations and absolute errors over pixels. Edges are the"
        " steepness of the bicubic picture: a map must beat them to be worth its cost."
    )
    columns = [text("Photograph"), *(text(label) for label, _ in DOUBT_COLUMNS.values())]
    records = [each.to_json() for each in found] + [{"photograph": "mean", **averages(found)}]
    rows = [
        (text(each["photograph"]), [text(how(each[key])) for key, (_, how) in DOUBT_COLUMNS.items()])
        for each in records
    ]
    board = table("What the uncertainty says of the errors", columns, rows)
    return section("uncertainty", "Uncertainty", reading, join([board, figure(bins_figure(found))]))


def bins_figure(found: Sequence[Judged]) -> Figure | None:
    """Errors against standard deviations, a point for every tenth of the pixels."""
    pairs = bins(found)
    if not max(std for std, _ in pairs):
        return None
    points = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [std for std, _ in pairs],
        "y": [error for _, error in pairs],
        "marker": {"color": colour(0), "size": 8},
        "line": {"color": colour(0)},
        "hovertemplate": "standard deviation %{x:.4f}<br>error %{y:.4f}<extra></extra>",
    }
    across, down = axis("standard deviation over draws"), axis("root mean square error") | {"rangemode": "tozero"}
    label = "Root mean square error of pixels in ten bins by their standard deviation"
    return Figure(
        "superres-bins", "Error by doubt, a point for every tenth of all pixels", label, [points], layout(across, down)
    )
