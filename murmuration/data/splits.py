"""Splits: the rows that train, validate and test, by a seed and stratified by class."""

import numpy as np

from murmuration.errors import Misuse

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


def split_rows(parts: dict[str, np.ndarray], seed: int) -> dict[str, tuple[str, Rows]]:
    """The rows of each split: {"train" | "val" | "test": (name of the part, rows of that part)}.

    `parts` holds the labels (N,) of each part of the source. Parts of the source are kept whole; missing ones are held
    out of its training part (10 % to validate, 20 % to test).
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x5EED]))
    if "all" in parts:
        train, val, test = three_way_split(parts["all"], rng)
        return {"train": ("all", train), "val": ("all", val), "test": ("all", test)}
    if "train" not in parts:
        raise Misuse(f"the source has only the parts {', '.join(parts)}: expected a training part")
    found = {name: (name, np.arange(len(labels))) for name, labels in parts.items()}
    for name, fraction in (("test", TEST_FRACTION), ("val", VAL_FRACTION)):
        if name not in parts:
            rows = found["train"][1]
            kept, held = hold_out(parts["train"][rows], fraction, rng)
            found |= {"train": ("train", rows[kept]), name: ("train", rows[held])}
    return found
