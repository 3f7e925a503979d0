"""`murmur drop-members`: a run without some of its members."""

from pathlib import Path
from typing import Annotated

import typer

import murmuration as mm
from murmuration.cli.options import Json, OwnNet, RunDevice, RunPath, is_whole, listed, network
from murmuration.system.errors import Misuse


def drop_members(
    run: RunPath,
    members: Annotated[str, typer.Argument(metavar="LIST")],
    out: Annotated[str | None, typer.Option(metavar="DIR")] = None,
    net: OwnNet = None,
    device: RunDevice = None,
    as_json: Json = False,
) -> None:
    """Write a run without some of its members.

    Write a new run without some members of a finished one, by their numbers from 0, calibrated and evaluated again; the
    old run is unchanged. For recipes whose members are independent of each other: no coupling, no shared trained
    tensors.

    Args:
        run: The run.
        members: Numbers of members, from 0, such as 1,3.
        out: Run directory; RUN-dropped-<n> if left out.
        net: The network of the run.
        device: Device.
        as_json: Whether to print JSON.

    Examples:
        murmur drop-members runs/digits 1
        murmur drop-members runs/digits 1 --out runs/digits-fewer --json
    """
    from murmuration.cli.results import finish_run
    from murmuration.cli.training import derived_run_path, read_manifest, reopen_data
    from murmuration.runs.directory import new_run

    numbers = listed([members])
    wrong = [number for number in numbers if not is_whole(number)]
    if wrong:
        raise Misuse(f"LIST {members}: '{wrong[0]}' is not the number of a member; write numbers from 0, such as 1,3")
    path = Path(out) if out else derived_run_path(Path(run), "dropped")
    read_manifest(Path(run))
    with new_run(path, repeated=True):
        ensemble = mm.drop_members(run, list(map(int, numbers)), out=path, net=network(net), device=device)
        finish_run(path, ensemble, reopen_data(path), as_json=as_json)
