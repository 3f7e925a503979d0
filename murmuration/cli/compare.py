"""`murmur compare`: several recipes on the same splits and seeds, one table, one report."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from murmuration.cli.options import (
    DataOptions,
    DataSource,
    Json,
    PlanOptions,
    ShiftOptions,
    TrustOptions,
    grouped,
    listed,
    option,
)
from murmuration.cli.screen import NOTHING_WRITTEN, Interrupted, help_text, say, say_json
from murmuration.cli.train import Link, NetName, NoiseStd
from murmuration.errors import Misuse

if TYPE_CHECKING:
    from murmuration.cli.training import Order
    from murmuration.cli.trust import Trial
    from murmuration.ensemble import Ensemble
    from murmuration.evaluation import Assessment, Exam
    from murmuration.recipe import Recipe
    from murmuration.reports.findings import Difference

REQUEST, RESULTS, REPORT = "compare.json", "results.json", "report.html"

HELP = help_text(
    "Train several recipes on the same splits with the same seed, and say which differences are more than chance. Each "
    "recipe is a run in a sub-directory of --out; killed, the same command goes on where it stood. results.json holds "
    "what --json prints.",
    "murmur compare digits --recipes single,deep-ensemble",
    "murmur compare prices.csv --target price --members 10 --out runs/prices",
    "murmur compare digits --recipes single,deep-ensemble --corruptions",
)


@grouped
def compare(
    *,
    data: DataSource = "digits",
    recipes: Annotated[str, option("Names with commas; see `murmur list recipes`.", "Recipe", "LIST")] = (
        "single,deep-ensemble"
    ),
    out: Annotated[str | None, option("Directory; runs/<data>-compare-<n> if left out.", "Options", "DIR")] = None,
    net: NetName = None,
    reading: DataOptions,
    plan: PlanOptions,
    trust: TrustOptions,
    shift: ShiftOptions,
    noise_std: NoiseStd = None,
    link: Link = None,
    as_json: Json = False,
) -> None:
    """Train several recipes on the same splits and compare them."""
    from murmuration.cli.training import Order, free_path
    from murmuration.cli.trust import trial_of
    from murmuration.evaluation import exam_of

    chosen, settings = chosen_recipes(recipes), plan.plan(trust.config())
    path = Path(out) if out else free_path(data, "compare")
    opened = reading.open(data)
    order, exam = Order(opened, settings, net, noise_std, link), exam_of(opened)
    trial = trial_of(shift, exam)
    with taken(path, request_of(order, chosen)):
        ensembles = {each.name: run_of(order, each, path / each.name, quiet=as_json) for each in chosen}
        assessments = assessed(exam, ensembles, trial, quiet=as_json)
        tests, record = results(path, order, assessments)
    if as_json:
        return say_json(record)
    show(path, assessments, tests, record)


def chosen_recipes(text: str) -> list["Recipe"]:
    """The recipes of a list with commas, each once."""
    from murmuration.recipe import recipe

    names = listed(text)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise Misuse(f"--recipes names '{repeated[0]}' twice: write each once")
    if len(names) < 2:
        raise Misuse(f"--recipes '{text}': need at least two names, such as single,deep-ensemble")
    return [recipe(name) for name in names]


def request_of(order: "Order", recipes: list["Recipe"]) -> dict[str, Any]:
    """What must be the same when a comparison is continued."""
    return {
        "recipes": [recipe.to_json() for recipe in recipes],
        "plan": {**order.plan.to_json(), "augment": list(order.plan.augment)},
        "net": order.net,
        "noise_std": order.noise_std,
        "link": order.link,
        "data": {"source": order.data.source, "fingerprint": order.data.fingerprint},
    }


@contextmanager
def taken(path: Path, request: dict[str, Any]) -> Iterator[None]:
    """The directory is this comparison's: new, or begun by the same request. One that never began is removed again."""
    from murmuration.runs import read_json, require_free, write_json

    if (path / REQUEST).exists():
        require_same(path, read_json(path / REQUEST), request)
    else:
        require_free(path)
    made = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / REQUEST, request)
        yield
    except BaseException as error:
        begun = any(path.glob("*/run.json"))
        if not begun:
            (path / REQUEST).unlink(missing_ok=True)
            for directory in made:
                shutil.rmtree(directory, ignore_errors=True)
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted("the same command goes on where it stood" if begun else NOTHING_WRITTEN) from None
        raise


def require_same(path: Path, before: Any, now: dict[str, Any]) -> None:
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


def run_of(order: "Order", recipe: "Recipe", path: Path, *, quiet: bool) -> "Ensemble":
    """The ensemble of one recipe: loaded if it is finished, continued if it was begun, else trained."""
    from murmuration.cli.training import resume_run, train_run

    if (path / "run.json").exists():
        return resume_run(path, order.data, quiet=quiet)
    return train_run(order, recipe, path, quiet=quiet)


def assessed(exam: "Exam", ensembles: dict[str, "Ensemble"], trial: "Trial", *, quiet: bool) -> list["Assessment"]:
    """The assessments of all recipes on the one test split, and in the one trial."""
    from murmuration.cli.trust import tried
    from murmuration.evaluation import assess

    return [tried(assess(ensemble, exam, name), trial, quiet=quiet) for name, ensemble in ensembles.items()]


def results(path: Path, order: "Order", assessments: list["Assessment"]) -> tuple[list["Difference"], dict[str, Any]]:
    """The paired tests and the record of the comparison, both written with the report into its directory."""
    from murmuration.provenance import versions
    from murmuration.reports import render
    from murmuration.reports.bridge import report_of, this_command
    from murmuration.reports.findings import differences
    from murmuration.runs import finite, write_bytes, write_json

    tests = differences(assessments)
    report = report_of(assessments, tests, command=this_command())
    record = {
        "data": {"name": order.data.name, "task": order.data.task, "fingerprint": order.data.fingerprint},
        "seed": order.plan.seed,
        "results": {each.name: {**each.to_json(), "run": str(path / each.name)} for each in assessments},
        "tests": [test.to_json() for test in tests],
        "notes": list(report.notes),
        "report": str(path / REPORT),
        "versions": versions(),
        "command": this_command(),
    }
    write_json(path / RESULTS, finite(record))
    write_bytes(path / REPORT, render(report).encode())
    return tests, record


def show(path: Path, assessments: list["Assessment"], tests: list["Difference"], record: dict[str, Any]) -> None:
    """The table of recipes, and the sentences on them."""
    from murmuration.cli.closing import show_scores
    from murmuration.cli.trust import show_trials

    show_scores(assessments)
    show_trials(assessments)
    for note in record["notes"]:
        say(f"- {note}")
    say(f"report: {path / REPORT}")
