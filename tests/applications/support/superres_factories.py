"""Small pictures, and small runs on them."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from murmuration.applications.superres import Patches, open_patches, train
from murmuration.core.recipe import make_recipe
from murmuration.prediction.ensemble import Ensemble
from murmuration.training.plan import Plan

PLAN = Plan(members=1, epochs=1, batch_size=16, lr=1e-3, engine="loop")


def waves(seed: int, height: int = 36, width: int = 44) -> np.ndarray:
    """A colour picture (H, W, 3) of waves with some grain."""
    rng = np.random.default_rng(seed)
    down, across = np.mgrid[:height, :width]
    planes = [np.sin(across / (2 + seed % 3) + down / 5 + colour) for colour in range(3)]
    grain = rng.normal(0, 0.05, (height, width, 3))
    return (127 + 100 * (np.stack(planes, -1) + grain)).clip(0, 255).astype(np.uint8)


def write_photographs(folder: Path, count: int = 5) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(count):
        Image.fromarray(waves(seed)).save(folder / f"photo{seed}.png")
    return folder


def trained(folder: Path, scale: int = 2, weights: str = "gaussian:init_std_ratio=0.3,draws=6", **settings) -> Ensemble:
    data = open_patches(Patches(scale, size=6, count=48, folder=str(folder)))
    chosen = make_recipe("single") if weights == "point" else make_recipe("bayes", weights=weights)
    return train(data, recipe=chosen, plan=PLAN, **settings)


def grain(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))
