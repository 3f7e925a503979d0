"""Tunnels and curves on losses whose valleys are known, and the gradient of a network at a vector."""

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from objectives import FunctionObjective
from torch import nn

import murmuration as mm
from murmuration.data import Split
from murmuration.studies.cells import Cells
from murmuration.studies.connectors import (
    COEFFICIENTS,
    Descent,
    TrainingLoss,
    bezier_coefficients,
    curve_point,
    decay,
    descend,
    in_order,
    polygon_coefficients,
    train_curve,
    tunnel_nodes,
)
from murmuration.studies.landscape import scored
from murmuration.studies.paths import barrier, chain, straight
from murmuration.studies.weight_space import points_of
from murmuration.system.streams import ALL_MEMBERS, generator

DOUBLE_WELL = FunctionObjective(lambda v: (v.square().sum() - 1).square())
QUADRATIC = FunctionObjective(lambda v: (torch.tensor([1.0, 3.0, 0.2]) * v.square()).sum())
QUADRATIC_2D = FunctionObjective(lambda v: (torch.tensor([1.0, 3.0]) * v.square()).sum())
FAST = Descent(steps=300, lr=0.02)
ENDS = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])


def excess(objective, vectors):
    losses = objective.losses(vectors)
    return barrier(np.linspace(0, 1, len(losses)), losses).excess


def test_barrier_of_the_double_well():
    found = barrier(np.linspace(0, 1, 25), DOUBLE_WELL.losses(straight(*ENDS, 25)))
    assert (found.excess, found.rise, found.at) == pytest.approx((0.25, 0.25, 0.5))


def test_barrier_of_a_convex_loss_is_not_positive():
    one, two = torch.tensor([1.0, 2.0, -1.0]), torch.tensor([-2.0, 0.5, 3.0])
    assert excess(QUADRATIC, straight(one, two, 25)) <= 1e-6
    nodes = tunnel_nodes(one, two, QUADRATIC, nodes=3, settings=FAST)
    assert len(nodes) == 5  # nothing to refine
    assert max(node.loss for node in nodes) <= max(QUADRATIC.losses([one, two]))


def test_nodes_land_on_the_circle_and_the_barrier_shrinks_with_their_number():
    barriers = []
    for count in (1, 3, 7):
        nodes = tunnel_nodes(*ENDS, DOUBLE_WELL, nodes=count, settings=FAST, depth=0)
        assert [float(node.vector.norm()) for node in nodes] == pytest.approx([1] * (count + 2), abs=1e-3)
        barriers.append(DOUBLE_WELL.losses(chain([node.vector for node in nodes], 10)).max())
    assert barriers[0] < 0.25
    assert barriers[1] < barriers[0] / 4
    assert barriers[2] < barriers[1] / 4


def test_orthogonal_nodes_keep_their_place_and_never_end_worse():
    torch.manual_seed(0)
    one, two = torch.randn(500), torch.randn(500)
    one, two = one / one.norm(), two / two.norm()
    before = one.clone(), two.clone()
    nodes = tunnel_nodes(one, two, DOUBLE_WELL, nodes=4, settings=Descent(100, 0.005), depth=0)
    along = (two - one).double() / (two - one).double().norm()
    for turn, node in enumerate(nodes):
        start = torch.lerp(one, two, turn / 5).double()
        assert float(along @ node.vector.double()) == pytest.approx(float(along @ start), abs=1e-5)
        assert node.loss <= node.start_loss
    assert all(node.loss < 0.1 * node.start_loss for node in nodes[1:-1])
    assert nodes[0].vector is one
    assert nodes[-1].vector is two
    assert torch.equal(one, before[0])
    assert torch.equal(two, before[1])
    assert in_order(nodes)
    lengths = [float((b.vector - a.vector).norm()) for a, b in pairwise(nodes)]
    assert sum(lengths) >= float((two - one).norm())


def test_a_descent_that_overshoots_keeps_its_start():
    start = torch.tensor([0.8, 0.61])
    best, loss, first = descend(start, DOUBLE_WELL, Descent(steps=20, lr=5.0), address=1)
    assert loss == first == pytest.approx(DOUBLE_WELL.losses([start])[0])
    assert torch.equal(best, start)


