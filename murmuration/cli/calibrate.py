"""`murmur calibrate`: post-hoc steps for a run, fitted again on its validation examples."""

from contextlib import suppress
from pathlib import Path

from murmuration.cli.console import say
from murmuration.cli.options import Json, OwnNet, PostHocOptions, RunDevice, RunPath, network
from murmuration.system.errors import Failure, Misuse, warn


def calibrate(
    *, run: RunPath, trust: PostHocOptions, net: OwnNet = None, device: RunDevice = None, as_json: Json = False
) -> None:
    """Fit calibrator, conformal sets and abstention rules on a run's validation split.

    Fit a calibrator, conformal prediction sets and abstention rules on a run's validation split, keep them with the run
    (posthoc.json), and evaluate it again. `murmur predict` then applies them. `murmur train` does this by itself; this
    command is for other settings.

    Examples:
        murmur calibrate runs/digits --calibrate vector
        murmur calibrate runs/digits --coverage 0.95 --conformal raps
        murmur calibrate runs/digits --error-cost 10 --abstain-cost 1
        murmur calibrate runs/digits --calibrate none
    """
    from murmuration.cli.results import leave_results
    from murmuration.cli.training import load_run, reopen_data
    from murmuration.evaluation import evaluate_ensemble, held_out_set
    from murmuration.prediction.ensemble import load_posthoc
    from murmuration.prediction.posthoc import FEWEST
    from murmuration.reports.report import this_command
    from murmuration.runs.directory import POSTHOC, locked, read_run
    from murmuration.system.files import json_bytes
    from murmuration.system.records import to_json
    from murmuration.training.folds import fit_posthoc_again

    path, config, before = Path(run), trust.config(), None
    read_run(path)  # refuse a directory that is not a run before it is locked
    with locked(path):
        ensemble, data = load_run(path, posthoc=False, net=network(net), device=device), reopen_data(path)
        if len(data.val) < FEWEST and not ensemble.manifest.folds:
            reason = f"{path} has {len(data.val)} validation examples: post-hoc steps need at least {FEWEST}"
            raise Misuse(f"{reason}; train it again on more examples")
        with suppress(Failure):  # damaged steps are replaced too
            before = load_posthoc(path)
        ensemble = fit_posthoc_again(ensemble, data, config)
        evaluation = evaluate_ensemble(ensemble, held_out_set(ensemble, data))
        files = {POSTHOC: json_bytes(to_json(ensemble.posthoc))}  # written last: interrupted before, all is as it was
        leave_results(path, evaluation, as_json=as_json, files=files, command=this_command())
    if before is not None and before != ensemble.posthoc:
        warn(f"these post-hoc steps replace those of before: {before.summary}")
    if not as_json:
        say(f"post-hoc steps: {path / 'posthoc.json'}")
