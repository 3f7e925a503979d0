"""`murmur continual`: tasks one after another, by one flow and by the methods it is compared with."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murmuration.applications.commands.results import leave_page
from murmuration.applications.continual.settings import BatchPlan, MethodSettings
from murmuration.cli.options import Json, Names, flags, grouped, image_size, is_whole, listed, named_targets, option
from murmuration.system.errors import Misuse
from murmuration.system.progress import counting_bar

if TYPE_CHECKING:
    from murmuration.applications.continual.runs import Request
    from murmuration.applications.continual.task_streams import TaskStream


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
        numbers = listed(self.order)
        if not all(map(is_whole, numbers)):
            raise Misuse(f"--order {','.join(numbers)}: expected numbers of tasks, such as 1,2,1")
        order = [int(text) for text in numbers] or None
        parsed = {"target": targets, "order": order, "drop": listed(self.drop) or None, "size": image_size(self.size)}
        return {name: value for name, value in (vars(self) | parsed).items() if value is not None}


BatchOptions: Any = flags(BatchPlan, "Training", {})
LearningOptions: Any = flags(
    MethodSettings,
    "HCL",
    {
        **{name: {"panel": "Training"} for name in ("lr", "told")},
        "flow": {"metavar": "KIND"},
        "means": {"metavar": "WAY"},
        **{name: {"panel": "Detection"} for name in ("threshold", "window", "warmup", "rule")},
        **{name: {"panel": "Baselines"} for name in ("net", "members", "capacity", "penalty")},
        "seed": None,
    },
)


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
    batches: BatchOptions,
    learning: LearningOptions,
    as_json: Json = False,
) -> None:
    """Learn tasks one after another without forgetting.

    Learn the tasks of a stream one after another without forgetting (continual learning). A stream is a split of one
    data set by classes, split:DATA:5x2 (five tasks of two classes), or several data sets, such as tables that drift.
    Nobody says where a task begins: HCL finds out, unless --told. Methods: hcl-fr, hcl-gr, hcl-ensemble, hcl-bayes,
    lda, ncm, adam, replay, replay-balanced, ewc, ensemble-replay, joint. The run holds metrics.json and report.html; an
    interrupted one continues with `murmur resume`.

    Examples:
        murmur continual split:digits:5x2
        murmur continual split:digits:5x2 --method hcl-fr,hcl-gr,lda,replay,joint
        murmur continual january.csv february.csv march.csv --target kind --out runs/drift
        murmur continual split:mnist:5x2 --flow image --examples 2000
        murmur continual split:digits:4x2 --scenario domain --order 1,2,1,3,4
    """
    from murmuration.applications.continual.runs import Request, begin
    from murmuration.cli.training import new_run_path
    from murmuration.reports.report import this_command
    from murmuration.runs.directory import new_run, versions

    plan, settings = BatchPlan(**vars(batches)), MethodSettings(**vars(learning), seed=batches.seed)
    methods = tuple(listed(method)) or ("hcl-fr", "lda")
    request = Request(tuple(stream), methods, reading.to_json(), plan, settings)
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
    from murmuration.system.records import plain_json

    with with_resume_hint(path), counting_bar("learning", quiet=as_json) as show:
        outcomes = finish(path, request, stream, show)
    tasks = [{"name": t.name, "labels": t.labels, "train": len(t.train), "test": len(t.test)} for t in stream.tasks]
    record: dict[str, Any] = {"run": str(path), "stream": stream.name, "scenario": stream.scenario, "tasks": tasks}
    record |= {"order": [[task + 1 for task in segment] for segment in stream.segments]}
    record |= {"methods": {name: outcome.record for name, outcome in outcomes.items()}}
    page = continual_page(outcomes, stream, vars(request.plan) | vars(request.settings))
    table = stream.name, COLUMNS, score_rows(outcomes)
    leave_page(path, plain_json(record), page, table, sentences(outcomes, stream), as_json=as_json)
