"""What may happen to inputs after training: corruptions of pictures, shifts of tables, five severities of each."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from murmuration.data.preparation import ImagePreparation, Preparation, wrong_shape
from murmuration.data.shift.official import official_names, official_split
from murmuration.data.shift.pictures import CORRUPTIONS, Corruption, corrupt, corruption_named
from murmuration.data.shift.severities import SEVERITIES, check_place, chosen_severities
from murmuration.data.shift.tables import TABLE_SHIFTS, TableShift, shift_table, table_shifts_for
from murmuration.errors import Misuse, unknown

AT_ONCE = 1 << 22  # pixels that are corrupted together: 32 MB in float64


def corruptions_for(preparation: Preparation) -> dict[str, Corruption | TableShift]:
    """The corruptions that can be done to inputs so prepared, by name."""
    if isinstance(preparation, ImagePreparation):
        if preparation.shape[0] not in (1, 3, 4):
            raise Misuse(f"pictures of {preparation.shape[0]} channels: only grey and colour ones can be corrupted")
        grey = preparation.shape[0] == 1  # has no colour to saturate
        return {name: each for name, each in CORRUPTIONS.items() if not (grey and name == "saturate")}
    return dict(table_shifts_for(preparation))


def chosen(preparation: Preparation, names: Sequence[str] | None = None) -> list[str]:
    """The names of corruptions asked for, each once and each applicable to inputs so prepared; all that are if None.

    Names of CIFAR-10-C and TensorFlow Datasets give ours, see `corruption_named`.
    """
    known = corruptions_for(preparation)
    if names is not None and not names:
        raise Misuse(f"no corruption is named: expected some of {', '.join(known)}")
    found = list(known) if names is None else names
    if isinstance(preparation, ImagePreparation):
        found = [corruption_named(name).name for name in found]
    for name in found:
        if name not in known:
            raise unknown("corruption", name, known)
    return list(dict.fromkeys(found))


def shifted(x: Tensor, preparation: Preparation, name: str, severity: int, *, seed: int = 0, first: int = 0) -> Tensor:
    """Prepared inputs (N, ...) after one corruption of severity 1 .. 5, prepared again as in training.

    What happens to an input follows from (seed, name, severity, its index `first` + i, itself) alone. Pictures are
    corrupted as bytes, the first three channels of four; opacity stays.
    """
    if not isinstance(preparation, ImagePreparation):
        return shift_table(x, preparation, name, severity, seed=seed, first=first)
    (name,) = chosen(preparation, [name])
    check_place(severity, seed, first)
    if tuple(x.shape[1:]) != preparation.shape:
        raise wrong_shape(x, preparation.shape)
    out = torch.empty_like(x)
    step = max(1, AT_ONCE // int(np.prod(preparation.shape)))
    for start in range(0, len(x), step):
        pixels = preparation.pixels_of(x[start : start + step])  # (n, H, W, C)
        pixels[..., :3] = corrupt(pixels[..., :3], name, severity, seed=seed, first=first + start)
        planes = pixels.transpose(0, 3, 1, 2)  # channels first can be taken for nothing else
        out[start : start + step] = preparation.apply(planes, peak=255.0)
    return out


__all__ = [
    "CORRUPTIONS",
    "SEVERITIES",
    "TABLE_SHIFTS",
    "Corruption",
    "TableShift",
    "chosen",
    "chosen_severities",
    "corrupt",
    "corruptions_for",
    "official_names",
    "official_split",
    "shift_table",
    "shifted",
]
