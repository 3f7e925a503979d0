"""Predictions as .csv, .parquet and .npz files, written a few rows at a time in constant memory."""

import contextlib
import csv
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from murmuration.ensemble import Ensemble
from murmuration.errors import Misuse
from murmuration.files import write_whole
from murmuration.likelihoods import MULTI_LABEL, REGRESSION
from murmuration.posthoc import PostHoc
from murmuration.predictive import Predictive
from murmuration.uncertainty import uncertainties

Columns = dict[str, np.ndarray]
COVERAGE = 0.9  # of the interval of a regression


@dataclass(frozen=True)
class Predictions:
    """Predictives of successive inputs, and the names of what they predict."""

    parts: Iterator[Predictive]
    rows: int
    names: tuple[str, ...]  # of the classes, or of the targets of a regression
    members: int
    per_member: bool = False
    posthoc: PostHoc | None = None  # adds conformal sets and decisions

    def tables(self) -> Iterator[Columns]:
        """Columns (n,) of successive inputs, for a table."""
        for first, part in self.located():
            yield {**flat_columns(part, self.names), **flat_posthoc_columns(part, self, first)}

    def located(self) -> Iterator[tuple[int, Predictive]]:
        """Every predictive with the place of its first input."""
        first = 0
        for part in self.parts:
            yield first, part
            first += part.outputs.shape[1]


def predictions_of(ensemble: Ensemble, x: Any, *, per_member: bool = False) -> Predictions:
    """The predictions of an ensemble for inputs x as `predict` takes them, computed batch by batch when consumed."""
    names, inputs = output_names(ensemble), ensemble.prepare(x)
    return Predictions(
        ensemble.stream(inputs, prepared=True), len(inputs), names, ensemble.members, per_member, ensemble.posthoc
    )


def output_names(ensemble: Ensemble) -> tuple[str, ...]:
    """The names of the classes, or of the targets of a regression; their indices if they have no names."""
    data = ensemble.manifest["data"]
    names = data["classes"] or data["preparation"].get("targets")
    return tuple(names or map(str, range(data["targets"])))


def save_predictions(ensemble: Ensemble, x: Any, path: str | Path, *, per_member: bool = False) -> Predictions:
    """Write the predictions of an ensemble and their uncertainty to a .csv, .parquet or .npz file.

    `x` are inputs as `predict` takes them: an array, a table, a path, a split. With `per_member`, a .npz holds the
    predictions of every member (S, N, K). A file that exists is replaced.
    """
    path = Path(path)
    if path.suffix.lower() not in WRITERS:
        raise Misuse(f"{path} has the suffix '{path.suffix}': write a name that ends in {' or '.join(WRITERS)}")
    if per_member and path.suffix.lower() != ".npz":
        raise Misuse(f"per_member=True with {path.name}: a table has one row per input; write {path.stem}.npz")
    found = predictions_of(ensemble, x, per_member=per_member)
    write_predictions(path, found)
    return found


def flat_columns(part: Predictive, names: tuple[str, ...]) -> Columns:
    """Columns (n,) of one predictive, for a table."""
    probs = {f"prob_{name}": part.mean[:, k].numpy() for k, name in enumerate(names)}
    if part.task == MULTI_LABEL:
        said = {f"predicted_{name}": part.predicted[:, k].numpy() for k, name in enumerate(names)}
        return {**said, **label_uncertainty(part), **probs}
    if part.task == "classification":
        return {"predicted": np.array(names)[part.predicted.numpy()], **uncertainty_columns(part), **probs}
    table = regression_arrays(part)
    if len(names) == 1:
        return {key: values[:, 0] for key, values in table.items()}
    return {f"{key}_{name}": values[:, k] for k, name in enumerate(names) for key, values in table.items()}


def label_uncertainty(part: Predictive) -> Columns:
    """The uncertainty decomposition of a multi-label task, in nats, summed over labels: columns (n,)."""
    names = ("entropy", "expected_entropy", "mutual_information")
    return {name: getattr(part, name).numpy() for name in names}


def uncertainty_columns(part: Predictive) -> Columns:
    """The confidence and the uncertainty decomposition of a classification: columns (n,)."""
    return {name: values.numpy() for name, values in uncertainties(part).items()}


def flat_posthoc_columns(part: Predictive, predictions: Predictions, first: int) -> Columns:
    """Sets, intervals and decisions as columns (n,) of a table; the classes of a set stand side by side."""
    names, found = predictions.names, posthoc_columns(part, predictions.posthoc, first)
    if part.task == "classification":
        return {
            key: values if values.ndim == 1 else np.array(["|".join(np.array(names)[row]) for row in values])
            for key, values in found.items()
        }
    if len(names) == 1:
        return {key: values if values.ndim == 1 else values[:, 0] for key, values in found.items()}
    wide = {f"{key}_{name}": v[:, k] for k, name in enumerate(names) for key, v in found.items() if v.ndim > 1}
    return {**wide, **{key: values for key, values in found.items() if values.ndim == 1}}


