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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from timing import seconds

from murmuration.core.engines import Engine, assemble
from murmuration.core.recipe import Recipe, make_recipe
from murmuration.core.state import Batch, State
from murmuration.core.step import step
from murmuration.data import open_data
from murmuration.likelihoods import Categorical
from murmuration.models.nets import build_net
from murmuration.system.memory import keep_freed_memory
from murmuration.training import TrainSpec, begin, choose_engine
from murmuration.training.plan import Plan

MEMBERS, BATCH, CLASSES = 10, 128, 10
WORKLOADS = {"mlp": (1, 8, 8), "small-cnn": (3, 32, 32), "medium-cnn": (3, 32, 32)}  # net -> shape of an input
STEPS = {"mlp": 20, "small-cnn": 2, "medium-cnn": 1}  # steps a timing
QUARTER = "input-gradients:lengthscales=pca,batch_fraction=0.25"


def contenders(net: str) -> dict[str, Recipe]:
    """The recipes whose steps are timed."""
    own = {
        "deep-ensemble": make_recipe("deep-ensemble"),
        "forde-pca": make_recipe("forde-pca"),
        "quarter": make_recipe(Recipe("quarter"), coupling=QUARTER),
    }
    others = ("forde-identity", "weight-rde", "function-rde", "feature-rde", "svgd") if net == "mlp" else ()
    return {**own, **{name: make_recipe(name) for name in others}}


def spec_for(net: str, chosen: Recipe, engine: str) -> TrainSpec:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2 * BATCH, *WORKLOADS[net], generator=generator)
    y = torch.randint(CLASSES, (2 * BATCH,), generator=generator)
    plan = Plan(members=MEMBERS, batch_size=BATCH, engine=engine, batch_order="same", schedule="constant")
    data = open_data((x, y), task="classification")
    return TrainSpec(lambda: build_net(net, WORKLOADS[net], CLASSES), data, Categorical(CLASSES), chosen, plan)


@contextmanager
def ready(spec: TrainSpec, engine: Engine) -> Iterator[tuple[State, Callable[[], object]]]:
    """One step of a recipe on an engine, and the state it changes."""
    x, y = spec.data.train.prepared[:BATCH], spec.data.train.y[:BATCH]
    progress, method = begin(spec), spec.method.step_config
    batch = Batch(lambda g: (x.expand(g.stop - g.start, *x.shape), y.expand(g.stop - g.start, *y.shape)), 1e-3)
    with assemble(engine, spec.member(0)) as team:
        yield progress.state, lambda: step(team, method, progress.state, batch)


def measure(net: str, repeats: int) -> dict[str, object]:
    """Medians of interleaved repeats and of ratios within them, all on the engine that suits the FoRDE step best."""
    specs = {name: spec_for(net, chosen, "auto") for name, chosen in contenders(net).items()}
    choice = choose_engine(specs["forde-pca"], begin(specs["forde-pca"]))
    times: dict[str, list[float]] = {name: [] for name in specs}
    with ExitStack() as stack:
        runners = {name: stack.enter_context(ready(spec, choice.engine)) for name, spec in specs.items()}
        for _ in range(repeats):
            for name, (_, work) in runners.items():
                times[name].append(seconds(work, STEPS[net]))
        spent = runners["forde-pca"][0].seconds
    plain = times["deep-ensemble"]
    over = {name: statistics.median(a / b for a, b in zip(found, plain, strict=True)) for name, found in times.items()}
    return {
        "engine": choice.engine.name,
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
    keep_freed_memory()
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
