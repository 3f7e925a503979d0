"""Tables of the published experiments that `murmur reproduce` repeats."""

from collections.abc import Callable
from typing import Any

from landscape_table import claims_table, divergence_table, figures_table, ood_table, run_claims_table, sizes_table
from table_text import markdown

from murmuration.studies.papers.embedded.page import interval_text, mean_ratio
from murmuration.studies.papers.embedded.predictions import verdicts
from murmuration.studies.papers.embedded.record import Results
from murmuration.studies.papers.page import estimate_text

EMBEDDED_WIDTHS = (1.0, 4.0)  # of the table of all arms


def embedded_accuracy_table(record: dict[str, Any]) -> str:
    """Tabulate ensemble accuracy of every arm against the number of models."""
    results = Results(record)
    return markdown(
        {"arm": arm, "N": results.neurons(width)}
        | {f"M = {models}": interval_text(results, arm, width, models, "accuracy") for models in results.models}
        for arm in results.arms
        for width in EMBEDDED_WIDTHS
    )


def embedded_members_table(record: dict[str, Any]) -> str:
    """Tabulate training accuracy of independent members by width."""
    results, score = Results(record), "member_train_accuracy"
    return markdown(
        {"N": results.neurons(width)}
        | {f"M = {models}": interval_text(results, "independent", width, models, score) for models in results.models}
        for width in results.widths
    )


def embedded_kernels_table(record: dict[str, Any]) -> str:
    """Tabulate T_o / T_d before training for the arms that share anything."""
    results = Results(record)
    return markdown(
        {"arm": arm} | {f"N = {results.neurons(width)}": mean_ratio(results, arm, [width]) for width in results.widths}
        for arm in results.arms
        if arm not in ("naive", "single")
    )


def embedded_verdicts_table(record: dict[str, Any]) -> str:
    """Tabulate the predictions of theory and what became of them, one row per estimate."""
    rows = []
    for verdict in verdicts(record):
        opening = [verdict.name, verdict.claim, f"**{verdict.word}**"]
        for estimate in verdict.estimates:
            rows.append([*opening, estimate.what, estimate_text(estimate), estimate.region])
            opening = ["", "", ""]
    return markdown(rows, ["", "prediction", "verdict", "estimate", "value and 95 % interval", "predicted"])


MAKERS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {  # place -> record, maker
    "embedded-accuracy": ("embedded", embedded_accuracy_table),
    "embedded-members": ("embedded", embedded_members_table),
    "embedded-kernels": ("embedded", embedded_kernels_table),
    "embedded-verdicts": ("embedded", embedded_verdicts_table),
    "landscape-cifar10": ("landscape-cifar10", claims_table),
    "landscape-figures": ("landscape-cifar10", figures_table),
    "landscape-ood": ("landscape-ood", ood_table),
    "landscape-sizes": ("landscape-cifar10", sizes_table),
    "landscape-divergence": ("landscape-cifar10", divergence_table),
    "landscape-beside-sizes": ("landscape-cifar10-beside", sizes_table),
    "landscape-beside-divergence": ("landscape-cifar10-beside", divergence_table),
    "landscape-raw": ("landscape-cifar10-raw", run_claims_table),
    "landscape-medium": ("landscape-cifar10-medium", run_claims_table),
}
