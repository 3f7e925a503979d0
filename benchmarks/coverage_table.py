"""The table of empirical coverage: means over seeds with their standard errors, and whether they lie in the bounds."""

from typing import Any

from table_text import bold, markdown, mean_error, plus_minus

LEAST, MOST = 0.85, 0.95  # bounds of the mean coverage at a nominal 90 %
ABOVE_ACCURACY = 0.01  # sets hold at least the most probable class: they may cover this much more than top-1 accuracy


def verdict(coverage: float, most: float = MOST) -> str:
    """Say where a mean coverage lies.

    >>> verdict(0.84), verdict(0.85), verdict(0.96), verdict(0.96, most=0.98)
    ('below', 'within', 'above', 'within')
    """
    return "below" if coverage < LEAST else "above" if coverage > most else "within"


def summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarise the cells of one table: examples, means over seeds with standard errors, and verdicts."""
    first, calibrated = cells[0], [cell for cell in cells if cell["calibrated"]]
    keys = ("accuracy", "rmse", "nll", "nll_uncalibrated", "predictive", "predictive_uncalibrated")
    row = {"task": first["task"], "seeds": len(cells), "calibrated_seeds": len(calibrated)}
    row |= {name: first[name] for name in ("train", "val", "test")}
    row |= {key: mean_error([cell[key] for cell in cells]) for key in keys if key in first}
    if calibrated:
        row |= {key: mean_error([cell[key] for cell in calibrated]) for key in ("conformal", "size")}
        row |= {name: calibrated[0][name] for name in ("method", "rule_examples")}
        most = max(MOST, row["accuracy"][0] + ABOVE_ACCURACY) if "accuracy" in row else MOST
        row["conformal_verdict"] = verdict(row["conformal"][0], most)
    if "predictive" in row:
        row["predictive_verdict"] = verdict(row["predictive"][0])
    return row


def summaries(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the summary of every table: classifications first, each task in the order of its validation rows."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for cell in record["cells"]:
        tables.setdefault(cell["table"], []).append(cell)
    rows = {name: summary(cells) for name, cells in tables.items()}
    return dict(sorted(rows.items(), key=lambda item: (item[1]["task"], item[1]["val"], item[0])))


def coverage_table(record: dict[str, Any]) -> str:
    """Tabulate coverage in per cent of test rows; bold where the mean is out of bounds."""
    columns = ["table", "seeds", "train / val. / test", "rows of the rule", "conformal", "calibrated predictive"]
    columns += ["uncalibrated predictive", "accuracy", "NLL", "uncalibrated NLL"]
    rows = []
    for name, row in summaries(record).items():
        sizes = " / ".join(f"{row[part]:,}" for part in ("train", "val", "test"))
        conformal = percent(row, "conformal") or "not calibrated"
        shares = [percent(row, key) for key in ("predictive", "predictive_uncalibrated", "accuracy")]
        losses = [f"{row[key][0]:.3g}" for key in ("nll", "nll_uncalibrated")]
        rows.append([name, row["seeds"], sizes, row.get("rule_examples", ""), conformal, *shares, *losses])
    return markdown(rows, columns)


def percent(row: dict[str, Any], key: str) -> str:
    """Write a mean and its standard error in per cent, bold if its verdict is not `within`; "" if there is none."""
    if key not in row:
        return ""
    mean, error = row[key]
    text = plus_minus((100 * mean, None if error is None else 100 * error), ".1f")
    return bold(text, row.get(f"{key}_verdict", "within") != "within")
