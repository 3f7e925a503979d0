"""The public names of this room and where they are defined: `__init__.py` imports them from here."""

from murmuration.data.augmentation import AUGMENTATIONS as AUGMENTATIONS, augment as augment
from murmuration.data.builtin import builtin_names as builtin_names
from murmuration.data.dataset import (
    Data as Data,
    Split as Split,
    open_data as open_data,
    open_training_data as open_training_data,
)
from murmuration.data.formats import FORMATS as FORMATS
from murmuration.data.inputs import open_inputs as open_inputs, open_split as open_split
from murmuration.data.options import DataOptions as DataOptions, Task as Task
from murmuration.data.preparation import (
    ArrayPreparation as ArrayPreparation,
    ImagePreparation as ImagePreparation,
    Preparation as Preparation,
    TablePreparation as TablePreparation,
    preparation_from_json as preparation_from_json,
)
