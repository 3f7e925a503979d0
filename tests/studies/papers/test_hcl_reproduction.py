"""The reproduction of HCL: a small run, and verdicts on cells made by hand."""

from typing import Any

import pytest
from check_report import report_check

from murmuration.reports.formatting import MISSING
from murmuration.studies.papers import reproduce
from murmuration.studies.papers.hcl.published import WORK
from murmuration.studies.papers.hcl.reproduce import method_rows, verdicts
from murmuration.studies.papers.hcl.settings import RATE, ROWS, Setting
from murmuration.system.errors import Misuse


def silent(text: str, done: int, total: int) -> None:
    pass


SMALL = {"epochs": 1, "methods": ("hcl-fr", "lda"), "seeds": (0,), "train": 64, "parts": ("streams",)}


def test_a_small_run_is_continued_by_more_seeds(tmp_path):
    outcome = reproduce("hcl", SMALL, tmp_path / "x", silent, "murmur reproduce hcl")
    (tmp_path / "page.html").write_text(outcome.page)
    assert report_check(tmp_path / "page.html") == []
    assert [(cell["row"], cell["seed"]) for cell in outcome.record["cells"]] == [("hcl-fr", 0), ("lda", 0)]
    assert {verdict["verdict"] for verdict in outcome.record["verdicts"]} == {"not run"}
    again = reproduce("hcl", SMALL | {"seeds": (0, 1)}, tmp_path / "x", silent, "")
    assert again.record["cells"][:2] == outcome.record["cells"]
    assert len(again.record["cells"]) == 4
    with pytest.raises(Misuse, match="made with epochs=1, not 2"):
        reproduce("hcl", SMALL | {"epochs": 2}, tmp_path / "x", silent, "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"methods": ("hcl",)}, "unknown method 'hcl'"),
        ({"seeds": (-1,)}, "seeds=-1"),
        ({"net": "mlp"}, "--net mlp: this experiment does not use it; it takes --data"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, options, words):
    with pytest.raises(Misuse, match=words):
        reproduce("hcl", SMALL | options, tmp_path / "x", silent, "")
    assert not (tmp_path / "x").exists()


def test_the_published_form_has_random_means_and_its_rate():
    assert {name for name, row in ROWS.items() if row.published} == {"hcl-fr", "hcl-gr"}
    assert all(ROWS[name].means == "random" for name in ("hcl-fr", "hcl-gr"))
    assert Setting().of(ROWS["hcl-fr"], 0).lr == RATE
    assert Setting().of(ROWS["hcl-fr-lda"], 0).lr is None
    number = WORK.number("final accuracy", "hcl-fr", "Split-MNIST")
    assert number is not None
    assert number.value == 90.89


def cells(fr: float, gr: float, adam: float, *, misses: int = 0) -> list[dict[str, Any]]:
    """Scores of three seeds with a little noise."""
    made = []
    for seed, noise in enumerate((-0.01, 0.0, 0.01)):
        common = {"seed": seed, "task_id": None, "memory": 2**20, "cpu_seconds": 1.0}
        for row, final in {"hcl-fr": fr + noise, "hcl-gr": gr, "adam": adam}.items():
            made.append({**common, "part": "streams", "row": row, "final": final, "forgetting": 0.9 - final} | NONE)
        detection = {"changes": 5, "misses": misses, "false_alarms": misses}
        row = {"part": "detection", "row": "hcl-fr-lda", "final": 0.9, "forgetting": 0.0, "detection": detection}
        made.append({**common, **row})
    return made


NONE = {"detection": None}


def words(*args: Any, **options: Any) -> list[str]:
    return [verdict.word for verdict in verdicts(cells(*args, **options))]


def test_verdicts_follow_the_cells():
    assert words(0.9, 0.8, 0.2) == ["holds"] * 4
    assert words(0.2, 0.8, 0.9, misses=4) == ["does not hold"] * 4
    assert words(0.8, 0.8, 0.2) == ["holds", "cannot tell", "cannot tell", "holds"]
    assert [verdict.word for verdict in verdicts([])] == ["not run"] * 4


def test_published_numbers_stand_beside_their_stream_and_form_alone():
    own = dict(method_rows(cells(0.9, 0.8, 0.2), Setting(data="data/mnist")))
    assert (own["hcl-fr"][1], own["hcl-gr"][1], own["adam"][1]) == ("90.89", "84.65", MISSING)
    assert own["hcl-fr"][0] == "90.0 ± 2.5"
    elsewhere = dict(method_rows(cells(0.9, 0.8, 0.2), Setting()))
    assert elsewhere["hcl-fr"][1] == MISSING
