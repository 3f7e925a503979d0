"""`murmur reproduce`: a published experiment reproduced, with its figures, tables and verdicts."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.cli.console import CONTINUES, Interrupted, print_json, print_table, say
from murmuration.cli.options import Json, Names, listed, option
from murmuration.system.errors import Misuse
from murmuration.system.progress import counting_bar

REPORT = "report.html"
SCALE, GRID = "Scale", "Grid of embedded ensembles"
LISTS: dict[str, tuple[Callable[[str], Any], str]] = {  # option -> type of its values, an example
    "widths": (float, "0.25,0.5,1"),
    "models": (int, "1,2,4"),
    "arms": (str, "independent,naive"),
    "seeds": (int, "0,1,2"),
    "parts": (str, "similarity,plane"),
    "methods": (str, "deep-ensemble,forde-pca"),
}


def reproduce(
    experiment: Annotated[str, typer.Argument(help="See `murmur list experiments`.", metavar="NAME")],
    profile: Annotated[str | None, option("laptop (default), or paper: the published scale.", SCALE, "NAME")] = None,
    parts: Annotated[Names, option("Parts of the experiment; all if left out.", SCALE, "LIST")] = None,
    data: Annotated[str | None, option("Data set; that of the profile if left out.", SCALE, "DATA")] = None,
    net: Annotated[str | None, option("Network; that of the profile if left out.", SCALE, "NAME")] = None,
    methods: Annotated[Names, option("Methods to compare; all if left out.", SCALE, "LIST")] = None,
    members: Annotated[int | None, option("Members of an ensemble, or independent runs.", SCALE, "N")] = None,
    epochs: Annotated[int | None, option("Passes over the training examples.", SCALE, "N")] = None,
    seed: Annotated[int | None, option("Random seed of one run.", SCALE, "N")] = None,
    seeds: Annotated[Names, option("Random seeds, at least three for intervals over seeds.", SCALE, "LIST")] = None,
    train: Annotated[int | None, option("Training examples, the first ones; all if left out.", SCALE, "N")] = None,
    examples: Annotated[int | None, option("Test examples; those of the profile if left out.", SCALE, "N")] = None,
    device: Annotated[str | None, option("cpu, cuda, cuda:1 or mps.", SCALE, "NAME")] = None,
    prepare: Annotated[str | None, option("Scaling of images: unit, standardise or none.", SCALE, "WAY")] = None,
    optimizer: Annotated[str | None, option("adam or sgd; that of the profile if left out.", SCALE, "NAME")] = None,
    ood: Annotated[str | None, option("Out-of-distribution inputs.", SCALE, "DATA")] = None,
    cifar_c: Annotated[str | None, option("Folder of the CIFAR-10-C or CIFAR-100-C files.", SCALE, "DIR")] = None,
    imbalance: Annotated[float | None, option("Largest over smallest class of long tails.", SCALE, "X")] = None,
    widths: Annotated[Names, option("Multiples of the base width.", GRID, "LIST")] = None,
    models: Annotated[Names, option("Numbers of members.", GRID, "LIST")] = None,
    arms: Annotated[Names, option("Kinds of ensemble.", GRID, "LIST")] = None,
    out: Annotated[str | None, option("Directory; runs/reproduce-NAME if left out.", "Options", "DIR")] = None,
    as_json: Json = False,
) -> None:
    """Reproduce a published experiment.

    Reproduce a published experiment: DIR/record.json holds all results, DIR/report.html figures, published numbers
    and verdicts. Results are written as they are computed: the same command continues a killed run, and with more
    seeds or parts computes only what is new. An experiment refuses options it does not use. See `murmur list
    experiments`.

    Examples:
        murmur reproduce embedded
        murmur reproduce embedded --widths 0.5,1 --models 1,2,4,8 --arms independent,naive --seeds 0
        murmur reproduce embedded --parts theorems --seeds 0,1,2
        murmur reproduce forde --parts sweep --seeds 0,1,2
        murmur reproduce bayes-cnn --parts uncertainty
        murmur reproduce hcl
        murmur reproduce longtail --imbalance 10 --out runs/longtail-10
        murmur reproduce forde --profile paper --data cifar-10-batches-bin --device cuda --out runs/forde
        murmur reproduce landscape --epochs 10 --parts similarity,plane,trade-off
        murmur reproduce landscape --data cifar-10-batches-bin --out runs/landscape
        murmur reproduce landscape --profile paper --device cuda --ood svhn/test.npz --out runs/paper
    """
    from murmuration.reports.report import this_command
    from murmuration.runs.locks import locked
    from murmuration.studies.papers import OPTIONS, reproduce as reproduce_paper
    from murmuration.system.files import write_bytes

    arguments = {name: value for name, value in locals().items() if name in OPTIONS and value is not None}
    options = {name: read_list(name, value) if name in LISTS else value for name, value in arguments.items()}
    path = Path(out or f"runs/reproduce-{experiment}")
    try:
        with locked(path), counting_bar(experiment, quiet=as_json) as show:
            outcome = reproduce_paper(experiment, options, path, show, this_command())
        write_bytes(path / REPORT, outcome.page.encode())
        if as_json:
            return print_json({**outcome.record, "report": str(path / REPORT)})
        for table in outcome.tables:
            print_table(table.columns, table.rows, title=table.title, right=table.right)
        if outcome.warning:
            say(outcome.warning)
        say(f"report: {path / REPORT}")
    except KeyboardInterrupt:
        raise Interrupted(CONTINUES) from None


def read_list(name: str, texts: list[str]) -> tuple[Any, ...]:
    """Return the values of a comma-separated list.

    >>> read_list("models", ["1, 2"])
    (1, 2)
    """
    kind, example = LISTS[name]
    try:
        return tuple(kind(text) for text in listed(texts))
    except ValueError:
        raise Misuse(f"--{name} {','.join(texts)}: write numbers with commas, such as {example}") from None
