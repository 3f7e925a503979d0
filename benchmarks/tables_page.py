"""Tables of the page on tabular data, from the record of benchmarks/tables.py: ranks, normalised and lost scores."""

from typing import Any

import pandas as pd
from table_sets import GROUPS, Group
from table_text import bold, markdown, mean_error, plus_minus

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
PERCENT = "{:.1f} %"


def label(contender: str) -> str:
    """Return the name of a contender on the page.

    >>> label("xgboost"), label("ours:mixed")
    ('XGBoost', 'our `mixed`')
    """
    return NAMES.get(contender) or f"our `{contender.partition(':')[2] or contender}`"


def results(record: dict[str, Any]) -> pd.DataFrame:
    """Return the cells that did not fail, each with the scores of the variant that has the smaller mean NLL."""
    cells = pd.json_normalize([cell for cell in record["cells"] if "failed" not in cell])
    nll = cells.groupby(["table", "contender"])[["raw.nll", "calibrated.nll"]].transform("mean")
    cells["calibrated"] = nll["calibrated.nll"] < nll["raw.nll"]
    cells["harmed"] = cells["calibrated.nll"] > cells["raw.nll"]
    for score in (*METRICS, "coverage"):
        cells[score] = cells[f"calibrated.{score}"].where(cells.calibrated, cells[f"raw.{score}"])
    return cells


def differences(table: pd.DataFrame, metric: str, name: str) -> pd.DataFrame:
    """Return scores of a contender minus those of all, by split; negative: it is better.

    Accuracies are compared as error rates.
    """
    scores = table.pivot(index="split", columns="contender", values=metric)
    if metric == "point" and "classification" in set(table.task):
        scores = 1 - scores
    return scores.rsub(scores[name], axis=0)


def ranks(table: pd.DataFrame, metric: str) -> pd.Series:
    """Return the rank of each contender: 1 plus the number of those with a better mean on the splits both have.

    An equal mean counts half. A contender that lacks the table does not count.
    """
    ranked = table[table.contender != PRIOR]
    apart = {name: differences(ranked, metric, name).sum() for name in ranked.contender.unique()}
    return pd.Series({name: 0.5 + (sums > 0).sum() + 0.5 * (sums == 0).sum() for name, sums in apart.items()})


def normalised(table: pd.DataFrame, metric: str) -> pd.Series:
    """Return shares of the best contender's gain over no inputs: 1 for the best, 0 for `prior`, at least -1."""
    gains = differences(table, metric, PRIOR).mean().drop(PRIOR)
    return (gains / gains.max()).clip(lower=-1) if gains.max() > 0 else 0 * gains


def summary(record: dict[str, Any]) -> pd.DataFrame:
    """Return means over the tables that all contenders have: ranks, normalised scores, coverage, CPU seconds."""
    cells = results(record)
    names = [name for name in record["contenders"] if name != PRIOR and name in set(cells.contender)]
    cells = cells.groupby("table").filter(lambda table: {PRIOR, *names} <= set(table.contender))
    rows = pd.DataFrame({"tables": cells.table.nunique()}, index=names)
    if cells.empty:
        return rows
    for metric in METRICS:
        rows[f"rank_{metric}"] = cells.groupby("table").apply(ranks, metric).mean()
        rows[f"score_{metric}"] = cells.groupby("table").apply(normalised, metric).mean()
    by = ["contender", "table"]
    regressions = cells[cells.task == "regression"].groupby(by).coverage.mean().groupby("contender")
    means = cells.groupby(by)[["conformal", "calibrated", "cpu_seconds"]].mean().groupby("contender")
    rows["coverage"], rows["least"] = regressions.mean(), regressions.min()
    rows["harmed"] = cells.groupby("contender").harmed.mean()
    rows["conformal"], rows["calibrated"] = means.conformal.mean(), means.calibrated.sum()
    rows["seconds"], rows["median_seconds"] = means.cpu_seconds.mean(), means.cpu_seconds.median()
    return rows.sort_values("rank_nll", kind="stable")


