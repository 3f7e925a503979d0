"""The figures of the studies as plotly figures, for notebooks and scripts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from murmuration.reports.plotly_figures import Theme, to_plotly
from murmuration.reports.plots import pick, pick_figure
from murmuration.studies.diversity import TradeOff
from murmuration.studies.embedding import Embedding
from murmuration.studies.kernels import KernelDiagnosis, Stage
from murmuration.studies.pages.embedding import embedding_figures
from murmuration.studies.pages.kernels import heat_maps
from murmuration.studies.pages.paths import paths_figures
from murmuration.studies.pages.plane import plane_figures
from murmuration.studies.pages.similarity import similarity_figures
from murmuration.studies.pages.sizes import sizes_figures
from murmuration.studies.pages.stitched import stitched_figures
from murmuration.studies.pages.trade_off import trade_off_figures
from murmuration.studies.paths import Paths
from murmuration.studies.planes import Plane, StitchedView
from murmuration.studies.similarity import Similarity
from murmuration.studies.sizes import Sizes

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["embedding", "ensemble_sizes", "kernels", "paths", "plane", "similarity", "stitched", "trade_off"]


def embedding(source: Embedding, *, theme: Theme = "light") -> "go.Figure":
    """Plot the t-SNE map of runs and samples."""
    return to_plotly(embedding_figures(source)["map"], theme)


def ensemble_sizes(source: Sizes, figure: str | None = None, *, theme: Theme = "light") -> "go.Figure":
    """Plot a score against size ("size-nll") or severity ("severity-nll"), or divergences ("divergence-ood")."""
    return to_plotly(pick_figure(sizes_figures(source), figure), theme)


def kernels(
    source: KernelDiagnosis | Sequence[KernelDiagnosis], stage: Stage | None = None, *, theme: Theme = "light"
) -> "go.Figure":
    """Plot alignment (M, M) of the members' tangent kernels, "before" or "after" training.

    The first given unless named.
    """
    figures = heat_maps([source] if isinstance(source, KernelDiagnosis) else source)
    missing = "no kernels between members: the limit of infinite width has none; write kernel_diagnosis(ensemble, x)"
    return to_plotly(figures[pick("stage", stage, figures, missing)], theme)


def paths(source: Paths, score: str | None = None, *, theme: Theme = "light") -> "go.Figure":
    """Plot a score along the paths between two networks, such as "train_loss", "accuracy" or "agreement_0"."""
    return to_plotly(pick_figure(paths_figures(source), score), theme)


def plane(source: Plane, score: str | None = None, *, theme: Theme = "light") -> "go.Figure":
    """Plot a score on a plane of weight space, such as "accuracy", "train_loss" or "agreement_0"."""
    return to_plotly(pick_figure(plane_figures(source), score), theme)


def similarity(source: Similarity, matrix: str | None = None, *, theme: Theme = "light") -> "go.Figure":
    """Plot a matrix of networks, "cosine", "disagreement", "cka" or "diversity"."""
    return to_plotly(pick_figure(similarity_figures(source), matrix), theme)


def stitched(source: StitchedView, score: str | None = None, *, theme: Theme = "light") -> "go.Figure":
    """Plot a score over the stitched wedges of a path, such as "accuracy" or "agreement_1"."""
    return to_plotly(pick_figure(stitched_figures(source), score), theme)


def trade_off(source: TradeOff, part: str | None = None, *, theme: Theme = "light") -> "go.Figure":
    """Plot diversity against accuracy of sampled networks: the "plane", or the part "near" the reference."""
    return to_plotly(pick_figure(trade_off_figures(source), part), theme)
