"""Tables of the loss-landscape reproduction, and what is committed of its record."""

from typing import Any

import numpy as np
import pandas as pd
from table_text import markdown

from murmuration.studies.diversity import Exponent, TradeOff
from murmuration.studies.papers.landscape.claims import CLAIMS, NO_INTERVAL, verdicts
from murmuration.studies.papers.landscape.published import SVHN, WORK
from murmuration.studies.papers.page import estimate_text
from murmuration.studies.randomness import Factorial
from murmuration.studies.verdicts import Verdict
from murmuration.system.records import plain_json

SIZES = ("methods", "sizes", "measures", "severities", "conditions", "scores", "divergences", "together")
KEPT = ("experiment", "setting", "versions", "networks", "plan", "verdicts")


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


def judged(record: dict[str, Any]) -> list[Verdict]:
    """Return the verdicts of a record; of one made before verdicts had intervals, those its numbers still decide."""
    if "verdicts" in record:
        return [Verdict.from_json(row) for row in record["verdicts"]]
    parts: dict[str, Any] = {part: {} for part in record["setting"]["parts"]}  # without verdicts: no intervals
    if "factorial" in record:
        kept = {
            name: np.array(record["factorial"][name]) for name in ("disagreement", "diversity", "cosine", "accuracy")
        }
        setting = tuple(record["factorial"]["lrs"]), record["factorial"]["runs"], record["setting"]["examples"], {}
        study = Factorial(*setting, **kept, distance=kept["disagreement"])  # distances of weights were not kept
        parts["factorial"] = {"verdicts": plain_json(study.verdicts)}
    if "trade-off" in record:
        fits = {name: Exponent(**fit) for name, fit in record["trade-off"]["exponents"].items()}
        study = TradeOff(record["trade-off"]["reference"], 10, record["setting"]["examples"], {}, fits)
        parts["trade-off"] = {"verdicts": plain_json(study.verdicts)}
    parts |= {claim.part: parts.get(claim.part, {}) for claim in CLAIMS if old_numbers(record, claim.name)}
    return verdicts(parts)


def old_numbers(record: dict[str, Any], name: str) -> str:
    """Return the numbers of a claim in a record without intervals; empty if there are none."""
    return next((row["measured"].rstrip(".") for row in record.get("claims", []) if row["name"] == name), "")


def claims(record: dict[str, Any]) -> pd.DataFrame:
    """Return the claims of the paper, one per row."""
    rows = []
    for verdict in judged(record):
        numbers = "; ".join(f"{estimate.what}: {estimate_text(estimate)}" for estimate in verdict.estimates)
        measured = numbers or old_numbers(record, verdict.name) or "not measured"
        here = f"{verdict.word}: {NO_INTERVAL}" if verdict.note == NO_INTERVAL else verdict.word
        measured = "not run" if verdict.missing else measured
        rows.append((verdict.claim, here, measured, verdict.published, verdict.source))
    return pd.DataFrame(rows, columns=["claim", "here", "measured", "published", "source"])


def claims_table(record: dict[str, Any]) -> str:
    """Tabulate every claim of the paper."""
    return markdown(claims(record))


def run_claims_table(record: dict[str, Any]) -> str:
    """Tabulate the claims that these networks have numbers of, without the published ones."""
    return markdown(claims(record).query("measured not in ('not run', 'not measured')").drop(columns="published"))


def figures_table(record: dict[str, Any]) -> str:
    """Tabulate the figures of the paper with the commands that reproduce them; the same for every record."""
    rows = [(item.name, item.about, f"`{item.full_scale}`", item.needs) for item in WORK.items]
    return markdown(rows, ["figure", "what it shows", "command at the published scale", "what it takes"])


def ood_table(record: dict[str, Any]) -> str:
    """Tabulate divergence on SVHN along training, and by how much the end exceeds networks that are half fitted."""
    rows = []
    for run in record["runs"]:
        for net, found in run["nets"].items():
            path, half = found["path"], found["half"]
            opening = [net, run["setting"]["train"], run["setting"]["members"]]
            for place in sorted({0, half[len(half) // 2], (half[-1] + len(path)) // 2, len(path) - 1}):
                at = path[place]
                accuracies = f"{at['train_accuracy']:.1%}", f"{at['test_accuracy']:.1%}"
                numbers = f"{at['entropy']:.2f}", interval(at["divergence"], at)
                rows.append((*opening, f"{at['epoch']:g}", *accuracies, *numbers))
                opening = ["", "", ""]
            rows.append((*opening, "end less half", "", "", "", interval(found["gain"]["value"], found["gain"])))
    columns = ["network", "images", "networks", "epoch", "training accuracy", "test accuracy"]
    return markdown(rows, [*columns, "entropy on SVHN", "divergence on SVHN"])


def interval(value: float, ends: dict[str, Any]) -> str:
    """Return a number with its interval."""
    return f"{value:.3f} ({ends['low']:.3f} to {ends['high']:.3f})"


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
