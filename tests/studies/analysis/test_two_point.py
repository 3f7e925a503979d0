import math

import pytest
import torch
from torch import Tensor

from murmuration.core.weights.distributions import Distribution
from murmuration.studies.infinite_width import Activation, arc_cosine, other_member, same_member
from murmuration.system.errors import Misuse

A, B, Q = (torch.tensor(number, dtype=torch.float64) for number in (1.3, 0.7, -0.35))
LAWS = [
    "ones",
    "rademacher",
    "sign_0.8",
    "normal_1_0.5",
    "normal_0_1",
    "interpolation_0.6",
    "bernoulli_0.7",
    "inverted_0.5",
]


def activated(activation: Activation, z: Tensor) -> tuple[Tensor, Tensor]:
    """phi(z) and phi'(z)."""
    if activation == "relu":
        return z.relu(), (z > 0).double()
    return z.erf(), 2 / math.sqrt(math.pi) * torch.exp(-z * z)


def within(samples: Tensor, expected: Tensor) -> bool:
    return bool((samples.mean() - expected).abs() <= 4 * samples.std() / math.sqrt(len(samples)) + 1e-15)


@pytest.mark.parametrize("activation", ["relu", "erf"])
@pytest.mark.parametrize("text", LAWS)
def test_means_over_direct_draws(activation: Activation, text: str):
    count, law, generator = 250_000, Distribution.parse(text), torch.Generator().manual_seed(5)
    noise = torch.randn(2, count, generator=generator, dtype=torch.float64)
    z = A.sqrt() * noise[0]
    w = Q / A * z + (B - Q**2 / A).sqrt() * noise[1]
    v, other = (law.sample((count,), generator, dtype=torch.float64) for _ in range(2))
    (f, df), (g, dg), (h, dh) = (activated(activation, each) for each in (v * z, v * w, other * w))
    value, slope, gate = same_member(activation, law, Q, A, B)
    assert within(f * g, value)
    assert within(v * v * df * dg, slope)
    assert within(z * w * df * dg, gate)
    value, slope = other_member(activation, law, Q, A, B)
    assert within(f * h, value)
    assert within(v * other * df * dh, slope)


def test_random_signs_before_a_relu_by_their_own_formula():
    q = torch.linspace(-0.9, 0.9, 7, dtype=torch.float64)
    theta, root = torch.acos(q / (A * B).sqrt()), (A * B - q**2).sqrt()
    value, slope = other_member("relu", Distribution.parse("rademacher"), q, A, B)
    torch.testing.assert_close(value, (2 * root + (math.pi - 2 * theta) * q) / (4 * math.pi), rtol=0, atol=1e-14)
    torch.testing.assert_close(slope, (math.pi - 2 * theta) / (4 * math.pi), rtol=0, atol=1e-14)


def test_half_moments_and_not_moments_decide_for_relu():
    """Two laws of one mean and mean square, whose members are differently alike."""
    gaussian, sign = Distribution.parse("interpolation_0.6"), Distribution.parse("sign_0.8")
    assert (gaussian.mean, gaussian.second_moment) == pytest.approx((sign.mean, sign.second_moment))
    assert other_member("relu", gaussian, Q, A, B)[0] < 0.95 * other_member("relu", sign, Q, A, B)[0]


def test_random_signs_before_erf_scale_by_their_mean_squared():
    for text in ("rademacher", "sign_0.8"):
        law = Distribution.parse(text)
        for got, plain in zip(
            other_member("erf", law, Q, A, B), same_member("erf", Distribution.parse("ones"), Q, A, B)[:2], strict=True
        ):
            assert got.item() == pytest.approx(law.mean**2 * plain.item(), abs=1e-16)
        for got, plain in zip(
            same_member("erf", law, Q, A, B), same_member("erf", Distribution.parse("ones"), Q, A, B), strict=True
        ):
            assert got.item() == pytest.approx(plain.item(), abs=1e-16)


