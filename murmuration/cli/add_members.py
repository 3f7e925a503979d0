"""`murmur add-members`: train more members for a finished run."""

from pathlib import Path
from typing import Annotated

import typer

import murmuration as mm
from murmuration.cli.options import Json, OwnNet, RunDevice, RunPath, Verbose, network
from murmuration.system.errors import Misuse
from murmuration.system.progress import training_bar


def add_members(
    run: RunPath,
    count: Annotated[int, typer.Argument(metavar="N")],
    out: Annotated[str | None, typer.Option(metavar="DIR")] = None,
    net: OwnNet = None,
    device: RunDevice = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Train more members for a finished run.

    Train more members for a finished run and write all of them as a new run, calibrated and evaluated again; the old
    run is unchanged. The new members are bit-identical to those of one run of all members with the same seed. For
    recipes whose members are independent of each other: no coupling, no shared trained tensors. An interrupted command
    continues with `murmur resume`.

    Args:
        run: The run.
        count: Number of members to add.
        out: Run directory; RUN-added-<n> if left out.
        net: The network of the run.
        device: Device.
        as_json: Whether to print JSON.
        verbose: Whether to print details.

    Examples:
        murmur add-members runs/digits 5
        murmur add-members runs/digits 5 --out runs/digits-10
    """
    from murmuration.cli.results import finish_run
    from murmuration.cli.training import derived_run_path, read_manifest, reopen_data, with_resume_hint
    from murmuration.runs.directory import new_run

    if count < 1:
        raise Misuse(f"N {count}: expected a number of members to add, at least 1")
    path = Path(out) if out else derived_run_path(Path(run), "added")
    manifest = read_manifest(Path(run))
    with with_resume_hint(path), new_run(path):
        with training_bar(manifest.plan["epochs"], as_json, manifest.recipe["name"]) as show:
            ensemble = mm.add_members(run, count, out=path, net=network(net), device=device, show=show)
        finish_run(path, ensemble, reopen_data(path), as_json=as_json)
