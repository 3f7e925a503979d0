"""Tables of the loss-landscape reproduction, and what is committed of its record."""

from typing import Any

import numpy as np
from table_text import head

from murmuration.studies.papers.landscape.claims import SVHN
from murmuration.studies.papers.landscape.settings import NOT_ATTEMPTED

SIZES = ("methods", "sizes", "measures", "severities", "conditions", "scores", "divergences", "together")
KEPT = ("experiment", "setting", "versions", "networks", "claims")


def landscape_record(record: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a reproduction, or of the study `sizes`: settings, claims, and the numbers of small figures."""
    if record.get("what") == "sizes":
        return {"sizes": {name: record[name] for name in SIZES}}
    parts = record["parts"]
    found: dict[str, Any] = {name: record[name] for name in KEPT}
    if "sizes" in parts:
        found["sizes"] = {name: parts["sizes"][name] for name in SIZES}
    if "trade-off" in parts:
        found["trade-off"] = {name: parts["trade-off"][name] for name in ("reference", "matched", "exponents")}
    if "factorial" in parts:
        names = ("lrs", "runs", "disagreement", "diversity", "cosine", "accuracy")
        found["factorial"] = {name: parts["factorial"][name] for name in names}
    if "chains" in parts:
        found["chains"] = parts["chains"]
    found["setting"] = {**record["setting"], "data": record["setting"]["data"].rsplit("/", 1)[-1]}
    found["setting"]["ood"] = (record["setting"]["ood"] or "").rsplit("/", 1)[-1] or None
    return found


def claims_table(record: dict[str, Any]) -> str:
    """A row for every claim of the paper."""
    lines = head(["claim", "here", "measured", "published", "figure"])
    for each in record["claims"]:
        measured = each["measured"] or "not run"
        lines.append(
            f"| {each['statement']} | {each['verdict']} | {measured} | {each['published']} | {each['figure']} |"
        )
    return "\n".join(lines)


def not_attempted_table(record: dict[str, Any]) -> str:
    """Figures of the paper that are missing, and what they would take; the same for every record."""
    lines = head(["figure", "what it would take"])
    return "\n".join([*lines, *(f"| {name} | {cost} |" for name, cost in NOT_ATTEMPTED.items())])


def run_claims_table(record: dict[str, Any]) -> str:
    """The claims that were judged on these networks, without the published numbers."""
    lines = head(["claim", "here", "measured", "figure"])
    judged = [each for each in record["claims"] if each["verdict"] != "not run"]
    lines += [f"| {each['statement']} | {each['verdict']} | {each['measured']} | {each['figure']} |" for each in judged]
    return "\n".join(lines)


def sizes_table(record: dict[str, Any]) -> str:
    """One run and all runs of every method: scores on clean inputs, and at the highest severity."""
    found = record.get("sizes")
    if found is None:
        return "not run"
    scores, worst = np.array(found["scores"], dtype=float), max(found["severities"])
    at = [i for i, each in enumerate(found["conditions"]) if each["severity"] == worst and not each["ood"]]
    told = {"original": "runs", "average": "weight averages", "trajectory": "late checkpoints"}
    under = [f"accuracy, severity {worst}", "Brier"] if worst else []
    lines = head(["method", "runs", "accuracy", "NLL", "Brier", "ECE", *under])
    for row, method in enumerate(found["methods"]):
        for column in sorted({0, max(np.flatnonzero(~np.isnan(scores[row, :, 0, 0])))}):
            clean = scores[row, column, 0]
            cells = [f"{clean[0]:.1%}", *(f"{value:.3f}" for value in clean[1:])]
            if under:
                shifted = np.nanmean(scores[row, column][at], axis=0)
                cells += [f"{shifted[0]:.1%}", f"{shifted[2]:.3f}"]
            lines.append(f"| {told.get(method, method)} | {found['sizes'][column]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def divergence_table(record: dict[str, Any]) -> str:
    """Jensen-Shannon divergence by group: by severity, on OOD inputs, and as published for SVHN."""
    found = record.get("sizes")
    if found is None:
        return "not run"
    severities = found["severities"]
    columns = ["clean" if not each else f"severity {each}" for each in severities]
    lines = head(["networks", *columns, "SVHN, 28x28", "SVHN, published"])
    for group, values in found["divergences"].items():
        by = [
            np.mean([each["value"] for each in values if each["severity"] == s and not each["ood"]]) for s in severities
        ]
        ood = [each["value"] for each in values if each["ood"]]
        told = [f"{value:.3f}" for value in (*by, *ood)]
        lines.append(f"| {group} | {' | '.join(told)} | {SVHN.get(group, '')} |")
    return "\n".join(lines)
