"""Run directories of streams of tasks.

run.json                 the request: stream, methods, settings; rewritten last of all
METHOD/record.json       the scores of a method, once it has come to the end of the stream, and digests
METHOD/samples.safetensors   inputs drawn from the tasks of a flow
METHOD/latest.json, METHOD/step-N.safetensors   the last checkpoint of a method in progress
metrics.json, report.html    all scores, and the page
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from murmuration.applications.continual.harness import LATEST, Outcome, Show, run_method
from murmuration.applications.continual.methods import MethodSettings, method_named
from murmuration.applications.continual.task_streams import SPLIT, BatchPlan, TaskStream, open_stream
from murmuration.data.dataset import located
from murmuration.runs.directory import create_run, locked, read_run, write_manifest
from murmuration.runs.manifest import Manifest
from murmuration.system import files
from murmuration.system.errors import Failure, Misuse
from murmuration.system.records import plain_json

KIND = "continual"  # the part of a manifest that says what was asked for
RECORD, SAMPLES = "record.json", "samples.safetensors"


@dataclass(frozen=True)
class Request:
    """What is run: the arguments of `open_stream`, the methods, and their settings."""

    sources: tuple[str, ...]
    methods: tuple[str, ...]
    options: dict[str, Any]  # of `open_stream`
    plan: BatchPlan
    settings: MethodSettings

    def __post_init__(self) -> None:
        for name in self.methods:
            method_named(name)
        if not self.methods or len(set(self.methods)) != len(self.methods):
            raise Misuse(f"methods {', '.join(self.methods) or 'none'}: expected at least one, each once")

    def open(self) -> TaskStream:
        """Return the stream; images for a flow of images are pixels in 0..1."""
        usual = "unit" if self.settings.flow == "image" else "standardise"
        try:
            return open_stream(list(self.sources), **{"prepare": usual, **self.options}, seed=self.plan.seed)
        except Misuse as error:
            if "prepare='unit'" not in str(error):
                raise
            raise Misuse("flow='image' for inputs that are not images: expected images, or flow='vector'") from None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "sources": [located_source(source) for source in self.sources]}


def located_source(text: str) -> str:
    """Return a source as text that holds in any directory."""
    if not text.startswith(SPLIT):
        return str(located(text))
    source, _, groups = text.removeprefix(SPLIT).rpartition(":")
    return f"{SPLIT}{located(source)}:{groups}"


def begin(path: Path, request: Request, more: dict[str, Any] | None = None) -> TaskStream:
    """Open the stream and create the run directory; nothing is written if the stream is refused."""
    stream = request.open()
    for name in request.methods:  # a method that does not fit is refused before the first one runs
        method = method_named(name)
        method.build(method.stream(stream, request.settings), request.settings)
    entries = {KIND: request.to_json(), "fingerprint": stream.fingerprint, **(more or {})}
    create_run(path, Manifest(entries=entries))
    return stream


def reopen(path: Path) -> tuple[Request, TaskStream]:
    """Return the request and the stream of an existing run."""
    manifest = read_run(path)
    if KIND not in manifest.entries:
        raise Misuse(f"{path} is not a run of a stream of tasks: expected one of murmur continual")
    record = manifest.entries[KIND]
    plan, settings = BatchPlan(**record["plan"]), MethodSettings(**record["settings"])
    request = Request(tuple(record["sources"]), tuple(record["methods"]), record["options"], plan, settings)
    stream = request.open()
    if stream.fingerprint != manifest.entries["fingerprint"]:
        raise Failure(f"the data of {path} has changed since the run began")
    return request, stream


def finish(path: Path, request: Request, stream: TaskStream, show: Show) -> dict[str, Outcome]:
    """Return the outcome of every method, each from its last checkpoint on; closes the run."""
    with locked(path):
        outcomes = {name: finish_method(path / name, name, request, stream, show) for name in request.methods}
        write_manifest(path, replace(read_run(path), status="complete"))
    return outcomes


def finish_method(place: Path, name: str, request: Request, stream: TaskStream, show: Show) -> Outcome:
    """Return the outcome of one method, read if it is there."""
    if (place / RECORD).exists():
        record = files.read_record(place / RECORD)
        digest = record.pop(SAMPLES, None)
        samples = {} if digest is None else files.read_tensors(place / SAMPLES, digest)
        outcome = Outcome(record, {int(task): tensor for task, tensor in samples.items()})
    else:
        outcome = run_method(name, stream, request.plan, request.settings, place=place, show=show)
        place.mkdir(parents=True, exist_ok=True)
        digests = {}
        if outcome.samples:
            files.write_tensors(place / SAMPLES, {str(task): tensor for task, tensor in outcome.samples.items()})
            digests = {SAMPLES: files.digest_of(place / SAMPLES)}
        files.write_record(place / RECORD, {**plain_json(outcome.record), **digests})
    for checkpoint in [*place.glob("step-*.safetensors"), place / LATEST]:
        checkpoint.unlink(missing_ok=True)
    return outcome
