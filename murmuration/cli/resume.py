"""`murmur resume`: continue an interrupted run."""

from pathlib import Path

from murmuration.cli.options import (
    CHECKPOINT_SECONDS,
    CheckpointSeconds,
    Json,
    OwnNet,
    RunDevice,
    RunPath,
    Verbose,
    network,
)


def resume(
    run: RunPath,
    net: OwnNet = None,
    device: RunDevice = None,
    checkpoint_seconds: CheckpointSeconds = CHECKPOINT_SECONDS,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Continue an interrupted run, then evaluate it.

    Continue an interrupted run from its last checkpoint. The result equals that of an uninterrupted run, bit for bit,
    on the device that it was begun on. A finished run is evaluated again.

    Examples:
        murmur resume runs/digits
    """
    from murmuration.cli.results import finish_run
    from murmuration.cli.training import reopen_data, resume_run, with_resume_hint
    from murmuration.runs.directory import locked, read_run
    from murmuration.runs.kinds import run_kind
    from murmuration.runs.processes import is_first

    path = Path(run)
    kind = run_kind(read_run(path))
    if kind is not None and kind.continue_run is not None:
        return kind.continue_run(path, as_json=as_json)
    with with_resume_hint(path), locked(path if is_first() else None):
        data = reopen_data(path)
        quiet, own_net = as_json or not is_first(), network(net)
        ensemble = resume_run(path, data, own_net, device, quiet=quiet, checkpoint_seconds=checkpoint_seconds)
        if not is_first():
            return None
        if kind is not None and kind.close is not None:
            return kind.close(path, ensemble, as_json=as_json)
        finish_run(path, ensemble, data, as_json=as_json)
