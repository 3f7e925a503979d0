"""Data sets: opening a source as three prepared splits, or another source with the preparation of an earlier run."""

import hashlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from murmuration.data.arrays import are_pairs, checked_part, is_array, is_pair
from murmuration.data.file_rows import FileRows, joined_rows
from murmuration.data.formats import format_of, load_source, resolve
from murmuration.data.images import adapt_images, adapted_peak, fit_to_preparation
from murmuration.data.imbalance import long_tail_rows
from murmuration.data.input_kinds import FeatureNetwork, fit_features, image_peak
from murmuration.data.parquet import FileTable, prepared_rows
from murmuration.data.preparation import (
    FeaturePreparation,
    ImagePreparation,
    Inputs,
    Preparation,
    Prepare,
    TablePreparation,
    before_features,
    refuse_local_numbers,
)
from murmuration.data.raw import (
    Keys,
    LoadOptions,
    RawData,
    RawPart,
    fingerprint,
    is_table,
    join_keys,
    take,
    take_keys,
)
from murmuration.data.splits import FEWEST_ROWS, split_rows
from murmuration.data.streamed import Streamed, are_parts, is_streamable, streamed_rows
from murmuration.data.tables import role_values
from murmuration.data.targets import (
    Task,
    as_values,
    class_list,
    encode_labels,
    infer_task,
    label_names,
    refuse_constant,
    refuse_free_text,
    refuse_missing,
)
from murmuration.system.errors import Misuse, listed, require_number, unknown
from murmuration.system.progress import html_table

