"""What repulsion costs: a FoRDE step against a deep-ensemble step on the same engine, interleaved in one run.

    python benchmarks/repulsion.py            a table
    python benchmarks/repulsion.py --json     one JSON object on standard output

Ten members, batch 128, Adam. `forde_over_de` compares input-gradient repulsion on the whole batch with plain members,
`subbatch` does so with repulsion on a quarter of the batch. `coupling_share` is the part of a FoRDE step in which all
members wait for the distances, kernels and forces between them; the rest is the second backward pass. Other spaces are
timed on the MLP.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import torch
from timing import seconds

import murmuration as mm
from murmuration.models.nets import build_net

MEMBERS, BATCH, CLASSES = 10, 128, 10
WORKLOADS = {"mlp": (1, 8, 8), "small-cnn": (3, 32, 32), "medium-cnn": (3, 32, 32)}  # net -> shape of an input
STEPS = {"mlp": 20, "small-cnn": 2, "medium-cnn": 1}  # steps a timing
QUARTER = "input-gradients:lengthscales=pca,batch_fraction=0.25"


def contenders(net: str) -> dict[str, mm.Recipe]:
    """The recipes whose steps are timed."""
    own = {
        "deep-ensemble": mm.make_recipe("deep-ensemble"),
        "forde-pca": mm.make_recipe("forde-pca"),
        "quarter": mm.make_recipe(mm.Recipe("quarter"), coupling=QUARTER),
    }
    others = ("forde-identity", "weight-rde", "function-rde", "feature-rde", "svgd") if net == "mlp" else ()
    return {**own, **{name: mm.make_recipe(name) for name in others}}


def stepping(net: str, recipe: mm.Recipe, engine: str) -> tuple[mm.Method, Callable[[], object]]:
    """Return the members of a recipe on an engine, and one step of them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2 * BATCH, *WORKLOADS[net], generator=generator)
    y = torch.randint(CLASSES, (2 * BATCH,), generator=generator)[:BATCH]
    # An epoch without end: interactions are measured at the start of each.
    settings: dict[str, Any] = {"members": MEMBERS, "batch_size": BATCH, "engine": engine, "steps_per_epoch": 10**9}
    build = lambda: build_net(net, WORKLOADS[net], CLASSES)  # noqa: E731
    method = mm.Method(build, mm.Categorical(CLASSES), recipe, inputs=x, **settings)
    state = method.init()
    return method, lambda: method.step(state, x[:BATCH], y)


def measure(net: str, repeats: int) -> dict[str, object]:
    """Medians of interleaved repeats and of ratios within them, all on the engine that suits the FoRDE step best."""
    recipes = contenders(net)
    method, work = stepping(net, recipes["forde-pca"], "auto")
    work()
    assert method.engine is not None
    runners = {name: stepping(net, recipe, method.engine.name) for name, recipe in recipes.items()}
    times: dict[str, list[float]] = {name: [] for name in recipes}
    for _ in range(repeats):
        for name, (_, work) in runners.items():
            times[name].append(seconds(work, STEPS[net]))
    spent = runners["forde-pca"][0].probe.seconds
    plain = times["deep-ensemble"]
    over = {name: statistics.median(a / b for a, b in zip(found, plain, strict=True)) for name, found in times.items()}
    return {
        "engine": method.engine.name,
        "milliseconds": {name: round(1e3 * statistics.median(found), 2) for name, found in times.items()},
        "forde_over_de": round(over["forde-pca"], 3),
        "subbatch": round(over["quarter"], 3),
        "coupling_share": round(spent["coupling"] / spent["steps"], 4),
        "over_de": {name: round(ratio, 3) for name, ratio in over.items() if name != "deep-ensemble"},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--nets", default=",".join(WORKLOADS))
    options = parser.parse_args()
    mm.keep_freed_memory()
    found = {net: measure(net, options.repeats) for net in options.nets.split(",")}
    record = {
        "workloads": found,
        "coupling_share": {net: each["coupling_share"] for net, each in found.items()},
        "subbatch": {net: each["subbatch"] for net, each in found.items()},
        "members": MEMBERS,
        "batch": BATCH,
        "repeats": options.repeats,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    if options.json:
        return print(json.dumps(record, indent=2))
    for net, each in found.items():
        told = ", ".join(f"{name} {ratio}x" for name, ratio in each["over_de"].items())  # type: ignore[attr-defined]
        print(f"{net} on {each['engine']}: {told}; coupling {each['coupling_share']:.1%} of a step")


if __name__ == "__main__":
    main()
