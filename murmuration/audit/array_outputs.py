"""Which arrays of an archive are the predictions, and along which axis its rows run."""

import math

import numpy as np

from murmuration.audit.checks import Rows
from murmuration.audit.npz import Archive
from murmuration.audit.outputs import (
    MEANS,
    STDS,
    VARIANCES,
    WITHOUT_SPREAD,
    Block,
    Outputs,
    logits,
    moments,
    probabilities,
    samples,
)
from murmuration.audit.truth import Truth, names_among
from murmuration.data.targets import as_text
from murmuration.errors import Misuse, listed

# The first that is there is taken: what members say before their mean.
PROBABILITIES = ("member_probs", "member_probabilities", "probs", "probabilities", "predict_proba")
LOGITS = ("member_logits", "logits")
SAMPLES = ("samples",)
MEMBER_STDS, MEMBER_VARIANCES = ("member_std",), ("member_var",)
MEMBERS_FIRST = ("member_", "samples")  # two axes of such an array are members and rows
CLASS_NAMES = ("names", "classes", "class_names")
EXPECTED = "expected probs or logits (classification), or mean and std, or samples (regression)"
WHERE_LOGITS_GO = "if these are logits, write them under the name logits"


def archive_outputs(archive: Archive, truth: Truth, taken: tuple[str, ...], task: str | None) -> Outputs:
    """What an archive predicts for the rows whose truth is known; `taken` arrays hold something else."""
    names = tuple(name for name in archive.names if name not in taken)
    if task != "regression":
        for kind, known in ((probabilities, PROBABILITIES), (logits, LOGITS)):
            for name in names_among(known, names):
                refuse_both(names, name, task)
                return with_classes(kind(class_block(archive, name, truth), class_names(archive)))
    if task != "classification":
        return number_outputs(archive, names, truth)
    raise Misuse(f"no probabilities for task 'classification': expected probs or logits; found {listed(names)}")


def refuse_both(names: tuple[str, ...], name: str, task: str | None) -> None:
    """Refuse an archive of class probabilities that could as well be one of a regression, unless the task is said."""
    numbers = [*names_among(SAMPLES, names)]
    numbers += [mean for mean in names_among(("member_mean", *MEANS), names) if spread_of(mean, names)]
    if numbers and task is None:
        raise Misuse(f"arrays {name} and {numbers[0]}: expected one of both; say which, task=TASK (--task)")


def with_classes(outputs: Outputs) -> Outputs:
    """The outputs, unless their classes and the names of classes differ in number."""
    if outputs.names is not None and len(outputs.names) != outputs.shape[2]:
        found = f"{len(outputs.names)} names ({listed(outputs.names, most=5)})"
        raise Misuse(f"{found} for probabilities of {outputs.shape[2]} classes: expected as many")
    return outputs


def class_block(archive: Archive, name: str, truth: Truth) -> Block:
    """Probabilities or logits of an archive; a lone last axis is refused, since it could mean either class."""
    shape = archive.header(name).shape
    if axis_of_rows(name, shape, truth) + 1 < len(shape) and shape[-1] == 1:
        hint = f"for the second of two classes alone write {name}[..., 0]"
        raise Misuse(f"array {name} of shape {shape} has only one class: expected two or more; {hint}")
    return array_block(archive, name, truth)


def class_names(archive: Archive) -> tuple[str, ...] | None:
    """The names of the classes in their order, if the archive has them."""
    for name in names_among(CLASS_NAMES, archive.names):
        found = tuple(as_text(value) for value in archive.values(name).ravel().tolist())
        if len(set(found)) < len(found):
            twice = next(each for each in found if found.count(each) > 1)
            raise Misuse(f"array {name} has '{twice}' twice: expected every class once")
        return found
    return None


def number_outputs(archive: Archive, names: tuple[str, ...], truth: Truth) -> Outputs:
    """What an archive of a regression predicts: the first of mean with its spread, or samples, that is there."""
    means = names_among(("member_mean", *MEANS), names)
    for mean in means:
        for spread in spread_of(mean, names):
            squared = spread in VARIANCES + MEMBER_VARIANCES
            return moments(array_block(archive, mean, truth), spread_block(archive, spread, truth), squared=squared)
    for name in names_among(SAMPLES, names):
        return samples(array_block(archive, name, truth))
    if means:
        wanted = "member_std" if means[0].startswith("member_") else "std or var"
        raise Misuse(f"array {means[0]} but no {wanted}: expected both; {WITHOUT_SPREAD}; found {listed(names)}")
    raise Misuse(f"no predictions: {EXPECTED}; found {listed(names) or 'nothing else'}")


def spread_of(mean: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The arrays that may hold the spread around a mean."""
    member = mean.startswith("member_")
    return names_among(MEMBER_STDS + MEMBER_VARIANCES if member else STDS + VARIANCES, names)


def spread_block(archive: Archive, name: str, truth: Truth) -> Block | float:
    """A spread as numbers (S, N, K), or the one number for all."""
    if math.prod(archive.header(name).shape) == 1 and truth.rows > 1:
        return float(archive.values(name).item())
    return array_block(archive, name, truth)


def array_block(archive: Archive, name: str, truth: Truth) -> Block:
    """An array as numbers (S, N, K), whichever of its axes it has."""
    shape = archive.header(name).shape
    axis = axis_of_rows(name, shape, truth)
    stored = archive.stored(name)
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])

    def read(rows: Rows) -> np.ndarray:
        return stored.read(rows, axis).reshape(before, -1, after)

    def where(member: int, row: int, column: int | None) -> str:
        last = [column] if len(shape) > axis + 1 and column is not None else []
        return f"{name}[{', '.join(map(str, [member] * axis + [row] + last))}]"

    return Block(name, (before, shape[axis], after), read, where, WHERE_LOGITS_GO)


def axis_of_rows(name: str, shape: tuple[int, ...], truth: Truth) -> int:
    """The axis along which an array has a place for every row: the first, or the second where members come first."""
    members = name.startswith(MEMBERS_FIRST)
    if len(shape) not in (1, 2, 3) or 0 in shape or (members and len(shape) == 1):
        expected = "(S, N) or (S, N, K)" if members else "(N,), (N, K) or (S, N, K)"
        raise Misuse(f"array {name} of shape {shape}: expected {expected}, none empty")
    axis = int(members or len(shape) == 3)
    if shape[axis] == truth.rows:
        return axis
    said = f"array {name} of shape {shape} is for {shape[axis]} rows, but {truth.name} has {truth.rows}"
    if len(shape) == 3 and shape[0] == truth.rows:
        raise Misuse(f"{said}: expected members first, (S, N, K); write np.swapaxes({name}, 0, 1)")
    if len(shape) == 2 and shape[1 - axis] == truth.rows:
        expected = "members first, (S, N)" if members else "rows first, (N, K)"
        raise Misuse(f"{said}: expected {expected}; write {name}.T")
    raise Misuse(f"{said}: expected as many")
