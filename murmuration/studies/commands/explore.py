"""`murmur explore`: tangent kernels between members, and the loss landscape around them (`landscape.py`)."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import murmuration.cli.options as options
from murmuration.cli.console import help_text, print_json, print_table
from murmuration.studies.commands.landscape import EXAMPLES, StudyOptions, refuse_foreign, run_study, show_outcome
from murmuration.system.errors import Misuse, unknown
from murmuration.system.progress import counting_bar

if TYPE_CHECKING:
    from murmuration.data import Data
    from murmuration.studies.kernels import KernelDiagnosis
    from murmuration.training.plan import Plan

WHATS = {  # studies of the loss landscape; `reports/landscape/studies.py` has them
    "similarity": "cosine of weights, disagreement and CKA of features, across members and along training.",
    "subspaces": "networks drawn around members by subspace samplers, and how alike they are.",
    "plane": "loss, accuracy and agreement on the plane through the origin and two members, or through three members.",
    "tunnel": "straight line, aligned line, low-loss tunnel and curves between two members, and their stitched view.",
    "trade-off": "diversity against accuracy of members and of samples around one, with limit curves.",
    "tsne": "predictions along training and of samples, embedded in two dimensions.",
    "sizes": "ensembles, subspaces and averages against ensemble size, under corruption and on --ood inputs.",
    "factorial": "initialisation, batch order and learning rate as sources of diversity; trains small ensembles anew.",
}
HELP = help_text(
    "Explore a trained ensemble from inside. WHAT is one of\n\n"
    "kernels: whether members that share weights behave as an ensemble, by their neural tangent kernels before and "
    "after training (RUN/kernels.html). With DATA instead of RUN, the members that `murmur train` would start from "
    "with the same options, and the page is written to --out.\n\n"
    + "\n\n".join(f"{name}: {summary}" for name, summary in WHATS.items())
    + "\n\nAll but kernels write RUN/explore/WHAT.html, with the numbers as .json and .parquet; a killed command "
    "continues. Checkpoints along training come from `murmur train --trajectory every-epoch`.",
    "murmur explore runs/digits similarity",
    "murmur explore runs/digits plane --grid 21 --anchors 0,1",
    "murmur explore runs/digits trade-off --samples 50",
    "murmur explore runs/digits kernels",
    "murmur explore digits kernels --recipe batch-ensemble --net mlp --members 8",
    "murmur explore digits kernels --recipe batch-ensemble --sharing rank-one:init=rademacher,gamma=M --out k.html",
    "murmur explore runs/digits kernels --examples 64 --json",
    "murmur explore digits kernels --recipe batch-ensemble --net mlp --infinite-width",
)
KERNELS, KERNEL_EXAMPLES = "kernels", 32
WHERE_HELP = f"A run directory, or data: {options.DATA_HELP[0].lower()}{options.DATA_HELP[1:]}"


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
    reading: options.DataOptions
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
    reading: options.DataOptions,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Explore an ensemble from inside: tangent kernels, and the loss landscape around its members."""
    from murmuration.system.files import write_bytes

    if what not in (*WHATS, KERNELS):
        raise unknown("thing to explore", what, (*WHATS, KERNELS))
    if examples is not None and examples < 1:
        raise Misuse(f"--examples {examples}: expected at least 1")
    if what != KERNELS and infinite_width:
        raise Misuse(f"--infinite-width is for kernels, not for {what}: leave it out")
    if what != KERNELS:
        request = Request(where, examples or EXAMPLES, on, infinite_width, start, answers, reading, as_json)
        return study_run(what, request, landscape, options.output_path(out, (".html",), force) if out else None)
    if landscape.given():
        raise Misuse(f"--{next(iter(landscape.given()))} is not for kernels: leave it out")
    request = Request(where, examples or KERNEL_EXAMPLES, on, infinite_width, start, answers, reading, as_json)
    (refuse_for_run if request.is_run else refuse_for_data)(request)
    usual = Path(where) / f"{what}.html" if request.is_run else None
    path = options.output_path(out, (".html",), force) if out else usual
    diagnoses = kernels_of_run(request) if request.is_run else kernels_of_start(request)
    if path is not None:
        write_bytes(path, page_of(where, diagnoses).encode())
    if as_json:
        recipe = diagnoses[0].recipe
        facts = {"what": what, "recipe": recipe.name, "answers": recipe.answers()}
        stages = {diagnosis.stage: diagnosis for diagnosis in diagnoses}
        return print_json({"run" if request.is_run else "data": where, **facts, **stages})
    show_kernels(where, diagnoses)
    print(f"written: {path}" if path else "add --out FILE.html for a page with figures")


