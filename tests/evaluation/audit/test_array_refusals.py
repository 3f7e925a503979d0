"""Archives that hold no predictions: one line that says what is wrong, where, and what to write instead."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prediction_files import refusal

HALF = np.full((4, 2), 0.5)
Y = [0, 1, 1, 0]


def changed(values: Any, place: Any, value: float) -> np.ndarray:
    out = np.array(values, dtype=float)
    out[place] = value
    return out


ARRAYS = {
    "sum": (
        {"probs": HALF * 1.2, "y": Y},
        r"probs\[0\] sums to 1.2: expected probabilities that sum to 1; divide each row",
    ),
    "member": (
        {"probs": changed(np.full((3, 4, 2), 0.5), (2, 1, 0), 0.9), "y": Y},
        r"probs\[2, 1\] sums to 1.4: expected probabilities that sum to 1; divide each row by its sum",
    ),
    "per-cent": ({"probs": HALF * 100, "y": Y}, r"probs\[0\] sums to 100: .* per cent, divide them by 100"),
    "logits": (
        {"probs": HALF * 9, "y": Y},
        r"probs\[0\] sums to 9: .*; if these are logits, write them under the name logits",
    ),
    "negative": (
        {"probs": changed(HALF, (1, 1), -0.3), "y": Y},
        r"probs\[1, 1\] is -0.3: expected 0 to 1; if these are logits, write them under the name logits",
    ),
    "nan": ({"probs": changed(HALF, (3, 0), np.nan), "y": Y}, r"probs\[3, 0\] is nan: expected 0 to 1$"),
    "infinite": ({"probs": changed(HALF, (3, 0), np.inf), "y": Y}, r"probs\[3, 0\] is inf: expected 0 to 1$"),
    "binary": ({"probs": [0.1, 1.5, 0.2, 0.3], "y": Y}, r"probs\[1\] is 1.5: expected 0 to 1; if these are logits"),
    "logit": (
        {"logits": changed(HALF, (2, 1), -np.inf), "y": Y},
        r"logits\[2, 1\] is -inf: expected a finite number; write the logarithm of zero as -700",
    ),
    "no-labels": (
        {"probs": HALF, "extra": Y},
        r"no labels: expected an array label, .*a file of them, labels=FILE; found probs, extra",
    ),
    "two-labels": ({"probs": HALF, "y": Y, "label": Y}, r"arrays label and y could both be the labels: say which"),
    "range": ({"probs": HALF, "y": [0, 1, 2, 0]}, r"label '2' \(row 3\) of array y: expected 0 to 1 for 2 classes"),
    "negative-label": ({"probs": HALF, "y": [0, -1, 1, 0]}, r"label '-1' \(row 2\) of array y: expected 0 to 1"),
    "fraction": ({"probs": HALF, "y": [0, 0.5, 1, 0]}, r"label '0.5' \(row 2\) of array y: expected 0 to 1"),
    "missing-label": ({"probs": HALF, "y": [0, np.nan, 1, 0]}, r"array y is missing in 1 of 4 rows \(row 2\)"),
    "unnamed": ({"probs": HALF, "y": ["a", "b", "b", "a"]}, r"label 'a' \(row 1\) .* or an array names that names"),
    "unknown": (
        {"probs": HALF, "names": ["cat", "dog"], "y": ["cat", "dgo", "dog", "cat"]},
        r"label 'dgo' \(row 2\) of array y is not among the classes: did you mean 'dog'\? Known: cat, dog",
    ),
    "one-hot": (
        {"probs": HALF, "y": np.eye(2)[Y]},
        r"array y of shape \(4, 2\): expected one label a row; write y.argmax",
    ),
    "names": (
        {"probs": HALF, "names": ["a", "b", "c"], "y": Y},
        r"3 names \(a, b, c\) for probabilities of 2 classes: expected as many",
    ),
    "names-twice": ({"probs": HALF, "names": ["a", "a"], "y": Y}, r"array names has 'a' twice: expected every class"),
    "rows": (
        {"probs": np.full((100, 2), 0.5), "y": np.zeros(90, int)},
        r"array probs of shape \(100, 2\) is for 100 rows, but array y has 90: expected as many",
    ),
    "members-second": (
        {"probs": np.full((4, 3, 2), 0.5), "y": Y},
        r"array probs of shape \(4, 3, 2\) is for 3 rows, but array y has 4: expected members first, \(S, N, K\); "
        r"write np.swapaxes\(probs, 0, 1\)",
    ),
    "transposed": (
        {"probs": HALF.T, "y": Y},
        r"array probs of shape \(2, 4\) .*: expected rows first, \(N, K\); write probs.T",
    ),
    "samples-second": (
        {"samples": np.ones((4, 3)), "y": Y},
        r"array samples of shape .*: expected members first, \(S, N\); write samples.T",
    ),
    "axes": (
        {"probs": np.ones((1, 1, 4, 2)), "y": Y},
        r"array probs of shape \(1, 1, 4, 2\): expected \(N,\), \(N, K\) or",
    ),
    "no-rows": ({"probs": np.ones((0, 2)), "y": []}, r"array y of shape \(0,\): expected at least one row"),
    "one-class": (
        {"probs": np.ones((4, 1)), "y": [0, 0, 0, 0]},
        r"array probs of shape \(4, 1\) has only one class: expected two or more; .* write probs\[..., 0\]",
    ),
    "texts": ({"probs": [["a", "b"]] * 4, "y": Y}, r"array probs holds texts: expected numbers"),
    "complex": ({"probs": HALF + 1j, "y": Y}, r"array probs holds complex numbers: expected numbers"),
    "objects": ({"probs": HALF.astype(object), "y": Y}, r"array probs holds Python objects: expected numbers or texts"),
    "object-labels": (
        {"probs": HALF, "y": np.array(["a", 1, 1, 0], object)},
        r"array y holds Python objects: expected",
    ),
    "nothing": ({"y": Y, "scores": Y}, r"no predictions: expected probs or logits .*; found scores"),
    "both": (
        {"probs": HALF, "mean": [1.0] * 4, "std": 1.0, "y": Y},
        r"arrays probs and mean: expected one of both; say which, task=TASK",
    ),
    "no-std": (
        {"mean": [1.0, 2, 3, 4], "y": Y},
        r"array mean but no std or var: expected both; without one write the standard deviation of the errors",
    ),
    "no-member-std": (
        {"member_mean": np.ones((2, 4)), "std": 1.0, "y": Y},
        r"array member_mean but no member_std: expected",
    ),
    "std-zero": (
        {"mean": [1.0, 2, 3, 4], "std": [1.0, 1, 0, 1], "y": Y},
        r"std\[2\] is 0: expected a positive standard deviation of the prediction's error; without one take",
    ),
    "var-negative": ({"mean": [1.0, 2, 3, 4], "var": [1.0, -1, 1, 1], "y": Y}, r"var\[1\] is -1: .* positive variance"),
    "one-std": (
        {"mean": [1.0, 2, 3, 4], "std": -1.0, "y": Y},
        r"the standard deviation or variance of all rows is -1: expected a positive",
    ),
    "mean-nan": ({"mean": [1.0, 2, np.nan, 4], "std": 1.0, "y": Y}, r"mean\[2\] is nan: expected a finite number"),
    "std-shape": (
        {"mean": np.ones((4, 2)), "std": np.ones(4), "y": np.ones((4, 2))},
        r"mean is \(S, N, K\) = \(1, 4, 2\) but std \(1, 4, 1\): expected as many of each, or one number for all",
    ),
    "targets": (
        {"mean": np.ones((4, 2)), "std": 1.0, "y": Y},
        r"array y has 1 targets but 2 are predicted: expected as",
    ),
    "text-target": (
        {"mean": np.ones(4), "std": 1.0, "y": ["1", "2", "x", "3"]},
        r"array y holds 'x' in row 3: expected a number for a regression",
    ),
    "infinite-target": (
        {"mean": np.ones(4), "std": 1.0, "y": [1, 2, np.inf, 3]},
        r"array y is infinite in row 3: expected",
    ),
    "one-sample": ({"samples": np.ones((1, 4)), "y": Y}, r"samples has one draw of y a row: expected several, or mean"),
    "same-samples": (
        {"samples": changed(np.arange(12).reshape(3, 4), (slice(None), 1), 0.1), "y": Y},
        r"all 3 samples of row 2 are 0.1: expected draws of y that differ; add the noise",
    ),
    "sample-nan": (
        {"samples": changed(np.ones((3, 4)), (1, 2), np.nan), "y": Y},
        r"samples\[1, 2\] is nan: expected a finite",
    ),
    "group-shape": (
        {"probs": HALF, "y": Y, "group": ["a", "b"]},
        r"array group of shape \(2,\) for the groups: expected \(4,\)",
    ),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays(tmp_path: Path, case: str) -> None:
    arrays, message = ARRAYS[case]
    np.savez(tmp_path / "x.npz", **arrays)
    assert re.match(message, refusal(tmp_path / "x.npz"))
