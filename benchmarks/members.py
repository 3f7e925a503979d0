"""How fast M members train: every engine against a plain hand-written loop, interleaved in one run.

    python benchmarks/members.py            a table
    python benchmarks/members.py --json     one JSON object on standard output

One step = forward, backward and Adam for all ten members on the same batch of 128. The plain loop is what one writes by
hand: contiguous tensors, one torch.optim.Adam a network, torch's default settings. It runs in a process of its own,
and all contenders reuse freed memory (`murmuration.system.memory`). Repeats alternate between the contenders, medians
are reported, and ratios are what counts: absolute times on a shared machine are noise. The GEMM peak is measured in the
same run; a workload's floating-point operations are those of its convolutions and products, counted by torch.

`batch_ensemble` is a BatchEnsemble of as many members on the same batch, on its own fastest engine. It stores little
more than one network and computes as much as ten: what it shares is memory, not time.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from timing import seconds
from torch.utils.flop_counter import FlopCounterMode

import murmuration as mm
from murmuration.models.nets import build_net

MEMBERS, BATCH, CLASSES, SEED = 10, 128, 10, 0
WORKLOADS = {"mlp": (1, 8, 8), "small-cnn": (3, 32, 32), "medium-cnn": (3, 32, 32)}  # net -> shape of an input
ENGINES = ("loop", "stacked", "threads", "threads-stacked")
STEPS = {"mlp": 50, "small-cnn": 2, "medium-cnn": 1}  # steps a timing, so that one is long enough to measure
HOPELESS = 2.0  # an engine this many times slower than the plain loop is timed once only
GEMM = 2048
EMBEDDED = "batch-ensemble"


def inputs(net: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(BATCH, *WORKLOADS[net], generator=generator)
    return x, torch.randint(CLASSES, (BATCH,), generator=generator)


def plain_step(net: str) -> Callable[[], None]:
    """The loop one writes by hand."""
    x, y = inputs(net)
    nets = [build_net(net, WORKLOADS[net], CLASSES) for _ in range(MEMBERS)]
    optimisers = [torch.optim.Adam(n.parameters(), lr=1e-3) for n in nets]

    def all_members() -> None:
        for member, optimiser in zip(nets, optimisers, strict=True):
            optimiser.zero_grad()
            F.cross_entropy(member(x), y).backward()
            optimiser.step()

    return all_members


def method_for(net: str, engine: str, recipe: str = "deep-ensemble") -> mm.Method:
    """Ten members on the named engine."""
    settings: dict[str, Any] = {"members": MEMBERS, "batch_size": BATCH, "engine": engine}
    likelihood = mm.Categorical(CLASSES)
    return mm.Method(
        lambda: build_net(net, WORKLOADS[net], CLASSES), likelihood, recipe, inputs=inputs(net)[0], **settings
    )


def engine_step(net: str, engine: str, recipe: str = "deep-ensemble") -> tuple[str, Callable[[], torch.Tensor]]:
    """Return the name of the engine, and one step of our own on it."""
    (x, y), method = inputs(net), method_for(net, engine, recipe)
    state = method.init(SEED)
    method.step(state, x, y)
    assert method.engine is not None
    return method.engine.name, lambda: method.step(state, x, y)


def serve_plain(net: str) -> None:
    """The plain loop's own process: a line in, seconds a step out."""
    all_members = plain_step(net)
    all_members()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(seconds(all_members, STEPS[net]), flush=True)


@contextmanager
def plain_process(net: str) -> Iterator[Callable[[], float]]:
    command = [sys.executable, __file__, "--serve-plain", net]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin
        assert process.stdout

        process.stdout.readline()  # its imports must not disturb the measurement

        def ask() -> float:
            process.stdin.write("go\n")
            return float(process.stdout.readline())

        yield ask
        process.stdin.close()


def gemm_gflops(repeats: int = 5) -> float:
    """The best rate of one large matrix product, all cores: the hardware's practical limit."""
    a, b = torch.randn(GEMM, GEMM), torch.randn(GEMM, GEMM)
    return max(2e-9 * GEMM**3 / seconds(lambda: a @ b, 1) for _ in range(repeats))


def flops_per_step(net: str) -> int:
    x, y = inputs(net)
    module = build_net(net, WORKLOADS[net], CLASSES)
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(module(x), y).backward()
    return MEMBERS * counter.get_total_flops()


