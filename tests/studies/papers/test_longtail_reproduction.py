"""The reproduction of long-tailed recognition: a small run, and verdicts on cells made by hand."""

from typing import Any

import numpy as np
import pytest
from check_report import report_check

from murmuration.studies.papers import reproduce
from murmuration.studies.papers.longtail.reproduce import accuracies, class_weights, score_rows, verdicts
from murmuration.studies.papers.longtail.settings import ROWS, Setting
from murmuration.studies.papers.record import hexadecimal
from murmuration.system.errors import Misuse

SMALL = {"epochs": 1, "seeds": (0,), "examples": 50}


def silent(text: str, done: int, total: int) -> None:
    pass


def test_a_small_run_is_continued_by_more_methods(tmp_path):
    first = reproduce("longtail", SMALL | {"methods": ("cross-entropy",)}, tmp_path / "x", silent, "")
    assert {verdict["verdict"] for verdict in first.record["verdicts"]} == {"not run"}
    whole = reproduce("longtail", SMALL, tmp_path / "x", silent, "murmur reproduce longtail")
    assert [cell["row"] for cell in whole.record["cells"]] == list(ROWS)
    assert whole.record["cells"][0] == first.record["cells"][0]
    (tmp_path / "page.html").write_text(whole.page)
    assert report_check(tmp_path / "page.html") == []
    counts = sorted(whole.record["data"]["counts"])
    assert counts[-1] == pytest.approx(20 * counts[0], rel=0.2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"methods": ("ldam",)}, "unknown method 'ldam': did you mean 'ldam-drw'"),
        ({"data": "diabetes"}, "imbalance"),
        ({"seeds": ()}, "at least one"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, options, words):
    with pytest.raises(Misuse, match=words):
        reproduce("longtail", SMALL | options, tmp_path / "x", silent, "")


def test_the_weighted_mean_is_the_mean_over_classes():
    rng = np.random.default_rng(0)
    label, right = rng.integers(0, 3, 90), rng.random(90) < 0.6
    expected = np.mean([right[label == c].mean() for c in range(3)])
    assert float((class_weights(label, np.arange(3)) * right).mean()) == pytest.approx(expected)


def record(gain: float) -> dict[str, Any]:
    """Four seeds on 1,000 examples of five classes; every approach gains the same number of right answers."""
    label = np.arange(1000) % 5
    data = {"name": "made", "labels": label.tolist(), "rare": [3, 4], "counts": [9, 8, 7, 2, 1]}
    cells = []
    for name in ROWS:
        for seed in range(4):
            share = 0.5 if name == "cross-entropy" else 0.5 + gain
            right = (np.arange(1000) // 5) < round(200 * share)
            cells.append({"row": name, "seed": seed, "nll": 0.5, "correct": hexadecimal(right), "cpu_seconds": 1.0})
    return {"data": data, "cells": cells, "versions": {}}


def test_verdicts_follow_the_record():
    assert [verdict.word for verdict in verdicts(record(0.3))] == ["holds"] * 3
    assert [verdict.word for verdict in verdicts(record(-0.3))] == ["does not hold"] * 3
    assert [verdict.word for verdict in verdicts(record(0.0))] == ["cannot tell"] * 3
    made = record(0.3)
    assert float(accuracies(made, "balanced", "rare")[0].mean()) == pytest.approx(0.8)
    assert dict(score_rows(made, Setting()))["balanced"][0] == "80.0 ± 0.0"
