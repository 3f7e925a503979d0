"""Networks and other models in one ensemble: weights, files, calibration, and baselines of a comparison."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import murmuration as mm
from murmuration.core.recipe import make_recipe, recipe_from_json
from murmuration.data import Data
from murmuration.models.estimators.selection import greedy_weights, select
from murmuration.prediction.predictive import Predictive
from murmuration.reports.comparison import choose_baselines
from murmuration.system.errors import Misuse

SMALL = {"members": 2, "epochs": 3, "engine": "loop"}


@pytest.fixture(scope="module")
def steps() -> pd.DataFrame:
    """A table whose target has steps, which trees learn and three epochs of a network do not."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.uniform(-2, 2, 400), "b": rng.uniform(-2, 2, 400)})
    table["y"] = 3 * np.floor(table.a) + np.floor(table.b) + 0.1 * rng.normal(size=400)
    return table


@pytest.fixture(scope="module")
def data(steps: pd.DataFrame) -> Data:
    return mm.open_data(steps, target="y", val=0.25)


@pytest.fixture(scope="module")
def run(data: Data, tmp_path_factory) -> tuple[mm.Ensemble, Path]:
    path = tmp_path_factory.mktemp("mixed") / "run"
    return mm.fit("mlp", data, recipe="mixed", out=path, **SMALL), path


def test_the_weights_are_those_of_greedy_selection(run, data: Data):
    ensemble, _ = run
    record = ensemble.manifest.selection
    assert set(record["weights"]) == {
        "networks",
        "ridge",
        "hist-gradient-boosting",
        "random-forest",
        "natural-boosting",
    }
    assert sum(ensemble.weights) == pytest.approx(1)
    assert sum(ensemble.weights[:2]) == pytest.approx(record["weights"]["networks"])
    assert ensemble.weights[0] == ensemble.weights[1]
    kept = [name for name, weight in record["weights"].items() if weight > 0 and name != "networks"]
    assert [model.name for model in ensemble.models] == kept
    assert sum(record["weights"][name] for name in kept) > 0.5  # trees
    pred = ensemble.predict(data.val, calibrated=False)
    assert -float(pred.log_prob(data.val.y).mean()) == pytest.approx(record["mixed_val_nll"], rel=1e-6)
    assert record["mixed_val_nll"] <= min(record["val_nll"].values()) + math.log1p(5 / len(data.val))  # of the prior
    alone = Predictive(pred.outputs[:2], pred.likelihood)
    assert -float(alone.log_prob(data.val.y).mean()) == pytest.approx(record["val_nll"]["networks"], rel=1e-6)


def test_the_networks_are_those_of_a_deep_ensemble(run, data: Data):
    plain = mm.fit("mlp", data, **SMALL)
    for index in range(2):
        ours, theirs = (each.member(index).state_dict() for each in (run[0], plain))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_mixed_run_is_read_back_with_the_same_bits(run, data: Data, tmp_path: Path):
    ensemble, path = run
    loaded = mm.load(path)
    ensemble.save(tmp_path / "again")
    for other in (loaded, mm.load(tmp_path / "again"), mm.resume(path)):
        for calibrated in (False, True):
            one, two = (each.predict(data.test, calibrated=calibrated) for each in (ensemble, other))
            assert torch.equal(one.outputs, two.outputs)
            assert torch.equal(one.member_weights, two.member_weights)
        assert other.posthoc == ensemble.posthoc
        assert other.recipe == ensemble.recipe


def test_a_killed_mixed_run_is_that_of_an_undisturbed_one(run, data: Data, tmp_path: Path):
    def stop(text, done, total, record):
        if done == 4:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        mm.fit("mlp", data, recipe="mixed", out=tmp_path / "run", progress=stop, checkpoint_seconds=0, **SMALL)
    resumed = mm.resume(tmp_path / "run", data=data)
    assert resumed.weights == run[0].weights
    assert torch.equal(resumed.predict(data.test).outputs, run[0].predict(data.test).outputs)


