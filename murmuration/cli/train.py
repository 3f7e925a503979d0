"""`murmur train`: an ensemble from data, in a run directory."""

from pathlib import Path
from typing import Annotated

import typer

from murmuration.cli.options import (
    AnswerOptions,
    DataOptions,
    DataSource,
    Json,
    PlanOptions,
    TrustOptions,
    grouped,
    option,
)
from murmuration.cli.screen import help_text

HELP = help_text(
    "Train an ensemble, calibrate it on the validation split, evaluate it on the test split, and leave a run directory "
    "with its members, post-hoc steps, scores and a report. A killed run goes on with `murmur resume`.",
    "murmur train",
    "murmur train digits --net small-cnn --members 10 --epochs 30 --out runs/x",
    "murmur train prices.csv --target price --net mlp --patience 10",
    "murmur train cifar-10-batches-bin --net resnet20 --augment pad-crop,flip",
)

NetName = Annotated[str | None, option("See `murmur list nets`; chosen by the data if left out.", "Recipe", "NAME")]
NoiseStd = Annotated[
    float | None, option("Known noise of a regression target; learned if left out.", "Training", "X", "--noise-std")
]
Link = Annotated[
    str | None, option("What makes probabilities of outputs: softmax or softplus (flatter).", "Training", "NAME")
]


@grouped
def train(
    *,
    data: DataSource = "digits",
    out: Annotated[
        str | None, typer.Option(help="Run directory; runs/<data>-<recipe>-<n> if left out.", metavar="DIR")
    ] = None,
    recipe: Annotated[str, option("See `murmur list recipes`.", "Recipe", "NAME")] = "deep-ensemble",
    net: NetName = None,
    answers: AnswerOptions,
    reading: DataOptions,
    plan: PlanOptions,
    trust: TrustOptions,
    noise_std: NoiseStd = None,
    link: Link = None,
    as_json: Json = False,
) -> None:
    """Train an ensemble, evaluate it, and leave a run directory."""
    from murmuration.cli.results import finish_run
    from murmuration.cli.training import Order, free_path, resumable, train_run
    from murmuration.runs import require_free

    chosen, settings = answers.recipe(recipe), plan.plan(trust.config())
    path = Path(out) if out else free_path(data, chosen.name)
    require_free(path)
    opened = reading.open(data)
    with resumable(path):
        ensemble = train_run(Order(opened, settings, net, noise_std, link), chosen, path, quiet=as_json)
        finish_run(path, ensemble, opened, as_json=as_json)
