"""`murmur calibrate`: safeguards for a run, fitted anew on its validation examples."""

from pathlib import Path

from murmuration.cli.options import Json, RunPath, TrustOptions, grouped
from murmuration.cli.screen import help_text, say
from murmuration.errors import Misuse

HELP = help_text(
    "Fit a calibrator, prediction sets and rules for declining on a run's validation split, keep them with the run "
    "(safeguards.json), and evaluate it again. `murmur predict` then applies them. `murmur train` does this by itself; "
    "this command is for other wishes.",
    "murmur calibrate runs/x --calibrate vector",
    "murmur calibrate runs/x --level 0.95 --sets raps",
    "murmur calibrate runs/x --error-cost 10 --decline-cost 1",
    "murmur calibrate runs/x --calibrate none",
)


@grouped
def calibrate(*, run: RunPath, trust: TrustOptions, as_json: Json = False) -> None:
    """Fit calibrator, sets and rules for declining on a run's validation split."""
    from dataclasses import replace

    from murmuration.cli.closing import close_run
    from murmuration.cli.training import reopened
    from murmuration.ensemble import save_safeguards
    from murmuration.fitting import load
    from murmuration.safeguards import FEWEST

    path, wishes = Path(run), trust.wishes()
    ensemble = replace(load(path), safeguards=None)
    data = reopened(path)
    if len(data.val) < FEWEST:
        raise Misuse(f"{path} has {len(data.val)} validation examples: safeguards take at least {FEWEST}")
    ensemble = ensemble.safeguarded(data.val.x, data.val.y, wishes)
    save_safeguards(path, ensemble.safeguards)
    close_run(path, ensemble, data, as_json=as_json)
    if not as_json:
        say(f"safeguards: {path / 'safeguards.json'}")
