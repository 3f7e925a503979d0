"""Data sets: opening a source as three prepared splits, or another source with the preparation of an earlier run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from murmuration.data.formats import format_of, load_source, resolve
from murmuration.data.images import adapt_images
from murmuration.data.preparation import (
    ImagePreparation,
    Pixels,
    Preparation,
    TablePreparation,
    fit_array,
    fit_images,
    fit_table,
    image_shape,
    known_peak,
    pixel_peak,
)
from murmuration.data.raw import LoadOptions, RawData, RawPart, fingerprint, is_table, take
from murmuration.data.splits import FEWEST_ROWS, split_rows
from murmuration.data.targets import (
    Task,
    as_values,
    class_list,
    encode_labels,
    infer_task,
    refuse_constant,
    refuse_free_text,
    refuse_missing,
)
from murmuration.errors import Misuse, unknown


@dataclass(frozen=True)
class Split:
    """Prepared inputs and their targets."""

    x: Tensor  # (N, ...) float32
    y: Tensor  # (N,) int64 labels, or (N, K) float64 targets in their own units
    weight: Tensor | None = None  # (N,) sample weights

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Data:
    """Three splits of one data set, prepared by statistics of the training split alone."""

    name: str  # as the user wrote the source
    task: Task
    train: Split
    val: Split
    test: Split
    classes: tuple[str, ...]  # names in the order of the labels; empty for regression
    preparation: Preparation  # raw inputs -> x, stored with a run and applied by `predict`
    fingerprint: str  # sha256 of the raw data, by which a run notices that its data changed
    feature_names: tuple[str, ...] = ()  # of the prepared inputs, if they have names
    source: dict[str, Any] | None = None  # arguments of `open_data` that open it again; None for objects in memory

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])


def open_data(
    source: Any = "digits",
    *,
    target: str | tuple[str, ...] | None = None,
    task: Task | None = None,
    seed: int = 0,
    pixels: Pixels = "standardise",
) -> Data:
    """A source split into train, validation and test, prepared by statistics of the training split.

    `source` is a built-in name, a file, a folder, `hf:NAME`, a pair (x, y), a torch Dataset, a pandas table or a Data,
    which is returned unchanged (the table `FORMATS` has all formats). `target` names the column(s) of a table to
    predict. If the source has a test part, it is kept and 10 % of the rest validate; otherwise the split is 70/10/20 %
    by `seed`. `task` is inferred from the targets (see `infer_task`) unless given. `pixels` is for images only.

    >>> data = open_data("five-gaussians")
    >>> len(data.train), len(data.val), len(data.test), data.classes
    (200, 50, 100, ('0', '1', '2', '3', '4'))
    """
    if isinstance(source, Data):
        return source
    if pixels not in get_args(Pixels):
        raise unknown("pixels", pixels, get_args(Pixels))
    if task is not None and task not in get_args(Task):
        raise unknown("task", task, get_args(Task))
    name, raw = load_source(source, LoadOptions(target, seed))
    chosen, classes, targets = encode_targets(raw, task)
    strata = {part: y.numpy() if chosen == "classification" else np.zeros(len(y)) for part, y in targets.items()}
    rows = split_rows(strata, seed)
    train_part, train_rows = rows["train"]
    preparation = fit_preparation(raw, take(raw.parts[train_part].inputs, train_rows), pixels)

    def split(name: str) -> Split:
        part, kept = rows[name]
        return Split(preparation.apply(take(raw.parts[part].inputs, kept)), targets[part][torch.from_numpy(kept)])

    return Data(
        name=name,
        task=chosen,
        train=split("train"),
        val=split("val"),
        test=split("test"),
        classes=classes,
        preparation=preparation,
        fingerprint=fingerprint(raw),
        feature_names=preparation.names,
        source=reopen_arguments(source, {"target": target, "task": task, "seed": seed, "pixels": pixels}),
    )


def reopen_arguments(source: Any, options: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments of `open_data` that open a source again from any directory; None for an object in memory."""
    if not isinstance(source, str | Path):
        return None
    found = resolve(source)
    return {"source": str(found.resolve() if isinstance(found, Path) else found), **options}


def open_split(
    source: Any,
    *,
    preparation: Preparation,
    task: Task,
    classes: tuple[str, ...],
    target: str | tuple[str, ...] | None = None,
    seed: int = 0,
) -> Split:
    """The test part of a source, or all its rows if it has none, with the preparation and classes of an earlier run.

    For a table, `target` defaults to the target columns of that run. `seed` only matters for toy data.
    """
    if isinstance(source, Data):
        return require_same_preparation(source, preparation, classes).test
    if target is None and isinstance(preparation, TablePreparation):
        usual = preparation.targets if format_of(resolve(source)).takes_target else ()
        target = usual or None
    _, raw = load_source(source, LoadOptions(target, seed))
    names = list(test_parts(raw))
    ys = [encode_part(raw, raw.parts[name], task, classes) for name in names]
    return Split(torch.cat([prepare_part(raw, name, preparation) for name in names]), torch.cat(ys))


