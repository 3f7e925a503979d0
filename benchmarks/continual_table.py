"""Tables of streams of tasks, made from the record of `continual_streams.py`."""

from collections.abc import Iterable, Sized
from statistics import fmean
from typing import Any

import pandas as pd
from table_text import markdown, spread

PUBLISHED = {  # final average accuracy in percent, task-agnostic, of Kirichenko et al. (2021)
    "svhn-mnist": {"hcl-fr": 96.38, "hcl-gr": 93.84},
    "mnist-svhn": {"hcl-fr": 95.62, "hcl-gr": 96.04},
    "split-mnist": {"hcl-fr": 90.89, "hcl-gr": 84.65},
    "split-cifar10": {"hcl-fr": 89.44, "hcl-gr": 80.29},
    "split-cifar100": {"hcl-fr": 59.66, "hcl-gr": 51.64},
}


def winners_sentence(record: dict[str, Any]) -> str:
    """Name the method with the largest mean final accuracy in each stream, joint training apart, and the best flow."""
    accuracies: dict[str, dict[str, float]] = {}
    for stream, method, cells in grouped(record):
        if method != "joint":
            accuracies.setdefault(stream, {})[method] = 100 * fmean(cell["final_average"] for cell in cells)
    parts = []
    for stream, scores in accuracies.items():
        best = max(scores, key=scores.__getitem__)
        flow = max((name for name in scores if name.startswith("hcl")), key=scores.__getitem__, default=best)
        beside = "" if flow == best else f", `{flow}` has {scores[flow]:.1f} %"
        parts.append(f"`{best}` in {stream} ({scores[best]:.1f} %{beside})")
    return f"Joint training apart, the highest final accuracy is that of {'; '.join(parts)}."


def continual_table(record: dict[str, Any]) -> str:
    """Tabulate final accuracy, forgetting and memory of every method in every stream, beside published figures."""
    rows = []
    for stream, method, cells in grouped(record):
        published = PUBLISHED.get(stream, {}).get(method)
        task_ids = [cell["task_id"] for cell in cells if cell["task_id"] is not None]
        forgetting = "" if method == "joint" else percent([cell["forgetting"] for cell in cells])
        memory = fmean(sum(cell["memory"].values()) for cell in cells)
        row = start(stream, method, cells) | {"final accuracy": percent([cell["final_average"] for cell in cells])}
        row |= {"published": f"{published:.2f}" if published else "", "forgetting": forgetting}
        row |= {"task identified": percent(task_ids) if task_ids else "", "memory": f"{memory / 2**20:.2f} MB"}
        rows.append(row)
    return markdown(rows)


def detection_table(record: dict[str, Any]) -> str:
    """Tabulate changes noticed in the streams whose labels do not give them away, as sums over seeds."""
    rows = []
    for stream, method, cells in grouped(record):
        seeds = pd.DataFrame([cell["detection"] for cell in cells if cell["detection"] is not None])
        if stream.startswith("changes-") and len(seeds):
            delays = seeds.mean_delay.dropna()
            row = start(stream, method, seeds) | {"changes": seeds.changes.sum(), "missed": seeds.misses.sum()}
            row |= {"false alarms": seeds.false_alarms.sum()}
            row |= {"mean delay": f"{delays.mean():.1f} batches" if len(delays) else ""}
            rows.append(row | {"recurring recognised": f"{seeds.recognised.sum()} of {seeds.recurring.sum()}"})
    return markdown(rows)


def speed_sentence(record: dict[str, Any]) -> str:
    """State the time of a training step of the flow, and how many times as long others take."""
    ours = record["milliseconds"]["murmuration"]
    return (
        f"A step takes {ours:.1f} ms on one core, {record['over_plain']:.2f} times as long in plain PyTorch and"
        f" {record['over_zuko']:.2f} times as long with zuko."
    )


def identification_table(record: dict[str, Any]) -> str:
    """Tabulate test inputs whose task several flows name rightly, in percent, in three ways."""
    rows = []
    for stream, method, cells in grouped(record):
        seeds = pd.DataFrame([cell["identified"] for cell in cells if cell.get("identified")])
        if len(seeds):
            shares = {way: percent(seeds[way]) for way in ("density", "disagreement", "typicality")}
            rows.append(start(stream, method, seeds) | shares)
    return markdown(rows)


def grouped(record: dict[str, Any]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return the cells of each stream and method, over seeds, in the order of the record."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in record["cells"]:
        groups.setdefault((cell["stream"], cell["method"]), []).append(cell)
    return [(*key, cells) for key, cells in groups.items()]


def start(stream: str, method: str, seeds: Sized) -> dict[str, Any]:
    """Return the first cells of a row."""
    return {"stream": stream, "method": f"`{method}`", "seeds": len(seeds)}


def percent(values: Iterable[float]) -> str:
    """Write the mean in percent with its interval."""
    return spread([100 * value for value in values], ".1f")
