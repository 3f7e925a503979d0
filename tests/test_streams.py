import torch

from murmuration.streams import EVERYONE, ORDER, Noise, generator, global_stream, stream_seed


def test_every_address_has_its_own_seed():
    addresses = [(s, stream, m, t) for s in (0, 1) for stream in ORDER for m in (EVERYONE, 0, 1) for t in (0, 1)]
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
