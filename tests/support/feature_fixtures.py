"""Folders of small photos, and files of random weights of small networks."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from murmuration.models.nets import build_net
from murmuration.system.files import write_tensors

NET = "small-cnn"


def write_photos(folder: Path, each: int = 70, side: int = 12) -> Path:
    """Photos of two sizes in two classes, dark and light."""
    rng = np.random.default_rng(0)
    for label, brightness in (("dark", 90), ("light", 150)):
        (folder / label).mkdir(parents=True)
        for i in range(each):
            pixels = rng.normal(brightness, 40, (side + i % 2, side, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{i:03d}.png")
    return folder


def write_weights(file: Path, net: str = NET, shape: tuple[int, int, int] = (3, 8, 8)) -> Path:
    """Random weights of a network."""
    torch.manual_seed(0)
    write_tensors(file, build_net(net, shape, 5).state_dict())
    return file
