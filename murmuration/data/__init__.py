"""Data: formats, splits, preparation and augmentation. Names are imported when they are first used."""
# ruff: noqa: F401  # type checkers read the imports, Python the table

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murmuration.data.augmentation import AUGMENTATIONS, augment
    from murmuration.data.builtin import builtin_names
    from murmuration.data.dataset import Data, Split, open_data, open_training_data
    from murmuration.data.formats import FORMATS
    from murmuration.data.inputs import open_inputs, open_split
    from murmuration.data.preparation import (
        ArrayPreparation,
        ImagePreparation,
        Preparation,
        TablePreparation,
        preparation_from_json,
    )
    from murmuration.data.targets import Task

_HOMES = {
    "augmentation": ("AUGMENTATIONS", "augment"),
    "builtin": ("builtin_names",),
    "dataset": ("Data", "Split", "open_data", "open_training_data"),
    "formats": ("FORMATS",),  # does not load torch
    "inputs": ("open_inputs", "open_split"),
    "preparation": ("ArrayPreparation", "ImagePreparation", "Preparation", "TablePreparation", "preparation_from_json"),
    "targets": ("Task",),
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: torch takes seconds to load, and `murmur --help` does not need it."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"murmuration.data.{home}"), name)
    raise AttributeError(f"module 'murmuration.data' has no attribute '{name}'")
