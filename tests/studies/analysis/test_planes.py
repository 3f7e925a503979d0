"""Planes of a weight space: the basis, the grid, and scores that are those of the networks themselves."""

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.studies.planes import Plane, grid_axis, plane, plane_basis, similar_scores
from murmuration.studies.weight_space import points_of


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4)).eval()


@pytest.fixture(scope="module")
def nets() -> list[nn.Module]:
    torch.manual_seed(0)
    return [mlp() for _ in range(3)]


@pytest.fixture(scope="module")
def examples() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(60, 6), torch.arange(60) % 4


class Checkpoints:
    """Three checkpoints on the way from half of a network to the network, beside the plane at first."""

    def __init__(self, nets):
        self.ends = points_of(nets).vectors

    def vectors(self, member):
        torch.manual_seed(member)
        beside = torch.randn(self.ends.shape[1])
        return (scale * self.ends[member] + (1 - scale) * 0.1 * beside for scale in (0.5, 0.8, 1.0))


def test_basis_is_orthonormal_and_gives_the_anchors_back(nets):
    one, two, three = points_of(nets).vectors
    for basis, ends in ((plane_basis(one, two), (one, two)), (plane_basis(one, two, centre=three), (one, two, three))):
        assert float(basis.e1 @ basis.e2) == pytest.approx(0, abs=1e-14)
        assert float(basis.e1.norm()) == pytest.approx(1, abs=1e-14)
        assert float(basis.e2.norm()) == pytest.approx(1, abs=1e-14)
        for end in ends:
            x, y, residual = basis.project(end)
            assert residual < 1e-7
            assert float((basis.point(x, y) - end).norm() / end.norm()) < 1e-6


def test_coordinates_of_the_radial_plane(nets):
    one, two = points_of(nets).vectors[:2].double()
    basis, angle = plane_basis(one, two), math.acos(float(one @ two / one.norm() / two.norm()))
    assert basis.project(one)[:2] == pytest.approx((float(one.norm()), 0))
    expected = float(two.norm()) * math.cos(angle), float(two.norm()) * math.sin(angle)
    assert basis.project(two)[:2] == pytest.approx(expected)
    assert basis.project(torch.zeros_like(one)) == (0, 0, 0)


def test_nearly_parallel_anchors_keep_an_orthogonal_basis():
    torch.manual_seed(0)
    one = torch.randn(100_000)
    basis = plane_basis(one, one + 1e-4 * torch.randn(100_000))
    assert float(basis.e1 @ basis.e2) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("factor", [2.0, -1.0, 0.0])
def test_collinear_anchors_are_refused(nets, factor):
    one = points_of(nets).vectors[0]
    with pytest.raises(mm.Misuse, match="one line"):
        plane_basis(one, factor * one)


def test_projection_undoes_reconstruction_on_the_grid(nets):
    basis = plane_basis(*points_of(nets).vectors[:2])
    for x in grid_axis([0, 3], 4, 0.2):
        for y in grid_axis([0, 5], 4, 0.2):
            found = basis.project(basis.point(x, y))
            assert found[:2] == pytest.approx((x, y), abs=1e-6)
            assert found[2] < 1e-6


def test_a_vector_beside_the_plane_has_its_distance_as_residual():
    basis = plane_basis(torch.tensor([1.0, 0, 0]), torch.tensor([0, 1.0, 0]))
    assert basis.project(torch.tensor([3.0, 0, 4])) == pytest.approx((3, 0, 0.8))


@pytest.fixture(scope="module")
def found(nets, examples) -> Plane:
    samples = {"random": (points_of(nets).vectors[0] + 0.01 * k for k in range(4)), "others": points_of(nets), "no": []}
    return plane(nets, examples, train=examples, grid=5, margin=0.5, trajectory=Checkpoints(nets), samples=samples)


def test_grid_covers_the_anchors_with_a_margin(found, nets):
    one, two = (float(v.norm()) for v in points_of(nets).vectors[:2])
    assert found.anchors.x.tolist()[:2] == pytest.approx([0, one])
    assert (found.x[0], found.x[-1]) == pytest.approx((-one / 2, 1.5 * one)) or found.anchors.x[2] < 0
    assert math.hypot(found.anchors.x[2], found.anchors.y[2]) == pytest.approx(two)
    assert found.scores["loss"].shape == (5, 5)
    assert found.scores["agreement"].shape == (2, 5, 5)


def test_scores_at_the_anchors_are_those_of_the_networks(found, nets, examples):
    x, y = examples
    for turn, net in enumerate(nets[:2], start=1):
        outputs = net(x)
        assert found.anchors.scores["loss"][turn] == pytest.approx(nn.functional.cross_entropy(outputs, y).item())
        assert found.anchors.scores["accuracy"][turn] == pytest.approx((outputs.argmax(1) == y).float().mean().item())
        assert found.anchors.scores["agreement"][turn - 1, turn] == 1
    between = (nets[0](x).argmax(1) == nets[1](x).argmax(1)).double().mean().item()
    assert found.anchors.scores["agreement"][0, 2] == found.anchors.scores["agreement"][1, 1] == between


def test_scores_on_the_grid_are_those_of_a_network_with_these_weights(found, nets, examples):
    basis, x = plane_basis(*points_of(nets).vectors[:2]), examples[0]
    probe = mlp()
    nn.utils.vector_to_parameters(basis.point(found.x[3], found.y[1]), probe.parameters())
    outputs = probe(x)
    assert found.scores["loss"][1, 3] == pytest.approx(nn.functional.cross_entropy(outputs, examples[1]).item())
    agreement = (outputs.argmax(1) == nets[1](x).argmax(1)).double().mean().item()
    assert found.scores["agreement"][1, 1, 3] == agreement
    error = 1 - found.scores["accuracy"][1, 3]
    assert found.normalised_disagreement[1, 1, 3] == pytest.approx((1 - agreement) / error)


def test_the_origin_predicts_the_uniform_distribution(found, examples):
    assert found.anchors.scores["loss"][0] == pytest.approx(math.log(4), abs=1e-6)
    assert found.anchors.scores["accuracy"][0] == pytest.approx((examples[1] == 0).double().mean().item())


def test_predictions_are_constant_along_rays_of_a_network_without_biases():
    torch.manual_seed(0)
    net = nn.Sequential(
        *[nn.Conv2d(1, 4, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()],
        *[nn.Linear(36, 8, bias=False), nn.ReLU(), nn.Linear(8, 4, bias=False)],
    )
    x, y = torch.randn(50, 1, 8, 8), torch.arange(50) % 4
    vector, twin = points_of([net]).vectors[0], copy.deepcopy(net)
    nn.utils.vector_to_parameters(0.1 * torch.randn(len(vector)), twin.parameters())
    scaled = [0.3 * vector, 2.0 * vector]
    found = plane([net, twin], (x, y), grid=2, samples={"ray": scaled})
    assert found.overlays[0].scores["agreement"][0].tolist() == [1, 1]
    assert found.overlays[0].scores["accuracy"].tolist() == [found.anchors.scores["accuracy"][1]] * 2
    nn.utils.vector_to_parameters(2 * vector, twin.parameters())
    torch.testing.assert_close(twin(x), 8 * net(x), rtol=1e-4, atol=1e-4)  # three layers


def test_trajectories_are_projected_and_scored_where_they_are(found, nets, examples):
    first = found.overlays[0]
    assert (first.kind, len(first.x)) == ("trajectory", 3)
    assert first.residual[0] > 0.05
    assert first.residual[-1] < 1e-6
    assert first.norm[-1] == pytest.approx(first.x[-1])
    probe = mlp()
    nn.utils.vector_to_parameters(next(Checkpoints(nets).vectors(0)), probe.parameters())
    accuracy = (probe(examples[0]).argmax(1) == examples[1]).double().mean().item()
    assert first.scores["accuracy"][0] == accuracy
    assert [(each.name, len(each.x)) for each in found.overlays[2:]] == [("random", 4), ("others", 3)]
    assert found.overlays[-1].scores["loss"][1] == found.anchors.scores["loss"][2]


def test_verdicts_frame_and_json(found):
    assert [verdict.name for verdict in found.verdicts] == ["similar accuracy", "radial", "own directions"]
    radial = found.verdicts[1]
    assert radial.word == "holds"
    assert radial.estimates[0].over == "3 runs"
    assert radial.estimates[0].value == pytest.approx(found.growth.mean())
    frame = found.frame()
    assert set(frame["kind"]) == {"grid", "anchors", "trajectory", "samples"}
    row = frame[(frame["kind"] == "grid") & (frame["measure"] == "loss") & (frame["index"] == 7)]
    assert row["value"].item() == found.scores["loss"].ravel()[7]
    assert (row["x"].item(), row["y"].item()) == (found.x[2], found.y[1])
    assert json.loads(json.dumps(found.to_json()))["scores"]["loss"][1][2] == found.scores["loss"][1, 2]


@pytest.mark.parametrize(
    ("wrong", "word"), [((20, 25), "holds"), ((20, 55), "cannot tell"), ((20, 95), "does not hold")]
)
def test_accuracies_are_similar_if_the_interval_of_their_difference_is(found, wrong, word):
    marks = torch.ones(2, 1000)
    marks[0, : wrong[0]], marks[1, -wrong[1] :] = 0, 0
    verdict = similar_scores(replace(found, origin="anchor", marks=marks, examples=1000))
    assert verdict.word == word
    (apart,) = verdict.estimates
    assert apart.value == pytest.approx((wrong[1] - wrong[0]) / 1000)
    assert apart.high - apart.value == pytest.approx(1.96 * (sum(wrong) / 1000 / 1000) ** 0.5, rel=0.05)


def test_agreement_of_regions_has_the_largest_variance_that_the_disagreement_leaves(found):
    own = next(verdict for verdict in found.verdicts if verdict.name == "own directions")
    apart = 1 - found.anchors.scores["agreement"][0][2]
    for estimate in own.estimates:
        half = 2.001 * ((apart - estimate.value**2) / found.examples) ** 0.5
        assert estimate.high - estimate.value == pytest.approx(half, rel=1e-3)


def test_three_anchors_span_a_plane_around_the_first(nets, examples):
    found = plane(nets, examples, anchors=(2, 0, 1), origin="anchor", grid=3)
    one, _, three = points_of(nets).vectors
    assert found.anchors.x[1] == pytest.approx(float((one - three).norm()))
    assert (found.anchors.x[0], found.anchors.y[0]) == (0, 0)
    assert found.scores["agreement"].shape == (3, 3, 3)
    assert found.anchors.scores["agreement"].diagonal().tolist() == [1, 1, 1]
    with pytest.raises(mm.Misuse, match="3 anchors"):
        plane(nets, examples, anchors=(0, 1, 2))


def test_a_killed_plane_continues_to_the_same_numbers(nets, examples, tmp_path):
    class KilledError(Exception):
        pass

    def kill(text, done, total):
        if done == 2:
            raise KilledError

    whole = plane(nets, examples, grid=4)
    with pytest.raises(KilledError):
        plane(nets, examples, grid=4, folder=tmp_path, show=kill)
    assert sorted(path.name for path in tmp_path.glob("*.npz")) == ["row-0.npz", "row-1.npz"]
    stamp = (tmp_path / "row-0.npz").stat().st_mtime_ns
    again = plane(nets, examples, grid=4, folder=tmp_path)
    assert (tmp_path / "row-0.npz").stat().st_mtime_ns == stamp
    assert all(np.array_equal(whole.scores[name], again.scores[name], equal_nan=True) for name in whole.scores)
    plane(nets, (examples[0], 3 - examples[1]), grid=4, folder=tmp_path)  # other examples: begun anew
    assert (tmp_path / "row-0.npz").stat().st_mtime_ns != stamp


def test_members_and_examples_that_are_not_there_are_refused(nets, examples):
    with pytest.raises(mm.Misuse, match="from 0 to 2"):
        plane(nets, examples, anchors=(0, 3))
    with pytest.raises(mm.Misuse, match="origin"):
        plane(nets, examples, origin="centre")
