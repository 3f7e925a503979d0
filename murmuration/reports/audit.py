"""`mm.audit`: evaluate predictions of any model, with paired tests between several and one report."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from murmuration.evaluation.audit import check_same_targets, evaluate_predictions, names_of, open_predictions
from murmuration.prediction.posthoc import PostHocConfig, check_config
from murmuration.reports.report import Report, report_of, this_command
from murmuration.system.errors import Misuse, notes_once
from murmuration.system.progress import counting_bar, is_watched


@notes_once
def audit(
    source: Any,
    y: Any = None,
    *,
    label: str | None = None,
    groups: Sequence[str] | Mapping[str, Any] = (),
    task: str | None = None,
    config: PostHocConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Report:
    """Evaluate the uncertainty of predictions made by any model.

    Scores with intervals are computed on all rows. One half of the rows fits the calibrator, conformal sets and
    abstention rules, the other half evaluates them; with fewer than 40 rows they are left out.

    Args:
        source: Predictions: an .npz, .npy, .csv or .parquet file, a pandas table with the columns of such a file,
            probabilities (N, K) or (S, N, K) of S members, or a `Predictive`. Several predictions of the same rows are
            compared with paired tests: a list of files, or a dict of any of these by name.
        y: The true labels or values, or a file of them; not needed if `source` holds them.
        label: Name of the column or array of true labels.
        groups: Columns of groups to score separately, or the groups (N,) by name.
        task: classification or regression; inferred by default.
        config: Settings of calibration, conformal sets and abstention.
        out: Write the report here: an .html or a .json file.
        progress: Whether to show progress; by default on a terminal and in a notebook.

    Returns:
        The report: `evaluations`, `differences` (paired tests), `verdict`, `notes`, `table`, `to_json()`, `save(path)`.

    Raises:
        Misuse: If predictions or labels are missing or invalid, or several predictions are of different rows.

    >>> report = audit([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1])
    >>> round(float(report.evaluations[0].scores["accuracy"]), 3)
    0.667
    """
    config = config or PostHocConfig()
    named = source if isinstance(source, Mapping) else _named(source)
    opened = [
        replace(open_predictions(item, labels=y, label=label, groups=groups, task=task), name=name)
        for name, item in named.items()
    ]
    for other in opened[1:]:
        check_same_targets(opened[0], other)
    evaluations = []
    with counting_bar("audit", not (is_watched() if progress is None else progress)) as show:
        for done, predictions in enumerate(opened):
            show(predictions.name, done, len(opened))
            check_config(config, predictions.task)
            evaluations.append(evaluate_predictions(predictions, config))
    report = report_of(evaluations, command=this_command())
    if out is not None:
        report.save(out)
    return report


def _named(source: Any) -> dict[str, Any]:
    """Return one source, or a list of files, by name."""
    if isinstance(source, str | Path):
        source = [source]
    if isinstance(source, list | tuple) and any(isinstance(item, str | Path) for item in source):
        wrong = next((item for item in source if not isinstance(item, str | Path)), None)
        if wrong is not None:
            raise Misuse(f"a list of files with {type(wrong).__name__} in it: write a dict of predictions by name")
        return dict(zip(names_of(source), source, strict=True))
    return {"predictions": source}
