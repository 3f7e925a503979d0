"""Opening a source: its form, its splits, its preparation; and opening another for an earlier run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

import murmuration.data.arrays as arrays
import murmuration.data.hub as hub
import murmuration.data.images as images
import murmuration.data.tables as tables
import murmuration.data.toys as toys
from murmuration.data.preparation import (
    ImagePreparation,
    Pixels,
    Preparation,
    TablePreparation,
    check_pixels,
    fit_array,
    fit_images,
    fit_table,
    known_white,
    picture_shape,
    pixel_peak,
)
from murmuration.data.raw import Part, Raw, Request, fingerprint, is_table, take
from murmuration.data.records import Data, Split, Task
from murmuration.data.splits import FEWEST_ROWS, split_rows
from murmuration.data.targets import (
    class_list,
    encode_labels,
    encode_numbers,
    infer_task,
    refuse_constant,
    refuse_free_text,
    refuse_missing,
)
from murmuration.errors import Misuse, unknown


@dataclass(frozen=True)
class Form:
    """One kind of source: how it is recognised and read."""

    matches: Callable[[Any], bool]
    load: Callable[[Any, Request], Raw]
    name: str = ""  # of sources that have none of their own
    takes_target: bool = False


def has_suffix(*suffixes: str) -> Callable[[Any], bool]:
    """The question whether a source is a file with one of these suffixes."""
    return lambda source: isinstance(source, Path) and source.is_file() and source.suffix.lower() in suffixes


def folder_where(test: Callable[[Path], bool]) -> Callable[[Any], bool]:
    """The question whether a source is a folder that passes a test."""
    return lambda source: isinstance(source, Path) and source.is_dir() and test(source)


FORMS = (  # the first that matches is taken; the first two are names, not paths
    Form(toys.is_builtin, toys.load_builtin),
    Form(hub.is_hub_name, hub.load_hub, takes_target=True),
    Form(has_suffix(".csv", ".parquet"), tables.load_table_file, takes_target=True),
    Form(has_suffix(".npz"), arrays.load_npz),
    Form(folder_where(images.is_cifar_folder), images.load_cifar_folder),
    Form(folder_where(images.is_idx_folder), images.load_idx_folder),
    Form(folder_where(lambda folder: True), images.load_picture_folder),
    Form(is_table, tables.load_frame, "table", takes_target=True),
    Form(arrays.is_array, arrays.load_array, "tensors"),
    Form(arrays.is_pair, arrays.load_pair, "tensors"),
    Form(lambda source: isinstance(source, Dataset), arrays.load_dataset, "dataset"),
)
EXPECTED = "a built-in name, .csv, .parquet, .npz, a folder of pictures, hf:NAME, (x, y) or a torch Dataset"


def open_data(
    source: Any = "digits",
    *,
    target: str | tuple[str, ...] | None = None,
    task: Task | None = None,
    seed: int = 0,
    pixels: Pixels = "standardise",
) -> Data:
    """A source split in train, validation and test, prepared by statistics of the training split.

    `source` is a built-in name, a file, a folder, `hf:NAME`, a pair (x, y), a torch Dataset, a pandas table
    or a Data (returned as it is). `target` names the column(s) to predict of a table. A test part of the
    source's own is kept as it is and 10 % of the rest validate; otherwise 70/10/20 % by `seed`. `task` is
    inferred from the targets (see `infer_task`) unless given. `pixels` is for pictures alone.

    >>> data = open_data("five-gaussians")
    >>> len(data.train), len(data.val), len(data.test), data.classes
    (200, 50, 100, ('0', '1', '2', '3', '4'))
    """
    if isinstance(source, Data):
        return source
    check_pixels(pixels)
    if task is not None and task not in get_args(Task):
        raise unknown("task", task, get_args(Task))
    name, raw = read(source, Request(target, seed))
    chosen, classes, targets = encoded(raw, task)
    strata = {part: y.numpy() if chosen == "classification" else np.zeros(len(y)) for part, y in targets.items()}
    rows = split_rows(strata, seed)
    train_part, train_rows = rows["train"]
    preparation = fitted(raw, take(raw.parts[train_part].inputs, train_rows), pixels)

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
        describe=preparation.names,
        opening=opening_again(source, {"target": target, "task": task, "seed": seed, "pixels": pixels}),
    )


def opening_again(source: Any, options: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments of `open_data` that open a named source again from anywhere; None for an object in memory."""
    if not isinstance(source, str | Path):
        return None
    found = resolved(source)
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
    """A source's own test part, or else all its rows, with an earlier run's preparation and classes.

    For a table, `target` defaults to the columns the run was trained on. `seed` matters to the toys alone.
    """
    if isinstance(source, Data):
        return same_preparation(source, preparation, classes).test
    if target is None and isinstance(preparation, TablePreparation):
        usual = preparation.targets if form_of(resolved(source)).takes_target else ()
        target = usual or None
    _, raw = read(source, Request(target, seed))
    names = list(test_parts(raw))
    ys = [encoded_part(raw, raw.parts[name], task, classes) for name in names]
    return Split(torch.cat([prepared(raw, name, preparation) for name in names]), torch.cat(ys))


def open_inputs(source: Any, *, preparation: Preparation, seed: int = 0) -> Tensor:
    """Prepared inputs (N, ...) of a source's own test part, or else of all its rows; labels are not needed.

    Besides all that `open_data` opens: a table without its target, an npz without y, a flat folder of
    pictures (in the order of their paths), a tensor or array alone.
    """
    if isinstance(source, Data):
        return same_preparation(source, preparation, None).test.x
    _, raw = read(source, Request(None, seed, labelled=False))
    return torch.cat([prepared(raw, name, preparation) for name in test_parts(raw)])


