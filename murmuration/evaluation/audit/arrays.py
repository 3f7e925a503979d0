"""Predictions in an archive of arrays: which arrays, and along which axis their rows run."""

import math

import numpy as np

import murmuration.evaluation.audit.outputs as outputs
from murmuration.data.npz import Archive
from murmuration.data.targets import as_text
from murmuration.evaluation.audit.outputs import MEANS, STDS, VARIANCES, WITHOUT_NOISE, Block, Outputs, Rows
from murmuration.evaluation.audit.targets import Targets, names_among
from murmuration.system.errors import Misuse, listed

# The first name that occurs is taken: members before their mean.
PROBABILITIES = ("member_probs", "member_probabilities", "probs", "probabilities", "predict_proba")
LOGITS = ("member_logits", "logits")
SAMPLES = ("samples",)
MEMBER_STDS, MEMBER_VARIANCES = ("member_std",), ("member_var",)
MEMBERS_FIRST = ("member_", "samples")  # two axes of such an array are members and rows
CLASS_NAMES = ("names", "classes", "class_names")
EXPECTED = "expected probs or logits (classification), or mean and std, or samples (regression)"
LOGITS_HINT = "if these are logits, write them under the name logits"


def archive_outputs(archive: Archive, targets: Targets, taken: tuple[str, ...], task: str | None) -> Outputs:
    """Return the predictions of an archive for the rows of the targets; `taken` arrays hold something else."""
    names = tuple(name for name in archive.names if name not in taken)
    for name in names_among(PROBABILITIES + LOGITS, names) if task != "regression" else ():
        means = (mean for mean in names_among(("member_mean", *MEANS), names) if noise_names(mean, names))
        if task is None and (other := [*names_among(SAMPLES, names), *means]):
            raise Misuse(f"arrays {name} and {other[0]}: expected one of both; say which, task=TASK")
        kind = outputs.logits if name in LOGITS else outputs.probabilities
        shape = archive.header(name).shape
        if axis_of_rows(name, shape, targets) + 1 < len(shape) and shape[-1] == 1:  # could mean either class
            hint = f"for the second of two classes alone write {name}[..., 0]"
            raise Misuse(f"array {name} of shape {shape} has only one class: expected two or more; {hint}")
        predictions = kind(array_block(archive, name, targets), class_names(archive))
        if predictions.names is not None and len(predictions.names) != predictions.shape[2]:
            classes = f"{len(predictions.names)} names ({listed(predictions.names, most=5)})"
            raise Misuse(f"{classes} for probabilities of {predictions.shape[2]} classes: expected as many")
        return predictions
    if task != "classification":
        return regression_outputs(archive, names, targets)
    raise Misuse(f"no probabilities for task 'classification': expected probs or logits; found {listed(names)}")


def class_names(archive: Archive) -> tuple[str, ...] | None:
    """Return the names of the classes in their order, if the archive has them."""
    for name in names_among(CLASS_NAMES, archive.names):
        classes = tuple(as_text(value) for value in archive.values(name).ravel().tolist())
        if len(set(classes)) < len(classes):
            twice = next(text for text in classes if classes.count(text) > 1)
            raise Misuse(f"array {name} has '{twice}' twice: expected every class once")
        return classes
    return None


def regression_outputs(archive: Archive, names: tuple[str, ...], targets: Targets) -> Outputs:
    """Return the predictions of a regression: the first mean with its standard deviation or variance, or samples."""
    means = names_among(("member_mean", *MEANS), names)
    for mean in means:
        for noise in noise_names(mean, names):
            blocks = array_block(archive, mean, targets), noise_block(archive, noise, targets)
            return outputs.moments(*blocks, squared=noise in VARIANCES + MEMBER_VARIANCES)
    for name in names_among(SAMPLES, names):
        return outputs.samples(array_block(archive, name, targets))
    if means:
        expected = "member_std" if means[0].startswith("member_") else "std or var"
        raise Misuse(f"array {means[0]} but no {expected}: expected both; {WITHOUT_NOISE}; found {listed(names)}")
    raise Misuse(f"no predictions: {EXPECTED}; found {listed(names) or 'nothing else'}")


def noise_names(mean: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arrays that may hold the standard deviation or variance of a mean."""
    return names_among(MEMBER_STDS + MEMBER_VARIANCES if mean.startswith("member_") else STDS + VARIANCES, names)


def noise_block(archive: Archive, name: str, targets: Targets) -> Block | float:
    """Return a standard deviation or variance as a block (S, N, K), or as one number for all."""
    if math.prod(archive.header(name).shape) == 1 and targets.rows > 1:
        return float(archive.values(name).item())
    return array_block(archive, name, targets)


def array_block(archive: Archive, name: str, targets: Targets) -> Block:
    """Return an array as a block (S, N, K), with missing axes of size one."""
    shape = archive.header(name).shape
    axis = axis_of_rows(name, shape, targets)
    stored = archive.stored(name)
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])

    def read(rows: Rows) -> np.ndarray:
        return stored.read(rows, axis).reshape(before, -1, after)

    def entry_name(member: int, row: int, column: int | None) -> str:
        last = [column] if len(shape) > axis + 1 and column is not None else []
        return f"{name}[{', '.join(map(str, [member] * axis + [row] + last))}]"

    return Block(name, (before, shape[axis], after), read, entry_name, LOGITS_HINT)


def axis_of_rows(name: str, shape: tuple[int, ...], targets: Targets) -> int:
    """Return the axis of an array that runs over rows: the first, or the second where members come first."""
    members = name.startswith(MEMBERS_FIRST)
    if len(shape) not in (1, 2, 3) or 0 in shape or (members and len(shape) == 1):
        expected = "(S, N) or (S, N, K)" if members else "(N,), (N, K) or (S, N, K)"
        raise Misuse(f"array {name} of shape {shape}: expected {expected}, none empty")
    axis = int(members or len(shape) == 3)
    if shape[axis] == targets.rows:
        return axis
    mismatch = f"array {name} of shape {shape} is for {shape[axis]} rows, but {targets.name} has {targets.rows}"
    if len(shape) == 3 and shape[0] == targets.rows:
        raise Misuse(f"{mismatch}: expected members first, (S, N, K); write np.swapaxes({name}, 0, 1)")
    if len(shape) == 2 and shape[1 - axis] == targets.rows:
        expected = "members first, (S, N)" if members else "rows first, (N, K)"
        raise Misuse(f"{mismatch}: expected {expected}; write {name}.T")
    raise Misuse(f"{mismatch}: expected as many")
