"""Data sets: opening a source as three splits, prepared by the kind of its inputs and by the training split."""

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from murmuration.data.arrays import are_pairs, is_pair
from murmuration.data.column_roles import refuse_odd_cells
from murmuration.data.columns import in_plain_form, is_numeric, local_form
from murmuration.data.file_rows import FileRows
from murmuration.data.formats import load_source, resolve
from murmuration.data.local_forms import FORMS, MIN_NUMBERS, refuse_ambiguous
from murmuration.data.options import DataOptions, Inputs, Prepare, Task
from murmuration.data.parquet import FileTable, prepared_rows
from murmuration.data.preparation import (
    FEATURES_AT_ONCE,
    FeaturePreparation,
    ImagePreparation,
    Preparation,
    SeveralPreparation,
    TablePreparation,
    TokenPreparation,
    fit_array,
    fit_images,
    fit_table,
    image_shape,
    pixel_peak,
)
from murmuration.data.raw import Keys, LoadOptions, RawData, RawPart, SeveralInputs, is_table, take, take_keys
from murmuration.data.splits import FEWEST_ROWS, long_tail_rows, split_rows
from murmuration.data.streamed import Streamed, are_parts, as_given, is_streamable, streamed_rows
from murmuration.data.table_traps import note_traps
from murmuration.data.tables import role_values
from murmuration.data.targets import (
    class_list,
    infer_task,
    label_names,
    refuse_constant,
    refuse_free_text,
    refuse_many_classes,
)
from murmuration.system.errors import Misuse, listed, notes_once, unknown, warn
from murmuration.system.progress import html_table
from murmuration.system.settings import declared_by

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


class FeatureNetwork(Protocol):
    """A fixed network whose features replace the inputs: see `models/features.py`."""

    @property
    def net(self) -> str:
        """Its name."""

    def open(self, inputs: Preparation) -> Any:
        """Load the network.

        Args:
            inputs: Preparation of the inputs that the network takes.

        Returns:
            A map from prepared inputs to features, with the attribute `record` that is stored in run.json.
        """

    def embed(self, features: Any, blocks: Iterable[tuple[str, Tensor]], total: int) -> Mapping[str, Tensor]:
        """Compute the features of all examples.

        Args:
            features: The map that `open` returned.
            blocks: Names of parts with blocks of their prepared inputs.
            total: Number of examples in all blocks, for progress.

        Returns:
            The features (N, D) of every part.
        """


