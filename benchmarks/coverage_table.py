"""The table of empirical coverage: means over seeds with their standard errors, and whether they lie in the bounds."""

import math
from statistics import fmean, stdev
from typing import Any

from table_text import head

LEAST, MOST = 0.85, 0.95  # bounds of the mean coverage at a nominal 90 %
ABOVE_ACCURACY = (
    0.01  # sets hold at least the most probable class, so they may cover this much more than top-1 accuracy
)

Estimate = tuple[float, float | None]  # mean over seeds and its standard error, which one seed does not have


def estimate(values: list[float]) -> Estimate:
    """The mean of values, one a seed, and its standard error.

    >>> estimate([0.5, 1.0]), estimate([0.5])
    ((0.75, 0.25), (0.5, None))
    """
    return fmean(values), stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def verdict(coverage: float, most: float = MOST) -> str:
    """Where a mean coverage lies.

    >>> verdict(0.84), verdict(0.85), verdict(0.96), verdict(0.96, most=0.98)
    ('below', 'within', 'above', 'within')
    """
    return "below" if coverage < LEAST else "above" if coverage > most else "within"


def summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The cells of one table: examples, means over seeds with standard errors, and verdicts."""
    first, calibrated = cells[0], [cell for cell in cells if cell["calibrated"]]
    keys = ("accuracy", "rmse", "nll", "nll_uncalibrated", "predictive", "predictive_uncalibrated")
    found = {"task": first["task"], "seeds": len(cells), "calibrated_seeds": len(calibrated)}
    found |= {name: first[name] for name in ("train", "val", "test")}
    found |= {key: estimate([cell[key] for cell in cells]) for key in keys if key in first}
    if calibrated:
        found |= {key: estimate([cell[key] for cell in calibrated]) for key in ("conformal", "size")}
        found |= {name: calibrated[0][name] for name in ("method", "rule_examples")}
        most = max(MOST, found["accuracy"][0] + ABOVE_ACCURACY) if "accuracy" in found else MOST
        found["conformal_verdict"] = verdict(found["conformal"][0], most)
    if "predictive" in found:
        found["predictive_verdict"] = verdict(found["predictive"][0])
    return found


def summaries(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The summary of every table: classifications first, each task in the order of its validation rows."""
    names = dict.fromkeys(cell["table"] for cell in record["cells"])
    found = {name: summary([cell for cell in record["cells"] if cell["table"] == name]) for name in names}
    return dict(sorted(found.items(), key=lambda item: (item[1]["task"], item[1]["val"], item[0])))


def coverage_table(record: dict[str, Any]) -> str:
    """Coverage in per cent of test rows, a row a table; bold where the mean is out of bounds."""
    columns = ["table", "seeds", "train / val. / test", "rows of the rule", "conformal", "calibrated predictive"]
    lines = head([*columns, "uncalibrated predictive", "accuracy", "NLL", "uncalibrated NLL"])
    for name, each in summaries(record).items():
        rows = f"{each['train']:,} / {each['val']:,} / {each['test']:,}"
        conformal = _percent(each, "conformal") if "conformal" in each else "not calibrated"
        cells = [name, str(each["seeds"]), rows, str(each.get("rule_examples", "")), conformal]
        cells += [_percent(each, key) for key in ("predictive", "predictive_uncalibrated", "accuracy")]
        cells += [f"{each[key][0]:.3g}" for key in ("nll", "nll_uncalibrated")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _percent(found: dict[str, Any], key: str) -> str:
    """A mean and its standard error in per cent, bold if its verdict is not `within`; empty if there is none."""
    if key not in found:
        return ""
    mean, error = found[key]
    text = f"{100 * mean:.1f}" + (f" ± {100 * error:.1f}" if error is not None else "")
    return f"**{text}**" if found.get(f"{key}_verdict", "within") != "within" else text