def test_free_nodes_leave_their_place():
    bowl = FunctionObjective(lambda v: (v - torch.tensor([1.0, 0.0])).square().sum())  # everything rolls into one end
    free = tunnel_nodes(*ENDS, bowl, nodes=2, settings=FAST, mode="free", depth=0)
    assert float((free[1].vector - free[2].vector).norm()) < 1e-2
    assert all(node.loss < 1e-4 for node in free[:3])
    kept = tunnel_nodes(*ENDS, bowl, nodes=2, settings=FAST, depth=0)
    assert in_order(kept)
    assert not in_order([kept[0], kept[2], kept[1], kept[3]])


def test_segments_are_halved_until_they_are_low_or_the_depth_is_reached():
    one = tunnel_nodes(*ENDS, DOUBLE_WELL, nodes=1, settings=FAST, depth=1, tolerance=1e-4)
    assert [node.t for node in one] == [0, 0.25, 0.5, 0.75, 1]
    deep = tunnel_nodes(*ENDS, DOUBLE_WELL, nodes=1, settings=FAST, depth=3, tolerance=3e-3)
    assert excess(DOUBLE_WELL, chain([node.vector for node in deep], 10)) < 4e-3
    assert len(deep) < 17  # not to the limit everywhere
    assert [float(node.vector.norm()) for node in deep] == pytest.approx([1] * len(deep), abs=1e-3)


def test_a_killed_tunnel_continues_to_the_same_nodes(tmp_path):
    about = {"a": 1}

    class Broken(FunctionObjective):
        calls = 0

        def gradient(self, vector, address, step):
            type(self).calls += 1
            if self.calls > 450:
                raise KeyboardInterrupt
            return super().gradient(vector, address, step)

    whole = tunnel_nodes(*ENDS, DOUBLE_WELL, nodes=3, settings=FAST)
    with pytest.raises(KeyboardInterrupt):
        tunnel_nodes(*ENDS, Broken(DOUBLE_WELL.function), nodes=3, settings=FAST, cells=Cells(tmp_path, about))
    assert len(list(tmp_path.glob("node-*.npz"))) == 1
    again = tunnel_nodes(*ENDS, DOUBLE_WELL, nodes=3, settings=FAST, cells=Cells(tmp_path, about))
    assert all(torch.equal(a.vector, b.vector) and a.loss == b.loss for a, b in zip(whole, again, strict=True))


@pytest.mark.parametrize("kind", COEFFICIENTS)
@pytest.mark.parametrize("control", [3, 5])
def test_coefficients_are_a_partition_of_one(kind, control):
    for t in np.linspace(0, 1, 13):
        found = COEFFICIENTS[kind](t, control)
        assert min(found) >= 0
        assert sum(found) == pytest.approx(1)
    assert COEFFICIENTS[kind](0, control) == [1] + [0] * (control - 1)
    assert COEFFICIENTS[kind](1, control) == [0] * (control - 1) + [1]


def test_golden_coefficients():
    assert bezier_coefficients(0.5, 3) == [0.25, 0.5, 0.25]
    assert bezier_coefficients(0.25, 4) == pytest.approx([27 / 64, 27 / 64, 9 / 64, 1 / 64])
    for j in range(5):
        assert polygon_coefficients(j / 4, 5) == [float(i == j) for i in range(5)]


@pytest.mark.parametrize("kind", COEFFICIENTS)
def test_a_curve_with_its_bend_in_the_middle_is_the_straight_line(kind):
    one, two = torch.randn(20, dtype=torch.float64), torch.randn(20, dtype=torch.float64)
    control = [one, (one + two) / 2, two]
    assert torch.equal(curve_point(control, kind, 0.0), one)
    assert torch.equal(curve_point(control, kind, 1.0), two)
    for t in (0.1, 0.5, 0.8):
        torch.testing.assert_close(curve_point(control, kind, t), (1 - t) * one + t * two)


def test_schedules():
    assert [decay(f) for f in (0, 0.5, 0.9, 1)] == pytest.approx([1, 1, 0.01, 0.01])
    assert decay(0.7) == pytest.approx(0.505)


