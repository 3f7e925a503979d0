"""Uncertainties against hand-computed numbers, closed forms and second derivations."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from murmuration.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian, MeanAndStd, likelihood_from_json
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse

FOUR = [[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.6, 0.1, 0.3], [0.4, 0.4, 0.2]]


def one_input(rows: list[list[float]]) -> Predictive:
    """The predictive of members' probabilities for a single input."""
    return Predictive.from_probs(np.array(rows)[:, None, :])


def random_logits(members: int = 5, inputs: int = 40, classes: int = 6, seed: int = 0) -> Predictive:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(members, inputs, classes, dtype=torch.float64, generator=generator)
    return Predictive(logits, Categorical(classes))


def random_mixture(members: int = 4, inputs: int = 7, targets: int = 2, seed: int = 0) -> Predictive:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(members, inputs, targets, dtype=torch.float64, generator=generator)
    std = 0.2 + torch.rand(members, inputs, targets, dtype=torch.float64, generator=generator)
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    return Predictive.from_moments(mean, std, weights=weights)


def test_four_members_by_hand() -> None:
    pred = one_input(FOUR)
    aleatoric, epistemic, total = pred.aleatoric_covariance, pred.epistemic_covariance, pred.total_covariance
    expected = torch.tensor([0.55, 0.25, 0.2], dtype=torch.float64)
    torch.testing.assert_close(pred.mean[0], expected, atol=1e-15, rtol=0)
    assert torch.allclose(aleatoric[0].diag(), torch.tensor([0.235, 0.175, 0.155]).double(), atol=1e-8, rtol=0)
    assert torch.allclose(epistemic[0].diag(), torch.tensor([0.0125, 0.0125, 0.005]).double(), atol=1e-9, rtol=0)
    assert aleatoric[0].trace().item() == pytest.approx(0.565, abs=1e-15)
    assert epistemic[0].trace().item() == pytest.approx(0.030, abs=1e-15)
    assert total[0].trace().item() == pytest.approx(0.595, abs=1e-15)
    torch.testing.assert_close(aleatoric + epistemic, total, atol=1e-15, rtol=0)
    assert pred.entropy.item() == pytest.approx(0.997272, abs=5e-7)
    assert pred.expected_entropy.item() == pytest.approx(0.946084, abs=5e-7)
    assert pred.mutual_information.item() == pytest.approx(0.051187, abs=5e-7)


@pytest.mark.parametrize(
    ("rows", "divergence"),
    [
        ([[0.5, 0.5], [1.0, 0.0]], 0.215761554),
        ([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]], 0.253101615),
        ([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.1, 0.1, 0.8]], 0.209896093),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], math.log(3)),
        ([[0.2, 0.8], [0.2, 0.8]], 0.0),
    ],
)
def test_mutual_information_is_the_jensen_shannon_divergence(rows: list[list[float]], divergence: float) -> None:
    assert one_input(rows).mutual_information.item() == pytest.approx(divergence, abs=1e-9)


def test_mutual_information_of_two_is_the_mean_divergence_from_the_middle() -> None:
    pred = random_logits(members=2)
    middle = pred.probs.mean(0)
    halves = [stats.entropy(p.numpy(), middle.numpy(), axis=-1) for p in pred.probs]
    np.testing.assert_allclose(pred.mutual_information, np.mean(halves, axis=0), atol=1e-13)


def test_mutual_information_keeps_its_bounds_and_symmetries() -> None:
    pred = random_logits(members=3)
    information = pred.mutual_information
    assert (information > 0).all()
    assert (information <= math.log(3)).all()
    torch.testing.assert_close(information, pred.select([2, 0, 1]).mutual_information, atol=1e-14, rtol=0)
    turned = Predictive(pred.outputs.roll(2, dims=-1), pred.likelihood)
    torch.testing.assert_close(information, turned.mutual_information, atol=1e-14, rtol=0)


@pytest.mark.parametrize("weights", [None, [0.5, 0.1, 0.1, 0.1, 0.2]])
def test_total_covariance_is_aleatoric_plus_epistemic(weights: list[float] | None) -> None:
    base = random_logits()
    given = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    pred = Predictive(base.outputs, base.likelihood, given)
    parts = pred.aleatoric_covariance + pred.epistemic_covariance
    torch.testing.assert_close(parts, pred.total_covariance, atol=1e-12, rtol=0)
    for covariance in (pred.aleatoric_covariance, pred.epistemic_covariance):
        assert covariance.sum(-1).abs().max() < 1e-14
        assert torch.linalg.eigvalsh(covariance).min() > -1e-14