@pytest.mark.parametrize("text", ["normal_0.5_1", "normal_1_0.5"])
def test_gaussian_factors_before_erf_by_integrating_the_other_way_round(text: str):
    """Over v first: E erf(v z) = erf(m z / sqrt(1 + 2 s² z²)); then over (z, z') on a grid of the plane."""
    law, a = Distribution.parse(text), torch.tensor(2.0, dtype=torch.float64)
    grid = torch.linspace(-9, 9, 601, dtype=torch.float64)
    weights = torch.exp(-(grid**2) / 2) * (grid[1] - grid[0]) / math.sqrt(2 * math.pi)
    z = a.sqrt() * grid[:, None].expand(601, 601)
    w = 0.6 * z + math.sqrt(1 - 0.36) * a.sqrt() * grid[None, :]
    z, w = z.clone().requires_grad_(), w.requires_grad_()
    f, g = (torch.erf(law.mean * each / (1 + 2 * law.std**2 * each**2).sqrt()) for each in (z, w))
    df, dg = torch.autograd.grad(f.sum() + g.sum(), (z, w))
    value, slope = other_member("erf", law, 0.6 * a, a, a)
    assert (weights @ (f * g).detach() @ weights).item() == pytest.approx(value.item(), abs=1e-9)
    assert (weights @ (df * dg) @ weights).item() == pytest.approx(slope.item(), abs=1e-9)


def test_constant_factors_make_two_members_one():
    for activation in ("relu", "erf"):
        same = same_member(activation, Distribution.parse("ones"), Q, A, B)
        other = other_member(activation, Distribution.parse("ones"), Q, A, B)
        assert torch.equal(same[0], other[0])
        assert torch.equal(same[1], other[1])


@pytest.mark.parametrize("activation", ["relu", "erf"])
def test_the_slope_is_the_derivative_of_the_value(activation: Activation):
    """Price's theorem: dA/dq = B for both kinds of pairs."""
    for text in ("ones", "normal_1_0.5", "sign_0.8"):
        law = Distribution.parse(text)
        for means in (same_member, other_member):
            q = Q.clone().requires_grad_()
            value, slope, *_ = means(activation, law, q, A, B)
            (derivative,) = torch.autograd.grad(value, q)
            assert derivative.item() == pytest.approx(slope.item(), abs=1e-12)


def test_one_input_twice():
    """E relu(z)² = a/2 and E erf(z)² = 2/pi asin(2a/(1+2a)), exactly on the diagonal."""
    first, zeroth = arc_cosine(A, A, A)
    assert first.item() == A.item() / 2
    assert zeroth.item() == 0.5
    value, _, _ = same_member("erf", Distribution.parse("ones"), A, A, A)
    assert value.item() == pytest.approx(2 / math.pi * math.asin(2.6 / 3.6), abs=1e-15)


def test_inputs_on_one_line_are_seen_as_such_in_spite_of_rounding():
    q = (A * B).sqrt() * (1 - 1e-15)  # of a truly collinear pair, off by four roundings
    assert arc_cosine(q, A, B)[1].item() == 0.5
    assert arc_cosine(-q, A, B)[0].item() == 0


def test_small_angles_keep_their_digits():
    one = torch.ones((), dtype=torch.float64)
    for angle in (1e-3, 1e-5):
        q = torch.tensor(math.cos(angle), dtype=torch.float64)
        expected = (math.pi - angle) / (2 * math.pi)
        # cos itself is rounded: the angle is known to eps / angle.
        assert arc_cosine(q, one, one)[1].item() == pytest.approx(expected, abs=2e-16 / angle)


def test_arguments_broadcast():
    rows, columns = torch.tensor([1.0, 2.0]).double()[:, None], torch.tensor([0.5, 1.0, 1.5]).double()[None]
    q = 0.3 * torch.ones(2, 3, dtype=torch.float64)
    law = Distribution.parse("normal_1_0.5")
    for activation in ("relu", "erf"):
        whole = other_member(activation, law, q, rows, columns)
        single = other_member(activation, law, q[1, 2], rows[1, 0], columns[0, 2])
        for many, one in zip(whole, single, strict=True):
            assert many.shape == (2, 3)
            assert many[1, 2].item() == pytest.approx(one.item(), abs=1e-15)


def test_an_unknown_activation_is_named():
    with pytest.raises(Misuse, match="unknown activation 'rely': did you mean 'relu'"):
        same_member("rely", Distribution.parse("ones"), Q, A, B)  # type: ignore[arg-type]