def posthoc_columns(part: Predictive, posthoc: PostHoc | None, first: int) -> Columns:
    """Columns from post-hoc steps on a calibrated predictive: the conformal set or interval (n, K) of each input, and
    whether the rule by cost would answer (n,)."""
    if posthoc is None:
        return {}
    found: Columns = {}
    if posthoc.conformal:
        percent, regions = f"{100 * posthoc.conformal[0].coverage:g}", posthoc.conformal[0].regions(part, first=first)
        if isinstance(regions, tuple):
            found = {f"conformal_low_{percent}": regions[0], f"conformal_high_{percent}": regions[1]}
        else:
            found = {f"set_{percent}": regions}
    answered = next(iter(posthoc.answered(part).values()), None)
    return found if answered is None else {**found, "answered": answered}


def regression_arrays(part: Predictive) -> Columns:
    """Means, standard deviations and interval ends of a regression: arrays (n, K)."""
    low, high = part.interval(COVERAGE)
    found = {
        "mean": part.mean,
        "aleatoric_std": part.aleatoric_var.sqrt(),
        "epistemic_std": part.epistemic_var.sqrt(),
        "total_std": part.total_var.sqrt(),
        "low_90": low,
        "high_90": high,
    }
    return {name: values.numpy() for name, values in found.items()}


def arrays(part: Predictive, per_member: bool) -> Columns:
    """Arrays (n, ...) of one predictive, for an npz; those of members (S, n, K) are named member_..."""
    if part.task != REGRESSION:
        members = {"member_probs": part.probs.numpy()} if per_member else {}
        columns = label_uncertainty(part) if part.task == MULTI_LABEL else uncertainty_columns(part)
        return {"predicted": part.predicted.numpy(), **columns, "probs": part.mean.numpy(), **members}
    members = {"member_mean": part.member_mean.numpy(), "member_std": part.member_var.sqrt().numpy()}
    return {**regression_arrays(part), **(members if per_member else {})}


def write_csv(path: Path, predictions: Predictions) -> None:
    """A table with a header; numbers in nine significant digits."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for turn, columns in enumerate(predictions.tables()):
            if turn == 0:
                writer.writerow(columns)
            texts = [[v if isinstance(v, str) else f"{v:.9g}" for v in values.tolist()] for values in columns.values()]
            writer.writerows(zip(*texts, strict=True))


def write_parquet(path: Path, predictions: Predictions) -> None:
    """A parquet table, one row group for every few rows."""
    import pyarrow
    import pyarrow.parquet

    writer: Any = None
    try:
        for columns in predictions.tables():
            table = pyarrow.table(columns)
            writer = writer or pyarrow.parquet.ParquetWriter(str(path), table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def write_npz(path: Path, predictions: Predictions) -> None:
    """Arrays of all inputs; they grow in files beside the result, which then go into it and away."""
    folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=".predictions-"))
    try:
        with contextlib.ExitStack() as stack:
            files: dict[str, NpyFile] = {}
            for start, part in predictions.located():
                found = {**arrays(part, predictions.per_member), **posthoc_columns(part, predictions.posthoc, start)}
                if not files:
                    files = {key: create_npy(folder / f"{key}.npy", found[key], predictions.rows) for key in found}
                    for each in files.values():
                        stack.enter_context(each.file)
                for key, values in found.items():
                    write_rows(files[key], values, start)
        np.save(folder / "names.npy", np.array(predictions.names))
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(folder.iterdir()):
                archive.write(file, file.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class NpyFile:
    """An .npy file filled row by row; not a memory map, which a full disk would kill."""

    file: IO[bytes]
    origin: int  # where the values begin
    rows: int
    axis: int  # of the rows: 1 where members come first


def create_npy(path: Path, values: np.ndarray, rows: int) -> NpyFile:
    """An .npy file with room for all rows of an array whose first ones are given."""
    axis = 1 if path.name.startswith("member_") else 0
    shape = (*values.shape[:axis], rows, *values.shape[axis + 1 :])
    file = open(path, "w+b")  # noqa: SIM115 - closed by the caller's stack
    descr = np.lib.format.dtype_to_descr(values.dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return NpyFile(file, file.tell(), rows, axis)


def write_rows(npy: NpyFile, values: np.ndarray, start: int) -> None:
    """Write values (n, ...) or (S, n, ...) as the rows from `start` on."""
    for turn, block in enumerate(values if npy.axis else values[None]):
        size = block.itemsize * int(np.prod(block.shape[1:]))  # of one row
        npy.file.seek(npy.origin + (turn * npy.rows + start) * size)
        npy.file.write(np.ascontiguousarray(block).tobytes())


WRITERS: dict[str, Callable[[Path, Predictions], None]] = {
    ".csv": write_csv,
    ".parquet": write_parquet,
    ".npz": write_npz,
}


def write_predictions(path: Path, predictions: Predictions) -> None:
    """Write the file, whole or not at all."""
    write_whole(path, lambda temporary: WRITERS[path.suffix.lower()](temporary, predictions))
