"""What it costs that weights are distributions: steps and predictions of a Bayesian LeNet-5, interleaved in one run.

    python benchmarks/bayes.py            a table
    python benchmarks/bayes.py --json     one JSON object on standard output

One network, batch 128, Adam, pictures 1 x 32 x 32. A step of each estimator is held against the step of the same
network of numbers (`point`), and against the step one writes by hand in plain PyTorch. Prediction is 30 draws of
weights on 1,000 pictures and on one: what `Ensemble.predict` does, against a loop over draws that is written by hand.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from timing import seconds
from torch import Tensor
from torch.func import functional_call

import murmuration as mm
from murmuration.core.weights.gaussian import distribution_names
from murmuration.models.nets import build_net

NET, SHAPE, CLASSES, BATCH, DRAWS = "lenet5", (1, 32, 32), 10, 128, 30
STEPS = 20  # steps a timing
WEIGHTS = {
    "point": "point",
    "local": "gaussian",
    "draw": "gaussian:estimator=draw",
    "flipout": "gaussian:estimator=flipout",
}
SIZES = {"pictures": 1000, "picture": 1}  # inputs a prediction is timed on


def examples(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, *SHAPE, generator=generator)
    return x, torch.randint(CLASSES, (count,), generator=generator)


def our_step(weights: str) -> Callable[[], torch.Tensor]:
    """One step of a network with such weights."""
    x, y = examples(2 * BATCH)
    recipe = mm.make_recipe(mm.Recipe(weights), weights=weights)
    settings: dict[str, Any] = {"members": 1, "batch_size": BATCH, "engine": "loop"}
    build = lambda: build_net(NET, SHAPE, CLASSES)  # noqa: E731
    method = mm.Method(build, mm.Categorical(CLASSES), recipe, inputs=x, **settings)
    state = method.init()
    return lambda: method.step(state, x[:BATCH], y[:BATCH])


def plain_step() -> Callable[[], None]:
    """The step one writes by hand."""
    x, y = examples(BATCH)
    net = build_net(NET, SHAPE, CLASSES)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)

    def one() -> None:
        optimiser.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimiser.step()

    return one


def trained() -> mm.Ensemble:
    data = mm.open_data(examples(2 * BATCH), task="classification")
    return mm.fit(NET, data, recipe="bayes", members=1, epochs=1, posthoc=None)


def drawn_by_hand(ensemble: mm.Ensemble, x: Tensor) -> Callable[[], Tensor]:
    """A loop over draws: weights are drawn, the network is called with them."""
    group, weighs = ensemble.groups[0], ensemble.recipe.weights
    own = {name: tensor[0] for name, tensor in group.population.own.items()}
    stds = {name: weighs.std(name, own) for name in distribution_names(own)}
    module = group.module.eval()

    @torch.no_grad()
    def answers() -> Tensor:
        passes = []
        for _ in range(DRAWS):
            weights = {name: own[name] + std * torch.randn_like(std) for name, std in stds.items()}
            passes.append(functional_call(module, weights, (x,)))
        return torch.stack(passes)

    return answers


def contenders() -> dict[str, tuple[Callable[[], object], int]]:
    """What is timed, and how often in one go."""
    found: dict[str, tuple[Callable[[], object], int]] = {"by_hand": (plain_step(), STEPS)}
    for name, weights in WEIGHTS.items():
        found[name] = (our_step(weights), STEPS)
    ensemble = trained()
    for name, count in SIZES.items():
        x = examples(count)[0]
        found[f"predict_{name}"] = (
            lambda x=x: ensemble.predict(x, draws=DRAWS, prepared=True),
            1 if count > 1 else STEPS,
        )
        found[f"predict_{name}_by_hand"] = (drawn_by_hand(ensemble, x), 1 if count > 1 else STEPS)
    return found


def measure(repeats: int) -> dict[str, object]:
    """Medians of interleaved repeats, and of the ratios within a repeat: the machine's pace drifts between them."""
    all_of_them = contenders()
    times: dict[str, list[float]] = {name: [] for name in all_of_them}
    for _ in range(repeats):
        for name, (work, often) in all_of_them.items():
            times[name].append(seconds(work, often))

    def over(name: str, other: str) -> float:
        return round(statistics.median(a / b for a, b in zip(times[name], times[other], strict=True)), 3)

    return {
        "milliseconds": {name: round(1e3 * statistics.median(found), 3) for name, found in times.items()},
        "over_point": {name: over(name, "point") for name in WEIGHTS if name != "point"},
        "over_by_hand": {name: over(name, "by_hand") for name in WEIGHTS},
        "prediction_over_by_hand": {name: over(f"predict_{name}", f"predict_{name}_by_hand") for name in SIZES},
        "net": NET,
        "batch": BATCH,
        "draws": DRAWS,
        "repeats": repeats,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    mm.keep_freed_memory()
    record = measure(options.repeats)
    if options.json:
        return print(json.dumps(record, indent=2))
    for name, value in record["milliseconds"].items():  # type: ignore[attr-defined]
        print(f"{name:>26} {value:8.2f} ms")
    print(f"a step over that of numbers: {record['over_point']}; over one by hand: {record['over_by_hand']}")
    print(f"30 draws over a loop by hand: {record['prediction_over_by_hand']}")


if __name__ == "__main__":
    main()
