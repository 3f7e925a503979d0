import math

import pytest
import torch

from murmuration.system.streams import (
    ALL_MEMBERS,
    ORDER,
    Noise,
    generator,
    global_stream,
    many_normals,
    quantiles,
    stream_seed,
)


def test_every_address_has_its_own_seed():
    addresses = [(s, stream, m, t) for s in (0, 1) for stream in ORDER for m in (ALL_MEMBERS, 0, 1) for t in (0, 1)]
    assert len({stream_seed(*address) for address in addresses}) == len(addresses)


def test_a_stream_does_not_depend_on_what_was_drawn_before():
    first = torch.rand(3, generator=generator(0, "noise", 2, 5))
    torch.rand(100)
    assert torch.equal(first, torch.rand(3, generator=generator(0, "noise", 2, 5)))


def test_the_global_generator_is_given_back_as_it_was():
    torch.manual_seed(7)
    expected = torch.rand(2)
    torch.manual_seed(7)
    with global_stream(0, "initialisation", 0):
        inside = torch.rand(2)
    assert torch.equal(torch.rand(2), expected)
    assert not torch.equal(inside, expected)
    with global_stream(0, "initialisation", 0):
        assert torch.equal(torch.rand(2), inside)


def test_bits_are_uniform_and_addressed():
    """Chi-square of the high byte over 256 cells: mean 255, standard deviation 22.6; four of them either way."""
    bits = Noise(0, 3, 7).bits(1 << 18, torch.device("cpu"))
    counts = torch.bincount((bits.int() + 32768) >> 8, minlength=256).double()
    expected = len(bits) / 256
    assert abs(((counts - expected) ** 2 / expected).sum() - 255) < 4 * 22.6
    assert torch.equal(bits, Noise(0, 3, 7).bits(1 << 18, torch.device("cpu")))
    assert not torch.equal(bits, Noise(0, 3, 8).bits(1 << 18, torch.device("cpu")))
    stream = Noise(0, 3, 7)
    parts = [stream.bits(1 << 17, torch.device("cpu")) for _ in range(2)]
    assert torch.equal(torch.cat(parts), bits)


@pytest.mark.parametrize(("rough", "largest"), [(False, 5.5), (True, 4.5)])
def test_quick_normal_numbers_are_normal(rough: bool, largest: float):
    """Moments within four standard errors, shares beyond 1 to 4 within four of the binomial, and nothing far out."""
    count = 2_000_000
    drawn = Noise(0, 0).normal(torch.empty(count, dtype=torch.float32), rough).double()
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(drawn.pow(power).mean().item() - moment) < 4 * math.sqrt(variance / count)
    for edge in (1, 2, 3, 4):
        share = math.erfc(edge / math.sqrt(2))
        assert abs((drawn.abs() > edge).double().mean().item() - share) < 4 * math.sqrt(share / count)
    assert drawn.abs().max() < largest
    neighbours = torch.corrcoef(torch.stack([drawn[:-1], drawn[1:]]))[0, 1].item()
    assert abs(neighbours) < 4 / math.sqrt(count)


def test_the_outermost_bits_give_finite_normal_numbers(monkeypatch):
    ends = torch.tensor([-(2**31), 2**31 - 1, 0], dtype=torch.int32).view(torch.int16)
    noise = Noise(0, 0)
    monkeypatch.setattr(noise, "bits", lambda count, device: ends[:count])
    found = noise.normal(torch.empty(3))
    assert found[2] == 0
    torch.testing.assert_close(found[:2].abs(), torch.tensor([5.4195, 5.4195]), rtol=0, atol=1e-3)


def test_quantiles_have_the_moments_of_a_normal_law_but_for_its_tails():
    """Beyond the outermost quantile q = 4.3 a normal distribution has 2 q^3 phi(q) = 0.006 of its fourth moment."""
    values = quantiles().double()
    assert len(values.unique()) == 2**16
    torch.testing.assert_close(values, -values.flip(0), rtol=0, atol=0)
    assert values.square().mean().item() == pytest.approx(1, abs=1e-7)
    assert values.pow(4).mean().item() == pytest.approx(3, abs=0.006)


def test_images_are_filled_channels_last_by_either_kind():
    image = torch.empty(2, 3, 4, 5)
    for rough in (False, True):
        row = Noise(0, 0).normal(torch.empty(image.numel()), rough)
        drawn = Noise(0, 0).normal(image, rough)
        assert torch.equal(drawn.permute(0, 2, 3, 1).flatten(), row)
        assert drawn.is_contiguous(memory_format=torch.channels_last)


def test_many_normal_numbers_are_one_long_draw_cut_up():
    likes = [torch.empty(2, 3, 4), torch.empty(2, 5)]
    found = many_normals([Noise(0, 0), Noise(0, 1)], likes)
    for member in range(2):
        whole = Noise(0, member).normal(torch.empty(17))
        assert torch.equal(torch.cat([part[member].flatten() for part in found]), whole)
    assert [part.shape for part in found] == [like.shape for like in likes]
    assert many_normals([Noise(0, 0)], []) == []
