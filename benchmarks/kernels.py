"""What tangent kernels between members cost: `member_kernels` against whole Jacobians, interleaved in one run.

    python benchmarks/kernels.py            a table
    python benchmarks/kernels.py --json     one JSON object on standard output

Four rank-one members of an MLP with three hidden layers and one output, 64 inputs: the kernels by what members share,
(4, 64, 4, 64), and by what is their own, (4, 64, 64). The other route is that of PyTorch's tutorial on neural tangent
kernels: `functional_call` on one example, `vmap(jacrev)` over examples, an einsum a parameter; for the shared tensors
once a member and contracted over all pairs of members, for a member's own once more. A narrower network with ten
outputs is measured too: whole Jacobians of the wide one would need ten times the memory.

Seconds are medians. Memory is by how much the largest resident set of a fresh process that follows one route is above
that of one that only builds the members; both have run both routes on a tiny network before.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from murmuration.core.population import Named, Population, populate
from murmuration.core.sharing import SHARING
from murmuration.core.weights import WEIGHTS, NetworkWeights, trace_kernels
from murmuration.models.nets.dense import mlp
from murmuration.studies.tangent_kernels import MemberKernels, member_kernels
from murmuration.system.memory import keep_freed_memory
from murmuration.system.option_text import parse
from murmuration.system.streams import generator, global_stream

ROUTES = ("ours", "tutorial")


@dataclass(frozen=True)
class Setting:
    """The members and the inputs."""

    width: int = 1024
    outputs: int = 1
    inputs: int = 64
    features: int = 64
    hidden_layers: int = 3
    members: int = 4


MAIN, TEN, TINY = Setting(), Setting(width=256, outputs=10), Setting(width=8, inputs=3, features=4, members=2)


@dataclass(frozen=True)
class Work:
    module: nn.Module
    population: Population
    family: NetworkWeights
    x: Tensor


def work_of(setting: Setting) -> Work:
    """Members and inputs of a setting, the same in every process."""

    def build(index: int) -> nn.Module:
        with global_stream(0, "initialisation", index):
            return mlp((setting.features,), setting.outputs, hidden=(setting.width,) * setting.hidden_layers)

    x = torch.randn(setting.inputs, setting.features, generator=torch.Generator().manual_seed(0))
    module, sharing = build(0), parse("rank-one", "sharing", SHARING)
    trace = trace_kernels(module, x[:2])
    members = populate(build, setting.members, sharing.predicate(module, trace))
    population = sharing.add_factors(members, trace, lambda member: generator(0, "factors", member))
    return Work(module, population, parse("point", "weights", WEIGHTS).in_network(trace), x)


def ours(work: Work) -> MemberKernels:
    return member_kernels(work.module, work.population, work.family, work.x)


class RankOne(nn.Module):
    """A dense layer of one member as it is written by hand, its tensors named as the population names them."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.register_parameter("weight:in", nn.Parameter(torch.ones(layer.in_features)))
        self.register_parameter("weight:out", nn.Parameter(torch.ones(layer.out_features)))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x * getattr(self, "weight:in"), self.weight) * getattr(self, "weight:out") + self.bias


def by_hand(module: nn.Module) -> nn.Module:
    """The network with its dense layers in rank-one form."""
    made = nn.Sequential()
    for name, part in module.named_children():
        made.add_module(name, RankOne(part) if isinstance(part, nn.Linear) else by_hand(part))
    return made if len(made) else module


