"""Which rows train, which validate, which test: seeded, and stratified where there are classes."""

import numpy as np

from murmuration.errors import Misuse

VAL_SHARE, TEST_SHARE = 0.1, 0.2  # the rest trains
FEWEST_ROWS = 3  # one for each split

Rows = np.ndarray  # (n,) int64, sorted


def spread(count: int, held: int) -> np.ndarray:
    """A mask (count,) with exactly `held` places, as evenly spaced as whole numbers allow.

    Place i is taken when floor((i+1) h/n) > floor(i h/n) (systematic sampling), so that every run of L
    places holds L h/n of them, give or take one.

    >>> spread(6, 2).astype(int).tolist()
    [0, 0, 1, 0, 0, 1]
    """
    steps = np.arange(count + 1) * held // max(count, 1)
    return steps[1:] > steps[:-1]


def holdable(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows (P,) that may leave the training set, class by class, shuffled within each class.

    The first row of every class is missing: it stays in training, however small the class.
    """
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    first = np.r_[True, labels[order][1:] != labels[order][:-1]]
    return order[~first]


def hold_out(labels: np.ndarray, share: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Rows kept and rows held out, about `share` of them (at least one), stratified by labels (N,)."""
    pool = holdable(labels, rng)
    wanted = max(1, round(share * len(labels)))
    if len(pool) == 0:
        raise too_few(labels, needed=1)
    held = np.sort(pool[spread(len(pool), min(wanted, len(pool)))])
    return np.setdiff1d(np.arange(len(labels)), held), held


def three_ways(labels: np.ndarray, rng: np.random.Generator) -> tuple[Rows, Rows, Rows]:
    """Rows of train, validation and test: 70, 10 and 20 % of labels (N,), stratified.

    Every class keeps at least one row in training; for regression give the same label to every row.
    """
    count = len(labels)
    pool = holdable(labels, rng)
    if len(pool) < 2:
        raise too_few(labels, needed=2)
    wanted = max(1, round(VAL_SHARE * count)) + max(1, round(TEST_SHARE * count))
    held = pool[spread(len(pool), min(wanted, len(pool)))]
    is_val = spread(len(held), max(1, round(len(held) * VAL_SHARE / (VAL_SHARE + TEST_SHARE))))
    train = np.setdiff1d(np.arange(count), held)
    return train, np.sort(held[is_val]), np.sort(held[~is_val])


def too_few(labels: np.ndarray, needed: int) -> Misuse:
    """The error for a set that cannot be split without emptying a class in training."""
    classes = len(np.unique(labels))
    return Misuse(
        f"{len(labels)} rows in {classes} classes are too few to split:"
        f" expected at least {classes + needed}, so that each class can train and some rows are left over"
    )


def split_rows(parts: dict[str, np.ndarray], seed: int) -> dict[str, tuple[str, Rows]]:
    """Where each split comes from: {"train" | "val" | "test": (name of the part, its rows)}.

    `parts` holds the labels (N,) of each part of the source. A part that the source names itself is kept
    whole; what it lacks is held out of its training part (10 % to validate, 20 % to test).
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x5EED]))
    if "all" in parts:
        train, val, test = three_ways(parts["all"], rng)
        return {"train": ("all", train), "val": ("all", val), "test": ("all", test)}
    if "train" not in parts:
        raise Misuse(f"the source has only the parts {', '.join(parts)}: expected a training part")
    found = {name: (name, np.arange(len(labels))) for name, labels in parts.items()}
    for name, share in (("test", TEST_SHARE), ("val", VAL_SHARE)):
        if name not in parts:
            rows = found["train"][1]
            kept, held = hold_out(parts["train"][rows], share, rng)
            found |= {"train": ("train", rows[kept]), name: ("train", rows[held])}
    return found
