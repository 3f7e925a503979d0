"""`murmur merge`: the members of several runs as one."""

from pathlib import Path
from typing import Annotated

import typer

import murmuration as mm
from murmuration.cli.options import Json, OwnNet, RunDevice, network
from murmuration.system.errors import Misuse


def merge(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...")],
    out: Annotated[str, typer.Option(metavar="DIR")],
    net: OwnNet = None,
    device: RunDevice = None,
    as_json: Json = False,
) -> None:
    """Write the members of several runs as one run.

    Write the members of several finished runs, in their order, as one new run, calibrated and evaluated anew; the old
    runs stay as they are. They must have the same data, preparation, network, likelihood and recipe, one whose members
    are independent of each other, and no member in common: give runs another --seed, or another --first-member of one
    seed, which makes them parts of one larger run.

    Args:
        runs: Two or more run directories.
        out: Run directory.
        net: The network of the runs.
        device: Device.
        as_json: Whether to print JSON.

    Examples:
        murmur merge runs/ensemble/member-* --out runs/merged
    """
    from murmuration.cli.results import finish_run
    from murmuration.cli.training import read_manifest, reopen_data
    from murmuration.runs.directory import new_run

    if len(runs) < 2:
        raise Misuse(f"RUN {runs[0]} alone: merge two or more runs")
    for run in runs:
        read_manifest(Path(run))
    with new_run(Path(out), repeated=True):
        ensemble = mm.merge_runs(runs, out=out, net=network(net), device=device)
        finish_run(Path(out), ensemble, reopen_data(Path(out)), as_json=as_json)
