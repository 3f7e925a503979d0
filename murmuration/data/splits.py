"""Splits: the rows that train, validate and test: stratified by class, by groups, by time, or as the caller says."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.data.numpy_arrays import as_array
from murmuration.system.errors import Misuse, first_line, listed

VAL_FRACTION, TEST_FRACTION = 0.1, 0.2  # the rest trains
FEWEST_ROWS = 3  # one for each split

Rows = np.ndarray  # (n,) int64, sorted


def evenly_spaced(count: int, selected: int) -> np.ndarray:
    """Return a mask (count,) with exactly `selected` entries set, as evenly spaced as possible (systematic sampling).

    Entry i is set if floor((i+1) h/n) > floor(i h/n), so that any L consecutive entries have L h/n set, give or take
    one.

    >>> evenly_spaced(6, 2).astype(int).tolist()
    [0, 0, 1, 0, 0, 1]
    """
    steps = np.arange(count + 1) * selected // max(count, 1)
    return steps[1:] > steps[:-1]


def removable_rows(labels: np.ndarray, rng: np.random.Generator, needed: int) -> np.ndarray:
    """Return the rows (P,) that may leave the training set, sorted by class and shuffled within each class.

    One row of every class is missing: it stays in training, however small the class. Fewer than `needed` are refused.
    """
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    pool = order[~np.r_[True, labels[order][1:] != labels[order][:-1]]]
    if len(pool) < needed:
        classes = len(np.unique(labels))
        expected = f"at least {classes + needed}, so that every class has a training row and some rows are left"
        raise Misuse(f"{len(labels)} rows in {classes} classes are too few to split: expected {expected}")
    return pool


def hold_out(labels: np.ndarray, fraction: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Hold out about `fraction` of the rows (at least one), stratified by labels (N,); return (kept, held out)."""
    pool = removable_rows(labels, rng, needed=1)
    count = max(1, round(fraction * len(labels)))
    held_out = np.sort(pool[evenly_spaced(len(pool), min(count, len(pool)))])
    return np.setdiff1d(np.arange(len(labels)), held_out), held_out


def three_way_split(labels: np.ndarray, rng: np.random.Generator) -> tuple[Rows, Rows, Rows]:
    """Split labels (N,) into 70, 10 and 20 % of rows for train, validation and test, stratified.

    Every class keeps at least one row in training; for regression give the same label to every row.
    """
    count = len(labels)
    pool = removable_rows(labels, rng, needed=2)
    held_count = max(1, round(VAL_FRACTION * count)) + max(1, round(TEST_FRACTION * count))
    held_out = pool[evenly_spaced(len(pool), min(held_count, len(pool)))]
    is_val = evenly_spaced(len(held_out), max(1, round(len(held_out) * VAL_FRACTION / (VAL_FRACTION + TEST_FRACTION))))
    return np.setdiff1d(np.arange(count), held_out), np.sort(held_out[is_val]), np.sort(held_out[~is_val])


