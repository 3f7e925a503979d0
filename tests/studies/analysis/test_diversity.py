"""Diversity against accuracy: limit curves, exact count tables, the fitted exponent, the plane of sampled networks."""

import copy
import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import murmuration as mm
from murmuration.studies import diversity
from murmuration.studies.diversity import (
    SampledNetworks,
    TradeOff,
    diversity_terms,
    family,
    family_curve,
    fit_exponent,
    flipped,
    independent_disagreement,
    perturbed_disagreement,
    squared_distances,
    trade_off,
    worst_disagreement,
)
from murmuration.studies.similarity import disagreement_bounds
from murmuration.studies.trajectory import trajectory_of
from murmuration.system.records import plain_json

LIMITS = [  # a, a*, C -> d and D of independent errors, d and D of random label changes
    (0.5, 0.71, 10, 0.628888889, 1.257777778, 0.309836066, 0.619672131),
    (0.71, 0.71, 10, 0.486555556, 1.677777778, 0, 0),
    (0.1, 0.71, 10, 0.9, 1, 0.9, 1),
    (0.4, 0.9, 10, 0.633333333, 1.055555556, 0.5625, 0.9375),
    (0.6, 0.65, 100, 0.608585859, 1.521464646, 0.07734375, 0.193359375),
]
FAMILY = {  # a* = 0.65, C = 100: e -> (p, a, d, D)
    0.22: [
        (0.01, 0.644783609, 0.133577319, 0.376044920),
        (0.1, 0.587130261, 0.275895855, 0.668239469),
        (0.5, 0.328035332, 0.625497903, 0.930849393),
        (1, 0.003535354, 1, 1.003547897),
    ],
    0.5: [
        (0.01, 0.643853535, 0.0415, 0.116525093),
        (0.1, 0.586117977, 0.175679718, 0.424468105),
        (0.5, 0.327499872, 0.572487373, 0.851282178),
        (1, 0.003535354, 1, 1.003547897),
    ],
    1: [
        (0.01, 0.643535354, 0.01, 0.028053273),
        (0.1, 0.585353535, 0.1, 0.241169306),
        (0.5, 0.326767677, 0.5, 0.742685671),
        (1, 0.003535354, 1, 1.003547897),
    ],
    2: [
        (0.01, 0.643500354, 0.006535, 0.018331014),
        (0.1, 0.585035354, 0.0685, 0.165074304),
        (0.5, 0.325883838, 0.4125, 0.611912343),
        (1, 0.003535354, 1, 1.003547897),
    ],
}


@pytest.mark.parametrize(("a", "reference", "classes", "up", "up_d", "low", "low_d"), LIMITS)
def test_limit_curves_have_their_tabulated_values(a, reference, classes, up, up_d, low, low_d):
    high, perturbed = (f(a, reference, classes) for f in (independent_disagreement, perturbed_disagreement))
    np.testing.assert_allclose(
        [high, high / (1 - a), perturbed, perturbed / (1 - a)], [up, up_d, low, low_d], atol=6e-10
    )
    other_form = (reference - a) / (reference + (reference - 1) / (classes - 1))  # of the released notebook
    assert perturbed == pytest.approx(other_form, rel=1e-12, abs=1e-15)


def test_both_curves_meet_at_chance():
    for classes in (2, 3, 10, 100):
        for curve in (independent_disagreement, perturbed_disagreement):
            assert curve(1 / classes, 0.8, classes) / (1 - 1 / classes) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("exponent", FAMILY)
def test_the_family_has_its_tabulated_values(exponent):
    for p, *expected in FAMILY[exponent]:
        a, d = family(p, exponent, 0.65, 100)
        np.testing.assert_allclose([a, d, d / (1 - a)], expected, atol=6e-10)


