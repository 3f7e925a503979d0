"""Permutations of hidden units: aligned networks compute the same function, and permuted copies are found again."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.models.nets import build_net
from murmuration.studies.alignment import align, match_activations, match_weights, permutation_groups, permuted
from murmuration.studies.paths import paths_between
from murmuration.studies.weight_space import points_of

IMAGES = (3, 8, 8)


def net_named(name: str) -> nn.Module:
    if name == "batch-norm":  # after a flattening, a unit is a block of its entries
        conv = [nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.BatchNorm1d(54)]
        return nn.Sequential(*conv, nn.Linear(54, 10), nn.Tanh(), nn.Linear(10, 4))
    return build_net(name, IMAGES, 4)


def trained(name: str, seed: int) -> nn.Module:
    """A network with biases, scales and statistics that are not the initial ones."""
    torch.manual_seed(seed)
    net = net_named(name)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    net.train()
    net(torch.randn(32, *IMAGES))
    return net.eval()


def shuffled_copy(net: nn.Module, seed: int = 0) -> tuple[nn.Module, dict[str, np.ndarray]]:
    groups, rng = permutation_groups(net), np.random.default_rng(seed)
    orders = {group.name: rng.permutation(group.units) for group in groups}
    copy = points_of([net]).module(0)
    copy.load_state_dict(permuted(net.state_dict(), groups, orders))
    return copy.eval(), orders


NAMES = ["mlp", "small-cnn", "lenet5", "batch-norm", "resnet20"]


@pytest.mark.parametrize("name", NAMES)
def test_a_permuted_network_computes_the_same_function_and_is_found_again(name):
    net, x = trained(name, 0), torch.randn(40, *IMAGES)
    copy, orders = shuffled_copy(net)
    torch.testing.assert_close(copy(x), net(x), rtol=1e-4, atol=1e-4)
    before = points_of([net, copy])
    assert not torch.equal(before.vectors[0], before.vectors[1])
    for method, inputs in (("weights", None), ("activations", x)):
        found = align([net, copy], method=method, x=inputs)
        assert torch.equal(found.points.vectors[0], before.vectors[0])
        assert found.cosine_before < 0.9
        assert found.cosine_after == pytest.approx(1, abs=1e-12)
        assert all(np.array_equal(orders[g][found.orders[g]], np.arange(len(orders[g]))) for g in orders)
        assert all(torch.equal(t[0], net.state_dict()[n]) for n, t in found.points.buffers.items())


@pytest.mark.parametrize("name", NAMES)
def test_alignment_of_unlike_networks_keeps_the_function_and_brings_weights_together(name):
    one, two, x = trained(name, 1), trained(name, 2), torch.randn(40, *IMAGES)
    for method, inputs in (("weights", None), ("activations", x)):
        found = align([one, two], method=method, x=inputs)
        aligned = found.points.module(0)
        torch.testing.assert_close(aligned(x), two(x), rtol=1e-4, atol=1e-4)
        assert 0 < found.moved <= 1
        if method == "weights":
            assert found.cosine_after > found.cosine_before
    assert set(found.to_json()) >= {"method", "moved", "orders", "cosine_after"}


def test_weights_are_matched_from_both_ends_of_the_network():
    one, two = (trained("small-cnn", seed).state_dict() for seed in (1, 2))
    groups = permutation_groups(net_named("small-cnn"))

    def nearness(sequence):
        moved = permuted(two, groups, match_weights(one, two, sequence))
        return sum(float((one[name] * moved[name]).sum()) for name in one)

    assert nearness(groups) == pytest.approx(nearness(groups[::-1]), rel=1e-6)


def test_groups_of_a_convolutional_and_of_a_residual_network():
    groups = permutation_groups(build_net("small-cnn", IMAGES, 4))
    assert [group.units for group in groups] == [16, 32, 32]
    last = groups[-1].axes[-1]
    assert (last.tensor, last.axis, last.block) == ("head.weight", 1, 1)
    wide = permutation_groups(build_net("small-cnn", (3, 16, 16), 4))
    assert wide[-1].axes[-1].block == 4  # 2 x 2 places of each channel
    residual = permutation_groups(build_net("resnet20", IMAGES, 4))
    assert sorted(group.units for group in residual) == [16] * 4 + [32] * 4 + [64] * 4  # a stage and 3 inner layers
    assert max(len(group.layers) for group in residual) == 4


def test_the_barrier_to_a_permuted_copy_vanishes_when_it_is_aligned():
    net = trained("small-cnn", 3)
    with torch.no_grad():
        net.head.weight.mul_(8)  # confident outputs, so that the copy's midpoint is worse
    x = torch.randn(80, *IMAGES)
    y = net(x).argmax(1)
    copy, _ = shuffled_copy(net)
    found = paths_between([net, copy], (x, y), paths=("linear", "aligned"))
    assert found["linear"].scores["agreement"][0, -1] == 1  # the same function
    assert found["linear"].barrier().excess > 0.1
    assert found["aligned"].barrier().excess == pytest.approx(0, abs=1e-6)
    assert found["aligned"].length[-1] == 0
    assert found.cosine < 0.9
    assert {verdict.name: verdict.word for verdict in found.verdicts} == {"barrier": "holds", "aligned": "holds"}


def test_rescaling_is_not_a_permutation_and_keeps_the_function():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    copy = points_of([net]).module(0)
    with torch.no_grad():
        copy[0].weight.mul_(4)
        copy[0].bias.mul_(4)
        copy[2].weight.div_(4)
    x, y = torch.randn(60, 5), torch.arange(60) % 3
    found = paths_between([net, copy], (x, y), paths=("linear", "aligned"))
    assert found["linear"].scores["agreement"][0, -1] == 1
    assert found["linear"].barrier().excess > 0
    assert found["aligned"].length[-1] == found["linear"].length[-1]


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.layer(torch.relu(self.layer(x))))


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)), "'1' is LayerNorm"),
        (nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 3, groups=2)), "'1' is a convolution in groups"),
        (nn.Sequential(nn.Conv1d(4, 8, 3), nn.Linear(8, 2)), "'1' takes feature maps"),
        (nn.Sequential(nn.Linear(4, 8), nn.PReLU(8), nn.Linear(8, 2)), "PReLU"),
        (Shared(), "'layer' is used twice"),
        (Branching(), "Branching cannot be read"),
    ],
)
def test_layers_that_cannot_be_followed_are_named(net, message):
    with pytest.raises(mm.Misuse, match=message):
        permutation_groups(net)


def test_functions_of_torch_are_followed():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 5, 3), nn.Linear(45, 4)

        def forward(self, x):
            return self.head(torch.flatten(nn.functional.max_pool2d(nn.functional.relu(self.conv(x)), 2), 1))

    (group,) = permutation_groups(Functional())
    assert [(axis.tensor, axis.axis, axis.block) for axis in group.axes] == [
        *[("conv.weight", 0, 1), ("conv.bias", 0, 1), ("head.weight", 1, 9)]
    ]


def test_missing_inputs_and_unknown_methods_are_refused():
    nets = [nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)) for _ in range(2)]
    with pytest.raises(mm.Misuse, match="give x="):
        align(nets, method="activations")
    with pytest.raises(mm.Misuse, match="method"):
        align(nets, method="outputs")
    with pytest.raises(mm.Misuse, match="network 2 of 2"):
        align(nets, member=2)


def test_activations_are_matched_by_correlation_whatever_their_scale():
    """Two correlated units of unlike scale: products of scales would match them crosswise."""
    one = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        one[0].weight.copy_(torch.tensor([[10.0, 0.0], [0.9, 0.44]]))
    two = copy.deepcopy(one)
    with torch.no_grad():
        two[0].weight[1] *= 100
    groups = permutation_groups(one)
    x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    (order,) = match_activations(one, two, x, groups).values()
    assert list(order) == [0, 1]
