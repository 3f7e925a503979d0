"""`murmur compare`: train several recipes on the same splits and seed, with paired tests and one report."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import murmuration.cli.options as options
from murmuration.cli.console import CONTINUES, NOTHING_WRITTEN, Interrupted, help_text
from murmuration.cli.evaluate import shift_request
from murmuration.cli.results import show_results
from murmuration.cli.train import Link, Loss, NetName, NoiseStd
from murmuration.system.errors import Misuse
from murmuration.system.progress import counting_bar

if TYPE_CHECKING:
    from murmuration.cli.training import TrainingRequest
    from murmuration.core.recipe import Recipe
    from murmuration.data import Data
    from murmuration.evaluation import EvalSet, Evaluation
    from murmuration.prediction.ensemble import Ensemble

SETTINGS, RESULTS, REPORT = "compare.json", "results.json", "report.html"

HELP = help_text(
    "Train several recipes on the same splits with the same seed and test which differences are significant (paired "
    "tests). Each recipe is a run in a sub-directory of --out. Interrupted, the same command continues. results.json "
    "holds the output of --json.",
    "murmur compare digits --recipes single,deep-ensemble",
    "murmur compare prices.csv --target price --members 10 --out runs/prices",
    "murmur compare digits --recipes single,deep-ensemble --corruptions",
    "murmur compare digits --recipes deep-ensemble:members=3,deep-ensemble:coupling=outputs",
    "murmur compare prices.csv --target price --recipes deep-ensemble,mixed --baselines random-forest",
)


@options.grouped
def compare(
    *,
    data: options.DataSource = "digits",
    recipes: Annotated[
        options.Names,
        options.option(
            "See `murmur list recipes`; single,deep-ensemble if left out. Answers and a number of members may follow a "
            "colon: forde:members=10.",
            "Recipe",
            "LIST",
        ),
    ] = None,
    baselines: Annotated[
        options.Names,
        options.option(
            "Models to compare with, see `murmur list models`, or none; if left out, ridge or logistic and "
            "hist-gradient-boosting for a table.",
            "Recipe",
            "LIST",
        ),
    ] = None,
    out: Annotated[
        str | None, options.option("Directory; runs/<data>-compare-<n> if left out.", "Options", "DIR")
    ] = None,
    net: NetName = None,
    reading: options.DataOptions,
    plan: options.TrainingOptions,
    trust: options.PostHocOptions,
    shift: options.ShiftOptions,
    noise_std: NoiseStd = None,
    link: Link = None,
    loss: Loss = None,
    checkpoint_seconds: options.CheckpointSeconds = options.CHECKPOINT_SECONDS,
    as_json: options.Json = False,
) -> None:
    """Train several recipes on the same splits and compare their scores."""
    from murmuration.cli.training import TrainingRequest, file_name, new_run_path
    from murmuration.evaluation import eval_set_of

    chosen, settings = chosen_recipes(recipes), plan.plan(trust.config())
    path = Path(out) if out else new_run_path(data, "compare")
    opened, fill = reading.open(data, path, quiet=as_json), partial(plan.plan, trust.config())
    given: dict[str, Any] = {"loss": loss, "fill": fill, "checkpoint_seconds": checkpoint_seconds}
    request = TrainingRequest(opened, settings, options.network(net), noise_std, link, **given)
    eval_set = eval_set_of(opened, validation=True)
    shift_settings = shift_request(shift, eval_set)
    models = chosen_baselines(baselines, opened)
    if len(chosen) + len(models) < 2:
        raise Misuse(f"--recipes {chosen[0].name} alone: need two names, such as single,deep-ensemble, or --baselines")
    with comparison_directory(path, comparison_settings(request, chosen, models)):
        ensembles = {
            each.name: train_or_resume(request, each, path / file_name(each.name), quiet=as_json) for each in chosen
        }
        ensembles |= {f"{name} (baseline)": fit_or_load(request, name, path, quiet=as_json) for name in models}
        evaluations = evaluated(eval_set, ensembles, shift_settings, quiet=as_json)
        record = write_results(path, request, evaluations)
    show_results(evaluations, record, as_json=as_json)
    if not as_json:
        print(f"report: {path / REPORT}")


def chosen_recipes(given: options.Names) -> list["Recipe"]:
    """The recipes that --recipes names, each once."""
    from murmuration.cli.training import file_name

    names = options.split_recipes(given) or ["single", "deep-ensemble"]
    files = [file_name(name) for name in names]
    repeated = [name for name, file in zip(names, files, strict=True) if files.count(file) > 1]
    if repeated:
        raise Misuse(f"--recipes names '{repeated[0]}' twice: write each once")
    return [options.parse_recipe(name) for name in names]


def chosen_baselines(given: options.Names, data: "Data") -> list[str]:
    """The models that --baselines names, each once; by default those of a table, if they can be stored."""
    import importlib.util

    from murmuration.data.preparation import TablePreparation
    from murmuration.models.estimators.table import BASELINES, check_model, models_for

    names = list(dict.fromkeys(options.listed(given)))
    if names == ["none"]:
        return []
    if not names and isinstance(data.preparation, TablePreparation) and importlib.util.find_spec("skops"):
        return list(models_for(BASELINES, data.task))
    for name in names:
        check_model(name, data.task)
    return names


def fit_or_load(request: "TrainingRequest", name: str, path: Path, *, quiet: bool) -> "Ensemble":
    """The ensemble of a baseline, a run in the directory of the comparison: loaded if it is there, else fitted."""
    from murmuration.cli.training import file_name, load_run
    from murmuration.training.fitting import fit

    run = path / file_name(f"{name} (baseline)")
    if is_begun(run):
        with repair_hint(run):
            return load_run(run)
    if not quiet:
        print(f"{name}: fitting")
    return fit(name, request.data, noise_std=request.noise_std, plan=replace(request.plan, members=1), out=run)


def comparison_settings(
    request: "TrainingRequest", recipes: list["Recipe"], baselines: list[str] | None = None
) -> dict[str, Any]:
    """What must be the same when a comparison is continued."""
    return {
        "baselines": baselines or [],
        "recipes": [recipe.to_json() for recipe in recipes],
        "plan": {**request.plan.to_json(), "augment": list(request.plan.augment)},
        "net": request.net if isinstance(request.net, str | None) else request.net.__qualname__,
        "noise_std": request.noise_std,
        "link": request.link,
        "loss": request.loss,
        "data": {"source": request.data.source, "fingerprint": request.data.fingerprint},
    }


@contextmanager
def comparison_directory(path: Path, settings: dict[str, Any]) -> Iterator[None]:
    """Hold the directory for this comparison: new, or begun by the same settings. One that never began is removed."""
    from murmuration.cli.training import file_name
    from murmuration.runs.directory import locked, require_free
    from murmuration.runs.locks import holders
    from murmuration.system.errors import Failure
    from murmuration.system.files import read_record, write_record

    parts = [file_name(recipe["name"]) for recipe in settings["recipes"]]
    if not (path / SETTINGS).exists() and any((path / part / "run.json").exists() for part in parts):
        lost = f"{path / SETTINGS} is missing, and {path} holds runs of these recipes"
        raise Failure(f"{lost}: restore it, or choose another --out and compare anew")
    if not holders(path) and not (path / SETTINGS).exists():
        require_free(path)  # a directory of others is not even locked
    with locked(path):
        if (path / SETTINGS).exists():
            require_same_settings(path, read_record(path / SETTINGS), settings)
        else:
            require_free(path)
        try:
            write_record(path / SETTINGS, settings)
            yield
        except BaseException as error:
            begun = any(path.glob("*/run.json"))
            if not begun:
                (path / SETTINGS).unlink(missing_ok=True)
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(CONTINUES if begun else NOTHING_WRITTEN) from None
            raise


def is_begun(path: Path) -> bool:
    """Whether the run of a recipe was begun; one that has lost its manifest since is refused by whoever reads it."""
    from murmuration.runs.directory import has_lost_manifest

    return (path / "run.json").exists() or has_lost_manifest(path)


@contextmanager
def repair_hint(path: Path) -> Iterator[None]:
    """Damage of one run of a comparison: the line says how to train that run again."""
    from murmuration.system.errors import Failure
    from murmuration.system.files import DAMAGED

    try:
        yield
    except Failure as error:
        if not str(error).endswith(DAMAGED):
            raise
        raise Failure(f"{error}; remove {path} and repeat the command to train it again") from None


def require_same_settings(path: Path, before: Any, now: dict[str, Any]) -> None:
    """Refuse to continue a comparison with other settings."""
    import json

    wanted = json.loads(json.dumps(now))
    differing = [key for key in wanted if not isinstance(before, dict) or before.get(key) != wanted[key]]
    if not differing:
        return
    kind = differing[0]
    if kind == "plan" and isinstance(before.get("plan"), dict):
        kind = next((key for key, value in wanted["plan"].items() if before["plan"].get(key) != value), kind)
    raise Misuse(
        f"{path} holds a comparison with other settings ({kind} differs): repeat them, or choose another --out"
    )


def train_or_resume(request: "TrainingRequest", recipe: "Recipe", path: Path, *, quiet: bool) -> "Ensemble":
    """The ensemble of one recipe: loaded if it is finished, continued if it was begun, else trained."""
    from murmuration.cli.training import resume_run, train_run

    if is_begun(path):
        own = None if isinstance(request.net, str) else request.net
        every = request.checkpoint_seconds
        with repair_hint(path):
            return resume_run(path, request.data, quiet=quiet, net=own, checkpoint_seconds=every)
    asked, members = request.plan.members, recipe.members or request.plan.members
    if asked not in (0, members) and not quiet:
        print(f"{recipe.name} has members={members}: --members {asked} is for recipes without a number of their own")
    return train_run(replace(request, plan=replace(request.plan, members=members)), recipe, path, quiet=quiet)


def evaluated(
    eval_set: "EvalSet", ensembles: dict[str, "Ensemble"], settings: tuple[Any, Any], *, quiet: bool
) -> list["Evaluation"]:
    """The evaluations of all recipes on the one test split, under the same corruptions and on the same OOD inputs."""
    from murmuration.evaluation import evaluate_on

    (suite, foreign), found = settings, []
    for name, ensemble in ensembles.items():
        with counting_bar(f"{name} under shift", quiet or suite is None) as progress:
            found.append(evaluate_on(ensemble, eval_set, name, suite, foreign, progress))
    return found


def write_results(path: Path, request: "TrainingRequest", evaluations: list["Evaluation"]) -> dict[str, Any]:
    """The record of the comparison, written with the report into its directory."""
    from murmuration.cli.training import file_name
    from murmuration.reports import render
    from murmuration.reports.findings import differences
    from murmuration.reports.report import report_of, this_command
    from murmuration.system.files import json_numbers, write_bytes, write_json
    from murmuration.training.fitting import versions

    tests = differences(evaluations)
    report = report_of(evaluations, tests, command=this_command())
    record = {
        "data": {"name": request.data.name, "task": request.data.task, "fingerprint": request.data.fingerprint},
        "seed": request.plan.seed,
        "results": {each.name: {**each.to_json(), "run": str(path / file_name(each.name))} for each in evaluations},
        "tests": tests,
        "verdict": list(report.verdict),
        "notes": list(report.notes),
        "report": str(path / REPORT),
        "versions": versions(),
        "command": this_command(),
    }
    write_json(path / RESULTS, json_numbers(record))
    write_bytes(path / REPORT, render(report).encode())
    return record
