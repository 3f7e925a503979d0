"""`murmur explore`: tangent kernels between members, and the loss landscape around them.

A study of the landscape writes its page with the numbers as JSON and Parquet beside it, and a folder of computed pieces
from which the same command continues after it was killed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import murmuration.cli.options as options
from murmuration.cli.console import CONTINUES, Interrupted, print_json, print_table, say
from murmuration.cli.options import Names, is_whole, listed, option
from murmuration.data.formats import require_path
from murmuration.runs.manifest import require_run
from murmuration.system.errors import Misuse, unknown, warn
from murmuration.system.progress import counting_bar

if TYPE_CHECKING:
    from murmuration.prediction.ensemble import Ensemble
    from murmuration.studies.kernels import KernelDiagnosis
    from murmuration.studies.pages.studies import Choices, Study, Subject
    from murmuration.training.plan import Plan

EXAMPLES = 2000  # test inputs, unless told
PANEL = "Loss landscape"
# Studies of the loss landscape; `pages/studies.py` has them, and the help of the command describes them.
WHATS = ("similarity", "subspaces", "plane", "tunnel", "trade-off", "tsne", "sizes", "uncertainty", "factorial")
KERNELS, KERNEL_EXAMPLES = "kernels", 32
WHERE_HELP = f"A run directory, or data: {options.DATA_HELP[0].lower()}{options.DATA_HELP[1:]}"


@dataclass(frozen=True)
class StudyOptions:
    """Options of studies of the loss landscape; each study takes some of them."""

    anchors: Annotated[str | None, option("Members by number; 0,1 if left out.", PANEL, "I,J")] = None
    grid: Annotated[int | None, option("Points a side of the plane; 21 if left out.", PANEL, "N")] = None
    samplers: Annotated[Names, option("Subspace samplers; all if left out.", PANEL, "LIST")] = None
    samples: Annotated[int | None, option("Samples of every sampler and member.", PANEL, "N")] = None
    beside: Annotated[Names, option("Other runs in the same figures, such as SWAG draws.", PANEL, "RUN")] = None
    ood: Annotated[Names, option("Out-of-distribution inputs; a list for several.", PANEL, "DATA")] = None
    severities: Annotated[Names, option("Severities of corruptions, such as 1,3,5.", PANEL, "LIST")] = None
    cifar_c: Annotated[str | None, option("Folder of the CIFAR-10-C or CIFAR-100-C files.", PANEL, "DIR")] = None
    runs: Annotated[int | None, option("Networks of every cell of the factorial; 3 if left out.", PANEL, "N")] = None
    rates: Annotated[Names, option("Learning rates of the factorial.", PANEL, "LIST")] = None
    epochs: Annotated[int | None, option("Epochs of the factorial; 10 if left out.", PANEL, "N")] = None
    image: Annotated[str | None, option("Also every figure as png or svg.", PANEL, "KIND")] = None

    def given(self) -> dict[str, Any]:
        """Return the options that were given, by name."""
        return {option.name: value for option in fields(self) if (value := getattr(self, option.name)) is not None}

    def choices(self, ensemble: "Ensemble") -> "Choices":
        """Return the choices of a study of this ensemble."""
        from murmuration.studies.pages.studies import Choices, ood_splits

        read: dict[str, Callable[[Any], Any]] = {
            "anchors": lambda text: members_named(text, ensemble.members),
            "samplers": lambda texts: tuple(listed(texts)),
            "beside": lambda texts: {Path(run).name: load_networks(Path(run)) for run in listed(texts)},
            "ood": lambda texts: ood_splits(listed(texts), ensemble),
            "severities": lambda texts: numbers("severities", listed(texts), int),
            "rates": lambda texts: numbers("rates", listed(texts), float),
            "cifar_c": str,
        }
        read |= {name: partial(at_least_one, name) for name in ("grid", "samples", "runs", "epochs")}
        return Choices(**{name: read[name](value) for name, value in self.given().items() if name in read})


def at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise Misuse(f"--{name} {value}: expected at least 1")
    return value


def members_named(text: str, members: int) -> tuple[int, ...]:
    """Return the members of a list such as 0,1.

    >>> members_named("0,2", 5)
    (0, 2)
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(is_whole(part) for part in parts) or len(set(parts)) < len(parts):
        raise Misuse(f"--anchors {text}: expected numbers of different members, such as 0,1")
    members_given = tuple(int(part) for part in parts)
    if max(members_given) >= members:
        raise Misuse(f"--anchors {text}: the run has {members} members, the last is {members - 1}")
    return members_given


