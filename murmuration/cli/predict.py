"""`murmur predict`: write predictions and their uncertainty to a file."""

import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import murmuration as mm
from murmuration.cli.console import help_text, print_json
from murmuration.cli.options import (
    DATA_HELP,
    Force,
    InMemory,
    Json,
    OwnNet,
    RunDevice,
    RunPath,
    network,
    output_path,
    switch,
)
from murmuration.cli.training import load_run
from murmuration.system.errors import Misuse

if TYPE_CHECKING:
    from murmuration.prediction.ensemble import Ensemble

HELP = help_text(
    "Predict the inputs of a file or folder, one row each in their order; labels are not needed. The first column "
    "names the input: `file` of an image, `index` of a parquet file with an index of its own. Classification: the "
    "class, its confidence, all probabilities, and two decompositions of the uncertainty. In nats, entropy is "
    "expected_entropy (aleatoric) plus mutual_information (epistemic). As variances of the one-hot label, aleatoric "
    "and epistemic are summed over classes, or of the predicted class alone (_predicted). Regression: the mean, the "
    "aleatoric, epistemic and total standard deviation, and the central 90 % interval. A calibrated run adds the "
    "conformal prediction set or interval, and whether to answer or to abstain.",
    "murmur predict runs/prices new.csv --out predictions.csv",
    "murmur predict runs/photos new-photos --out predictions.parquet",
    "murmur predict runs/digits digits --out predictions.npz --per-member",
    "murmur predict runs/photos new-photos --stream --out predictions.csv",
)


def predict(
    run: RunPath,
    data: Annotated[str, typer.Argument(help=DATA_HELP, metavar="DATA")],
    out: Annotated[str, typer.Option(help="A .csv, .parquet or .npz file.", metavar="FILE")],
    per_member: Annotated[bool, switch("--per-member", "Also write the predictions of every member (.npz).")] = False,
    uncalibrated: Annotated[
        bool, switch("--uncalibrated", "Without calibration, conformal sets and abstention.")
    ] = False,
    in_memory: InMemory = None,
    net: OwnNet = None,
    device: RunDevice = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write predictions and their uncertainty to a file."""
    from murmuration.prediction.prediction_files import WRITERS
    from murmuration.reports.formatting import plural

    path = output_path(out, tuple(WRITERS), force)
    if per_member and path.suffix.lower() != ".npz":
        raise Misuse(f"--per-member with {path.name}: a table has one row per input; write --out {path.stem}.npz")
    ensemble = load_run(Path(run), posthoc=not uncalibrated, net=network(net), device=device)
    warn_of_infinite(ensemble)
    saved = mm.save_predictions(ensemble, data, path, per_member=per_member, in_memory=in_memory)
    if as_json:
        return print_json({"run": run, "data": data, "out": str(path), "rows": saved.rows, "members": saved.members})
    print(f"{saved.rows:,} predictions of {plural(saved.members, 'member')}: {path}")


def warn_of_infinite(ensemble: "Ensemble") -> None:
    """Warn of conformal intervals without ends: the run has too few validation examples for their coverage."""
    from murmuration.prediction.posthoc.conformal import IntervalRule

    for rule in ensemble.posthoc.conformal[:1] if ensemble.posthoc is not None else ():
        if isinstance(rule, IntervalRule) and math.isinf(rule.threshold):
            reason = f"{rule.examples} validation examples are too few for a coverage of {100 * rule.coverage:g} %"
            warnings.warn(f"conformal intervals are infinite: {reason}; murmur calibrate fits others", stacklevel=2)