def open_inputs(source: Any, *, preparation: Preparation, seed: int = 0, adapt: bool = False) -> Tensor:
    """Prepared inputs (N, ...) of the test part of a source, or of all its rows if it has none; targets are not needed.

    Besides all formats of `open_data`: a table without its target, an npz without y, a flat folder of images (in the
    order of their paths), a tensor or array alone. With `adapt`, images of other sizes and colours are resized and
    recoloured to those of the preparation, see `adapt_images`.
    """
    fit_to = preparation if adapt and isinstance(preparation, ImagePreparation) else None
    if isinstance(source, Data):
        if fit_to and source.preparation != fit_to and isinstance(source.preparation, ImagePreparation):
            pixels = source.preparation.pixels_of(source.test.x)
            return adapt_images(pixels.transpose(0, 3, 1, 2), 255.0, fit_to)
        return require_same_preparation(source, preparation, None).test.x
    _, raw = load_source(source, LoadOptions(None, seed, labelled=False, size=fit_to.shape[1:] if fit_to else None))
    if fit_to:
        return torch.cat([adapt_images(raw.parts[name].inputs, raw.peak, fit_to) for name in test_parts(raw)])
    return torch.cat([prepare_part(raw, name, preparation) for name in test_parts(raw)])


def target_name(raw: RawData) -> str:
    """The name of the targets in messages."""
    return f"target '{', '.join(raw.target_names)}'" if raw.target_names else "target"


def encode_targets(raw: RawData, task: Task | None) -> tuple[Task, tuple[str, ...], dict[str, Tensor]]:
    """The task, the classes (empty for regression), and the targets of every part as tensors."""
    base = raw.parts.get("train") or raw.parts.get("all")
    rows = len(base) if base is not None else 0
    if base is not None and rows < FEWEST_ROWS:
        raise Misuse(f"{rows} rows to train on: expected at least {FEWEST_ROWS}, one for each split")
    found = {name: part_targets(raw, part) for name, part in raw.parts.items()}
    first = next(iter(found.values()))
    chosen: Task | None = task or raw.task
    if chosen is None:
        chosen = infer_task(first, image_peak(raw) is not None)
        if chosen == "classification":
            refuse_free_text(first, target_name(raw))
    classes = class_list(list(found.values()), raw.class_names) if chosen == "classification" else ()
    ys = {name: encode_part(raw, part, chosen, classes) for name, part in raw.parts.items()}
    if chosen == "regression":
        refuse_constant(torch.cat(list(ys.values())), target_name(raw))
    return chosen, classes, ys


def part_targets(raw: RawData, part: RawPart) -> np.ndarray:
    """The targets of a part; refuses missing ones."""
    if part.targets is None:
        raise Misuse("the source has no targets: expected labels or numbers to predict")
    refuse_missing(part.targets, target_name(raw))
    return part.targets


def encode_part(raw: RawData, part: RawPart, task: Task, classes: tuple[str, ...]) -> Tensor:
    """The targets of one part: labels (N,) int64, or regression targets (N, K) float64."""
    targets = part_targets(raw, part)
    if task == "classification":
        return encode_labels(targets, raw.class_names, classes)
    return torch.from_numpy(as_values(targets, target_name(raw)))


def image_peak(raw: RawData) -> float | None:
    """The value of a white pixel if the source holds images, else None."""
    if raw.peak is not None or any(is_table(part.inputs) for part in raw.parts.values()):
        return raw.peak
    peaks = [pixel_peak(part.inputs) for part in raw.parts.values() if len(part)]
    return None if None in peaks else max(peak for peak in peaks if peak is not None)


def fit_preparation(raw: RawData, inputs: Any, pixels: Pixels) -> Preparation:
    """The preparation of the training inputs: of a table, of images, or of an array."""
    if is_table(inputs):
        return fit_table(inputs, raw.target_names)
    peak = image_peak(raw)
    if peak is not None:
        return fit_images(inputs, peak, pixels)
    if inputs.ndim == 4 and image_shape(inputs) != inputs.shape[1:]:
        raise Misuse(
            f"x of shape {inputs.shape} has colours last and values outside 0..255: expected pixels, or"
            " channels first (N, C, H, W)"
        )
    return fit_array(inputs, raw.feature_names, raw.as_is or (inputs.ndim > 2 and pixels == "raw"))


def test_parts(raw: RawData) -> tuple[str, ...]:
    """The names of the parts to evaluate on: the test part, or all parts if there is none."""
    return ("test",) if "test" in raw.parts else tuple(raw.parts)


def prepare_part(raw: RawData, name: str, preparation: Preparation) -> Tensor:
    """The inputs (N, ...) of one part by the preparation of an earlier run.

    Images whose white is known to differ from training's (uint8 in a file, floats in 0..1) are rescaled.
    """
    inputs = raw.parts[name].inputs
    if not isinstance(preparation, ImagePreparation):
        return preparation.apply(inputs)
    if is_table(inputs):
        raise Misuse(f"a table for a run trained on images: expected images of shape {preparation.shape}")
    return preparation.apply(inputs, peak=known_peak(inputs, raw.peak))


def require_same_preparation(data: Data, preparation: Preparation, classes: tuple[str, ...] | None) -> Data:
    """The Data, if it has the given preparation and classes; refuses others."""
    if data.preparation != preparation or (classes is not None and data.classes != tuple(classes)):
        raise Misuse(f"Data '{data.name}' was prepared by other statistics or classes: give its source instead")
    return data
