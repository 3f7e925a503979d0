"""`murmur evaluate`: evaluate a run on its test split or on other examples."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import murmuration as mm
import murmuration.cli.options as options
from murmuration.cli.console import say
from murmuration.system.errors import Misuse
from murmuration.system.progress import counting_bar

SEVERITIES = list("12345")


def evaluate(
    *,
    run: options.RunPath,
    on: Annotated[str | None, typer.Option(metavar="DATA")] = None,
    target: Annotated[options.Names, typer.Option(metavar="NAME")] = None,
    out: Annotated[str | None, typer.Option(metavar="FILE")] = None,
    shift: options.ShiftOptions,
    net: options.OwnNet = None,
    device: options.RunDevice = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Evaluate a run on its test split or on other examples.

    Evaluate a run on its test split and write metrics.json and report.html into its directory. With --on, evaluate it
    on other labelled examples, prepared like its own; then only --out is written. --corruptions adds corrupted inputs
    (distribution shift), --ood out-of-distribution inputs.

    Args:
        run: The run.
        on: Other labelled examples.
        target: Target column of --on, if not the run's own.
        out: Also write here: a .json or .html file.
        shift: Corrupted and out-of-distribution inputs.
        net: The network of the run.
        device: Device.
        force: Whether to replace the file.
        as_json: Whether to print JSON.

    Examples:
        murmur evaluate runs/digits
        murmur evaluate runs/prices --on newer.csv --out newer.html
        murmur evaluate runs/digits --corruptions
        murmur evaluate runs/photos --ood other-photos,digits
        murmur evaluate runs/digits --json
    """
    from murmuration.cli.results import show_results
    from murmuration.cli.training import load_run, reopen_data
    from murmuration.evaluation import eval_set_for, evaluate_on, held_out_set
    from murmuration.reports.report import REPORT, report_of, results_bytes, results_json, this_command, write_results
    from murmuration.runs.directory import locked, read_run, replace_files
    from murmuration.runs.kinds import run_kind

    path = Path(run)
    if target and on is None:
        raise Misuse(f"--target {target[0]} is for --on: the run's own target is known")
    extra = [options.output_path(out, (".json", ".html"), force)] if out else []
    kind = run_kind(read_run(path))  # refuses what is not a run, before it is locked
    with locked(path if on is None else None):
        ensemble = load_run(path, net=options.network(net), device=device)
        if kind is not None and kind.close is not None:
            if on or out or shift.wanted or shift.ood:
                contents = f"{kind.contents}, evaluated on {kind.test_data}"
                raise Misuse(f"{path} holds {contents}: write murmur evaluate {path}")
            return kind.close(path, ensemble, as_json=as_json)
        if on is not None:
            eval_set = eval_set_for(ensemble, on, options.named_targets(target))
        elif len((data := reopen_data(path)).test) or ensemble.manifest.folds:
            eval_set = held_out_set(ensemble, data)
        else:
            raise Misuse(f"{path} has no test examples: write murmur evaluate {path} --on FILE, with labelled rows")
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
                say(f"written: {file}")


def shift_request(shift: options.ShiftOptions, eval_set: "mm.EvalSet") -> tuple[Any, dict[str, Any]]:
    """Open and check the corruptions and out-of-distribution inputs that the options name."""
    from murmuration.evaluation import ood_inputs

    require_corruptions(shift)
    suite = suite_of(shift, eval_set) if shift.wanted else None
    foreign: dict[str, Any] = {}
    for source in options.listed(shift.ood):
        with naming(f"--ood {source}", known=source):
            inputs = ood_inputs([source], eval_set)
        if set(inputs) & set(foreign):
            raise Misuse(f"--ood names '{next(iter(inputs))}' twice: give each set once")
        foreign |= inputs
    return suite, foreign


def require_corruptions(shift: options.ShiftOptions) -> None:
    """Refuse settings of corruptions if no corruptions are asked for."""
    how = {"severities": shift.severities, "shift_examples": shift.shift_examples}
    for name, value in how.items():
        if not shift.wanted and value is not None:
            text = ",".join(value) if isinstance(value, list) else value
            raise Misuse(f"--{name.replace('_', '-')} {text} is for corrupted inputs: add --corruptions")


def suite_of(shift: options.ShiftOptions, eval_set: "mm.EvalSet") -> "mm.ShiftSuite":
    """Return the suite of corruptions that the options name."""
    from murmuration.evaluation import shift_suite
    from murmuration.evaluation.shift import official_chosen

    names = None if shift.only is None else options.listed(shift.only)
    severities = options.listed(shift.severities or SEVERITIES)
    if shift.shift_examples is not None and shift.shift_examples < 1:
        raise Misuse(f"--shift-examples {shift.shift_examples}: expected at least 1")
    if wrong := [text for text in severities if text not in SEVERITIES]:
        raise Misuse(f"--severities names '{wrong[0]}': expected some of 1,2,3,4,5")
    suite = partial(shift_suite, eval_set, names, severities=list(map(int, severities)), examples=shift.shift_examples)
    if shift.cifar_c is None:
        return suite()
    official_chosen(shift.cifar_c, names)  # unknown names are refused in their own words
    with naming(f"--cifar-c {shift.cifar_c}", known=shift.cifar_c):
        return suite(official=shift.cifar_c)


@contextmanager
def naming(words: str, *, known: str) -> Iterator[None]:
    """Begin an error message with the option that caused it, unless the message names its value already."""
    try:
        yield
    except Misuse as error:
        raise error if f"'{known}" in str(error) else Misuse(f"{words}: {error}") from None
