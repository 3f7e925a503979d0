"""A likelihood of your own: experts of one ensemble with different losses, saved and loaded again.

python examples/own_likelihood.py
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import murmuration as mm


@dataclass(frozen=True)
class Experts(mm.Likelihood):
    """Two classes, the second rare: member i counts its examples `weights[i]` times."""

    weights: tuple[float, ...] = (1.0, 3.0, 10.0)
    task = "classification"
    width = 2  # outputs of the network; probabilities are their softmax, unless `logits` is overridden

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, member: Tensor | None = None) -> Tensor:
        """Losses (m, N) of members `member` (m,), from outputs (m, N, 2), labels y and sample weights (m, N)."""
        losses = F.cross_entropy(outputs.movedim(-1, 1), y, reduction="none")
        if member is not None:
            own = outputs.new_tensor(self.weights)[member % len(self.weights)]  # (m,)
            losses = losses * torch.where(y == 1, own[:, None], 1.0)
        return losses if weight is None else losses * weight


def rare_class(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N, 2) and labels (N,) of which about a fifth are 1."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 2))
    return x.astype(np.float32), (rng.random(count) < 1 / (1 + np.exp(2 - 2 * x[:, 0]))).astype(int)


def main(quick: bool = False) -> list[float]:
    data = mm.open_data(rare_class(1000 if quick else 5000))
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        mm.fit("mlp", data, members=3, epochs=3 if quick else 10, likelihood=Experts(), out=run)
        ensemble = mm.load(run, likelihood=Experts())  # a run directory holds no code: the class is given again
    logits = ensemble.predict(data.test.x).logits
    odds = (logits[..., 1] - logits[..., 0]).mean(1)  # (S,) mean log odds of the rare class
    for weight, value in zip(Experts().weights, (odds - odds[0]).tolist(), strict=True):
        print(f"weight {weight:4g}: log odds of the rare class {value:+.2f}; log {weight:g} is {np.log(weight):.2f}")
    return odds.tolist()


if __name__ == "__main__":
    main()
