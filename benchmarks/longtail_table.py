"""The table of long-tailed recognition, from its record."""

from statistics import fmean
from typing import Any

from table_text import head

from murmuration.papers.embedded.predictions import mean_interval

GROUPS = ("all", "many", "medium", "few")


def longtail_table(record: dict[str, Any]) -> str:
    """Mean class accuracy in percent of every row by data and factor, with a 95 % interval.

    Of several seeds it is the t-interval of their mean, of one that over its test examples.
    """
    lines = head(["data", "imbalance", "method", "seeds", *GROUPS, "NLL"])
    cells: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for run in record["runs"]:
        for name, found in run["rows"].items():
            cells.setdefault((run["data"], run["factor"], name), []).append(found)
    for (data, factor, name), found in sorted(cells.items(), key=lambda item: (item[0][0], -item[0][1])):
        texts = [_accuracy([each[group] for each in found if group in each]) for group in GROUPS]
        nll = fmean(each["nll"] for each in found)
        lines.append(f"| {data} | {factor:g} | {name} | {len(found)} | {' | '.join(texts)} | {nll:.3f} |")
    return "\n".join(lines)


def _accuracy(scores: list[list[float]]) -> str:
    if not scores:
        return ""
    value, low, high = scores[0] if len(scores) == 1 else mean_interval([each[0] for each in scores])
    return f"{100 * value:.1f} ({100 * low:.1f} to {100 * high:.1f})"
