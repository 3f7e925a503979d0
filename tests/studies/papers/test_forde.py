"""The reproduction of FoRDE: a run of seconds, its continuation, verdicts from records made by hand, the plan."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check_report import report_check

import murmuration as mm
from murmuration.core.coupling.input_gradients import ALPHAS
from murmuration.core.dynamics.schedules import TrainTime, learning_rate_factor
from murmuration.evaluation import eval_set_of, evaluate_shift
from murmuration.studies.papers import reproduce
from murmuration.studies.papers.forde import reproduce as command
from murmuration.studies.papers.forde.cells import Laboratory, load_columns, score_split
from murmuration.studies.papers.forde.claims import TOY_BASELINES, TOY_PLACES, Results, verdicts
from murmuration.studies.papers.forde.page import measured_item
from murmuration.studies.papers.forde.published import ALPHA_FIGURE, FIGURE, TABLE_1, TABLE_2, WORK
from murmuration.studies.papers.forde.settings import METHODS, PARTS, PROFILES, Setting, arm_of
from murmuration.studies.papers.forde.tables import published_gain
from murmuration.studies.papers.forde.toys import RECIPES, TOYS
from murmuration.system.errors import Failure, Misuse

TINY = replace(
    PROFILES["laptop"],
    net="mlp:hidden=4",
    members=2,
    epochs=1,
    train=64,
    val=20,
    examples=20,
    corruptions=("gaussian_noise", "contrast"),
    toy_members=2,
    toy_epochs=1,
    seeds=(0,),
)
NAMES = ("clean.correct", "clean.nll", "corrupted.correct", "corrupted.nll")


def silent(text: str, done: int, total: int) -> None:
    return None


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PROFILES", {"laptop": TINY})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run."""
    out = tmp_path_factory.mktemp("forde")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "PROFILES", {"laptop": TINY})
        outcome = reproduce("forde", {}, out, silent, "murmur reproduce forde")
    (out / "report.html").write_text(outcome.page)
    return out


def test_a_run_leaves_every_part_on_the_page(made):
    record = json.loads((made / "record.json").read_text())
    assert [cell["arm"] for cell in record["cells"]] == TINY.arms()
    assert len(record["toys"]) == len(TOYS) * len(RECIPES)
    assert report_check(made / "report.html") == []
    page = (made / "report.html").read_text()
    for words in ("As published", "published 80.5", "published 56.1", "1-D toy", "2-D toy", "two official statements"):
        assert words in page, words
    assert {verdict["verdict"] for verdict in record["verdicts"]} == {"cannot tell"}  # one seed decides nothing
    assert [table["title"] for table in record["tables"]] == [
        *("methods", "gains over the deep ensemble", "alpha of forde-tuned", "by alpha", "gaps-1d", "five-gaussians")
    ]
    assert record["cpu_seconds"] > 0


def test_scores_of_a_cell_are_those_of_the_evaluation(made):
    laboratory = Laboratory(TINY, made, silent)
    ensemble = mm.load(made / "runs" / "forde-1-0", posthoc=False)
    shift = evaluate_shift(ensemble, replace(eval_set_of(laboratory.data)), laboratory.suite)
    record = json.loads((made / "record.json").read_text())
    (cell,) = [cell for cell in record["cells"] if cell["arm"] == "forde-1"]
    for part, scores in (("clean", shift.clean), ("corrupted", shift.pooled), ("high", shift.by_severity[5])):
        for name, value in cell[part].items():
            assert value == pytest.approx(float(scores[name]), abs=1e-6), (part, name)
    columns = load_columns(made, "forde-1-0")
    assert columns["corrupted.nll"].shape == (20,)
    assert columns["corrupted.nll"].mean() == pytest.approx(cell["corrupted"]["nll"], rel=1e-6)


