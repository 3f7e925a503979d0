"""Targets: the task they suggest, the order of classes, and what is refused."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from murmuration.data import open_data
from murmuration.data.targets import (
    as_values,
    class_list,
    encode_labels,
    infer_task,
    label_names,
    refuse_constant,
    refuse_free_text,
    refuse_many_classes,
    refuse_missing,
    refuse_texts_among_numbers,
)
from murmuration.sklearn import EnsembleClassifier
from murmuration.system.errors import Misuse


@pytest.mark.parametrize(
    ("targets", "images", "task"),
    [
        (np.array(["a", "b"] * 9, dtype=object), False, "classification"),
        (np.array([True, False] * 9), False, "classification"),
        (np.arange(30) % 2, False, "classification"),  # few integers, though more than 5 % of 30
        (np.arange(400) % 20, False, "classification"),  # 20 levels, 5 % of the rows
        (3 * (np.arange(400) % 21), False, "regression"),  # a level too many
        (3 * (np.arange(300) % 16), False, "regression"),  # more than 5 % of the rows and more than 10
        (np.arange(12), False, "regression"),  # every row its own value
        (np.arange(3000) % 100, True, "classification"),  # integers beside images are labels
        (np.array([0.0, 2.0] * 9), False, "regression"),  # floats are numbers
        (np.full((8, 2), 2), False, "regression"),
    ],
)
def test_inferred_task(targets: np.ndarray, images: bool, task: str) -> None:
    assert infer_task(targets, images) == task


def test_targets_that_could_mean_two_tasks_are_refused() -> None:
    with pytest.raises(Misuse, match=r"shape \(8, 2\) holds zeros and ones: write task='multi-label' for several"):
        infer_task(np.zeros((8, 2), dtype=np.int64), False)
    with pytest.raises(Misuse, match="holds the 30 whole numbers 0 to 29: write task='classification' if they are"):
        infer_task(np.arange(400) % 30, False)
    with pytest.raises(Misuse, match=r"shape \(8, 2\) holds zeros and ones"):
        infer_task(np.tile([0.0, 1.0], (8, 1)), False)
    with pytest.raises(Misuse, match=r"holds 0\.0 and 1\.0 as floats: write task='classification' if they are classes"):
        infer_task(np.array([0.0, 1.0] * 9), False)


def test_classes_are_sorted_by_value_or_alphabet() -> None:
    assert class_list([np.array([10, 9, 9])], None) == ("9", "10")
    assert class_list([np.array(["10", "9"], dtype=object)], None) == ("9", "10")
    assert class_list([np.array(["b", "a"]), np.array(["c"])], None) == ("a", "b", "c")
    assert class_list([np.array([1, 0])], ("z", "a", "never")) == ("z", "a", "never")
    assert class_list([np.array([False, True])], None) == ("False", "True")


def test_labels_become_indices_of_the_classes() -> None:
    y = encode_labels(np.array(["c", "a", "c"], dtype=object), None, ("a", "b", "c"))
    assert y.dtype == torch.int64
    assert y.tolist() == [2, 0, 2]
    assert encode_labels(np.array([1.0, 2.0]), None, ("2", "1")).tolist() == [1, 0]
    assert encode_labels(np.array([1, 0]), ("ant", "bee"), ("bee", "ant")).tolist() == [0, 1]
    assert encode_labels(np.array([[1], [0]]), None, ("0", "1")).tolist() == [1, 0]


def test_numbers_keep_their_units() -> None:
    assert as_values(np.array([1, 2]), "y").tolist() == [[1.0], [2.0]]
    assert as_values(np.array(["1.5", "-2"], dtype=object), "y").tolist() == [[1.5], [-2.0]]
    assert as_values(np.ones((3, 2)), "y").shape == (3, 2)


def test_misuse() -> None:
    with pytest.raises(Misuse, match=r"y is missing in 2 of 4 rows \(row 2, 4\): remove them"):
        refuse_missing(np.array(["a", None, "b", float("nan")], dtype=object), "y")
    with pytest.raises(Misuse, match=r"y is missing in 1 of 2 rows \(row 2\)"):
        refuse_missing(np.array([[1.0, 2.0], [np.nan, 0.0]]), "y")
    with pytest.raises(Misuse, match="every row has the label 'a': expected at least two classes"):
        class_list([np.array(["a", "a"])], None)
    with pytest.raises(Misuse, match=r"label 'zebra' \(row 2\) is not among the classes: expected ant, bee"):
        encode_labels(np.array(["ant", "zebra"], dtype=object), None, ("ant", "bee"))
    with pytest.raises(Misuse, match=r"label -1 has no name: expected 0 to 1"):
        encode_labels(np.array([0, -1]), ("ant", "bee"), ("ant", "bee"))
    with pytest.raises(Misuse, match=r"labels of shape \(2, 2\): expected one label a row"):
        encode_labels(np.zeros((2, 2)), None, ("0", "1"))
    with pytest.raises(Misuse, match="y holds 'tall' in row 2: expected a number for a regression"):
        as_values(np.array(["1", "tall"], dtype=object), "y")
    with pytest.raises(Misuse, match="y is infinite in row 2"):
        as_values(np.array([1.0, np.inf]), "y")
    with pytest.raises(Misuse, match=r"40 distinct texts in 40 rows \(such as '\?'\)"):
        refuse_free_text(np.array(["?", *map(str, range(39))], dtype=object), "y")
    with pytest.raises(Misuse, match="y is 2 in every row"):
        refuse_constant(torch.tensor([[1.0, 2.0], [3.0, 2.0]]), "y")


@pytest.mark.parametrize(("label", "text"), [(True, "True"), (1, "1"), (1.0, "1")])
def test_a_label_and_a_text_of_the_same_spelling_are_refused(label: object, text: str) -> None:
    rows = [label, text, "other"] * 8
    match = f"labels hold {text} and also the text '{text}'"
    for targets in (np.array(rows, dtype=object), rows):
        with pytest.raises(Misuse, match=match):
            open_data((np.arange(24.0)[:, None], targets), task="classification")
    with pytest.raises(Misuse, match=match):
        open_data(pd.DataFrame({"x": range(24), "y": rows}), target="y", task="classification")
    with pytest.raises(Misuse, match=match):
        EnsembleClassifier(members=1, epochs=1).fit(np.arange(24.0)[:, None], rows)


def test_equal_numbers_are_one_class_and_booleans_are_their_own() -> None:
    names, indices = label_names(np.array([1, 1.0, True, "a"], dtype=object), None)
    assert names == ["1", "True", "a"]
    assert indices.tolist() == [0, 0, 1, 2]
    with pytest.raises(Misuse, match="target is missing in 1 of 3 rows"):
        open_data((np.eye(3), ["a", float("nan"), "b"]))


@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan")])
def test_infinite_numbers_are_no_classes(bad: float) -> None:
    rows = np.array([0.0, 1.0, bad])
    for targets in (rows, rows.astype(object)):
        with pytest.raises(Misuse, match=r"label .*(inf|nan) in row 3"):
            label_names(targets, None)
    with pytest.raises(Misuse, match=r"label .*inf in row|missing in|infinite"):
        open_data((np.arange(24.0)[:, None], np.resize(rows, 24)), task="classification")
    with pytest.raises(Misuse, match=r"label .*inf in row|missing in|infinite"):
        open_data(pd.DataFrame({"x": range(24), "y": np.resize(rows, 24)}), target="y", task="classification")


def test_few_whole_numbers_are_noted_and_indices_of_classes_are_not() -> None:
    ratings, hours = np.arange(100) % 5 + 1, np.arange(100) % 22 + 7
    with pytest.warns(UserWarning, match="target holds 5 distinct whole numbers, 1 to 5: they are taken as 5 classes"):
        assert infer_task(ratings, images=False) == "classification"
    with pytest.warns(UserWarning, match="22 distinct whole numbers, 7 to 28: they are taken as quantities"):
        assert infer_task(hours, images=False) == "regression"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        infer_task(np.arange(100) % 5, images=False)
        infer_task(np.arange(100) % 2 * 2 - 1, images=False)
        infer_task(ratings, images=True)
        infer_task(np.arange(1000) * 7, images=False)


def test_too_many_numbers_are_no_classes() -> None:
    refuse_many_classes(np.arange(5000) % 500, "target")
    refuse_many_classes(np.arange(100), "target")
    refuse_many_classes(np.array([f"n{i}" for i in range(500)]), "target")
    with pytest.raises(Misuse, match=r"target has 501 distinct numbers in 5,000 rows: expected at most 500 classes"):
        refuse_many_classes(np.arange(5000) % 501 * 0.5, "target")


@pytest.mark.parametrize("labels", [["yes", 0], [0.5, "a"], [float("nan"), "a"]])
def test_texts_among_numbers_are_refused(labels) -> None:
    with pytest.raises(Misuse, match=r"labels hold the text '(yes|a)' and also .*, which is none: write"):
        refuse_texts_among_numbers(labels * 10)
    refuse_texts_among_numbers(["1", "a"])
    refuse_texts_among_numbers([True, 2])
