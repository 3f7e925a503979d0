"""A dynamics of your own: members at the exponential moving average of their weights.

A dynamics says how weights move and which points of their path become the ensemble. Here the optimizer moves them as
usual, every step enters a moving average, and the averages are the members.

    python examples/own_dynamics.py
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

import murmuration as mm
from murmuration.core.population import Population


@dataclass(frozen=True)
class MovingAverage(mm.Dynamics):
    """mean <- decay * mean + (1 - decay) * weights, after every step."""

    refreshes_statistics: ClassVar[bool] = True  # batch-norm statistics do not belong to averaged weights

    decay: float = 0.98

    def keep(self, time: mm.TrainTime) -> bool:
        return True

    def copies(self, total: mm.TrainTime) -> int:
        return 1

    def collect(self, path: mm.WeightPath, population: Population, rows: Tensor) -> None:
        if "mean" not in path.points:
            path.points["mean"] = population.clone()
            path.counts["mean"] = torch.ones(population.members, dtype=torch.int64)
        mean = path.points["mean"]
        for name, tensor in mean.own.items():
            tensor[rows] = tensor[rows].lerp(population.own[name][rows], 1 - self.decay)
        for name, tensor in mean.shared.items():
            tensor.lerp_(population.shared[name], 1 - self.decay)

    def finish(self, path: mm.WeightPath, population: Population, streams: object) -> tuple[Population, Tensor]:
        return path.points["mean"], torch.arange(population.members)


def main(quick: bool = False) -> dict[str, float]:
    """The test NLL of the last weights and of their moving averages, at a constant learning rate."""
    data = mm.open_data("digits")
    plan = mm.Plan(epochs=5 if quick else 10, schedule="constant", lr=1e-2, batch_size=64)
    recipes = {
        "last weights": mm.make_recipe("deep-ensemble"),
        "moving average": mm.Recipe("ema", dynamics=MovingAverage()),
    }
    found = {}
    for name, recipe in recipes.items():
        ensemble = mm.fit("mlp", data, recipe=recipe, members=2 if quick else 5, plan=plan)
        scores = mm.score(ensemble.predict(data.test.x), data.test.y)
        found[name] = float(scores["nll"])
        print(f"{name:15} accuracy {scores['accuracy']:.3f}, NLL {scores['nll']:.3f}")
    return found


if __name__ == "__main__":
    main()
