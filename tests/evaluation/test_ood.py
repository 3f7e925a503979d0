"""Scores of foreignness against their definitions, and feature distances against scipy and scikit-learn."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis
from sklearn.covariance import LedoitWolf
from sklearn.neighbors import NearestNeighbors
from torch import nn

import murmuration as mm
from murmuration.evaluation.metrics import score_detection
from murmuration.evaluation.ood import (
    OOD_SCORES,
    distance_columns,
    fit_feature_distance,
    module_features,
    ood_columns,
    shrunk_covariance,
)
from murmuration.likelihoods import Categorical, Gaussian
from murmuration.models.nets import build_net
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Failure, Misuse

LOGITS = torch.randn(3, 40, 5, generator=torch.Generator().manual_seed(0))


def linear(inputs: int, outputs: int, seed: int = 0) -> nn.Linear:
    """A network whose features are its inputs."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Linear(inputs, outputs)


def three_classes(count: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=count)
    mixing = rng.normal(size=(width, width))
    return (rng.normal(size=(count, width)) @ mixing + 3 * labels[:, None]).astype(np.float32), labels


def test_the_scores_of_classes_are_the_uncertainties_of_the_predictive() -> None:
    pred = Predictive(LOGITS, Categorical(5))
    found = ood_columns(pred)
    assert list(found) == [name for name, score in OOD_SCORES.items() if score.task == "classification"]
    np.testing.assert_allclose(found["max_probability"], 1 - pred.confidence, atol=1e-15)
    for name in ("entropy", "mutual_information", "expected_entropy", "energy", "logit_variance"):
        np.testing.assert_array_equal(found[name], getattr(pred, name))


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pred = Predictive(LOGITS, Categorical(5))
    whole = ood_columns(pred)
    monkeypatch.setattr("murmuration.evaluation.ood.inputs_at_once", lambda outputs: 7)
    for name, values in ood_columns(pred).items():
        np.testing.assert_allclose(values, whole[name], rtol=1e-13, atol=1e-15)


def test_sure_inputs_keep_their_order_where_confidence_rounds_to_one() -> None:
    pred = Predictive(torch.tensor([[[40.0, 0.0], [45.0, 0.0], [60.0, 0.0]]]), Categorical(2))
    assert (pred.confidence == 1).all()
    np.testing.assert_allclose(ood_columns(pred)["max_probability"], np.exp([-40.0, -45.0, -60.0]), rtol=1e-12)


def test_what_one_member_cannot_tell_is_left_out() -> None:
    alone = {"max_probability", "entropy", "expected_entropy", "energy"}
    assert set(ood_columns(Predictive(LOGITS[:1], Categorical(5)))) == alone
    one_counts = torch.tensor([0.0, 1.0, 0.0])
    assert set(ood_columns(Predictive(LOGITS, Categorical(5), one_counts))) == alone
    assert "epistemic_std" not in ood_columns(Predictive.from_moments(torch.zeros(1, 3, 1), 1.0))


def test_probabilities_and_their_float32_logarithms_have_no_energy() -> None:
    assert "energy" not in ood_columns(Predictive.from_probs(LOGITS.softmax(-1)))
    assert "energy" not in ood_columns(Predictive(LOGITS.log_softmax(-1), Categorical(5)))
    assert "logit_variance" in ood_columns(Predictive.from_probs(LOGITS.softmax(-1)))


def test_the_scores_of_numbers_are_roots_of_mean_variances() -> None:
    pred = Predictive.from_moments([[[0.0, 0.0]], [[2.0, 4.0]]], 1.0)  # epistemic variances 1 and 4, noise 1
    found = ood_columns(pred)
    assert found["epistemic_std"].item() == pytest.approx(np.sqrt(2.5), abs=1e-14)
    assert found["total_std"].item() == pytest.approx(np.sqrt(3.5), abs=1e-14)


def test_one_member_with_constant_noise_has_no_score() -> None:
    assert ood_columns(Predictive(torch.zeros(1, 3, 1), Gaussian(0.5))) == {}
    assert list(ood_columns(Predictive.from_moments(torch.zeros(1, 2, 1), [[[1.0], [2.0]]]))) == ["total_std"]


