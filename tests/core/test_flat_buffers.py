"""Tensors side by side in one vector."""

import pytest
import torch

from murmuration.core.dynamics import TrainTime
from murmuration.core.dynamics.base import StepTime
from murmuration.core.dynamics.optimizer import make_optimizer
from murmuration.core.flat_buffers import CACHE_LINE, FlatBuffers, flat_view, flatten, pack

SHAPES = {"kernel": (3, 5, 7), "bias": (3, 5), "head": (3, 16, 2)}


def tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=stream) for name, shape in SHAPES.items()}


def test_tensors_keep_their_values_and_begin_at_cache_lines():
    given, placed = tensors(), pack(tensors())
    assert all(torch.equal(given[name], placed[name]) for name in given)
    assert all(each.data_ptr() % CACHE_LINE == 0 for each in placed.values())
    vector = flat_view(list(placed.values()))
    assert vector is not None
    assert vector.count_nonzero() == sum(each.numel() for each in given.values())
    vector.zero_()
    assert not any(each.any() for each in placed.values())
    assert pack(placed) is placed


def test_only_all_of_a_vector_is_one():
    """A part would end within a cache line of its neighbour, and an update of that line would move the neighbour."""
    placed = list(pack(tensors()).values())
    assert flat_view(placed[:2]) is None
    assert flat_view(placed[1:]) is None
    assert flat_view(placed[::-1]) is None
    assert flat_view([each[:2] for each in placed]) is None
    assert flat_view(list(tensors().values())) is None
    assert flat_view([torch.zeros(4, 16).mT]) is None


def test_tensors_of_several_types_or_layouts_stay_where_they_are():
    for odd in (torch.zeros(3, dtype=torch.float64), torch.zeros(3, 4).mT):
        given = {**tensors(), "odd": odd}
        assert pack(given) is given
    assert pack({}) == {}


def test_joined_tensors_are_the_vector_or_a_copy_like_it():
    given = tensors()
    placed = pack(given)
    vector = flat_view(list(placed.values()))
    assert vector is not None
    assert flatten(list(placed.values())).data_ptr() == vector.data_ptr()
    assert torch.equal(flatten(list(given.values())), vector)
    flipped = [each.mT.contiguous().mT for each in given.values()]
    assert torch.equal(flatten(flipped), vector)


def test_vectors_are_found_anew_for_other_tensors():
    known, first, second = FlatBuffers(), pack(tensors()), pack(tensors(1))
    for each in (first, second, first):
        found = known.find("weights", list(each.values()))
        assert found is not None
        assert found.data_ptr() == each["kernel"].data_ptr()
    assert known.find("weights", list(tensors().values())) is None


@pytest.mark.parametrize("name", ["adam", "sgd", "nesterov"])
def test_an_update_of_the_vector_has_the_bits_of_updates_of_its_tensors(name: str):
    rule = make_optimizer(name, weight_decay=0.01, decay="decoupled")
    apart, placed = tensors(), pack(tensors())
    states = [rule.init(each) for each in (apart, placed)]
    kinds = [[list(kind.values()) for kind in state.values()] for state in states]
    for step in range(3):
        gradients = list(tensors(10 + step).values())
        when = StepTime(1e-2, step, TrainTime(step, 1, 3), lambda likes: [], members=3)
        rule.update(list(apart.values()), gradients, kinds[0], when)
        vectors = [flat_view(each) for each in (list(placed.values()), *kinds[1])]
        first, *rest = [each for each in vectors if each is not None]
        assert len(rest) == len(kinds[1])
        rule.update([first], [flatten(gradients)], [[each] for each in rest], when)
    assert all(torch.equal(apart[each], placed[each]) for each in apart)
