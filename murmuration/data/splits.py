"""Splits: the rows that train, validate and test, by a seed, stratified by class, or by groups, time or the caller."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.system.errors import Misuse, first_line, listed

VAL_FRACTION, TEST_FRACTION = 0.1, 0.2  # the rest trains
FEWEST_ROWS = 3  # one for each split

Rows = np.ndarray  # (n,) int64, sorted


def evenly_spaced(count: int, held: int) -> np.ndarray:
    """A mask (count,) with exactly `held` entries set, as evenly spaced as integers allow (systematic sampling).

    Entry i is set if floor((i+1) h/n) > floor(i h/n), so that any L consecutive entries have L h/n set, give or take
    one.

    >>> evenly_spaced(6, 2).astype(int).tolist()
    [0, 0, 1, 0, 0, 1]
    """
    steps = np.arange(count + 1) * held // max(count, 1)
    return steps[1:] > steps[:-1]


def removable_rows(labels: np.ndarray, rng: np.random.Generator, needed: int) -> np.ndarray:
    """Rows (P,) that may leave the training set, sorted by class and shuffled within each class.

    One row of every class is left out: it stays in training, however small the class. Fewer than `needed` are refused.
    """
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    first = np.r_[True, labels[order][1:] != labels[order][:-1]]
    pool = order[~first]
    if len(pool) < needed:
        classes = len(np.unique(labels))
        raise Misuse(
            f"{len(labels)} rows in {classes} classes are too few to split:"
            f" expected at least {classes + needed}, so that every class has a training row and some rows are left"
        )
    return pool


def hold_out(labels: np.ndarray, fraction: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Rows kept and rows held out, about `fraction` of them (at least one), stratified by labels (N,)."""
    pool = removable_rows(labels, rng, needed=1)
    wanted = max(1, round(fraction * len(labels)))
    held = np.sort(pool[evenly_spaced(len(pool), min(wanted, len(pool)))])
    return np.setdiff1d(np.arange(len(labels)), held), held


def three_way_split(labels: np.ndarray, rng: np.random.Generator) -> tuple[Rows, Rows, Rows]:
    """Rows of train, validation and test: 70, 10 and 20 % of labels (N,), stratified.

    Every class keeps at least one row in training; for regression give the same label to every row.
    """
    count = len(labels)
    pool = removable_rows(labels, rng, needed=2)
    wanted = max(1, round(VAL_FRACTION * count)) + max(1, round(TEST_FRACTION * count))
    held = pool[evenly_spaced(len(pool), min(wanted, len(pool)))]
    is_val = evenly_spaced(len(held), max(1, round(len(held) * VAL_FRACTION / (VAL_FRACTION + TEST_FRACTION))))
    train = np.setdiff1d(np.arange(count), held)
    return train, np.sort(held[is_val]), np.sort(held[~is_val])


