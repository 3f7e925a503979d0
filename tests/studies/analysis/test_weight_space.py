"""Networks as weight vectors: what goes in comes out, and outputs at a vector are those of the plain module."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.models.nets import build_net
from murmuration.studies.cells import Cells
from murmuration.studies.weight_space import PointOutputs, examples_of, points_of, score_points


@pytest.fixture(scope="module")
def nets() -> list[nn.Module]:
    torch.manual_seed(0)
    return [build_net("small-cnn", (3, 8, 8), 4).eval() for _ in range(3)]


def test_vectors_keep_every_weight(nets):
    points = points_of(nets)
    assert points.space.size == sum(p.numel() for p in nets[0].parameters())
    for vector, net in zip(points.vectors, nets, strict=True):
        assert torch.equal(vector, nn.utils.parameters_to_vector(net.parameters()).detach())
    again = points.space.unflatten(points.vectors)
    assert all(torch.equal(again[name][1], value) for name, value in nets[1].named_parameters())


def test_outputs_are_those_of_the_plain_module(nets):
    points, x = points_of(nets), torch.randn(20, 3, 8, 8)
    found = list(PointOutputs(points, x)(points.vectors[i % 3] for i in range(40)))
    assert len(found) == 40  # more than are in memory at once
    for index, outputs in enumerate(found):
        torch.testing.assert_close(outputs, nets[index % 3](x), rtol=1e-4, atol=1e-5)


def test_zero_weights_predict_the_uniform_distribution(nets):
    points, x = points_of(nets), torch.randn(30, 3, 8, 8)
    y = torch.arange(30) % 4
    scores = score_points(PointOutputs(points, x)([torch.zeros(points.space.size)]), y)
    assert scores.loss.item() == pytest.approx(math.log(4), abs=1e-6)
    assert scores.accuracy.item() == pytest.approx(8 / 30)  # the share of class 0
    assert scores.agreement(torch.zeros(30)).item() == 1


def test_members_that_share_weights_are_the_networks_they_amount_to():
    data = mm.open_data("two-moons")
    ensemble = mm.fit("mlp", data, recipe="batch-ensemble", members=3, epochs=1, posthoc=None)
    points, x = points_of(ensemble), data.test.prepared
    outputs = torch.stack(list(PointOutputs(points, x)(points.vectors)))
    torch.testing.assert_close(outputs, ensemble.predict(data.test).outputs, rtol=1e-4, atol=1e-5)
    again = points[[0, 2]].ensemble(ensemble).predict(data.test.x)  # raw inputs: the preparation came along
    torch.testing.assert_close(again.outputs, ensemble.predict(data.test).outputs[[0, 2]], rtol=1e-4, atol=1e-5)


def test_a_split_without_inputs_as_given_is_taken_as_prepared():
    data = mm.open_data("two-moons")
    ensemble = mm.fit("mlp", data, members=1, epochs=1, posthoc=None)
    x, y = examples_of(ensemble, replace(data.train, x=None))
    assert x is data.train.prepared  # no copy: there may be many
    again, same = examples_of(ensemble, data.train)
    torch.testing.assert_close(x, again)
    assert torch.equal(y, same)


def test_batch_norm_statistics_belong_to_the_weights():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
    points, x = points_of([net]), torch.randn(64, 5)
    with pytest.raises(mm.Misuse, match=r"batch-norm.*train_x"):
        PointOutputs(points, x)
    twin = copy.deepcopy(net)
    with torch.no_grad():
        twin[0].weight.mul_(3).add_(0.1)
    vector = nn.utils.parameters_to_vector(twin.parameters()).detach()
    found = next(PointOutputs(points, x, train_x=x)([vector]))
    torch.optim.swa_utils.update_bn([x], twin)
    torch.testing.assert_close(found, twin.eval()(x), rtol=1e-5, atol=1e-6)


def test_networks_of_two_architectures_are_refused(nets):
    with pytest.raises(mm.Misuse, match="2 architectures"):
        points_of([nets[0], build_net("mlp", (3, 8, 8), 4)])


def test_regressions_have_a_loss_and_no_labels():
    torch.manual_seed(0)
    points = points_of(mm.Ensemble.from_models([nn.Linear(3, 1)], task="regression"))
    scores = score_points(PointOutputs(points, torch.randn(9, 3))(points.vectors), torch.zeros(9, 1), points.likelihood)
    assert scores.loss.isfinite().all()
    assert scores.accuracy.isnan().all()
    with pytest.raises(mm.Misuse, match="regression"):
        scores.agreement(torch.zeros(9))


def test_cells_are_computed_once_and_begun_anew_when_settings_change(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"a": torch.arange(3).numpy()}

    for about in ({"grid": 3}, {"grid": 3}, {"grid": 4}):
        cells = Cells(tmp_path / "plane", about)
        assert cells("row-0", compute)["a"].tolist() == [0, 1, 2]
        assert cells.missing(["row-0", "row-1"]) == ["row-1"]
    assert len(calls) == 2
    (tmp_path / "plane" / "row-0.npz").write_bytes(b"PK\x03\x04 cut off")
    assert cells("row-0", compute)["a"].tolist() == [0, 1, 2]
    assert len(calls) == 3


def test_points_beside_an_ensemble_are_evaluated_calibrated_and_saved_like_it(tmp_path):
    data = mm.open_data("two-moons")
    trained = mm.fit("mlp", data, members=2, epochs=2, posthoc=None)
    points = points_of(trained)
    moved = points[[0, 1, 1]].ensemble(trained).fit_posthoc(data.val)
    assert mm.evaluate(moved, data, out=tmp_path / "evaluation").to_json()
    moved.save(tmp_path / "moved")
    again = mm.load(tmp_path / "moved")
    torch.testing.assert_close(again.predict(data.test).outputs, moved.predict(data.test).outputs, rtol=0, atol=0)
    assert again.recipe.name == "given"
    twin = points.module(1)
    torch.testing.assert_close(twin(data.test.prepared), trained.member(1)(data.test.prepared), rtol=0, atol=0)


def test_examples_come_prepared_from_data_splits_and_pairs():
    data = mm.open_data("two-moons")
    trained = mm.fit("mlp", data, members=1, epochs=1, posthoc=None)
    for networks, given in ((trained, data), (trained, data.test), ([trained.member(0)], data)):
        x, y = examples_of(networks, given)
        assert torch.equal(x, data.test.prepared)
        assert torch.equal(y, data.test.y)
    x, _ = examples_of(trained, (data.test.x, data.test.y.numpy()))
    assert torch.equal(x, data.test.prepared)
    with pytest.raises(mm.Misuse, match="3 inputs and 2 targets"):
        examples_of([trained.member(0)], (torch.zeros(3, 2), torch.zeros(2)))
