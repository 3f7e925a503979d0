"""`mm.compare`: train several recipes on the same splits and seed, with paired tests and one report."""

import importlib.util
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from murmuration.core.recipe import Recipe, parse_recipe
from murmuration.data import Data, open_data, open_training_data
from murmuration.data.preparation import TablePreparation
from murmuration.evaluation import Evaluation, eval_set_of, evaluate_on, ood_inputs
from murmuration.evaluation.coverage import UNDEFINED
from murmuration.evaluation.metrics import Score
from murmuration.evaluation.record import Ood, Shift, suite_of
from murmuration.likelihoods import MULTI_LABEL, REGRESSION, Likelihood
from murmuration.models.estimators.table import BASELINES, check_model, models_for
from murmuration.models.nets.source import Net
from murmuration.prediction.ensemble import Ensemble
from murmuration.reports.findings import BASELINE, Difference, differences
from murmuration.reports.formatting import heading, interval, number, plural
from murmuration.reports.page import render, write_report
from murmuration.reports.report import Report, report_of, this_command
from murmuration.reports.seeds import SeedRun, seeds_of
from murmuration.runs.directory import has_lost_manifest, locked, read_run, require_free, versions
from murmuration.runs.locks import holders
from murmuration.system.errors import Failure, Misuse, described, notes_once, printable, require_integer
from murmuration.system.files import DAMAGED, read_record, write_bytes, write_json, write_record
from murmuration.system.interrupts import CHECKPOINT_SECONDS
from murmuration.system.progress import counting_bar, is_watched, training_bar
from murmuration.training.fitting import fit, resume
from murmuration.training.plan import Plan
from murmuration.training.resolve import sort_settings

