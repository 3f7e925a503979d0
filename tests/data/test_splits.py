"""Splits are partitions, stratified to within whole rows, and fixed by their seed."""

import numpy as np
import pytest

from murmuration.data.splits import evenly_spaced, hold_out, split_rows, three_way_split
from murmuration.system.errors import Misuse


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("count", "held"), [(10, 3), (7, 7), (7, 0), (1, 1), (1000, 333)])
def test_evenly_spaced_masks_have_exactly_so_many_entries(count: int, held: int) -> None:
    mask = evenly_spaced(count, held)
    assert mask.sum() == held
    for start in range(0, count, 5):
        run = mask[start : start + 5]
        assert abs(run.sum() - len(run) * held / count) < 1 + 1e-9


def test_three_way_split_is_a_partition_of_70_10_20() -> None:
    parts = three_way_split(np.zeros(1000), rng())
    assert [len(part) for part in parts] == [700, 100, 200]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(1000))


def test_each_class_has_its_share_in_each_split() -> None:
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    for part, share in zip(three_way_split(labels, rng()), (0.7, 0.1, 0.2), strict=True):
        counts = np.bincount(labels[part], minlength=3)
        # one row a class is pinned to training, and two roundings follow: at most three rows off
        assert np.abs(counts - share * np.array([600, 300, 100])).max() <= 3


def test_a_class_of_one_row_is_in_training_for_every_seed() -> None:
    labels = np.array([0] * 20 + [1] + [2] * 2)
    for seed in range(50):
        train, val, test = three_way_split(labels, rng(seed))
        assert set(labels[train]) == {0, 1, 2}
        assert len(val) >= 1
        assert len(test) >= 1


def test_every_row_is_held_out_equally_often() -> None:
    # 400 seeds: a row's share in test is 0.2 with standard error 0.02; five of them for 30 rows
    labels = np.zeros(30)
    counts = np.zeros(30)
    for seed in range(400):
        counts[three_way_split(labels, rng(seed))[2]] += 1
    assert np.abs(counts / 400 - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 400)


def test_smallest_sets() -> None:
    assert [len(part) for part in three_way_split(np.zeros(3), rng())] == [1, 1, 1]
    with pytest.raises(Misuse, match="3 rows in 2 classes are too few to split: expected at least 4"):
        three_way_split(np.array([0, 1, 1]), rng())
    with pytest.raises(Misuse, match="2 rows in 2 classes are too few"):
        hold_out(np.array([0, 1]), 0.1, rng())


def test_own_parts_are_kept_and_the_missing_taken_from_training() -> None:
    labels = {"train": np.arange(100) % 2, "test": np.arange(30) % 2}
    rows = split_rows(labels, seed=0)
    assert rows["test"][0] == "test"
    assert np.array_equal(rows["test"][1], np.arange(30))
    assert rows["val"][0] == rows["train"][0] == "train"
    assert len(rows["val"][1]) == 10
    assert np.array_equal(np.sort(np.r_[rows["train"][1], rows["val"][1]]), np.arange(100))


def test_validation_of_its_own_leaves_test_to_be_held_out() -> None:
    rows = split_rows({"train": np.arange(50) % 2, "val": np.arange(8) % 2}, seed=0)
    assert rows["val"][0] == "val"
    assert len(rows["test"][1]) == 10
    assert not set(rows["test"][1]) & set(rows["train"][1])


def test_seed_decides() -> None:
    labels = {"all": np.arange(60) % 3}
    first, again, other = (split_rows(labels, seed)["test"][1] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_training_part_is_needed() -> None:
    with pytest.raises(Misuse, match="only the parts test: expected a training part"):
        split_rows({"test": np.arange(5)}, seed=0)