@pytest.mark.parametrize("kind", COEFFICIENTS)
def test_curves_find_the_valley_and_continue_when_killed(kind, tmp_path):
    settings = {"kind": kind, "steps": 600, "lr": 0.05}
    control = train_curve(*ENDS, DOUBLE_WELL, **settings)
    vectors = [curve_point(control, kind, t) for t in np.linspace(0, 1, 61)]
    assert DOUBLE_WELL.losses(vectors).max() < 0.25 / 4
    assert torch.equal(vectors[0], ENDS[0])
    assert torch.equal(vectors[-1], ENDS[1])
    straightened = train_curve(*ENDS, DOUBLE_WELL, kind=kind, steps=0)
    assert torch.equal(straightened[1], torch.tensor([0.5, 0.5]))

    def kill(text, done, total):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_curve(*ENDS, DOUBLE_WELL, **settings, cells=Cells(tmp_path, {}), show=kill)
    again = train_curve(*ENDS, DOUBLE_WELL, **settings, cells=Cells(tmp_path, {}))
    assert torch.equal(control[1], again[1])


@pytest.mark.parametrize("kind", COEFFICIENTS)
def test_the_first_step_of_a_curve_is_that_of_the_chain_rule(kind):
    control = train_curve(*ENDS, QUADRATIC_2D, kind=kind, steps=1, lr=0.1, weight_decay=0.5, seed=3)
    t = torch.rand((), generator=generator(3, "tunnel", ALL_MEMBERS, 0), dtype=torch.float64).item()
    bend = torch.tensor([0.5, 0.5], requires_grad=True)
    vector = curve_point([ENDS[0], bend, ENDS[1]], kind, t)
    (QUADRATIC_2D.function(vector) + 0.25 * vector.square().sum()).backward()
    torch.testing.assert_close(control[1], bend.detach() - 0.1 * bend.grad)


def network(norm: bool = False) -> nn.Module:
    middle = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(5, 8), *middle, nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


@pytest.mark.parametrize("norm", [False, True])
def test_gradient_of_a_network_is_that_of_the_module_on_the_same_batch(norm):
    torch.manual_seed(0)
    net, x, y = network(norm), torch.randn(40, 5), torch.arange(40) % 3
    points = points_of([net])
    objective = TrainingLoss(points, Split(x, y), batch_size=16, seed=3)
    rows = objective._rows(7, 1)
    assert len(rows) == 16
    assert not set(rows.tolist()) & set(objective._rows(7, 0).tolist())  # an epoch has every example once
    twin = copy.deepcopy(net).train()
    twin[-2].eval()  # dropout is off
    nn.functional.cross_entropy(twin(x[rows]), y[rows]).backward()
    expected = torch.cat([p.grad.flatten() for p in twin.parameters()])
    torch.testing.assert_close(objective.gradient(points.vectors[0], 7, 1), expected)
    assert torch.equal(objective.gradient(points.vectors[0], 7, 1), objective.gradient(points.vectors[0], 7, 1))
    dropped = TrainingLoss(points, Split(x, y), batch_size=16, seed=3, dropout=True)
    assert not torch.equal(dropped.gradient(points.vectors[0], 7, 1), expected)
    assert torch.equal(dropped.gradient(points.vectors[0], 7, 1), dropped.gradient(points.vectors[0], 7, 1))


def test_descent_of_a_network_lowers_its_exact_loss():
    torch.manual_seed(0)
    net, x, y = network(norm=True), torch.randn(60, 5), torch.arange(60) % 3
    points = points_of([net])
    objective = TrainingLoss(points, Split(x, y), batch_size=20)
    best, loss, start = descend(points.vectors[0], objective, Descent(60, 0.01), address=1)
    assert loss < start - 0.1
    assert objective.losses([best])[0] == loss
    torch.optim.swa_utils.update_bn([x], net)
    assert start == pytest.approx(nn.functional.cross_entropy(net.eval()(x), y).item(), abs=1e-5)
    assert math.isfinite(loss)


def test_unknown_words_are_refused():
    with pytest.raises(mm.Misuse, match="mode"):
        tunnel_nodes(*ENDS, DOUBLE_WELL, mode="tight")
    with pytest.raises(mm.Misuse, match="nodes=0"):
        tunnel_nodes(*ENDS, DOUBLE_WELL, nodes=0)
    with pytest.raises(mm.Misuse, match="kind of curve"):
        train_curve(*ENDS, DOUBLE_WELL, kind="spline")
    with pytest.raises(mm.Misuse, match="control=2"):
        train_curve(*ENDS, DOUBLE_WELL, control=2)


def test_losses_are_means_over_evenly_spaced_training_examples(monkeypatch):
    train = Split(torch.arange(12.0).unsqueeze(1), torch.arange(12))
    assert len(scored(train)) == 12
    monkeypatch.setattr("murmuration.studies.landscape.SCORED", 5)
    assert scored(train).y.tolist() == [0, 3, 6, 9]