NO_TEST = "none"  # as `test`: all rows train and validate
VAL_BYTES = 2**28  # of prepared validation examples that are kept in memory, as every epoch asks for them
VAL_SHARE = 0.15  # of the examples given to `fit`, to choose and calibrate by


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Examples: inputs as they were given, their targets, and the inputs as a network takes them.

    Without `prepared`, x is a tensor that needs no preparation. Rows are selected by `split[:100]` or `split[indices]`.
    """

    x: Any  # (N, ...) array or pandas table as given; None where only prepared inputs exist
    y: Tensor  # (N,) int64 labels, or (N, K) float64 targets in their own units
    prepared: Tensor = None  # type: ignore[assignment]  # (N, ...); x itself unless given
    weight: Tensor | None = None  # (N,) sample weights
    keys: Keys = field(default_factory=dict)  # the caller's names of the rows: the index of a table, image files

    def __post_init__(self) -> None:
        if self.prepared is None:
            if not isinstance(self.x, Tensor):
                raise Misuse(f"Split with x of type {type(self.x).__name__}: give prepared= too, or x as a tensor")
            object.__setattr__(self, "prepared", self.x)

    def __len__(self) -> int:
        return len(self.prepared)

    def __getitem__(self, rows: slice | np.ndarray) -> "Split":
        def some(values: Any) -> Any:
            if values is None:
                return None
            return values.iloc[rows] if is_table(values) else values[rows]

        return Split(some(self.x), self.y[rows], self.prepared[rows], some(self.weight), take_keys(self.keys, rows))

    def __repr__(self) -> str:
        return f"Split({len(self):,} examples of shape {tuple(self.prepared.shape[1:])})"


@dataclass(frozen=True, repr=False)
class Data:
    """Three splits of one data set, prepared by statistics of the training split alone."""

    name: str  # as the user wrote the source
    task: Task
    train: Split
    val: Split
    test: Split
    classes: tuple[str, ...]  # names in the order of the labels; empty for regression
    preparation: Preparation  # x -> prepared, stored with a run and applied by `predict`
    fingerprint: str  # sha256 of the raw data, by which a run notices that its data changed
    feature_names: tuple[str, ...] = ()  # of the prepared inputs, if they have names
    source: dict[str, Any] | None = None  # arguments of `open_data` that open it again, see `reopen_arguments`

    def __repr__(self) -> str:
        kind = f"{self.task} of {len(self.classes)} classes" if self.classes else self.task
        sizes = ", ".join(f"{len(getattr(self, part))} {part}" for part in ("train", "val", "test"))
        return f"Data({self.name!r}, {kind}, inputs {self.input_shape}, {sizes})"

    def _repr_html_(self) -> str:
        rows = {"task": self.task, "inputs": self.input_shape, "classes": listed(self.classes) or "none"}
        rows |= {part: f"{len(getattr(self, part)):,} examples" for part in ("train", "val", "test")}
        return html_table(self.name, rows)

    @property
    def held_out(self) -> Split:
        """The test split, or the validation split where no rows test."""
        return self.test if len(self.test) else self.val

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.train.prepared.shape[1:])


def open_data(
    source: Any = "digits",
    *,
    target: str | tuple[str, ...] | None = None,
    task: Task | None = None,
    seed: int = 0,
    inputs: Inputs | None = None,
    prepare: Prepare | None = None,
    in_memory: bool | None = None,
    val: Any = None,
    test: Any = None,
    groups: Any = None,
    time: Any = None,
    weight: Any = None,
    drop: str | Sequence[str] = (),
    size: int | tuple[int, int] | None = None,
    imbalance: float | None = None,
    features: FeatureNetwork | None = None,
) -> Data:
    """A source split into train, validation and test, prepared by statistics of the training split.

    `source` is a built-in name, a file, a folder, `hf:NAME`, a pair (x, y), a torch Dataset or DataLoader, (train,
    val[, test]) of these, a pandas table or a Data, which is returned unchanged (the table `FORMATS` has all formats).
    `target` names the column(s) of a table to predict. `task` is inferred from the targets (see `infer_task`) unless
    given.

    `inputs="tokens"` takes whole numbers as indices for an embedding, `inputs="images"` takes an array (N, H, W) as
    images; otherwise numbers are numbers. `prepare` is `standardise`; `robust` (median and interquartile range, clipped
    smoothly) or `quantile` (to a normal distribution) for rows of numbers; `unit` (images from 0 to 1) or `none`. Image
    files are resized and cropped to `size`, (H, W) or one number for both. Examples of a Dataset or DataLoader are
    read when they are needed and taken as they are (`none`); with `in_memory` they are read once and prepared. Rows of
    .npz, .npy and .parquet files and of image folders are read and prepared when they are needed if `in_memory` is
    False, or if they would take more than 1 GiB (4 bytes a value) and it is left out; results are the same bit for bit.

    If the source has a test part, it is kept and 10 % of the rest validate; otherwise the split is 70/10/20 % by
    `seed`. `val` and `test` choose otherwise: a share of the rows, other data (a path, a pair, a table), indices or a
    mask of rows, or a scikit-learn splitter; `test="none"`: all rows train and validate. `groups` and `time` are a
    column's name or an array (N,): no group stands in two splits; the latest rows test, those before them validate.
    `weight` are sample weights, a column's name (also of other data given as `val`) or an array (N,). These columns,
    and those named by `drop`, are not inputs.
    `imbalance` cuts a long tail: training rows are left out at random until the first class has so many times the
    examples of the last (`long_tail_counts`).

    With `features`, a network that is not trained stands before the preparation: write `mm.embed` for it.

    >>> data = open_data("five-gaussians")
    >>> len(data.train), len(data.val), len(data.test), data.classes
    (200, 50, 100, ('0', '1', '2', '3', '4'))
    """
    if isinstance(source, Data):
        return source
    for name, value, known in (("prepare", prepare, Prepare), ("task", task, Task), ("inputs", inputs, Inputs)):
        if value is not None and value not in get_args(known):
            raise unknown(name, value, get_args(known))
    dropped = tuple(name.strip() for name in drop.split(",")) if isinstance(drop, str) else tuple(drop)
    roles = {"groups": groups, "time": time, "weight": weight}
    if (isinstance(test, str) and test == NO_TEST) or (are_parts(source) and len(source) == 2 and test is None):
        test = 0.0  # all is (train, val)
    sizes = (size, size) if isinstance(size, int) else size
    options = LoadOptions(target, seed, size=sizes, drop=tuple(filter(None, dropped)), in_memory=in_memory, roles=roles)
    name, raw = load_source(source, options)
    held: dict[str, Any] = {"val": val, "test": test}
    for part in [part for part, value in held.items() if is_other_data(value)]:
        raw = with_part(raw, part, load_other(part, held.pop(part), source, replace(options, roles={})), weight)
    chosen, classes, targets = encode_targets(raw, task)
    strata = {part: y.numpy() if chosen == "classification" else np.zeros(len(y)) for part, y in targets.items()}
    extra = raw.parts["all" if "all" in raw.parts else "train"].extra if set(raw.parts) & {"all", "train"} else {}
    rows = split_rows(strata, seed, **held, groups=extra.get("groups"), time=extra.get("time"))
    train_part, train_rows = rows["train"]
    digest = fingerprint(raw)
    if imbalance is not None:
        check_imbalance(imbalance, chosen)
        train_rows = train_rows[long_tail_rows(strata[train_part][train_rows], len(classes), imbalance, seed)]
        rows = {**rows, "train": (train_part, train_rows)}
        name = f"{name}, imbalance {imbalance:g}"
        digest = hashlib.sha256(f"{digest} {imbalance!r} {seed}".encode()).hexdigest()
    chosen_inputs = take(raw.parts[train_part].inputs, train_rows)
    prepare = prepare or ("none" if isinstance(chosen_inputs, Streamed) else "standardise")
    preparation, made = fit_features(raw, features, rows["train"], prepare, name, inputs)
    streams = {} if made else streamed_parts(raw, preparation)
    if isinstance(chosen_inputs, Streamed):
        check_streamed(chosen_inputs, {name for name, (part, n) in rows.items() if part == train_part and len(n)})

    def split(name: str) -> Split:
        part, kept = raw.parts[rows[name][0]], rows[name][1]
        x, given = take(part.inputs, kept), part.extra.get("weight")
        weights = None if given is None else torch.from_numpy(given[kept].astype(np.float32))
        y = targets[rows[name][0]][torch.from_numpy(kept)]
        if isinstance(x, Streamed):
            x = x.prepared(preparation, encode=lambda y: encode_part(raw, RawPart(None, y), chosen, classes))
        x = streams[rows[name][0]].subset(kept) if rows[name][0] in streams else x
        prepared = made[rows[name][0]][kept] if made else prepared_split(x, name, preparation)
        return Split(x, y, prepared, weights, take_keys(part.keys, kept))

    again = {"target": target, "task": task, "seed": seed, "inputs": inputs, "prepare": prepare, "val": val}
    again |= {"in_memory": in_memory, "imbalance": imbalance, "features": getattr(features, "net", None)}
    again |= {"test": test, **roles, "drop": list(options.drop) or None, "size": sizes}
    return Data(
        name=name,
        task=chosen,
        train=split("train"),
        val=split("val"),
        test=split("test"),
        classes=classes,
        preparation=preparation,
        fingerprint=digest,
        feature_names=preparation.names,
        source=reopen_arguments(source, again),
    )


def streamed_parts(raw: RawData, preparation: Preparation) -> dict[str, Streamed]:
    """The examples of every part whose rows stay in files, prepared when they are read.

    The prepared rows of a table are written to a temporary file, from which any order can be read.
    """
    found = {}
    for name, part in raw.parts.items():
        if isinstance(part.inputs, FileTable):
            prepared = prepared_rows(part.inputs, preparation.apply, len(preparation.names))
            found[name] = streamed_rows(prepared).prepared(preparation, torch.from_numpy)
        elif isinstance(part.inputs, FileRows):
            found[name] = streamed_rows(part.inputs).prepared(preparation)
    return found


def prepared_split(x: Any, split: str, preparation: Preparation) -> Any:
    """Prepared inputs of a split; a streamed one stays so, but for validation examples, which every epoch asks for."""
    if not isinstance(x, Streamed):
        return preparation.apply(x)
    few = not x.of_files or 4 * math.prod(x.shape) <= VAL_BYTES
    return x[:] if split == "val" and few else x


def open_training_data(source: Any, *, val: Any = None, test: Any = None, **options: Any) -> Data:
    """The data that `fit` trains on: as `open_data`, but an object in memory is all for training and validation.

    15 % of its rows validate unless `val` says otherwise, and none test unless `test` says so.
    """
    if isinstance(source, Data):
        given = {name for name, value in {"val": val, "test": test, **options}.items() if value is not None}
        if given:
            raise Misuse(f"{listed(sorted(given))}= with a Data, which is split and prepared: give them to open_data")
        return source
    if not isinstance(source, str | Path) and not are_parts(source) and not are_pairs(source):
        val, test = VAL_SHARE if val is None else val, 0.0 if test is None else test
    return open_data(source, val=val, test=test, **options)


def is_other_data(value: Any) -> bool:
    """Whether `val` or `test` is a source of its own: a path or name, a pair (x, y), a table, a dataset."""
    return isinstance(value, str | Path) or is_pair(value) or is_table(value) or is_streamable(value)


def load_other(part: str, value: Any, source: Any, options: LoadOptions) -> RawData:
    """The data of `val` or `test`; refuses the file, folder or built-in data set that trains."""
    paths = isinstance(value, str | Path) and isinstance(source, str | Path)
    if paths and Path(value).resolve() == Path(source).resolve():
        raise Misuse(f"{part}={str(value)!r} is the training data: give other rows, or a share such as {part}=0.2")
    return load_source(value, options)[1]


def check_imbalance(imbalance: float, task: Task) -> None:
    """Refuse a long tail that cannot be cut."""
    require_number("imbalance", imbalance, 100)
    if task != "classification":
        raise Misuse(f"imbalance={imbalance:g} for data of {task}: expected a classification")


def check_streamed(inputs: Streamed, shared: set[str]) -> None:
    """Refuse a sampler, and warn of augmentation, that would act on other splits; `shared` come from one dataset."""
    if shared == {"train"}:
        return
    if inputs.own_sampler is not None:
        name = type(inputs.own_sampler).__name__
        raise Misuse(f"a DataLoader with a {name}, and other splits taken from it: give (loader, val) instead")
    if inputs.source.draws:
        warnings.warn(
            f"{inputs.source.name} draws random numbers for validation examples too: give (train, val) data sets, of"
            " which the first augments",
            stacklevel=3,
        )


def with_part(raw: RawData, name: str, other: RawData, weight: Any = None) -> RawData:
    """The source with the test part of another, or all its rows if it has none, as its part `name`.

    Its sample weights are its own column of the name `weight`, if it has one.
    """
    found = other.parts.get("test") or other.parts.get("all")
    if found is None:
        raise Misuse(f"{name}= has only the parts {', '.join(other.parts)}: expected one with all rows or a test part")
    parts = {("train" if part == "all" else part): value for part, value in raw.parts.items()}
    if raw.class_names != other.class_names:
        raise Misuse(f"{name}= has other class names than the data: expected the same")
    if isinstance(weight, str) and is_table(found.inputs) and weight in found.inputs.columns:
        found = replace(found, extra={"weight": role_values(found.inputs[weight], "weight")})
    return replace(raw, parts={**parts, name: found})


def reopen_arguments(source: Any, options: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments of `open_data` that open a source again from any directory.

    Without "source" for an object in memory, which has to be given again; None if an option is such an object.
    """
    plain = {name: value for name, value in options.items() if value is not None}
    plain = {name: located(value) if name in ("val", "test") else value for name, value in plain.items()}
    if not all(isinstance(value, str | int | float | list | tuple) for value in plain.values()):
        return None
    return {"source": located(source), **plain} if isinstance(source, str | Path) else plain