def measure(net: str, repeats: int) -> tuple[dict[str, object], float]:
    """The workload's record, and the GEMM rate measured between its repeats."""
    with ExitStack() as stack:
        contenders: dict[str, Callable[[], float]] = {"plain_loop": stack.enter_context(plain_process(net))}
        chosen: dict[str, str] = {}
        for name in (*ENGINES, "auto"):
            chosen[name], one = engine_step(net, name)
            contenders[name] = lambda one=one: seconds(one, STEPS[net])
        chosen[EMBEDDED], embedded = engine_step(net, "auto", EMBEDDED)
        contenders[EMBEDDED] = lambda: seconds(embedded, STEPS[net])
        times: dict[str, list[float]] = {name: [] for name in contenders}
        rates = []
        for _ in range(repeats):
            rates.append(gemm_gflops())
            for name, ask in contenders.items():
                if not times[name] or times[name][0] < HOPELESS * times["plain_loop"][0]:
                    times[name].append(ask())
    median, peak = {name: statistics.median(t) for name, t in times.items()}, max(rates)
    return {**record(net, median, chosen["auto"], peak), "batch_ensemble": embedded_record(net, median, chosen)}, peak


def embedded_record(net: str, median: dict[str, float], chosen: dict[str, str]) -> dict[str, object]:
    """What a BatchEnsemble costs beside ten single networks: time against their loop, numbers stored against one."""
    stored = {name: method_for(net, "loop", name).init().population for name in ("deep-ensemble", EMBEDDED)}
    single = stored["deep-ensemble"].parameters_per_member()
    return {
        "s": median[EMBEDDED],
        "engine": chosen[EMBEDDED],
        "over_plain_loop": median[EMBEDDED] / median["plain_loop"],
        "over_deep_ensemble": median[EMBEDDED] / median["auto"],
        "parameters": stored[EMBEDDED].parameters_stored(),
        "parameters_over_single": stored[EMBEDDED].parameters_stored() / single,
    }


def record(net: str, median: dict[str, float], auto: str, gemm: float) -> dict[str, object]:
    plain, flops = median["plain_loop"], flops_per_step(net)
    engines = {name: {"s": median[name], "speedup": plain / median[name]} for name in ENGINES}
    return {
        "plain_loop_s": plain,
        "auto_s": median["auto"],
        "auto_speedup": plain / median["auto"],
        "auto_engine": auto,
        "gflops": 1e-9 * flops / median["auto"],
        "fraction_of_peak": 1e-9 * flops / median["auto"] / gemm,
        "gflop_per_step": 1e-9 * flops,
        "engines": engines,
    }


def run(workloads: list[str], repeats: int) -> dict[str, object]:
    found = {net: measure(net, repeats) for net in workloads}
    return {
        "gemm_gflops": max(gemm for _, gemm in found.values()),
        "members": MEMBERS,
        "batch": BATCH,
        "repeats": repeats,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "workloads": {net: entry for net, (entry, _) in found.items()},
    }


def table(result: dict) -> str:
    lines = [f"GEMM peak {result['gemm_gflops']:.0f} GFLOP/s; ms a step of {MEMBERS} members (speed-up)"]
    for net, entry in result["workloads"].items():
        engines = "  ".join(f"{k} {1e3 * v['s']:.1f} ({v['speedup']:.2f}x)" for k, v in entry["engines"].items())
        lines.append(f"{net}: plain {1e3 * entry['plain_loop_s']:.1f}  {engines}")
        auto = f"  auto = {entry['auto_engine']}: {1e3 * entry['auto_s']:.1f} ({entry['auto_speedup']:.2f}x)"
        lines.append(f"{auto}, {entry['fraction_of_peak']:.2f} of the GEMM peak")
        both = entry["batch_ensemble"]
        ratio = f"{both['over_plain_loop']:.2f} of the plain loop"
        ratio += f", {both['parameters_over_single']:.3f} of one net's numbers"
        lines.append(f"  batch-ensemble on {both['engine']}: {1e3 * both['s']:.1f}, {ratio}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--serve-plain", metavar="NET", choices=WORKLOADS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    mm.keep_freed_memory()
    if options.serve_plain:
        serve_plain(options.serve_plain)
        return
    result = run(options.workloads, options.repeats)
    print(json.dumps(result, indent=2) if options.json else table(result))


if __name__ == "__main__":
    main()
