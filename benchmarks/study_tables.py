"""Tables of the published experiments that `murmur reproduce` repeats."""

from collections.abc import Callable
from typing import Any

from landscape_table import claims_table, divergence_table, not_attempted_table, run_claims_table, sizes_table
from table_text import head

from murmuration.studies.papers.embedded.page import estimate_text, interval_text, mean_ratio
from murmuration.studies.papers.embedded.predictions import verdicts
from murmuration.studies.papers.embedded.record import Results

EMBEDDED_WIDTHS = (1.0, 4.0)  # of the table of all arms


def embedded_accuracy_table(record: dict[str, Any]) -> str:
    """Ensemble accuracy of every arm against the number of models."""
    found = Results(record)
    lines = head(["arm", "N", *(f"M = {models}" for models in found.models)])
    for arm in found.arms:
        for width in EMBEDDED_WIDTHS:
            cells = [interval_text(found, arm, width, models, "accuracy") for models in found.models]
            lines.append(f"| {arm} | {found.neurons(width)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def embedded_members_table(record: dict[str, Any]) -> str:
    """Training accuracy of independent members, a row a width."""
    found = Results(record)
    lines = head(["N", *(f"M = {models}" for models in found.models)])
    for width in found.widths:
        cells = [interval_text(found, "independent", width, m, "member_train_accuracy") for m in found.models]
        lines.append(f"| {found.neurons(width)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def embedded_kernels_table(record: dict[str, Any]) -> str:
    """T_o / T_d before training, a row an arm that shares anything."""
    found = Results(record)
    lines = head(["arm", *(f"N = {found.neurons(width)}" for width in found.widths)])
    for arm in found.arms:
        if arm not in ("naive", "single"):
            lines.append(f"| {arm} | {' | '.join(mean_ratio(found, arm, [width]) for width in found.widths)} |")
    return "\n".join(lines)


def embedded_verdicts_table(record: dict[str, Any]) -> str:
    """The predictions of theory and what became of them, a row an estimate."""
    lines = head(["", "prediction", "verdict", "estimate", "value and 95 % interval", "predicted"])
    for verdict in verdicts(record):
        for place, each in enumerate(verdict.estimates):
            begun = f"| {verdict.name} | {verdict.claim} | **{verdict.word}** " if place == 0 else "| | | "
            lines.append(f"{begun}| {each.what} | {estimate_text(each)} | {each.region} |")
    return "\n".join(lines)


MAKERS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {  # place -> record, maker
    "embedded-accuracy": ("embedded", embedded_accuracy_table),
    "embedded-members": ("embedded", embedded_members_table),
    "embedded-kernels": ("embedded", embedded_kernels_table),
    "embedded-verdicts": ("embedded", embedded_verdicts_table),
    "landscape-cifar10": ("landscape-cifar10", claims_table),
    "landscape-not-attempted": ("landscape-cifar10", not_attempted_table),
    "landscape-sizes": ("landscape-cifar10", sizes_table),
    "landscape-divergence": ("landscape-cifar10", divergence_table),
    "landscape-beside-sizes": ("landscape-cifar10-beside", sizes_table),
    "landscape-beside-divergence": ("landscape-cifar10-beside", divergence_table),
    "landscape-raw": ("landscape-cifar10-raw", run_claims_table),
    "landscape-medium": ("landscape-cifar10-medium", run_claims_table),
}