def located(source: Any) -> Any:
    """A path as text that holds in any directory; all else as it is."""
    if not isinstance(source, str | Path):
        return source
    found = resolve(source)
    return str(found.resolve() if isinstance(found, Path) else found)


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
        if source.classes != tuple(classes):
            raise Misuse(f"Data '{source.name}' has the classes {listed(source.classes)}: expected {listed(classes)}")
        if source.preparation == preparation:
            return source.test
        return replace(source.test, prepared=open_inputs(source, preparation=preparation))
    if target is None and isinstance(preparation, TablePreparation):
        usual = preparation.targets if format_of(resolve(source)).takes_target else ()
        target = usual or None
    _, raw = load_source(source, LoadOptions(target, seed, **resized_for(preparation)))
    names = list(test_parts(raw))
    ys = torch.cat([encode_part(raw, raw.parts[name], task, classes) for name in names])
    prepared: Any = prepare_parts(raw, names, preparation)
    streamed = isinstance(prepared, Streamed)
    x = prepared if streamed else join_inputs([raw.parts[name].inputs for name in names])
    return Split(x, ys, prepared, keys=join_keys([raw.parts[name].keys for name in names]))


def open_inputs(source: Any, *, preparation: Preparation, seed: int = 0, adapt: bool = False) -> Tensor:
    """The prepared inputs (N, ...) of `open_keyed_inputs` alone."""
    return open_keyed_inputs(source, preparation=preparation, seed=seed, adapt=adapt)[0]