def test_identical_members_have_no_epistemic_and_sure_ones_no_aleatoric_uncertainty() -> None:
    same = Predictive(random_logits(members=1).outputs.repeat(7, 1, 1), Categorical(6))
    assert same.epistemic_covariance.abs().max() < 1e-15
    assert same.mutual_information.max() < 1e-14
    assert same.disagreement.max() < 1e-14
    sure = one_input([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert sure.aleatoric_covariance.abs().max() < 1e-15
    assert sure.expected_entropy.item() < 1e-290


def test_disagreement_counts_pairs() -> None:
    rows = [[0.9, 0.1, 0.0], [0.8, 0.1, 0.1], [0.1, 0.9, 0.0], [0.0, 0.1, 0.9]]  # votes 0, 0, 1, 2
    assert one_input(rows).disagreement.item() == pytest.approx(5 / 6)  # of six pairs one agrees
    weighted = Predictive.from_probs(np.array(rows)[:, None], weights=[0.4, 0.4, 0.1, 0.1])
    agreeing, pairs = 2 * 0.4 * 0.4, 1 - 2 * 0.4**2 - 2 * 0.1**2
    assert weighted.disagreement.item() == pytest.approx(1 - agreeing / pairs)
    assert one_input(rows[:1]).disagreement.item() == 0


def test_weights_equal_repeated_members() -> None:
    base = random_logits(members=3)
    weighted = Predictive(base.outputs, base.likelihood, torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64))
    repeated = base.select([0, 0, 1, 2])
    labels = torch.arange(40) % 6
    for name in ("mean", "entropy", "expected_entropy", "mutual_information", "epistemic_covariance"):
        torch.testing.assert_close(getattr(weighted, name), getattr(repeated, name), atol=1e-14, rtol=0)
    torch.testing.assert_close(weighted.log_prob(labels), repeated.log_prob(labels), atol=1e-14, rtol=0)


def test_log_prob_averages_probabilities_not_logits() -> None:
    pred = one_input([[0.9, 0.1], [0.3, 0.7]])
    assert pred.log_prob([0]).item() == pytest.approx(math.log(0.6), abs=1e-15)
    assert pred.member_log_prob([0]).flatten().tolist() == pytest.approx([math.log(0.9), math.log(0.3)])
    assert one_input([[0.0, 1.0]]).log_prob([0]).item() == pytest.approx(math.log(1e-12))


def test_ensemble_loss_is_never_above_the_members_mean_loss() -> None:
    pred = Predictive(random_logits(inputs=500).outputs * 20, Categorical(6))  # some probabilities are clipped
    labels = torch.arange(500) % 6
    assert (pred.log_prob(labels) >= pred.member_log_prob(labels).mean(0) - 1e-12).all()


def test_mixture_moments_against_quadrature() -> None:
    pred = random_mixture(targets=1, inputs=3)
    grid = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    for i in range(3):
        member = stats.norm(pred.member_mean[:, i], pred.member_var[:, i].sqrt())
        density = (pred.member_weights[:, None].numpy() * member.pdf(grid.numpy())).sum(0)
        mean = np.trapezoid(density * grid.numpy(), grid.numpy())
        variance = np.trapezoid(density * (grid.numpy() - mean) ** 2, grid.numpy())
        assert pred.mean[i].item() == pytest.approx(mean, abs=1e-9)
        assert pred.total_var[i].item() == pytest.approx(variance, abs=1e-9)
        here = pred.log_prob(torch.full((3,), 0.3))[i].item()
        assert here == pytest.approx(math.log(np.interp(0.3, grid.numpy(), density)), abs=1e-6)


def test_regression_by_hand() -> None:
    pred = Predictive.from_moments([[[1.0]], [[3.0]]], [[[1.0]], [[2.0]]])
    assert pred.mean.item() == 2
    assert pred.aleatoric_var.item() == 2.5
    assert pred.epistemic_var.item() == 1
    assert pred.total_var.item() == 3.5
    density = 0.5 * (stats.norm.pdf(2, 1, 1) + stats.norm.pdf(2, 3, 2))
    assert pred.log_prob([2.0]).item() == pytest.approx(math.log(density), abs=1e-14)


def test_log_prob_of_several_targets_sums_before_it_mixes() -> None:
    pred = random_mixture()
    y = torch.zeros(7, 2)
    normal = torch.distributions.Normal(pred.member_mean, pred.member_var.sqrt())
    joint = normal.log_prob(y).sum(-1).exp()  # (S, N)
    expected = (pred.member_weights[:, None] * joint).sum(0).log()
    torch.testing.assert_close(pred.log_prob(y), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("level", [0.001, 0.05, 0.5, 0.9, 0.9999])
def test_quantile_inverts_the_cdf(level: float) -> None:
    pred = random_mixture()
    assert (pred.cdf(pred.quantile(level)) - level).abs().max() < 1e-10


def test_quantile_of_one_member_is_the_normal_quantile() -> None:
    pred = Predictive.from_moments([[[1.0]]], 2.0)
    assert pred.quantile(0.975).item() == pytest.approx(stats.norm.ppf(0.975, 1, 2), abs=1e-12)
    low, high = pred.interval(0.5)
    assert (high - low).item() == pytest.approx(4 * stats.norm.ppf(0.75), abs=1e-12)


def test_quantile_between_two_far_members() -> None:
    """Half of the mass is around -100 and half around 100, so the quartiles are the members' own medians."""
    pred = Predictive.from_moments([[[-100.0]], [[100.0]]], 1.0)
    assert pred.quantile(0.25).item() == pytest.approx(-100, abs=1e-9)
    assert pred.quantile(0.75).item() == pytest.approx(100, abs=1e-9)


def test_likelihoods_speak_the_targets_units() -> None:
    outputs = torch.tensor([[[0.0]], [[2.0]]])
    pred = Predictive(outputs, Gaussian(noise_std=0.5, shift=(10.0,), scale=(3.0,)))
    assert pred.mean.item() == 13
    assert pred.epistemic_var.item() == 9
    assert pred.aleatoric_var.item() == 0.25
    spread = Predictive(torch.zeros(1, 1, 2), HeteroscedasticGaussian(shift=(1.0,), scale=(2.0,)))
    assert spread.aleatoric_var.item() == pytest.approx((2 * (math.log(2) + 1e-3)) ** 2)
    assert likelihood_from_json(MeanAndStd(3).to_json()) == MeanAndStd(3)


def test_from_probs_gives_the_input_back() -> None:
    probs = np.random.default_rng(0).dirichlet([0.05] * 4, size=(3, 50))
    probs[0, 0] = [0.0, 0.0, 1.0, 0.0]
    pred = Predictive.from_probs(probs)
    np.testing.assert_allclose(pred.probs, probs, atol=1e-15)
    assert pred.outputs.isfinite().all()
    rounded = Predictive.from_probs(probs.astype(np.float16))
    np.testing.assert_allclose(rounded.probs.sum(-1), 1, atol=1e-15)


def test_parts_and_pools() -> None:
    pred = random_logits()
    again = Predictive.concatenate(list(pred.batches(7)))
    torch.testing.assert_close(again.outputs, pred.outputs, atol=0, rtol=0)
    few, many = pred.select([0]), pred.select([1, 2, 3])
    pooled = Predictive.pool([few, many])
    torch.testing.assert_close(pooled.mean, (few.mean + many.mean) / 2, atol=1e-15, rtol=0)
    weighted = Predictive(pred.outputs, pred.likelihood, torch.tensor([0.1, 0.1, 0.2, 0.3, 0.3]))
    torch.testing.assert_close(weighted.select([0, 2]).member_weights, torch.tensor([1 / 3, 2 / 3]).double())


def test_uncertainty_of_float32_outputs_is_computed_in_float64() -> None:
    logits = random_logits(members=1).outputs.float()
    near = torch.cat([logits, logits * 1.001])
    pred = Predictive(near, Categorical(6))
    exact = Predictive(near.double(), Categorical(6))
    torch.testing.assert_close(pred.mutual_information, exact.mutual_information, atol=0, rtol=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Predictive.from_probs([[0.5, 0.6]]), r"at \[0, 0\] sum to 1.1"),
        (lambda: Predictive.from_probs([[[0.5, 0.5], [1.2, -0.2]]]), r"at \[0, 1\].*smallest -0.2.*not logits"),
        (lambda: Predictive.from_probs([[0.5, float("nan")]]), r"at \[0, 0\] sum to nan"),
        (lambda: Predictive.from_probs([0.5, 0.5]), r"shape \(2,\): expected \(S, N, K\).*np.stack"),
        (lambda: Predictive.from_moments([[[1.0]]], 0.0), "positive stds"),
        (lambda: Predictive.from_moments([1.0], 1.0), r"expected \(S, N, K\)"),
        (lambda: Predictive(torch.zeros(2, 3), Categorical(3)), r"expected \(members, inputs, 3\)"),
        (lambda: Predictive(torch.zeros(2, 0, 3), Categorical(3)), "none empty"),
        (lambda: Predictive(torch.zeros(2, 1, 3), Categorical(3), torch.tensor([1.0, 1.0])), "summing to 2"),
        (lambda: one_input(FOUR).log_prob([3]), r"label 3 at \[0\]: expected a class index 0..2"),
        (lambda: one_input(FOUR).log_prob([[0]]), r"labels of shape \(1, 1\)"),
        (lambda: one_input(FOUR).member_mean, "belong to regression"),
        (lambda: one_input(FOUR).quantile(0.5), "belong to regression"),
        (lambda: random_mixture().entropy, "belong to classification.*total_var"),
        (lambda: random_mixture().predicted, "belong to classification"),
        (lambda: random_mixture().quantile(90), "level 90 is outside"),
        (lambda: random_mixture().log_prob(torch.zeros(7)), r"targets of shape \(7,\): expected \(7, 2\)"),
        (lambda: random_mixture().log_prob(torch.full((7, 2), math.inf)), r"target inf at \[0, 0\]"),
        (lambda: one_input(FOUR).select([4]), r"members \[4\]: expected a list of indices 0..3"),
        (lambda: Predictive.concatenate([one_input(FOUR), random_mixture()]), "all alike"),
    ],
)
def test_refusals_say_what_and_where(call, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        call()
