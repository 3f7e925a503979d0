"""`murmur superres train` and `murmur superres apply`: pictures made larger, with a map of their uncertainty."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murmuration.cli.options import Json, RunPath, grouped, option
from murmuration.cli.screen import Interrupted, counting_bar, help_text, say, say_json, say_table, training_bar

if TYPE_CHECKING:
    from murmuration.ensemble import Ensemble

HELP = help_text(
    "Make pictures larger, and say of every pixel how far it can be trusted.",
    "murmur superres train --out runs/sr",
    "murmur superres apply runs/sr photo.png --out larger",
)
TRAIN_HELP = help_text(
    "Train a network that enlarges pictures, judge it beside bicubic on whole photographs that it never saw, and leave "
    "a run with a page. Without a folder it learns from photographs that scikit-learn and scikit-image carry (needs "
    "the extra images). A killed run goes on with `murmur resume`.",
    "murmur superres train --out runs/sr",
    "murmur superres train my-photographs --scale 3",
    "murmur superres train --recipe single",
)
APPLY_HELP = help_text(
    "Enlarge pictures: for each a PNG, a map of its standard deviations over draws of the weights (white_std in "
    "numbers.json says what white is), and the numbers. Brightness is the network's, colours are bicubic.",
    "murmur superres apply runs/sr photo.png --out larger",
    "murmur superres apply runs/sr *.jpg --out larger --draws 50",
)
NUMBERS = "numbers.json"
# Of the recipe bayes, if nothing else is asked for. Drawn biases would make every flat patch doubtful, and `local`
# costs twice as much a step.
WEIGHTS = "gaussian:estimator=draw,beta=1,bias=point"

Draws = Annotated[int | None, option("Draws of the weights; as the recipe says if left out.", "Options", "N")]

app = typer.Typer(help=HELP, rich_markup_mode="rich", no_args_is_help=False)


@dataclass(frozen=True)
class PatchOptions:
    """What is cut out of photographs."""

    scale: Annotated[int, option("2, 3 or 4 times as wide and high.", "Data", "N")] = 2
    patches: Annotated[int, option("Patches to train on.", "Data", "N")] = 4000
    size: Annotated[int, option("Pixels of a side of the small patches.", "Data", "N")] = 20


@dataclass(frozen=True)
class LearningOptions:
    """How it is learned; fewer passes at a lower rate than for classes."""

    members: Annotated[int, option("How many networks, where the recipe leaves it open.", "Training", "N")] = 5
    epochs: Annotated[int, option("Passes over the patches.", "Training", "N")] = 10
    lr: Annotated[float, option("Learning rate.", "Training", "X")] = 1e-3
    seed: Annotated[int, option("From it follow all random numbers.", "Training", "N")] = 0


@app.command("train", help=TRAIN_HELP, short_help="Train a network that enlarges pictures, and judge it.")
@grouped
def train(
    *,
    folder: Annotated[
        str | None, typer.Argument(help="Photographs, or folders train, val and test of them.", metavar="[FOLDER]")
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Run directory; runs/superres-<recipe>-<n> if left out.", metavar="DIR")
    ] = None,
    recipe: Annotated[str, option("See `murmur list recipes`.", "Recipe", "NAME")] = "bayes",
    weights: Annotated[str | None, option("What a weight is.", "Recipe", "ANSWER")] = None,
    net: Annotated[str, option("subpixel or subpixel-plain.", "Recipe", "NAME")] = "subpixel",
    cutting: PatchOptions,
    learning: LearningOptions,
    noise_std: Annotated[float, option("Noise of a pixel, in parts of white.", "Training", "X")] = 0.02,
    as_json: Json = False,
) -> None:
    """Train a network that enlarges pictures, and judge it."""
    from murmuration.applications.superres import Patches, open_patches
    from murmuration.applications.superres import train as train_superres
    from murmuration.applications.superres.training import check_net
    from murmuration.cli.training import free_path, resumable
    from murmuration.recipe import Plan
    from murmuration.recipe import recipe as recipe_named
    from murmuration.runs import require_free

    chosen = recipe_named(recipe, weights=weights or (WEIGHTS if recipe == "bayes" else None))
    check_net(net)
    path = Path(out) if out else free_path("superres", chosen.name)
    require_free(path)
    data = open_patches(Patches(cutting.scale, cutting.size, cutting.patches, learning.seed, folder or ""))
    with resumable(path):
        with training_bar(learning.epochs, as_json, chosen.name) as show:
            plan = Plan(**asdict(learning))
            ensemble = train_superres(data, net=net, noise_std=noise_std, recipe=chosen, plan=plan, out=path, show=show)
        close_pictures(path, ensemble, as_json=as_json)


def close_pictures(path: Path, ensemble: "Ensemble", *, as_json: bool) -> None:
    """Judge a run on its test photographs, and leave scores and a page."""
    from murmuration.applications.superres.judging import averages, judge
    from murmuration.applications.superres.page import SCORE_COLUMNS, score_rows, superres_page, told
    from murmuration.cli.closing import METRICS, REPORT
    from murmuration.runs import write_bytes, write_json

    with counting_bar("judging", quiet=as_json) as show:
        found = judge(ensemble, show=show)
    record = {"run": str(path), "mean": averages(found), "photographs": [each.to_json() for each in found]}
    write_json(path / METRICS, record)
    subtitle = f"{path} · {ensemble.recipe.name} · {len(found)} photographs"
    page = superres_page(found, title="Pictures made larger", subtitle=subtitle)
    write_bytes(path / REPORT, page.encode())
    if as_json:
        return say_json(record)
    say_table(["", *SCORE_COLUMNS], score_rows(found), title="photographs that were not trained on")
    for sentence in told(found):
        say(f"- {sentence}")
    say(f"report: {path / REPORT}")


@app.command("apply", help=APPLY_HELP, short_help="Enlarge pictures, with a map of their uncertainty.")
def apply(
    run: RunPath,
    pictures: Annotated[list[str], typer.Argument(help="Picture files.", metavar="PICTURE...")],
    out: Annotated[str, typer.Option(help="A new directory.", metavar="DIR")],
    draws: Draws = None,
    as_json: Json = False,
) -> None:
    """Enlarge pictures, with a map of their uncertainty."""
    from murmuration.applications.superres import apply as apply_to
    from murmuration.cli.training import loaded
    from murmuration.runs import require_free, write_json

    place = Path(out)
    require_free(place)
    ensemble = loaded(Path(run), guarded=False)
    try:
        with counting_bar("enlarging", quiet=as_json) as show:
            numbers = apply_to(ensemble, pictures, place, draws=draws, show=show)
    except KeyboardInterrupt:
        raise Interrupted(f"what is finished is in {place}") from None
    record: dict[str, Any] = {"run": run, "pictures": numbers}
    write_json(place / NUMBERS, record)
    if as_json:
        return say_json(record)
    rows = [
        [
            each["enlarged"],
            f"{each['enlarged_width']}x{each['enlarged_height']}",
            f"{each['std']['mean']:.4f}",
            f"{each['white_std']:.4f}",
        ]
        for each in numbers
    ]
    say_table(["", "pixels", "mean std", "white in the map"], rows, title=f"in {place}")