def ranks_table(record: dict[str, Any]) -> str:
    """Tabulate the contenders, the best mean rank by NLL first."""
    rows = summary(record)
    if "rank_nll" not in rows:
        return "No table has all contenders yet."
    columns = {f"rank by {title}": (f"rank_{metric}", "{:.2f}") for metric, title in METRICS.items()}
    columns |= {f"normalised {title}": (f"score_{metric}", "{:.3f}") for metric, title in METRICS.items()}
    columns |= {"90 % intervals cover": ("coverage", PERCENT), "least": ("least", PERCENT)}
    columns |= {"conformal": ("conformal", PERCENT), "calibrated is better": ("calibrated", "{:.0f}")}
    columns |= {"fits harmed": ("harmed", PERCENT), "CPU seconds a fit": ("seconds", "{:.1f}")}
    columns |= {"median": ("median_seconds", "{:.1f}")}
    table = pd.DataFrame({f"{rows.tables.iloc[0]} tables": rows.index.map(label)}, index=rows.index)
    for column, (key, form) in columns.items():
        values = 100 * rows[key] if form == PERCENT else rows[key]
        table[column] = values.map(form.format, na_action="ignore")
    return markdown(table)


def lost_table(record: dict[str, Any]) -> str:
    """Tabulate the tables that our default loses by a wide margin, among contenders that share two splits with it."""
    rows = []
    for name, table in results(record).groupby("table", sort=False):
        if OWN not in set(table.contender):
            continue
        shared = differences(table, "nll", OWN).count()
        rivals = table[table.contender.isin(shared.index[shared > 1])]
        if not {OWN, PRIOR} < set(rivals.contender):
            continue
        means, rank, score = rivals.groupby("contender").nll.mean(), ranks(rivals, "nll"), normalised(rivals, "nll")
        best = score.idxmax()
        margin, error = mean_error(differences(rivals, "nll", OWN)[best].dropna())
        lost = rank[OWN] == rank.max() or score[OWN] < 1 - LOST
        if best != OWN and lost and margin > ERRORS * error:
            row = {"table": name, "rank": f"{rank[OWN]:g} of {len(rank)}", "our NLL": f"{means[OWN]:.3f}"}
            row |= {"best": label(best), "its NLL": f"{means[best]:.3f}"}
            row |= {"difference": plus_minus((margin, error), "+.3f"), "normalised NLL": f"{score[OWN]:.2f}"}
            rows.append(row)
    return markdown(rows) if rows else "None."


def scores_table(record: dict[str, Any], metric: str) -> str:
    """Tabulate means over splits by table and contender; the best is bold."""
    cells, rows = results(record), []
    train = cells.groupby("table").train.first()
    for (task, table), means in cells.groupby(["task", "table", "contender"])[metric].mean().unstack().iterrows():
        best = means.max() if (metric, task) == ("point", "classification") else means.min()
        texts = {name: bold(f"{mean:.4g}", mean == best) for name, mean in means.dropna().items()}
        row = {"table": table, "train": f"{train[table]:,}"}
        rows.append(row | {label(name): texts.get(name, "") for name in record["contenders"] if name in means})
    return markdown(rows)


def failures(record: dict[str, Any]) -> str:
    """List the cells that failed."""
    failed = [cell for cell in record["cells"] if "failed" in cell]
    lines = [
        f"- {label(cell['contender'])} on {cell['table']}, split {cell['split']}: {cell['failed']}" for cell in failed
    ]
    return "\n".join(lines) or "No cell failed."


def sets_table(group: Group) -> str:
    """Tabulate the tables of a group: task, size, source and licence."""
    columns = ["table", "target", "rows", "columns", "of text", "missing values", "from", "licence", "origin"]
    rows = []
    for table in GROUPS[group]:
        target, missing = f"{table.classes} classes" if table.classes else "number", "yes" if table.missing else ""
        size = [f"{table.rows:,}", table.columns, table.categories or "", missing]
        rows.append([table.name, target, *size, table.source.name, table.source.licence, table.origin])
    return markdown(rows, columns)


MAKERS = {
    "tables-ranks": ranks_table,
    "tables-lost": lost_table,
    "tables-nll": lambda record: scores_table(record, "nll"),
    "tables-proper": lambda record: scores_table(record, "proper"),
    "tables-point": lambda record: scores_table(record, "point"),
    "tables-failures": failures,
}
