"""The toys of the paper: a regression with two gaps and five clusters in the plane, and uncertainty by place."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from murmuration.data import open_data
from murmuration.data.builtin import GAPS, gaps_features
from murmuration.models.nets import build_net
from murmuration.prediction.predictive import Predictive
from murmuration.training.fitting import fit
from murmuration.training.plan import Plan

MEMBERS = 16
# The loss of the line is that of noise of deviation 1, as in the toy's source (Izmailov et al. 2019): the noise in the
# data is smaller, and with its true size 400 points would leave repulsion little to say. Adam makes a full step of the
# smallest gradient: without decay, repelled weights of units that no example reaches would walk off.
PLAN = Plan(batch_size=50, lr=5e-3, weight_decay=1e-4, batch_order="same", engine="stacked", posthoc=None)
NOISE = 1.0
REACH = 12.0  # of the plane's grid


@dataclass(frozen=True)
class Toy:
    """A data set, and the inputs on which ensembles of it are evaluated."""

    name: str
    epochs: int
    grid: np.ndarray  # (G,) or (G, 2), in the source's units
    inputs: torch.Tensor  # (G, 2), as the network takes them
    places: dict[str, np.ndarray]  # "near" the data and away from it -> mask of the grid (G,)
    noise: float | None = None  # deviation, of a regression

    def net(self) -> nn.Module:
        return build_net("mlp", (2,), 1 if self.noise else 5, hidden=(50, 50))

    def fit(self, recipe: str, members: int, epochs: int, seed: int, device: str = "cpu") -> Predictive:
        """Train an ensemble and return its predictions on the grid."""
        decay = (PLAN.weight_decay or 0) / (members if recipe == "svgd" else 1)  # SVGD divides the loss by M
        plan = replace(PLAN, members=members, epochs=epochs, weight_decay=decay, seed=seed, device=device)
        ensemble = fit(self.net(), open_data(self.name), recipe=recipe, plan=plan, noise_std=self.noise)
        return ensemble.predict(self.inputs)

    def uncertainty(self, predictive: Predictive) -> np.ndarray:
        """Return the epistemic deviation of a regression, or the entropy of classes, on the grid (G,)."""
        values = predictive.epistemic_var[:, 0].sqrt() if self.noise else predictive.entropy
        return np.asarray(values.cpu())

    def by_place(self, uncertainty: np.ndarray) -> dict[str, float]:
        """Return the mean uncertainty of each place."""
        return {place: float(uncertainty[mask].mean()) for place, mask in self.places.items()}


def line() -> Toy:
    """Return three clusters of numbers with two gaps between them."""
    x = np.linspace(-10, 10, 401)
    near = np.any([(x >= low) & (x <= high) for low, high, _ in GAPS], axis=0)
    places = {"near": near, "gap": (abs(x) > 2) & (abs(x) < 4), "far": abs(x) > 8.5}
    return Toy("gaps-1d", 200, x, torch.from_numpy(gaps_features(x)).float(), places, NOISE)


def plane() -> Toy:
    """Return five clusters of points on a circle."""
    along = np.linspace(-REACH, REACH, 61)
    grid = np.stack(np.meshgrid(along, along[::-1]), axis=-1).reshape(-1, 2)  # rows from the top
    train = open_data("five-gaussians").train.prepared.numpy()
    nearest = np.linalg.norm(grid[:, None] - train, axis=-1).min(1)
    places = {"near": nearest < 0.5, "middle": np.linalg.norm(grid, axis=1) < 1.5, "far": nearest > 4}
    return Toy("five-gaussians", 100, grid, torch.from_numpy(grid).float(), places)


TOYS = {"gaps-1d": line, "five-gaussians": plane}
RECIPES = ("deep-ensemble", "weight-rde", "function-rde", "feature-rde", "forde-identity", "forde-pca")
