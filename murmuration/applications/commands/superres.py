"""`murmur superres train` and `murmur superres apply`: super-resolution with a standard deviation for every pixel."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murmuration.applications.commands.results import leave_page
from murmuration.cli.console import Interrupted, PlainCommand, PlainGroup, print_json, print_table
from murmuration.cli.options import CheckpointSeconds, Device, Json, Precision, RunDevice, RunPath, grouped, option
from murmuration.system.interrupts import CHECKPOINT_SECONDS
from murmuration.system.progress import counting_bar, training_bar

if TYPE_CHECKING:
    from murmuration.prediction.ensemble import Ensemble

NUMBERS = "numbers.json"
# Default weights of the recipe bayes. Random biases would make every flat patch uncertain, and a step with `local`
# takes twice as long.
WEIGHTS = "gaussian:estimator=draw,beta=1,bias=point"

app = typer.Typer(rich_markup_mode="rich", no_args_is_help=False, cls=PlainGroup)


@app.callback()
def superres() -> None:
    """Image super-resolution, with standard deviations over draws.

    Super-resolution: upscale images, with a standard deviation for every pixel.

    Examples:
        murmur superres train --out runs/sr
        murmur superres apply runs/sr photo.png --out larger
    """


@dataclass(frozen=True)
class PatchOptions:
    """Patches of photographs to train on."""

    scale: Annotated[int, option("Upscaling factor: 2, 3 or 4.", "Data", "N")] = 2
    patches: Annotated[int, option("Training patches.", "Data", "N")] = 4000
    size: Annotated[int, option("Side of the small patches, in pixels.", "Data", "N")] = 20


@dataclass(frozen=True)
class LearningOptions:
    """Training settings; fewer epochs and a lower learning rate than for classification."""

    members: Annotated[
        int | None, option("Number of ensemble members; that of the recipe, or 5, if left out.", "Training", "N")
    ] = None
    epochs: Annotated[int, option("Epochs.", "Training", "N")] = 10
    lr: Annotated[float, option("Learning rate.", "Training", "X")] = 1e-3
    seed: Annotated[int, option("Random seed.", "Training", "N")] = 0
    device: Device = "cpu"
    precision: Precision = "float32"


@app.command("train", cls=PlainCommand)
@grouped
def train(
    *,
    folder: Annotated[
        str | None, typer.Argument(help="Photographs, or folders train, val and test of them.", metavar="FOLDER")
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Run directory; runs/superres-<recipe>-<n> if left out.", metavar="DIR")
    ] = None,
    recipe: Annotated[str, option("See `murmur list recipes`.", "Recipe", "NAME")] = "bayes",
    weights: Annotated[str | None, option("Weight model; see `murmur list weights`.", "Recipe", "ANSWER")] = None,
    net: Annotated[str, option("subpixel or subpixel-plain.", "Recipe", "NAME")] = "subpixel",
    cutting: PatchOptions,
    learning: LearningOptions,
    noise_std: Annotated[
        float, option("Standard deviation of the noise of a pixel; white is 1.", "Training", "X")
    ] = 0.02,
    checkpoint_seconds: CheckpointSeconds = CHECKPOINT_SECONDS,
    as_json: Json = False,
) -> None:
    """Train a network that upscales images, and evaluate it.

    Train a network that upscales images, evaluate it on whole test photographs beside bicubic interpolation, and write
    a run with a report. Without a folder it trains on photographs that scikit-learn and scikit-image ship. Needs the
    extra images. An interrupted run continues with `murmur resume`.

    Examples:
        murmur superres train --out runs/sr
        murmur superres train my-photos --scale 3
        murmur superres train --recipe single
    """
    from murmuration.applications.superres import Patches, open_patches, train as train_superres
    from murmuration.applications.superres.training import check_net
    from murmuration.cli.training import new_run_path, with_resume_hint
    from murmuration.core.recipe import make_recipe
    from murmuration.runs.directory import new_run
    from murmuration.training.plan import Plan

    built_recipe = make_recipe(recipe, weights=weights or (WEIGHTS if recipe == "bayes" else None))
    check_net(net)
    path = Path(out) if out else new_run_path("superres", built_recipe.name)
    with with_resume_hint(path), new_run(path):
        data = open_patches(Patches(cutting.scale, cutting.size, cutting.patches, learning.seed, folder or ""))
        with training_bar(learning.epochs, as_json, built_recipe.name) as show:
            plan = Plan(**{**asdict(learning), "members": learning.members or 0})
            more: dict[str, Any] = {"out": path, "progress": show, "checkpoint_seconds": checkpoint_seconds}
            ensemble = train_superres(data, net=net, noise_std=noise_std, recipe=built_recipe, plan=plan, **more)
        close_superres(path, ensemble, as_json=as_json)


def close_superres(path: Path, ensemble: "Ensemble", *, as_json: bool) -> None:
    """Evaluate a run on its test photographs, and write scores and a report."""
    from murmuration.applications.superres.evaluation import evaluate, mean_scores
    from murmuration.applications.superres.page import SCORE_COLUMNS, score_rows, sentences, superres_page

    with counting_bar("evaluating", quiet=as_json) as show:
        scores = evaluate(ensemble, show=show)
    photographs = [photograph.to_json() for photograph in scores]
    record = {"run": str(path), "mean": mean_scores(scores), "photographs": photographs}
    page = superres_page(scores, f"{path} · {ensemble.recipe.name} · {len(scores)} photographs")
    table = "test photographs", SCORE_COLUMNS, score_rows(scores)
    leave_page(path, record, page, table, sentences(scores), as_json=as_json)


@app.command("apply", cls=PlainCommand)
def apply(
    run: RunPath,
    images: Annotated[list[str], typer.Argument(help="Image files.", metavar="IMAGE...")],
    out: Annotated[str, typer.Option(help="A new directory.", metavar="DIR")],
    draws: Annotated[
        int | None, option("Draws of the weights; as the recipe says if left out.", "Options", "N")
    ] = None,
    device: RunDevice = None,
    as_json: Json = False,
) -> None:
    """Upscale images, with maps of their standard deviations.

    Upscale images: for each a PNG and a map of its standard deviations over draws of the weights, and one file
    numbers.json with sizes and standard deviations (white_std is the white of the map). Luma is the network's, chroma
    is bicubic.

    Examples:
        murmur superres apply runs/sr photo.png --out larger
        murmur superres apply runs/sr *.jpg --out larger-50 --draws 50
    """
    from murmuration.applications.superres import upscale_files
    from murmuration.cli.training import load_run
    from murmuration.runs.directory import require_free
    from murmuration.system.files import write_json

    require_free(place := Path(out))
    ensemble = load_run(Path(run), posthoc=False, device=device)
    try:
        with counting_bar("upscaling", quiet=as_json) as show:
            numbers = upscale_files(ensemble, images, place, draws=draws, show=show)
    except KeyboardInterrupt:
        raise Interrupted(f"what is finished is in {place}") from None
    record: dict[str, Any] = {"run": run, "images": numbers}
    write_json(place / NUMBERS, record)
    if as_json:
        return print_json(record)
    line = "{upscaled}|{upscaled_width}x{upscaled_height}|{std[mean]:.4f}|{white_std:.4f}"
    rows = [line.format_map(row).rsplit("|", 3) for row in numbers]
    print_table(["", "pixels", "mean std", "white in the map"], rows, title=f"in {place}")