def split_rows(
    parts: dict[str, np.ndarray],
    seed: int,
    *,
    val: Any = None,
    test: Any = None,
    groups: np.ndarray | None = None,
    time: np.ndarray | None = None,
) -> dict[str, tuple[str, Rows]]:
    """The rows of each split: {"train" | "val" | "test": (name of the part, rows of that part)}.

    `parts` holds the labels (N,) of each part of the source. Parts of the source are kept whole; missing ones are held
    out of its training part. `val` and `test` say which rows: a share of them (0: none), their indices, a mask, or a
    scikit-learn splitter, whose first fold is taken; by default 10 % validate and 20 % test. No value of `groups` (N,)
    stands in two splits, and with `time` (N,) the latest rows test and those before them validate.
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
    found = {name: (name, np.arange(len(y))) for name, y in parts.items() if name != "all"}
    found["train"] = (base, np.arange(len(labels)))
    if groups is not None and time is not None:
        raise Misuse("groups= and time=: rows cannot be split by both; give one of them")
    asked = [("test", TEST_FRACTION, test), ("val", VAL_FRACTION, val)]
    # rows that the caller names are held out before others are drawn
    for name, fraction, wanted in sorted(asked, key=lambda each: each[2] is None or np.isscalar(each[2])):
        if name in parts:
            if wanted is not None:
                raise Misuse(
                    f"{name}= for data that has a {name} part of its own, {len(parts[name]):,} examples: leave it out"
                )
            continue
        rows = found["train"][1]
        if usual:
            kept, held = hold_out(labels[rows], fraction, rng)
        else:
            inside = Candidates(rows, labels, groups, time, seed)
            kept, held = choose_rows(name, fraction if wanted is None else wanted, inside, rng)
        found |= {"train": (base, rows[kept]), name: (base, rows[held])}
    if groups is not None:
        refuse_shared_groups({name: groups[rows] for name, (part, rows) in found.items() if part == base})
    if not len(found["train"][1]):
        raise Misuse("no rows are left to train on: hold out fewer")
    return found


def refuse_shared_groups(splits: dict[str, np.ndarray]) -> None:
    """Refuse splits, each with the groups of its rows, in two of which a group stands."""
    for name, other in itertools.combinations(splits, 2):
        shared = set(splits[name].tolist()) & set(splits[other].tolist())
        if shared:
            raise Misuse(
                f"{len(shared)} groups stand in both {name} and {other}, such as {sorted(map(str, shared))[0]}: give a"
                " share, or a splitter that keeps groups together, such as GroupKFold"
            )


@dataclass(frozen=True)
class Candidates:
    """The rows that may be held out of a part, with labels, groups and times of the whole part."""

    rows: Rows
    labels: np.ndarray  # (N,)
    groups: np.ndarray | None  # (N,)
    time: np.ndarray | None  # (N,)
    seed: int


def choose_rows(name: str, wanted: Any, inside: Candidates, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Places of the rows kept and of those held out for a split, among the candidate rows."""
    rows, groups = inside.rows, inside.groups
    if callable(getattr(wanted, "split", None)) and not isinstance(wanted, np.ndarray):
        if inside.time is not None:
            raise Misuse(f"time= with a splitter as {name}=: give a share such as 0.2, the latest rows, or no time=")
        by_group = None if groups is None else groups[rows]
        try:
            kept, held = next(iter(wanted.split(np.zeros((len(rows), 1)), inside.labels[rows], by_group)))
        except (TypeError, ValueError) as error:
            groupless = groups is None and "group" in str(error)
            write = "; give groups=, a column's name or an array (N,)" if groupless else ""
            raise Misuse(f"{name}= cannot split the rows: {first_line(error).rstrip('.')}{write}") from None
        return np.sort(kept), np.sort(held)
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        return hold_out_share(name, float(wanted), inside, rng)
    chosen = np.asarray(wanted)
    if chosen.dtype == bool and chosen.ndim == 1:
        if len(chosen) != len(inside.labels) or not chosen.any():
            got = f"{len(chosen)} rows, {int(chosen.sum())} of them chosen"
            raise Misuse(f"{name}= is a mask of {got}: expected {len(inside.labels)}, some of them chosen")
        chosen = np.flatnonzero(chosen)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or not len(chosen):
        raise Misuse(
            f"{name}= of type {type(wanted).__name__}: expected a share such as 0.2, other data, indices or a mask of"
            " rows, or a scikit-learn splitter"
        )
    unknown = chosen[~np.isin(chosen, rows)]
    if len(unknown):
        raise Misuse(
            f"{name}= names the rows {listed(map(str, unknown), most=5)}, which do not exist or are held out already:"
            f" expected indices 0 to {len(inside.labels) - 1}"
        )
    found, counts = np.unique(chosen, return_counts=True)
    if (counts > 1).any():
        raise Misuse(f"{name}= names row {found[counts > 1][0]} more than once: expected every index once")
    is_held = np.isin(rows, chosen)
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def hold_out_share(name: str, share: float, inside: Candidates, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Places of the rows kept and of those held out: a share of the whole part, by groups or by time where given."""
    rows = inside.rows
    if not 0 <= share < 1:
        raise Misuse(f"{name}={share:g}: expected a share of the rows, at least 0 and below 1")
    places, wanted = np.arange(len(rows)), max(1, round(share * len(inside.labels)))
    if share == 0:
        return places, places[:0]
    if wanted >= len(rows):
        raise Misuse(f"{name}={share:g} of {len(inside.labels)} rows leaves none to train on: hold out fewer")
    if inside.time is not None:
        order = np.argsort(inside.time[rows], kind="stable")
        return np.sort(order[:-wanted]), np.sort(order[-wanted:])
    if inside.groups is not None:
        from sklearn.model_selection import GroupShuffleSplit

        splitter = GroupShuffleSplit(1, test_size=wanted / len(rows), random_state=inside.seed)
        try:
            kept, held = next(splitter.split(places, groups=inside.groups[rows]))
        except ValueError as error:
            raise Misuse(f"{name}={share:g}: {len(set(inside.groups[rows]))} groups are too few ({error})") from None
        return np.sort(kept), np.sort(held)
    return hold_out(inside.labels[rows], wanted / len(rows), rng)