def split_rows(
    parts: dict[str, np.ndarray],
    seed: int,
    *,
    val: Any = None,
    test: Any = None,
    groups: np.ndarray | None = None,
    time: np.ndarray | None = None,
) -> dict[str, tuple[str, Rows]]:
    """Select the rows of each split.

    Args:
        parts: Labels (N,) of each part of the source. These parts are not split further, except that missing ones are
            held out of the training part.
        seed: Seed of the random selection.
        val: Validation rows: a share (0: none), indices, a mask, or a scikit-learn splitter, whose first fold is used;
            10 % by default.
        test: Test rows, like `val`; 20 % by default.
        groups: Groups (N,); rows of one group stay in one split.
        time: Times (N,); the latest rows test, those before them validate.

    Returns:
        {"train" | "val" | "test": (name of the part, rows of that part)}.

    Raises:
        Misuse: If rows cannot be held out as requested, or none are left to train on.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x5EED]))
    usual = val is None and test is None and groups is None and time is None
    if "all" in parts and usual:
        train, validation, last = three_way_split(parts["all"], rng)
        return {"train": ("all", train), "val": ("all", validation), "test": ("all", last)}
    base = "all" if "all" in parts else "train"
    if base not in parts:
        raise Misuse(f"the source has only the parts {', '.join(parts)}: expected a training part")
    labels = parts[base]
    splits = {("train" if name == base else name): (name, np.arange(len(y))) for name, y in parts.items()}
    if groups is not None and time is not None:
        raise Misuse("groups= and time=: rows cannot be split by both; give one of them")
    requests = [("test", TEST_FRACTION, test), ("val", VAL_FRACTION, val)]
    # rows that the caller names are held out before others are drawn
    for name, fraction, request in sorted(requests, key=lambda entry: entry[2] is None or np.isscalar(entry[2])):
        if name in parts:
            if request is not None:
                problem = f"{name}= for data that has a {name} part already, {len(parts[name]):,} examples"
                raise Misuse(f"{problem}: leave it out")
            continue
        rows = splits["train"][1]
        if usual:
            train_rows, held_out = hold_out(labels[rows], fraction, rng)
        else:
            inside = Candidates(rows, labels, groups, time, seed)
            train_rows, held_out = choose_rows(name, fraction if request is None else request, inside, rng)
        splits |= {"train": (base, rows[train_rows]), name: (base, rows[held_out])}
    if groups is not None:
        members = {name: set(groups[rows].tolist()) for name, (part, rows) in splits.items() if part == base}
        for name, other in itertools.combinations(members, 2):
            if shared := members[name] & members[other]:
                problem = f"{len(shared)} groups are in both {name} and {other}, such as {sorted(map(str, shared))[0]}"
                raise Misuse(f"{problem}: give a share, or a splitter that keeps groups together, such as GroupKFold")
    if not len(splits["train"][1]):
        raise Misuse("no rows are left to train on: hold out fewer")
    return splits


@dataclass(frozen=True)
class Candidates:
    """The rows that may be held out of a part, with labels, groups and times of all its rows."""

    rows: Rows
    labels: np.ndarray  # (N,)
    groups: np.ndarray | None  # (N,)
    time: np.ndarray | None  # (N,)
    seed: int


def choose_rows(name: str, request: Any, inside: Candidates, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Return the positions, among the candidate rows, of those kept and of those held out for a split."""
    rows, groups = inside.rows, inside.groups
    if callable(getattr(request, "split", None)) and not isinstance(request, np.ndarray):
        if inside.time is not None:
            raise Misuse(f"time= with a splitter as {name}=: give a share such as 0.2, the latest rows, or no time=")
        by_group = None if groups is None else groups[rows]
        try:
            train_rows, held_out = next(iter(request.split(np.zeros((len(rows), 1)), inside.labels[rows], by_group)))
        except (TypeError, ValueError) as error:
            needs_groups = groups is None and "group" in str(error)
            write = "; give groups=, a column's name or an array (N,)" if needs_groups else ""
            raise Misuse(f"{name}= cannot split the rows: {first_line(error).rstrip('.')}{write}") from None
        return np.sort(train_rows), np.sort(held_out)
    if isinstance(request, int | float) and not isinstance(request, bool):
        return hold_out_share(name, float(request), inside, rng)
    indices = as_array(request)
    if indices.dtype == bool and indices.ndim == 1:
        if len(indices) != len(inside.labels) or not indices.any():
            mask = f"{len(indices)} rows, {int(indices.sum())} of them chosen"
            raise Misuse(f"{name}= is a mask of {mask}: expected {len(inside.labels)}, some of them chosen")
        indices = np.flatnonzero(indices)
    if indices.ndim != 1 or indices.dtype.kind not in "iu" or not len(indices):
        expected = "a share such as 0.2, other data, indices or a mask of rows, or a scikit-learn splitter"
        raise Misuse(f"{name}= of type {type(request).__name__}: expected {expected}")
    if len(unknown := indices[~np.isin(indices, rows)]):
        rows_text = f"the rows {listed(map(str, unknown), most=5)}, which do not exist or are held out already"
        raise Misuse(f"{name}= names {rows_text}: expected indices 0 to {len(inside.labels) - 1}")
    distinct, counts = np.unique(indices, return_counts=True)
    if (counts > 1).any():
        raise Misuse(f"{name}= names row {distinct[counts > 1][0]} more than once: expected every index once")
    is_held = np.isin(rows, indices)
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def hold_out_share(name: str, share: float, inside: Candidates, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Hold out a share of all rows of a part, by groups or time if given; return positions (kept, held out)."""
    rows = inside.rows
    if not 0 <= share < 1:
        raise Misuse(f"{name}={share:g}: expected a share of the rows, at least 0 and below 1")
    places, count = np.arange(len(rows)), max(1, round(share * len(inside.labels)))
    if share == 0:
        return places, places[:0]
    if count >= len(rows):
        raise Misuse(f"{name}={share:g} of {len(inside.labels)} rows leaves none to train on: hold out fewer")
    if inside.time is not None:
        order = np.argsort(inside.time[rows], kind="stable")
        return np.sort(order[:-count]), np.sort(order[-count:])
    if inside.groups is not None:
        from sklearn.model_selection import GroupShuffleSplit

        splitter = GroupShuffleSplit(1, test_size=count / len(rows), random_state=inside.seed)
        try:
            train_rows, held_out = next(splitter.split(places, groups=inside.groups[rows]))
        except ValueError as error:
            raise Misuse(f"{name}={share:g}: {len(set(inside.groups[rows]))} groups are too few ({error})") from None
        return np.sort(train_rows), np.sort(held_out)
    return hold_out(inside.labels[rows], count / len(rows), rng)


# Long tails: classes of very different size, cut from balanced ones


def long_tail_counts(largest: int, classes: int, factor: float) -> list[int]:
    """Return the size of each class, from `largest` down to `largest` / `factor`: n_i = n_max factor^(-i / (C - 1)).

    >>> long_tail_counts(5000, 10, 100)
    [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    if not 1 <= factor < math.inf:
        raise Misuse(f"imbalance={factor:g}: expected the size of the largest class over the smallest, at least 1")
    if classes < 2:
        raise Misuse(f"imbalance={factor:g} of {classes} class: expected at least 2")
    return [int(largest * factor ** (-i / (classes - 1))) for i in range(classes)]


def long_tail_rows(labels: np.ndarray, classes: int, factor: float, seed: int) -> np.ndarray:
    """Select rows of labels (N,) that form a long tail: the first class has `factor` times the rows of the last.

    The first class gets as many rows as the smallest class has in `labels`. Rows are drawn at random by `seed` and
    class, and returned in order.
    """
    smallest = int(np.bincount(labels, minlength=classes).min())
    counts = long_tail_counts(smallest, classes, factor)
    if counts[-1] < 1:
        raise Misuse(f"imbalance={factor:g} of classes with {smallest} examples: expected at most {smallest}")
    rows = [
        np.random.default_rng((seed, label)).permutation(np.flatnonzero(labels == label))[:count]
        for label, count in enumerate(counts)
    ]
    return np.sort(np.concatenate(rows))
