"""`murmur continual`: tasks one after another, by one flow and by the methods it is compared with."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murmuration.cli.console import help_text, print_json, print_table
from murmuration.cli.options import Json, Names, grouped, image_size, is_whole, listed, named_targets, option, switch
from murmuration.system.errors import Misuse
from murmuration.system.progress import counting_bar

if TYPE_CHECKING:
    from murmuration.applications.continual.harness import Outcome
    from murmuration.applications.continual.runs import Request
    from murmuration.applications.continual.task_streams import TaskStream

HELP = help_text(
    "Learn the tasks of a stream one after another without forgetting (continual learning). A stream is a split of one "
    "data set by classes, split:DATA:5x2 (five tasks of two classes), or several data sets, such as tables that drift. "
    "Nobody says where a task begins: HCL finds out, unless --told. Methods: hcl-fr, hcl-gr, hcl-ensemble, "
    "hcl-bayes, lda, ncm, adam, replay, replay-balanced, ewc, ensemble-replay, joint. The run holds metrics.json and "
    "report.html; an interrupted one continues with `murmur resume`.",
    "murmur continual split:digits:5x2",
    "murmur continual split:digits:5x2 --method hcl-fr,hcl-gr,lda,replay,joint",
    "murmur continual january.csv february.csv march.csv --target kind --out runs/drift",
    "murmur continual split:mnist:5x2 --flow image --examples 2000",
    "murmur continual split:digits:4x2 --scenario domain --order 1,2,1,3,4",
)


@dataclass(frozen=True)
class StreamOptions:
    """How the tasks are read."""

    target: Annotated[Names, option("Target column of tables.", "Stream", "NAME")] = None
    scenario: Annotated[
        str | None,
        option("class (tasks bring new classes) or domain (tasks share labels); inferred.", "Stream", "NAME"),
    ] = None
    order: Annotated[Names, option("Order of tasks, from 1; a task may recur, as in 1,2,1.", "Stream", "LIST")] = None
    examples: Annotated[int | None, option("Largest number of training examples of a task.", "Stream", "N")] = None
    project: Annotated[int | None, option("Random projection of inputs to N dimensions.", "Stream", "N")] = None
    size: Annotated[str | None, option("Resize and crop image files to N or HxW pixels.", "Stream", "N")] = None
    drop: Annotated[Names, option("Columns to leave out; a list for several.", "Stream", "NAME")] = None

    def to_json(self) -> dict[str, Any]:
        """Return the arguments of `open_stream` that were given."""
        targets = named_targets(self.target)
        if targets is not None and not isinstance(targets, str):
            raise Misuse(f"--target {','.join(targets)}: expected one column of classes")
        wrong = [text for text in listed(self.order) if not is_whole(text)]
        if wrong:
            raise Misuse(f"--order {','.join(listed(self.order))}: expected numbers of tasks, such as 1,2,1")
        arguments: dict[str, Any] = {"target": targets, "scenario": self.scenario, "examples": self.examples}
        arguments |= {"order": [int(text) for text in listed(self.order)] or None, "drop": listed(self.drop) or None}
        arguments |= {"project": self.project, "size": image_size(self.size)}
        return {name: value for name, value in arguments.items() if value is not None}


@dataclass(frozen=True)
class LearningOptions:
    """Batches and the fields of `MethodSettings`."""

    epochs: Annotated[int, option("Passes over the examples of each task.", "Training", "N")] = 10
    batch_size: Annotated[int, option("Examples per step.", "Training", "N")] = 64
    lr: Annotated[
        float | None, option("Learning rate (Adam); 1e-4 for flows of vectors, else 1e-3.", "Training", "X")
    ] = None
    seed: Annotated[int, option("Random seed.", "Training", "N")] = 0
    told: Annotated[bool, switch("--told", "Tell the task of every batch.", "Training")] = False
    flow: Annotated[str, option("Flow of HCL: vector, or image for pixels.", "HCL", "KIND")] = "vector"
    couplings: Annotated[int, option("Couplings of a flow of vectors; of images half at each scale.", "HCL", "N")] = 6
    hidden: Annotated[int, option("Width of the coupling nets.", "HCL", "N")] = 256
    means: Annotated[str, option("Means of classes: data (starts as LDA) or random (as published).", "HCL", "WAY")] = (
        "data"
    )
    strength: Annotated[float, option("Strength of the replay.", "HCL", "X")] = 10.0
    shrinkage: Annotated[float, option("Shrinkage of covariances, of lda too.", "HCL", "X")] = 0.1
    settle: Annotated[
        int, option("Batches before a flow is trained on a task, and between renewals of means.", "HCL", "N")
    ] = 20
    threshold: Annotated[float, option("Standard deviations that make a change.", "Detection", "X")] = 5.0
    window: Annotated[int, option("Batches whose statistics are remembered.", "Detection", "N")] = 100
    warmup: Annotated[int, option("Batches of a new task that are not tested.", "Detection", "N")] = 100
    rule: Annotated[str, option("Typicality of a batch: deviation or dose.", "Detection", "NAME")] = "deviation"
    net: Annotated[str, option("Network of the baselines; see `murmur list nets`.", "Baselines", "NAME")] = "mlp"
    members: Annotated[int, option("Members of hcl-ensemble, hcl-bayes, ensemble-replay.", "Baselines", "N")] = 5
    capacity: Annotated[int, option("Examples kept for replay.", "Baselines", "N")] = 500
    penalty: Annotated[float, option("Strength of elastic weight consolidation.", "Baselines", "X")] = 1000.0


@grouped
def continual(
    *,
    stream: Annotated[
        list[str], typer.Argument(help="split:DATA:5x2, split:DATA:0+1/2+3, or several data sets.", metavar="STREAM...")
    ],
    method: Annotated[Names, option("One method or several; hcl-fr,lda if left out.", "Training", "LIST")] = None,
    out: Annotated[
        str | None, option("Run directory; runs/<stream>-continual-<n> if left out.", "Options", "DIR")
    ] = None,
    reading: StreamOptions,
    learning: LearningOptions,
    as_json: Json = False,
) -> None:
    """Learn tasks one after another without forgetting."""
    from murmuration.applications.continual.methods import MethodSettings
    from murmuration.applications.continual.runs import Request, begin
    from murmuration.applications.continual.task_streams import BatchPlan
    from murmuration.cli.training import new_run_path
    from murmuration.reports.report import this_command
    from murmuration.runs.directory import new_run
    from murmuration.training.fitting import versions

    settings = asdict(learning)
    plan = BatchPlan(settings.pop("batch_size"), settings.pop("epochs"), learning.seed)
    methods = tuple(listed(method)) or ("hcl-fr", "lda")
    request = Request(tuple(stream), methods, reading.to_json(), plan, MethodSettings(**settings))
    path = Path(out) if out else new_run_path(stream[0].replace("/", "-"), "continual")
    with new_run(path):
        opened = begin(path, request, {"versions": versions(), "command": this_command()})
        finish_continual(path, request, opened, as_json=as_json)


def resume_continual(path: Path, *, as_json: bool) -> None:
    """Continue an interrupted run, and write its page."""
    from murmuration.applications.continual.runs import reopen
    from murmuration.runs.directory import locked

    with locked(path):
        finish_continual(path, *reopen(path), as_json=as_json)


def finish_continual(path: Path, request: "Request", stream: "TaskStream", *, as_json: bool) -> None:
    """Run what is left of a run, and write scores and a report."""
    from murmuration.applications.continual.page import COLUMNS, continual_page, score_rows, sentences
    from murmuration.applications.continual.runs import finish
    from murmuration.cli.training import with_resume_hint
    from murmuration.reports.report import METRICS, REPORT
    from murmuration.runs.directory import replace_files
    from murmuration.system.files import json_bytes

    with with_resume_hint(path), counting_bar("learning", quiet=as_json) as show:
        outcomes = finish(path, request, stream, show)
    record = record_of(path, stream, outcomes)
    settings = {name: str(value) for name, value in {**vars(request.plan), **vars(request.settings)}.items()}
    subtitle = f"{stream.name} · {', '.join(outcomes)}"
    page = continual_page(outcomes, stream, title="Continual learning", subtitle=subtitle, settings=settings)
    replace_files(path, {METRICS: json_bytes(record), REPORT: page.encode()})
    if as_json:
        return print_json(record)
    print_table(["", *COLUMNS], score_rows(outcomes), title=stream.name)
    for sentence in sentences(outcomes, stream):
        print(f"- {sentence}")
    print(f"report: {path / REPORT}")


def record_of(path: Path, stream: "TaskStream", outcomes: "dict[str, Outcome]") -> dict[str, Any]:
    """Return the scores of all methods as JSON holds them."""
    from murmuration.system.records import plain_json

    tasks = [
        {"name": task.name, "labels": task.labels, "train": len(task.train), "test": len(task.test)}
        for task in stream.tasks
    ]
    record: dict[str, Any] = {"run": str(path), "stream": stream.name, "scenario": stream.scenario, "tasks": tasks}
    record |= {"order": [[task + 1 for task in segment] for segment in stream.segments]}
    return dict(plain_json(record | {"methods": {name: outcome.record for name, outcome in outcomes.items()}}))
