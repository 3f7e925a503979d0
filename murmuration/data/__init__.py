"""Data: formats, splits, preparation and augmentation. Names are imported when they are first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murmuration.data.augmentation import AUGMENTATIONS, augment
    from murmuration.data.builtin import builtin_names
    from murmuration.data.dataset import Data, Split, open_data, open_inputs, open_split, open_training_data
    from murmuration.data.formats import FORMATS
    from murmuration.data.preparation import (
        ArrayPreparation,
        ImagePreparation,
        Preparation,
        TablePreparation,
        preparation_from_json,
    )
    from murmuration.data.targets import Task

_HOMES = ("formats", "targets", "builtin", "augmentation", "preparation", "dataset")  # the first does not load torch

__all__ = [
    "AUGMENTATIONS",
    "FORMATS",
    "ArrayPreparation",
    "Data",
    "ImagePreparation",
    "Preparation",
    "Split",
    "TablePreparation",
    "Task",
    "augment",
    "builtin_names",
    "open_data",
    "open_inputs",
    "open_split",
    "open_training_data",
    "preparation_from_json",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: torch takes seconds to load, and `murmur --help` does not need it."""
    for home in _HOMES if name in __all__ else ():
        if hasattr(module := import_module(f"murmuration.data.{home}"), name):
            return getattr(module, name)
    raise AttributeError(f"module 'murmuration.data' has no attribute '{name}'")