def numbers(name: str, texts: Sequence[str], kind: type) -> tuple[Any, ...]:
    """Return the values of a list of numbers."""
    try:
        return tuple(kind(text) for text in texts)
    except ValueError:
        example = "1,3,5" if kind is int else "0.0008,0.0016"
        raise Misuse(f"--{name} {','.join(texts)}: expected numbers such as {example}") from None


@dataclass(frozen=True)
class StartOptions:
    """The recipe and plan of members that are not trained yet."""

    recipe: Annotated[str | None, options.option("Method; deep-ensemble if left out.", "Recipe", "NAME")] = None
    net: Annotated[str | None, options.option("Network; chosen by the data if left out.", "Recipe", "NAME")] = None
    members: Annotated[int | None, options.option("Number of ensemble members; 5 if left out.", "Training", "N")] = None
    seed: Annotated[int | None, options.option("Random seed; 0 if left out.", "Training", "N")] = None
    optimizer: Annotated[
        str | None, options.option("adam if left out.", "Training", "NAME", "--optimizer", "--optimiser")
    ] = None

    def plan(self) -> "Plan":
        """Return the plan with what is given."""
        from murmuration.training.plan import Plan

        if self.members is not None and self.members < 1:
            raise Misuse(f"members={self.members}: need a whole number, at least 1")
        settings: dict[str, Any] = {"members": self.members, "seed": self.seed, "optimizer": self.optimizer}
        return Plan(**{name: value for name, value in settings.items() if value is not None})


@dataclass(frozen=True)
class Request:
    """The arguments of one call."""

    where: str
    examples: int
    on: str | None
    infinite_width: bool
    start: StartOptions
    answers: options.RecipeOptions
    reading: options.ReadingOptions
    quiet: bool

    @property
    def is_run(self) -> bool:
        return (Path(self.where) / "run.json").exists()