SETTINGS, RESULTS, REPORT = "compare.json", "results.json", "report.html"
RECIPES = ("single", "deep-ensemble")  # compared by default


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Evaluations of several recipes on the same examples, with paired tests between them.

    Attributes:
        summary: The report: evaluations, paired tests, verdict and findings.
        seed: Random seed of all recipes; the first of several.
        out: Directory with one run per recipe, `results.json` and `report.html`; None if nothing was written.
    """

    summary: Report
    seed: int
    out: Path | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The training seeds; `evaluations` and `tests` are those of the first."""
        return (self.seed,) if self.summary.seeds is None else self.summary.seeds.seeds

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """The evaluation of every recipe and baseline, in the order in which they were named."""
        return self.summary.evaluations

    @property
    def tests(self) -> tuple[Difference, ...]:
        """The paired tests of every two recipes, with p-values corrected by Holm's method."""
        return self.summary.differences

    @property
    def recommended(self) -> str:
        """The name of the recipe with the lowest NLL or, within noise of it, of the clear leader under corruption."""
        return self.summary.leader.name

    @property
    def verdict(self) -> tuple[str, ...]:
        """Which recipe to use and whether its lead is more than the noise of the examples, in sentences."""
        return self.summary.verdict

    @property
    def notes(self) -> tuple[str, ...]:
        """Findings on every recipe and on the differences between them, in sentences."""
        return self.summary.notes

    @property
    def table(self) -> Any:
        """The scores and costs as a pandas DataFrame, one row per recipe."""
        return self.summary.table

    def __repr__(self) -> str:
        first, seeds = self.evaluations[0], self.summary.seeds
        names = first.shown_in("brief")
        rows = [(e.name, [e.scores[n] for n in names]) for e in self.evaluations]
        without = [first.baseline.scores.get(name, UNDEFINED) for name in names]
        if seeds is not None:  # its intervals are over examples, those of the other rows over seeds
            without = [Score(score, math.nan, math.nan) for score in without]
        baseline = (f"no input: {first.baseline.name}", without)
        table = [["", *map(heading, names)]]
        for name, scores in [*(rows if seeds is None else seeds.rows(names)), baseline]:
            table.append([name, *(f"{number(score)} {interval(score)}".strip() for score in scores)])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table]
        part = "example" if first.eval_set.part == "test" else f"{first.eval_set.part} example"
        over = "" if seeds is None else f", means over {len(seeds.seeds)} training seeds with t-intervals"
        title = f"Comparison on {plural(first.examples.inputs, part)} of {first.eval_set.name}{over}"
        return "\n".join([title, *lines, *self.verdict])

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the report as one self-contained HTML file.

        Args:
            path: The file to write; missing folders are created.
        """
        write_report(path, self.summary)

    def to_json(self) -> dict[str, Any]:
        """Return the record that `results.json` holds: scores, tests, verdict and findings, as plain values."""
        eval_set, record = self.summary.eval_set, self.summary.to_json()
        if self.out is not None:
            for name, result in record["results"].items():
                result["run"] = str(run_path(self.out, name, self.seeds, self.seed))
            record["report"] = str(self.out / REPORT)
        return {
            "data": {"name": eval_set.name, "task": eval_set.task, "fingerprint": eval_set.fingerprint},
            "seed": self.seed,
            **record,
            "versions": versions(),
            "command": self.summary.command,
        }


@notes_once
def compare(
    data: Any = "digits",
    recipes: Sequence[str | Recipe] = RECIPES,
    *,
    net: Net | None = None,
    baselines: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    plan: Plan | None = None,
    noise_std: float | None = None,
    link: str | None = None,
    likelihood: Likelihood | str | None = None,
    shift: Shift = None,
    ood: Ood = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **settings: Any,
) -> Comparison:
    """Train several recipes on the same splits with the same seed and test which differences are significant.

    With `out`, every recipe is a run in a sub-directory (`recipe/seed-0` with several seeds); a comparison that
    was killed continues when the same call is repeated, and recipes that have finished are loaded. One with several
    seeds is extended by repeating the call with further seeds, which alone are trained.

    Args:
        data: What `open_data` takes: a name, a path, a pair (x, y), a table with `target=`, or a `Data`. Recipes are
            evaluated on its test examples, or on its validation examples if it has none to test.
        recipes: Names of presets, recipes in text such as `"forde:members=10"`, or `Recipe` objects.
        net: The network of all recipes, as `fit` takes it; chosen by the data if left out.
        baselines: Names of models that are not networks (`murmur list models`); by default those of a table, `()` for
            none.
        seeds: Training seeds: every recipe is trained with each on the same splits, and methods are compared over them.
            By default `seed` alone; differences are then those between the networks of this one training.
        plan: Settings of training; those among `settings` take precedence.
        noise_std: Known noise of a regression target.
        link: Link of a classification, softmax or softplus.
        likelihood: The likelihood, or a loss by name.
        shift: Evaluate under corruption too: True for all that fit, a list of names, or a `ShiftSuite`.
        ood: Out-of-distribution inputs to detect: a list of sources, or sources by name.
        out: Directory for runs, `results.json` and `report.html`; nothing is written if left out.
        progress: Whether to show progress; by default on a terminal and in a notebook.
        checkpoint_seconds: Seconds between checkpoints.
        **settings: Fields of `Plan`, such as `members`, `epochs` and `seed`, and keywords of `open_data`.

    Returns:
        The evaluations with paired tests: `table`, `tests`, `verdict`, `recommended`, `report(path)`, `to_json()`.

    Raises:
        Misuse: For fewer than two recipes and baselines, a recipe named twice, a bad setting, or a directory that
            holds something else or a comparison with other settings.

    >>> comparison = compare("two-moons", ["single", "deep-ensemble"], net="mlp", members=2, epochs=1)
    >>> comparison.table.index.tolist(), len(comparison.tests)
    (['single', 'deep-ensemble'], 2)
    """
    if isinstance(recipes, str | Recipe):
        raise Misuse(f"recipes={str(recipes)!r}: expected a list of two or more")
    if odd := [recipe for recipe in recipes if not isinstance(recipe, str | Recipe)]:
        advice = "give names after the data, mm.compare(data, ['single', 'deep-ensemble'])"
        raise Misuse(f"recipes= holds {described(odd[0])}: {advice}")
    parsed = [parse_recipe(recipe) if isinstance(recipe, str) else recipe for recipe in recipes]
    directories = [run_name(recipe.name) for recipe in parsed]
    if repeated := [recipe.name for recipe in parsed if directories.count(run_name(recipe.name)) > 1]:
        raise Misuse(f"recipes= names '{repeated[0]}' twice: write each once")
    training, reading = sort_settings(settings, net)
    numbers = checked_seeds(seeds, training)
    training |= {} if seeds is None else {"seed": numbers[0]}
    base = replace(plan or Plan(), **training)
    numbers = numbers or (base.seed,)
    opened = open_comparison_data(data, likelihood, reading)
    eval_set = eval_set_of(opened, validation=True)
    suite, foreign = suite_of(shift, eval_set), ood_inputs(ood, eval_set)
    models = choose_baselines(baselines, opened)
    if len(parsed) + len(models) < 2:
        names = f"recipes='{parsed[0].name}' alone" if parsed else "no recipes"
        raise Misuse(f"{names}: need two names, such as single,deep-ensemble, or baselines=")
    path = None if out is None else Path(out)
    quiet = not (is_watched() if progress is None else progress)
    loss: dict[str, Any] = {"noise_std": noise_std, "link": link, "likelihood": likelihood}
    how: dict[str, Any] = {"checkpoint_seconds": checkpoint_seconds, "quiet": quiet, "seeds": numbers}
    trainer = Trainer(opened, net, plan, training, base, **loss, **how)

    def evaluated(seed: int) -> list[Evaluation]:
        """Train, or load, and evaluate all recipes with one seed."""
        seeded, evaluations = trainer.with_seed(seed), []
        ensembles = {recipe.name: seeded.train_or_resume(recipe, path) for recipe in parsed}
        ensembles |= {f"{name} {BASELINE}": seeded.fit_baseline(name, path) for name in models}
        for name, ensemble in ensembles.items():
            with counting_bar(f"{name} under shift", quiet or suite is None) as count:
                evaluations.append(evaluate_on(ensemble, eval_set, name, suite, foreign, count))
        return evaluations

    with comparison_directory(path, trainer.settings(parsed, models)):
        first = evaluated(numbers[0])
        tests = differences(first)
        runs = [SeedRun.of(numbers[0], first, tests)]
        for seed in numbers[1:]:
            others = evaluated(seed)  # of which only scores and tests are kept
            runs.append(SeedRun.of(seed, others, differences(others)))
        over = seeds_of(runs, opened.task) if len(runs) > 1 else None
        comparison = Comparison(report_of(first, tests, command=this_command(), seeds=over), base.seed, path)
        if path is not None:
            write_json(path / RESULTS, comparison.to_json())
            write_bytes(path / REPORT, render(comparison.summary).encode())
    return comparison


def checked_seeds(seeds: Sequence[int] | None, training: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the training seeds; refuse repeated ones, and a `seed` beside them."""
    if seeds is None:
        return ()
    if "seed" in training:
        raise Misuse(f"seed={training['seed']} and seeds={list(seeds)!r:.60}: give one of them")
    if isinstance(seeds, str) or not isinstance(seeds, Sequence) or not len(seeds):
        raise Misuse(f"seeds={seeds!r:.60}: expected several whole numbers, such as (0, 1, 2)")
    for seed in seeds:
        require_integer("seeds", seed, 0)
    if len({*seeds}) < len(seeds):
        raise Misuse(f"seeds={list(seeds)!r:.60}: write each once")
    return tuple(seeds)


