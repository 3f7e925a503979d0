import pytest
import torch
from torch import nn

from murmuration.core.population import Population, populate, population_from_tensors
from murmuration.system.errors import Failure, Misuse


def nets(count: int) -> list[nn.Module]:
    return [nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)) for _ in range(count)]


def test_a_member_is_a_view_into_one_storage():
    modules = nets(3)
    population = populate(lambda i: modules[i], 3)
    group = population.group(slice(1, 2))
    assert torch.equal(group.own["0.weight"][0], modules[1][0].weight)
    group.own["0.weight"][0, 0, 0] = 42.0
    assert population.own["0.weight"][1, 0, 0] == 42.0
    assert group.own["0.weight"].untyped_storage().data_ptr() == population.own["0.weight"].untyped_storage().data_ptr()


def test_shared_tensors_have_no_member_axis_and_come_from_the_first():
    modules = nets(3)
    population = populate(lambda i: modules[i], 3, shared=lambda name: name.startswith("0."))
    assert set(population.shared) == {"0.weight", "0.bias"}
    assert torch.equal(population.shared["0.weight"], modules[0][0].weight)
    assert population.own["1.weight"].shape == (3, 2)
    assert population.parameters_per_member() == 3 * 2 + 2 + 2 + 2
    assert population.parameters_stored() == 3 * 2 + 2 + 3 * (2 + 2)


def test_flat_tensors_give_the_population_back():
    modules = nets(2)
    population = populate(lambda i: modules[i], 2, shared=lambda name: name == "0.bias")
    again = population_from_tensors(population.to_tensors())
    assert again.members == 2
    for kind in ("own", "shared", "buffers"):
        assert getattr(again, kind).keys() == getattr(population, kind).keys()
    assert all(torch.equal(again.buffers[name], tensor) for name, tensor in population.buffers.items())


def test_kept_points_become_draws():
    modules = nets(2)
    population = populate(lambda i: modules[i], 2)
    later = population.map(lambda t: t + 1)
    both = Population.concatenate([population, later])
    assert both.members == 4
    assert torch.equal(both.own["0.weight"][2:], later.own["0.weight"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: populate(lambda i: nn.Linear(2, 2), 0), "members=0: an ensemble needs at least 1"),
        (lambda: populate(lambda i: nn.Linear(2, 2 + i), 2), r"member 1 has 'weight' of shape \(3, 2\), member 0"),
    ],
)
def test_bad_requests_say_what_is_wrong(call, message):
    with pytest.raises(Misuse, match=message):
        call()


def test_members_that_disagree_on_their_number_are_damage():
    with pytest.raises(Failure, match="have different numbers of members"):
        population_from_tensors({"own/a": torch.zeros(2, 1), "own/b": torch.zeros(3, 1)})
