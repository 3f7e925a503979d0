"""The page on uncertainty along training."""

import numpy as np

from murmuration.reports.figures import Figure, axis, colour, dash, layout, scatter, symbol
from murmuration.reports.formatting import number
from murmuration.reports.html import Markup, figure, grid, join, section, table
from murmuration.studies.pages.maps import verdict_section
from murmuration.studies.uncertainty import UncertaintyPath

PANELS = {  # figure -> title, series by name
    "uncertainty": ("Uncertainty of test examples", {"aleatoric": "aleatoric", "epistemic": "epistemic"}),
    "score": ("Score", {"train_score": "training examples", "test_score": "test examples"}),
    "weights": ("Standard deviation of a weight", {"median_std": "median"}),
    "snr": ("Mean of a weight over its standard deviation", {"median_snr": "median"}),
    "kl": ("KL divergence from the prior, nats", {"kl": "of a member"}),
}
LOGARITHMIC = ("weights", "snr")


def uncertainty_figures(path: UncertaintyPath) -> dict[str, Figure]:
    """Return every panel that has values, against the epoch."""
    panels = {}
    for name, (title, series) in PANELS.items():
        data = []
        for place, (field, words) in enumerate(series.items()):
            values = getattr(path, field)
            if np.isfinite(values).any():
                look = {"line": {"color": colour(place), "dash": dash(place), "width": 2}}
                look |= {"marker": {"color": colour(place), "symbol": symbol(place), "size": 6}}
                data.append(scatter("lines+markers", path.epoch, values, words) | look)
        if data:
            up = axis() | ({"type": "log", "dtick": 1} if name in LOGARITHMIC else {})
            panel = layout(axis("epoch"), up) | {"showlegend": True}
            shown = f"{title} ({path.score})" if name == "score" else title
            panels[name] = Figure(f"uncertainty-{name}", shown, f"{shown} against the epoch", data, panel, 320)
    return panels


def uncertainty_sections(path: UncertaintyPath) -> Markup:
    """Return the verdict, the figures and the table."""
    reading = (
        "Aleatoric uncertainty is the variance of the label within draws, epistemic uncertainty that between draws, "
        "summed over classes or targets. The first checkpoint is that of the first epoch."
    )
    columns = [name for name in path.frame() if name != "epoch"]
    rows = [
        (number(float(row.epoch)), [number(float(getattr(row, name))) for name in columns])
        for row in path.frame().itertuples()
    ]
    titles = ["Epoch", *(name.replace("_", " ") for name in columns)]
    board = table("Every checkpoint", titles, rows)
    plots = grid(map(figure, uncertainty_figures(path).values()))
    parts = [
        verdict_section(path.verdicts, "Uncertainty and learning", reading),
        section("path", "Along training", "Epoch 0 is the initial network.", plots),
        section("checkpoints", "Every checkpoint", "Means over test examples.", board),
    ]
    return join(parts)
