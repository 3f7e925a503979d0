"""Tables of the page on networks: what each network can be trained by, and fine-tuning of published weights."""

from typing import Any

from table_text import head

COLUMNS = {  # preset -> heading
    "deep-ensemble": "deep ensemble",
    "forde": "FoRDE",
    "function-rde": "function-RDE",
    "batch-ensemble": "batch ensemble",
    "mask-ensemble": "masks",
    "mc-dropout": "MC dropout",
    "bayes": "Bayes",
    "bayes-flipout": "flipout",
    "bayes-last-layer": "Bayes, last layer",
    "ivon": "IVON",
    "last-layer-ensemble": "last-layer ensemble",
    "swag": "SWAG",
    "csgmcmc": "cSG-MCMC",
}


def networks_table(record: dict[str, Any]) -> str:
    """A row for each network, a letter for each of the presets above."""
    lines = head(["network", *COLUMNS.values()])
    for name, row in record["cells"].items():
        letters = [row[preset]["status"] if preset in row else "" for preset in COLUMNS]
        lines.append(f"| {name}: {record['special'][name]} | {' | '.join(letters)} |")
    return "\n".join(lines)


def fine_tuning_table(record: dict[str, Any]) -> str:
    """Scores of every recipe with their 95 % intervals over test images."""
    names = ["recipe", "predictions", "accuracy", "NLL", "ECE", "AUROC, entropy", "AUROC, mutual information"]
    lines = head([*names, "stored parameters", "CPU seconds"])
    for name, run in record["runs"].items():
        interval = [
            f"{run[key]['value']:.3f} ({run[key]['low']:.3f} to {run[key]['high']:.3f})" for key in ("accuracy", "nll")
        ]
        both = run["auroc"]
        cells = [str(run["members"]), *interval, f"{run['ece']['value']:.3f}", f"{both['entropy']:.3f}"]
        cells += [f"{both['mutual_information']:.3f}" if run["members"] > 1 else ""]
        cells += [f"{run['parameters']:,}", f"{run['cpu_seconds']:.0f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def photo_folder_table(record: dict[str, Any]) -> str:
    """Scores of heads on features, with the CPU time of the heads; that of the features is the same for all."""
    lines = head(["heads", "predictions", "accuracy", "NLL", "ECE", "coverage", "set size", "AUROC", "CPU seconds"])
    for name, run in record["runs"].items():
        interval = [
            f"{run[key]['value']:.3f} ({run[key]['low']:.3f} to {run[key]['high']:.3f})" for key in ("accuracy", "nll")
        ]
        cells = [str(run["members"]), *interval, f"{run['ece']['value']:.3f}", f"{run['coverage']:.3f}"]
        cells += [f"{run['set_size']:.2f}", f"{run['auroc']:.3f}", f"{run['cpu_seconds']:.0f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
