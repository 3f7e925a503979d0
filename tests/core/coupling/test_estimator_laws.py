"""What must not change a force, where it must vanish, and where it leads members that feel nothing else."""

import math

import pytest
import torch
from test_estimators import NAMES, SYMMETRIC, doubles, pulled_back, randn, seen

from murmuration.core.coupling.estimators import (
    ESTIMATORS,
    ETA,
    Interaction,
    eigenpairs,
    gradient_mixing,
    rbf,
    squared_distances,
    ssge_at,
)

EVERY = [(force, bandwidth) for force in ESTIMATORS for bandwidth in NAMES]


def same(a: torch.Tensor, b: torch.Tensor, bound: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=bound * max(1.0, b.abs().max().item()))


@pytest.mark.parametrize("bandwidth", NAMES)
def test_lengths_of_input_gradients_do_not_matter(bandwidth: str):
    g = randn(4, 3, 5)
    lengths = randn(4, 3, 1, seed=1).exp()
    r, gradient = pulled_back(g, bandwidth)
    scaled_r, scaled = pulled_back(lengths * g, bandwidth)
    same(scaled_r, r)
    same(lengths * scaled, gradient)
    # The push turns a gradient and never stretches it.
    same((gradient * g).sum(-1), torch.zeros(4, 3, dtype=torch.float64))


@pytest.mark.parametrize(("force", "bandwidth"), [pair for pair in EVERY if pair[1] not in ("featurepi", "fixed:0.8")])
def test_the_unit_of_the_metric_cancels(force: str, bandwidth: str):
    g, metric = randn(4, 3, 5), randn(5, seed=2).exp()
    _, gradient = pulled_back(g, bandwidth, metric, force)
    _, scaled = pulled_back(g, bandwidth, 100 * metric, force)
    same(scaled, gradient, 1e-10)  # the code's additive 1e-12 is 1e-12 of denominators near one


@pytest.mark.parametrize(("force", "bandwidth"), EVERY)
def test_rotations_and_permutations_carry_over(force: str, bandwidth: str):
    t = seen(randn(5, 4, 3))
    found = ESTIMATORS[force](t, bandwidth)
    rotation = torch.linalg.qr(randn(3, 3, seed=3)).Q
    same(ESTIMATORS[force](t @ rotation, bandwidth).cotangents, found.cotangents @ rotation, 1e-11)
    order = torch.tensor([3, 0, 4, 1, 2])
    permuted = ESTIMATORS[force](t[order], bandwidth)
    same(permuted.cotangents, found.cotangents[order], 1e-11)
    same(permuted.log_density, found.log_density[order])
    samples = torch.tensor([2, 0, 3, 1])
    same(ESTIMATORS[force](t[:, samples], bandwidth).cotangents, found.cotangents[:, samples], 1e-11)
    same(ESTIMATORS[force](t + 7.0, bandwidth).cotangents, found.cotangents, 1e-11)


@pytest.mark.parametrize(("force", "bandwidth"), EVERY)
def test_a_batch_seen_twice_halves_the_share_of_each_sample(force: str, bandwidth: str):
    t = randn(4, 3, 5)
    once, twice = ESTIMATORS[force](t, bandwidth), ESTIMATORS[force](torch.cat([t, t], dim=1), bandwidth)
    same(twice.log_density, once.log_density)
    same(twice.cotangents, torch.cat([once.cotangents, once.cotangents], dim=1) / 2)


@pytest.mark.parametrize("bandwidth", NAMES)
def test_r_lies_between_zero_and_the_log_of_members(bandwidth: str):
    for seed in range(5):
        found = ESTIMATORS["kde"](seen(randn(6, 2, 3, seed=seed)), bandwidth)
        assert bool(((found.log_density > 0) & (found.log_density < math.log(6))).all())
        assert 0 < found.mean_kernel < 1


def assert_nothing_is_felt(found: Interaction, members: int) -> None:
    assert torch.equal(found.cotangents, torch.zeros_like(found.cotangents))
    torch.testing.assert_close(
        found.log_density, torch.full_like(found.log_density, math.log(members)), rtol=0, atol=1e-6
    )
    assert found.mean_kernel.item() == (1.0 if members > 1 else 0.0)


