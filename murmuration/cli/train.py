"""`murmur train`: train, calibrate and evaluate an ensemble."""

import os
from pathlib import Path
from typing import Annotated

import typer

import murmuration as mm
import murmuration.cli.options as options
from murmuration.cli.console import say
from murmuration.system.errors import Misuse


def train(
    *,
    data: options.DataSource = "digits",
    out: Annotated[str | None, typer.Option(metavar="DIR")] = None,
    recipe: Annotated[
        str, options.documented("Recipe", "NAME"), options.Checked(options.check_recipe)
    ] = "deep-ensemble",
    net: options.NetName = None,
    answers: options.RecipeOptions,
    reading: options.ReadingOptions,
    plan: options.TrainingOptions,
    folds: Annotated[int | None, options.documented("Training", "N")] = None,
    trust: options.PostHocOptions,
    objective: options.LossOptions,
    init_from: Annotated[str | None, options.documented("Training", "RUN|FILE")] = None,
    reset: Annotated[options.Names, options.documented("Training", "PATTERN")] = None,
    pretrained: Annotated[str | None, options.documented("Training", "yes|FILE")] = None,
    checkpoint_seconds: options.CheckpointSeconds = options.CHECKPOINT_SECONDS,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
    help_all: options.HelpAll = False,
) -> None:
    """Train, calibrate and evaluate an ensemble.

    Train an ensemble and write a run directory: members, scores and a report. On the validation split it also fits
    calibration (temperature scaling), conformal prediction sets of a given coverage and an abstention rule; the report
    on the test split separates aleatoric from epistemic uncertainty. --patience is early stopping. A run that was
    interrupted continues with `murmur resume`.

    Args:
        data: The data.
        out: Run directory; runs/<data>-<recipe>-<n> if left out.
        recipe: Method; see `murmur list recipes`.
        net: The network.
        answers: Answers that replace those of the recipe.
        reading: How the data is read.
        plan: Settings of training.
        folds: Cross-fitting: number of folds of the training and validation examples. For each fold, --members are
            trained on the other folds; their predictions for it calibrate.
        trust: Calibration, conformal sets and abstention.
        objective: The likelihood.
        init_from: Initial weights instead of random ones: a run directory (members in order) or a .safetensors file.
        reset: Parts that --init-from leaves random, such as head; a list for several.
        pretrained: Published weights to start from, with random heads: yes (of an installed package), or a file of
            them.
        checkpoint_seconds: Seconds between checkpoints.
        as_json: Whether to print JSON.
        verbose: Whether to print details.
        help_all: Whether to show the help of all options.

    Examples:
        murmur train
        murmur train digits --net small-cnn --members 10 --epochs 30 --out runs/digits
        murmur train prices.csv --target price --net mlp --patience 10
        murmur train cifar-10-batches-bin --net resnet20 --augment pad-crop,flip
        murmur train photos --features efficientnet-lite0 --members 10
        torchrun --nproc-per-node 2 -m murmuration train digits --members 10 --out runs/two-processes
    """
    from murmuration.cli.results import finish_run
    from murmuration.cli.training import new_run_path, with_resume_hint
    from murmuration.runs.directory import locked, new_run
    from murmuration.runs.processes import continues, from_first, is_first

    parsed, settings = answers.recipe(recipe), plan.settings(trust.config())
    if not out and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")):
        raise Misuse("torchrun --max-restarts without out=...: a run that is started again is found by its directory")
    path = Path(from_first(str(out or new_run_path(data, parsed.name))))
    hold, quiet = locked if continues(path) else new_run, as_json or not is_first()
    with with_resume_hint(path, reading.features is not None), hold(path if is_first() else None):
        opened = reading.open(data, path, quiet=quiet)
        if not quiet:
            say(about_data(opened, folds))
        settings |= {"folds": folds, "checkpoint_seconds": checkpoint_seconds, **objective.settings()}
        settings |= {"init_from": init_from, "reset": tuple(options.listed(reset))}
        settings |= {"pretrained": True if pretrained == "yes" else pretrained or False}
        ensemble = mm.fit(options.network(net), opened, recipe=parsed, out=path, progress=not quiet, **settings)
        if is_first():
            finish_run(path, ensemble, opened, as_json=as_json)


def about_data(data: "mm.Data", folds: int | None) -> str:
    """Describe the task and the splits: integers may be classes or numbers, and --task decides."""
    named = ", ".join(getattr(data.preparation, "targets", ()))
    task = f"{data.task} of {named}" if named else data.task
    classes = f" ({len(data.classes)} classes)" if data.classes else ""
    sizes = ", ".join(f"{len(getattr(data, part)):,} {part}" for part in ("train", "val", "test"))
    if folds is not None:
        sizes = f"{len(data.train) + len(data.val):,} in {folds} folds, {len(data.test):,} test"
    return f"{data.name}: {task}{classes}; {sizes}"