def test_exact_count_tables():
    """Labels changed by hand: 12 and 16 examples of three classes."""
    truth, labels = np.repeat([0], 12), np.repeat([0, 1], [8, 4])  # 8 of 12 right
    changed = labels.copy()
    changed[[0, 1, 2, 3]] = [1, 1, 2, 2]
    changed[[8, 9]] = [0, 2]
    assert (changed == truth).mean() == 5 / 12
    assert (changed != labels).mean() == 1 / 2
    assert perturbed_disagreement(5 / 12, 8 / 12, 3) == pytest.approx(1 / 2, rel=1e-12)
    other, labels = np.array([0] * 4 + [1] * 4 + [0] * 4 + [1, 1, 2, 2]), np.repeat([0, 1], [8, 8])  # 4/4/4/4 cells
    assert (other == 0).mean() == (labels == 0).mean() == 0.5
    assert (other != labels).mean() == independent_disagreement(0.5, 0.5, 3) == 0.625
    labels, changed = np.repeat([0, 1], [8, 4]), np.repeat([0, 1], [8, 4])
    changed[[0, 1, 8, 9]] = [1, 2, 0, 2]  # 2 of 8 right ones, 2 of 4 wrong ones
    accuracy, d = flipped(1 / 4, 1 / 2, 2 / 3, 3)
    assert (changed == 0).mean() == pytest.approx(accuracy) == pytest.approx(7 / 12)
    assert (changed != labels).mean() == pytest.approx(d) == pytest.approx(1 / 3)


def test_simulated_label_changes_reach_all_curves():
    count, classes, reference = 100_000, 10, 0.7
    rng = np.random.default_rng(0)

    def another(labels):
        return (labels + rng.integers(1, classes, size=len(labels))) % classes

    truth = rng.integers(classes, size=count)
    base = np.where(rng.uniform(size=count) < reference, truth, another(truth))
    right = base == truth
    for p_right, p_wrong in ((0.3, 0.3), (0.2, 0.0), (0.1, 0.1**0.22), (1.0, 1.0)):
        flip = rng.uniform(size=count) < np.where(right, p_right, p_wrong)
        changed = np.where(flip, another(base), base)
        a, d = flipped(p_right, p_wrong, right.mean(), classes)
        for value, expected in (((changed == truth).mean(), a), ((changed != base).mean(), d)):
            assert abs(value - expected) <= 4 * math.sqrt(expected * (1 - expected) / count) + 1e-12
    apart = np.where(rng.uniform(size=count) < 0.5, truth, another(truth))
    expected = independent_disagreement(0.5, reference, classes)
    noise = 4 * math.sqrt(expected * (1 - expected) / count)
    assert abs((apart != base).mean() - expected) < 1.5 * noise  # the accuracies are drawn too


def test_the_family_joins_its_limits():
    p, reference, classes = np.linspace(0, 1, 50), 0.65, 100
    a, d = family(p, 1.0, reference, classes)
    np.testing.assert_allclose(d, perturbed_disagreement(a, reference, classes), atol=1e-12)
    a, d = flipped(p, 0.0, reference, classes)
    np.testing.assert_allclose(d, worst_disagreement(a, reference), atol=1e-12)
    for exponent in (0.1, 0.22, 1.0, 3.0):
        assert family(0.0, exponent, reference, classes) == pytest.approx((reference, 0))
        assert family(1.0, exponent, reference, classes) == pytest.approx(((1 - reference) / (classes - 1), 1))
    peak = (0.22 * (1 - reference) / ((classes - 1) * reference)) ** (1 / (1 - 0.22))  # where accuracy is largest
    assert peak == pytest.approx(1.794e-4, rel=1e-3)
    assert family(peak, 0.22, reference, classes) == pytest.approx((0.650413, 0.052585), abs=1e-6)
    around = family(peak * np.array([0.9, 1, 1.1]), 0.22, reference, classes)[0]
    assert around.argmax() == 1
    assert around[1] > reference