@pytest.mark.parametrize("members", [1, 2, 3, 10])
@pytest.mark.parametrize(("force", "bandwidth"), EVERY)
def test_members_in_one_place_feel_nothing(force: str, bandwidth: str, members: int):
    place = randn(1, 4, 33, dtype=torch.float32).expand(members, 4, 33)
    assert_nothing_is_felt(ESTIMATORS[force](place, bandwidth), members)
    assert_nothing_is_felt(ESTIMATORS[force](torch.zeros(members, 4, 33), bandwidth), members)


@pytest.mark.parametrize("bandwidth", NAMES)
def test_without_any_gradient_nothing_reaches_the_weights(bandwidth: str):
    r, gradient = pulled_back(torch.zeros(5, 2, 3, dtype=torch.float64), bandwidth)
    same(r, torch.full_like(r, math.log(5)))
    assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize(("force", "bandwidth"), EVERY)
def test_awkward_crowds_give_finite_forces(force: str, bandwidth: str):
    crowd = randn(5, 3, 40, dtype=torch.float32)
    crowd[1:4] = crowd[0]  # four of five in one place: most medians are zero
    pair = torch.cat([crowd[:1], crowd[:1] + 1e-4])
    for t in (crowd, pair, crowd[:0], 1e-12 * crowd, 1e6 * crowd):
        found = ESTIMATORS[force](t, bandwidth)
        assert found.cotangents.shape == t.shape
        assert found.cotangents.dtype == torch.float32
        assert bool(found.cotangents.isfinite().all())
        assert bool(found.log_density.isfinite().all())


@pytest.mark.parametrize(("force", "bandwidth"), EVERY)
def test_single_precision_is_enough(force: str, bandwidth: str):
    t = seen(randn(6, 4, 50))
    exact, single = ESTIMATORS[force](t, bandwidth), ESTIMATORS[force](t.float(), bandwidth)
    bound = 1e-4 if force in ("sge", "ssge") else 2e-6  # up to 1/eta roundings of 1.2e-7, or a dozen
    assert (single.cotangents - exact.cotangents).norm() < bound * exact.cotangents.norm()
    half = ESTIMATORS[force](t.bfloat16(), bandwidth)
    assert half.cotangents.dtype == torch.bfloat16
    assert bool(half.cotangents.isfinite().all())


@pytest.mark.parametrize("bandwidth", SYMMETRIC)
def test_stein_and_spectral_identities(bandwidth: str):
    t = randn(6, 3, 4)
    total = 6 * ESTIMATORS["svgd"](t, bandwidth).cotangents  # G
    k = 6 * gradient_mixing(t, bandwidth)
    ridge = k + ETA * torch.eye(6, dtype=torch.float64)
    sge, ssge = (ESTIMATORS[name](t, bandwidth).cotangents for name in ("sge", "ssge"))
    same(torch.einsum("ij,jbr->ibr", ridge, sge), total, 1e-11)  # the discrete Stein identity
    same(torch.einsum("ij,jbr->ibr", k @ torch.linalg.inv(ridge), sge), ssge, 1e-11)
    for name in ("sge", "ssge"):  # both become K^-1 G without the ridge
        bare = ESTIMATORS[name](t, bandwidth, eta=1e-12).cotangents
        same(bare, torch.einsum("ij,jbr->ibr", torch.linalg.inv(k), total), 1e-8)


@pytest.mark.parametrize("bandwidth", SYMMETRIC)
def test_the_spectral_estimate_at_its_own_samples(bandwidth: str):
    samples = randn(7, 4)
    mine = ESTIMATORS["ssge"](samples.unsqueeze(1), bandwidth).cotangents[:, 0]
    same(ssge_at(samples, samples, bandwidth), mine, 1e-11)
    same(ssge_at(samples, samples[2:4], bandwidth, pairs=7), mine[2:4], 1e-11)


@pytest.mark.parametrize("pairs", [1, 3, 7])
def test_the_spectral_estimate_by_its_features(pairs: int):
    samples, points = randn(7, 2), randn(5, 2, seed=1)
    k = rbf(squared_distances(samples[None]), torch.tensor(1.28, dtype=torch.float64))[0]
    values, vectors = torch.linalg.eigh(k)
    total = 7 * ESTIMATORS["svgd"](samples.unsqueeze(1), "fixed:0.8").cotangents[:, 0]
    expected = torch.zeros(5, 2, dtype=torch.float64)
    for value, vector in list(zip(values + ETA, vectors.mT, strict=True))[::-1][:pairs]:
        features = math.sqrt(7) / value * torch.exp(-torch.cdist(points, samples).square() / 1.28) @ vector
        expected += features[:, None] * (vector @ total) / (math.sqrt(7) * value)
    same(ssge_at(samples, points, "fixed:0.8", pairs=pairs), expected, 1e-10)


