"""Tables of networks whose weights are distributions."""

from typing import Any

import pandas as pd
from table_text import SCORES, markdown, mean_error, plus_minus, score


def bayes_runs_table(records: dict[str, dict[str, Any]]) -> str:
    """Tabulate runs of networks of distributions beside networks of numbers."""
    rows = []
    for name, record in records.items():
        plan, areas = record["plan"], [(data, ood["mutual_information"]) for data, ood in record["ood"].items()]
        row = {"run": name, "weights": f"`{record['recipe']['weights']}`"}
        row |= {key: score(record["metrics"], key) for key in SCORES["classification"]}
        row |= {"AUROC of mutual information": ", ".join(f"{data}: {score(area, 'auroc')}" for data, area in areas)}
        row |= {"epochs": plan["epochs"], "lr": f"{plan['lr']:g}", "augmentation": ", ".join(plan["augment"]) or "none"}
        rows.append(row | {"trained in": f"{record['cost']['seconds'] / 60:.1f} min"})
    return markdown(rows)


def superres_table(records: dict[str, dict[str, Any]]) -> str:
    """Tabulate what enlarging gains over bicubic on photographs never seen."""
    decibels = {"PSNR bicubic": "psnr_bicubic", "PSNR": "psnr"}
    shares = {"SSIM bicubic": "ssim_bicubic", "SSIM": "ssim", "rank correlation of map and error": "rank_correlation"}
    shares |= {"of edges and error": "edge_correlation"}
    return markdown(
        {"": name, "photograph": row["photograph"], **{title: f"{row[key]:.2f}" for title, key in decibels.items()}}
        | {"gain": f"{row['gain']:+.2f}", **{title: f"{row[key]:.3f}" for title, key in shares.items()}}
        for name, record in records.items()
        for row in (*record["photographs"], {"photograph": "**mean**", **record["mean"]})
    )


def bayes_cost_table(record: dict[str, Any]) -> str:
    """Tabulate what a step and a prediction cost, beside numbers and beside loops written by hand."""
    times, over_point = record["milliseconds"], {"point": 1.0} | record["over_point"]
    steps = [["a step written by hand in plain PyTorch", f"{times['by_hand']:.1f}", "1", ""]]
    for name, ratio in record["over_by_hand"].items():
        steps.append([f"a step, `{name}`", f"{times[name]:.1f}", f"{ratio:.2f}", f"{over_point[name]:.2f}"])
    predictions = []
    for name, images in (("pictures", "1,000 images"), ("picture", "one image")):
        ratio = record["prediction_over_by_hand"][name]
        predictions.append([images, f"{times[f'predict_{name}']:.1f}", f"{ratio:.2f}"])
    columns = [f"LeNet-5, batch {record['batch']}", "milliseconds", "over plain PyTorch", "over `point`"]
    draws = markdown(predictions, [f"{record['draws']} draws of LeNet-5", "milliseconds", "over a loop by hand"])
    return f"{markdown(steps, columns)}\n\n{draws}"


def bayes_ood_table(record: dict[str, Any]) -> str:
    """Tabulate means over seeds, with the standard error where there are several, by network and method."""
    scores = {"accuracy": "accuracy", "nll": "nll", "AUROC of mutual information": "auroc_mutual_information"}
    scores |= {"AUROC of entropy": "auroc_entropy"}
    rows = []
    for net, runs in pd.DataFrame(record["runs"]).groupby("net", sort=False):
        for method, seeds in runs.groupby("method", sort=False):
            uncertainties = seeds[["mutual_information", "mutual_information_foreign"]].mean().map("{:.3f}".format)
            row = {"net": net, "recipe": method, "seeds": len(seeds)}
            row |= {title: plus_minus(mean_error(seeds[key])) for title, key in scores.items()}
            rows.append(row | {"mutual information, upright and rotated": ", ".join(uncertainties)})
    return markdown(rows)


def bayes_choice_table(record: dict[str, Any]) -> str:
    """Tabulate NLL and AUROC of every setting that was tried on validation examples, two columns a network."""
    runs: dict[str, dict[str, str]] = {}
    for run in record["choice"]:
        scores = {"NLL": run["nll"], "AUROC": run["auroc_mutual_information"]}
        row = runs.setdefault(run["method"], {"recipe": run["method"]})
        row |= {f"{run['net']}: {name}": f"{value:.3f}" for name, value in scores.items()}
    return markdown(runs.values())
