"""`murmur predict`: predictions with their uncertainty, in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murmuration.cli.options import DATA_HELP, Force, Json, RunPath
from murmuration.cli.screen import help_text, say, say_json
from murmuration.errors import Misuse

if TYPE_CHECKING:
    from murmuration.cli.writers import Predictions

HELP = help_text(
    "Predict the inputs of a file or folder, one row each in their order; labels are not needed. Classes come with "
    "their confidence, a probability each, and two ways to split their uncertainty. In nats: entropy is "
    "expected_entropy (what members agree is open) plus mutual_information (what they disagree on). As variances of "
    "the label: aleatoric (noise) and epistemic (disagreement) summed over classes, and for the predicted class alone "
    "(_predicted). Numbers come with their mean, aleatoric, epistemic and total standard deviation, and the 90 % "
    "interval. A run with post-hoc steps adds the conformal set or interval, and whether to answer at all.",
    "murmur predict runs/x new.csv --out predictions.csv",
    "murmur predict runs/x pictures --out predictions.parquet",
    "murmur predict runs/x digits --out predictions.npz --members",
)


def predict(
    run: RunPath,
    data: Annotated[str, typer.Argument(help=DATA_HELP, metavar="DATA")],
    out: Annotated[str, typer.Option(help="A .csv, .parquet or .npz file.", metavar="FILE")],
    members: Annotated[bool, typer.Option("--members", help="Also what each member says (.npz).")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="As the members say it: without calibrator and sets.")] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict inputs, with uncertainty, into a file."""
    from murmuration.cli.results import counted
    from murmuration.cli.training import manifest_of
    from murmuration.cli.writers import WRITERS, writable, write_predictions

    path = writable(out, tuple(WRITERS), force)
    if members and path.suffix.lower() != ".npz":
        raise Misuse(f"--members with {path.name}: a table has no room for them; write --out {path.stem}.npz")
    found = predictions(Path(run), manifest_of(Path(run)), data, with_members=members, raw=raw)
    write_predictions(path, found)
    if as_json:
        return say_json({"run": run, "data": data, "out": str(path), "rows": found.rows, "members": found.members})
    say(f"{found.rows:,} predictions of {counted(found.members, 'member')}: {path}")


def predictions(path: Path, manifest: dict[str, Any], source: str, *, with_members: bool, raw: bool) -> "Predictions":
    """The predictions of a run for a source, made as they are asked for."""
    from murmuration.cli.training import loaded
    from murmuration.cli.writers import Predictions
    from murmuration.data import open_inputs, preparation_from_json

    record = manifest["data"]
    ensemble = loaded(path, posthoc=not raw)
    x = open_inputs(source, preparation=preparation_from_json(record["preparation"]))
    names = tuple(record["classes"]) or target_names(manifest)
    return Predictions(ensemble.stream(x), len(x), names, ensemble.members, with_members, ensemble.posthoc)


def target_names(manifest: dict[str, Any]) -> tuple[str, ...]:
    """The names of a regression's targets; numbers where they have none."""
    names = manifest["data"]["preparation"].get("targets")
    return tuple(names or map(str, range(len(manifest["likelihood"]["shift"]))))