def test_the_spectral_estimate_finds_the_score_of_a_gaussian():
    quantiles = 2 * torch.special.ndtri((torch.arange(400, dtype=torch.float64) + 0.5) / 400).unsqueeze(1)
    points = torch.tensor([[-2.0], [-1.0], [0.0], [2.0]], dtype=torch.float64)
    # Quantiles of N(0, 4) in place of draws: what remains is the error of few features, then that of eta.
    errors = [(ssge_at(quantiles, points, "fixed:2", pairs=n) + points / 4).abs().max() for n in (2, 4, 6, 10, None)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.01


def test_bandwidths_of_ones_own_do_not_stop_the_spectral_estimate():
    samples, points = randn(6, 3), randn(4, 3, seed=1)
    assert bool(ssge_at(samples, points, "code").isfinite().all())
    assert torch.equal(ssge_at(samples[:1].expand(6, 3), points, "rde"), torch.zeros(4, 3, dtype=torch.float64))


def test_eigenpairs_fall_and_belong_to_the_positive_symmetric_part():
    lopsided = torch.tensor([[0.0, 3.0], [1.0, 0.0]], dtype=torch.float64)  # symmetric part (0 2; 2 0): 2 and -2
    values, vectors = eigenpairs(lopsided)
    same(values, torch.tensor([2.0, 0.0], dtype=torch.float64))
    same(vectors.square(), torch.full((2, 2), 0.5, dtype=torch.float64))
    assert eigenpairs(lopsided, 1)[1].shape == (2, 1)


@pytest.mark.parametrize("bandwidth", ["code", "all", "off"])
@pytest.mark.parametrize("members", [2, 3, 4, 5, 10])
def test_repulsion_alone_ends_in_the_regular_simplex(members: int, bandwidth: str):
    s = seen(randn(members, 1, members, seed=1))
    for _ in range(60):  # errors fall by a third a step or more
        push = ESTIMATORS["kde"](s, bandwidth).cotangents
        s = seen(s - push + (push * s).sum(-1, keepdim=True) * s)
    cosines = (s[:, 0] @ s[:, 0].mT)[~torch.eye(members, dtype=torch.bool)]
    torch.testing.assert_close(cosines, torch.full_like(cosines, -1 / (members - 1)), rtol=0, atol=1e-7)


@pytest.mark.parametrize("bandwidth", ["code", "all", "off"])
@pytest.mark.parametrize(("members", "width"), [(3, 2), (4, 3), (5, 4), (10, 9), (2, 5), (3, 5), (10, 20)])
def test_the_simplex_needs_one_direction_less_than_members(members: int, width: int, bandwidth: str):
    s = seen(randn(members, 1, width, seed=1))
    for _ in range(300):
        push = ESTIMATORS["kde"](s, bandwidth).cotangents
        s = seen(s - 0.5 * (push - (push * s).sum(-1, keepdim=True) * s))
    cosines = (s[:, 0] @ s[:, 0].mT)[~torch.eye(members, dtype=torch.bool)]
    torch.testing.assert_close(cosines, torch.full_like(cosines, -1 / (members - 1)), rtol=0, atol=1e-7)


@pytest.mark.parametrize("bandwidth", ["code", "all", "off"])
def test_squared_cosines_end_at_right_angles_where_repulsion_ends_in_the_simplex(bandwidth: str):
    """LIT descends the sum of cos² over pairs (Ross et al. 2018): three members in five dimensions end orthogonal."""
    start, pairs = seen(randn(3, 1, 5, seed=1)), ~torch.eye(3, dtype=torch.bool)
    s = start
    for _ in range(200):
        cosines = s[:, 0] @ s[:, 0].mT * pairs
        s = seen(s - 0.25 * 2 * (cosines @ s[:, 0]).unsqueeze(1))  # lengths do not count: only the turn remains
    torch.testing.assert_close((s[:, 0] @ s[:, 0].mT)[pairs], torch.zeros(6, dtype=torch.float64), rtol=0, atol=1e-7)
    s = start
    for _ in range(200):
        push = ESTIMATORS["kde"](s, bandwidth).cotangents
        s = seen(s - push + (push * s).sum(-1, keepdim=True) * s)
    torch.testing.assert_close((s[:, 0] @ s[:, 0].mT)[pairs], doubles([-0.5] * 6), rtol=0, atol=1e-7)
