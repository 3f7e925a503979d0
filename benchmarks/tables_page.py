"""Tables of the page on tabular data, from the record of benchmarks/tables.py: ranks, normalised and lost scores."""

import math
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

from table_sets import GROUPS, Group
from table_text import head

METRICS = {"nll": "NLL", "proper": "CRPS or Brier", "point": "RMSE or accuracy"}
PRIOR = "prior"  # the contender without inputs: a normalised score of 0; not ranked
OWN = "default"
NAMES = {
    "default": "**our default**",
    "prior": "no inputs",
    "linear": "ridge, logistic",
    "random-forest": "random forest",
    "hist-gradient-boosting": "HistGradientBoosting",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
    "ngboost": "NGBoost",
    "tabm": "TabM (official)",
}
LOST = 0.1  # a table is lost by a wide margin if it is last or the normalised NLL is below 0.9 ...
ERRORS = 2.0  # ... and the difference of NLL to the best is more than so many standard errors

Scores = dict[int, float]  # split -> score, the smaller the better


def label(contender: str) -> str:
    """The name of a contender on the page.

    >>> label("xgboost"), label("ours:mixed")
    ('XGBoost', 'our `mixed`')
    """
    return NAMES.get(contender) or f"our `{contender.partition(':')[2] or contender}`"


@dataclass(frozen=True)
class Result:
    """A contender on a table: the variant with the smaller mean NLL, with the cell of every split."""

    variant: str  # raw or calibrated
    task: str
    cells: dict[int, dict[str, Any]]

    def scores(self, metric: str) -> Scores:
        """The scores of all splits, accuracies as error rates."""
        error = metric == "point" and self.task == "classification"
        found = {split: cell[self.variant][metric] for split, cell in self.cells.items()}
        return {split: 1 - value if error else value for split, value in found.items()}

    def mean(self, key: str) -> float:
        """The mean over splits of a score as it is, or of a field of the cell."""
        return fmean(cell[key] if key in cell else cell[self.variant][key] for cell in self.cells.values())


Results = dict[str, dict[str, Result]]  # table -> contender


def results(record: dict[str, Any]) -> Results:
    """The better variant of every contender on every table; failed cells are left out."""
    found: dict[str, dict[str, dict[int, Any]]] = {}
    for cell in record["cells"]:
        if "failed" not in cell:
            found.setdefault(cell["table"], {}).setdefault(cell["contender"], {})[cell["split"]] = cell
    return {table: {name: better(cells) for name, cells in by.items()} for table, by in found.items()}


def better(cells: dict[int, dict[str, Any]]) -> Result:
    variants = ("raw", "calibrated")
    chosen = min(variants, key=lambda variant: fmean(cell[variant]["nll"] for cell in cells.values()))
    return Result(chosen, next(iter(cells.values()))["task"], cells)


def difference(one: Result, other: Result, metric: str) -> list[float]:
    """Scores of one minus the other's, on the splits that both have; negative: the first is better."""
    a, b = one.scores(metric), other.scores(metric)
    return [a[split] - b[split] for split in sorted(a.keys() & b.keys())]


def ranks(by: dict[str, Result], metric: str) -> dict[str, float]:
    """The rank of each contender on a table: 1 plus the number of those with a better mean on the splits both have.

    An equal mean counts half. A contender that lacks the table does not count.
    """
    names = [name for name in by if name != PRIOR]

    def lost(name: str, other: str) -> float:
        apart = sum(difference(by[name], by[other], metric))
        return 0.5 if apart == 0 else float(apart > 0)

    return {name: 1 + sum(lost(name, other) for other in names if other != name) for name in names}


def normalised(by: dict[str, Result], metric: str) -> dict[str, float]:
    """The share of the best contender's gain over no inputs at all: 1 for the best, 0 for `prior`, at least -1."""
    gains = {name: -fmean(difference(each, by[PRIOR], metric)) for name, each in by.items() if name != PRIOR}
    best = max(gains.values())
    return {name: max(-1.0, gain / best) if best > 0 else 0.0 for name, gain in gains.items()}


