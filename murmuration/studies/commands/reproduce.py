"""`murmur reproduce`: a published experiment reproduced, with its figure and verdicts."""

from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.cli.console import CONTINUES, Interrupted, print_json, print_table, say
from murmuration.cli.options import Json, Names, listed, option
from murmuration.system.progress import counting_bar

REPORT = "report.html"
LAB = "Landscape"


def reproduce(
    experiment: Annotated[str, typer.Argument(help="See `murmur list experiments`.", metavar="NAME")],
    data: Annotated[str | None, option("Data set; digits if left out.", "Grid", "DATA")] = None,
    widths: Annotated[Names, option("Multiples of the base width; 0.25,0.5,1,2,4 if left out.", "Grid", "LIST")] = None,
    models: Annotated[Names, option("Numbers of members; 1,2,4,8,16,32,64 if left out.", "Grid", "LIST")] = None,
    arms: Annotated[Names, option("Kinds of ensemble; all if left out.", "Grid", "LIST")] = None,
    seeds: Annotated[Names, option("Random seeds, at least three for verdicts; default 0,1,2.", "Grid", "LIST")] = None,
    epochs: Annotated[int | None, option("Passes over the training examples.", "Grid", "N")] = None,
    prepare: Annotated[str | None, option("Scaling of images: unit if left out, none.", LAB, "WAY")] = None,
    net: Annotated[str | None, option("Network; small-cnn if left out.", LAB, "NAME")] = None,
    members: Annotated[int | None, option("Independent runs; 5 if left out.", LAB, "N")] = None,
    ood: Annotated[str | None, option("Out-of-distribution inputs.", LAB, "DATA")] = None,
    examples: Annotated[int | None, option("Test examples; 2000 if left out.", LAB, "N")] = None,
    parts: Annotated[Names, option("Parts of the experiment; all if left out.", LAB, "LIST")] = None,
    out: Annotated[str | None, option("Directory; runs/reproduce-NAME if left out.", "Options", "DIR")] = None,
    as_json: Json = False,
) -> None:
    """Reproduce a published experiment.

    Reproduce a published experiment: DIR/record.json holds all results, DIR/report.html the figure, the predictions of
    the theory and whether they hold. Results are written as they are computed: the same command continues a killed run,
    and with a larger grid computes only what is new. See `murmur list experiments`.

    Examples:
        murmur reproduce embedded
        murmur reproduce embedded --widths 0.5,1 --models 1,2,4,8 --arms independent,naive --seeds 0
        murmur reproduce embedded --data two-moons --epochs 30 --out runs/moons
        murmur reproduce landscape --epochs 10 --parts similarity,plane,trade-off
        murmur reproduce landscape --data cifar-10-batches-bin --prepare unit --out runs/landscape
    """
    from murmuration.reports.report import this_command
    from murmuration.runs.locks import locked
    from murmuration.studies.papers import Request, reproduce as reproduce_paper
    from murmuration.system.files import write_bytes

    path = Path(out or f"runs/reproduce-{experiment}")
    lists = {"widths": widths, "models": models, "arms": arms, "seeds": seeds, "parts": parts}
    options: dict[str, Any] = {name: ",".join(listed(texts)) for name, texts in lists.items() if texts is not None}
    options |= {"prepare": prepare, "net": net, "members": members, "ood": ood, "examples": examples}
    request = Request(data, epochs=epochs, **options)
    try:
        with locked(path), counting_bar(experiment, quiet=as_json) as show:
            outcome = reproduce_paper(experiment, request, path, show, this_command())
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
