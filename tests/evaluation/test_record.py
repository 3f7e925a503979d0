"""Assessments: scores are those of `predict`, promises those of examples that taught nothing."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from score_factories import triple
from torch import nn

import murmuration as mm
from murmuration.data import Split
from murmuration.evaluation import Evaluation, ShiftSuite, eval_set_for, eval_set_of, evaluate_ensemble, evaluate_shift
from murmuration.evaluation.eval_set import cost_of
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc import PostHocConfig, to_json
from murmuration.prediction.posthoc.fit import fit_posthoc
from murmuration.training.plan import Plan

PLAN = Plan(members=2, epochs=3, batch_size=64, engine="loop")
APPLIED = PostHocConfig("temperature:prior_std=0.5")  # whether it helps or not


@pytest.fixture(scope="module")
def ensemble(digits) -> Ensemble:
    return mm.fit("mlp", digits, plan=PLAN, posthoc=None)


@pytest.fixture(scope="module")
def plain(ensemble, digits) -> Evaluation:
    return evaluate_ensemble(ensemble, digits)


@pytest.fixture(scope="module")
def with_steps(ensemble, digits) -> Evaluation:
    return evaluate_ensemble(ensemble.fit_posthoc(digits.val, config=APPLIED), digits, "mine")


def triples(scores: dict) -> dict:
    return {name: triple(score) for name, score in scores.items()}


def test_without_posthoc_scores_are_those_of_the_members(plain, ensemble, digits):
    assert triples(plain.scores) == triples(mm.score(ensemble.predict(digits.test.x), digits.test.y))
    assert not plain.calibrated
    assert plain.name == "deep-ensemble"
    assert plain.examples is plain.before


def test_what_posthoc_would_do_is_found_out_all_the_same(plain, ensemble, digits):
    pred = ensemble.predict(digits.val.x)
    assert plain.posthoc == replace(fit_posthoc(pred, digits.val.y), baseline=None)  # predictions are not widened by it
    calibration = plain.to_json()["calibration"]
    assert calibration["applied"] is False
    assert calibration["choice"]["about"] == plain.posthoc.choice.about
    assert (plain.after is None) == (not plain.posthoc.choice.kept)


def test_with_posthoc_scores_are_those_after_them(with_steps, plain, digits):
    assert with_steps.calibrated
    predicted = with_steps.ensemble.predict(digits.test.x)
    assert triples(with_steps.scores) == triples(mm.score(predicted, digits.test.y))
    assert with_steps.scores["nll"] != plain.scores["nll"]
    assert triples(with_steps.before.scores()) == triples(plain.scores)
    assert with_steps.after is with_steps.examples
    assert with_steps.name == "mine"
    assert with_steps.to_json()["calibration"]["applied"] is True


def test_rules_without_a_calibrator_change_no_score(ensemble, plain, digits):
    found = evaluate_ensemble(ensemble.fit_posthoc(digits.val, config=PostHocConfig("none", conformal="raps")), digits)
    assert not found.calibrated
    assert found.after is None
    assert triples(found.scores) == triples(plain.scores)
    assert found.coverage[0].method == "raps"
    assert found.coverage[0].calibration_examples == len(digits.val)
    assert len(found.abstention) == 3
    assert "calibration" not in found.to_json()


@pytest.mark.parametrize("count", [None, 19])
def test_without_validation_examples_there_are_scores_and_no_promises(ensemble, digits, count):
    eval_set = replace(
        eval_set_of(digits), val=None if count is None else Split(digits.val.prepared[:count], digits.val.y[:count])
    )
    found = evaluate_ensemble(ensemble, eval_set)
    assert found.posthoc is None
    assert (found.coverage, found.abstention, found.before, found.after, dict(found.subsets)) == (
        [],
        [],
        None,
        None,
        {},
    )
    assert set(found.to_json()) == {
        *("metrics", "baseline", "cost", "members", "data", "uncertainty", "classes", "confusion")
    }


def test_sets_are_listed_by_method_then_class_then_shift(with_steps, digits):
    pred, y = with_steps.ensemble.predict(digits.test.x), digits.test.y.numpy()
    tried = ShiftSuite(("contrast",), (1, 3))
    shift = evaluate_shift(with_steps.ensemble, with_steps.eval_set, tried, posthoc=with_steps.posthoc, calibrated=True)
    found = replace(with_steps, shift=shift).coverage
    classes = [f"class {k}" for k in range(10)]
    assert [each.subset for each in found] == ["test"] * 4 + classes + [f"corrupted, severity {v}" for v in (1, 3)]
    assert [each.method for each in found] == ["lac", "aps", "raps", "mondrian"] + ["lac"] * 12
    for each, rule in zip(found[:4], with_steps.posthoc.conformal, strict=True):
        assert each.coverage == rule.sets(pred)[np.arange(len(y)), y].mean()
        fitted = with_steps.posthoc.rule_examples  # that lac, aps and raps have in one threshold
        assert rule.examples == fitted if rule.method != "mondrian" else rule.examples < fitted
        assert (each.size, each.examples) == (rule.sets(pred).sum(1).mean(), len(y))
        assert each.calibration_examples == fitted
    inside = with_steps.posthoc.conformal[0].sets(pred)[np.arange(len(y)), y]
    for k, each in enumerate(found[4:14]):
        assert each.coverage == pytest.approx(inside[y == k].mean(), abs=1e-15)
        assert each.examples == (y == k).sum()
    assert triple(found[-1].coverage) == triple(shift.by_severity[3]["set_coverage"])


def test_rules_are_judged_after_the_calibrator(ensemble, digits):
    """One that moves every class on its own also changes which one is predicted."""
    with_steps = ensemble.fit_posthoc(digits.val, config=PostHocConfig("vector"))
    found, pred = evaluate_ensemble(with_steps, digits), with_steps.predict(digits.test.x)
    wrong = (pred.predicted != digits.test.y).double().numpy()
    assert wrong.mean() != 1 - found.before.columns["correct"].mean()  # type: ignore[union-attr]
    for each, rule in zip(found.abstention, with_steps.posthoc.abstention, strict=True):  # type: ignore[union-attr]
        answered = rule.answers(pred.confidence.numpy())
        assert each.answered == answered.mean()
        if answered.any():
            assert each.risk == pytest.approx(wrong[answered].mean(), abs=1e-15)
    weighing = found.abstention[0].rule
    assert found.abstention[0].cost == pytest.approx(weighing.cost(pred.confidence.numpy(), wrong).mean())


def test_members_are_scored_alone(plain, ensemble, digits):
    pred = ensemble.predict(digits.test.x)
    for index, scores in enumerate(plain.member_scores):
        alone = mm.score(pred.select([index]), digits.test.y)
        assert scores == {name: pytest.approx(float(alone[name]), rel=1e-9) for name in ("accuracy", "nll", "brier")}


def test_numbers_are_assessed_alike():
    data = mm.open_data("x-sin-x")
    ensemble = mm.fit("mlp", data, plan=replace(PLAN, posthoc=PostHocConfig(coverage=0.7, abstain_cost=0.4)))
    found = evaluate_ensemble(ensemble, data)
    pred = ensemble.predict(data.test.x)
    assert found.calibrated
    assert triples(found.scores) == triples(mm.score(pred, data.test.y))
    assert [each.subset for each in found.coverage] == ["test"] * 3  # there are no classes to list
    low, high = ensemble.posthoc.conformal[0].intervals(pred)  # type: ignore[union-attr]
    inside = (low <= data.test.y.numpy()) & (data.test.y.numpy() <= high)
    assert found.coverage[0].coverage == inside.mean()
    for index, scores in enumerate(found.member_scores):
        alone = mm.score(pred.select([index]), data.test.y)
        assert scores == {name: pytest.approx(float(alone[name]), rel=1e-9) for name in ("rmse", "nll")}
    answered = pred.total_var.mean(-1).sqrt().numpy() <= ensemble.posthoc.abstention[0].threshold  # type: ignore[union-attr]
    assert found.abstention[0].answered == answered.mean()


def test_the_record_is_json_without_numbers_it_cannot_hold(with_steps, digits):
    strange = replace(with_steps, cost={"seconds": math.nan, "members": 2})
    record = json.loads(json.dumps(strange.to_json(), allow_nan=False))
    assert record["cost"] == {"seconds": None, "members": 2}
    assert record["metrics"]["nll"]["value"] == float(with_steps.scores["nll"])
    assert record["calibration"]["calibrator"] == {"name": "temperature", **to_json(with_steps.posthoc.calibrator)}
    assert record["calibration"]["before"]["nll"]["value"] == float(with_steps.before.scores()["nll"])
    assert record["data"] == {
        "name": "digits",
        "task": "classification",
        "examples": len(digits.test),
        "fingerprint": with_steps.eval_set.fingerprint,
        "part": "test",
    }
    assert record["conformal"][0]["coverage"]["value"] == float(with_steps.coverage[0].coverage)
    assert [rule["name"] for rule in record["abstention"]] == ["cost", "error-rate", "risk-control"]
    assert not {"shift", "ood", "groups", "failures"} & set(record)


def test_diverged_members_are_named(with_steps):
    diverged = replace(
        with_steps.ensemble, manifest=replace(with_steps.ensemble.manifest, diverged={"1": "loss was NaN"})
    )
    assert replace(with_steps, ensemble=diverged).failures == {1: "loss was NaN"}
    assert replace(with_steps, ensemble=None).failures == {}


def test_costs_are_counted():
    ensemble = Ensemble.from_models([nn.Linear(3, 2), nn.Linear(3, 2)])
    found = cost_of(ensemble, torch.zeros(5, 3))
    assert (found["parameters"], found["members"]) == (2 * (3 * 2 + 2), 2)
    assert math.isnan(found["seconds"])  # trained elsewhere
    assert found["ms_per_prediction"] > 0


def test_other_examples_are_prepared_as_the_runs_own_were():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((100, 3)) * 5 + 2, np.arange(100) % 2
    run = mm.fit("mlp", (x, y), members=1, epochs=1, plan=Plan(engine="loop"), posthoc=None)
    eval_set = eval_set_for(run, (x[:7] + 1, y[:7]))
    data = mm.open_data((x, y), val=0.15, test=0.0)
    np.testing.assert_allclose(eval_set.split.prepared, data.preparation.apply(x[:7] + 1), rtol=0, atol=0)
    assert eval_set.split.y.tolist() == y[:7].tolist()
    assert (eval_set.preparation, eval_set.classes, eval_set.sizes) == (data.preparation, ("0", "1"), {"test": 7})
    assert (eval_set.train, eval_set.val) == (None, None)
