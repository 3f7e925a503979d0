"""How fast an ensemble predicts, one input or a thousand, against a loop and against vmap written by hand.

    python benchmarks/predict.py            a table
    python benchmarks/predict.py --json     one JSON object on standard output

Ours is `ensemble.predict(raw).mean`: raw numpy inputs in, preparation, all members, temperature calibration, mean
probabilities out. The contenders get prepared tensors and are not calibrated:

    loop    torch.stack([model(x) for model in models]).softmax(-1).mean(0)
    vmap    torch.vmap of functional_call over stacked parameters, then the same

Turns of the three alternate in one process after a warm-up of each. CPU time (of all threads) and wall time are the
smallest of all turns: a disturbance by another program only ever adds to them. A ratio is ours over the faster
contender.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

import murmuration as mm
from murmuration.data.preparation import ArrayPreparation, ImagePreparation, Preparation
from murmuration.models.nets import build_net

SHAPES = {"mlp": (64,), "small-cnn": (3, 32, 32)}
MEMBERS, ROWS, CLASSES, SEED = (5, 10, 50), (1, 1000), 10, 0
TURN = 0.01  # seconds of a turn, at least, in calls
WARM_UP = 3  # calls: the second one of a shape is captured
SLOW = 1.0  # seconds of a call
HOPELESS = 2.5  # a contender this many times slower than the other is not timed again after the warm-up
MOST = 20.0  # seconds of a case, after which no new round begins
CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}

Contenders = dict[str, Callable[[], Tensor]]


def preparation_of(shape: tuple[int, ...]) -> Preparation:
    if len(shape) == 1:
        return ArrayPreparation(shape, mean=(127.5,) * shape[0], std=(64.0,) * shape[0])
    return ImagePreparation(shape, 255.0, mean=(127.5,) * shape[0], std=(64.0,) * shape[0])


def contenders(net: str, members: int, rows: int) -> Contenders:
    """The three ways from inputs to mean probabilities (N, K)."""
    torch.manual_seed(SEED)
    shape = SHAPES[net]
    models = [build_net(net, shape, CLASSES).eval() for _ in range(members)]
    raw = np.random.default_rng(SEED).integers(0, 256, (rows, *shape), dtype=np.uint8)
    preparation = preparation_of(shape)
    given = mm.Ensemble.from_models(models)
    ours = replace(given.fit_posthoc(torch.randn(100, *shape), torch.arange(100) % CLASSES), preparation=preparation)
    x = preparation.apply(raw)
    stacked, skeleton = stack_module_state(models), copy.deepcopy(models[0]).to("meta")

    def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        made: Tensor = functional_call(skeleton, (parameters, buffers), (x,))
        return made

    return {
        "predict": lambda: ours.predict(raw).mean,
        "loop": lambda: loop(models, x),
        "vmap": torch.no_grad()(lambda: vmap(one)(*stacked).softmax(-1).mean(0)),
    }


@torch.no_grad()
def loop(models: list[nn.Module], x: Tensor) -> Tensor:
    return torch.stack([model(x) for model in models]).softmax(-1).mean(0)


def measure(ways: Contenders, repeats: int) -> dict[str, dict[str, float]]:
    """The smallest milliseconds a call of each contender, by clock."""
    best = {name: warmed(way) for name, way in ways.items()}
    calls = {name: max(1, round(TURN / found["wall"])) for name, found in best.items()}
    rivals = min(found["cpu"] for name, found in best.items() if name != "predict")
    start = time.perf_counter()
    for _ in range(repeats):
        for name, way in ways.items():
            if name == "predict" or best[name]["cpu"] < HOPELESS * rivals:
                best[name] = fastest([best[name], timed(way, calls[name])])
        if time.perf_counter() - start > MOST:
            break
    return {name: {clock: 1e3 * found[clock] for clock in CLOCKS} for name, found in best.items()}


def warmed(way: Callable[[], Tensor]) -> dict[str, float]:
    """The times of a contender after its first calls; a slow one has no more than one of them."""
    found = [timed(way, 1)]
    while len(found) < WARM_UP and found[-1]["wall"] < SLOW:
        found.append(timed(way, 1))
    return fastest(found)


def fastest(found: list[dict[str, float]]) -> dict[str, float]:
    return {clock: min(each[clock] for each in found) for clock in CLOCKS}


def timed(way: Callable[[], Tensor], calls: int) -> dict[str, float]:
    """Seconds a call, by clock."""
    before = {name: clock() for name, clock in CLOCKS.items()}
    for _ in range(calls):
        way()
    return {name: (clock() - before[name]) / calls for name, clock in CLOCKS.items()}


def record(ms: dict[str, dict[str, float]]) -> dict[str, object]:
    """The milliseconds of a case, and by clock the ratio of ours to the faster contender."""
    ratios = {f"{clock}_ratio": ms["predict"][clock] / min(ms["loop"][clock], ms["vmap"][clock]) for clock in CLOCKS}
    times = {name: {f"{clock}_ms": found for clock, found in each.items()} for name, each in ms.items()}
    return {**ratios, **times}


def run(nets: list[str], members: list[int], rows: list[int], repeats: int) -> dict[str, object]:
    cases = {
        f"{net}, {count} members, {n} row{'s' * (n > 1)}": record(measure(contenders(net, count, n), repeats))
        for net in nets
        for count in members
        for n in rows
    }
    return {
        "worst_ratio_to_best": max(each["wall_ratio"] for each in cases.values()),
        "worst_cpu_ratio_to_best": max(each["cpu_ratio"] for each in cases.values()),
        "cases": cases,
        "repeats": repeats,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def table(result: dict) -> str:
    lines = ["milliseconds of wall (CPU) time a call; ratio of predict to the faster contender"]
    for case, entry in result["cases"].items():
        times = "  ".join(
            f"{k} {entry[k]['wall_ms']:.3f} ({entry[k]['cpu_ms']:.3f})" for k in ("predict", "loop", "vmap")
        )
        lines.append(f"{case}: {times}  ratio {entry['wall_ratio']:.2f} ({entry['cpu_ratio']:.2f})")
    return "\n".join([*lines, f"worst {result['worst_ratio_to_best']:.2f} ({result['worst_cpu_ratio_to_best']:.2f})"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--nets", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--members", nargs="+", type=int, default=list(MEMBERS))
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    options = parser.parse_args()
    result = run(options.nets, options.members, options.rows, options.repeats)
    print(json.dumps(result, indent=2) if options.json else table(result))


if __name__ == "__main__":
    main()
