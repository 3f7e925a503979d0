"""Hostile values for the Python API, each with what it must lead to: the clean answer, a refusal, or either.

SAME is the same data in another form: the clean answer, or a refusal. REFUSE must be refused. ANY may be accepted.
"""

import array
import datetime
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

SAME, REFUSE, ANY = "same", "refuse", "any"
Change = tuple[str, Callable[[Any], Any]]


def changed(x: np.ndarray, value: Any, place: int = 0) -> np.ndarray:
    """The array with another value in one place, in a type that holds it."""
    copy = x.astype(np.result_type(x.dtype, type(value)) if isinstance(value, int | float | complex) else object)
    copy.reshape(-1)[place] = value
    return copy


def masked(x: np.ndarray, hidden: bool) -> np.ma.MaskedArray:
    mask = np.zeros(x.shape, dtype=bool)
    mask.reshape(-1)[0] = hidden
    return np.ma.array(x, mask=mask)


def read_only(x: np.ndarray) -> np.ndarray:
    copy = x.copy()
    copy.flags.writeable = False
    return copy


FORMS: dict[str, Change] = {  # of any array of numbers
    "list": (SAME, lambda x: x.tolist()),
    "list of arrays": (SAME, list),
    "tensor": (SAME, torch.from_numpy),
    "tensor with gradients": (SAME, lambda x: torch.from_numpy(x).double().requires_grad_()),
    "float64": (SAME, lambda x: x.astype(np.float64)),
    "longdouble": (SAME, lambda x: x.astype(np.longdouble)),
    "big endian": (SAME, lambda x: x.astype(x.dtype.newbyteorder(">"))),
    "Fortran order": (SAME, np.asfortranarray),
    "strides": (SAME, lambda x: np.repeat(x, 2, axis=0)[::2]),
    "backwards": (SAME, lambda x: x[::-1].copy()[::-1]),
    "read-only": (SAME, read_only),
    "objects": (SAME, lambda x: x.astype(object)),
    "texts": (SAME, lambda x: x.astype(str)),
    "masked, nothing hidden": (SAME, lambda x: masked(x, False)),
    "matrix": (SAME, lambda x: np.asmatrix(x) if x.ndim == 2 else x),
    "memory view": (SAME, lambda x: memoryview(np.ascontiguousarray(x))),
    "sparse tensor": (SAME, lambda x: torch.from_numpy(x).to_sparse()),
    "parameter": (SAME, lambda x: torch.nn.Parameter(torch.from_numpy(x).float())),
    "masked": (REFUSE, lambda x: masked(x, True)),
    "list of masked": (REFUSE, lambda x: list(masked(x, True)) if x.ndim > 1 else [np.ma.masked, *x[1:]]),
    "NaN": (REFUSE, lambda x: changed(x, np.nan)),
    "NaN in the last place": (REFUSE, lambda x: changed(x, np.nan, -1)),
    "infinity": (REFUSE, lambda x: changed(x, np.inf)),
    "1e39": (REFUSE, lambda x: changed(x, 1e39)),
    "complex": (REFUSE, lambda x: changed(x, 1 + 2j)),
    "missing": (REFUSE, lambda x: changed(x, None)),
    "date inside": (REFUSE, lambda x: changed(x, datetime.date(2020, 1, 1))),
    "text inside": (REFUSE, lambda x: changed(x, "kg")),
    "dates": (REFUSE, lambda x: np.full(x.shape, np.datetime64("2020-01-01"))),
    "durations": (REFUSE, lambda x: np.full(x.shape, np.timedelta64(3, "D"))),
    "bytes": (REFUSE, lambda x: x.tobytes()),
    "records": (REFUSE, lambda x: np.zeros(len(x), dtype=[("a", float), ("b", int)])),
    "one more row, ragged": (REFUSE, lambda x: [*x.tolist(), [1.0]]),
    "one row more": (REFUSE, lambda x: np.concatenate([x, x[:1]])),
    "no rows": (REFUSE, lambda x: x[:0]),
    "scalar": (REFUSE, lambda x: float(x.reshape(-1)[0])),
    "nothing": (REFUSE, lambda x: None),
    "text": (REFUSE, lambda x: "a text"),
    "object": (REFUSE, lambda x: object()),
    "set": (REFUSE, lambda x: {1, 2}),
    "function": (REFUSE, lambda x: len),
    "generator": (REFUSE, lambda x: (row for row in x)),
    "nested tensor": (REFUSE, lambda x: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])),
    "meta tensor": (REFUSE, lambda x: torch.from_numpy(x).to("meta")),
    "quantized tensor": (REFUSE, lambda x: torch.quantize_per_tensor(torch.from_numpy(x).float(), 0.1, 0, torch.qint8)),
    "path": (REFUSE, lambda x: Path("/nowhere/x.npz")),
    "dict": (REFUSE, lambda x: {"a": 1}),
    "three axes": (REFUSE, lambda x: x[..., None, None]),
    "half": (ANY, lambda x: x.astype(np.float16)),
    "bfloat16": (ANY, lambda x: torch.from_numpy(x).bfloat16()),
    "booleans": (ANY, lambda x: x > 0),
    "integers": (ANY, lambda x: x.astype(np.int64)),
    "uint64": (ANY, lambda x: np.abs(x).astype(np.uint64)),
    "series": (ANY, lambda x: pd.Series(list(x))),
    "frame": (ANY, lambda x: pd.DataFrame(x)),
    "array.array": (ANY, lambda x: array.array("d", np.ravel(x).tolist())),
    "transposed": (ANY, lambda x: x.T),
    "flat": (ANY, np.ravel),
    "an axis more": (ANY, lambda x: x[None]),
    "tuple": (ANY, lambda x: tuple(x.tolist())),
}
LABELS: dict[str, Change] = {  # of labels (N,), int64, 0 to K - 1
    **{f"int{bits}": (SAME, lambda y, bits=bits: y.astype(f"int{bits}")) for bits in (8, 16, 32)},
    **{f"uint{bits}": (SAME, lambda y, bits=bits: y.astype(f"uint{bits}")) for bits in (8, 16, 32, 64)},
    **{f"tensor of uint{b}": (SAME, lambda y, b=b: torch.from_numpy(y.astype(f"uint{b}"))) for b in (8, 16, 32, 64)},
    "whole floats": (SAME, lambda y: y.astype(float)),
    "category": (SAME, lambda y: pd.Series(y).astype("category")),
    "Int64 of pandas": (SAME, lambda y: pd.Series(y, dtype="Int64")),
    "indexed": (SAME, lambda y: pd.Series(y, index=np.arange(len(y))[::-1])),
    "halves": (REFUSE, lambda y: y + 0.5),
    "beyond": (REFUSE, lambda y: changed(y, 99)),
    "negative": (REFUSE, lambda y: changed(y, -1)),
    "huge": (REFUSE, lambda y: np.full(len(y), 2**64 - 1, dtype=np.uint64)),
    "one-hot": (REFUSE, lambda y: np.eye(int(y.max()) + 1)[y]),
    "Int64 with NA": (REFUSE, lambda y: pd.Series([None, *y[1:]], dtype="Int64")),
    "one row less": (REFUSE, lambda y: y[1:]),
}
LABELS = {**{name: change for name, change in FORMS.items() if name not in ("flat", "1e39", "texts")}, **LABELS}


