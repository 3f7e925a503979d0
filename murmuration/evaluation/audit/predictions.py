"""`Predictions`: predictions of any model in a file, with their targets, read some rows at a time, and evaluated.

`open_predictions` reads names, shapes, targets and groups; the numbers stay in the file.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

import murmuration.evaluation.audit.targets as sources
from murmuration.data import ArrayPreparation, Split, Task
from murmuration.data.npz import Archive, naming, open_archive, open_array
from murmuration.data.numpy_arrays import as_array
from murmuration.data.raw import is_table
from murmuration.evaluation.audit.arrays import archive_outputs, class_names
from murmuration.evaluation.audit.outputs import Outputs, Rows
from murmuration.evaluation.audit.tables import Sheet, as_sheet, open_sheet, sheet_outputs, target_names
from murmuration.evaluation.coverage import rows_by_class
from murmuration.evaluation.eval_set import EvalSet, score_predictions
from murmuration.evaluation.metrics import ExampleScores
from murmuration.evaluation.metrics.comparison import by_group, rows_by_group
from murmuration.evaluation.record import Evaluation
from murmuration.likelihoods import CLASSIFICATION, REGRESSION
from murmuration.prediction.posthoc import FEWEST, PostHocConfig, fit_posthoc
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Failure, Misuse, unknown

TASKS = (CLASSIFICATION, REGRESSION)  # that files of predictions may have
OPENERS: dict[str, Callable[[Path], Archive | Sheet]] = {
    ".npz": open_archive,
    ".npy": lambda path: open_array(path, "probs"),
    ".csv": open_sheet,
    ".parquet": open_sheet,
}
ELEMENTS = 2**21  # of (S, n, K) in one chunk: 16 MB in float64, enough for every core to have a piece
MOST_ROWS = 8192  # of one chunk
DECOMPOSITION = ("aleatoric_std", "epistemic_std", "rmse_fair", "crps_fair")  # undefined for samples of y
POSTHOC_ROWS = 10_000  # that post-hoc steps are fitted on, and as many that they are evaluated on
SAME_NUMBER = 1e-6  # relative: texts of a number may be rounded


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of any model for N rows, with their targets.

    Predictions stay in their file. A chunk is checked whenever it is read, so only a complete pass over `chunks` (or
    `pairs`) has checked the file; an invalid row raises `Misuse`.
    """

    name: str  # the file's, without its suffix
    task: str  # classification or regression
    classes: tuple[str, ...]  # names; empty for a regression
    members: int
    rows: int
    targets: np.ndarray  # (N,) int64 labels, or (N, K) float64
    groups: dict[str, np.ndarray]  # column -> (N,) texts
    form: str  # probabilities, logits, moments or samples
    take: Callable[[Rows], Predictive] = field(repr=False)

    def chunks(self) -> Iterator[Predictive]:
        """Predictives of successive rows, a few thousand at a time, covering all."""
        return map(self.take, self.slices())

    def pairs(self) -> Iterator[tuple[Predictive, np.ndarray]]:
        """Predictives of successive rows with their targets, as `ExampleScores.from_chunks` takes them."""
        for rows in self.slices():
            yield self.take(rows), self.targets[rows]

    def slices(self) -> Iterator[slice]:
        """Return the rows of every chunk; the last may have fewer."""
        width = len(self.classes) or 2 * self.targets.shape[1]
        count = max(1, min(MOST_ROWS, ELEMENTS // (self.members * width)))
        return (slice(start, min(start + count, self.rows)) for start in range(0, self.rows, count))

    def rows_at(self, indices: np.ndarray) -> Predictive:
        """Return the predictive of the rows at indices, from 0 in increasing order; held in memory as a whole."""
        rows = np.asarray(indices)
        increasing = rows.ndim == 1 and len(rows) and (np.diff(rows) > 0).all()
        if not increasing or rows.dtype.kind not in "iu" or rows[0] < 0 or rows[-1] >= self.rows:
            raise Misuse(f"rows of '{self.name}': expected indices from 0 to {self.rows - 1} in increasing order")
        return self.take(rows)


def check_same_targets(a: Predictions, b: Predictions) -> None:
    """Refuse predictions of different rows: other tasks, classes or targets, or another order.

    Args:
        a: The first predictions.
        b: The second predictions. Unnamed classes (0, 1, ...) match any names of as many classes.

    Raises:
        Misuse: If the rows differ.
    """
    expected = "expected predictions of the same rows in the same order"
    if a.task != b.task:
        raise Misuse(f"'{a.name}' is a {a.task} and '{b.name}' a {b.task}: expected one task")
    if a.rows != b.rows:
        raise Misuse(f"'{a.name}' has {a.rows} rows and '{b.name}' has {b.rows}: {expected}")
    same_classes = "expected the same classes in the same order"
    if len(a.classes) != len(b.classes):
        raise Misuse(f"'{a.name}' has {len(a.classes)} classes and '{b.name}' has {len(b.classes)}: {same_classes}")
    numbered = tuple(map(str, range(len(a.classes))))  # unnamed classes match as many named ones
    if a.classes != b.classes and numbered not in (a.classes, b.classes):
        place = next(i for i, name in enumerate(a.classes) if name != b.classes[i])
        names = f"'{a.classes[place]}' in '{a.name}' and '{b.classes[place]}' in '{b.name}'"
        raise Misuse(f"class {place} is {names}: {same_classes}")
    differ = np.ones(a.rows, dtype=bool)
    if a.targets.shape == b.targets.shape:
        differ = ~np.isclose(a.targets, b.targets, rtol=SAME_NUMBER, atol=0).reshape(a.rows, -1).all(axis=1)
    if differ.any():
        row = int(differ.argmax())
        targets = f"{target_text(a, row)} in '{a.name}' and {target_text(b, row)} in '{b.name}'"
        raise Misuse(f"row {row + 1} is {targets}: {expected}")


def target_text(predictions: Predictions, row: int) -> str:
    """Return the target of a row, as text."""
    target = predictions.targets[row]
    if predictions.task == "classification":
        return f"'{predictions.classes[int(target)]}'"
    return ", ".join(f"{value:.9g}" for value in target)


# Opening a file


def open_predictions(
    source: Any,
    *,
    labels: Any = None,
    label: str | None = None,
    groups: Sequence[str] | Mapping[str, Any] = (),
    task: str | None = None,
) -> Predictions:
    """Open predictions of any model with the target of every row.

    Names, shapes, targets, groups and the first rows are checked here, all other rows when they are read.

    Args:
        source: An .npz, .npy, .csv or .parquet file, a pandas table with the columns of such a file, probabilities
            (N, K) or (S, N, K), or a `Predictive`.
        labels: The targets, or a file of them; by default those in `source`.
        label: Name of the column or array of targets.
        groups: Names of columns with the group of each row, or the groups (N,) by name.
        task: classification or regression; inferred from the contents by default.

    Returns:
        The predictions, which stay in their file.

    Raises:
        Misuse: If there are no predictions or targets, or they do not fit each other.
    """
    if task is not None and task not in TASKS:
        raise unknown("task", task, TASKS)
    path, contents, names, outputs_of = open_source(source)
    other, origin = contents, path
    if isinstance(labels, str | Path):
        origin = existing(labels)
        other = label_source(origin)
    elif labels is not None:
        other, origin = sources.NamedValues("array", ("y",), lambda name: as_array(labels)), Path("y")
    with naming(origin):
        targets = sources.read_targets(other, label, names, alone=labels is not None)
    if labels is not None:
        in_file = isinstance(labels, str | Path)
        targets = replace(targets, name=f"{targets.name} of '{origin}'" if in_file else "y", sources=())
    with naming(path):
        if isinstance(groups, Mapping):
            columns = sources.NamedValues("array", tuple(groups), lambda name: as_array(groups[name]))
            grouped = sources.read_groups([columns], columns.names, targets.rows) if groups else {}
        else:
            grouped = sources.read_groups([contents, other], groups, targets.rows)
        predictions = join(path, outputs_of(targets, (*targets.sources, *grouped), task), targets, grouped)
    predictions.take(next(predictions.slices()))
    return predictions


def open_source(source: Any) -> tuple[Path, sources.NamedValues, tuple[str, ...], Callable[..., Outputs]]:
    """Open a file, a table or predictions in memory.

    Returns a name for messages, the arrays or columns, the names of classes or targets, and a function that finds the
    predictions among them.
    """
    if isinstance(source, str | Path):
        path = existing(source)
        if path.suffix.lower() not in OPENERS:
            raise Misuse(f"'{path}' has the suffix '{path.suffix}': expected a file {', '.join(OPENERS)}")
        contents = OPENERS[path.suffix.lower()](path)
    elif is_table(source):
        path = Path("table")
        contents = as_sheet(source, path)
    else:
        predictive = source if isinstance(source, Predictive) else Predictive.from_probs(source)
        nothing = sources.NamedValues("array", (), np.asarray)
        return Path("predictions"), nothing, (), partial(memory_outputs, predictive)
    with naming(path):
        if isinstance(contents, Archive):
            return path, named_values(contents), class_names(contents) or (), partial(archive_outputs, contents)
        return path, named_values(contents), target_names(contents.names), partial(sheet_outputs, contents)


def memory_outputs(predictive: Predictive, targets: sources.Targets, _: tuple[str, ...], task: str | None) -> Outputs:
    """Return a predictive as outputs; there are no columns that could hold something else."""
    form = "moments" if predictive.task == REGRESSION else "probabilities"
    members, rows = predictive.outputs.shape[:2]
    if predictive.task not in TASKS or task not in (None, predictive.task):
        raise Misuse(f"predictions of {predictive.task}: expected {task or ' or '.join(TASKS)}")
    if rows != targets.rows:
        raise Misuse(f"predictions of {rows} rows, but {targets.name} has {targets.rows}: expected as many")
    names = None if form == "moments" else predictive.names or None
    return Outputs(form, (members, rows, predictive.mean.shape[-1]), predictive.at, names)


def names_of(files: Sequence[str | Path]) -> list[str]:
    """Return short names of files: their stems or, if these are not distinct, with suffixes, or with folders.

    >>> names_of(["a/rf.csv", "a/boosting.csv"]), names_of(["a/rf.csv", "a/rf.npz"]), names_of(["a/rf.csv", "b/rf.csv"])
    (['rf', 'boosting'], ['rf.csv', 'rf.npz'], ['a/rf.csv', 'b/rf.csv'])
    """
    paths, texts = [Path(file) for file in files], [str(file) for file in files]
    for names in ([path.stem for path in paths], [path.name for path in paths], texts):
        if len(set(names)) == len(names):
            return names
    repeated = next(text for text in texts if texts.count(text) > 1)
    raise Misuse(f"'{repeated}' is given twice: give each file once")


def join(path: Path, outputs: Outputs, targets: sources.Targets, groups: dict[str, np.ndarray]) -> Predictions:
    """Join outputs with their targets, as class indices or values."""
    members, rows, width = outputs.shape
    if outputs.task == "classification":
        classes = outputs.names or tuple(map(str, range(width)))
        true = sources.checked_labels(targets, classes, named=outputs.names is not None)
    else:
        classes, true = (), sources.checked_values(targets, width)

    def take(rows: Rows) -> Predictive:
        with naming(path):
            return outputs.take(rows)

    return Predictions(path.stem, outputs.task, classes, members, rows, true, groups, outputs.form, take)


def existing(path: str | Path) -> Path:
    """Return the path, if it is an existing file."""
    place = Path(path)
    if place.is_dir():
        raise Misuse(f"'{place}' is a folder: expected a file of predictions or labels")
    if not place.exists():
        raise Misuse(f"no file '{place}': expected a file {', '.join(OPENERS)}")
    return place


def named_values(found: Archive | Sheet) -> sources.NamedValues:
    """Return the arrays or columns of a file by name."""
    return sources.NamedValues(found.noun, found.names, found.values)


def label_source(path: Path) -> sources.NamedValues:
    """Return the columns or arrays of a file of labels; for any other suffix, its lines."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return named_values(open_array(path, "y"))
    return named_values(OPENERS[suffix](path)) if suffix in OPENERS else lines_of(path)


def lines_of(path: Path) -> sources.NamedValues:
    """Return the lines of a text file as one column of labels; blank lines are allowed at the end only."""
    try:
        texts = [line.strip() for line in path.read_text(encoding="utf-8-sig").rstrip().splitlines()]
    except UnicodeDecodeError:
        files = ", ".join(OPENERS)
        raise Misuse(f"'{path}' is not text in UTF-8: expected one label a line, or a file {files}") from None
    except OSError as error:
        raise Failure(f"cannot read '{path}': {error}") from None
    if "" in texts:
        raise Misuse(f"line {texts.index('') + 1} of '{path}' is blank: expected a label")
    return sources.NamedValues("line", ("y",), lambda name: np.array(texts, dtype=str))


# Evaluation


def evaluate_predictions(predictions: Predictions, config: PostHocConfig | None = None) -> Evaluation:
    """Evaluate predictions of any model.

    Args:
        predictions: The predictions with their targets.
        config: Settings of calibration, conformal sets and abstention.

    Returns:
        Scores of all rows and groups. Post-hoc steps are fitted on random rows and evaluated on others; with fewer than
        40 rows there are none.
    """
    examples = ExampleScores.from_chunks(predictions.pairs())
    scores = examples.scores()
    if predictions.form == "samples":  # of y: one model, and noise cannot be told from disagreement
        examples = replace(examples, agreement=np.ones((1, 1)))
        unsplit = {name: score for name, score in examples.scores().items() if name not in DECOMPOSITION}
        scores = {name: score for name, score in unsplit.items() if not name.startswith("member_")}
    groups = {column: by_group(examples, values) for column, values in predictions.groups.items()}
    evaluation = Evaluation(predictions.name, eval_set(predictions), examples, scores, groups=groups)
    if predictions.rows < 2 * FEWEST:
        return evaluation
    count = min(POSTHOC_ROWS, predictions.rows // 2)
    order = np.random.default_rng(0).permutation(predictions.rows)
    fitted, tested = np.sort(order[:count]), np.sort(order[count : 2 * count])
    posthoc = fit_posthoc(predictions.rows_at(fitted), predictions.targets[fitted], config)
    result = score_predictions([(predictions.rows_at(tested), predictions.targets[tested])], posthoc)
    subsets = rows_by_class(result.uncalibrated, predictions.classes)
    for column, values in predictions.groups.items():
        groups_tested = rows_by_group(values[tested].astype(str))
        subsets |= {f"{column} {value}": members for value, members in groups_tested.items()}
    return replace(evaluation, posthoc=posthoc, before=result.uncalibrated, after=result.calibrated, subsets=subsets)


def eval_set(predictions: Predictions) -> EvalSet:
    """Return the evaluation set of a file: its targets, without inputs."""
    split = Split(torch.empty(predictions.rows, 0), torch.from_numpy(predictions.targets))
    nothing, task = ArrayPreparation((0,), (), ()), cast(Task, predictions.task)
    sizes = {"rows": predictions.rows}
    return EvalSet(predictions.name, task, split, predictions.classes, nothing, sizes, audited=True)
