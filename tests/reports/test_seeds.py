"""Comparisons over several training seeds: t-intervals, paired differences, directories that continue."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from check_report import report_check
from scipy import stats

import murmuration as mm
from murmuration.cli import main
from murmuration.evaluation.metrics import PairedTest, Score, holm
from murmuration.reports import comparison, render
from murmuration.reports.findings import ONE_TRAINING, Difference
from murmuration.reports.seeds import SeedRun, Seeds, seeds_of, t_interval, t_test

SMALL = {"net": "mlp:hidden=4", "members": 2, "epochs": 1, "engine": "loop"}
RECIPES = ["single", "deep-ensemble"]


def planted(values: dict[str, list[float]]) -> Seeds:
    """Runs in which recipes have these NLLs by seed."""
    runs = []
    for seed in range(len(next(iter(values.values())))):
        scores = {name: {"nll": nlls[seed]} for name, nlls in values.items()}
        names = list(values)
        tests = [
            Difference(a, b, "lower", PairedTest("nll", exact(values[a][seed] - values[b][seed]), 1.0, ""), 10)
            for i, a in enumerate(names)
            for b in names[i + 1 :]
        ]
        runs.append(SeedRun(seed, scores, tuple(tests)))
    return seeds_of(runs, "classification")


def exact(value: float) -> Score:
    return Score(value, value - 1, value + 1)


def test_intervals_and_p_values_are_those_of_student() -> None:
    values = np.random.default_rng(0).normal(1.0, 1.0, 5)
    found = stats.ttest_1samp(values, 0.0)
    assert t_test(values.tolist()) == pytest.approx(found.pvalue)
    low, high = found.confidence_interval(0.95)
    score = t_interval(values.tolist())
    assert (float(score), score.low, score.high) == pytest.approx((values.mean(), low, high))


def test_differences_are_paired_by_seed_and_corrected_for_the_pairs() -> None:
    """Seeds differ by far more than recipes: unpaired, nothing could be told."""
    base = np.array([1.0, 3.0, 2.0, 5.0])
    noise = np.array([0.01, -0.01, 0.02, 0.0])
    values = {"a": base, "b": base + 0.5 + noise, "c": base + 0.51 - noise}
    found = planted({name: nlls.tolist() for name, nlls in values.items()})
    pairs = {(test.a, test.b): test for test in found.differences}
    raw = [stats.ttest_rel(values[a], values[b]).pvalue for a, b in pairs]
    assert [test.p_value for test in pairs.values()] == pytest.approx(holm(raw).tolist())
    assert float(pairs["a", "b"].difference) == pytest.approx(-0.505)
    assert not pairs["a", "b"].by_chance
    assert pairs["b", "c"].by_chance
    assert found.leader == "a"
    assert found.to_reference("nll", "a")["b"].low > 0
    (sentence,) = found.verdict
    assert sentence.startswith("Use a: over 4 training seeds its mean NLL is 0.505 lower than that of ")


def test_models_that_no_seed_changes_are_compared_over_examples() -> None:
    """Two baselines have one difference whatever the seed: a t-test would call it certain."""
    (test,) = planted({"ridge": [2.0, 2.0, 2.0], "trees": [2.1, 2.1, 2.1]}).differences
    assert (float(test.difference), test.difference.low, test.p_value) == pytest.approx((-0.1, -1.1, 1.0))


def test_a_lead_within_the_spread_of_the_seeds_is_no_winner() -> None:
    (sentence,) = planted({"a": [1.0, 3.0, 2.0], "b": [2.0, 2.0, 2.1]}).verdict
    assert sentence.startswith("No clear winner over 3 training seeds: a has the lowest mean NLL, but its lead over b ")


def test_two_seeds_are_cautioned_about_and_not_coloured() -> None:
    two, three = planted({"a": [1.0, 3.0], "b": [2.0, 4.01]}), planted({"a": [1.0, 3.0, 2.0], "b": [2.0, 4.01, 3.0]})
    assert not two.differences[0].by_chance
    assert two.verdict[1].startswith("Two training seeds only: ")
    assert len(three.verdict) == 1


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> tuple[mm.Comparison, Path]:
    out = tmp_path_factory.mktemp("seeds") / "c"
    return mm.compare("two-moons", RECIPES, seeds=(3, 1), out=out, **SMALL), out


def test_every_recipe_is_trained_with_every_seed(compared) -> None:
    found, out = compared
    assert found.seeds == (3, 1)
    assert sorted(path.relative_to(out).as_posix() for path in out.glob("*/*/run.json")) == [
        f"{recipe}/seed-{seed}/run.json" for recipe in sorted(RECIPES) for seed in (1, 3)
    ]
    for seed, place in ((3, 0), (1, 1)):
        alone = mm.compare("two-moons", RECIPES, seed=seed, **SMALL)
        for evaluation in alone.evaluations:
            assert found.summary.seeds.values(evaluation.name, "nll")[place] == float(evaluation.scores["nll"])
        by_seed = [test.by_seed[place] for test in found.summary.seeds.differences]
        assert sorted(by_seed) == sorted(test.test.difference for test in alone.tests)
    record = json.loads((out / "results.json").read_text())
    assert record["seeds"]["seeds"] == [3, 1]
    assert record["results"]["single"]["run"] == str(out / "single" / "seed-3")
    mean = record["seeds"]["means"]["single"]["nll"]
    assert mean["value"] == pytest.approx(np.mean(record["seeds"]["scores"]["single"]["nll"]))


def test_screen_page_and_text_show_the_means(compared, capsys) -> None:
    found, out = compared
    assert "means over 2 training seeds with t-intervals" in repr(found)
    baseline = next(line for line in repr(found).splitlines() if line.startswith("no input"))
    assert " to " not in baseline
    assert found.verdict[0] == found.summary.seeds.verdict[0]
    assert ONE_TRAINING not in found.verdict
    page = render(found.summary)
    assert "Means over 2 training seeds" in page
    assert report_check(out / "report.html") == []
    words = ["--net", "mlp:hidden=4", "--members", "2", "--epochs", "1", "--engine", "loop"]
    assert (
        main(["compare", "two-moons", "--recipes", ",".join(RECIPES), *words, "--seeds", "3,1", "--out", str(out)]) == 0
    )
    screen = capsys.readouterr().out
    assert "500 examples of two-moons, seed 3" in screen
    assert "differences over 2 training seeds" in screen
    assert f"- Seed 3: {found.notes[0]}" in " ".join(screen.split())
    assert "Two training seeds only" in screen


def test_parts_of_one_seed_say_so(compared) -> None:
    found, _ = compared
    page = render(found.summary)
    titles = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    assert [title for title in titles if not title.endswith(", seed 3")] == ["Summary", "Provenance"]
    assert "Findings, seed 3" in page
    assert "Clean inputs, seed 3" in page
    assert "<dt>Seeds</dt><dd>3, 1</dd>" in page
    over = page.split("<caption>Over training seeds:")[1].split("</table>")[0]
    assert "coloured" not in over
    assert "value better" not in over
    assert "Intervals are 95 % each, uncorrected" in page


def test_one_seed_is_a_comparison_of_trained_networks(tmp_path: Path) -> None:
    one = mm.compare("two-moons", RECIPES, seeds=[4], out=tmp_path / "a", **SMALL)
    usual = mm.compare("two-moons", RECIPES, seed=4, out=tmp_path / "b", **SMALL)
    assert one.verdict[-1] == usual.verdict[-1] == ONE_TRAINING
    assert (tmp_path / "a" / "single" / "run.json").exists()
    assert (tmp_path / "a" / "compare.json").read_text() == (tmp_path / "b" / "compare.json").read_text()


@pytest.mark.slow
def test_a_killed_comparison_continues_with_the_seed_it_was_at(tmp_path: Path, monkeypatch) -> None:
    out, whole = tmp_path / "c", comparison.Trainer.train_or_resume

    def killed(trainer, recipe, path):
        if (trainer.base.seed, recipe.name) == (1, "deep-ensemble"):
            raise KeyboardInterrupt
        return whole(trainer, recipe, path)

    with monkeypatch.context() as patch:
        patch.setattr(comparison.Trainer, "train_or_resume", killed)
        with pytest.raises(KeyboardInterrupt):
            mm.compare("two-moons", RECIPES, seeds=(0, 1), out=out, **SMALL)
    finished = (out / "single" / "seed-1" / "members.safetensors").stat().st_mtime_ns
    continued = mm.compare("two-moons", RECIPES, seeds=(0, 1), out=out, **SMALL)
    assert (out / "single" / "seed-1" / "members.safetensors").stat().st_mtime_ns == finished
    straight = mm.compare("two-moons", RECIPES, seeds=(0, 1), **SMALL)
    assert continued.summary.seeds.runs == straight.summary.seeds.runs


def test_a_comparison_is_extended_by_seeds_which_alone_are_trained(tmp_path: Path, monkeypatch) -> None:
    out, trained = tmp_path / "c", []
    monkeypatch.setattr(
        comparison, "fit", lambda *a, **k: trained.append(getattr(k["out"], "name", "")) or mm.fit(*a, **k)
    )
    mm.compare("two-moons", RECIPES, seeds=(0, 1), out=out, **SMALL)
    page, settings = (out / "report.html").read_text(), (out / "compare.json").read_text()
    assert trained == ["seed-0", "seed-0", "seed-1", "seed-1"]
    for other, words in (
        ({"seeds": (0, 2)}, r"holds a comparison with seeds=\[0, 1\]: repeat and add to these"),
        ({"seeds": (1, 0, 2)}, r"\(seed differs\)"),
        ({}, r"holds a comparison with seeds=\[0, 1\]"),
        ({"seeds": (0, 1, 2), "lr": 0.5}, r"\(lr differs\)"),
    ):
        with pytest.raises(mm.Misuse, match=words):
            mm.compare("two-moons", RECIPES, out=out, **other, **SMALL)
    assert (len(trained), (out / "compare.json").read_text()) == (4, settings)
    extended = mm.compare("two-moons", RECIPES, seeds=(0, 1, 2), out=out, **SMALL)
    assert trained[4:] == ["seed-2"] * 2
    assert extended.summary.seeds.runs == mm.compare("two-moons", RECIPES, seeds=(0, 1, 2), **SMALL).summary.seeds.runs
    assert (out / "report.html").read_text() != page
    assert json.loads((out / "results.json").read_text())["seeds"]["seeds"] == [0, 1, 2]


def test_a_comparison_of_one_seed_is_not_extended(tmp_path: Path) -> None:
    mm.compare("two-moons", RECIPES, out=tmp_path / "c", **SMALL)
    with pytest.raises(mm.Misuse, match=r"holds a comparison with one seed: repeat it, or choose another out="):
        mm.compare("two-moons", RECIPES, seeds=(0, 1), out=tmp_path / "c", **SMALL)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"seeds": (0, 0)}, r"seeds=\[0, 0\]: write each once"),
        ({"seeds": (0, 1), "seed": 3}, r"seed=3 and seeds=\[0, 1\]: give one of them"),
        ({"seeds": ()}, r"seeds=\(\): expected several whole numbers"),
        ({"seeds": "01"}, "seeds='01': expected several whole numbers"),
        ({"seeds": (0, -1)}, "seeds=-1: need a whole number"),
        ({"seeds": 3}, "seeds=3: expected several whole numbers"),
    ],
)
def test_other_seeds_are_refused(settings, words) -> None:
    with pytest.raises(mm.Misuse, match=words):
        mm.compare("two-moons", RECIPES, **settings, **SMALL)


def test_the_option_takes_whole_numbers(capsys) -> None:
    assert main(["compare", "two-moons", "--seeds", "0,x"]) == 2
    assert "--seeds names 'x': expected whole numbers, such as 0,1,2" in capsys.readouterr().err