def test_the_exponent_of_synthetic_networks_is_found_again():
    rng = np.random.default_rng(0)
    a, d = family(rng.uniform(size=40) ** 2, 0.22, 0.65, 100)
    exact = fit_exponent(a, d / (1 - a), 0.65, 100)
    assert exact.value == pytest.approx(0.22, abs=0.005)
    assert exact.residual < 1e-3
    assert exact.high - exact.low < 0.01
    noisy_a, noisy_d = rng.binomial(2000, a) / 2000, rng.binomial(2000, d) / 2000
    noisy = fit_exponent(noisy_a, noisy_d / (1 - noisy_a), 0.65, 100)
    assert noisy.low < 0.22 < noisy.high
    assert noisy.high - noisy.low > 0.01
    with pytest.raises(mm.Misuse, match="no networks"):
        fit_exponent([1.0], [math.nan], 0.65, 100)
    with pytest.raises(mm.Misuse, match="no errors"):
        fit_exponent([0.5], [0.4], 1.0, 100)


def test_distances_from_a_curve_are_those_from_its_pieces():
    curve = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0]])
    points = np.array([[0.5, 0.5], [2.0, 1.0], [-1.0, 0.0], [1.0, 3.0]])
    np.testing.assert_allclose(squared_distances(points, curve), [0.25, 1, 1, 1])
    on = family_curve(0.22, 0.65, 100)[::7]
    np.testing.assert_allclose(squared_distances(on, family_curve(0.22, 0.65, 100)), 0, atol=1e-20)


