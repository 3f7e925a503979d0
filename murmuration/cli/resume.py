"""`murmur resume`: a killed run goes on where it stood."""

from pathlib import Path

from murmuration.cli.options import Json, RunPath
from murmuration.cli.screen import help_text

HELP = help_text(
    "Continue a run that was killed, from its last checkpoint. The ensemble is the one the undisturbed run would have "
    "left. A run that is finished is evaluated again.",
    "murmur resume runs/x",
)


def resume(run: RunPath, as_json: Json = False) -> None:
    """Continue a killed run, then evaluate it."""
    from murmuration.applications.superres import is_superres
    from murmuration.cli.results import finish_run
    from murmuration.cli.superres import close_superres
    from murmuration.cli.training import reopened, resumable, resume_run

    path = Path(run)
    data = reopened(path)
    with resumable(path):
        ensemble = resume_run(path, data, quiet=as_json)
        if is_superres(ensemble):
            return close_superres(path, ensemble, as_json=as_json)
        finish_run(path, ensemble, data, as_json=as_json)
