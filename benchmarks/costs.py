"""Predicted costs beside those of real runs, and the communication of a thousand members on 128 GPUs.

    python benchmarks/costs.py

Each case is predicted by `murmur plan` and trained by `murmur train`, processes of their own on one core with one
thread. Times are CPU seconds, which other processes on the machine disturb less than the clock, but still by a third or
so where they share a core. The projection is arithmetic: sizes of the network's tensors in the formulas of
`murmuration/training/costs.py`; nothing ran on 128 GPUs.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from murmuration.models.nets import build_net
from murmuration.runs.directory import versions
from murmuration.system.files import write_json
from murmuration.training.costs import exchanges

RESULT = Path(__file__).parent / "results" / "costs.json"
CASES: dict[str, dict[str, Any]] = {
    "mlp, deep-ensemble": {"net": "mlp", "recipe": "deep-ensemble", "members": 10, "epochs": 10},
    "mlp, deep-ensemble, longer": {"net": "mlp", "recipe": "deep-ensemble", "members": 10, "epochs": 60},
    "small-cnn, deep-ensemble": {"net": "small-cnn", "recipe": "deep-ensemble", "members": 4, "epochs": 20},
    "mlp, forde": {"net": "mlp", "recipe": "forde", "members": 10, "epochs": 40},
    "small-cnn, batch-ensemble": {"net": "small-cnn", "recipe": "batch-ensemble", "members": 4, "epochs": 15},
}
MEMBERS, RANKS, BATCH = 1000, 128, 128
SHAPE, CLASSES = (3, 32, 32), 10


def run(command: str, settings: dict[str, Any], *more: str) -> tuple[dict[str, Any], Any]:
    """The JSON that a command prints, and the resources that its process has used."""
    options = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    call = [sys.executable, "-m", "murmuration", command, "digits", *options, *more, "--json"]
    core = {sorted(os.sched_getaffinity(0))[-1]}
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen(
            call,
            stdout=out,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, core),
        )
        _, status, used = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"{' '.join(call)} ended with status {status}")
        out.seek(0)
        return json.load(out), used


def compared(settings: dict[str, Any]) -> dict[str, Any]:
    """The prediction of a case and the costs of its run."""
    predicted, planned = run("plan", settings)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        _, used = run("train", settings, "--out", str(out))
        real = {"cpu": used.ru_utime + used.ru_stime, "peak_bytes": used.ru_maxrss * 1024}
        real["members_bytes"] = (out / "members.safetensors").stat().st_size
        real["training_wall"] = json.loads((out / "run.json").read_text())["seconds"]
    times = ("start", "first", "step", "training", "evaluation", "report", "total")
    kept = ("engine", *times, "memory", "memory_bytes", "disk")
    cost = planned.ru_utime + planned.ru_stime
    return {"settings": settings, "predicted": {key: predicted[key] for key in kept}, "plan_cpu": cost, "real": real}


def projection() -> dict[str, Any]:
    """Bytes that a rank receives in a step, for each coupling space and for shared kernels."""
    net = build_net("resnet20", SHAPE, CLASSES)
    numbers = sum(parameter.numel() for parameter in net.parameters())
    features = int(net.get_submodule("body")(torch.zeros(2, *SHAPE)).shape[1])
    inputs = SHAPE[0] * SHAPE[1] * SHAPE[2]
    spaces = {
        "no coupling, nothing shared (deep-ensemble)": (None, (0, 0), 0),
        "outputs (function-rde)": ("features", (BATCH, CLASSES), 0),
        "features (feature-rde without its shared head)": ("features", (BATCH, 2 * features), 0),  # and loss gradients
        "input gradients (forde)": ("features", (BATCH, inputs), 0),
        "weights (weight-rde)": ("weights", (1, numbers), 0),
        "shared kernels (batch-ensemble)": (None, (0, 0), numbers),
    }
    rows = {}
    for name, (space, size, shared) in spaces.items():
        found = exchanges(MEMBERS, RANKS, space, size, numbers, shared)
        formula = found[0].formula if found else "0"
        rows[name] = {"formula": formula, "bytes": sum(each.bytes_per_step for each in found)}
    sizes = {"members": MEMBERS, "ranks": RANKS, "batch": BATCH, "parameters": numbers}
    return {**sizes, "net": "resnet20", "features": features, "inputs": inputs, "spaces": rows}


def main() -> None:
    cases = {}
    for name, settings in CASES.items():
        cases[name] = compared(settings)
        print(name, json.dumps(cases[name]["real"]), flush=True)
        write_json(RESULT, {"cases": cases, "projection": projection(), "versions": versions()})


if __name__ == "__main__":
    main()
