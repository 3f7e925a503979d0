"""Preparation: the map from raw inputs to the tensors that a network takes, stored with every run.

Every preparation is a frozen record with `apply(raw) -> (N, ...) float32`, `names` of the prepared columns where they
have names, and `to_json`. Its statistics are those of the training split.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, get_args, get_type_hints

import numpy as np
import torch
from torch import Tensor

from murmuration.data.column_roles import MOST_CATEGORIES, is_left_out
from murmuration.data.columns import column_values, find_column, quantity_of, row_number, to_numbers, to_texts
from murmuration.data.file_rows import FileRows, channel_extremes, extremes, pieces
from murmuration.data.local_forms import FORMS, is_number, refuse_ambiguous
from murmuration.data.numpy_arrays import as_array
from murmuration.data.options import Prepare
from murmuration.data.raw import ColumnChoices, SeveralInputs, is_table, refuse_nonfinite, require_shape, several_inputs
from murmuration.data.scaling import WAYS, Scaling, Way, fit_scaling, mean_std
from murmuration.data.targets import LARGEST, sort_names
from murmuration.data.words import fit_words, word_weights
from murmuration.system.errors import Failure, Misuse, did_you_mean, listed, unknown, warn
from murmuration.system.records import fits, plain_json

COLOURS = (1, 3, 4)  # numbers of channels by which a last axis is recognised as colour
FEATURES_AT_ONCE = 128  # inputs of a feature network that are prepared at a time
COMMON, ROWS_PER_COMMON = 5, 100  # a category needs 5 rows, in small tables one in 100 of all rows


class JsonRecord:
    """A dataclass whose JSON is the `kind` of its class, and its fields but those that are not compared."""

    kinds: ClassVar[dict[str, Any]] = {}  # of all records
    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind, cls.kinds[kind] = kind, cls

    def to_json(self: Any) -> dict[str, Any]:
        return {"kind": self.kind, **{f.name: plain_json(getattr(self, f.name)) for f in fields(self) if f.compare}}


@dataclass(frozen=True)
class ImagePreparation(JsonRecord, kind="image"):
    """Images -> (N, C, H, W): (pixel - mean) / std for each channel, in the units of the raw pixels."""

    shape: tuple[int, int, int]  # (C, H, W)
    peak: float  # the value of a white pixel
    mean: tuple[float, ...]  # (C,)
    std: tuple[float, ...]  # (C,)
    integers: bool = True  # whether training's pixels were whole numbers
    resized: bool = False  # whether image files were resized and cropped to the shape
    names: ClassVar[tuple[str, ...]] = ()  # pixels have none

    def apply(self, raw: Any, peak: float | None = None) -> Tensor:
        """Prepare images (N, H, W), (N, H, W, C) or (N, C, H, W) as (N, C, H, W).

        `peak` is the value of a white pixel in `raw`, if it is known to differ from training's. Grey images are
        repeated over the channels of a network trained on colour.
        """
        planes = to_planes(checked_array(raw, "x"), self.shape)
        ratio = 1.0 if peak is None else peak / self.peak
        mean, std = (tuple(value * ratio for value in values) for values in (self.mean, self.std))
        return torch.from_numpy(Scaling(mean, std).apply(planes))

    def white_of(self, values: Any, stated: float | None) -> float | None:
        """Return the value of a white pixel in later images if it differs from training's, else None.

        `stated` is the value by the format of the file. Otherwise the type decides: bytes for a run trained on floats
        in 0..1 have white at 255, floats in 0..1 for a run trained on integers have it at 1. Ambiguous images are
        refused.
        """
        if values.dtype.kind not in "f" or not values.size:
            return stated if stated is not None or self.integers or self.peak != 1 else 255.0
        high = extremes(values)[1]
        if not self.integers:
            if self.peak == 1 and high > 2:
                raise Misuse(f"images with values up to {high:g}, and training's lie in 0..1: divide them by 255")
            return None
        if self.peak == 1 or high > 1 or high == 0:
            return stated if high > 1 else None
        if all((piece == np.round(piece)).all() for piece in pieces(values)):
            trained = f"a run trained on pixels in 0..{self.peak:g}"
            raise Misuse(f"images of zeros and ones for {trained}, which could mean either: give them as uint8")
        return 1.0

    def pixels_of(self, x: Tensor) -> np.ndarray:
        """Convert prepared images (N, C, H, W) to pixels (N, H, W, C) uint8, black 0 and white 255."""
        mean, std = (torch.tensor(v, dtype=torch.float64).view(1, -1, 1, 1) for v in (self.mean, self.std))
        pixels = (x.detach().cpu().double() * std + mean) * (255 / self.peak)
        return pixels.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()


@dataclass(frozen=True)
class ArrayPreparation(JsonRecord, kind="array"):
    """Arrays (N, D) or (N, C, ...) -> the same shape: (value - mean) / std for each column or channel.

    Robust scaling has medians and interquartile ranges in their place, and a `clip`; see `Scaling`.
    """

    shape: tuple[int, ...]  # of one example
    mean: tuple[float, ...]  # (D,) or (C,)
    std: tuple[float, ...]
    names: tuple[str, ...] = ()  # of the columns, where they have some
    clip: float | None = None
    quantiles: tuple[tuple[float, ...], ...] = ()  # (D, Q)
    low: tuple[float, ...] = ()  # (D,) or (C,) of the training rows; empty: not known, or inputs stay as they are
    high: tuple[float, ...] = ()

    def apply(self, raw: Any) -> Tensor:
        """Prepare an array (N, D) or (N, C, ...), or a table that has the named columns."""
        values = checked_array(self.columns_of(raw) if is_table(raw) else raw, "x")
        values = values[:, None] if values.ndim == 1 and self.shape == (1,) else values
        require_shape(values, self.shape)
        return torch.from_numpy(self.scaling.apply(values))

    def __post_init__(self) -> None:
        optional = [len(values) for values in (self.quantiles, self.low, self.high) if values]
        counts = {len(self.mean), len(self.std), *optional, *self.shape[:1]}
        if len(counts) > 1:
            raise Failure(f"the preparation of arrays {self.shape} is damaged: it has {len(self.mean)} means")

    @cached_property
    def scaling(self) -> Scaling:
        return Scaling(self.mean, self.std, self.clip, self.quantiles)

    def columns_of(self, table: Any) -> np.ndarray:
        """Return the named columns (N, D) of a table."""
        if not self.names or any(name not in table.columns for name in self.names):
            columns = listed(map(str, table.columns))
            expected = listed(self.names) or f"an array of shape {self.shape} an example"
            raise Misuse(f"a table with the columns {columns} for a run trained on an array: expected {expected}")
        values = [find_column(table, name) for name in self.names]
        for column in values:
            if (quantity := quantity_of(column)) in ("dates", "durations"):
                raise Misuse(f"column '{column.name}' holds {quantity}: expected numbers, as in training")
        return np.stack([column.to_numpy(dtype=np.float64) for column in values], axis=1)


@dataclass(frozen=True)
class TokenPreparation(JsonRecord, kind="tokens"):
    """Whole numbers (N, ...) -> the same as int64: indices for an embedding, never scaled."""

    shape: tuple[int, ...]  # of one example
    names: ClassVar[tuple[str, ...]] = ()

    def apply(self, raw: Any) -> Tensor:
        """Return the indices (N, ...) int64."""
        values = checked_array(raw, "x")
        if values.dtype.kind not in "iu":
            problem = f"x has type {values.dtype} for a run trained on tokens"
            raise Misuse(f"{problem}: expected whole numbers, such as int64")
        require_shape(values, self.shape)
        return torch.from_numpy(values.astype(np.int64))


@dataclass(frozen=True)
class SeveralPreparation(JsonRecord, kind="several"):
    """Several inputs -> (N, D): each prepared by its own rule and flattened, side by side in one tensor.

    `unpack` gives them back to a network as they were. Tokens are exact in single precision up to 2^24.
    """

    parts: tuple[tuple[str, ImagePreparation | ArrayPreparation | TokenPreparation], ...]
    positional: bool
    names: ClassVar[tuple[str, ...]] = ()

    def apply(self, raw: Any) -> Tensor:
        """Prepare a tuple or dict of arrays as (N, D) float32."""
        names = [name for name, _ in self.parts]
        expected = f"expected a {'tuple' if self.positional else 'dict'} of arrays {listed(names)}"
        arrays = raw.arrays if isinstance(raw, SeveralInputs) else raw
        if not isinstance(arrays, Mapping | tuple):
            raise Misuse(f"inputs of type {type(raw).__name__} for a run trained on several: {expected}")
        input_names = list(map(str, arrays if isinstance(arrays, Mapping) else range(len(arrays))))
        missing, surplus = ([n for n in a if n not in b] for a, b in ((names, input_names), (input_names, names)))
        inputs = several_inputs(raw)
        if missing or surplus or inputs is None:
            parts = [f"without {listed(missing)}"] * bool(missing) + [f"with {listed(surplus)}"] * bool(surplus)
            raise Misuse(f"inputs {' and '.join(parts)}: {expected}, as in training")
        columns = [preparation.apply(inputs.arrays[name]).flatten(1) for name, preparation in self.parts]
        if any(not column.is_floating_point() and column.numel() and column.abs().max() >= 2**24 for column in columns):
            raise Misuse("tokens of 16,777,216 or more among several inputs: expected smaller indices")
        return torch.cat([column.float() for column in columns], dim=1)

    def unpack(self, x: Tensor) -> dict[str, Tensor]:
        """Split prepared inputs (N, D) into the inputs by name, each (N, ...) in its shape and type."""
        shapes: list[tuple[int, ...]] = [preparation.shape for _, preparation in self.parts]
        columns = x.split([math.prod(shape) for shape in shapes], dim=1)
        return {
            name: (column.long() if isinstance(preparation, TokenPreparation) else column).reshape(len(x), *shape)
            for (name, preparation), column, shape in zip(self.parts, columns, shapes, strict=True)
        }


@dataclass(frozen=True)
class NumericColumn(JsonRecord, kind="numeric"):
    """A numeric column: missing values are replaced by the median, then all are scaled.

    If training had missing values, a second column is 1 for missing and 0 for present. `mean` and `std` are the centre
    and the scale, `clip` and `quantiles` belong to other ways than standardising; see `Scaling`.
    """

    name: str
    median: float
    mean: float
    std: float
    flags_missing: bool
    clip: float | None = None
    quantiles: tuple[float, ...] = ()
    quantity: str | None = None  # numbers, dates or durations; None: not known
    form: str | None = None  # of `FORMS`, in which training wrote it; None: plain
    low: float | None = None  # of the training rows; None: not known
    high: float | None = None

    @cached_property
    def scaling(self) -> Scaling:
        return Scaling((self.mean,), (self.std,), self.clip, (self.quantiles,) if self.quantiles else ())

    @property
    def prepared_names(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} missing") if self.flags_missing else (self.name,)

    @property
    def expected(self) -> str:
        """How training wrote a cell, for refusals."""
        example = FORMS[self.form].example if self.form is not None else "a date such as 2024-01-31"
        return f"{example}, as in training" if self.form is not None or self.quantity == "dates" else ""

    def require_quantity(self, values: Any) -> None:
        """Refuse a pandas column of dates for one of numbers, and the other way round."""
        quantity = quantity_of(values)
        first = [cell for cell in values.dropna().iloc[:1] if isinstance(cell, str) and not is_number(cell)]
        if self.quantity == "dates" and first:  # texts, which `to_numbers` refuses in another form
            return
        if None not in (quantity, self.quantity) and quantity != self.quantity:
            raise Misuse(f"column '{self.name}' holds {quantity}, and training had {self.quantity}: expected those")

    def apply(self, values: Any) -> np.ndarray:
        """Prepare one pandas column as (N, 1) or (N, 2) float64."""
        self.require_quantity(values)
        numbers = to_numbers(values, self.form, self.expected)
        missing = np.isnan(numbers)
        with np.errstate(over="ignore"):
            scaled = self.scaling.exact(np.where(missing, self.median, numbers)[:, None])
        if (beyond := np.abs(scaled[:, 0]) > LARGEST).any():
            row, value = row_number(values, int(beyond.argmax())), numbers[beyond.argmax()]
            raise Misuse(f"column '{self.name}' is {value:g} in row {row}: expected numbers like those of training")
        return np.concatenate([scaled, missing[:, None]], axis=1) if self.flags_missing else scaled


BOOLEANS = {"1": "True", "1.0": "True", "0": "False", "0.0": "False"}  # other ways to write them
MIN_UNSEEN = 10  # values, all unknown, that raise a warning


@dataclass(frozen=True)
class CategoricalColumn(JsonRecord, kind="categorical"):
    """A column of strings, booleans or categories: one-hot over the categories of training, plus one for all others.

    The others are categories that training had in too few rows (`fewest_rows`) or not at all. Missing values form a
    separate category if training had them, else they count among the others.
    """

    name: str
    categories: tuple[str, ...]
    has_missing: bool
    has_rare: bool = True  # whether training had some of the others; also: not known

    @property
    def prepared_names(self) -> tuple[str, ...]:
        missing = (f"{self.name} missing",) if self.has_missing else ()
        return (*(f"{self.name}={category}" for category in self.categories), *missing, f"{self.name} unseen")

    def apply(self, values: Any) -> np.ndarray:
        """Prepare one pandas column as one-hot columns (N, categories + 1) or (N, categories + 2)."""
        width = len(self.prepared_names)
        index: dict[str | None, int] = {category: i for i, category in enumerate(self.categories)}
        if set(self.categories) <= set(BOOLEANS.values()):
            index |= {text: index[spelling] for text, spelling in BOOLEANS.items() if spelling in index}
        if self.has_missing:
            index[None] = len(self.categories)
        texts = to_texts(values).tolist()
        columns = [index.get(text, width - 1) for text in texts]
        present = [text for text in texts if text is not None]
        if (
            self.categories and len(present) >= MIN_UNSEEN and not any(text in index for text in present)
        ):  # probably spelled otherwise
            unseen = f"none of {len(present):,} values of column '{self.name}' was in the training rows"
            known = listed(self.categories, most=5)
            warn(f"{unseen}: it has '{present[0]}', and training had {known}", about=f"unseen {self.name}")
        hot = np.zeros((len(values), width))
        hot[np.arange(len(values)), columns] = 1.0
        return hot


@dataclass(frozen=True)
class TextColumn(JsonRecord, kind="text"):
    """A column of free text: the weights of its most frequent words, see `word_weights`; 0 where missing."""

    name: str
    words: tuple[str, ...]
    weights: tuple[float, ...]

    @property
    def prepared_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}: {word}" for word in self.words)

    def apply(self, values: Any) -> np.ndarray:
        """Prepare one pandas column as (N, words) float64."""
        return word_weights(to_texts(values).tolist(), self.words, self.weights)


Column = NumericColumn | CategoricalColumn | TextColumn


@dataclass(frozen=True)
class TablePreparation(JsonRecord, kind="table"):
    """Tables -> (N, D): every column by its own rule, in the order of the training table."""

    columns: tuple[Column, ...]
    targets: tuple[str, ...] = ()  # the target columns, looked for in a later table
    ignored: tuple[str, ...] = ()  # columns that are not inputs: dropped ones, groups, times, weights
    target_forms: tuple[str | None, ...] = ()  # of `FORMS`, in which training wrote the targets; empty: not known

    @property
    def names(self) -> tuple[str, ...]:
        """Names (D,) of the prepared columns."""
        return tuple(name for column in self.columns for name in column.prepared_names)

    @property
    def forms_of_targets(self) -> dict[str, str | None]:
        return dict(zip(self.targets, self.target_forms, strict=False))

    def apply(self, raw: Any) -> Tensor:
        """Prepare a pandas table, whose columns may be in any order, as (N, D) float32."""
        names = [column.name for column in self.columns]
        if not is_table(raw):
            problem = f"inputs of shape {tuple(raw.shape)} for a run trained on a table"
            raise Misuse(f"{problem}: expected a table with the columns {listed(names)}")
        self.compare_columns([str(name) for name in raw.columns])
        parts = [column.apply(find_column(raw, column.name)).astype(np.float32) for column in self.columns]
        return torch.from_numpy(np.ascontiguousarray(np.concatenate(parts, axis=1)))

    def compare_columns(self, names: list[str]) -> None:
        """Refuse a table without one of the columns, and note columns that training did not have."""
        inputs = [column.name for column in self.columns]
        surplus = [name for name in names if name not in {*inputs, *self.targets, *self.ignored}]
        if missing := [name for name in inputs if name not in names]:
            folded = {name.casefold().strip(): name for name in surplus}
            spelt = {name: folded[key] for name in missing if (key := name.casefold().strip()) in folded}
            if len(spelt) > 1:
                renames = listed([f"'{other}' to '{name}'" for name, other in spelt.items()])
                raise Misuse(f"the table spells {len(spelt)} columns otherwise than training: rename {renames}")
            near = folded.get(missing[0].casefold().strip())
            hint = f"did you mean '{near}'?" if near is not None else did_you_mean(missing[0], surplus)
            hint = f"; {hint.strip()} Rename it" if hint else ""
            raise Misuse(f"no column '{missing[0]}' in the table: expected it; found {listed(names)}{hint}")
        if surplus:
            warn(f"the table has columns that training did not have, which are ignored: {listed(surplus)}", "surplus")

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns of a text file that are read as texts: the form and the categories of training decide, not a parser.

        Booleans are left to the parser, which knows their spellings.
        """
        booleans = set(BOOLEANS.values())
        targets = (name for name, form in self.forms_of_targets.items() if form is not None)
        return *targets, *(
            column.name
            for column in self.columns
            if (column.form is not None if isinstance(column, NumericColumn) else True)
            and not (isinstance(column, CategoricalColumn) and {*column.categories} <= booleans)
        )

    def imputed(self, raw: Any) -> np.ndarray:
        """Count the missing values (N,) of every row that prepared inputs do not show, as training had none there."""
        unflagged = [c for c in self.columns if isinstance(c, NumericColumn) and not c.flags_missing]
        counts = np.zeros(len(raw), dtype=np.int64)
        for column in unflagged:
            missing = find_column(raw, column.name).isna().to_numpy()
            if missing.any():
                counts += missing
                count = f"{int(missing.sum()):,} of {len(missing):,} values of column '{column.name}' are missing"
                change = f"its median {column.median:g} takes their place"
                warn(f"{count}, and none was in training: {change}", about=f"imputed {column.name}")
        return counts


