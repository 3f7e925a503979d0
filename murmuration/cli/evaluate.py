"""`murmur evaluate`: evaluate a run on its test split or on other examples."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from murmuration.cli.console import help_text
from murmuration.cli.options import (
    Force,
    Json,
    Names,
    OwnNet,
    RunDevice,
    RunPath,
    ShiftOptions,
    grouped,
    listed,
    named_targets,
    network,
    output_path,
)
from murmuration.cli.results import show_results
from murmuration.cli.training import load_run, reopen_data
from murmuration.runs.kinds import run_kind
from murmuration.system.errors import Misuse
from murmuration.system.progress import counting_bar

if TYPE_CHECKING:
    from torch import Tensor

    from murmuration.evaluation import EvalSet, ShiftSuite
    from murmuration.prediction.ensemble import Ensemble

HELP = help_text(
    "Evaluate a run on its test split and write metrics.json and report.html into its directory. With --on, evaluate "
    "it on other labelled examples, prepared like its own; then only --out is written. --corruptions adds corrupted "
    "inputs (distribution shift), --ood out-of-distribution inputs.",
    "murmur evaluate runs/digits",
    "murmur evaluate runs/prices --on newer.csv --out newer.html",
    "murmur evaluate runs/digits --corruptions",
    "murmur evaluate runs/photos --ood other-photos,digits",
    "murmur evaluate runs/digits --json",
)


@grouped
def evaluate(
    *,
    run: RunPath,
    on: Annotated[str | None, typer.Option(help="Other labelled examples.", metavar="DATA")] = None,
    target: Annotated[Names, typer.Option(help="Target column of --on, if not the run's own.", metavar="NAME")] = None,
    out: Annotated[str | None, typer.Option(help="Also write here: a .json or .html file.", metavar="FILE")] = None,
    shift: ShiftOptions,
    net: OwnNet = None,
    device: RunDevice = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Evaluate a run on its test split or on other examples."""
    from murmuration.evaluation import eval_set_for, evaluate_on
    from murmuration.reports.report import REPORT, report_of, results_bytes, results_json, this_command, write_results
    from murmuration.runs.directory import locked, read_run, replace_files

    path = Path(run)
    if target and on is None:
        raise Misuse(f"--target {target[0]} is for --on: the run's own target is known")
    extra = [output_path(out, (".json", ".html"), force)] if out else []
    kind = run_kind(read_run(path))  # refuses what is not a run, before it is locked
    with locked(path if on is None else None):
        ensemble = load_run(path, net=network(net), device=device)
        if kind is not None and kind.close is not None:
            if on or out or shift.wanted or shift.ood:
                raise Misuse(
                    f"{path} holds {kind.contents}, evaluated on {kind.test_data}: write murmur evaluate {path}"
                )
            return kind.close(path, ensemble, as_json=as_json)
        eval_set = own_eval_set(path, ensemble) if on is None else eval_set_for(ensemble, on, named_targets(target))
        suite, foreign = shift_request(shift, eval_set)
        with counting_bar(f"{path.name} under shift", as_json or suite is None) as progress:
            evaluation = evaluate_on(ensemble, eval_set, None, suite, foreign, progress)
        report = report_of([evaluation], command="" if on is None else this_command())
        record = results_json(report, run=path)
        if on is None:
            replace_files(path, results_bytes(record, report))
        for file in extra:
            write_results(file, record, report)
        show_results([evaluation], record, as_json=as_json)
        if not as_json:
            for file in [*([path / REPORT] if on is None else []), *extra]:
                print(f"written: {file}")


def own_eval_set(path: Path, ensemble: "Ensemble") -> "EvalSet":
    """Return the test split of a run, or its out-of-fold predictions; refuse a run without either."""
    from murmuration.evaluation import held_out_set
    from murmuration.training.folds import FOLDS

    data = reopen_data(path)
    if not len(data.test) and FOLDS not in ensemble.manifest:
        raise Misuse(f"{path} has no test examples: write murmur evaluate {path} --on FILE, with labelled rows")
    return held_out_set(ensemble, data)


def shift_request(options: ShiftOptions, eval_set: "EvalSet") -> tuple["ShiftSuite | None", dict[str, "Tensor"]]:
    """Open and check the corruptions and out-of-distribution inputs that the options name."""
    from murmuration.evaluation import ood_inputs

    require_corruptions(options)
    suite = suite_of(options, eval_set) if options.wanted else None
    foreign: dict[str, Tensor] = {}
    for source in listed(options.ood):
        with naming(f"--ood {source}", known=source):
            inputs = ood_inputs([source], eval_set)
        if set(inputs) & set(foreign):
            raise Misuse(f"--ood names '{next(iter(inputs))}' twice: give each set once")
        foreign |= inputs
    return suite, foreign


def require_corruptions(options: ShiftOptions) -> None:
    """Refuse settings of corruptions if no corruptions are asked for."""
    how = {"severities": options.severities, "shift_examples": options.shift_examples}
    for name, value in how.items():
        if not options.wanted and value is not None:
            text = ",".join(value) if isinstance(value, list) else value
            raise Misuse(f"--{name.replace('_', '-')} {text} is for corrupted inputs: add --corruptions")


def suite_of(options: ShiftOptions, eval_set: "EvalSet") -> "ShiftSuite":
    """Return the suite of corruptions that the options name."""
    from murmuration.evaluation import shift_suite
    from murmuration.evaluation.shift import official_chosen

    names = None if options.only is None else listed(options.only)
    if options.shift_examples is not None and options.shift_examples < 1:
        raise Misuse(f"--shift-examples {options.shift_examples}: expected at least 1")
    severities, count = [severity(text) for text in listed(options.severities or ["1,2,3,4,5"])], options.shift_examples
    if options.cifar_c is None:
        return shift_suite(eval_set, names, severities=severities, examples=count)
    official_chosen(options.cifar_c, names)  # unknown names are refused in their own words
    with naming(f"--cifar-c {options.cifar_c}", known=options.cifar_c):
        return shift_suite(eval_set, names, severities=severities, examples=count, official=options.cifar_c)


def severity(text: str) -> int:
    """Parse a severity."""
    if text not in ("1", "2", "3", "4", "5"):
        raise Misuse(f"--severities names '{text}': expected some of 1,2,3,4,5")
    return int(text)


@contextmanager
def naming(words: str, *, known: str) -> Iterator[None]:
    """Begin an error message with the option that caused it, unless the message names its value already."""
    try:
        yield
    except Misuse as error:
        raise error if f"'{known}" in str(error) else Misuse(f"{words}: {error}") from None