def open_keyed_inputs(
    source: Any, *, preparation: Preparation, seed: int = 0, adapt: bool = False, in_memory: bool | None = None
) -> tuple[Tensor, Keys]:
    """Prepared inputs (N, ...) of the test part of a source, or of all its rows if it has none, and their keys.

    Targets are not needed. Besides all formats of `open_data`: a table without its target, an npz without y, a flat
    folder of images (in the order of their paths), a list of images, a tensor or array alone. With `adapt`, images of
    other sizes and colours are resized and recoloured to those of the preparation, see `adapt_images`. `in_memory` is
    that of `open_data`: False reads and prepares rows when they are needed, None those of large files.
    """
    first = before_features(preparation)
    fit_to = first if adapt and isinstance(first, ImagePreparation) else None

    def adapted(images: Any, white: float | None) -> Tensor:
        assert fit_to is not None
        found = adapt_images(images, white, fit_to)
        return preparation.apply_prepared(found) if isinstance(preparation, FeaturePreparation) else found

    if isinstance(source, Data):
        if fit_to and isinstance(source.preparation, ImagePreparation) and source.preparation.shape != fit_to.shape:
            pixels = source.preparation.pixels_of(source.test.prepared)  # in 256 levels, as they will be rounded
            return adapted(pixels.transpose(0, 3, 1, 2), 255.0), source.test.keys
        if source.preparation == preparation:
            return source.test.prepared, source.test.keys
        source = source.test.x
    if isinstance(source, FileRows):
        return prepared_when_read(source, None, preparation), {}
    short = is_array(source) and not fit_to and in_memory is not False
    if short:  # one input should not wait for the table of formats
        return prepare_inputs(checked_part(source, None, "x").inputs, None, preparation), {}
    size = {"size": fit_to.shape[1:]} if fit_to else resized_for(preparation)
    _, raw = load_source(source, LoadOptions(None, seed, labelled=False, in_memory=in_memory, **size))
    names = test_parts(raw)
    keys = join_keys([raw.parts[name].keys for name in names])
    if fit_to and isinstance(raw.parts[names[0]].inputs, FileRows):
        images = joined_rows([raw.parts[name].inputs for name in names])
        white = adapted_peak(images, raw.peak, fit_to)
        change = partial(fit_to_preparation, white=white, preparation=fit_to)
        later = preparation.apply_prepared if isinstance(preparation, FeaturePreparation) else None
        apply = change if later is None else lambda x: later(change(x))
        return streamed_rows(images).prepared(preparation, apply), keys  # type: ignore[return-value]
    if fit_to:
        return torch.cat([adapted(raw.parts[name].inputs, raw.peak) for name in names]), keys
    return prepare_parts(raw, names, preparation), keys