def run_path(out: Path, name: str, seeds: Sequence[int], seed: int) -> Path:
    """Return the run of a recipe: a directory of its own or, of several seeds, one for each seed inside."""
    return out / run_name(name) / f"seed-{seed}" if len(seeds) > 1 else out / run_name(name)


def run_name(name: str) -> str:
    """Return the name of a recipe as that of a directory.

    >>> run_name("deep-ensemble:coupling=outputs")
    'deep-ensemble-coupling-outputs'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")


def open_comparison_data(data: Any, likelihood: Any, reading: dict[str, Any]) -> Data:
    """Open the data with its test split; refuse tasks that cannot be compared."""
    if getattr(likelihood, "task", None) == REGRESSION and not isinstance(data, Data):
        reading = {"task": REGRESSION, **reading}
    opened = (open_training_data if isinstance(data, Data) else open_data)(data, **reading)
    if opened.task == MULTI_LABEL:
        raise Misuse("multi-label data cannot be compared: write mm.score(ensemble.predict(x), y) for each recipe")
    return opened


def choose_baselines(names: Sequence[str] | None, data: Data) -> list[str]:
    """Return the named models, each once; by default those of a table, if they can be stored."""
    if isinstance(names, str):
        raise Misuse(f"baselines={names!r}: expected a list of names")
    if names is None:
        table = isinstance(data.preparation, TablePreparation) and importlib.util.find_spec("skops")
        return list(models_for(BASELINES, data.task)) if table else []
    for name in names:
        check_model(name, data.task)
    return list(dict.fromkeys(names))


@dataclass(frozen=True)
class Trainer:
    """What all recipes of a comparison are trained with."""

    data: Data
    net: Net | None
    plan: Plan | None  # as the caller gave it: with None, tables get their own defaults
    training: Mapping[str, Any]  # fields of `Plan` that the caller gave
    base: Plan  # both together
    noise_std: float | None
    link: str | None
    likelihood: Likelihood | str | None
    checkpoint_seconds: float
    quiet: bool
    seeds: tuple[int, ...] = (0,)

    def with_seed(self, seed: int) -> "Trainer":
        """Return the trainer with another seed of training."""
        if seed == self.base.seed:
            return self
        return replace(self, training={**self.training, "seed": seed}, base=replace(self.base, seed=seed))

    def settings(self, recipes: Sequence[Recipe], baselines: Sequence[str]) -> dict[str, Any]:
        """Return what must be the same when a comparison is continued."""
        net, loss = self.net, self.likelihood
        return {
            "baselines": list(baselines),
            "recipes": [recipe.to_json() for recipe in recipes],
            "plan": {**self.base.to_json(), "augment": list(self.base.augment)},
            "net": net if isinstance(net, str | None) else getattr(net, "__qualname__", type(net).__qualname__),
            "noise_std": self.noise_std,
            "link": self.link,
            "loss": loss if isinstance(loss, str | None) else repr(loss),
            "data": {"source": self.data.source, "fingerprint": self.data.fingerprint},
            **({"seeds": list(self.seeds)} if len(self.seeds) > 1 else {}),
        }

    def train_or_resume(self, recipe: Recipe, path: Path | None) -> Ensemble:
        """Return the ensemble of one recipe: loaded if it is finished, resumed if it was interrupted, else trained."""
        run = None if path is None else run_path(path, recipe.name, self.seeds, self.base.seed)
        if run is not None and is_begun(run):
            with repair_hint(run), training_bar(read_run(run).plan["epochs"], self.quiet, recipe.name) as show:
                own: dict[str, Any] = {"net": self.net, "optimizer": self.base.optimizer, "likelihood": self.likelihood}
                own = {name: None if isinstance(value, str) else value for name, value in own.items()}
                own |= {"show": show, "checkpoint_seconds": self.checkpoint_seconds}
                return resume(run, data=self.data, recipe=recipe, **own)
        members, requested = recipe.members or self.base.members, self.base.members
        if requested not in (0, members) and not self.quiet and self.base.seed == self.seeds[0]:
            print(
                printable(f"{recipe.name} is trained with its own number of members, {members} instead of {requested}")
            )
        settings = {**self.training, **({"members": members} if members else {}), "likelihood": self.likelihood}
        settings |= {"noise_std": self.noise_std, "link": self.link, "checkpoint_seconds": self.checkpoint_seconds}
        return fit(self.net, self.data, recipe=recipe, plan=self.plan, out=run, progress=not self.quiet, **settings)

    def fit_baseline(self, name: str, path: Path | None) -> Ensemble:
        """Return the ensemble of a baseline: loaded if its run exists, else fitted."""
        run = None if path is None else run_path(path, f"{name} {BASELINE}", self.seeds, self.base.seed)
        if run is not None and is_begun(run):
            with repair_hint(run):
                return resume(run, data=self.data)
        if not self.quiet:
            print(printable(f"{name}: fitting"))
        return fit(name, self.data, noise_std=self.noise_std, plan=replace(self.base, members=1), out=run)


def is_begun(run: Path) -> bool:
    """Return whether the run of a recipe was begun; one that has lost its manifest is refused when it is read."""
    return (run / "run.json").exists() or has_lost_manifest(run)


@contextmanager
def repair_hint(run: Path) -> Iterator[None]:
    """Add to an error about a damaged run how to train that run again."""
    try:
        yield
    except Failure as error:
        if not str(error).endswith(DAMAGED):
            raise
        raise Failure(f"{error}; remove {run} and repeat the command to train it again") from None


@contextmanager
def comparison_directory(path: Path | None, settings: dict[str, Any]) -> Iterator[None]:
    """Lock a directory that is new or holds a comparison with the same settings; remove it if no run was begun."""
    if path is None:
        yield
        return
    stored, runs = path / SETTINGS, [path / run_name(recipe["name"]) for recipe in settings["recipes"]]
    if not stored.exists() and any(run_files(run) for run in runs):
        lost = f"{stored} is missing, and {path} holds runs of these recipes"
        raise Failure(f"{lost}: restore it, or choose another out=")
    if not holders(path) and not stored.exists():
        require_free(path)  # refuse a directory with other files before it is locked
    with locked(path):
        if stored.exists():
            require_same_settings(path, read_record(stored), settings)
        else:
            require_free(path)
        try:
            write_record(stored, settings)
            yield
        except BaseException:
            if not any(run_files(run) for run in path.iterdir()):
                stored.unlink(missing_ok=True)
            raise


def run_files(path: Path) -> list[Path]:
    """Return the manifests of a recipe: that of its run, or those of its seeds."""
    return [*path.glob("run.json"), *path.glob("seed-*/run.json")]


def require_same_settings(path: Path, before: Any, now: dict[str, Any]) -> None:
    """Refuse to continue a comparison with other settings; further seeds may be added to several."""
    stored, settings = before if isinstance(before, dict) else {}, json.loads(json.dumps(now))
    seeds = stored.get("seeds")
    if isinstance(seeds, list) and set(seeds) <= set(settings.get("seeds", ())):
        stored = {**stored, "seeds": settings["seeds"]}
    name = next((key for key in (*settings, "seeds") if stored.get(key) != settings.get(key)), None)
    if name is None:
        return
    if name == "plan" and isinstance(stored.get("plan"), dict):
        name = next((key for key, value in settings["plan"].items() if stored["plan"].get(key) != value), name)
    if name == "seeds":
        held = f"seeds={seeds}" if isinstance(seeds, list) else "one seed"
        advice = "repeat and add to these" if isinstance(seeds, list) else "repeat it"
        raise Misuse(f"{path} holds a comparison with {held}: {advice}, or choose another out=")
    raise Misuse(f"{path} holds a comparison with other settings ({name} differs): repeat them, or choose another out=")