def test_calibration_conformal_and_the_report_stand_on_the_mixture(run, data: Data, tmp_path: Path):
    ensemble, _ = run
    assert [rule.method for rule in ensemble.posthoc.conformal]
    pred = ensemble.predict(data.test)
    assert torch.equal(pred.member_weights, torch.tensor(ensemble.weights, dtype=torch.float64))
    found = mm.evaluate(ensemble, data, out=tmp_path / "out")
    assert found.scores["rmse"] < float(data.test.y.std()) / 3
    page = (tmp_path / "out" / "report.html").read_text()
    assert "weighted by greedy selection" in page
    assert "hist-gradient-boosting" in page


def test_draws_share_the_weight_of_their_network(data: Data):
    recipe = make_recipe("mc-dropout", models="ridge")
    ensemble = mm.fit("mlp", data, recipe=recipe, epochs=1, engine="loop", posthoc=None)
    weights = ensemble.predict(data.test, draws=4).member_weights
    assert weights.sum() == pytest.approx(1)
    assert torch.equal(weights[:4], torch.full((4,), ensemble.weights[0] / 4, dtype=torch.float64))


def test_classes_are_mixed_too(steps: pd.DataFrame):
    table = steps.assign(k=np.where(steps.y > 0, "yes", "no")).drop(columns="y")
    data = mm.open_data(table, target="k", val=0.25)
    ensemble = mm.fit("mlp", data, recipe=make_recipe("mixed", models=("logistic", "hist-gradient-boosting")), **SMALL)
    assert set(ensemble.manifest.selection["weights"]) == {"networks", "logistic", "hist-gradient-boosting"}
    assert mm.score(ensemble.predict(data.test), data.test.y)["accuracy"] > 0.9


def test_the_models_of_a_recipe_survive_its_record_and_are_checked():
    recipe = make_recipe("mixed", models="ridge+random-forest", sharing="rank-one")
    assert recipe.models == ("ridge", "random-forest")
    assert recipe_from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
    assert "models ridge+random-forest" in str(recipe)
    with pytest.raises(Misuse, match="unknown model 'forest'"):
        mm.fit("mlp", "diabetes", recipe=make_recipe("mixed", models="forest"), **SMALL)
    assert "models" not in make_recipe("deep-ensemble").to_json()


def test_a_likelihood_that_trees_cannot_have_is_refused_before_training(tmp_path: Path):
    with pytest.raises(Misuse, match="leave likelihood="):
        mm.fit("mlp", "two-moons", recipe="mixed", likelihood="focal", out=tmp_path / "run", **SMALL)
    assert list(tmp_path.iterdir()) == []


def test_greedy_weights_of_one_part_are_one():
    assert greedy_weights(torch.zeros(1, 5)).tolist() == [1]


def test_few_examples_do_not_give_all_the_weight_to_one_part():
    few = select({"a": torch.zeros(20), "b": torch.full((20,), -9.0)}).weights
    assert few == pytest.approx({"a": 0.9, "b": 0.1})
    many = select({"a": torch.zeros(2000), "b": torch.full((2000,), -9.0)})
    assert many.weights == {"a": 1, "b": 0}
    assert many.mixed_nll == 0
    assert many.text == "a 100 %"


def test_baselines_of_tables_by_default(data: Data, steps: pd.DataFrame):
    assert choose_baselines(None, data) == ["ridge", "hist-gradient-boosting"]
    assert choose_baselines((), data) == []
    assert choose_baselines(["random-forest", "ridge", "ridge"], data) == ["random-forest", "ridge"]
    assert choose_baselines(None, mm.open_data("two-moons")) == []
    labels = mm.open_data(steps.assign(y=(steps.y > 0).map({True: "yes", False: "no"})), target="y")
    assert choose_baselines(None, labels) == ["logistic", "hist-gradient-boosting"]
    with pytest.raises(Misuse, match="logistic is for classification"):
        choose_baselines(["logistic"], data)
    with pytest.raises(Misuse, match="unknown model 'forest'"):
        choose_baselines(["forest"], data)
