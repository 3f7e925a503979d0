"""Training throughput of the flow of HCL against the same flow in plain PyTorch and against zuko's own loop.

    python benchmarks/continual.py            a table
    python benchmarks/continual.py --json     one JSON object on standard output: {"over_plain": ..., "over_zuko": ...}

A step is forward and backward pass of the class-conditional likelihood, gradient clipping and Adam, on vectors of 128
dimensions in batches of 64, with 6 affine couplings whose nets have two hidden layers of 256:

    murmuration   `HCL.observe(x, y, task)` without replay
    plain         the same couplings, density, clipping and `torch.optim.Adam` written out below
    zuko          its `RealNVP`, without classes: `-flow().log_prob(x).mean()`, clipping and `torch.optim.Adam`

Turns alternate in one process. A ratio is steps per second of murmuration over those of the other, by the smallest CPU
time of all turns: a disturbance by another program only ever adds to it. Without zuko (pip install zuko) its ratio is
null.
"""

import argparse
import json
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from murmuration.applications.continual.flows import vector_flow
from murmuration.applications.continual.hcl import HCL, HCLConfig

DIMENSIONS, BATCH, CLASSES, COUPLINGS, HIDDEN, LAYERS = 128, 64, 10, 6, 256, 2
ROUNDS, STEPS, WARM_UP = 15, 20, 5
LR, CLIP = 1e-3, 10.0
Step = Callable[[], object]


def batch() -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    return torch.randn(BATCH, DIMENSIONS, generator=rng), torch.arange(BATCH) % CLASSES


def ours() -> Step:
    """A step of HCL on one task that has settled."""
    torch.manual_seed(0)
    config = HCLConfig(replay="none", means="random", settle=1, agnostic=False, lr=LR, clip=CLIP)
    learner = HCL(vector_flow(DIMENSIONS, couplings=COUPLINGS, hidden=HIDDEN, layers=LAYERS), config)
    x, y = batch()
    learner.observe(x, y, 0)  # places the classes
    return lambda: learner.observe(x, y, 0)


class PlainFlow(nn.Module):
    """Six affine couplings that change one half of the dimensions and then the other."""

    def __init__(self) -> None:
        super().__init__()
        half = DIMENSIONS // 2
        widths = [half, *[HIDDEN] * LAYERS]
        self.nets = nn.ModuleList()
        for _ in range(COUPLINGS):
            parts = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
            self.nets.append(nn.Sequential(*parts, nn.Linear(HIDDEN, 2 * half)))
        self.bounds = nn.ParameterList(nn.Parameter(torch.ones(half)) for _ in range(COUPLINGS))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x.chunk(2, dim=1)
        total = torch.zeros(len(x))
        for net, bound in zip(self.nets, self.bounds, strict=True):
            raw, shift = net(a).chunk(2, dim=1)
            scale = bound * torch.tanh(raw)
            a, b = (b + shift) * scale.exp(), a
            total = total + scale.sum(1)
        return torch.cat([a, b], dim=1), total


def plain() -> Step:
    """The same in plain PyTorch."""
    torch.manual_seed(0)
    flow = PlainFlow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=LR)
    means = torch.randn(CLASSES, DIMENSIONS)
    x, y = batch()

    def step() -> float:
        optimizer.zero_grad()
        z, log_det = flow(x)
        density = torch.distributions.Normal(means[y], 1.0).log_prob(z).sum(1) + log_det
        loss = -density.mean() / DIMENSIONS
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), CLIP)
        optimizer.step()
        return loss.item()

    return step


def zuko_loop() -> Step | None:
    """The training loop of zuko's page; None if it is not installed."""
    if find_spec("zuko") is None:
        return None
    import zuko

    torch.manual_seed(0)
    flow = zuko.flows.RealNVP(DIMENSIONS, transforms=COUPLINGS, hidden_features=(HIDDEN,) * LAYERS)
    optimizer = torch.optim.Adam(flow.parameters(), lr=LR)
    x, _ = batch()

    def step() -> float:
        loss = -flow().log_prob(x).mean() / DIMENSIONS
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), CLIP)
        optimizer.step()
        return loss.item()

    return step


def measure(steps: dict[str, Step], rounds: int) -> dict[str, float]:
    """The smallest CPU milliseconds a step of each contender, which take turns."""
    for step in steps.values():
        for _ in range(WARM_UP):
            step()
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.process_time()
            for _ in range(STEPS):
                step()
            best[name] = min(best[name], 1000 * (time.process_time() - start) / STEPS)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each contender")
    given = parser.parse_args()
    torch.set_num_threads(1)
    made: dict[str, Step | None] = {"murmuration": ours(), "plain": plain(), "zuko": zuko_loop()}
    found = measure({name: step for name, step in made.items() if step is not None}, given.rounds)
    record: dict[str, Any] = {
        "over_plain": found["plain"] / found["murmuration"],
        "over_zuko": found["zuko"] / found["murmuration"] if "zuko" in found else None,
        "milliseconds": found,
        "torch": torch.__version__,
    }
    if "zuko" not in found:
        record["note"] = "zuko is not installed: pip install zuko"
    if given.json:
        print(json.dumps(record, indent=2))
        return
    for name, milliseconds in found.items():
        print(f"{name:12} {milliseconds:8.2f} ms a step   {found['murmuration'] / milliseconds:5.2f} of ours")
    print(record.get("note", ""))


if __name__ == "__main__":
    main()
