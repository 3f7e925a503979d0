"""Where a run comes from: all that is needed to understand it, repeat it and go on with it."""

import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import torch

from murmuration.engines import Engine
from murmuration.nets.source import NetSource
from murmuration.training import Job


def describe(job: Job, source: NetSource, engine: Engine, reason: str) -> dict[str, Any]:
    """The manifest of a run: all that is needed to understand it, repeat it and go on with it."""
    data = job.data
    return {
        "recipe": job.recipe.to_json(),
        "plan": job.plan.to_json(),
        "net": source.record,
        "input_shape": list(data.input_shape),
        "likelihood": job.likelihood.to_json(),
        **({"kernels": job.kernel_trace.to_json()} if job.recipe.needs_kernels else {}),
        "data": {
            "name": data.name,
            "source": data.source,
            "task": data.task,
            "fingerprint": data.fingerprint,
            "classes": list(data.classes),
            "features": list(data.feature_names),
            "examples": {part: len(getattr(data, part)) for part in ("train", "val", "test")},
            "preparation": data.preparation.to_json(),
        },
        "engine": {
            "name": engine.name,
            "workers": engine.workers,
            "stacked": engine.stacked,
            "direct": engine.direct,
            "reason": reason,
            "torch_threads": torch.get_num_threads(),
        },
        "versions": versions(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    import numpy

    import murmuration

    return {
        "murmuration": murmuration.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }
