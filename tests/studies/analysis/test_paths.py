"""Paths between networks and the stitched view: scores, barriers, seams, and killed computations."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.studies.paths import Paths, ScoredPath, barrier, function_verdict, paths_between
from murmuration.studies.planes import stitched_view, wedge_directions
from murmuration.studies.weight_space import points_of

QUICK = {"nodes": 2, "steps": 30, "lr": 0.01, "curve_steps": 40, "curve_lr": 0.05, "batch_size": 32, "depth": 1}


def blobs(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes around the corners of a triangle."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    centres = torch.tensor([[0.0, 2.0], [1.7, -1.0], [-1.7, -1.0]])
    return centres[y] + torch.randn(count, 2, generator=generator), y


def trained(seed: int, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 3))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net.eval()


@pytest.fixture(scope="module")
def train():
    return blobs(90, 0)


@pytest.fixture(scope="module")
def test():
    return blobs(120, 1)


@pytest.fixture(scope="module")
def nets(train):
    return [trained(seed, *train) for seed in (0, 1)]


@pytest.fixture(scope="module")
def found(nets, train, test) -> Paths:
    return paths_between(nets, test, train=train, paths=("linear", "tunnel", "bezier", "polygon"), **QUICK)


def test_ends_of_every_path_are_the_networks(found, nets, test, train):
    for path in found.paths:
        for end, net in ((0, nets[0]), (-1, nets[1])):
            loss = nn.functional.cross_entropy(net(test[0]), test[1]).item()
            assert path.scores["loss"][end] == pytest.approx(loss, abs=1e-6)
            train_loss = nn.functional.cross_entropy(net(train[0]), train[1]).item()
            assert path.scores["train_loss"][end] == pytest.approx(train_loss, abs=1e-6)
        assert path.scores["agreement"][0, 0] == path.scores["agreement"][1, -1] == 1
        assert path.scores["agreement"][0, -1] == path.scores["agreement"][1, 0] < 1
    assert torch.equal(found.tunnel[0], points_of(nets).vectors[0])
    assert torch.equal(found.tunnel[-1], points_of(nets).vectors[1])


def test_geometry_of_the_paths(found, nets):
    one, two = points_of(nets).vectors.double()
    straight = float((one - two).norm())
    linear = found["linear"]
    assert found.distance == pytest.approx(straight)
    assert linear.length[-1] == pytest.approx(straight, rel=1e-6)
    assert len(linear.length) == 25
    assert linear.norm[12] == pytest.approx(float((one + two).norm()) / 2)
    for name in ("tunnel", "bezier", "polygon"):
        assert found[name].length[-1] >= straight
    assert [len(found[name].length) for name in ("bezier", "polygon")] == [61, 61]
    vertices = found["tunnel"].vertices
    assert len(vertices) == len(found.tunnel)
    assert found["tunnel"].norm[list(vertices)] == pytest.approx(found.tunnel.norm(dim=1).numpy())
    with pytest.raises(mm.Misuse, match="path"):
        found["aligned"]


def test_the_tunnel_is_lower_than_the_straight_line(found):
    assert found["linear"].barrier().excess > 0.01
    for name in ("tunnel", "bezier", "polygon"):
        assert found[name].barrier().excess < found["linear"].barrier().excess
    assert found.ordered
    verdicts = {verdict.name: verdict for verdict in found.verdicts}
    assert verdicts["barrier"].word == "holds"
    (rise,) = verdicts["barrier"].estimates
    assert rise.value == pytest.approx(found["linear"].barrier().excess, rel=1e-4)
    assert rise.over == f"{len(found['linear'].excess)} training examples"
    (below,) = verdicts["tunnel"].estimates
    share = found["tunnel"].barrier().excess - 0.2 * found["linear"].barrier().excess
    assert below.value == pytest.approx(share, abs=1e-5)
    assert "functions along the tunnel" in verdicts


def test_summary_integrates_over_the_length():
    values, length = np.array([1.0, 3.0, 3.0]), np.array([0.0, 3.0, 4.0])
    path = ScoredPath("x", length, np.ones(3), {"loss": values, "accuracy": values})
    found = path.summary()
    assert (found["loss_min"], found["loss_max"], found["loss_mean"]) == pytest.approx((1, 3, 7 / 3))
    assert found["loss_by_length"] == pytest.approx((2 * 3 + 3 * 1) / 4)


def test_three_definitions_of_a_barrier():
    fraction, loss = np.array([0, 0.25, 1]), np.array([1.0, 4.0, 3.0])
    found = barrier(fraction, loss, np.array([0.9, 0.5, 0.8]))
    assert (found.excess, found.rise, found.accuracy_drop) == pytest.approx((4 - 1.5, 1, 0.3))


def test_identical_ends_have_no_barrier_and_reversed_ends_mirror_the_curve(nets, test):
    same = paths_between([nets[0], nets[0]], test, paths=("linear",))
    assert same["linear"].barrier().excess == 0
    assert same["linear"].length[-1] == 0
    there = paths_between(nets, test, paths=("linear",))["linear"]
    back = paths_between(nets, test, paths=("linear",), ends=(1, 0))["linear"]
    assert back.scores["loss"] == pytest.approx(there.scores["loss"][::-1], abs=1e-6)
    assert back.scores["agreement"][1] == pytest.approx(there.scores["agreement"][0, ::-1])
    assert back.barrier().excess == pytest.approx(there.barrier().excess, abs=1e-6)


def test_frames_and_json(found):
    frame = found.frame()
    row = frame[(frame["path"] == "bezier") & (frame["index"] == 30) & (frame["measure"] == "agreement_1")]
    assert row["value"].item() == found["bezier"].scores["agreement"][1, 30]
    record = json.loads(json.dumps(found.to_json()))
    assert record["paths"][0]["barrier"]["excess"] == found["linear"].barrier().excess
    assert "tunnel" not in record
    assert record["settings"]["nodes"] == 2


def test_a_killed_computation_continues_to_the_same_paths(found, nets, train, test, tmp_path):
    kinds = ("linear", "tunnel", "bezier", "polygon")

    def kill(text, done, total):
        if text == "node 2":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        paths_between(nets, test, train=train, paths=kinds, **QUICK, folder=tmp_path, show=kill)
    assert len(list(tmp_path.glob("node-*.npz"))) == 1
    again = paths_between(nets, test, train=train, paths=kinds, **QUICK, folder=tmp_path)
    for one, two in zip(found.paths, again.paths, strict=True):
        assert all(np.array_equal(one.scores[name], two.scores[name]) for name in one.scores)
    assert torch.equal(found.tunnel, again.tunnel)


def test_a_tunnel_without_training_examples_is_refused(nets, test):
    with pytest.raises(mm.Misuse, match="give train="):
        paths_between(nets, test, paths=("tunnel",))
    with pytest.raises(mm.Misuse, match="path 'curve'"):
        paths_between(nets, test, paths=("curve",))


def test_wedges_meet_at_the_vertices(found, nets, test):
    vertices = found.tunnel
    view = stitched_view(nets, test, vertices, angles=8, radii=5)
    pairs = list(pairwise(vertices.double()))
    angles = [math.acos(float(a @ b / a.norm() / b.norm())) for a, b in pairs]
    assert view.angle[-1] == pytest.approx(sum(angles))
    assert view.vertex_angle == pytest.approx(np.cumsum([0, *angles]), abs=1e-6)
    assert view.vertex_radius == pytest.approx(vertices.norm(dim=1).numpy())
    assert set(np.round(view.vertex_angle, 9)) <= set(np.round(view.angle, 9))
    for (left, middle), (_, right) in pairwise(pairs):
        seams = wedge_directions(left, middle, 3)[1][-1], wedge_directions(middle, right, 2)[1][0]
        assert torch.equal(*seams)
    assert view.vertices["loss"][0] == pytest.approx(found["linear"].scores["loss"][0], abs=1e-6)
    assert view.scores["loss"][:, 0] == pytest.approx(math.log(3), abs=1e-6)  # all rays start at the origin
    assert len(view.frame()) == (view.scores["loss"].size + len(vertices)) * 4
    assert json.dumps(view.to_json())


def test_directions_of_a_wedge_are_equally_spaced_unit_vectors():
    one, two = torch.tensor([2.0, 0, 0]), torch.tensor([0, 0, 3.0])
    whole, directions = wedge_directions(one, two, 4)
    assert whole == pytest.approx(math.pi / 2)
    assert [float(d.norm()) for d in directions] == pytest.approx([1] * 5)
    steps = [math.acos(float(a @ b)) for a, b in pairwise(directions)]
    assert steps == pytest.approx([math.pi / 8] * 4)


def test_angles_beyond_a_full_turn_are_drawn_smaller():
    torch.manual_seed(0)
    nets = [nn.Linear(4, 3) for _ in range(2)]
    corners = torch.randn(9, 15)
    view = stitched_view(nets, (torch.randn(20, 4), torch.arange(20) % 3), corners, angles=8, radii=2)
    assert view.angle[-1] > 2 * math.pi
    assert view.scale * view.angle[-1] == pytest.approx(2 * math.pi)
    with pytest.raises(mm.Misuse, match="1 vertices"):
        stitched_view(nets, (torch.randn(20, 4), torch.arange(20) % 3), corners[:1])


def test_batch_norm_networks_are_connected_too(train, test):
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(2)]
    found = paths_between(nets, test, train=train, paths=("linear", "aligned", "tunnel"), **QUICK)
    nodes = found["tunnel"].scores["train_loss"][list(found["tunnel"].vertices)]
    assert nodes[1:-1].max() < found["linear"].scores["train_loss"].max()


@pytest.mark.parametrize(
    ("differing", "word"), [(0, "cannot tell"), (1, "cannot tell"), (3, "cannot tell"), (5, "holds"), (25, "holds")]
)
def test_ends_that_differ_on_few_examples_are_not_called_different(differing: int, word: str):
    apart = differing / 50
    agreement = np.array([[1.0, 1 - apart / 2, 1 - apart], [1 - apart, 1 - apart / 2, 1.0]])
    path = ScoredPath("x", np.arange(3.0), np.ones(3), {"agreement": agreement})
    verdict = function_verdict(path, examples=50)
    assert verdict.word == word
    assert verdict.estimates[0].value == pytest.approx(apart)