def fit_table(
    table: Any,
    targets: tuple[str, ...] = (),
    ignored: tuple[str, ...] = (),
    way: Way = "standardise",
    choices: ColumnChoices | None = None,
) -> TablePreparation:
    """Return the preparation of a training table; statistics and categories are those of its rows."""
    choices = choices or ColumnChoices()
    if not len(table.columns):
        raise Misuse("the table has no feature columns: expected at least one besides the target")
    columns: list[Column] = []
    empty: list[str] = []
    left_out: list[str] = []
    for name in map(str, table.columns):
        values = table[name]  # read once: a table may be in a file
        if values.isna().all():
            warn(f"column '{name}' is missing in every training row: it is left out")
            empty.append(name)
        elif name in choices.text:
            columns.append(fit_text(values))
        elif name not in choices.keep and is_left_out(values):
            left_out.append(name)
        else:
            columns.append(fit_column(values, way, choices.forms.get(name)))
    if not columns and left_out:
        raise Misuse(f"all columns look like identifiers or free text ({listed(left_out)}): write keep={left_out[0]!r}")
    if not columns:
        raise Misuse(f"the columns {listed(empty)} are missing in every row: expected at least one with values")
    target_forms = tuple(choices.forms.get(name) for name in targets)
    return TablePreparation(tuple(columns), targets, (*ignored, *empty, *left_out), target_forms)


