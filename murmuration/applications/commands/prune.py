"""`murmur prune`: remove weights of a trained run and write the result as a new run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.cli.console import print_table, say
from murmuration.cli.options import CheckpointSeconds, Json, OwnNet, RunDevice, RunPath, grouped, option, switch
from murmuration.system.interrupts import CHECKPOINT_SECONDS
from murmuration.system.progress import counting_bar, training_bar


@dataclass(frozen=True)
class PruningOptions:
    """The fields of `Pruning`."""

    rule: Annotated[str, option("Ranking of weights: magnitude, snr or log-alpha.", "Pruning", "NAME")] = "magnitude"
    sparsity: Annotated[float | None, option("Fraction of weights, or of channels, to remove.", "Pruning", "X")] = None
    threshold: Annotated[
        float | None, option("Remove at or below it; log-alpha: at or above, 3 if left out.", "Pruning", "X")
    ] = None
    scope: Annotated[
        str | None,
        option("Rank over all layers (global) or in each (layer, the default for channels).", "Pruning", "WHERE"),
    ] = None
    structured: Annotated[bool, switch("--structured", "Remove whole channels.", "Pruning")] = False


@grouped
def prune(
    *,
    run: RunPath,
    out: Annotated[str | None, typer.Option(help="Run directory; RUN-pruned-<n> if left out.", metavar="DIR")] = None,
    rules: PruningOptions,
    tolerance: Annotated[
        float, option("Largest loss of accuracy, or relative growth of RMSE, when sparsity is chosen.", "Pruning", "X")
    ] = 0.01,
    compact: Annotated[
        bool, switch("--compact", "Rebuild the network without the removed channels.", "Pruning")
    ] = False,
    net: OwnNet = None,
    finetune: Annotated[int, option("Epochs of fine-tuning with the run's recipe.", "Training", "N")] = 0,
    lr: Annotated[float | None, option("Learning rate of fine-tuning; by default the run's.", "Training", "X")] = None,
    device: RunDevice = None,
    checkpoint_seconds: CheckpointSeconds = CHECKPOINT_SECONDS,
    as_json: Json = False,
) -> None:
    """Prune a run and evaluate the result.

    Prune a trained run and write the result as a new run with its scores and a report. Weights are ranked by the
    magnitude of their means or, if they are Gaussian, by signal-to-noise ratio (snr) or log-alpha, and removed up to a
    sparsity or a threshold. Without either, the largest sparsity is taken at which validation accuracy falls by no more
    than --tolerance. Pruned weights stay zero during fine-tuning. The test split is used for the final evaluation only.

    Examples:
        murmur prune runs/digits --sparsity 0.8 --out runs/digits-80
        murmur prune runs/bayes --rule snr --tolerance 0.005 --finetune 5
        murmur prune runs/bayes --rule log-alpha
        murmur prune runs/bayes --structured --sparsity 0.5 --compact --finetune 5
    """
    from murmuration.applications.pruning import Pruning, check_request, plan_pruning, prune as prune_run
    from murmuration.applications.pruning.section import sentences, table_rows
    from murmuration.cli.options import network
    from murmuration.cli.results import leave_results
    from murmuration.cli.training import derived_run_path, read_manifest, with_resume_hint
    from murmuration.evaluation import evaluate_ensemble
    from murmuration.runs.directory import new_run

    pruning, path = Pruning(**vars(rules)), Path(out) if out else derived_run_path(Path(run), "pruned")
    check_request(pruning, finetune=finetune, lr=lr, compact=compact)
    read_manifest(Path(run))
    with with_resume_hint(path), new_run(path):
        with counting_bar("pruning", as_json) as show:
            planned = plan_pruning(run, pruning, tolerance=tolerance, show=show, net=network(net))
        with training_bar(finetune, as_json, "fine-tuning") as bar:
            more: dict[str, Any] = {"lr": lr, "compact": compact, "checkpoint_seconds": checkpoint_seconds}
            ensemble = prune_run(planned, path, finetune=finetune, device=device, show=bar, **more)
        evaluation = evaluate_ensemble(ensemble, planned.data)
        record = ensemble.manifest.entries["pruning"]
        columns, rows = table_rows(record)
        if rows and not as_json:
            print_table(columns, rows, title=f"{record['of']} on validation examples, before any fine-tuning")
        if not as_json:
            say("\n".join(sentences(record)))
        leave_results(path, evaluation, as_json=as_json)
