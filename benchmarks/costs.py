"""Predicted costs beside those of real runs, and the communication of a thousand members on 128 GPUs.

    python benchmarks/costs.py

Each case is predicted by `mm.estimate_costs` in one process and trained in another. Times are CPU seconds of all
threads, which other processes on the machine disturb less than the clock. The projection is arithmetic: sizes of the
network's tensors in the formulas of `murmuration/costs.py`; nothing ran on 128 GPUs.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from murmuration.costs import exchanges
from murmuration.files import write_json
from murmuration.nets import build_net
from murmuration.runs import versions

RESULT = Path(__file__).parent / "results" / "costs.json"
CASES: dict[str, dict[str, Any]] = {
    "mlp, deep-ensemble": {"net": "mlp", "recipe": "deep-ensemble", "members": 10, "epochs": 10},
    "small-cnn, deep-ensemble": {"net": "small-cnn", "recipe": "deep-ensemble", "members": 2, "epochs": 4},
    "mlp, forde": {"net": "mlp", "recipe": "forde", "members": 10, "epochs": 5},
}
PREDICT = """
import json, sys
import murmuration as mm
found = mm.estimate_costs(data="digits", **json.loads(sys.argv[1]))
print(json.dumps(found.to_json()))
"""
TRAIN = """
import json, resource, sys, time
import murmuration as mm
settings, out = json.loads(sys.argv[1]), sys.argv[2]
data, net = mm.open_data("digits"), settings.pop("net")
wall, cpu = time.perf_counter(), time.process_time()
ensemble = mm.fit(net, data, out=out, progress=False, **settings)
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"cpu": cpu, "wall": wall, "peak_bytes": peak}))
"""
MEMBERS, RANKS, BATCH = 1000, 128, 128
SHAPE, CLASSES = (3, 32, 32), 10


def run(program: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(settings: dict[str, Any]) -> dict[str, Any]:
    """The prediction of a case and the costs of its run."""
    predicted = run(PREDICT, json.dumps(settings))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        real = run(TRAIN, json.dumps(settings), str(out))
        real["members_bytes"] = (out / "members.safetensors").stat().st_size
    kept = ("engine", "step", "training", "evaluation", "memory", "memory_bytes", "disk")
    return {"settings": settings, "predicted": {key: predicted[key] for key in kept}, "real": real}


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
