"""The reproduction of Bayesian CNNs: a small run of all parts, and verdicts on cells made by hand."""

from typing import Any

import numpy as np
import pytest
from check_report import report_check

from murmuration.models.nets import build_net
from murmuration.reports.formatting import MISSING
from murmuration.studies.papers import reproduce
from murmuration.studies.papers.bayes_cnn.page import accuracy_rows
from murmuration.studies.papers.bayes_cnn.published import WORK
from murmuration.studies.papers.bayes_cnn.reproduce import L1, verdicts
from murmuration.studies.papers.bayes_cnn.settings import PROFILES, ROWS, Setting
from murmuration.system.errors import Misuse

SMALL = {"train": 128, "examples": 60, "epochs": 2, "seeds": (0,), "methods": ("bayes", "point")}


def silent(text: str, done: int, total: int) -> None:
    pass


def test_a_small_run_of_all_parts_is_continued(tmp_path):
    outcome = reproduce("bayes-cnn", SMALL | {"parts": ("accuracy",)}, tmp_path / "x", silent, "")
    assert [cell["row"] for cell in outcome.record["cells"]] == ["bayes", "point"]
    whole = reproduce("bayes-cnn", SMALL, tmp_path / "x", silent, "murmur reproduce bayes-cnn")
    assert whole.record["cells"][:2] == outcome.record["cells"]
    assert {cell["part"] for cell in whole.record["cells"]} == {"accuracy", "pruning", "uncertainty"}
    words = {verdict["name"]: verdict["verdict"] for verdict in whole.record["verdicts"]}
    assert (words["B2"], words["B3"]) == ("not run", "not run")
    (tmp_path / "page.html").write_text(whole.page)
    assert report_check(tmp_path / "page.html") == []
    path = next(cell["path"] for cell in whole.record["cells"] if cell["part"] == "uncertainty")
    assert path["epoch"] == [0.0, 1.0, 2.0]
    with pytest.raises(Misuse, match="made with epochs=2, not 3"):
        reproduce("bayes-cnn", SMALL | {"epochs": 3}, tmp_path / "x", silent, "")


def test_the_published_scale_starts_with_its_flags(tmp_path):
    options = SMALL | {"profile": "paper", "data": "digits", "parts": ("accuracy",), "methods": ("bayes-half",)}
    options |= {"device": "cpu", "train": 256, "epochs": 2}
    outcome = reproduce("bayes-cnn", options, tmp_path / "x", silent, "")
    assert outcome.record["setting"]["augment"] == ["pad-crop", "flip"]
    assert PROFILES["paper"].epochs == 100


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"methods": ("bayess",)}, "unknown method 'bayess': did you mean 'bayes'"),
        ({"data": "two-moons"}, "expected images with classes"),
        ({"seeds": (0, 0)}, "each once"),
        ({"epochs": 1}, "epochs=1: expected a whole number, at least 2"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, options, words):
    with pytest.raises(Misuse, match=words):
        reproduce("bayes-cnn", SMALL | options, tmp_path / "x", silent, "")


def test_half_networks_have_half_of_each_width():
    half = build_net("lenet5-half", (1, 28, 28), 10)
    sizes = [(3, 1, 5), (8, 3, 5)]
    convolutions = sum(out * (into * side * side + 1) for out, into, side in sizes)
    dense = 25 * 8 * 60 + 60 + 60 * 42 + 42 + 42 * 10 + 10
    assert sum(p.numel() for p in half.parameters()) == convolutions + dense


def test_published_numbers_stand_beside_their_data():
    number = WORK.number("accuracy", "point", "CIFAR-10")
    assert number is not None
    assert number.value == 68
    assert Setting(data="x/cifar-10-batches-bin").published_data == "CIFAR-10"
    assert ROWS["bayes-literal"].weights == "gaussian:beta=1,prior=gaussian_0.1,samples=2,init_std_ratio=1"


def cells(gain: float, pruned: float, removed: float, change: float) -> list[dict[str, Any]]:
    """Three runs on 800 examples: `gain` and `pruned` are differences of accuracy to the row bayes."""
    rng, made = np.random.default_rng(0), []

    def correct(accuracy: float) -> str:
        right = np.arange(800) < round(800 * accuracy)
        return np.packbits(right).tobytes().hex()

    for seed in range(3):
        rows = {"bayes": 0.9, "point": 0.9 - gain, "bayes-softplus": 0.9, "point-softplus": 0.9 - gain}
        rows["bayes-half"] = 0.9 - gain
        for row, accuracy in rows.items():
            scores = {"accuracy": accuracy, "nll": 0.3, "aleatoric": 0.1, "epistemic": 0.01, "parameters": 5}
            entry = {"part": "accuracy", "row": row, "seed": seed, "correct": correct(accuracy), "cpu_seconds": 1.0}
            made.append(entry | scores)
        pruning = {"part": "pruning", "row": L1, "seed": seed, "correct": correct(0.9 + pruned), "removed": removed}
        made.append(pruning)
        changes = {kind: (change + rng.normal(0, 0.01, 800)).tolist() for kind in ("aleatoric", "epistemic")}
        made.append({"part": "uncertainty", "row": "bayes", "seed": seed, "changes": changes})
    return made


def test_verdicts_follow_the_cells():
    words = [verdict.word for verdict in verdicts(cells(0.0, 0.0, 0.8, -0.1), 800)]
    assert words == ["holds"] * 5
    wrong = [verdict.word for verdict in verdicts(cells(0.3, -0.3, 0.1, 0.1), 800)]
    assert wrong == ["does not hold"] * 5
    assert [verdict.word for verdict in verdicts([], 800)] == ["not run"] * 5
    rows = dict(accuracy_rows(cells(0.0, 0.0, 0.8, -0.1), Setting()))
    assert rows["bayes"][:2] == ["90.0 ± 0.0", MISSING]


def test_bits_beyond_the_examples_do_not_count():
    """100 examples are stored as 104 bits: the difference is that of the accuracies of 100."""
    made = []
    for seed in range(3):
        for row, right in (("bayes", 40), ("point", 72)):
            correct = np.packbits(np.arange(100) < right).tobytes().hex()
            made.append({"part": "accuracy", "row": row, "seed": seed, "correct": correct})
    assert verdicts(made, 100)[0].estimates[0].value == pytest.approx(-0.32)
    assert verdicts(made[:2], 100)[0].word == "cannot tell"  # one seed has no interval
