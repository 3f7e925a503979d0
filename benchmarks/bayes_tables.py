"""Tables of networks whose weights are distributions."""

import math
from statistics import fmean, stdev
from typing import Any

from table_text import SCORES, head, score


def bayes_runs_table(records: dict[str, dict[str, Any]]) -> str:
    """Networks of distributions beside networks of numbers, a row a run."""
    heads = ["run", "weights", *SCORES["classification"], "AUROC of mutual information"]
    lines = head([*heads, "epochs", "lr", "augmentation", "trained in"])
    for name, record in records.items():
        plan, scores = record["plan"], [score(record["metrics"], key) for key in SCORES["classification"]]
        settings = [f"{plan['epochs']}", f"{plan['lr']:g}", ", ".join(plan["augment"]) or "none"]
        minutes = f"{record['cost']['seconds'] / 60:.1f} min"
        foreign = [f"{key}: {score(each['mutual_information'], 'auroc')}" for key, each in record["ood"].items()]
        cells = [name, f"`{record['recipe']['weights']}`", *scores, ", ".join(foreign), *settings, minutes]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def superres_table(records: dict[str, dict[str, Any]]) -> str:
    """What enlarging gains over bicubic on photographs never seen, a row a photograph."""
    heads = [
        "",
        "photograph",
        "PSNR bicubic",
        "PSNR",
        "gain",
        "SSIM bicubic",
        "SSIM",
        "rank correlation of map and error",
    ]
    lines = head([*heads, "of edges and error"])
    for name, record in records.items():
        for each in (*record["photographs"], {"photograph": "**mean**", **record["mean"]}):
            decibels = f"{each['psnr_bicubic']:.2f} | {each['psnr']:.2f} | {each['gain']:+.2f}"
            others = [each[key] for key in ("ssim_bicubic", "ssim", "rank_correlation", "edge_correlation")]
            cells = " | ".join(f"{value:.3f}" for value in others)
            lines.append(f"| {name} | {each['photograph']} | {decibels} | {cells} |")
    return "\n".join(lines)


def bayes_cost_table(record: dict[str, Any]) -> str:
    """What a step and a prediction cost, beside numbers and beside loops written by hand."""
    lines = head([f"LeNet-5, batch {record['batch']}", "milliseconds", "over plain PyTorch", "over `point`"])
    lines.append(f"| a step written by hand in plain PyTorch | {record['milliseconds']['by_hand']:.1f} | 1 | |")
    for name, ratio in record["over_by_hand"].items():
        own = record["over_point"].get(name, 1.0)
        lines.append(f"| a step, `{name}` | {record['milliseconds'][name]:.1f} | {ratio:.2f} | {own:.2f} |")
    lines += ["", *head([f"{record['draws']} draws of LeNet-5", "milliseconds", "over a loop by hand"])]
    for name, ratio in record["prediction_over_by_hand"].items():
        count = {"pictures": "1,000 images", "picture": "one image"}[name]
        lines.append(f"| {count} | {record['milliseconds'][f'predict_{name}']:.1f} | {ratio:.2f} |")
    return "\n".join(lines)


def bayes_ood_table(record: dict[str, Any]) -> str:
    """Means over seeds, with the standard error where there are several; a row a network and method."""
    heads = ["net", "recipe", "seeds", "accuracy", "nll", "AUROC of mutual information", "AUROC of entropy"]
    lines = head([*heads, "mutual information, upright and rotated"])
    for net, method in dict.fromkeys((run["net"], run["method"]) for run in by_net(record["runs"])):
        runs = [run for run in record["runs"] if (run["net"], run["method"]) == (net, method)]
        names = ("accuracy", "nll", "auroc_mutual_information", "auroc_entropy")
        cells = [with_error([run[name] for run in runs]) for name in names]
        spread = [fmean(run[name] for run in runs) for name in ("mutual_information", "mutual_information_foreign")]
        cells.append(", ".join(f"{value:.3f}" for value in spread))
        lines.append(f"| {net} | {method} | {len(runs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def bayes_choice_table(record: dict[str, Any]) -> str:
    """NLL and AUROC of every setting that was tried on validation examples, a row a setting, a column a network."""
    nets = list(dict.fromkeys(run["net"] for run in record["choice"]))
    lines = head(["recipe", *(f"{net}: {what}" for net in nets for what in ("NLL", "AUROC"))])
    for method in dict.fromkeys(run["method"] for run in record["choice"]):
        found = {run["net"]: run for run in record["choice"] if run["method"] == method}
        columns = [(net, name) for net in nets for name in ("nll", "auroc_mutual_information")]
        cells = [f"{found[net][name]:.3f}" if net in found else "" for net, name in columns]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def by_net(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs of one network after another, methods in the order of the record."""
    return [run for net in dict.fromkeys(run["net"] for run in runs) for run in runs if run["net"] == net]


def with_error(values: list[float]) -> str:
    """The mean, and its standard error where there are several values."""
    error = f" ± {stdev(values) / math.sqrt(len(values)):.3f}" if len(values) > 1 else ""
    return f"{fmean(values):.3f}{error}"