def resized_for(preparation: Preparation) -> dict[str, Any]:
    """The options that resize image files as those of training were resized, or refuse other sizes."""
    first = before_features(preparation)
    if isinstance(first, ImagePreparation) and first.resized:
        return {"size": first.shape[1:]}
    return {"mixed_sizes": False}


def join_inputs(parts: list[Any]) -> Any:
    """The rows of several arrays or tables, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if is_table(parts[0]):
        import pandas as pd

        return pd.concat(parts)
    return np.concatenate(parts)


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
        chosen = infer_task(first, image_peak(raw) is not None, target_name(raw))
        if chosen == "classification" and first.dtype.kind in "OU":
            refuse_local_numbers(target_name(raw), tuple(map(str, label_names(first, None)[0])))
            refuse_free_text(first, target_name(raw))
    classes = class_list(list(found.values()), raw.class_names) if chosen == "classification" else ()
    ys = {name: encode_part(raw, part, chosen, classes) for name, part in raw.parts.items()}
    if chosen == "multi-label" and not all(((y == 0) | (y == 1)).all() for y in ys.values()):
        raise Misuse(
            f"task='multi-label' and {target_name(raw)} holds other values than 0 and 1: expected zeros and ones"
        )
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


def test_parts(raw: RawData) -> tuple[str, ...]:
    """The names of the parts to evaluate on: the test part, or all parts if there is none."""
    return ("test",) if "test" in raw.parts else tuple(raw.parts)


def prepare_parts(raw: RawData, names: Sequence[str], preparation: Preparation) -> Tensor:
    """The inputs (N, ...) of parts by the preparation of an earlier run; those of a dataset are still to be read."""
    inputs = [raw.parts[name].inputs for name in names]
    if isinstance(inputs[0], Streamed):
        return inputs[0].prepared(preparation, lambda x: prepare_inputs(x, raw.peak, preparation))  # type: ignore[return-value]
    if isinstance(inputs[0], FileTable):
        return streamed_rows(inputs[0]).prepared(preparation)  # type: ignore[return-value]
    if isinstance(inputs[0], FileRows):
        return prepared_when_read(joined_rows(inputs), raw.peak, preparation)
    return torch.cat([prepare_inputs(x, raw.peak, preparation) for x in inputs])


def prepared_when_read(inputs: FileRows, peak: float | None, preparation: Preparation) -> Tensor:
    """Rows in files by the preparation of an earlier run, a few at a time; the white of images is that of all rows."""
    first, apply = before_features(preparation), preparation.apply
    if isinstance(first, ImagePreparation):
        apply = partial(preparation.apply, peak=first.white_of(inputs, peak))  # type: ignore[call-arg]
    return streamed_rows(inputs).prepared(preparation, apply)  # type: ignore[return-value]


def prepare_inputs(inputs: Any, peak: float | None, preparation: Preparation) -> Tensor:
    """Inputs (N, ...) by the preparation of an earlier run.

    Images whose white is known to differ from training's (uint8 in a file, floats in 0..1) are rescaled.
    """
    first = before_features(preparation)
    if not isinstance(first, ImagePreparation):
        return preparation.apply(inputs)
    if is_table(inputs):
        raise Misuse(f"a table for a run trained on images: expected images of shape {first.shape}")
    white = first.white_of(inputs, peak)
    return preparation.apply(inputs, peak=white)  # type: ignore[call-arg]  # the first takes a peak, so this one does


def visible_inputs(split: Split, preparation: Preparation, rows: Any) -> tuple[Preparation, Tensor]:
    """Some prepared inputs as a reader can see them, and their preparation: images, not their features."""
    if not isinstance(preparation, FeaturePreparation):
        return preparation, split.prepared[rows]
    first = preparation.inputs
    return first, prepare_inputs(split.x.iloc[rows] if is_table(split.x) else split.x[rows], None, first)