def fit_text(values: Any) -> TextColumn:
    """Fit the words of one pandas column of free text of the training table."""
    words, weights = fit_words(to_texts(values).tolist())
    if not words:
        name = str(values.name)
        raise Misuse(f"text='{name}': no word is in two of its {len(values):,} rows; write drop='{name}' instead")
    return TextColumn(str(values.name), words, weights)


def fit_column(values: Any, way: Way = "standardise", form: str | None = None) -> Column:
    """Fit the preparation of one pandas column of the training table, which was written in this local form."""
    array = column_values(values)
    name = str(values.name)
    if array.dtype.kind == "f":
        missing = np.isnan(array)
        median = float(np.median(array[~missing])) if not missing.all() else 0.0
        filled = np.where(missing, median, array) if way == "standardise" or missing.all() else array[~missing]
        scaling = fit_scaling(filled[:, None], way, name)
        (centre,), (scale,), quantiles = scaling.centre, scaling.scale, next(iter(scaling.quantiles), ())
        low, high = (float(end(array[~missing])) if not missing.all() else None for end in (np.min, np.max))
        about = bool(missing.any()), scaling.clip, quantiles, quantity_of(values), form
        return NumericColumn(name, median, centre, scale, *about, low, high)
    present = [text for text in array.tolist() if text is not None]
    categories = sort_names(present)
    refuse_ambiguous(f"column '{name}'", categories)
    if len(categories) > MOST_CATEGORIES:
        problem = f"column '{name}' has {len(categories)} distinct texts in {len(array)} rows"
        raise Misuse(f"{problem}: expected at most {MOST_CATEGORIES} categories; write drop='{name}', or group them")
    counts, fewest = Counter(present), fewest_rows(len(array))
    common = tuple(c for c in categories if counts[c] >= fewest)
    return CategoricalColumn(name, common, len(present) < len(array), len(common) < len(categories))


