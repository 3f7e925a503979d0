"""`murmur compare`: train several recipes on the same splits and seed, with paired tests and one report."""

from pathlib import Path
from typing import Annotated

import murmuration as mm
import murmuration.cli.options as options
from murmuration.cli.console import CONTINUES, NOTHING_WRITTEN, Interrupted, say
from murmuration.cli.evaluate import require_corruptions, suite_of


def compare(
    *,
    data: options.DataSource = "digits",
    recipes: Annotated[
        options.Names, options.documented("Recipe", "LIST"), options.Checked(options.check_recipes)
    ] = None,
    baselines: Annotated[options.Names, options.documented("Recipe", "LIST")] = None,
    seeds: Annotated[options.Names, options.documented("Training", "LIST")] = None,
    out: Annotated[str | None, options.documented("Options", "DIR")] = None,
    net: options.NetName = None,
    reading: options.ReadingOptions,
    plan: options.TrainingOptions,
    trust: options.PostHocOptions,
    shift: options.ShiftOptions,
    objective: options.LossOptions,
    checkpoint_seconds: options.CheckpointSeconds = options.CHECKPOINT_SECONDS,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
    help_all: options.HelpAll = False,
) -> None:
    """Train several recipes on the same splits and compare their scores.

    Train several recipes on the same splits with the same seed and test which differences are significant (paired
    tests). With one seed these are differences between the trained networks; --seeds compares the methods, by means
    over training seeds. Each recipe is a run in a sub-directory of --out. Interrupted, the same command continues;
    with further --seeds it trains these alone and writes the report again.
    results.json holds the output of --json.

    Args:
        data: The data.
        recipes: See `murmur list recipes`; single,deep-ensemble if left out. Answers and a number of members may follow
            a colon: forde:members=10.
        baselines: Models to compare with, see `murmur list models`, or none; if left out, ridge or logistic and
            hist-gradient-boosting for a table.
        seeds: Training seeds, such as 0,1,2; every recipe is trained with each.
        out: Directory; runs/<data>-compare-<n> if left out.
        net: The network of all recipes.
        reading: How the data is read.
        plan: Settings of training.
        trust: Calibration, conformal sets and abstention.
        shift: Corrupted and out-of-distribution inputs.
        objective: The likelihood.
        checkpoint_seconds: Seconds between checkpoints.
        as_json: Whether to print JSON.
        verbose: Whether to print details.
        help_all: Whether to show the help of all options.

    Examples:
        murmur compare digits --recipes single,deep-ensemble
        murmur compare prices.csv --target price --members 10 --out runs/prices
        murmur compare digits --recipes single,deep-ensemble --corruptions
        murmur compare digits --recipes single,deep-ensemble --seeds 0,1,2
        murmur compare digits --recipes deep-ensemble:members=3,deep-ensemble:coupling=outputs
        murmur compare prices.csv --target price --recipes deep-ensemble,mixed --baselines random-forest
    """
    from murmuration.cli.results import show_results
    from murmuration.cli.training import new_run_path
    from murmuration.core.recipe import parse_recipe
    from murmuration.evaluation import eval_set_of
    from murmuration.reports.comparison import RECIPES, REPORT, SETTINGS

    parsed = [parse_recipe(text) for text in options.split_recipes(recipes) or RECIPES]
    settings = plan.settings(trust.config())
    models, numbers = options.listed(baselines), options.seed_list(seeds)
    path = Path(out) if out else new_run_path(data, "compare")
    opened = reading.open(data, path, quiet=as_json)
    require_corruptions(shift)
    settings |= {"checkpoint_seconds": checkpoint_seconds, "progress": not as_json, **objective.settings()}
    settings |= {"baselines": () if models == ["none"] else models or None, "ood": options.listed(shift.ood)}
    settings |= {"seeds": numbers}
    suite = suite_of(shift, eval_set_of(opened, validation=True)) if shift.wanted else None
    try:
        comparison = mm.compare(opened, parsed, net=options.network(net), shift=suite, out=path, **settings)
    except KeyboardInterrupt:
        raise Interrupted(CONTINUES if (path / SETTINGS).exists() else NOTHING_WRITTEN) from None
    show_results(comparison.evaluations, comparison.to_json(), as_json=as_json, seeds=comparison.summary.seeds)
    if not as_json:
        say(f"report: {path / REPORT}")