def resolved(source: Any) -> Any:
    """The source itself, or the existing path that a text means."""
    if not isinstance(source, str | Path) or any(form.matches(source) for form in FORMS[:2]):
        return source
    path = Path(source).expanduser()
    if path.exists():
        return path
    text = str(source)
    if isinstance(source, Path) or path.suffix or "/" in text or "\\" in text:
        raise Misuse(f"no file or folder '{text}': expected {EXPECTED}")
    raise unknown("data", text, toys.BUILTINS)


def form_of(source: Any) -> Form:
    """The form of a resolved source."""
    for form in FORMS:
        if form.matches(source):
            return form
    if isinstance(source, Path):
        raise Misuse(f"'{source}' has the suffix '{source.suffix}': expected .csv, .parquet or .npz, or a folder")
    raise Misuse(f"a {type(source).__name__} is not data: expected {EXPECTED}")


def read(source: Any, request: Request) -> tuple[str, Raw]:
    """The name of a source and its raw content."""
    found = resolved(source)
    form = form_of(found)
    name = form.name or str(source)
    if request.target is not None and not form.takes_target:
        raise Misuse(f"target='{request.target}' names the column of a table, but {name} is not one: leave it out")
    raw = form.load(found, request)
    if not sum(map(len, raw.parts.values())):
        raise Misuse(f"{name} has no rows: expected at least one")
    return name, raw


def target_name(raw: Raw) -> str:
    """How messages call the targets."""
    return f"target '{', '.join(raw.targets)}'" if raw.targets else "target"


def encoded(raw: Raw, task: Task | None) -> tuple[Task, tuple[str, ...], dict[str, Tensor]]:
    """The task, the classes (empty for regression), and the targets of every part as tensors."""
    base = raw.parts.get("train") or raw.parts.get("all")
    rows = len(base) if base is not None else 0
    if base is not None and rows < FEWEST_ROWS:
        raise Misuse(f"{rows} rows to train on: expected at least {FEWEST_ROWS}, one for each split")
    found = {name: found_targets(raw, part) for name, part in raw.parts.items()}
    first = next(iter(found.values()))
    chosen: Task | None = task or raw.task
    if chosen is None:
        chosen = infer_task(first, pictures_peak(raw) is not None)
        if chosen == "classification":
            refuse_free_text(first, target_name(raw))
    classes = class_list(list(found.values()), raw.names) if chosen == "classification" else ()
    ys = {name: encoded_part(raw, part, chosen, classes) for name, part in raw.parts.items()}
    if chosen == "regression":
        refuse_constant(torch.cat(list(ys.values())), target_name(raw))
    return chosen, classes, ys


def found_targets(raw: Raw, part: Part) -> np.ndarray:
    """The targets of a part, none of them missing."""
    if part.targets is None:
        raise Misuse("the source has no targets: expected labels or numbers to learn")
    refuse_missing(part.targets, target_name(raw))
    return part.targets


def encoded_part(raw: Raw, part: Part, task: Task, classes: tuple[str, ...]) -> Tensor:
    """The targets of one part: labels (N,) int64 or numbers (N, K) float32."""
    targets = found_targets(raw, part)
    if task == "classification":
        return encode_labels(targets, raw.names, classes)
    return encode_numbers(targets, target_name(raw))


def pictures_peak(raw: Raw) -> float | None:
    """The value of white if the source holds pictures, else None."""
    if raw.peak is not None or any(is_table(part.inputs) for part in raw.parts.values()):
        return raw.peak
    peaks = [pixel_peak(part.inputs) for part in raw.parts.values() if len(part)]
    return None if None in peaks else max(peak for peak in peaks if peak is not None)


def fitted(raw: Raw, inputs: Any, pixels: Pixels) -> Preparation:
    """The preparation of the training inputs: by columns, as pictures, or as an array."""
    if is_table(inputs):
        return fit_table(inputs, raw.targets)
    peak = pictures_peak(raw)
    if peak is not None:
        return fit_images(inputs, peak, pixels)
    if inputs.ndim == 4 and picture_shape(inputs) != inputs.shape[1:]:
        raise Misuse(
            f"x of shape {inputs.shape} has colours last and values outside 0..255: expected pixels, or"
            " channels first (N, C, H, W)"
        )
    return fit_array(inputs, raw.features, raw.as_is or (inputs.ndim > 2 and pixels == "raw"))


def test_parts(raw: Raw) -> tuple[str, ...]:
    """The parts to evaluate on: the source's own test part, or else all it has."""
    return ("test",) if "test" in raw.parts else tuple(raw.parts)


def prepared(raw: Raw, name: str, preparation: Preparation) -> Tensor:
    """The inputs (N, ...) of one part by an earlier run's preparation.

    Pictures whose white is known to differ from training's (bytes in a file, floats in 0..1) are rescaled.
    """
    inputs = raw.parts[name].inputs
    if not isinstance(preparation, ImagePreparation):
        return preparation.apply(inputs)
    if is_table(inputs):
        raise Misuse(f"a table for a run trained on pictures: expected pictures of shape {preparation.shape}")
    return preparation.apply(inputs, peak=known_white(inputs, raw.peak))


def same_preparation(data: Data, preparation: Preparation, classes: tuple[str, ...] | None) -> Data:
    """The Data, if it was prepared just as the run's was."""
    if data.preparation != preparation or (classes is not None and data.classes != tuple(classes)):
        raise Misuse(f"Data '{data.name}' was prepared by other statistics or classes: give its source instead")
    return data
