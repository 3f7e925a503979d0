"""Batch-norm statistics of averaged or drawn weights."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import update_bn

from murmuration.core.engines import assemble, engine
from murmuration.core.population import populate
from murmuration.core.weights import POINT
from murmuration.training.batch_norm import CHUNK, refresh_batch_norm, statistics


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.norm(self.first(x))))


def build(index: int) -> nn.Module:
    torch.manual_seed(index)
    return Normalised()


@pytest.mark.parametrize("name", ["loop", "stacked", "threads"])
def test_statistics_are_example_weighted_means_of_batch_statistics(name):
    x = torch.randn(CHUNK + 100, 4, generator=torch.Generator().manual_seed(0)) * 2 + 1
    members = populate(build, 3)
    members.buffers["norm.running_mean"].fill_(7.0)  # left over from training
    with assemble(engine(name), build(0)) as team:
        refresh_batch_norm(team, POINT, members, x, seed=0, numbers=range(3), step=9)
    for index in range(3):
        net = build(index)
        hidden = [net.first(part).detach() for part in x.split(CHUNK)]
        weights = [len(part) / len(x) for part in hidden]
        mean = sum(w * h.mean(0) for w, h in zip(weights, hidden, strict=True))
        variance = sum(w * h.var(0) for w, h in zip(weights, hidden, strict=True))
        torch.testing.assert_close(members.buffers["norm.running_mean"][index], mean, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(members.buffers["norm.running_var"][index], variance, rtol=1e-5, atol=1e-5)


def test_equal_batches_give_the_statistics_of_torch_s_own_update():
    x = torch.randn(2 * CHUNK, 4, generator=torch.Generator().manual_seed(1))
    members, reference = populate(build, 1), copy.deepcopy(build(0))
    with assemble(engine("loop"), build(0)) as team:
        refresh_batch_norm(team, POINT, members, x, seed=0, numbers=[0], step=0)
    update_bn(list(x.split(CHUNK)), reference)
    torch.testing.assert_close(members.buffers["norm.running_mean"][0], reference.norm.running_mean)
    torch.testing.assert_close(members.buffers["norm.running_var"][0], reference.norm.running_var)


@pytest.mark.parametrize("name", ["loop", "stacked", "threads"])
def test_a_convolutional_network_has_the_statistics_of_torch_s_own_update(name):
    """Two layers of statistics: those of the second follow from batch statistics of the first, not running ones."""
    x = torch.rand(2 * CHUNK, 3, 6, 6, generator=torch.Generator().manual_seed(2))

    def convolutional(index: int) -> nn.Module:
        torch.manual_seed(index)
        parts = (nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 4, 3), nn.BatchNorm2d(4, momentum=0.3))
        return nn.Sequential(*parts, nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))

    members = populate(convolutional, 2)
    with assemble(engine(name), convolutional(0)) as team:
        refresh_batch_norm(team, POINT, members, x, seed=0, numbers=[0, 1], step=0)
    for index in range(2):
        reference = convolutional(index)
        update_bn(list(x.split(CHUNK)), reference)
        for key in ("1.running_mean", "1.running_var", "4.running_mean", "4.running_var", "4.num_batches_tracked"):
            torch.testing.assert_close(members.buffers[key][index], reference.state_dict()[key], rtol=1e-4, atol=1e-5)


def test_a_network_without_batch_norm_is_left_alone():
    net = nn.Sequential(nn.Linear(4, 2))
    members = populate(lambda _: net, 2)
    before = members.clone()
    assert statistics(net) == []
    with assemble(engine("loop"), net) as team:
        refresh_batch_norm(team, POINT, members, torch.zeros(3, 4), seed=0, numbers=[0, 1], step=0)
    assert all(torch.equal(members.own[name], before.own[name]) for name in members.own)


def test_layers_keep_their_momentum_for_later():
    net = Normalised()
    members = populate(lambda _: net, 1)
    with assemble(engine("loop"), net) as team:
        refresh_batch_norm(team, POINT, members, torch.randn(5, 4), seed=0, numbers=[0], step=0)
        assert team.structure(training=True).module.norm.momentum == 0.1