def tutorial(work: Work) -> MemberKernels:
    """The same kernels by whole Jacobians."""
    network, shared = by_hand(work.module), work.population.shared
    owns = [{name: each[i] for name, each in work.population.own.items()} for i in range(work.population.members)]

    def single(ours: Named, mine: Named, example: Tensor) -> Tensor:
        return functional_call(network, {**ours, **mine}, (example.unsqueeze(0),)).squeeze(0)

    def jacobian(which: int, mine: Named) -> list[Tensor]:
        found = vmap(jacrev(single, argnums=which), (None, None, 0))(shared, mine, work.x)
        return [each.flatten(2) for each in found.values()]  # (n, K, P)

    def contracted(one: list[Tensor], other: list[Tensor]) -> Tensor:
        products = [torch.einsum("Naf,Maf->NM", a, b) for a, b in zip(one, other, strict=True)]
        return torch.stack(products).sum(0) / one[0].shape[1]

    jacobians = [jacobian(0, mine) for mine in owns]
    common = torch.stack([torch.stack([contracted(a, b) for b in jacobians], 1) for a in jacobians])
    del jacobians
    return MemberKernels(common, torch.stack([contracted(own, own) for own in (jacobian(1, mine) for mine in owns)]))


RUN: dict[str, Callable[[Work], MemberKernels]] = {"ours": ours, "tutorial": tutorial}


def relative_difference(one: MemberKernels, other: MemberKernels) -> float:
    """The largest difference of entries, against the largest entry."""
    both = [(one.common, other.common), (one.individual, other.individual)]
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in both)


def timed(work: Work, repeats: int) -> tuple[dict[str, float], float]:
    """Median seconds of each route, interleaved, and by how much their kernels differ."""
    times: dict[str, list[float]] = {route: [] for route in ROUTES}
    for repeat in range(repeats + 1):
        found = {}
        for route in ROUTES:
            start = time.perf_counter()
            found[route] = RUN[route](work)
            if repeat:  # the first round wakes everything up
                times[route].append(time.perf_counter() - start)
    return {route: statistics.median(each) for route, each in times.items()}, relative_difference(*found.values())


def peak(setting: Setting, route: str) -> float:
    """The largest resident set so far, in megabytes, of this process after one route, or none."""
    for run in RUN.values():
        run(work_of(TINY))
    work = work_of(setting)
    if route in RUN:
        RUN[route](work)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return kilobytes / 1024


def peaks(setting: Setting) -> dict[str, float]:
    """Megabytes that each route needs above the members themselves, each in a process of its own."""
    found = {}
    for route in ("none", *ROUTES):
        command = [sys.executable, __file__, "--peak", route, "--setting", json.dumps(asdict(setting))]
        found[route] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {route: found[route] - found["none"] for route in ROUTES}


def measure(setting: Setting, memory: dict[str, float], repeats: int) -> dict[str, Any]:
    """The record of one setting."""
    seconds, difference = timed(work_of(setting), repeats)
    return {
        "speedup": round(seconds["tutorial"] / seconds["ours"], 2),
        "memory_ratio": round(memory["tutorial"] / max(memory["ours"], 1.0), 2),
        "relative_difference": difference,
        "seconds": {route: round(each, 4) for route, each in seconds.items()},
        "peak_megabytes": {route: round(each, 1) for route, each in memory.items()},
        "setting": asdict(setting),
    }


def record(one: Setting, ten: Setting, repeats: int) -> dict[str, Any]:
    """The record of one output, with that of ten outputs in it."""
    memory = [peaks(one), peaks(ten)]  # first: a process starts with the largest resident set of the one that made it
    found, other = (measure(*each, repeats) for each in zip((one, ten), memory, strict=True))
    about = {"torch": torch.__version__, "threads": torch.get_num_threads(), "repeats": repeats}
    return {**found, "ten_outputs": other, **about}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peak", choices=("none", *ROUTES), help=argparse.SUPPRESS)
    parser.add_argument("--setting", help=argparse.SUPPRESS)
    options = parser.parse_args()
    keep_freed_memory()
    if options.peak:
        return print(peak(Setting(**json.loads(options.setting)), options.peak))
    found = record(MAIN, TEN, options.repeats)
    if options.json:
        return print(json.dumps(found, indent=2))
    for name, each in (("one output", found), ("ten outputs", found["ten_outputs"])):
        print(f"{name}: {each['speedup']}x faster, {each['memory_ratio']}x leaner; {each['seconds']} s,")
        print(f"  {each['peak_megabytes']} MB, relative difference {each['relative_difference']:.1e}")


if __name__ == "__main__":
    main()
