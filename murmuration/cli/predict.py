"""`murmur predict`: write predictions and their uncertainty to a file, or show the first."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import murmuration as mm
from murmuration.cli.console import interruptible, print_json, print_table, say
from murmuration.cli.options import (
    DataSource,
    Force,
    InMemory,
    Json,
    Names,
    OwnNet,
    RunDevice,
    RunPath,
    listed,
    network,
    output_path,
)
from murmuration.system.errors import Misuse, warn

if TYPE_CHECKING:
    from murmuration.prediction.prediction_files import Predictions

SHOWN_ROWS = 10  # without a file
LEFT_TO_FILES = ("aleatoric", "epistemic", "expected_", "mutual_", "prob_")  # columns; a terminal has little room


def predict(
    run: RunPath,
    data: DataSource,
    out: Annotated[str | None, typer.Option(metavar="FILE")] = None,
    keep: Annotated[Names, typer.Option(metavar="NAME")] = None,
    per_member: Annotated[bool, typer.Option("--per-member")] = False,
    uncalibrated: Annotated[bool, typer.Option("--uncalibrated")] = False,
    in_memory: InMemory = None,
    net: OwnNet = None,
    device: RunDevice = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write predictions and their uncertainty to a file, or show the first ten.

    Predict the inputs of a file or folder, one row each in their order; labels are not needed. The first columns name
    the input: `file` of an image, `index` of a parquet file with an index of its own, columns to keep. Classification:
    the class, its confidence, all probabilities, and two decompositions of the uncertainty. In nats, entropy is
    expected_entropy (aleatoric) plus mutual_information (epistemic). As variances of the one-hot label, aleatoric and
    epistemic are summed over classes, or of the predicted class alone (_predicted). Regression: the mean, the
    aleatoric, epistemic and total standard deviation, and the central 90 % interval, named after the target. A
    calibrated run adds the conformal prediction set or interval, and whether to answer or to abstain. `outside` counts
    the inputs of a row that lie beyond the training range, are unknown categories, or are missing where
    training had no missing value.

    Args:
        run: The run.
        data: The inputs.
        out: A .csv, .parquet or .npz file; if left out, ten predictions are shown.
        keep: Columns to copy from the data, such as an identifier; a list for several.
        per_member: Also write the predictions of every member (.npz).
        uncalibrated: Without calibration, conformal sets and abstention.
        in_memory: Whether all inputs are held in memory.
        net: The network of the run.
        device: Device.
        force: Whether to replace the file.
        as_json: Whether to print JSON.

    Examples:
        murmur predict runs/prices new.csv
        murmur predict runs/prices new.csv --keep id --out predictions.csv
        murmur predict runs/photos new-photos --out predictions.parquet
        murmur predict runs/digits digits --out predictions.npz --per-member
        murmur predict runs/photos new-photos --stream --out predictions.csv
    """
    from murmuration.cli.training import load_run
    from murmuration.prediction.posthoc.conformal import IntervalRule
    from murmuration.prediction.prediction_files import WRITERS, predictions_of
    from murmuration.reports.formatting import plural

    path = None if out is None else output_path(out, tuple(WRITERS), force)
    if per_member and path is None:
        raise Misuse("--per-member without a file: write --out FILE.npz")
    if per_member and path is not None and path.suffix.lower() != ".npz":
        raise Misuse(f"--per-member with {path.name}: a table has one row per input; write --out {path.stem}.npz")
    ensemble = load_run(Path(run), posthoc=not uncalibrated, net=network(net), device=device)
    for rule in ensemble.posthoc.conformal[:1] if ensemble.posthoc is not None else ():
        if isinstance(rule, IntervalRule) and math.isinf(rule.threshold):
            reason = f"{rule.examples} validation examples are too few for a coverage of {100 * rule.coverage:g} %"
            warn(f"conformal intervals are infinite: {reason}; murmur calibrate fits others")
    if path is None:
        return show(predictions_of(ensemble, data, in_memory=in_memory, keep=listed(keep)), as_json=as_json)
    with interruptible(path):
        saved = mm.save_predictions(ensemble, data, path, per_member=per_member, in_memory=in_memory, keep=listed(keep))
        if as_json:
            return print_json({"run": run, "data": data, "out": out, "rows": saved.rows, "members": saved.members})
        say(f"{saved.rows:,} predictions of {plural(saved.members, 'member')}: {path}")


def show(predictions: "Predictions", *, as_json: bool) -> None:
    """Print the first predictions: in JSON all columns, else the first and those that say whether to trust them."""
    table = next(predictions.tables())
    rows = {name: values[:SHOWN_ROWS].tolist() for name, values in table.items()}
    if as_json:
        return print_json({"rows": predictions.rows, "members": predictions.members, "predictions": rows})
    names = [name for name in rows if not name.startswith(LEFT_TO_FILES)]
    if any(name.startswith("conformal_") for name in names):
        names = [name for name in names if not name.startswith(("low_", "high_"))]
    cells = [[cell(value) for value in rows[name]] for name in names]
    count = min(SHOWN_ROWS, predictions.rows)
    title = f"{count} of {predictions.rows:,} predictions; --out FILE.csv writes all rows and {len(rows)} columns"
    print_table(names, [list(row) for row in zip(*cells, strict=True)], title=title)


def cell(value: Any) -> str:
    """Return a value of a table of predictions in few characters."""
    from murmuration.reports.formatting import number

    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, float) else str(value)