@options.grouped
def explore(
    *,
    where: Annotated[str, typer.Argument(help=WHERE_HELP, metavar="RUN|DATA")],
    what: Annotated[str, typer.Argument(help=f"{', '.join((*WHATS, 'kernels'))}.", metavar="WHAT")] = "kernels",
    examples: Annotated[
        int | None, typer.Option(help=f"Number of test inputs; {EXAMPLES}, or 32 for kernels.", metavar="N")
    ] = None,
    on: Annotated[str | None, typer.Option(help="Other inputs than the run's test split.", metavar="DATA")] = None,
    infinite_width: Annotated[
        bool, options.switch("--infinite-width", "Also the infinite-width limit, of fully connected networks.")
    ] = False,
    out: Annotated[
        str | None, typer.Option(help="Page; RUN/<what>.html if left out, none for DATA.", metavar="FILE.html")
    ] = None,
    landscape: StudyOptions,
    start: StartOptions,
    answers: options.RecipeOptions,
    reading: options.ReadingOptions,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Explore an ensemble from inside: tangent kernels, and the loss landscape around its members.

    Explore a trained ensemble from inside. WHAT is one of

    kernels: whether members that share weights behave as an ensemble, by their neural tangent kernels before and after
    training (RUN/kernels.html). With DATA instead of RUN, the members that `murmur train` would start from with the
    same options, and the page is written to --out.

    similarity: cosine of weights, disagreement and CKA of features, across members and along training.

    subspaces: networks drawn around members by subspace samplers, and how alike they are.

    plane: loss, accuracy and agreement on the plane through the origin and two members, or through three members.

    tunnel: straight line, aligned line, low-loss tunnel and curves between two members, and their stitched view.

    trade-off: diversity against accuracy of members and of samples around one, with limit curves.

    tsne: predictions along training and of samples, embedded in two dimensions.

    sizes: ensembles, subspaces and averages against ensemble size, under corruption and on --ood inputs.

    uncertainty: aleatoric and epistemic uncertainty, accuracy and weights by checkpoint, by --samples draws.

    factorial: initialisation, batch order and learning rate as sources of diversity; trains small ensembles anew.

    All but kernels write RUN/explore/WHAT.html, with the numbers as .json and .parquet; a killed command continues.
    Checkpoints along training come from `murmur train --trajectory every-epoch`.

    Examples:
        murmur explore runs/digits similarity
        murmur explore runs/digits plane --grid 21 --anchors 0,1
        murmur explore runs/digits trade-off --samples 50
        murmur explore runs/digits kernels
        murmur explore digits kernels --recipe batch-ensemble --net mlp --members 8
        murmur explore digits kernels --recipe batch-ensemble --sharing rank-one:init=rademacher,gamma=M --out k.html
        murmur explore runs/digits kernels --examples 64 --json
        murmur explore digits kernels --recipe batch-ensemble --net mlp --infinite-width
    """
    if what not in (*WHATS, KERNELS):
        raise unknown("thing to explore", what, (*WHATS, KERNELS))
    if examples is not None and examples < 1:
        raise Misuse(f"--examples {examples}: expected at least 1")
    if what != KERNELS and infinite_width:
        raise Misuse(f"--infinite-width is for kernels, not for {what}: leave it out")
    (require_run if what != KERNELS or Path(where).is_dir() else require_path)(where)
    examples = examples or (KERNEL_EXAMPLES if what == KERNELS else EXAMPLES)
    request = Request(where, examples, on, infinite_width, start, answers, reading, as_json)
    if what != KERNELS:
        return study_run(what, request, landscape, options.output_path(out, (".html",), force) if out else None)
    if landscape.given():
        raise Misuse(f"--{next(iter(landscape.given()))} is not for kernels: leave it out")
    if request.is_run:
        refuse_for_run(request)
    elif on is not None:
        raise Misuse(f"--on {on} is for a run: {where} is data, and its test split is used")
    usual = Path(where) / f"{what}.html" if request.is_run else None
    path = options.output_path(out, (".html",), force) if out else usual
    diagnoses = kernels_of_run(request) if request.is_run else kernels_of_start(request)
    recipe = diagnoses[0].recipe
    if path is not None:
        from murmuration.studies.pages.kernels import kernels_page
        from murmuration.system.files import write_bytes

        subtitle = f"{where} · {diagnoses[0].members} members · sharing {recipe.text('sharing')}"
        write_bytes(path, kernels_page(diagnoses, title=f"Kernels of {recipe.name}", subtitle=subtitle).encode())
    if as_json:
        facts = {"what": what, "recipe": recipe.name, "answers": recipe.answers()}
        stages = {diagnosis.stage: diagnosis for diagnosis in diagnoses}
        return print_json({"run" if request.is_run else "data": where, **facts, **stages})
    show_kernels(where, diagnoses)
    say(f"written: {path}" if path else "add --out FILE.html for a page with figures")


def study_run(what: str, request: Request, landscape: StudyOptions, out: Path | None) -> None:
    """Run a study of the loss landscape of a run."""
    from murmuration.cli.training import reopen_data
    from murmuration.evaluation import eval_set_for
    from murmuration.runs.locks import locked
    from murmuration.studies.pages.studies import STUDIES, Subject, evaluation_seconds
    from murmuration.studies.trajectory import find_trajectory

    study, path = STUDIES[what], Path(request.where)
    if not request.is_run:
        raise Misuse(f"no run at {request.where}: it holds no run.json, and {what} explores a trained run")
    for name in landscape.given():
        if name not in (*study.choices, "image"):
            takers = [other for other, other_study in STUDIES.items() if name in other_study.choices]
            raise Misuse(f"--{name} is for {', '.join(takers)}, not for {what}: leave it out")
    refuse_for_run(replace(request, start=replace(request.start, net=None)))
    if landscape.image not in (None, "png", "svg"):
        raise Misuse(f"--image {landscape.image}: expected png or svg")
    net = options.network(request.start.net)
    ensemble, data = load_networks(path, net=net), reopen_data(path)
    target = options.named_targets(request.reading.target)
    split = data.held_out if request.on is None else eval_set_for(ensemble, request.on, target).split
    test = split[: request.examples]
    if ensemble.recipe.weights.stochastic and what != "uncertainty":
        text = "weights or masks of the members are random: networks with their means are explored"
        warn(text)
    page = out or path / "explore" / f"{what}.html"
    subject = Subject(ensemble, data, test, find_trajectory(path, net=net), landscape.choices(ensemble))
    if not request.quiet:
        say(cost_text(evaluation_seconds(subject, study.networks(subject)), len(test)))
    with locked(page.with_suffix("")), counting_bar(what, request.quiet) as show:
        subject = replace(subject, folder=page.with_suffix(""), show=show)
        record = run_study(what, study, subject, page, path, landscape.image)
    if request.quiet:
        return print_json(record)
    for sentence in record["sentences"]:
        say(f"- {sentence}")
    say(f"written: {', '.join(record['written'])}")


def run_study(
    what: str, study: "Study", subject: "Subject", page: Path, run: Path, image: str | None
) -> dict[str, Any]:
    """Compute a study and write its page, numbers and images; returns the record with the files that were written."""
    from murmuration.reports.plots import figure_image
    from murmuration.system.files import write_bytes, write_json, write_whole
    from murmuration.system.records import plain_json

    page.parent.mkdir(parents=True, exist_ok=True)
    try:
        outcome = study.run(subject)
    except KeyboardInterrupt:
        raise Interrupted(CONTINUES) from None
    about = f"{run} · {subject.ensemble.members} members · {len(subject.test):,} examples"
    record = {"what": what, "run": str(run), **plain_json(outcome.record)}
    write_bytes(page, outcome.page(f"{study.title} of {run.name}", about).encode())
    write_json(page.with_suffix(".json"), record)
    write_whole(page.with_suffix(".parquet"), lambda file: outcome.record.frame().to_parquet(file))
    files = [page, page.with_suffix(".json"), page.with_suffix(".parquet")]
    for figure in outcome.figures if image is not None else ():
        files.append(page.with_name(f"{page.stem}-{figure.name}.{image}"))
        figure_image(figure, files[-1])
    return {**record, "sentences": list(outcome.sentences), "written": [str(name) for name in files]}


def cost_text(seconds: float, examples: int) -> str:
    """Return the estimate of a study's cost, in a sentence.

    >>> cost_text(300, 2000)
    'estimated time on 2,000 examples: 5 min'
    """
    amount = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(seconds, 1):.0f} s"
    return f"estimated time on {examples:,} examples: {amount}"


def refuse_for_run(request: Request) -> None:
    """Refuse options on training and data if a run is given, which has its own."""
    for group in (request.start, request.answers, request.reading):
        for field in fields(group):
            value = getattr(group, field.name)
            if value != field.default and not (field.name == "target" and request.on is not None):
                text = ",".join(value) if isinstance(value, list) else value
                raise Misuse(f"--{field.name} {text} is for DATA: {request.where} is a run and has its own")


def load_networks(path: Path, *, net: Any = None) -> "Ensemble":
    """Load the ensemble of a finished run on the CPU, without post-hoc steps; refuse members without weights."""
    from murmuration.cli.training import load_run

    ensemble = load_run(path, posthoc=False, net=net, device="cpu")
    if ensemble.models:
        raise Misuse(f"{path} has a {ensemble.models[0].name} among its members: this command is for networks alone")
    if len(ensemble.groups) > 1:
        raise Misuse(f"{path} has members of {len(ensemble.groups)} folds: this command is for runs without --folds")
    return ensemble


def kernels_of_run(request: Request) -> list["KernelDiagnosis"]:
    """Return diagnoses of a run's members before and after training."""
    from murmuration.cli.training import reopen_data
    from murmuration.evaluation import eval_set_for
    from murmuration.studies.kernels import kernel_diagnosis, kernels_before_run, limit_diagnosis, spec_of

    path, on, inputs = Path(request.where), request.on, request.examples
    ensemble, data = load_networks(path), reopen_data(path)
    target = options.named_targets(request.reading.target)
    x = data.held_out.prepared if on is None else eval_set_for(ensemble, on, target).split.prepared
    limit = [limit_diagnosis(spec_of(ensemble, data), x, inputs=inputs)] if request.infinite_width else []
    with counting_bar("kernels", request.quiet) as show:
        show("before training", 0, 2)
        before = kernels_before_run(ensemble, data, x, inputs=inputs)
        show("after training", 1, 2)
        return [before, kernel_diagnosis(ensemble, x, inputs=inputs), *limit]


def kernels_of_start(request: Request) -> list["KernelDiagnosis"]:
    """Return the diagnosis of untrained members."""
    from murmuration.studies.kernels import limit_diagnosis, planned_spec, start_diagnosis

    recipe, plan = request.answers.recipe(request.start.recipe or "deep-ensemble"), request.start.plan()
    try:
        data = request.reading.open(request.where)
    except Misuse as error:
        if Path(request.where).is_file():
            raise
        raise Misuse(f"{request.where} is not a run, and as data: {error}") from None
    spec = planned_spec(request.start.net, data, recipe=recipe, plan=plan)
    limit = [limit_diagnosis(spec, data.held_out.prepared, inputs=request.examples)] if request.infinite_width else []
    with counting_bar("kernels", request.quiet) as show:
        show("before training", 0, 1)
        return [start_diagnosis(spec, data.held_out.prepared, inputs=request.examples), *limit]


def show_kernels(where: str, diagnoses: Sequence["KernelDiagnosis"]) -> None:
    """Print the table of values, then their interpretation."""
    from murmuration.studies.pages.kernels import WHEN, room_of, rows_of, verdict_sentence

    first = diagnoses[0]
    title = f"{first.recipe.name} of {where}, {first.members} members, {first.inputs} inputs"
    rows = [[label, *texts] for label, texts, _ in rows_of(diagnoses)]
    print_table(["", *(WHEN[diagnosis.stage] for diagnosis in diagnoses)], rows, title=title)
    if first.shares:
        say(room_of(first))
    for diagnosis in diagnoses:
        say(verdict_sentence(diagnosis))
    for line in first.advice:
        say(f"- {line}")
