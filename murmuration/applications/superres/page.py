"""The HTML page of a super-resolution run: images side by side, scores, and quality of the uncertainty."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from murmuration.applications.superres.evaluation import CROP, PhotoScores, Reconstruction, error_bins, mean_scores
from murmuration.applications.superres.upscale import WHITE_QUANTILE, to_bytes
from murmuration.reports.figures import Figure, axis, colour, layout, scatter
from murmuration.reports.formatting import number, percent
from murmuration.reports.html import Markup, figure, join, png, section, table, tag, text
from murmuration.reports.page import framed

ROW = "display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:12px 0 28px"
IMAGE = "width:100%;height:auto;image-rendering:pixelated;display:block"
HALF, LITTLE = 0.5, ": it says little about the size of errors"
INFORMATIVE = 0.1  # rank correlation from which a map is said to show where errors are


def superres_page(photographs: Sequence[PhotoScores], subtitle: str) -> str:
    """Return the page on a run's test photographs."""
    reading = f"Means over {len(photographs)} test photographs; luma alone is scored."
    lines = join(tag("p", sentence, "lead") for sentence in sentences(photographs))
    parts = section("verdict", "Summary", reading, lines), scores(photographs), crops(photographs)
    return framed("Super-resolution", subtitle, join([*parts, uncertainty(photographs)]))


def sentences(photographs: Sequence[PhotoScores]) -> list[str]:
    """Return the summary as sentences: the reconstruction, then quality of the standard deviations over draws."""
    mean = mean_scores(photographs)
    better = "above" if mean["gain"] >= 0 else "below"
    quality = (
        f"The mean prediction has {mean['psnr']:.2f} dB, {abs(mean['gain']):.2f} dB {better} bicubic's"
        f" {mean['psnr_bicubic']:.2f} dB; structural similarity is {mean['ssim']:.3f}, bicubic's"
        f" {mean['ssim_bicubic']:.3f}."
    )
    rank, edges = mean["rank_correlation"], mean["edge_correlation"]
    if math.isnan(rank):
        nothing = "There is one network with deterministic weights, so there is no epistemic uncertainty to show."
        return [quality, nothing]
    usefulness = "show where errors are" if rank >= INFORMATIVE else "hardly show where errors are"
    rival = "more than" if rank > edges else "no more than"
    return [
        quality,
        f"Standard deviations over draws {usefulness}: their rank correlation with absolute errors is {rank:.2f},"
        f" {rival} that of the edges of the bicubic image ({edges:.2f}), a baseline without a network.",
        f"The variance over draws is {percent(mean['epistemic_fraction'])} of the squared error"
        f"{LITTLE if mean['epistemic_fraction'] < HALF else ''}. The assumed noise is"
        f" {percent(mean['noise_fraction'])} of it, and the 95 % intervals of both together cover"
        f" {percent(mean['coverage'])} of the pixels.",
    ]


def scores(photographs: Sequence[PhotoScores]) -> Markup:
    """Return the table of PSNR and SSIM, one row per photograph."""
    rows = [(first, cells) for first, *cells in score_rows(photographs)]
    reading = (
        "PSNR in decibels, from the mean squared error of the mean prediction; SSIM is at most 1. Photographs were"
        " downscaled bicubically and rounded to bytes; all pixels count, borders too."
    )
    board = table("Scores of every photograph", ("Photograph", *SCORE_COLUMNS), rows)
    return section("scores", "Scores", reading, board)


SCORE_COLUMNS = ("PSNR bicubic", "PSNR mean", "gain", "SSIM bicubic", "SSIM mean")


def score_rows(photographs: Sequence[PhotoScores]) -> list[list[str]]:
    """Return one row of text per photograph, and one of means."""
    row = "{photograph}|{psnr_bicubic:.2f}|{psnr:.2f}|{gain:+.2f}|{ssim_bicubic:.4f}|{ssim:.4f}"
    return [row.format_map(record).rsplit("|", 5) for record in records_of(photographs)]


def records_of(photographs: Sequence[PhotoScores]) -> list[dict[str, Any]]:
    """Return the record of every photograph, and the means."""
    return [photograph.to_json() for photograph in photographs] + [{"photograph": "mean", **mean_scores(photographs)}]


def crops(photographs: Sequence[PhotoScores]) -> Markup:
    """Return six images of a window of each photograph."""
    maps = "Maps are black at 0 and white at the value below each."
    reading = f"The window of {CROP} small pixels with the largest bicubic error. {maps}"
    rows = []
    for window in (photograph.crop for photograph in photographs):
        figures = []
        for label, pixels in panels(window):
            image = f'<img style="{IMAGE}" src="{png(pixels)}" alt="{text(window.name)}: {text(label)}">'
            figures.append(Markup(f'<figure style="margin:0">{image}{tag("figcaption", label)}</figure>'))
        rows += [tag("h3", window.name), Markup(f'<div style="{ROW}">{join(figures)}</div>')]
    return section("crops", "Images", reading, join(rows))


def panels(window: Reconstruction) -> list[tuple[str, np.ndarray]]:
    """Return small image, bicubic, mean prediction, truth, standard deviation and error of a window.

    Labels and pixels.
    """
    labels = {"small": "small", "bicubic": "bicubic", "mean prediction": "mean", "truth": "truth"}
    images = [(label, to_bytes(getattr(window, name))) for label, name in labels.items()]
    for label, values in (("standard deviation", window.std), ("absolute error", window.error)):
        white = float(values.double().flatten().quantile(WHITE_QUANTILE))
        images.append((f"{label}, white {number(white)}", to_bytes(values, white)))
    return images


UNCERTAINTY_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "epistemic_fraction": ("variance over draws", percent),
    "noise_fraction": ("noise variance", percent),
    "correlation": ("correlation", number),
    "rank_correlation": ("by ranks", number),
    "edge_correlation": ("edges, by ranks", number),
    "coverage": ("in the 95 % interval", percent),
}


def uncertainty(photographs: Sequence[PhotoScores]) -> Markup:
    """Return the table of uncertainty scores, and errors against standard deviations."""
    reading = (
        "Fractions are of the mean squared error: the variance over draws of the weights, and the noise variance of the"
        " likelihood. Correlations are of standard deviations and absolute errors over pixels. Edges are the gradient"
        " length of the bicubic image, a baseline that a map should beat."
    )
    columns = ["Photograph", *(label for label, _ in UNCERTAINTY_COLUMNS.values())]
    rows = []
    for record in records_of(photographs):
        rows.append((record["photograph"], [how(record[key]) for key, (_, how) in UNCERTAINTY_COLUMNS.items()]))
    board = table("Uncertainty against errors", columns, rows)
    return section("uncertainty", "Uncertainty", reading, join([board, figure(bins_figure(photographs))]))


def bins_figure(photographs: Sequence[PhotoScores]) -> Figure | None:
    """Return errors against standard deviations, one point per tenth of the pixels."""
    pairs = error_bins(photographs)
    if not max(std for std, _ in pairs):
        return None
    stds, errors = zip(*pairs, strict=True)
    points = scatter("lines+markers", stds, errors)
    points |= {"marker": {"color": colour(0), "size": 8}, "line": {"color": colour(0)}}
    points["hovertemplate"] = "standard deviation %{x:.4f}<br>error %{y:.4f}<extra></extra>"
    across, up = axis("standard deviation over draws"), axis("root mean square error") | {"rangemode": "tozero"}
    title = "Error by standard deviation, one point per tenth of all pixels"
    label = "Root mean square error of pixels in ten bins by their standard deviation"
    return Figure("superres-bins", title, label, [points], layout(across, up))