@notes_once
@declared_by(DataOptions, "options")
def open_data(source: Any = "digits", *, features: FeatureNetwork | None = None, **options: Any) -> Data:
    """Open a source, split it into train, validation and test, and prepare it by statistics of the training split.

    If the source has a test part, it is kept and 10 % of the other rows validate; otherwise the split is 70/10/20 %.

    Args:
        source: A built-in name, a file, a folder, `hf:NAME`, a pair (x, y), a torch Dataset or DataLoader, (train,
            val[, test]) of these, or a pandas table; see `FORMATS`. A Data is returned unchanged.
        features: A pretrained network applied before the preparation; see `mm.embed`.
        **options: As declared by `DataOptions`.

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
        if surplus := sorted(name for name, value in options.items() if value is not None):
            raise Misuse(f"{listed(surplus)}= with a Data, which is split and prepared: give them to open_data")
        return source
    for name in options.keys() - DataOptions.__dataclass_fields__:
        raise unknown("keyword of open_data", name, DataOptions.__dataclass_fields__)
    reading = DataOptions(**options)
    task, seed, inputs, val, test = reading.task, reading.seed, reading.inputs, reading.val, reading.test
    roles = {"groups": reading.groups, "time": reading.time, "weight": reading.weight}
    if (isinstance(test, str) and test == NO_TEST) or (are_parts(source) and len(source) == 2 and test is None):
        test = 0.0  # the source is (train, val)
    size = (reading.size, reading.size) if isinstance(reading.size, int) else reading.size
    shared: Any = {name: getattr(reading, name) for name in ("drop", "keep", "text", "strict", "in_memory")}
    loading = LoadOptions(reading.target, seed, size=size, roles=roles, **shared)
    name, raw = load_source(source, loading)
    holdouts: dict[str, Any] = {"val": val, "test": test}
    for part in [part for part, value in holdouts.items() if is_other_data(value)]:
        raw = with_part(raw, part, holdouts.pop(part), source, replace(loading, roles={}), reading.weight)
    refuse_unused_size(size if features is None else None, raw, name)
    raw = in_plain_columns(raw)
    data_task, classes, targets = encode_targets(raw, task)
    strata = {part: y.numpy() if data_task == "classification" else np.zeros(len(y)) for part, y in targets.items()}
    extra = raw.parts["all" if "all" in raw.parts else "train"].extra if set(raw.parts) & {"all", "train"} else {}
    rows = split_rows(strata, seed, **holdouts, groups=extra.get("groups"), time=extra.get("time"))
    train_part, train_rows = rows["train"]
    digest = raw.fingerprint()
    if (imbalance := reading.imbalance) is not None:
        if data_task != "classification":
            raise Misuse(f"imbalance={imbalance:g} for data of {data_task}: expected a classification")
        train_rows = train_rows[long_tail_rows(strata[train_part][train_rows], len(classes), imbalance, seed)]
        rows = {**rows, "train": (train_part, train_rows)}
        name = f"{name}, imbalance {imbalance:g}"
        digest = hashlib.sha256(f"{digest} {imbalance!r} {seed}".encode()).hexdigest()
    train_inputs = take(raw.parts[train_part].inputs, train_rows)
    prepare = reading.prepare or ("none" if isinstance(train_inputs, Streamed) else "standardise")
    preparation, embedded = fit_features(raw, features, rows["train"], prepare, name, inputs)
    note_mistakes(raw, preparation, classes, targets, rows)
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

    arguments = {**vars(reading), "prepare": prepare, "test": test, "size": size, "strict": reading.strict or None}
    arguments |= {name: list(getattr(reading, name)) or None for name in ("drop", "keep", "text")}
    arguments["features"] = getattr(features, "net", None)
    splits, reopened = (split("train"), split("val"), split("test")), reopen_arguments(source, arguments)
    return Data(name, data_task, *splits, classes, preparation, digest, preparation.names, reopened)


def refuse_unused_size(size: tuple[int, ...] | None, raw: RawData, name: str) -> None:
    """Refuse a size of images for data that are no image files."""
    if size is not None and not raw.resized:
        sides = "x".join(map(str, size))
        raise Misuse(f"size={sides} is of image files, and {name} has none: leave it out")


def note_mistakes(
    raw: RawData,
    preparation: Preparation,
    classes: tuple[str, ...],
    targets: dict[str, torch.Tensor],
    rows: Mapping[str, tuple[str, np.ndarray]],
) -> None:
    """Warn of classes without training examples, and of columns and rows of a table that look like mistakes."""
    note_untrained_classes(classes, targets, rows)
    part, indices = rows["train"]
    if isinstance(preparation, TablePreparation) and not isinstance(raw.parts[part].inputs, FileTable):
        tables = {name: take(raw.parts[part].inputs, selected) for name, (part, selected) in rows.items()}
        note_traps(tables, targets[part].numpy()[indices], [column.name for column in preparation.columns])


def note_untrained_classes(
    classes: tuple[str, ...], targets: dict[str, torch.Tensor], rows: Mapping[str, tuple[str, np.ndarray]]
) -> None:
    """Warn of classes that have examples in other splits and none to train on."""
    if not classes:
        return
    counts = {
        name: targets[part][torch.from_numpy(i)].bincount(minlength=len(classes)) for name, (part, i) in rows.items()
    }
    held_out = sum(counts.values()) - counts["train"]
    if lacking := [classes[k] for k in range(len(classes)) if held_out[k] and not counts["train"][k]]:
        names = listed([f"'{name}'" for name in lacking], most=3)
        warn(f"no training example has the class {names}: members cannot learn it; move examples, or leave it out")


def in_plain_columns(raw: RawData) -> RawData:
    """Return the data with plain numbers and dates in the text columns that are all written in one local form.

    All rows of the training file decide about the form; a column of other files is read in the same.
    """
    base = raw.parts.get("all", next(iter(raw.parts.values()))).inputs
    if not is_table(base):
        return raw
    checked = base.texts if isinstance(base, FileTable) else base.columns
    for name in checked:
        if name not in (*raw.choices.text, *raw.choices.keep):
            refuse_odd_cells(base[name])
    if isinstance(base, FileTable):
        for name in base.texts:
            if name not in raw.choices.text and local_form(base[name], MIN_NUMBERS) is not None:
                problem = f"column '{name}' holds numbers or dates as texts, and rows are read when they are needed"
                raise Misuse(f"{problem}: write in_memory=True, or plain numbers and dates into the file")
        return raw
    columns = {name: base[name] for name in base.columns if name not in raw.choices.text}
    forms = {name: form for name, values in columns.items() if (form := local_form(values, MIN_NUMBERS)) is not None}
    parts = {}
    for part_name, part in raw.parts.items():
        texts = [name for name in forms if name in part.inputs.columns and not is_numeric(part.inputs[name])]
        plain = {name: in_plain_form(part.inputs[name], forms[name]) for name in texts}
        parts[part_name] = replace(part, inputs=part.inputs.assign(**plain)) if plain else part
    forms = {**raw.choices.forms, **forms}
    for form in dict.fromkeys(forms.values()):
        names = [name for name in (*columns, *raw.target_names) if forms.get(name) == form]
        which = f"{'columns' if len(names) > 1 else 'column'} {listed(names)}"
        warn(f"each cell of {which} is read as {FORMS[form].example}, in new rows too", f"form {form}")
    return replace(raw, parts=parts, choices=replace(raw.choices, forms=forms))


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
    return x[:] if split == "val" and (not x.of_files or 4 * math.prod(x.shape) <= VAL_BYTES) else x


def open_training_data(source: Any, **options: Any) -> Data:
    """Open the data that `fit` trains on: like `open_data`, but without a test split for objects in memory.

    Args:
        source: As for `open_data`.
        **options: As for `open_data`; for an object in memory, `val` is 15 % of the rows by default, and `test` none.

    Returns:
        The three splits.

    Raises:
        Misuse: As `open_data`.
    """
    if not isinstance(source, Data | str | Path) and not are_parts(source) and not are_pairs(source):
        own = {name: value for name, value in options.items() if value is not None}
        options |= {"val": VAL_SHARE, "test": 0.0} | own
    return open_data(source, **options)


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
        warn(f"{inputs.source.name} draws random numbers for validation examples too: {write}")


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
            refuse_ambiguous(raw.target_name, label_names(first, None)[0])
            refuse_free_text(first, raw.target_name)
    if task == "classification" and raw.class_names is None:
        refuse_many_classes(first, raw.target_name)
    classes = class_list(list(targets.values()), raw.class_names) if data_task == "classification" else ()
    ys = {name: raw.encode(part, data_task, classes) for name, part in raw.parts.items()}
    if data_task == "multi-label" and not all(((y == 0) | (y == 1)).all() for y in ys.values()):
        problem = f"task='multi-label' and {raw.target_name} holds other values than 0 and 1"
        raise Misuse(f"{problem}: expected zeros and ones")
    if data_task == "regression":
        refuse_constant(torch.cat(list(ys.values())), raw.target_name)
    return data_task, classes, ys


# The kind of the inputs (a table, images, numbers, tokens, several of these) and its fitted preparation


def image_peak(raw: RawData, inputs: Inputs | None = None) -> float | None:
    """Return the value of a white pixel if the source holds images, else None."""
    read = [part.inputs.first for part in raw.parts.values() if isinstance(part.inputs, Streamed)]
    if read:  # one example each
        return 255.0 if isinstance(read[0], np.ndarray) and read[0].ndim == 4 else None
    if inputs in ("tokens", "numbers") or any(isinstance(part.inputs, SeveralInputs) for part in raw.parts.values()):
        return None
    if raw.peak is not None or any(is_table(part.inputs) for part in raw.parts.values()):
        return raw.peak
    peaks: list[Any] = [pixel_peak(part.inputs, asked=inputs == "images") for part in raw.parts.values() if len(part)]
    return None if None in peaks else max(peaks)


def fit_preparation(raw: RawData, x: Any, prepare: Prepare, inputs: Inputs | None) -> Preparation:
    """Fit the preparation of the training inputs: a table, images, numbers, tokens, or several of these."""
    if isinstance(x, Streamed):
        if prepare != "none":
            problem = f"prepare='{prepare}' with a Dataset or DataLoader, whose inputs are taken as they are"
            raise Misuse(f"{problem}: do it in the data set, or write in_memory=True")
        return as_given(x, inputs)
    if isinstance(x, SeveralInputs):

        def fit_one(values: np.ndarray) -> Any:
            tokens = values.dtype.kind in "iu" and (values.dtype != np.uint8 or values.ndim <= 2)  # not bytes of images
            kind = None if inputs == "tokens" and not tokens else inputs
            return fit_preparation(replace(raw, parts={"all": RawPart(values)}), values, prepare, kind)

        return SeveralPreparation(tuple((name, fit_one(v)) for name, v in x.arrays.items()), x.positional)
    if is_table(x):
        if inputs == "tokens" or prepare == "none":
            raise Misuse("a table with inputs='tokens' or prepare='none': give the columns as an array instead")
        way = "standardise" if prepare == "unit" else prepare
        return fit_table(x, raw.target_names, raw.ignored, way, raw.choices)
    if inputs == "tokens" and x.dtype.kind not in "iu":
        raise Misuse(f"inputs='tokens' with x of type {x.dtype}: expected whole numbers, such as int64")
    if inputs == "tokens" or (prepare == "none" and x.dtype.kind in "iub" and image_peak(raw, inputs) is None):
        return TokenPreparation(x.shape[1:])
    if (peak := image_peak(raw, inputs)) is not None:
        return fit_images(x, peak, prepare, raw.resized)
    if inputs == "images":
        raise Misuse(f"inputs='images' with x of shape {x.shape}: expected pixels in 0..1 or 0..255, (N, H, W[, C])")
    if prepare == "unit":
        raise Misuse("prepare='unit' is for images: write 'standardise' or 'none'")
    if x.ndim == 4 and image_shape(x) != x.shape[1:] and inputs is None:
        problem = f"x of shape {x.shape} has colours last and values outside 0..255"
        raise Misuse(f"{problem}: expected pixels, or channels first (N, C, H, W)")
    return fit_array(x, raw.feature_names, "none" if raw.as_is and prepare == "standardise" else prepare)


def fit_features(
    raw: RawData,
    features: FeatureNetwork | None,
    training: tuple[str, np.ndarray],
    prepare: Prepare,
    name: str,
    inputs: Inputs | None,
) -> tuple[Preparation, dict[str, Tensor]]:
    """Fit the preparation that computes features, and return it with the scaled features (N, D) of every part.

    `training` is the part and rows that train. Without a feature network, fit the preparation of the inputs.
    """
    part, rows = training
    if features is None:
        return fit_preparation(raw, take(raw.parts[part].inputs, rows), prepare, inputs), {}
    if prepare == "unit":
        raise Misuse("prepare='unit' is for images, and members take features: write 'standardise' or 'none'")
    first = network_inputs(raw, name, inputs)
    network = features.open(first)
    starts = ((part, at) for part in raw.parts for at in range(0, len(raw.parts[part]), FEATURES_AT_ONCE))
    blocks = ((part, first.apply(raw.parts[part].inputs[at : at + FEATURES_AT_ONCE])) for part, at in starts)
    embedded = features.embed(network, blocks, sum(map(len, raw.parts.values())))
    scale = fit_array(embedded[part].numpy()[rows], (), prepare)
    scaled = {name: scale.apply(x) for name, x in embedded.items()}
    return FeaturePreparation(first, scale, network.record, network), scaled


def network_inputs(raw: RawData, name: str, inputs: Inputs | None = None) -> ImagePreparation | TokenPreparation:
    """Return the preparation of the inputs of a feature network: pixels from 0 to 1, or tokens as they are."""
    first: Any = next(iter(raw.parts.values())).inputs
    if isinstance(first, Streamed):
        raise Misuse(f"features of a {name}, which is read as it is needed: write in_memory=True")
    if inputs == "tokens":
        return TokenPreparation(first.shape[1:])
    peak = None if is_table(first) or isinstance(first, SeveralInputs) else image_peak(raw, inputs)
    if peak is None:
        kind = "a table" if is_table(first) else f"examples of shape {getattr(first, 'shape', (0,))[1:]}"
        raise Misuse(f"{name} holds {kind}, and features are those of images: expected images, of any size")
    return fit_images(first[:1], peak, "unit", raw.resized)
