"""Kinds of runs that something other than `mm.fit` trains, registered as entry points `murmuration.run_kinds`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from murmuration.runs.manifest import Manifest
from murmuration.system.plugins import plugins


@dataclass(frozen=True)
class RunKind:
    """How the tool recognises, reopens and finishes the runs of an application.

    Attributes:
        owns: Tells from a manifest whether a run is of this kind.
        contents: What such a run holds, for messages: "pruned networks".
        folder_files: Names of the files that it writes into folders of a run.
        reopen: Opens the training data of a run from its manifest; None if `mm.open_data` does.
        networks: Changes the networks of a run as its manifest says, called as `networks(source, manifest)`.
        finish: Finishes a trained run, called as `finish(path, ensemble, data)`, and returns the ensemble.
        is_finished: Tells from the manifest of a complete run whether nothing is left to do.
        close: Evaluates a trained run on the command line, called as `close(path, ensemble, as_json=...)`; None if the
            usual evaluation and report do.
        test_data: What `close` evaluates on, for messages.
        continue_run: Continues and prints a run that holds no ensemble, called as `continue_run(path, as_json=...)`.
    """

    owns: Callable[[Manifest], bool]
    contents: str
    folder_files: tuple[str, ...] = ()
    reopen: Callable[[Manifest], Any] | None = None
    networks: Callable[[Any, Manifest], Any] | None = None
    finish: Callable[..., Any] | None = None
    is_finished: Callable[[Manifest], bool] = lambda manifest: True
    close: Callable[..., None] | None = None
    test_data: str = ""
    continue_run: Callable[..., None] | None = None


def run_kinds() -> list[RunKind]:
    """Return every registered kind of run."""
    return list(plugins("murmuration.run_kinds", RunKind).values())


def run_kind(manifest: Manifest) -> RunKind | None:
    """Return the kind of a run, or None for a run of plain training."""
    return next((kind for kind in run_kinds() if kind.owns(manifest)), None)
