"""Tables of the loss-landscape reproduction, and what is committed of its record."""

from typing import Any

import numpy as np
import pandas as pd
from table_text import markdown

from murmuration.studies.papers.landscape.claims import SVHN
from murmuration.studies.papers.landscape.settings import NOT_ATTEMPTED

SIZES = ("methods", "sizes", "measures", "severities", "conditions", "scores", "divergences", "together")
KEPT = ("experiment", "setting", "versions", "networks", "claims")


def landscape_record(record: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a reproduction or of the study `sizes`: settings, claims, numbers of small figures."""
    if record.get("what") == "sizes":
        return {"sizes": {name: record[name] for name in SIZES}}
    names = {
        "sizes": SIZES,
        "trade-off": ("reference", "matched", "exponents"),
        "factorial": ("lrs", "runs", "disagreement", "diversity", "cosine", "accuracy"),
    }
    parts, setting = record["parts"], record["setting"]
    small: dict[str, Any] = {name: record[name] for name in KEPT}
    small |= {part: {name: parts[part][name] for name in names[part]} for part in names if part in parts}
    small |= {"chains": parts["chains"]} if "chains" in parts else {}
    files = {name: (setting[name] or "").rsplit("/", 1)[-1] or None for name in ("data", "ood")}
    return small | {"setting": setting | files}


def claims(record: dict[str, Any]) -> pd.DataFrame:
    """Return the claims of the paper, one per row."""
    columns = ["statement", "verdict", "measured", "published", "figure"]
    return pd.DataFrame(record["claims"])[columns].rename(columns={"statement": "claim", "verdict": "here"})


def claims_table(record: dict[str, Any]) -> str:
    """Tabulate every claim of the paper."""
    return markdown(claims(record).replace({"measured": {"": "not run"}}))


def run_claims_table(record: dict[str, Any]) -> str:
    """Tabulate the claims that were judged on these networks, without the published numbers."""
    return markdown(claims(record).query("here != 'not run'").drop(columns="published"))


def not_attempted_table(record: dict[str, Any]) -> str:
    """Tabulate figures of the paper that are missing, and what they would take; the same for every record."""
    return markdown(NOT_ATTEMPTED.items(), ["figure", "what it would take"])


def sizes_table(record: dict[str, Any]) -> str:
    """Tabulate one run and all runs of every method: scores on clean inputs, and at the highest severity."""
    sizes = record.get("sizes")
    if sizes is None:
        return "not run"
    scores, worst = np.array(sizes["scores"], dtype=float), max(sizes["severities"])
    shifted = [i for i, at in enumerate(sizes["conditions"]) if at["severity"] == worst and not at["ood"]]
    names = {"original": "runs", "average": "weight averages", "trajectory": "late checkpoints"}
    rows = []
    for method, curves in zip(sizes["methods"], scores, strict=True):
        for column in sorted({0, max(np.flatnonzero(~np.isnan(curves[:, 0, 0])))}):
            accuracy, *losses = curves[column, 0]
            row = [names.get(method, method), sizes["sizes"][column], f"{accuracy:.1%}", *map("{:.3f}".format, losses)]
            if worst:
                means = np.nanmean(curves[column][shifted], axis=0)
                row += [f"{means[0]:.1%}", f"{means[2]:.3f}"]
            rows.append(row)
    columns = ["method", "runs", "accuracy", "NLL", "Brier", "ECE"]
    return markdown(rows, columns + ([f"accuracy, severity {worst}", "Brier"] if worst else []))


def divergence_table(record: dict[str, Any]) -> str:
    """Tabulate the Jensen-Shannon divergence by group: by severity, on OOD inputs, and as published for SVHN."""
    sizes = record.get("sizes")
    if sizes is None:
        return "not run"
    rows = []
    for group, values in sizes["divergences"].items():
        row = {"networks": group}
        for severity in sizes["severities"]:
            mean = np.mean([entry["value"] for entry in values if entry["severity"] == severity and not entry["ood"]])
            row[f"severity {severity}" if severity else "clean"] = f"{mean:.3f}"
        row["SVHN, 28x28"] = ", ".join(f"{entry['value']:.3f}" for entry in values if entry["ood"])
        rows.append(row | {"SVHN, published": SVHN.get(group, "")})
    return markdown(rows)