def test_chance_and_impossible_references_are_refused():
    with pytest.raises(mm.Misuse, match="more than chance"):
        perturbed_disagreement(0.05, 0.1, 10)
    with pytest.raises(mm.Misuse, match="from 0 to 1"):
        independent_disagreement(0.5, 1.2, 10)
    with pytest.raises(mm.Misuse, match="classes=1"):
        flipped(0.1, 0.1, 0.5, 1)


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    x = torch.randn(400, 6)
    y = (x @ torch.randn(6, 4) + 0.8 * torch.randn(400, 4)).argmax(-1)
    nets, paths = [], []
    for _ in range(3):
        net, path = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)), []
        for _step in range(60):
            loss = nn.functional.cross_entropy(net(x[:300]), y[:300])
            gradients = torch.autograd.grad(loss, list(net.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(net.parameters(), gradients, strict=True):
                    parameter -= 0.5 * gradient
            path.append(copy.deepcopy(net))
        nets.append(net)
        paths.append(path[-12:])
    return nets, trajectory_of(paths), (x[300:], y[300:])


def test_sampled_networks_in_the_plane_of_accuracy_and_diversity(trained, tmp_path):
    nets, path, data = trained
    settings = {"random": {"radius": (0.0, 6.0), "threshold": None}, "pca": {"scale": 1.0}, "diagonal": {"scale": 3.0}}
    found = trade_off(
        nets, path, data, reference=1, count=20, settings=settings, folder=tmp_path, others={"twin": nets[:1]}
    )
    assert list(found.methods) == ["independent", "random", "dropout", "diagonal", "pca", "twin"]
    assert [len(each.accuracy) for each in found.methods.values()] == [2, 20, 20, 20, 20, 1]
    x, y = data
    labels = [net(x).argmax(-1) for net in nets]
    assert found.reference == pytest.approx((labels[1] == y).double().mean().item())
    expected = (labels[1] != labels[0]).double().mean().item()
    assert found.methods["independent"].disagreement[0] == pytest.approx(expected)
    assert found.methods["twin"].diversity[0] == pytest.approx(expected / (1 - (labels[0] == y).double().mean().item()))
    assert found.within_bounds
    assert {"subspaces", "random", "dropout", "diagonal", "pca"} == set(found.exponents)
    fit = found.exponents["subspaces"]
    assert fit.points == 80
    assert fit.low <= fit.value <= fit.high
    level = found.methods["independent"].accuracy.mean()
    near = np.abs(found.methods["random"].accuracy - level) <= 0.02
    assert found.matched["random"][1] == near.sum()
    further, divergence, exponent = found.verdicts
    own, *others = (value for value, count in found.matched.values() if count)
    assert [each.value for each in further.estimates] == pytest.approx([own - other for other in others], rel=1e-4)
    assert all("100 examples of 2 runs" in each.over for each in further.estimates)
    kl = torch.stack(
        [F.kl_div(nets[i](x).log_softmax(-1), nets[1](x).softmax(-1), reduction="batchmean") for i in (0, 2)]
    )
    assert found.methods["independent"].divergence == pytest.approx(kl.detach().numpy(), rel=1e-4)
    gap = kl.mean().item() - found.methods["random"].divergence[near].mean()
    assert divergence.estimates[0].value == pytest.approx(gap, rel=1e-3)
    assert (exponent.estimates[0].low, exponent.estimates[0].high) == (fit.low, fit.high)
    assert exponent.word == ("holds" if fit.high <= 1 else "cannot tell" if fit.low <= 1 else "does not hold")
    assert set(found.curves()) == {
        "independent errors",
        "random label changes",
        "worst case",
        "upper bound",
        "fitted family",
    }
    json.dumps(plain_json(found), allow_nan=False)
    assert len(found.frame()) == 4 * 83
    assert list(found.frame().columns) == ["method", "network", "measure", "value"]


def test_the_plane_continues_from_its_cells(trained, tmp_path, monkeypatch):
    nets, _, data = trained
    settings = {"random": {"radius": 1.0, "threshold": None}}
    first = trade_off(nets, None, data, count=18, settings=settings, folder=tmp_path)
    assert list(first.methods) == ["independent", "random", "dropout"]  # others need a trajectory
    (tmp_path / "random-1.npz").unlink()
    scored, real = [], diversity.log_probabilities
    monkeypatch.setattr(diversity, "log_probabilities", lambda *given: scored.append(1) or real(*given))
    again = trade_off(nets, None, data, count=18, settings=settings, folder=tmp_path)
    assert len(scored) == 2  # the reference, and the part that was lost
    for name, each in first.methods.items():
        np.testing.assert_array_equal(each.accuracy, again.methods[name].accuracy)


def test_nothing_accepted_leaves_the_method_out(trained):
    nets, _, data = trained
    found = trade_off(
        nets[:1], None, data, samplers=["random"], count=3, settings={"random": {"threshold": 2.0}}, val=data
    )
    assert dict(found.methods) == {}
    assert found.verdicts == ()
    assert found.exponents == {}


def test_two_classes_leave_one_wrong_answer():
    """Of two classifiers that are both nearly always wrong, few inputs can get different labels."""
    low, high = disagreement_bounds(0.1, 0.2, classes=2)
    assert (low, high) == pytest.approx((0.1, 0.3))
    assert disagreement_bounds(0.1, 0.2, classes=3)[1] == 1.0
    impossible = TradeOff(0.2, 2, 100, {"x": SampledNetworks(np.array([0.1]), np.array([0.4]), np.zeros(1))}, {})
    assert not impossible.within_bounds


def test_equal_accuracy_is_that_of_the_independent_networks_not_of_the_reference():
    networks = {
        "independent": SampledNetworks(np.array([0.60, 0.61]), np.array([0.3, 0.3]), np.zeros(2)),
        "near": SampledNetworks(np.array([0.605, 0.80]), np.array([0.2, 0.1]), np.zeros(2)),
        "at the reference": SampledNetworks(np.array([0.80]), np.array([0.1]), np.zeros(1)),
    }
    matched = TradeOff(0.80, 10, 100, networks, {}).matched
    assert {name: count for name, (_, count) in matched.items()} == {"independent": 2, "near": 1, "at the reference": 0}
    assert matched["near"][0] == pytest.approx(0.2 / (1 - 0.605))


def test_terms_of_diversity_have_its_mean_and_its_variance():
    """The mean of the terms is D, and their standard error that of D over samples of examples."""
    rng, found = np.random.default_rng(0), []
    for _ in range(400):
        y, reference = rng.integers(5, size=300), rng.integers(5, size=300)
        labels = np.where(rng.random(300) < 0.6, y, reference)[None]
        terms = diversity_terms(labels, reference, y)
        expected = (labels != reference).mean() / (labels != y).mean()
        assert terms.mean() == pytest.approx(expected)
        found.append((expected, terms.std(ddof=1) / 300**0.5))
    values, errors = np.array(found).T
    assert errors.mean() == pytest.approx(values.std(ddof=1), rel=0.1)