def fewest_rows(rows: int) -> int:
    """Return the number of training rows that a category needs to get its one-hot column.

    >>> [fewest_rows(rows) for rows in (100, 250, 10_000)]
    [1, 2, 5]
    """
    return max(1, min(COMMON, rows // ROWS_PER_COMMON))


@dataclass(frozen=True)
class FeaturePreparation(JsonRecord, kind="features"):
    """Inputs -> (N, D): features of a fixed network, then standardised.

    The network is part of the preparation, so it runs once per prediction, whatever the number of members.
    """

    inputs: ImagePreparation | ArrayPreparation | TablePreparation | TokenPreparation  # raw inputs -> the network's
    scale: ArrayPreparation  # features (N, D) -> those that members take
    network: dict[str, Any]  # its record in run.json
    features: Callable[[Tensor], Tensor] | None = field(default=None, compare=False, repr=False)  # (N, ...) -> (N, D)
    names: ClassVar[tuple[str, ...]] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one raw input."""
        return getattr(self.inputs, "shape", ())

    def apply(self, raw: Any, peak: float | None = None) -> Tensor:
        """Compute prepared features (N, D) float32 of raw inputs in batches; `peak` is the white of images."""
        white = {"peak": peak} if isinstance(self.inputs, ImagePreparation) else {}
        rows = raw.iloc if is_table(raw) else raw
        parts = (rows[at : at + FEATURES_AT_ONCE] for at in range(0, max(1, len(raw)), FEATURES_AT_ONCE))
        return torch.cat([self.apply_prepared(self.inputs.apply(part, **white)) for part in parts])

    def apply_prepared(self, x: Tensor) -> Tensor:
        """Compute prepared features (N, D) of inputs that `inputs` prepared."""
        if self.features is None:
            raise Misuse(f"the network {self.network['net']} of the features is not here: open the run by mm.load")
        return self.scale.apply(self.features(x))


Simple = ImagePreparation | ArrayPreparation | TablePreparation | TokenPreparation | SeveralPreparation
Preparation = Simple | FeaturePreparation
KINDS: dict[str, Any] = {record.kind: record for record in get_args(Simple)}


def before_features(preparation: Preparation) -> Preparation:
    """Return the preparation of the inputs of a feature network; any other preparation unchanged."""
    return preparation.inputs if isinstance(preparation, FeaturePreparation) else preparation


def with_features(x: Tensor, preparation: Preparation) -> Tensor:
    """Return the features (N, D) of inputs that `before_features` of a preparation prepared; without a network, x."""
    return preparation.apply_prepared(x) if isinstance(preparation, FeaturePreparation) else x


def preparation_from_json(record: dict[str, Any], features: Callable[[Tensor], Tensor] | None = None) -> Preparation:
    """Restore a preparation from its JSON.

    Args:
        record: What `to_json` returned.
        features: Network (N, ...) -> (N, D) of a preparation that computes features.

    Returns:
        The preparation.

    Raises:
        Misuse: For an unknown kind of preparation.

    >>> preparation_from_json(ArrayPreparation((1,), (0.5,), (2.0,)).to_json())
    ArrayPreparation(shape=(1,), mean=(0.5,), std=(2.0,), names=(), clip=None, quantiles=(), low=(), high=())
    """
    if record["kind"] == "features":
        inputs, scale = (preparation_from_json(record[part]) for part in ("inputs", "scale"))
        return FeaturePreparation(inputs, scale, record["network"], features)  # type: ignore[arg-type]
    if record["kind"] not in KINDS:
        raise unknown("preparation", record["kind"], KINDS)
    preparation: Preparation = _from_json(record)
    return preparation


def _from_json(value: Any) -> Any:
    """Restore a JSON value: an object as the record of its kind, a list as a tuple."""
    if isinstance(value, dict):
        kind = JsonRecord.kinds[value["kind"]]
        fields_of = {name: _from_json(entry) for name, entry in value.items() if name != "kind"}
        for name, of in get_type_hints(kind).items():
            if name in fields_of and not fits(fields_of[name], of):
                raise Failure(f"the {value['kind']} preparation is damaged: '{name}' is {value[name]!r:.40}")
        return kind(**fields_of)
    return tuple(map(_from_json, value)) if isinstance(value, list | tuple) else value


def checked_array(raw: Any, name: str) -> Any:
    """Convert raw inputs (N, ...) to an array and refuse all but finite real numbers; rows in files stay there."""
    values = raw if isinstance(raw, FileRows) else as_array(raw)
    if values.dtype.kind not in "iufb" or values.ndim == 0:
        raise Misuse(f"{name} has type {values.dtype} and shape {values.shape}: expected an array of numbers")
    refuse_nonfinite(values, name)
    return values


def to_planes(values: Any, shape: tuple[int, int, int]) -> Any:
    """Convert images (N, H, W), (N, H, W, C) or (N, C, H, W) of shape (C, H, W) to (N, C, H, W)."""
    if isinstance(values, FileRows):
        return values.then(lambda rows: to_planes(rows, shape), shape)
    channels, height, width = shape
    if values.shape in ((height, width), (height, width, channels)):
        require_shape(values, values.shape)
    if values.shape == shape and channels > 1:
        raise Misuse(f"{shape} is one image or {channels} grey ones: write x[None] for one, x[:, None] for {channels}")
    if values.shape[1:] == (height, width):
        values = values[:, None]
    elif values.ndim == 4 and values.shape[1:] != shape and values.shape[1:3] == (height, width):
        values = np.moveaxis(values, 3, 1)
    if values.ndim == 4 and values.shape[1:] == (1, height, width):
        values = np.broadcast_to(values, (len(values), *shape))
    require_shape(values, shape)
    return values


def image_shape(values: Any) -> tuple[int, int, int]:
    """Return the shape (C, H, W) of images (N, H, W), (N, H, W, C) or (N, C, H, W).

    >>> image_shape(np.zeros((5, 8, 9, 3))), image_shape(np.zeros((5, 3, 8, 9)))
    ((3, 8, 9), (3, 8, 9))
    """
    if values.ndim == 3:
        return (1, values.shape[1], values.shape[2])
    shape = values.shape[1:]
    return (shape[2], *shape[:2]) if shape[2] in COLOURS and shape[0] not in COLOURS else shape


def pixel_peak(values: Any, asked: bool = False) -> float | None:
    """Return the value of a white pixel if an array looks like images, else None.

    Images are arrays of rank 3 or 4 of bytes (white is 255), and arrays of rank 4 that lie in 0..1 or in 0..255. Other
    arrays of rank 3 could also be series (N, C, L): they are images only if the caller `asked` for images.
    """
    if values.ndim not in (3, 4) or values.size == 0:
        return None
    if values.dtype == np.uint8:
        return 255.0
    if values.ndim == 3 and not asked:
        return None
    low, high = extremes(values)
    if low < 0 or high > 255:
        return None
    return 1.0 if high <= 1 else 255.0


def fit_images(values: Any, peak: float, prepare: Prepare, resized: bool = False) -> ImagePreparation:
    """Fit the preparation of training images: standardised, divided by white (`unit`), or unchanged (`none`)."""
    shape = image_shape(values)
    mean, std = np.zeros(shape[0]), np.full(shape[0], peak if prepare == "unit" else 1.0)
    if prepare == "standardise":
        mean, std = mean_std(to_planes(values, shape), "x")
    elif prepare in WAYS:
        raise Misuse(f"prepare='{prepare}' is for tables and other rows of numbers: write 'standardise' for images")
    integers = values.dtype.kind != "f"
    return ImagePreparation(shape, float(peak), tuple(mean.tolist()), tuple(std.tolist()), integers, resized)


def fit_array(values: Any, names: tuple[str, ...], prepare: Prepare) -> ArrayPreparation:
    """Fit the preparation of training arrays (N,), (N, D) or (N, C, ...): scaled, or unchanged (`none`)."""
    if values.ndim == 1:
        in_file = isinstance(values, FileRows)
        values = values.then(lambda rows: rows[:, None], (1,)) if in_file else values[:, None]
    zeros, ones = (0.0,) * values.shape[1], (1.0,) * values.shape[1]
    if prepare not in WAYS:
        return ArrayPreparation(values.shape[1:], zeros, ones, names)
    scaling = fit_scaling(values, prepare, "x")
    ends = (tuple(end.astype(np.float64).tolist()) for end in channel_extremes(values))
    statistics = scaling.centre, scaling.scale, names, scaling.clip, scaling.quantiles
    return ArrayPreparation(values.shape[1:], *statistics, *ends)


def unchanged(x: Tensor) -> ArrayPreparation | TokenPreparation:
    """Return the preparation that leaves inputs like x (N, ...) unchanged: floating point, or tokens."""
    shape = tuple(x.shape[1:])
    if not x.is_floating_point():
        return TokenPreparation(shape)
    width = shape[0] if shape else 1
    return ArrayPreparation(shape or (1,), (0.0,) * width, (1.0,) * width)
