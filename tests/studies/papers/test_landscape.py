"""The reproduction of the loss-landscape paper: claims from records, and a small run of the whole."""

import json
from pathlib import Path

import numpy as np
import pytest
from check_report import report_check

import murmuration
from murmuration.studies.papers import reproduce
from murmuration.studies.papers.landscape.chains import Chains
from murmuration.studies.papers.landscape.claims import QUESTIONS, claims, off_diagonal
from murmuration.studies.papers.landscape.settings import PARTS, Setting
from murmuration.system.errors import Misuse


def silent(text, done, total):
    pass


def matrix(size: int, value: float, diagonal: float) -> list[list[float]]:
    return np.where(np.eye(size), diagonal, value).tolist()


def similarity(between: float, within: float) -> dict:
    """Members with a cosine and disagreement `between`, late checkpoints `within`."""
    path = {"cosine": matrix(12, 0.95, 1), "disagreement": matrix(12, within, 0)}
    return {"members": {"cosine": matrix(3, 0.02, 1), "disagreement": matrix(3, between, 0)}, "path of member 0": path}


def verdict_of(parts: dict, name: str) -> str:
    return next(each.verdict for each in claims(parts) if each.name == name)


def test_a_part_that_was_not_run_is_said_so():
    assert {each.verdict for each in claims({})} == {"not run"}
    assert {each.part for each in QUESTIONS} == set(PARTS)


def test_every_claim_is_one_that_an_analysis_makes():
    folder = Path(murmuration.__file__).parent
    sources = [*(folder / "studies").glob("*.py"), folder / "studies" / "papers" / "landscape" / "chains.py"]
    made = " ".join(path.read_text() for path in sources).replace("{path.name}", "tunnel")
    used = [question.judge for question in QUESTIONS if isinstance(question.judge, str)]
    assert len(used) == 16
    assert [claim for claim in used if f'"{claim}"' not in made] == []


def test_disagreement_of_runs_must_be_twice_that_of_checkpoints():
    assert verdict_of({"similarity": similarity(0.3, 0.15)}, "different functions") == "holds"
    assert verdict_of({"similarity": similarity(0.29, 0.15)}, "different functions") == "does not hold"
    assert verdict_of({"similarity": similarity(0.3, 0.15)}, "orthogonal") == "holds"


def test_divergences_on_ood_inputs_must_be_in_the_published_order():
    def part(**values: float) -> dict:
        known = {
            group: [{"ood": False, "value": 9.0}, {"ood": True, "value": value}] for group, value in values.items()
        }
        return {"sizes": {"divergences": known, "verdicts": []}}

    published = {"independent": 0.384, "trajectory": 0.153, "random": 0.155, "pca": 0.087, "diagonal": 0.034}
    assert verdict_of(part(**published), "out of distribution") == "holds"
    assert verdict_of(part(**published | {"pca": 0.16}), "out of distribution") == "does not hold"
    assert verdict_of(part(independent=0.3), "out of distribution") == "not run"


def test_several_verdicts_of_one_claim_must_all_hold():
    def part(*holds: bool) -> dict:
        return {
            "plane": {"verdicts": [{"claim": "radial movement outward", "holds": h, "sentence": "a."} for h in holds]}
        }

    assert verdict_of(part(True, True), "radial") == "holds"
    assert verdict_of(part(True, False), "radial") == "does not hold"


def test_mean_of_the_last_rows_without_the_diagonal():
    values = np.arange(16.0).reshape(4, 4)
    values = (values + values.T) / 2
    assert off_diagonal(values, 2) == values[2, 3]
    assert off_diagonal(values) == pytest.approx((values.sum() - np.trace(values)) / 12)


def test_pairs_of_chains_and_of_cycles():
    diversity = np.zeros((3, 2, 3, 2))
    for r in range(3):
        for s in range(3):
            for a in range(2):
                for b in range(2):
                    diversity[r, a, s, b] = 1.0 if r != s else 0.25 * (a != b)
    chains = Chains(diversity, np.full((3, 2), 0.8))
    assert chains.pairs == {"independent chains": [1.0] * 6, "cycles of one chain": [0.25] * 3}
    assert chains.difference() == 0.75
    assert chains.interval() == (0.75, 0.75)  # all chains alike
    assert chains.verdicts[0].holds


SMALL = {"data": "two-moons", "prepare": "standardise", "epochs": 4, "net": "mlp", "members": 2, "examples": 40}


def test_a_small_reproduction_continues_and_judges(tmp_path):
    request = SMALL | {"parts": ("similarity", "chains")}
    outcome = reproduce("landscape", request, tmp_path / "lab", silent, "murmur reproduce landscape")
    (tmp_path / "page.html").write_text(outcome.page)
    assert report_check(tmp_path / "page.html") == []
    record = json.loads((tmp_path / "lab" / "record.json").read_text())
    assert set(record["parts"]) == {"similarity", "chains"}
    assert {each["verdict"] for each in record["claims"] if each["name"] in ("orthogonal", "chains")} <= {
        "holds",
        "does not hold",
    }
    again = reproduce("landscape", SMALL | {"parts": ("similarity",)}, tmp_path / "lab", silent, "")
    assert again.record["parts"]["similarity"] == record["parts"]["similarity"]
    assert "chains" in again.record["parts"]  # what is there stays
    with pytest.raises(Misuse, match="made with epochs=4, not 5"):
        reproduce("landscape", SMALL | {"epochs": 5}, tmp_path / "lab", silent, "")


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"parts": ("planes",)}, "unknown part 'planes'"),
        ({"members": 1}, "members=1"),
        ({"widths": (1.0,)}, "--widths .*: this experiment does not use it; it takes --data"),
        ({"data": "diabetes", "prepare": "standardise"}, "is a regression"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, request_, told):
    with pytest.raises(Misuse, match=told):
        reproduce("landscape", request_, tmp_path / "lab", silent, "")


def test_the_plan_is_the_papers():
    plan = Setting().plan()
    assert (plan.epochs, plan.batch_size, plan.lr, plan.schedule) == (40, 128, 1.6e-3, "halve:10")
