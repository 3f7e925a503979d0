"""The kinds of runs that applications train, as the rest of the tool knows them; each imports its part when called."""

from pathlib import Path
from typing import Any

from murmuration.runs.kinds import RunKind


def _resume_pruned(path: str | Path, **settings: Any) -> Any:
    from murmuration.applications.pruning import resume

    return resume(path, **settings)


def _is_tuned(manifest: dict[str, Any]) -> bool:
    return not manifest["pruning"]["finetune"] or "finetuned" in manifest["pruning"]


def _reopen_patches(manifest: dict[str, Any]) -> Any:
    from murmuration.applications.superres import reopen

    return reopen(manifest)


def _close_superres(path: Path, ensemble: Any, *, as_json: bool) -> None:
    from murmuration.applications.commands.superres import close_superres

    close_superres(path, ensemble, as_json=as_json)


def _continue_stream(path: Path, *, as_json: bool) -> None:
    from murmuration.applications.commands.continual import resume_continual

    resume_continual(path, as_json=as_json)


PRUNING = RunKind(
    owns=lambda manifest: "pruning" in manifest,
    contents="pruned networks",
    resume=_resume_pruned,
    is_finished=_is_tuned,
)
SUPERRES = RunKind(
    owns=lambda manifest: str(manifest.get("data", {}).get("name", "")).startswith("patches:"),
    contents="networks that upscale images",
    reopen=_reopen_patches,
    close=_close_superres,
    test_data="its own photographs",
)
CONTINUAL = RunKind(
    owns=lambda manifest: "continual" in manifest,
    contents="a stream of tasks",
    folder_files=("record.json", "samples.safetensors"),
    continue_run=_continue_stream,
)
