"""`murmur resume`: continue an interrupted run."""

from pathlib import Path
from typing import Any

from murmuration.cli.console import help_text
from murmuration.cli.options import CHECKPOINT_SECONDS, CheckpointSeconds, Json, OwnNet, RunDevice, RunPath, network

HELP = help_text(
    "Continue an interrupted run from its last checkpoint. The result equals that of an uninterrupted run, bit for "
    "bit, on the device that it was begun on. A finished run is evaluated again.",
    "murmur resume runs/digits",
)


def resume(
    run: RunPath,
    net: OwnNet = None,
    device: RunDevice = None,
    checkpoint_seconds: CheckpointSeconds = CHECKPOINT_SECONDS,
    as_json: Json = False,
) -> None:
    """Continue an interrupted run, then evaluate it."""
    from murmuration.applications.continual.runs import KIND
    from murmuration.applications.superres import is_superres
    from murmuration.cli.continual import resume_continual
    from murmuration.cli.results import finish_run
    from murmuration.cli.superres import close_superres
    from murmuration.cli.training import reopen_data, resume_run, with_resume_hint
    from murmuration.distributed import is_first
    from murmuration.runs import locked, read_run

    path = Path(run)
    if KIND in read_run(path):
        return resume_continual(path, as_json=as_json)
    with with_resume_hint(path), locked(path if is_first() else None):
        data = reopen_data(path)
        more: dict[str, Any] = {"device": device, "checkpoint_seconds": checkpoint_seconds}
        ensemble = resume_run(path, data, quiet=as_json or not is_first(), net=network(net), **more)
        if not is_first():
            return None
        if is_superres(ensemble):
            return close_superres(path, ensemble, as_json=as_json)
        finish_run(path, ensemble, data, as_json=as_json)
