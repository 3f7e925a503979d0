"""Tables of the page on networks: what each network can be trained by, and fine-tuning of published weights."""

from typing import Any

from table_text import interval, markdown

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
    """Tabulate a letter for each network and each of the presets above."""
    return markdown(
        {"network": f"{name}: {record['special'][name]}"}
        | {title: row[preset]["status"] if preset in row else "" for preset, title in COLUMNS.items()}
        for name, row in record["cells"].items()
    )


def scores(run: dict[str, Any]) -> dict[str, Any]:
    """Return the cells that both tables of transfer have, with 95 % intervals over test images."""
    cells = {"predictions": run["members"], "accuracy": interval(run["accuracy"], ".3f")}
    return cells | {"NLL": interval(run["nll"], ".3f"), "ECE": f"{run['ece']['value']:.3f}"}


def fine_tuning_table(record: dict[str, Any]) -> str:
    """Tabulate the scores of every recipe."""
    rows = []
    for name, run in record["runs"].items():
        areas = [f"{run['auroc'][key]:.3f}" for key in ("entropy", "mutual_information")]
        row = {"recipe": name, **scores(run), "AUROC, entropy": areas[0]}
        row |= {"AUROC, mutual information": areas[1] if run["members"] > 1 else ""}
        rows.append(row | {"stored parameters": f"{run['parameters']:,}", "CPU seconds": f"{run['cpu_seconds']:.0f}"})
    return markdown(rows)


def photo_folder_table(record: dict[str, Any]) -> str:
    """Tabulate the scores of heads on features, with the CPU time of the heads; that of the features is the same."""
    return markdown(
        {"heads": name, **scores(run), "coverage": f"{run['coverage']:.3f}", "set size": f"{run['set_size']:.2f}"}
        | {"AUROC": f"{run['auroc']:.3f}", "CPU seconds": f"{run['cpu_seconds']:.0f}"}
        for name, run in record["runs"].items()
    )
