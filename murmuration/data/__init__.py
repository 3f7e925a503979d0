"""Where examples come from: names, files, folders, tensors; their splits, preparation and augmentation."""

from murmuration.data.augmentation import AUGMENTATIONS, augment, flip, pad_crop
from murmuration.data.foreign import open_foreign
from murmuration.data.opening import open_data, open_inputs, open_split
from murmuration.data.preparation import (
    ArrayPreparation,
    ImagePreparation,
    Preparation,
    TablePreparation,
    preparation_from_json,
)
from murmuration.data.records import Data, Split, Task
from murmuration.data.toys import builtin_names

__all__ = [
    "AUGMENTATIONS",
    "ArrayPreparation",
    "Data",
    "ImagePreparation",
    "Preparation",
    "Split",
    "TablePreparation",
    "Task",
    "augment",
    "builtin_names",
    "flip",
    "open_data",
    "open_foreign",
    "open_inputs",
    "open_split",
    "pad_crop",
    "preparation_from_json",
]