def column(of: Callable[[pd.Series], Any], name: str = "a") -> Callable[[pd.DataFrame], pd.DataFrame]:
    """A change of one column of a table."""
    return lambda t: t.assign(**{name: of(t[name])})


def cell(value: Any, name: str = "a") -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Another value in the first cell of a column."""
    return column(lambda s: pd.Series([value, *s.tolist()[1:]], index=s.index, dtype=object), name)


DAY = pd.Timestamp("2020-01-01")
TABLES: dict[str, Change] = {  # of the table in fuzz_api.py: a numbers, b whole numbers, c texts, d dates, e booleans
    "other order": (SAME, lambda t: t[t.columns[::-1]]),
    "other index": (SAME, lambda t: t.set_axis(np.arange(len(t))[::-1])),
    "text index": (SAME, lambda t: t.set_axis([f"r{i}" for i in range(len(t))])),
    "float64 of pandas": (SAME, column(lambda s: s.astype("Float64"))),
    "Int64 of pandas": (SAME, column(lambda s: s.astype("Int64"), "b")),
    "numbers as texts": (SAME, column(lambda s: s.map(repr))),
    "decimals": (SAME, column(lambda s: s.map(lambda v: Decimal(repr(v))))),
    "objects": (SAME, column(lambda s: s.astype(object))),
    "category": (SAME, column(lambda s: s.astype("category"), "c")),
    "string": (SAME, column(lambda s: s.astype("string"), "c")),
    "date texts": (SAME, column(lambda s: s.dt.strftime("%Y-%m-%d"), "d")),
    "dates in seconds": (SAME, column(lambda s: s.astype("datetime64[s]"), "d")),
    "dates with a zone": (SAME, column(lambda s: s.dt.tz_localize("UTC"), "d")),
    "date objects": (SAME, column(lambda s: s.dt.date, "d")),
    "booleans as texts": (SAME, column(lambda s: s.astype(str), "e")),
    "boolean of pandas": (SAME, column(lambda s: s.astype("boolean"), "e")),
    "pyarrow": (SAME, lambda t: t.convert_dtypes(dtype_backend="pyarrow")),
    "sparse": (SAME, column(lambda s: pd.arrays.SparseArray(s))),
    "date for numbers": (REFUSE, column(lambda s: DAY)),
    "date objects for numbers": (REFUSE, column(lambda s: datetime.date(2020, 1, 1))),
    "date text for numbers": (REFUSE, column(lambda s: "2020-01-01")),
    "duration for numbers": (REFUSE, column(lambda s: pd.Timedelta("3 days"))),
    "numbers for dates": (REFUSE, column(lambda s: np.arange(len(s)) * 1.0, "d")),
    "whole numbers for dates": (REFUSE, column(lambda s: np.arange(len(s)) + 20200101, "d")),
    "number texts for dates": (REFUSE, column(lambda s: "20200101", "d")),
    "durations for dates": (REFUSE, column(lambda s: s - DAY, "d")),
    "a unit": (REFUSE, cell("5 kg")),
    "a comma": (REFUSE, cell("1,5")),
    "per cent": (REFUSE, cell("5 %")),
    "a date among numbers": (REFUSE, cell("2020-01-01")),
    "infinity": (REFUSE, cell(np.inf)),
    "1e39": (REFUSE, cell(1e39)),
    "400 digits": (REFUSE, cell(10**400)),
    "complex": (REFUSE, column(lambda s: s + 1j)),
    "list in a cell": (REFUSE, cell([1, 2])),
    "bytes in a cell": (REFUSE, cell(b"1")),
    "list among texts": (REFUSE, cell(["x"], "c")),
    "column missing": (REFUSE, lambda t: t.drop(columns="a")),
    "column more": (SAME, lambda t: t.assign(z=1)),  # ignored with a note
    "column twice": (REFUSE, lambda t: pd.concat([t, t[["a"]]], axis=1)),
    "column renamed": (REFUSE, lambda t: t.rename(columns={"a": "A"})),
    "levels of columns": (REFUSE, lambda t: t.set_axis(pd.MultiIndex.from_product([["x"], t.columns]), axis=1)),
    "no rows": (REFUSE, lambda t: t[:0]),
    "no columns": (REFUSE, lambda t: t[[]]),
    "array": (REFUSE, lambda t: t[["a", "b"]].to_numpy()),
    "one row": (REFUSE, lambda t: t.iloc[0]),
    "texts": (REFUSE, lambda t: "a,b\n1,2"),
    "missing number": (ANY, cell(np.nan)),
    "NA": (ANY, cell(pd.NA)),
    "NaT for a date": (ANY, cell(pd.NaT, "d")),
    "missing text": (ANY, cell(None, "c")),
    "unknown text": (ANY, column(lambda s: "unknown", "c")),
    "numbers among texts": (ANY, column(lambda s: 5, "c")),
    "dates among texts": (ANY, column(lambda s: DAY, "c")),
    "booleans for numbers": (ANY, column(lambda s: s > 0)),
    "dicts": (ANY, cell({"a": 1}, "c")),
    "fractions": (ANY, cell(Fraction(1, 3))),
    "far dates": (ANY, cell(datetime.datetime(9999, 1, 1), "d")),
    "records": (ANY, lambda t: t.to_dict("records")),
    "dict of columns": (ANY, lambda t: t.to_dict("list")),
}
SETTINGS: tuple[Any, ...] = (  # for any keyword
    *(None, True, False, 0, 1, -1, 2, 10**30, 0.0, 0.5, -0.5, 1e-320, 1e308, float("nan"), float("inf"), 1 + 2j),
    *("", " ", "x", "none", "auto", "0.5", "a,b", "\0", "../..", "é" * 300, b"x", "forde", "cpu"),
    *([], [None], [1, 2], (), ("a", "b"), {}, {"a": 1}, {1, 2}, object(), len, int, np.float64(0.5), np.int64(2)),
    *(np.array([]), np.arange(3), np.ma.masked, torch.tensor(1), torch.zeros(2, 2), Decimal("0.5"), Fraction(1, 2)),
    *(pd.NA, pd.NaT, pd.Timestamp("2020-01-01"), Path("/nowhere"), slice(3), range(3), datetime.date(2020, 1, 1)),
)
