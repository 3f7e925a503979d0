"""The manifest of a run before it is trained, and the engine that a manifest names."""

from typing import Any

import torch

from murmuration.core.engines import Engine, Ranks, engine as engine_named
from murmuration.models.nets.source import NetSource
from murmuration.runs import directory as runs
from murmuration.training import TrainSpec


def describe(spec: TrainSpec, source: NetSource, engine: Engine, reason: str) -> dict[str, Any]:
    """The manifest of a run: all that is needed to understand it, repeat it and continue it."""
    data = spec.data
    return {
        "recipe": spec.recipe.to_json(),
        "plan": spec.plan.to_json(),
        "net": source.record,
        "input_shape": list(data.input_shape),
        "steps_per_epoch": spec.end.steps_per_epoch,
        "likelihood": spec.likelihood.to_json(),
        **({"kernels": spec.method.trace.to_json()} if spec.recipe.needs_kernels else {}),
        "data": runs.describe_data(data, spec.likelihood.task),
        "engine": {
            "name": engine.name,
            "workers": engine.workers,
            "stacked": engine.stacked,
            "direct": engine.direct,
            "reason": reason,
            "torch_threads": torch.get_num_threads(),
        },
        **({} if spec.ranks.alone else {"ranks": spec.ranks.size * spec.ranks.parts}),
        **runs.describe_process(),
    }


def engine_from(manifest: dict[str, Any]) -> Engine:
    """The engine that a manifest names."""
    return Engine(**{key: manifest["engine"][key] for key in ("name", "workers", "stacked", "direct")})


def engine_again(manifest: dict[str, Any], ranks: Ranks) -> Engine:
    """The engine of a run that is continued; with other processes than before, as many workers as there are cores."""
    stored = engine_from(manifest)
    if ranks.size * ranks.parts == manifest.get("ranks", 1) or not stored.workers:
        return stored
    return engine_named(stored.name, stored.direct, ranks.cores)
