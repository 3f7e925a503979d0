"""Tables of harm done by calibration, from its record."""

from typing import Any

import pandas as pd
from table_text import markdown


def pooled(cells: pd.DataFrame) -> dict[str, float]:
    """Return runs of simulations, the share of them that are worse after calibration, and by how much on average."""
    runs, worse = cells.runs.sum(), (cells.worse * cells.runs).sum()
    by = (cells.worse_by * cells.worse * cells.runs).sum()
    return {"runs": int(runs), "worse": worse / runs, "worse_by": by / worse if worse else 0.0}


def summary(record: dict[str, Any]) -> dict[str, Any]:
    """Summarise all simulations and all tables: the share of runs that calibration makes worse, and by how much."""
    parts: dict[str, Any] = {}
    if record["simulations"]:
        cells = pd.DataFrame(record["simulations"])
        parts["simulations"] = pooled(cells) | {"largest_share": cells.worse.max(), "worst": cells.worst.max()}
        parts["simulations"]["change"] = (cells.change * cells.runs).sum() / cells.runs.sum()
    changes = pd.Series([cell["after"] - cell["before"] for cell in record["tables"] if cell["calibrated"]])
    if len(changes):
        harmed = changes[changes > 0]
        shares = {"worse": len(harmed) / len(changes), "worse_by": harmed.mean() if len(harmed) else 0.0}
        parts["tables"] = {"runs": len(changes), **shares, "change": changes.mean()}
    return parts


def harm_table(record: dict[str, Any]) -> str:
    """Tabulate simulations by truth: the share of runs that are worse and the mean change, in all and by size."""
    cells = pd.DataFrame(record["simulations"])
    cells["text"] = (100 * cells.worse).map("{:.0f} %, ".format) + cells.change.map("{:+.3f}".format)
    by_size = cells.pivot(index="truth", columns="examples", values="text")
    by_size.columns = [f"n = {size:,}: worse, change" for size in by_size]

    def row(name: str, own: pd.DataFrame) -> dict[str, str]:
        harm = pooled(own)
        return {"truth": name, "worse, by": f"{100 * harm['worse']:.1f} %, {harm['worse_by']:.3f}"}

    rows = [row(truth, own) | by_size.loc[truth].to_dict() for truth, own in cells.groupby("truth", sort=False)]
    return markdown([*rows, row(f"all {cells.runs.sum():,} runs", cells)])


def harm_on_tables(record: dict[str, Any]) -> str:
    """Tabulate splits of real tables whose test log-loss is worse after calibration of the default network."""
    rows = []
    cells = pd.DataFrame([cell for cell in record["tables"] if cell["calibrated"]])
    for table, own in cells.groupby("table", sort=False):
        row = {"table": table, "splits": len(own), "examples of the calibrator": own.examples.iloc[0]}
        row |= {"kept": own.kept.sum(), "worse": (own.after > own.before).sum()}
        rows.append(row | {f"NLL {when}": f"{own[when].mean():.3g}" for when in ("before", "after")})
    return markdown(rows)
