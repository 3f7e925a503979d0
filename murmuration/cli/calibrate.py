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
    from murmuration.cli.closing import judged, leave
    from murmuration.cli.training import loaded, reopened
    from murmuration.ensemble import save_safeguards
    from murmuration.evaluation import exam_of
    from murmuration.safeguards import FEWEST

    path, wishes = Path(run), trust.wishes()
    ensemble, data = loaded(path, guarded=False), reopened(path)
    if len(data.val) < FEWEST:
        told = f"{path} has {len(data.val)} validation examples: safeguards take at least {FEWEST}"
        raise Misuse(f"{told}; train it anew on more examples")
    ensemble = ensemble.safeguarded(data.val.x, data.val.y, wishes)
    found = judged(path, ensemble, exam_of(data))
    save_safeguards(path, ensemble.safeguards)  # when all is known: interrupted before, the run is as it was
    leave(path, found, as_json=as_json)
    if not as_json:
        say(f"safeguards: {path / 'safeguards.json'}")