def test_a_diverged_member_is_named() -> None:
    logits = LOGITS.clone()
    logits[1, 3] = float("nan")
    with pytest.raises(Failure, match=r"members \[1\] of 3 output NaN"):
        ood_columns(Predictive(logits, Categorical(5)))


def test_mahalanobis_is_scipys_with_the_covariance_of_ledoit_and_wolf() -> None:
    train, labels = three_classes(400, 4)
    asked = np.random.default_rng(1).normal(size=(30, 4)).astype(np.float32) * 5
    ensemble = Ensemble.from_models([linear(4, 3)])
    fitted = fit_feature_distance(ensemble, train, labels)
    found = distance_columns(fitted, ensemble, asked)["mahalanobis"]
    means = np.stack([train[labels == c].astype(float).mean(0) for c in range(3)])
    inverse = np.linalg.inv(LedoitWolf(assume_centered=True).fit(train - means[labels]).covariance_)
    expected = [min(mahalanobis(point, mean, inverse) for mean in means) ** 2 for point in asked.astype(float)]
    at_home = [min(mahalanobis(point, mean, inverse) for mean in means) ** 2 for point in train.astype(float)]
    unit = fitted.members[0].units["mahalanobis"]
    np.testing.assert_allclose(found * unit, expected, rtol=1e-5)  # sklearn fits in float32 what is given so
    assert unit == pytest.approx(np.median(at_home), rel=0.01)  # the lower of the two middle ones


def test_a_regression_has_one_mean() -> None:
    train, labels = three_classes(200, 3)
    ensemble = Ensemble.from_models([linear(3, 1)], task="regression")
    fitted = fit_feature_distance(ensemble, train, labels[:, None].astype(float))
    np.testing.assert_allclose(fitted.members[0].means, train.mean(0, dtype=float)[None], rtol=1e-12)
    without = fit_feature_distance(Ensemble.from_models([linear(3, 3)]), train)
    np.testing.assert_allclose(without.members[0].means, fitted.members[0].means, rtol=1e-12)


def test_the_covariance_survives_a_feature_that_never_varied_and_fewer_examples_than_features() -> None:
    rng = np.random.default_rng(0)
    dead = torch.from_numpy(rng.normal(size=(500, 3)) * [1.0, 0.0, 2.0])
    assert torch.linalg.eigvalsh(shrunk_covariance(dead)).min() > 0
    few = torch.from_numpy(rng.normal(size=(5, 20)))
    expected = LedoitWolf(assume_centered=True).fit(few.numpy()).covariance_
    np.testing.assert_allclose(shrunk_covariance(few), expected, atol=1e-12)
    np.testing.assert_array_equal(shrunk_covariance(torch.zeros(4, 2).double()).diagonal() > 0, [True, True])


def test_nearest_neighbours_are_scikit_learns() -> None:
    train, labels = three_classes(300, 6)
    asked = np.random.default_rng(1).normal(size=(700, 6)).astype(np.float32)  # more than run at once
    ensemble = Ensemble.from_models([linear(6, 3)])
    fitted = fit_feature_distance(ensemble, train, labels)
    found = distance_columns(fitted, ensemble, asked)["nearest_neighbours"]
    lengths = [
        rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (train.astype(float), asked.astype(float))
    ]
    search = NearestNeighbors(n_neighbors=11).fit(lengths[0])
    expected = search.kneighbors(lengths[1])[0][:, 9]
    unit = np.median(search.kneighbors(lengths[0])[0][:, 10])  # without the point itself
    assert fitted.members[0].units["nearest_neighbours"] == pytest.approx(unit, rel=0.01)
    np.testing.assert_allclose(found * fitted.members[0].units["nearest_neighbours"], expected, atol=1e-6)


def test_members_count_alike_whatever_the_scale_of_their_features() -> None:
    train, labels = three_classes(300, 4)
    asked = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32) * 4
    nets = [nn.Sequential(linear(4, 8, seed), nn.ReLU(), linear(8, 3, seed)) for seed in (1, 2)]
    with torch.no_grad():
        nets[1][0].weight *= 100
        nets[1][0].bias *= 100
    ensemble = Ensemble.from_models(nets)
    together = distance_columns(fit_feature_distance(ensemble, train, labels), ensemble, asked)
    alone = []
    for member in (0, 1):
        fitted = fit_feature_distance(ensemble, train, labels, members_used=[member])
        assert fitted.indices == (member,)
        alone.append(distance_columns(fitted, ensemble, asked))
    for name, values in together.items():
        np.testing.assert_allclose(values, (alone[0][name] + alone[1][name]) / 2, rtol=1e-12)
        assert abs(np.median(alone[1][name]) / np.median(alone[0][name])) < 5


