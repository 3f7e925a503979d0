"""`murmur evaluate`: what a run is worth, on its own test split or on other examples."""

from pathlib import Path
from typing import Annotated

import typer

from murmuration.cli.options import Force, Json, RunPath, ShiftOptions, grouped, named_targets
from murmuration.cli.screen import help_text, say
from murmuration.errors import Misuse

HELP = help_text(
    "Score a run on its own test split, and write metrics.json and report.html into its directory. With --on, score it "
    "on other examples with labels, prepared as its own were; then nothing is written but --out. With --corruptions "
    "and --ood, also score it on inputs that were spoilt and on inputs it should not know.",
    "murmur evaluate runs/x",
    "murmur evaluate runs/x --on newer.csv --out newer.html",
    "murmur evaluate runs/x --corruptions",
    "murmur evaluate runs/x --ood svhn --ood fashion-mnist",
    "murmur evaluate runs/x --json",
)


@grouped
def evaluate(
    *,
    run: RunPath,
    on: Annotated[str | None, typer.Option(help="Other examples: anything that can be DATA.", metavar="DATA")] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Target column of --on, if not the run's own.", metavar="NAME")
    ] = None,
    out: Annotated[str | None, typer.Option(help="Also write here: a .json or .html file.", metavar="FILE")] = None,
    shift: ShiftOptions,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Score a run on its own test split, or on other examples."""
    from murmuration.applications.superres import is_superres
    from murmuration.cli.closing import judged, show_found, write_found
    from murmuration.cli.superres import close_superres
    from murmuration.cli.training import loaded, manifest_of, reopened
    from murmuration.cli.trust import trial_of
    from murmuration.cli.writers import writable
    from murmuration.evaluation import exam_of, exam_on

    path = Path(run)
    manifest = manifest_of(path)
    if target and on is None:
        raise Misuse(f"--target {target[0]} is for --on: the run's own target is known")
    extra = [writable(out, (".json", ".html"), force)] if out else []
    ensemble = loaded(path)
    if is_superres(ensemble):
        if on or out or shift.wanted or shift.ood:
            raise Misuse(
                f"{path} upscales images: it is evaluated on its own photographs; write murmur evaluate {path}"
            )
        return close_superres(path, ensemble, as_json=as_json)
    exam = exam_of(reopened(path)) if on is None else exam_on(on, manifest, named_targets(target))
    trial = trial_of(shift, exam)
    assessment, report, record = judged(path, ensemble, exam, trial, quiet=as_json)
    own = [path / "metrics.json", path / "report.html"] if on is None else []
    for file in [*own, *extra]:
        write_found(file, record, report)
    show_found(assessment, report, record, as_json=as_json)
    if not as_json:
        for file in [*own[1:], *extra]:
            say(f"written: {file}")
