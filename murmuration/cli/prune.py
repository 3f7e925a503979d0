"""`murmur prune`: a trained run with fewer weights, as a run of its own."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from murmuration.cli.options import Json, RunPath, grouped, option
from murmuration.cli.screen import counting_bar, help_text, say, say_table, training_bar

if TYPE_CHECKING:
    from murmuration.applications.pruning import Pruning
    from murmuration.ensemble import Ensemble

HELP = help_text(
    "Leave weights out of a trained run, and write what is left as a new run with its scores and a report. "
    "Weights go by the magnitude of their means, or where they are distributions by their signal-to-noise ratio "
    "(snr) or by log-alpha; down to a sparsity, or by a threshold. Without either, the validation examples choose "
    "the largest sparsity at which accuracy falls by no more than --tolerance. Pruned weights stay zero through "
    "fine-tuning and whatever comes later. The test split decides nothing.",
    "murmur prune runs/x --sparsity 0.8 --out runs/x-80",
    "murmur prune runs/x --rule snr --tolerance 0.005 --finetune 5",
    "murmur prune runs/x --rule log-alpha",
    "murmur prune runs/x --structured --sparsity 0.5 --compact --finetune 5",
)


@dataclass(frozen=True)
class LineOptions:
    """Where the line is drawn; the fields of `Pruning`."""

    rule: Annotated[str, option("magnitude, snr or log-alpha.", "Pruning", "NAME")] = "magnitude"
    sparsity: Annotated[float | None, option("The share of weights, or of channels, that goes.", "Pruning", "X")] = None
    threshold: Annotated[
        float | None, option("Weights go at or below it; of log-alpha at or above, 3 if left out.", "Pruning", "X")
    ] = None
    scope: Annotated[
        str | None,
        option("One line through all layers (global), or one a layer; usual for channels.", "Pruning", "WHERE"),
    ] = None
    structured: Annotated[
        bool, typer.Option("--structured", help="Take whole channels.", rich_help_panel="Pruning")
    ] = False

    def pruning(self) -> "Pruning":
        """What goes, checked as far as it can be without a run."""
        from murmuration.applications.pruning import Pruning

        return Pruning(self.rule, self.sparsity, self.threshold, self.scope, self.structured)


Tolerance = Annotated[
    float,
    option("Accuracy that may be lost, or the part that RMSE may grow by; for choosing.", "Pruning", "X"),
]
Compact = Annotated[
    bool,
    typer.Option("--compact", help="Take removed channels out of the network.", rich_help_panel="Pruning"),
]


@grouped
def prune(
    *,
    run: RunPath,
    out: Annotated[str | None, typer.Option(help="Run directory; RUN-pruned-<n> if left out.", metavar="DIR")] = None,
    line: LineOptions,
    tolerance: Tolerance = 0.01,
    compact: Compact = False,
    finetune: Annotated[int, option("Epochs of further training by the run's own recipe.", "Training", "N")] = 0,
    lr: Annotated[float | None, option("Learning rate then; the run's own if left out.", "Training", "X")] = None,
    as_json: Json = False,
) -> None:
    """Leave weights out of a run, and evaluate what is left."""
    from murmuration.applications.pruning import check_request, plan_pruning
    from murmuration.applications.pruning import prune as carry_out
    from murmuration.cli.results import leave_results
    from murmuration.cli.training import manifest_of, resumable
    from murmuration.evaluation import evaluate_ensemble
    from murmuration.runs import require_free

    pruning, path = line.pruning(), Path(out) if out else free_path(Path(run))
    check_request(pruning, finetune=finetune, lr=lr, compact=compact)
    require_free(path)
    manifest_of(Path(run))
    with counting_bar("pruning", as_json) as show:
        found = plan_pruning(run, pruning, tolerance=tolerance, show=show)
    with resumable(path):
        with training_bar(finetune, as_json, "fine-tuning") as bar:
            ensemble = carry_out(found, path, finetune=finetune, lr=lr, compact=compact, show=bar)
        evaluation = evaluate_ensemble(ensemble, found.data)
        if not as_json:
            show_pruning(ensemble)
        leave_results(path, evaluation, as_json=as_json, pruning=ensemble.manifest["pruning"])


def free_path(run: Path) -> Path:
    """The first directory `<run>-pruned-<n>` that is not there yet."""
    n = 1
    while (path := run.with_name(f"{run.name}-pruned-{n}")).exists():
        n += 1
    return path


def show_pruning(ensemble: "Ensemble") -> None:
    """The curve as a table, then how far it went and what is left."""
    from murmuration.reports.pruning_records import pruned_of
    from murmuration.reports.pruning_section import sentences, table_rows

    found = pruned_of(ensemble.manifest)
    assert found is not None
    columns, rows = table_rows(found)
    if rows:
        say_table(columns, rows, title=f"{found.of} on validation examples, before any fine-tuning")
    for line in sentences(found):
        say(line)
