"""`murmur predict`: write predictions and their uncertainty to a file."""

import math
from pathlib import Path
from typing import Annotated

import typer

import murmuration as mm
from murmuration.cli.console import interruptible, print_json, say
from murmuration.cli.options import DataSource, Force, InMemory, Json, OwnNet, RunDevice, RunPath, network, output_path
from murmuration.system.errors import Misuse, warn


def predict(
    run: RunPath,
    data: DataSource,
    out: Annotated[str, typer.Option(metavar="FILE")],
    per_member: Annotated[bool, typer.Option("--per-member")] = False,
    uncalibrated: Annotated[bool, typer.Option("--uncalibrated")] = False,
    in_memory: InMemory = None,
    net: OwnNet = None,
    device: RunDevice = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write predictions and their uncertainty to a file.

    Predict the inputs of a file or folder, one row each in their order; labels are not needed. The first column names
    the input: `file` of an image, `index` of a parquet file with an index of its own. Classification: the class, its
    confidence, all probabilities, and two decompositions of the uncertainty. In nats, entropy is expected_entropy
    (aleatoric) plus mutual_information (epistemic). As variances of the one-hot label, aleatoric and epistemic are
    summed over classes, or of the predicted class alone (_predicted). Regression: the mean, the aleatoric, epistemic
    and total standard deviation, and the central 90 % interval. A calibrated run adds the conformal prediction set or
    interval, and whether to answer or to abstain.

    Args:
        run: The run.
        data: The inputs.
        out: A .csv, .parquet or .npz file.
        per_member: Also write the predictions of every member (.npz).
        uncalibrated: Without calibration, conformal sets and abstention.
        in_memory: Whether all inputs are held in memory.
        net: The network of the run.
        device: Device.
        force: Whether to replace the file.
        as_json: Whether to print JSON.

    Examples:
        murmur predict runs/prices new.csv --out predictions.csv
        murmur predict runs/photos new-photos --out predictions.parquet
        murmur predict runs/digits digits --out predictions.npz --per-member
        murmur predict runs/photos new-photos --stream --out predictions.csv
    """
    from murmuration.cli.training import load_run
    from murmuration.prediction.posthoc.conformal import IntervalRule
    from murmuration.prediction.prediction_files import WRITERS
    from murmuration.reports.formatting import plural

    path = output_path(out, tuple(WRITERS), force)
    if per_member and path.suffix.lower() != ".npz":
        raise Misuse(f"--per-member with {path.name}: a table has one row per input; write --out {path.stem}.npz")
    ensemble = load_run(Path(run), posthoc=not uncalibrated, net=network(net), device=device)
    for rule in ensemble.posthoc.conformal[:1] if ensemble.posthoc is not None else ():
        if isinstance(rule, IntervalRule) and math.isinf(rule.threshold):
            reason = f"{rule.examples} validation examples are too few for a coverage of {100 * rule.coverage:g} %"
            warn(f"conformal intervals are infinite: {reason}; murmur calibrate fits others")
    with interruptible(path):
        saved = mm.save_predictions(ensemble, data, path, per_member=per_member, in_memory=in_memory)
        if as_json:
            return print_json({"run": run, "data": data, "out": out, "rows": saved.rows, "members": saved.members})
        say(f"{saved.rows:,} predictions of {plural(saved.members, 'member')}: {path}")
