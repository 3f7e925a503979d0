"""Foreign inputs: noticed where they are far, not where they are the familiar ones."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.data import Split
from murmuration.evaluation import EvalSet, OodResult, eval_set_of, evaluate_ensemble, evaluate_ood, in_distribution
from murmuration.evaluation.metrics import score_detection
from murmuration.evaluation.ood import BINS, distance_columns, fit_feature_distance, histogram_of, ood_columns
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc import PostHocConfig
from murmuration.reports.findings import about_ood
from murmuration.training.plan import Plan


@pytest.fixture(scope="module")
def ensemble(moons) -> Ensemble:
    return mm.fit("mlp", moons, members=3, epochs=6, plan=Plan(engine="loop", lr=0.01, batch_size=128), posthoc=None)


@pytest.fixture(scope="module")
def far() -> torch.Tensor:
    """A ring of radius 8 around the moons, which lie within 3."""
    angles = torch.linspace(0, 2 * np.pi, 300)[:-1]
    return 8 * torch.stack([angles.cos(), angles.sin()], dim=1)


@pytest.fixture(scope="module")
def found(ensemble, moons, far) -> OodResult:
    return evaluate_ood(ensemble, in_distribution(ensemble, eval_set_of(moons)), "a ring", far)


@pytest.mark.slow
def test_far_points_are_noticed(found):
    assert found.detections["nearest_neighbours"].auroc > 0.9
    assert found.detections["nearest_neighbours"].auroc.low > 0.85
    assert (found.name, found.examples) == ("a ring", 299)


def test_every_detection_is_that_of_its_uncertainties(found, ensemble, moons, far):
    own, strange = (ood_columns(ensemble.predict(x, prepared=True)) for x in (moons.test.prepared, far))
    distance = fit_feature_distance(ensemble, moons.train.prepared, moons.train.y)
    own |= distance_columns(distance, ensemble, moons.test.prepared)
    strange |= distance_columns(distance, ensemble, far)
    assert list(found.detections) == list(own)
    assert set(own) >= {"entropy", "mutual_information", "energy", "mahalanobis", "nearest_neighbours"}
    for name, each in found.detections.items():
        assert each.to_json() == score_detection(own[name], strange[name]).to_json()
        pairs = (strange[name][:, None] > own[name]).mean() + (strange[name][:, None] == own[name]).mean() / 2
        assert each.auroc == pytest.approx(pairs, abs=1e-12)


def test_familiar_inputs_are_not_told_from_themselves(ensemble, moons):
    found = evaluate_ood(ensemble, in_distribution(ensemble, eval_set_of(moons)), "the same", moons.test.prepared)
    for each in found.detections.values():
        assert each.auroc == pytest.approx(0.5, abs=1e-12)
        assert each.auroc.low < 0.5 < each.auroc.high


def test_other_familiar_inputs_are_hardly_told_apart(ensemble, moons):
    """Test points in two halves: intervals of six to eight uncertainties, of which the odd one may miss 0.5."""
    eval_set = eval_set_of(moons)
    own = in_distribution(ensemble, replace(eval_set, split=Split(moons.test.prepared[:250], moons.test.y[:250])))
    found = evaluate_ood(ensemble, own, "more of them", moons.test.prepared[250:])
    missed = [name for name, each in found.detections.items() if not each.auroc.low <= 0.5 <= each.auroc.high]
    assert len(missed) <= 1
    assert all(abs(each.auroc - 0.5) < 0.1 for each in found.detections.values())  # four standard errors


def test_a_calibrator_has_no_say(ensemble, moons, far, found):
    with_steps = ensemble.fit_posthoc(moons.val, config=PostHocConfig("temperature:prior_std=0.5"))
    assert (
        with_steps.predict(far, prepared=True).confidence.sum() != ensemble.predict(far, prepared=True).confidence.sum()
    )
    again = evaluate_ood(with_steps, in_distribution(with_steps, eval_set_of(moons)), "a ring", far)
    assert again.to_json() == found.to_json()


def test_without_training_examples_there_are_no_distances(ensemble, moons, far):
    eval_set = replace(eval_set_of(moons), train=None)
    detections = evaluate_ood(ensemble, in_distribution(ensemble, eval_set), "a ring", far).detections
    assert "entropy" in detections
    assert not {"mahalanobis", "nearest_neighbours"} & set(detections)


def test_histograms_count_every_input_once(found, ensemble, moons, far):
    assert list(found.histograms) == ["entropy", "mutual_information"]
    edges, familiar, foreign = found.histograms["entropy"]
    assert (familiar.sum(), foreign.sum()) == (len(moons.test), len(far))
    values = ood_columns(ensemble.predict(far, prepared=True))["entropy"]
    inside = [((values >= a) & (values < b)).sum() for a, b in pairwise(edges)]
    inside[-1] += (values == edges[-1]).sum()
    assert foreign.tolist() == inside


def test_counts_of_one_value():
    edges, familiar, foreign = histogram_of(np.zeros(3), np.zeros(2))
    assert len(edges) == BINS + 1
    assert (familiar[0], foreign[0]) == (3, 2)


def test_numbers_have_their_own_uncertainties():
    data = mm.open_data("x-sin-x")
    ensemble = mm.fit("mlp", data, members=2, epochs=30, plan=Plan(engine="loop", lr=0.01), posthoc=None)
    familiar = in_distribution(ensemble, replace(eval_set_of(data), split=data.val))
    found = evaluate_ood(ensemble, familiar, "far", data.train.prepared + 20)
    assert list(found.detections) == ["total_std", "epistemic_std", "mahalanobis", "nearest_neighbours"]
    assert found.detections["epistemic_std"].auroc > 0.9
    assert list(found.histograms) == ["total_std", "epistemic_std"]


def test_one_network_with_constant_noise_has_nothing_to_notice_with(moons):
    """Neither a spread nor training features: no detection, and no sentence."""
    torch.manual_seed(0)
    alone = Ensemble.from_models([nn.Linear(2, 1)], task="regression")
    eval_set = EvalSet("x", "regression", Split(moons.test.prepared, moons.test.prepared[:, :1]), (), moons.preparation)
    found = evaluate_ood(alone, in_distribution(alone, eval_set), "a ring", moons.test.prepared + 9)
    assert found.detections == {}
    assert about_ood(replace(evaluate_ensemble(alone, eval_set), ood=(found,)), "the model") == []