def test_alpha_is_the_choice_of_a_tuned_run_and_never_that_of_the_test_images(made):
    data, record = Laboratory(TINY, made, silent).data, json.loads((made / "record.json").read_text())
    recipe = replace(TINY.recipe("forde-0.4", 10), name="forde-tuned")
    tuned = mm.core.recipe.make_recipe(recipe, coupling=recipe.text("coupling").replace("alpha=0.4,", ""))
    ensemble = mm.fit(TINY.net, data, recipe=tuned, plan=TINY.plan(0))
    scores = {cell["arm"]: cell["validation_nll"] for cell in record["cells"]}
    sweep = {arm_of(float(alpha)): nll for alpha, nll in ensemble.manifest.sweep.items()}
    assert sweep == pytest.approx({arm: scores[arm] for arm in sweep}, rel=1e-3)
    results = Results(record, lambda arm, seed: {})
    assert results.arm("forde-tuned", 0) == min(sweep, key=lambda arm: scores[arm])
    for cell in record["cells"]:
        cell["clean"] = cell["corrupted"] = None  # what is known of test images
    assert results.arm("forde-tuned", 0) == min(sweep, key=lambda arm: scores[arm])


def test_the_same_command_computes_only_what_is_new(made, tiny, tmp_path, monkeypatch):
    arms: list[tuple[str, int]] = []
    measure, measure_toy = Laboratory.measure, Laboratory.measure_toy
    monkeypatch.setattr(Laboratory, "measure", lambda self, *cell: arms.append(cell) or measure(self, *cell))
    monkeypatch.setattr(Laboratory, "measure_toy", lambda self, *run: arms.append(run) or measure_toy(self, *run))
    options: dict[str, Any] = {"parts": ("tables",), "methods": ("deep-ensemble",)}
    first = reproduce("forde", options, tmp_path, silent, "").record
    assert arms == [("deep-ensemble", 0)]
    again = reproduce("forde", options | {"seeds": (0, 1)}, tmp_path, silent, "").record
    assert arms[1:] == [("deep-ensemble", 1)]
    assert again["cells"][0] == first["cells"][0]
    assert again["setting"]["seeds"] == [0, 1]
    more = reproduce("forde", {"parts": ("tables",), "methods": ("forde-identity",)}, tmp_path, silent, "").record
    assert arms[2:] == [("forde-0", 0)]
    assert [row[0] for row in more["tables"][0]["rows"]] == ["deep-ensemble", "forde-identity"]


def test_a_killed_cell_is_trained_on_and_not_anew(tiny, tmp_path, monkeypatch):
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    options: dict[str, Any] = {"parts": ("tables",), "methods": ("deep-ensemble",)}
    with monkeypatch.context() as patch:
        patch.setattr("murmuration.studies.papers.forde.cells.score_split", killed)
        with pytest.raises(KeyboardInterrupt):
            reproduce("forde", options, tmp_path, silent, "")
    assert json.loads((tmp_path / "record.json").read_text())["cells"] == []
    monkeypatch.setattr("murmuration.studies.papers.runs.fit", killed)  # the trained members are on the disk
    assert len(reproduce("forde", options, tmp_path, silent, "").record["cells"]) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"methods": ("forde-pc",)}, "unknown method 'forde-pc'"),
        ({"methods": ()}, "methods=: expected at least one"),
        ({"seeds": (1, 1)}, "each once"),
        ({"seeds": (-1,)}, "none below 0"),
        ({"parts": ("table",)}, "unknown part 'table'"),
        ({"members": 1}, "members=1"),
        ({"data": "two-moons"}, "expected images with classes"),
        ({"device": "abacus"}, "abacus"),
        ({"data": "diabetes"}, "expected images with classes"),
        ({"widths": (1,)}, "does not use it"),
        ({"cifar_c": "nowhere"}, "no folder 'nowhere'"),
    ],
)
def test_bad_requests_are_refused(tiny, tmp_path, options, words):
    with pytest.raises(Misuse, match=words.replace("(", r"\(")):
        reproduce("forde", options, tmp_path / "x", silent, "")
    assert not (tmp_path / "x").exists()