def study_run(what: str, request: Request, landscape: StudyOptions, out: Path | None) -> None:
    """Run a study of the loss landscape of a run."""
    from murmuration.cli.training import load_networks, reopen_data
    from murmuration.evaluation import eval_set_for
    from murmuration.runs.locks import locked
    from murmuration.studies.pages.studies import STUDIES, Subject, evaluation_seconds
    from murmuration.studies.trajectory import find_trajectory

    study, path = STUDIES[what], Path(request.where)
    if not request.is_run:
        raise Misuse(f"{request.where} is no run, for it holds no run.json: {what} explores a trained run")
    refuse_foreign(what, study, landscape, STUDIES)
    refuse_for_run(replace(request, start=replace(request.start, net=None)))
    if landscape.image not in (None, "png", "svg"):
        raise Misuse(f"--image {landscape.image}: expected png or svg")
    net = options.network(request.start.net)
    ensemble, data = load_networks(path, net=net), reopen_data(path)
    target = options.named_targets(request.reading.target)
    test = (data.held_out if request.on is None else eval_set_for(ensemble, request.on, target).split)[
        : request.examples
    ]
    if ensemble.recipe.weights.stochastic:
        warnings.warn(
            "weights or masks of the members are random: networks with their means are explored", stacklevel=2
        )
    page = out or path / "explore" / f"{what}.html"
    subject = Subject(ensemble, data, test, find_trajectory(path, net=net), landscape.choices(ensemble))
    if not request.quiet:
        print(cost_text(evaluation_seconds(subject, study.networks(subject)), len(test)))
    with locked(page.with_suffix("")), counting_bar(what, request.quiet) as show:
        subject = replace(subject, folder=page.with_suffix(""), show=show)
        record = run_study(what, study, subject, page, path, landscape.image)
    show_outcome(record, as_json=request.quiet)


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
        for option in fields(group):
            value = getattr(group, option.name)
            if value != option.default and not (option.name == "target" and request.on is not None):
                text = ",".join(value) if isinstance(value, list) else value
                raise Misuse(f"--{option.name} {text} is for DATA: {request.where} is a run and has its own")


def refuse_for_data(request: Request) -> None:
    """Refuse options that need a run."""
    if request.on is not None:
        raise Misuse(f"--on {request.on} is for a run: {request.where} is data, and its test split is used")


def opened(request: Request) -> "Data":
    """Return the data to train on; the error for a path that is neither a run nor data names both."""
    try:
        return request.reading.open(request.where)
    except Misuse as error:
        if Path(request.where).is_file():
            raise
        raise Misuse(f"{request.where} is no run, for it holds no run.json, and as data: {error}") from None


def page_of(where: str, found: Sequence["KernelDiagnosis"]) -> str:
    """Return the page on the diagnoses."""
    from murmuration.studies.pages.kernels import kernels_page

    recipe, about = found[0].recipe, f"{where} · {found[0].members} members"
    subtitle = f"{about} · sharing {recipe.text('sharing')}"
    return kernels_page(found, title=f"Kernels of {recipe.name}", subtitle=subtitle)


def kernels_of_run(request: Request) -> list["KernelDiagnosis"]:
    """Return diagnoses of a run's members before and after training."""
    from murmuration.cli.training import load_networks, reopen_data
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
    data = opened(request)
    spec = planned_spec(request.start.net, data, recipe=recipe, plan=plan)
    limit = [limit_diagnosis(spec, data.held_out.prepared, inputs=request.examples)] if request.infinite_width else []
    with counting_bar("kernels", request.quiet) as show:
        show("before training", 0, 1)
        return [start_diagnosis(spec, data.held_out.prepared, inputs=request.examples), *limit]


def show_kernels(where: str, diagnoses: Sequence["KernelDiagnosis"]) -> None:
    """Print the table of values, then their interpretation."""
    from murmuration.studies.pages.kernels import WHEN, room_of, rows_of, told

    first = diagnoses[0]
    title = f"{first.recipe.name} of {where}, {first.members} members, {first.inputs} inputs"
    rows = [[row.label, *row.cells] for row in rows_of(diagnoses)]
    print_table(["", *(WHEN[diagnosis.stage] for diagnosis in diagnoses)], rows, title=title)
    if first.shares:
        print(room_of(first))
    for diagnosis in diagnoses:
        print(told(diagnosis))
    for line in first.advice:
        print(f"- {line}")