def test_the_draw_of_training_examples_follows_the_seed() -> None:
    train, labels = three_classes(100, 4)
    ensemble = Ensemble.from_models([linear(4, 3)])
    banks = [fit_feature_distance(ensemble, train, labels, seed=s, most=30).members[0].bank for s in (0, 0, 1)]
    assert banks[0].shape == (30, 4)
    assert banks[0].equal(banks[1])
    assert not banks[0].equal(banks[2])
    distinct = {tuple(row) for row in banks[0].tolist()}
    assert len(distinct) == 30  # drawn without replacement


@pytest.mark.parametrize(("net", "shape"), [("mlp", (7,)), ("small-cnn", (1, 8, 8)), ("resnet20", (3, 8, 8))])
def test_features_are_what_the_head_of_a_built_in_net_gets(net: str, shape: tuple[int, ...]) -> None:
    module = build_net(net, shape, 3)
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(0))
    ensemble = Ensemble.from_models([module])
    (features,) = module_features(ensemble.member(0), x)
    with torch.no_grad():
        expected = module.eval().body(x)
    np.testing.assert_allclose(features, expected, rtol=1e-6)


class HeadFirst(nn.Module):
    """A network that lists its layers in another order than it runs them."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(4, 2), nn.Conv1d(1, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x[:, None]).squeeze(1).relu())


def test_features_enter_the_operator_that_runs_last() -> None:
    module, x = HeadFirst(), torch.randn(3, 4)
    (features,) = module_features(Ensemble.from_models([module]).member(0), x)
    with torch.no_grad():
        np.testing.assert_allclose(features, module.body(x[:, None]).squeeze(1).relu(), rtol=1e-6)


def test_a_last_convolution_gives_its_map_flattened() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    x = torch.randn(3, 1, 2, 2)
    (features,) = module_features(Ensemble.from_models([module]).member(0), x)
    np.testing.assert_allclose(features, x.flatten(1))


def test_a_far_cluster_is_foreign_to_two_moons() -> None:
    data = mm.open_data("two-moons")
    ensemble = mm.fit("mlp", data, members=2, epochs=5, seed=0, posthoc=None)
    fitted = fit_feature_distance(ensemble, data.train.prepared, data.train.y)
    cluster = torch.tensor([6.0, 6.0]) + 0.1 * torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    familiar, foreign = (distance_columns(fitted, ensemble, x) for x in (data.test.prepared, cluster))
    for name, values in familiar.items():
        assert score_detection(values, foreign[name]).auroc.low > 0.9, name
        assert 0.5 < np.median(values) < 2  # in units of the training examples' median


def test_requests_that_cannot_be_are_refused_in_one_line() -> None:
    train, labels = three_classes(20, 4)
    ensemble = Ensemble.from_models([linear(4, 3)])
    with pytest.raises(Misuse, match="Flatten runs no linear or convolutional layer: feature distances need one"):
        fit_feature_distance(Ensemble.from_models([nn.Flatten()]), train)
    with pytest.raises(Misuse, match=r"labels of shape \(3,\) for 20 inputs: expected \(20,\)"):
        fit_feature_distance(ensemble, train, labels[:3])
    with pytest.raises(Misuse, match=r"members \[1\]: expected a list of indices 0..0"):
        fit_feature_distance(ensemble, train, labels, members_used=[1])
    with pytest.raises(Misuse, match="no training inputs to fit feature distances on"):
        fit_feature_distance(ensemble, train[:0])
    fitted = fit_feature_distance(ensemble, train, labels)
    with pytest.raises(Misuse, match="7 features, fitted on 4: expected the same ensemble"):
        distance_columns(fitted, Ensemble.from_models([linear(7, 3)]), np.zeros((2, 7), dtype=np.float32))
    broken = linear(4, 4)
    nn.init.constant_(broken.weight, float("nan"))
    with pytest.raises(Failure, match="features of member 0 are not finite: it diverged"):
        fit_feature_distance(Ensemble.from_models([nn.Sequential(broken, linear(4, 3))]), train)
