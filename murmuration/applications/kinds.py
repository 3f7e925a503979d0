"""The kinds of runs that applications train, as the rest of the tool knows them; each imports its part when called."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from murmuration.runs.kinds import RunKind


def _deferred(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports another one of the applications when it is called, and calls it."""
    return lambda *args, **kwargs: getattr(import_module(f"murmuration.applications.{module}"), name)(*args, **kwargs)


PRUNING = RunKind(
    owns=lambda manifest: "pruning" in manifest.entries,
    contents="pruned networks",
    networks=_deferred("pruning.narrow", "compact_networks"),
    finish=_deferred("pruning.runs", "with_finetuned_scores"),
    is_finished=lambda manifest: (
        not manifest.entries["pruning"]["finetune"] or "finetuned" in manifest.entries["pruning"]
    ),
)
SUPERRES = RunKind(
    owns=lambda manifest: str(manifest.data.get("name", "")).startswith("patches:"),
    contents="networks that upscale images",
    reopen=_deferred("superres", "reopen"),
    close=_deferred("commands.superres", "close_superres"),
    test_data="its own photographs",
)
CONTINUAL = RunKind(
    owns=lambda manifest: "continual" in manifest.entries,
    contents="a stream of tasks",
    folder_files=("record.json", "samples.safetensors"),
    continue_run=_deferred("commands.continual", "resume_continual"),
)