def test_other_settings_and_lost_scores_are_refused(made, tiny, tmp_path):
    with pytest.raises(Misuse, match="epochs=1, not 2"):
        reproduce("forde", {"epochs": 2}, made, silent, "")
    options: dict[str, Any] = {"parts": ("tables",), "methods": ("deep-ensemble", "weight-rde")}
    reproduce("forde", options, tmp_path, silent, "")
    (tmp_path / "columns" / "weight-rde-0.npz").unlink()
    with pytest.raises(Failure, match=r"weight-rde-0\.npz"):
        reproduce("forde", options, tmp_path, silent, "")


def test_official_corruptions_take_the_place_of_generated_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "PROFILES", {"laptop": replace(TINY, corruptions=())})
    rng, folder = np.random.default_rng(0), tmp_path / "C"
    images = rng.integers(0, 256, (100, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "colour.npz", x=images, y=np.arange(100) % 10)
    labels = mm.open_data(str(tmp_path / "colour.npz")).test.y.numpy()
    folder.mkdir()
    np.save(folder / "fog.npy", rng.integers(0, 256, (5 * len(labels), 8, 8, 3), dtype=np.uint8))
    np.save(folder / "labels.npy", np.tile(labels, 5))
    options: dict[str, Any] = {"cifar_c": str(folder), "parts": ("tables",), "methods": ("deep-ensemble",)}
    outcome = reproduce("forde", {**options, "data": str(tmp_path / "colour.npz")}, tmp_path / "x", silent, "")
    assert outcome.record["data"]["corruptions"] == ["fog"]
    assert "fog; severities 3, 5, official files" in outcome.page
    np.save(folder / "labels.npy", np.tile((labels + 1) % 10, 5))
    with pytest.raises(Misuse, match="has other labels than the 20 test images"):
        reproduce("forde", {**options, "data": str(tmp_path / "colour.npz")}, tmp_path / "y", silent, "")
    assert not (tmp_path / "y").exists()
    with pytest.raises(Misuse):  # images in colour do not fit a run on grey ones
        reproduce("forde", options, tmp_path / "z", silent, "")


# Verdicts from records made by hand


def results_of(gains: dict[str, float], seeds: int = 4, slope: float = 0.0, noise: float = 1e-4) -> Results:
    """A record whose arms differ from the deep ensemble by these gains, in every column, and along alpha by a slope."""
    rng = np.random.default_rng(0)
    base = {name: rng.random((seeds, 50)) for name in NAMES}
    arms = {arm: gains.get(arm, 0.0) for arm in ("deep-ensemble", "weight-rde", "function-rde", *map(arm_of, ALPHAS))}
    rises = {arm_of(alpha): slope * alpha for alpha in ALPHAS}
    cells = [
        {"arm": arm, "seed": seed, "validation_nll": 0.0, "clean": {}, "corrupted": {}}
        for arm in arms
        for seed in range(seeds)
    ]

    def columns(arm: str, seed: int) -> dict[str, np.ndarray]:
        shaken = np.random.default_rng([list(arms).index(arm), seed]).normal(0, noise, 50)
        signs = {name: -1 if name.endswith("nll") else 1 for name in NAMES}
        rise = {name: rises.get(arm, 0.0) * (name == "corrupted.correct") for name in NAMES}
        return {name: base[name][seed] + signs[name] * arms[arm] + rise[name] + shaken for name in NAMES}

    return Results({"cells": cells, "toys": []}, columns)


def word(results: Results, name: str) -> str:
    return next(verdict.word for verdict in verdicts(results) if verdict.name == name)


@pytest.mark.parametrize(
    ("name", "gains", "expected"),
    [
        ("corruption", {"forde-1": 0.02}, "holds"),
        ("corruption", {"forde-1": -0.02}, "does not hold"),
        ("corruption", {}, "cannot tell"),
        ("principal components", {"forde-1": 0.02, "forde-0": 0.01}, "holds"),
        ("principal components", {"forde-1": 0.01, "forde-0": 0.02}, "does not hold"),
        ("clean accuracy", {"forde-0": 0.0}, "holds"),
        ("clean accuracy", {"forde-0": 0.02}, "holds"),
        ("clean accuracy", {"forde-0": -0.02}, "does not hold"),
        ("weights", {}, "holds"),
        ("weights", {"weight-rde": 0.02}, "does not hold"),
        ("weights", {"weight-rde": -0.02}, "does not hold"),
        ("functions", {"function-rde": -0.02}, "holds"),
        ("functions", {"function-rde": 0.02}, "does not hold"),
    ],
)
def test_claims_on_methods(name, gains, expected):
    assert word(results_of(gains), name) == expected


def test_the_trade_off_is_judged_by_slopes():
    assert word(results_of({}, slope=0.02), "trade-off") == "holds"
    assert word(results_of({}, slope=-0.02), "trade-off") == "does not hold"
    assert word(results_of({}, slope=0.0, noise=1e-2), "trade-off") == "cannot tell"
    rising = {arm_of(alpha): 0.02 * alpha for alpha in ALPHAS}  # of clean accuracy as well
    assert word(results_of(rising), "trade-off") == "does not hold"
    (estimate, _) = next(v for v in verdicts(results_of({}, slope=0.02)) if v.name == "trade-off").estimates
    assert estimate.value == pytest.approx(0.02, abs=1e-3)


def test_two_seeds_decide_nothing_and_missing_arms_are_named():
    assert word(results_of({"forde-1": 0.02}, seeds=2), "corruption") == "cannot tell"
    results = results_of({})
    cells = [cell for cell in results.record["cells"] if cell["arm"] != "forde-1"]
    few = Results({**results.record, "cells": cells}, results.columns)
    corruption = next(verdict for verdict in verdicts(few) if verdict.name == "corruption")
    assert (corruption.word, corruption.missing) == ("not run", ("forde-pca",))
    assert word(few, "trade-off") == "not run"
    assert few.arm("forde-tuned", 0) is None  # a candidate is missing


def toys(**values: float) -> Results:
    rows = [
        {"toy": toy, "recipe": recipe, "seed": seed, **dict.fromkeys(places, values[recipe] + 0.001 * seed)}
        for toy, places in TOY_PLACES.items()
        for recipe in values
        for seed in range(3)
    ]
    return Results({"cells": [], "toys": [{**row, "near": 0.0} for row in rows]}, lambda arm, seed: {})


def test_uncertainty_away_from_the_data_of_toys():
    levels = dict.fromkeys(TOY_BASELINES, 0.1)
    deep, every = "away from data, deep ensemble", "away from data, every baseline"
    above = toys(**{**levels, "forde-pca": 0.2})
    assert (word(above, deep), word(above, every)) == ("holds", "holds")
    between = toys(**{**levels, "function-rde": 0.3, "forde-pca": 0.2})
    assert (word(between, deep), word(between, every)) == ("holds", "does not hold")
    below = toys(**{**levels, "forde-pca": 0.05})
    assert (word(below, deep), word(below, every)) == ("does not hold", "does not hold")
    assert word(results_of({}), deep) == "not run"


# The published scale


def test_the_paper_profile_is_the_published_plan():
    setting = PROFILES["paper"]
    plan = setting.plan(3)
    assert (setting.net, plan.members, plan.epochs, plan.batch_size, plan.seed) == ("resnet18", 10, 300, 128, 3)
    assert (plan.optimizer, plan.lr, plan.momentum, plan.weight_decay) == ("nesterov", 0.1, 0.9, 5e-4)
    assert (plan.drop_last, plan.augment, plan.order, plan.posthoc) == (True, ("pad-crop", "flip"), "same", None)
    published = {0: 0.1, 150: 0.1, 151: 0.099175, 210: 0.0505, 270: 0.001, 299: 0.001}
    for epoch, rate in published.items():
        factor = learning_rate_factor(str(plan.schedule), TrainTime(390 * epoch, 390, 300))
        assert plan.lr * factor == pytest.approx(rate)
    assert len(setting.seeds) == 5
    assert setting.severities == (1, 2, 3, 4, 5)
    assert setting.recipe("forde-0.4", 10).text("coupling") == "input-gradients:lengthscales=tuned,alpha=0.4"
    assert setting.recipe("forde-1", 10).text("coupling") == "input-gradients:lengthscales=pca"
    assert setting.recipe("feature-rde", 10).text("coupling") == "features:prior=cauchy:0.001"
    assert setting.recipe("feature-rde", 100) == mm.core.recipe.make_recipe("feature-rde")
    assert setting.recipe("function-rde", 10).text("coupling") == "outputs:prior=cauchy:1e-06"


def test_the_paper_profile_at_the_scale_of_a_toy_writes_the_same_page(tmp_path):
    options: dict[str, Any] = {"profile": "paper", "data": "digits", "net": "mlp:hidden=4", "members": 2, "epochs": 1}
    options |= {"seeds": (0,), "examples": 10, "device": "cpu", "methods": METHODS[:4], "parts": ("tables",)}
    outcome = reproduce("forde", options, tmp_path, silent, "murmur reproduce forde --profile paper")
    (tmp_path / "report.html").write_text(outcome.page)
    assert report_check(tmp_path / "report.html") == []
    assert outcome.record["data"]["examples"]["val"] == 36  # 2 % of all images, not a tenth
    assert len(outcome.record["data"]["corruptions"]) > 14
    assert all(math.isfinite(cell["corrupted"]["nll"]) for cell in outcome.record["cells"])
    assert "hold-linear:0.01" in outcome.page


def test_published_numbers():
    spots = {
        ("table 1", "deep-ensemble", "cA"): (54.3, None),
        ("table 1", "function-rde", "NLL"): (0.76, 0.02),
        ("table 1", "forde-tuned", "accuracy"): (82.1, 0.2),
        ("table 2", "forde-pca", "cNLL"): (0.71, None),
        ("table 2", "feature-rde", "ECE"): (0.004, 0.001),
        ("table 2", "forde-identity", "NLL"): (0.113, 0.002),
        (FIGURE, "0.4", "high"): (43.91, None),
    }
    for key, (value, spread) in spots.items():
        number = WORK.number(*key)
        assert number is not None
        assert (number.value, number.spread, number.read_off) == (value, spread, key[0] == FIGURE)
    assert set(METHODS) < set(TABLE_1)
    assert set(METHODS) < set(TABLE_2)
    for alpha, row in (("1", "forde-pca"), ("0.4", "forde-tuned")):  # severities 1 to 3 and 4, 5 make up cA
        _, low, high = map(float, ALPHA_FIGURE[alpha].split())
        assert (3 * low + 2 * high) / 5 == pytest.approx(float(TABLE_1[row].split()[3]), abs=0.06)
    assert published_gain("table 1", "function-rde", "cNLL") == "−0.09"  # noqa: RUF001


def test_every_item_names_claims_that_are_judged():
    judged = {verdict.name for verdict in verdicts(results_of({}))}
    assert {claim for item in WORK.items for claim in item.claims} == judged
    assert {item.command.split()[-1] for item in WORK.items} == set(PARTS)


def test_a_calibration_error_is_that_of_the_library():
    data = mm.open_data("digits")
    ensemble = mm.fit("mlp:hidden=4", data, members=2, epochs=1, posthoc=None)
    scores = score_split(ensemble, data.test)
    for name, value in scores.summary().items():
        assert value == pytest.approx(float(mm.score(ensemble.predict(data.test), data.test.y)[name]), abs=1e-6)


def test_values_stand_in_the_table_of_their_data():
    tables = {"cifar-10-batches-bin": "table 2", "/data/cifar-100-binary": "table 1", "CIFAR100": None, "digits": None}
    assert {name: measured_item({"name": name}) for name in tables} == tables


def test_arms_are_trained_once_for_sweep_and_tables():
    arms = Setting().arms()
    assert len(arms) == len(set(arms)) == 4 + len(ALPHAS)
    assert Setting(parts=("toys",)).arms() == []
    assert Setting(parts=("tables",), methods=("forde-tuned",)).arms() == [arm_of(alpha) for alpha in ALPHAS]
