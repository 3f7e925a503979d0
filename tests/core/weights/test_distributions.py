import math

import pytest
import torch
from torch import Tensor

from murmuration.core.weights.distributions import Distribution
from murmuration.system.errors import Misuse

# text: E u, E u², E max(u, 0), E max(-u, 0)
MOMENTS = {
    "ones": (1, 1, 1, 0),
    "rademacher": (0, 1, 0.5, 0.5),
    "sign_0.75": (0.5, 1, 0.75, 0.25),
    "sign_1": (1, 1, 1, 0),
    "normal_1_0.5": (1, 1.25, 1.0042453513, 0.0042453513),
    "normal_-1_0.5": (-1, 1.25, 0.0042453513, 1.0042453513),
    "normal_0_2": (0, 4, 2 / math.sqrt(2 * math.pi), 2 / math.sqrt(2 * math.pi)),
    "normal_-2_0": (-2, 4, 0, 2),
    "interpolation_0": (0, 1, 1 / math.sqrt(2 * math.pi), 1 / math.sqrt(2 * math.pi)),
    "interpolation_1": (1, 1, 1, 0),
    "bernoulli_0.25": (0.25, 0.25, 0.25, 0),
    "inverted_0.25": (1, 4, 1, 0),
}
TEXTS = [*MOMENTS, "interpolation_0.3", "interpolation_-0.6"]


def draws(distribution: Distribution, count: int = 200_000, dtype: torch.dtype = torch.float64) -> Tensor:
    return distribution.sample((count // 4, 4), torch.Generator().manual_seed(3), dtype=dtype).flatten()


@pytest.mark.parametrize(("text", "expected"), MOMENTS.items())
def test_moments_are_those_of_the_table(text: str, expected: tuple[float, ...]):
    distribution = Distribution.parse(text)
    got = (distribution.mean, distribution.second_moment, distribution.positive, distribution.negative)
    assert got == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("text", TEXTS)
def test_half_moments_are_the_mean_apart(text: str):
    distribution = Distribution.parse(text)
    assert distribution.positive - distribution.negative == pytest.approx(distribution.mean, abs=1e-15)
    assert distribution.positive >= 0
    assert distribution.negative >= 0


def test_half_moments_of_a_gaussian_by_integration():
    distribution = Distribution.parse("interpolation_0.3")
    grid = torch.linspace(0, 12, 200_001, dtype=torch.float64)
    for sign, half in ((1, distribution.positive), (-1, distribution.negative)):
        density = torch.exp(-0.5 * ((sign * grid - 0.3) / distribution.std) ** 2) / (
            distribution.std * math.sqrt(2 * math.pi)
        )
        assert torch.trapezoid(grid * density, grid).item() == pytest.approx(half, abs=1e-9)


def test_the_interpolation_has_unit_mean_square_at_every_mean():
    for mean in (-1, -0.5, 0, 0.3, 0.99, 1):
        distribution = Distribution.parse(f"interpolation_{mean}")
        assert distribution.second_moment == pytest.approx(1, abs=1e-15)
        assert distribution.mean == mean


@pytest.mark.parametrize("text", TEXTS)
def test_nodes_carry_the_moments(text: str):
    distribution = Distribution.parse(text)
    values, shares = distribution.nodes()
    assert shares.sum().item() == pytest.approx(1, abs=1e-14)
    assert (shares * values).sum().item() == pytest.approx(distribution.mean, abs=1e-13)
    assert (shares * values**2).sum().item() == pytest.approx(distribution.second_moment, abs=1e-13)
    assert values.dtype == shares.dtype == torch.float64


def test_gaussian_nodes_carry_high_moments_and_smooth_means():
    values, shares = Distribution.parse("normal_0_0.5").nodes()
    assert len(values) == 60
    assert (shares * values**8).sum().item() == pytest.approx(105 * 0.5**8, rel=1e-12)
    assert (shares * torch.cos(values)).sum().item() == pytest.approx(math.exp(-0.125), abs=1e-14)


@pytest.mark.parametrize("text", TEXTS)
def test_samples_have_the_distribution(text: str):
    distribution = Distribution.parse(text)
    drawn = draws(distribution)
    for got, expected in (
        (drawn, distribution.mean),
        (drawn**2, distribution.second_moment),
        (drawn.clamp_min(0), distribution.positive),
        ((-drawn).clamp_min(0), distribution.negative),
    ):
        bound = 4 * got.std().item() / math.sqrt(len(drawn)) + 1e-12
        assert abs(got.mean().item() - expected) < bound
    if distribution.atoms:
        assert set(drawn.unique().tolist()) == {value for value, _ in distribution.atoms}


def test_draws_follow_the_generator_and_not_the_precision():
    for text in ("normal_1_0.5", "sign_0.3"):
        distribution = Distribution.parse(text)
        assert torch.equal(draws(distribution), draws(distribution))
        assert torch.equal(draws(distribution, dtype=torch.float32), draws(distribution).float())


def test_symmetric_distributions_have_a_mean_of_exactly_zero():
    assert [Distribution.parse(text).mean for text in ("rademacher", "sign_0.5", "interpolation_0", "normal_0_1")] == [
        0
    ] * 4


@pytest.mark.parametrize("text", TEXTS)
def test_texts_make_the_distribution_again(text: str):
    distribution = Distribution.parse(text)
    assert str(distribution) == text
    assert Distribution.parse(str(distribution)) == distribution


def test_odd_spellings_get_one_text():
    assert str(Distribution.parse("sign_.750")) == "sign_0.75"
    assert str(Distribution.parse("normal_1.0_5e-1")) == "normal_1_0.5"
    assert Distribution.parse(str(Distribution.parse("normal_0.1_0.3333333333333333"))).std == 1 / 3


def test_every_kind_shows_a_form_that_works():
    examples = {kind.example for kind in Distribution.kinds}
    assert {str(Distribution.parse(example)) for example in examples} == examples


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "rademaker",
            "unknown distribution 'rademaker': did you mean 'rademacher'? Known: bernoulli, interpolation, inverted, ",
        ),
        ("", "unknown distribution '': Known: "),
        (
            "sign",
            "distribution 'sign' is not understood: sign takes the probability of +1, from 0 to 1; write for example ",
        ),
        (
            "sign_1.5",
            "distribution 'sign_1.5' is not understood: sign takes the probability of +1, from 0 to 1; write ",
        ),
        ("sign_half", "distribution 'sign_half' is not understood"),
        ("sign_nan", "distribution 'sign_nan' is not understood"),
        ("ones_1", "distribution 'ones_1' is not understood: ones takes no numbers; write for example ones"),
        (
            "normal_1",
            "normal takes the mean and a standard deviation that is not negative; write for example normal_1_0.5",
        ),
        ("normal_1_-0.5", "distribution 'normal_1_-0.5' is not understood"),
        ("normal_inf_1", "distribution 'normal_inf_1' is not understood"),
        ("interpolation_1.1", "interpolation takes the mean, from -1 to 1; write for example interpolation_0.3"),
        (
            "bernoulli_0",
            "bernoulli takes the probability to keep, above 0 and up to 1; write for example bernoulli_0.5",
        ),
        ("inverted_0", "distribution 'inverted_0' is not understood"),
    ],
)
def test_wrong_texts_say_what_to_write(text: str, message: str):
    with pytest.raises(Misuse) as caught:
        Distribution.parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
