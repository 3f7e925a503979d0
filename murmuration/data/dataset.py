"""Data sets: opening a source as three prepared splits, or another source with the preparation of an earlier run."""

import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
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
from murmuration.data.images import adaptation
from murmuration.data.input_kinds import FeatureNetwork, fit_features, image_peak
from murmuration.data.parquet import FileTable, prepared_rows
from murmuration.data.preparation import (
    ImagePreparation,
    Inputs,
    Preparation,
    Prepare,
    TablePreparation,
    before_features,
    refuse_local_numbers,
)
from murmuration.data.raw import Keys, LoadOptions, RawData, RawPart, fingerprint, is_table, join_keys, take, take_keys
from murmuration.data.splits import FEWEST_ROWS, long_tail_rows, split_rows
from murmuration.data.streamed import Streamed, are_parts, is_streamable, streamed_rows
from murmuration.data.tables import role_values
from murmuration.data.targets import Task, class_list, infer_task, label_names, refuse_constant, refuse_free_text
from murmuration.system.errors import Misuse, listed, require_number, unknown
from murmuration.system.progress import html_table

NO_TEST = "none"  # as `test`: all rows train and validate
VAL_BYTES = 2**28  # of prepared validation examples that are kept in memory, as every epoch asks for them
VAL_SHARE = 0.15  # of the examples given to `fit`, to choose and calibrate by


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Examples: raw inputs, targets, and the inputs as a network takes them.

    `split[:100]` and `split[indices]` select rows.

    Attributes:
        x: Raw inputs (N, ...), an array or a pandas table; None where only prepared inputs exist.
        y: Labels (N,) int64, or targets (N, K) float64 in their original units.
        prepared: Inputs (N, ...) as a network takes them; `x` itself, a tensor, unless given.
        weight: Sample weights (N,), or None.
        keys: Names of the rows (N,): the index of a table, or image files.

    Raises:
        Misuse: Without `prepared`, if `x` is not a tensor.
    """

    x: Any
    y: Tensor
    prepared: Tensor = None  # type: ignore[assignment]
    weight: Tensor | None = None
    keys: Keys = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.prepared is None:
            if not isinstance(self.x, Tensor):
                raise Misuse(f"Split with x of type {type(self.x).__name__}: give prepared= too, or x as a tensor")
            object.__setattr__(self, "prepared", self.x)

    def __len__(self) -> int:
        return len(self.prepared)

    def __getitem__(self, rows: slice | np.ndarray) -> "Split":
        x = self.x.iloc[rows] if is_table(self.x) else None if self.x is None else self.x[rows]
        weight = None if self.weight is None else self.weight[rows]
        return Split(x, self.y[rows], self.prepared[rows], weight, take_keys(self.keys, rows))

    def __repr__(self) -> str:
        return f"Split({len(self):,} examples of shape {tuple(self.prepared.shape[1:])})"


@dataclass(frozen=True, repr=False)
class Data:
    """Three splits of one data set, prepared by statistics of the training split alone.

    Attributes:
        name: The source as the user wrote it.
        task: "classification", "multi-label" or "regression".
        train: Training examples.
        val: Validation examples.
        test: Test examples; may be empty.
        classes: Class names in the order of the labels; empty for regression.
        preparation: Map from raw to prepared inputs, stored with a run and applied by `predict`.
        fingerprint: Sha256 of the raw data, by which a run notices that its data changed.
        feature_names: Names of the prepared columns, if they have names.
        source: Arguments of `open_data` that open the data again, see `reopen_arguments`; None if there are none.
    """

    name: str
    task: Task
    train: Split
    val: Split
    test: Split
    classes: tuple[str, ...]
    preparation: Preparation
    fingerprint: str
    feature_names: tuple[str, ...] = ()
    source: dict[str, Any] | None = None

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
        """The test split, or the validation split if the test split is empty."""
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
    """Open a source, split it into train, validation and test, and prepare it by statistics of the training split.

    If the source has a test part, it is kept and 10 % of the other rows validate; otherwise the split is 70/10/20 %.

    Args:
        source: A built-in name, a file, a folder, `hf:NAME`, a pair (x, y), a torch Dataset or DataLoader, (train,
            val[, test]) of these, or a pandas table; see `FORMATS`. A Data is returned unchanged.
        target: Column or columns of a table to predict; for an .npy file, the .npy file of its targets.
        task: "classification", "multi-label" or "regression"; inferred from the targets by default (`infer_task`).
        seed: Seed of the split, and of toy data.
        inputs: "tokens" takes integers as indices for an embedding, "images" takes an array (N, H, W) as images,
            "numbers" takes arrays as they are; recognised by default.
        prepare: "standardise" (default); "robust" (median and interquartile range, clipped smoothly) or "quantile"
            (to a normal distribution) for rows of numbers; "unit" (images from 0 to 1) or "none".
        in_memory: False reads and prepares rows when they are needed, True reads all once. By default, a Dataset or
            DataLoader is read when needed and not prepared, and so are .npz, .npy, .parquet files and image folders
            that would take more than 1 GiB (4 bytes a value), with bit-identical results.
        val: Validation rows: a share, indices, a mask, a scikit-learn splitter, or other data (a path, a pair, a
            table).
        test: Test rows, like `val`; "none" for no test split.
        groups: Column name or array (N,); rows of one group stay in one split.
        time: Column name or array (N,); the latest rows test, those before them validate.
        weight: Sample weights: a column name (also of other data given as `val`) or an array (N,).
        drop: Columns that are not inputs, in addition to those of `groups`, `time` and `weight`.
        size: Pixels (H, W), or one number for both, to which image files are resized and cropped.
        imbalance: Cut a long tail: drop training rows at random until the first class has this many times the
            examples of the last (`long_tail_counts`).
        features: A pretrained network applied before the preparation; see `mm.embed`.

    Returns:
        The three splits with their task, class names and preparation.

    Raises:
        Misuse: For a source, option or combination that cannot be opened; the message says what to write.
        Failure: For damaged or unreadable files.

    >>> data = open_data("five-gaussians")
    >>> len(data.train), len(data.val), len(data.test), data.classes
    (200, 50, 100, ('0', '1', '2', '3', '4'))
    """
    if isinstance(source, Data):
        return source
    for name, value, literal in (("prepare", prepare, Prepare), ("task", task, Task), ("inputs", inputs, Inputs)):
        if value is not None and value not in get_args(literal):
            raise unknown(name, value, get_args(literal))
    dropped = tuple(name.strip() for name in drop.split(",")) if isinstance(drop, str) else tuple(drop)
    roles = {"groups": groups, "time": time, "weight": weight}
    if (isinstance(test, str) and test == NO_TEST) or (are_parts(source) and len(source) == 2 and test is None):
        test = 0.0  # the source is (train, val)
    sizes = (size, size) if isinstance(size, int) else size
    options = LoadOptions(target, seed, size=sizes, drop=tuple(filter(None, dropped)), in_memory=in_memory, roles=roles)
    name, raw = load_source(source, options)
    holdouts: dict[str, Any] = {"val": val, "test": test}
    for part in [part for part, value in holdouts.items() if is_other_data(value)]:
        raw = with_part(raw, part, holdouts.pop(part), source, replace(options, roles={}), weight)
    data_task, classes, targets = encode_targets(raw, task)
    strata = {part: y.numpy() if data_task == "classification" else np.zeros(len(y)) for part, y in targets.items()}
    extra = raw.parts["all" if "all" in raw.parts else "train"].extra if set(raw.parts) & {"all", "train"} else {}
    rows = split_rows(strata, seed, **holdouts, groups=extra.get("groups"), time=extra.get("time"))
    train_part, train_rows = rows["train"]
    digest = fingerprint(raw)
    if imbalance is not None:
        require_number("imbalance", imbalance, 100)
        if data_task != "classification":
            raise Misuse(f"imbalance={imbalance:g} for data of {data_task}: expected a classification")
        train_rows = train_rows[long_tail_rows(strata[train_part][train_rows], len(classes), imbalance, seed)]
        rows = {**rows, "train": (train_part, train_rows)}
        name = f"{name}, imbalance {imbalance:g}"
        digest = hashlib.sha256(f"{digest} {imbalance!r} {seed}".encode()).hexdigest()
    train_inputs = take(raw.parts[train_part].inputs, train_rows)
    prepare = prepare or ("none" if isinstance(train_inputs, Streamed) else "standardise")
    preparation, embedded = fit_features(raw, features, rows["train"], prepare, name, inputs)
    streams = {} if embedded else streamed_parts(raw, preparation)
    if isinstance(train_inputs, Streamed):
        check_streamed(train_inputs, {name for name, (part, n) in rows.items() if part == train_part and len(n)})

    def split(name: str) -> Split:
        part_name, indices = rows[name]
        part = raw.parts[part_name]
        x, weights = take(part.inputs, indices), part.extra.get("weight")
        if isinstance(x, Streamed):
            x = x.prepared(preparation, encode=lambda y: raw.encode(RawPart(None, y), data_task, classes))
        x = streams[part_name].subset(indices) if part_name in streams else x
        prepared = embedded[part_name][indices] if embedded else prepared_split(x, name, preparation)
        weight = None if weights is None else torch.from_numpy(weights[indices].astype(np.float32))
        return Split(x, targets[part_name][torch.from_numpy(indices)], prepared, weight, take_keys(part.keys, indices))

    arguments = {"target": target, "task": task, "seed": seed, "inputs": inputs, "prepare": prepare, "val": val}
    arguments |= {"in_memory": in_memory, "imbalance": imbalance, "features": getattr(features, "net", None)}
    arguments |= {"test": test, **roles, "drop": list(options.drop) or None, "size": sizes}
    splits, reopened = (split("train"), split("val"), split("test")), reopen_arguments(source, arguments)
    return Data(name, data_task, *splits, classes, preparation, digest, preparation.names, reopened)


def streamed_parts(raw: RawData, preparation: Preparation) -> dict[str, Streamed]:
    """Return the examples of every part whose rows stay in files, prepared when they are read.

    Prepared rows of a table are first written to a temporary file that can be read in any order.
    """
    streams = {}
    for name, part in raw.parts.items():
        if isinstance(part.inputs, FileTable):
            prepared = prepared_rows(part.inputs, preparation.apply, len(preparation.names))
            streams[name] = streamed_rows(prepared).prepared(preparation, torch.from_numpy)
        elif isinstance(part.inputs, FileRows):
            streams[name] = streamed_rows(part.inputs).prepared(preparation)
    return streams


def prepared_split(x: Any, split: str, preparation: Preparation) -> Any:
    """Prepare the inputs of a split; streamed ones stay streamed, except few validation examples, read every epoch."""
    if not isinstance(x, Streamed):
        return preparation.apply(x)
    is_small = not x.of_files or 4 * math.prod(x.shape) <= VAL_BYTES
    return x[:] if split == "val" and is_small else x


def open_training_data(source: Any, *, val: Any = None, test: Any = None, **options: Any) -> Data:
    """Open the data that `fit` trains on: like `open_data`, but without a test split for objects in memory.

    Args:
        source: As for `open_data`.
        val: As for `open_data`; 15 % of the rows by default if the source is an object in memory.
        test: As for `open_data`; no rows by default if the source is an object in memory.
        **options: Further arguments of `open_data`.

    Returns:
        The three splits.

    Raises:
        Misuse: As `open_data`, and for options given with a Data, which is split and prepared already.
    """
    if isinstance(source, Data):
        surplus = sorted(name for name, value in {"val": val, "test": test, **options}.items() if value is not None)
        if surplus:
            raise Misuse(f"{listed(surplus)}= with a Data, which is split and prepared: give them to open_data")
        return source
    if not isinstance(source, str | Path) and not are_parts(source) and not are_pairs(source):
        val, test = VAL_SHARE if val is None else val, 0.0 if test is None else test
    return open_data(source, val=val, test=test, **options)


def is_other_data(value: Any) -> bool:
    """Return whether `val` or `test` is a separate source: a path or name, a pair (x, y), a table, a dataset."""
    return isinstance(value, str | Path) or is_pair(value) or is_table(value) or is_streamable(value)


def check_streamed(inputs: Streamed, shared: set[str]) -> None:
    """Refuse a sampler, and warn about augmentation, that also acts on other splits; `shared` come from one dataset."""
    if shared == {"train"}:
        return
    if inputs.own_sampler is not None:
        name = type(inputs.own_sampler).__name__
        raise Misuse(f"a DataLoader with a {name}, and other splits taken from it: give (loader, val) instead")
    if inputs.source.draws:
        write = "give (train, val) data sets, of which the first augments"
        warnings.warn(f"{inputs.source.name} draws random numbers for validation examples too: {write}", stacklevel=3)


def with_part(raw: RawData, name: str, value: Any, source: Any, options: LoadOptions, weight: Any) -> RawData:
    """Add other data `value` to `raw` as part `name`: its test part if it has one, else all rows.

    Its sample weights are its column `weight`, if it has one. The training data itself, `source`, is refused.
    """
    if all(isinstance(x, str | Path) for x in (value, source)) and Path(value).resolve() == Path(source).resolve():
        raise Misuse(f"{name}={str(value)!r} is the training data: give other rows, or a share such as {name}=0.2")
    _, other = load_source(value, options)
    other_part = other.parts.get("test") or other.parts.get("all")
    if other_part is None:
        raise Misuse(f"{name}= has only the parts {', '.join(other.parts)}: expected one with all rows or a test part")
    parts = {("train" if part == "all" else part): value for part, value in raw.parts.items()}
    if raw.class_names != other.class_names:
        raise Misuse(f"{name}= has other class names than the data: expected the same")
    if isinstance(weight, str) and is_table(other_part.inputs) and weight in other_part.inputs.columns:
        other_part = replace(other_part, extra={"weight": role_values(other_part.inputs[weight], "weight")})
    return replace(raw, parts={**parts, name: other_part})


def reopen_arguments(source: Any, options: dict[str, Any]) -> dict[str, Any] | None:
    """Return arguments of `open_data` that open a source again from any directory.

    They lack "source" for an object in memory, which the caller has to pass again; None if an option is such an object.
    """
    plain = {name: value for name, value in options.items() if value is not None}
    plain = {name: located(value) if name in ("val", "test") else value for name, value in plain.items()}
    if not all(isinstance(value, str | int | float | list | tuple) for value in plain.values()):
        return None
    return {"source": located(source), **plain} if isinstance(source, str | Path) else plain


def located(source: Any) -> Any:
    """Return a path as an absolute string; anything else unchanged."""
    resolved = resolve(source)
    return str(resolved.resolve()) if isinstance(resolved, Path) else resolved


def open_split(
    source: Any,
    *,
    preparation: Preparation,
    task: Task,
    classes: tuple[str, ...],
    target: str | tuple[str, ...] | None = None,
    seed: int = 0,
) -> Split:
    """Open the test part of a source, or all its rows if it has none, with the preparation of an earlier run.

    Args:
        source: As for `open_data`.
        preparation: Preparation of the earlier run.
        task: Its task.
        classes: Its class names.
        target: Target columns of a table; by default those of the earlier run.
        seed: Seed of toy data.

    Returns:
        Prepared examples with labels that index `classes`.

    Raises:
        Misuse: If the source has other columns, shapes or classes than the run was trained on.
    """
    if isinstance(source, Data):
        if source.classes != tuple(classes):
            raise Misuse(f"Data '{source.name}' has the classes {listed(source.classes)}: expected {listed(classes)}")
        if source.preparation == preparation:
            return source.test
        return replace(source.test, prepared=open_inputs(source, preparation=preparation))
    if target is None and isinstance(preparation, TablePreparation):
        target = (preparation.targets or None) if format_of(resolve(source)).takes_target else None
    _, raw = load_source(source, LoadOptions(target, seed, **resized_for(preparation)))
    parts, prepared = raw.test_parts(), prepare_parts(raw, preparation)
    ys = torch.cat([raw.encode(part, task, classes) for part in parts])
    x = prepared if isinstance(prepared, Streamed) else join_inputs([part.inputs for part in parts])
    return Split(x, ys, prepared, keys=join_keys([part.keys for part in parts]))


def open_inputs(source: Any, *, preparation: Preparation, seed: int = 0, adapt: bool = False) -> Tensor:
    """Open inputs without targets, with the preparation of an earlier run.

    Args:
        source: As for `open_data`; also a table without its target, an .npz without y, a flat folder of images (in the
            order of their paths), a list of images, or a tensor or array.
        preparation: Preparation of the earlier run.
        seed: Seed of toy data.
        adapt: Whether images of other sizes and colours are resized and recoloured to fit, see `adaptation`.

    Returns:
        Prepared inputs (N, ...) of the test part, or of all rows if there is none.
    """
    return open_keyed_inputs(source, preparation=preparation, seed=seed, adapt=adapt)[0]


def open_keyed_inputs(
    source: Any, *, preparation: Preparation, seed: int = 0, adapt: bool = False, in_memory: bool | None = None
) -> tuple[Tensor, Keys]:
    """Open inputs as `open_inputs` does, and return them with the names of their rows.

    Args:
        source: As for `open_inputs`.
        preparation: Preparation of the earlier run.
        seed: Seed of toy data.
        adapt: As for `open_inputs`.
        in_memory: As for `open_data`: False reads and prepares rows when they are needed, None those of large files.

    Returns:
        Prepared inputs (N, ...) and their keys.
    """
    first: Any = before_features(preparation)
    adapt = adapt and isinstance(first, ImagePreparation)
    if isinstance(source, Data):
        split, own = source.test, source.preparation
        if adapt and isinstance(own, ImagePreparation) and own.shape != first.shape:
            pixels = own.pixels_of(split.prepared).transpose(0, 3, 1, 2)  # in 256 levels, as they will be rounded
            return prepare_inputs(pixels, 255.0, preparation, adapt), split.keys
        if own == preparation:
            return split.prepared, split.keys
        source = split.x
    if isinstance(source, FileRows):
        return prepare_inputs(source, None, preparation), {}
    if is_array(source) and not adapt and in_memory is not False:  # fast for one input: no table of formats
        return prepare_inputs(checked_part(source, None, "x").inputs, None, preparation), {}
    size = {"size": first.shape[1:]} if adapt else resized_for(preparation)
    _, raw = load_source(source, LoadOptions(None, seed, labelled=False, in_memory=in_memory, **size))
    return prepare_parts(raw, preparation, adapt), join_keys([part.keys for part in raw.test_parts()])


def resized_for(preparation: Preparation) -> dict[str, Any]:
    """Return the load options that resize image files as in training, or refuse other sizes."""
    first = before_features(preparation)
    if isinstance(first, ImagePreparation) and first.resized:
        return {"size": first.shape[1:]}
    return {"mixed_sizes": False}


def join_inputs(parts: list[Any]) -> Any:
    """Concatenate the rows of arrays or tables."""
    if is_table(parts[0]) and len(parts) > 1:
        import pandas as pd

        return pd.concat(parts)
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def encode_targets(raw: RawData, task: Task | None) -> tuple[Task, tuple[str, ...], dict[str, Tensor]]:
    """Return the task, the classes (empty for regression), and the targets of every part as tensors."""
    base = raw.parts.get("train") or raw.parts.get("all")
    if base is not None and len(base) < FEWEST_ROWS:
        raise Misuse(f"{len(base)} rows to train on: expected at least {FEWEST_ROWS}, one for each split")
    targets = {name: raw.checked_targets(part) for name, part in raw.parts.items()}
    first = next(iter(targets.values()))
    data_task: Task | None = task or raw.task
    if data_task is None:
        data_task = infer_task(first, image_peak(raw) is not None, raw.target_name)
        if data_task == "classification" and first.dtype.kind in "OU":
            refuse_local_numbers(raw.target_name, tuple(map(str, label_names(first, None)[0])))
            refuse_free_text(first, raw.target_name)
    classes = class_list(list(targets.values()), raw.class_names) if data_task == "classification" else ()
    ys = {name: raw.encode(part, data_task, classes) for name, part in raw.parts.items()}
    if data_task == "multi-label" and not all(((y == 0) | (y == 1)).all() for y in ys.values()):
        got = f"task='multi-label' and {raw.target_name} holds other values than 0 and 1"
        raise Misuse(f"{got}: expected zeros and ones")
    if data_task == "regression":
        refuse_constant(torch.cat(list(ys.values())), raw.target_name)
    return data_task, classes, ys


def prepare_parts(raw: RawData, preparation: Preparation, adapt: bool = False) -> Any:
    """Prepare inputs (N, ...) to evaluate on as in an earlier run; those of a dataset are prepared when they are read.

    With `adapt`, images of other sizes and colours are made to fit.
    """
    inputs = [part.inputs for part in raw.test_parts()]
    prepare = partial(prepare_inputs, peak=raw.peak, preparation=preparation, adapt=adapt)
    if isinstance(inputs[0], FileRows):
        return prepare(joined_rows(inputs))
    if isinstance(inputs[0], Streamed) and not adapt:
        return inputs[0].prepared(preparation, prepare)
    if isinstance(inputs[0], FileTable) and not adapt:
        return streamed_rows(inputs[0]).prepared(preparation)
    return torch.cat([prepare(x) for x in inputs])


def prepare_inputs(inputs: Any, peak: float | None, preparation: Preparation, adapt: bool = False) -> Tensor:
    """Prepare inputs (N, ...) as in an earlier run; rows in files are prepared when they are read.

    Images whose white is known to differ from training's (uint8 in a file, floats in 0..1) are rescaled. With `adapt`,
    images of other sizes and colours are made to fit.
    """
    first = before_features(preparation)
    apply: Callable[..., Tensor] = preparation.apply
    if adapt and isinstance(first, ImagePreparation):
        apply = adaptation(inputs, peak, preparation)
    elif isinstance(first, ImagePreparation):
        if is_table(inputs):
            raise Misuse(f"a table for a run trained on images: expected images of shape {first.shape}")
        apply = partial(preparation.apply, peak=first.white_of(inputs, peak))  # type: ignore[call-arg]
    if isinstance(inputs, FileRows):
        return streamed_rows(inputs).prepared(preparation, apply)  # type: ignore[return-value]
    return apply(inputs)


def visible_inputs(split: Split, preparation: Preparation, rows: Any) -> tuple[Preparation, Tensor]:
    """Return the preparation of inputs that a reader can see (images, not features) and such inputs of `rows`."""
    first = before_features(preparation)
    if first is preparation:
        return preparation, split.prepared[rows]
    return first, prepare_inputs(split.x.iloc[rows] if is_table(split.x) else split.x[rows], None, first)
