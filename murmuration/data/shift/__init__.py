"""Distribution shift of inputs: corruptions of images and shifts of tables, five severities of each."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from murmuration.data.dataset import Split
from murmuration.data.inputs import visible_inputs
from murmuration.data.preparation import ImagePreparation, Preparation, before_features, with_features
from murmuration.data.raw import require_shape
from murmuration.data.shift.images import CORRUPTIONS, Corruption, corrupt, corruption_named
from murmuration.data.shift.official import official_names as official_names, official_split as official_split
from murmuration.data.shift.randomness import (
    SEVERITIES as SEVERITIES,
    check_arguments,
    select_severities as select_severities,
)
from murmuration.data.shift.tables import TABLE_SHIFTS as TABLE_SHIFTS, TableShift, shift_table, table_shifts_for
from murmuration.system.errors import Misuse, unknown

AT_ONCE = 1 << 22  # values converted at a time: 32 MB in float64


def corruptions_for(preparation: Preparation) -> dict[str, Corruption | TableShift]:
    """Select the corruptions that apply to inputs of a preparation.

    Args:
        preparation: That of the inputs; for features, the corruptions of the network's inputs apply.

    Returns:
        Corruptions of images or shifts of tables, by name.

    Raises:
        Misuse: For images that are neither grey nor in colour, and inputs that are neither images nor a table.
    """
    preparation = before_features(preparation)
    if isinstance(preparation, ImagePreparation):
        channels = preparation.shape[0]
        if channels not in (1, 3, 4):
            raise Misuse(f"images of {channels} channels: expected grey (1) or colour (3 or 4) for corruptions")
        return {name: row for name, row in CORRUPTIONS.items() if channels > 1 or not row.needs_colour}
    return dict(table_shifts_for(preparation))


def select_corruptions(preparation: Preparation, names: Sequence[str] | None = None) -> list[str]:
    """Check requested names of corruptions.

    Args:
        preparation: That of the inputs.
        names: Names of corruptions, also those of CIFAR-10-C and TensorFlow Datasets (`corruption_named`); all that
            apply by default.

    Returns:
        The names as in `CORRUPTIONS` or `TABLE_SHIFTS`, without repetition.

    Raises:
        Misuse: For a name that is unknown or does not apply to these inputs.
    """
    applicable = corruptions_for(preparation)
    if names is not None and not names:
        raise Misuse(f"no corruption given: expected some of {', '.join(applicable)}")
    selected = list(applicable) if names is None else names
    if isinstance(before_features(preparation), ImagePreparation):
        selected = [corruption_named(name).name for name in selected]
    for name in selected:
        if name not in applicable:
            raise unknown("corruption", name, applicable, see="murmur list corruptions")
    return list(dict.fromkeys(selected))


def shift_split(
    split: Split, preparation: Preparation, name: str, severity: int, *, examples: int | None = None, seed: int = 0
) -> Tensor:
    """Corrupt the inputs of a split; for features, corrupt the network's inputs and embed them again.

    Args:
        split: Examples.
        preparation: Their preparation.
        name: Name of the corruption.
        severity: 1 to 5.
        examples: Number of examples from the start; all by default.
        seed: Seed of the random numbers.

    Returns:
        Prepared inputs (N, ...).
    """
    visible, x = visible_inputs(split, preparation, slice(examples))
    return with_features(shift_inputs(x, visible, name, severity, seed=seed), preparation)


def shift_inputs(
    x: Tensor, preparation: Preparation, name: str, severity: int, *, seed: int = 0, first: int = 0
) -> Tensor:
    """Corrupt prepared inputs.

    The result for an input depends only on (seed, name, severity, its index `first` + i, its values). Images are
    corrupted as uint8; of four channels the first three are corrupted and the opacity is kept.

    Args:
        x: Prepared inputs (N, ...).
        preparation: Their preparation.
        name: Name of the corruption.
        severity: 1 to 5.
        seed: Seed of the random numbers.
        first: Index of x[0] in its data set.

    Returns:
        Corrupted inputs (N, ...), prepared as in training.

    Raises:
        Misuse: For a name, severity or shape that does not fit.
    """
    if not isinstance(preparation, ImagePreparation):
        return shift_table(x, preparation, name, severity, seed=seed, first=first)
    (name,) = select_corruptions(preparation, [name])
    check_arguments(severity, seed, first)
    require_shape(x, preparation.shape)
    out = torch.empty_like(x)
    step = max(1, AT_ONCE // int(np.prod(preparation.shape)))
    for start in range(0, len(x), step):
        pixels = preparation.pixels_of(x[start : start + step])  # (n, H, W, C)
        pixels[..., :3] = corrupt(pixels[..., :3], name, severity, seed=seed, first=first + start)
        planes = pixels.transpose(0, 3, 1, 2)  # channels first: the only unambiguous layout
        out[start : start + step] = preparation.apply(planes, peak=255.0)
    return out