def ranked(record: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Contenders and the tables that all of them have."""
    found = results(record)
    names = [name for name in record["contenders"] if name != PRIOR and any(name in by for by in found.values())]
    return names, [table for table, by in found.items() if all(name in by for name in (PRIOR, *names))]


def summary(record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Means over the tables that all contenders have: ranks, normalised scores, coverage, CPU seconds of a fit."""
    found, (names, tables) = results(record), ranked(record)
    rows: dict[str, dict[str, float]] = {name: {"tables": len(tables)} for name in names}
    for metric in METRICS if tables else ():
        by_rank = [ranks({name: found[table][name] for name in names}, metric) for table in tables]
        by_score = [normalised({name: found[table][name] for name in (*names, PRIOR)}, metric) for table in tables]
        for name in names:
            rows[name][f"rank_{metric}"] = fmean(each[name] for each in by_rank)
            rows[name][f"score_{metric}"] = fmean(each[name] for each in by_score)
    for name in names if tables else ():
        own = {table: found[table][name] for table in tables}
        intervals = [each.mean("coverage") for each in own.values() if each.task == "regression"]
        rows[name] |= {"coverage": fmean(intervals), "least": min(intervals)} if intervals else {}
        rows[name]["conformal"] = fmean(each.mean("conformal") for each in own.values())
        rows[name]["calibrated"] = sum(each.variant == "calibrated" for each in own.values())
        rows[name]["harmed"] = fmean(
            cell["calibrated"]["nll"] > cell["raw"]["nll"] for each in own.values() for cell in each.cells.values()
        )
        rows[name]["seconds"] = fmean(each.mean("cpu_seconds") for each in own.values())
        rows[name]["median_seconds"] = median(each.mean("cpu_seconds") for each in own.values())
    return dict(sorted(rows.items(), key=lambda row: row[1].get("rank_nll", math.inf)))


def ranks_table(record: dict[str, Any]) -> str:
    """A row a contender, the best mean rank by NLL first."""
    rows = summary(record)
    if not any("rank_nll" in row for row in rows.values()):
        return "No table has all contenders yet."
    columns = [f"rank by {name}" for name in METRICS.values()]
    columns += [f"normalised {name}" for name in METRICS.values()]
    columns += [
        "90 % intervals cover",
        "least",
        "conformal",
        "calibrated is better",
        "fits harmed",
        "CPU seconds a fit",
        "median",
    ]
    lines = head([f"{next(iter(rows.values()))['tables']} tables", *columns])
    for name, row in rows.items():
        cells = [f"{row[f'rank_{metric}']:.2f}" for metric in METRICS]
        cells += [f"{row[f'score_{metric}']:.3f}" for metric in METRICS]
        cells += [f"{100 * row[key]:.1f} %" if key in row else "" for key in ("coverage", "least", "conformal")]
        cells += [f"{row['calibrated']}", f"{100 * row['harmed']:.1f} %"]
        cells += [f"{row['seconds']:.1f}", f"{row['median_seconds']:.1f}"]
        lines.append(f"| {label(name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def lost_table(record: dict[str, Any], own: str = OWN) -> str:
    """The tables that our default loses by a wide margin, among contenders that share at least two splits with it."""
    lines = head(["table", "rank", "our NLL", "best", "its NLL", "difference", "normalised NLL"])
    for table, every in results(record).items():
        mine = every.get(own)
        by = {name: each for name, each in every.items() if mine and len(difference(mine, each, "nll")) > 1}
        if own not in by or PRIOR not in by or len(by) < 3:
            continue
        rank, score = ranks(by, "nll"), normalised(by, "nll")
        best = max(score, key=lambda name: score[name])
        apart = difference(by[own], by[best], "nll")
        error = stdev(apart) / math.sqrt(len(apart))
        last = rank[own] == max(rank.values())
        if best != own and (last or score[own] < 1 - LOST) and fmean(apart) > ERRORS * error:
            margin = f"{fmean(apart):+.3f} ± {error:.3f}"
            cells = [table, f"{rank[own]:g} of {len(rank)}", f"{by[own].mean('nll'):.3f}", label(best)]
            cells += [f"{by[best].mean('nll'):.3f}", margin, f"{score[own]:.2f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else "None."


def scores_table(record: dict[str, Any], metric: str) -> str:
    """Means over splits, a row a table, a column a contender; the best is bold."""
    found = results(record)
    names = [name for name in record["contenders"] if any(name in by for by in found.values())]
    lines = head(["table", "train", *map(label, names)])
    for table in sorted(found, key=lambda name: (next(iter(found[name].values())).task, name)):
        by = found[table]
        means = {name: each.mean(metric) for name, each in by.items()}
        classes = next(iter(by.values())).task == "classification"
        best = (max if metric == "point" and classes else min)(means.values())
        cells = [f"{means[name]:.4g}" if name in means else "" for name in names]
        cells = [f"**{cell}**" if means.get(name) == best else cell for name, cell in zip(names, cells, strict=True)]
        train = next(iter(next(iter(by.values())).cells.values()))["train"]
        lines.append(f"| {table} | {train:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def failures(record: dict[str, Any]) -> str:
    """The cells that failed, or that there are none."""
    failed = [cell for cell in record["cells"] if "failed" in cell]
    lines = [
        f"- {label(cell['contender'])} on {cell['table']}, split {cell['split']}: {cell['failed']}" for cell in failed
    ]
    return "\n".join(lines) or "No cell failed."


def sets_table(group: Group) -> str:
    """The tables of a group: task, size, source and licence."""
    lines = head(["table", "target", "rows", "columns", "of text", "missing values", "from", "licence", "origin"])
    for table in GROUPS[group]:
        kind = f"{table.classes} classes" if table.classes else "number"
        cells = [table.name, kind, f"{table.rows:,}", str(table.columns), str(table.categories or "")]
        cells += ["yes" if table.missing else "", table.source.name, table.source.licence, table.origin]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


MAKERS = {
    "tables-ranks": ranks_table,
    "tables-lost": lost_table,
    "tables-nll": lambda record: scores_table(record, "nll"),
    "tables-proper": lambda record: scores_table(record, "proper"),
    "tables-point": lambda record: scores_table(record, "point"),
    "tables-failures": failures,
}
