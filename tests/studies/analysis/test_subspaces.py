"""Samples around a trained network: exact constructions, their moments, acceptance and addressed randomness."""

import math
from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.studies.subspaces import (
    PAPER,
    PLANE,
    SAMPLERS,
    Neighbourhood,
    draw_vectors,
    neighbourhood,
    principal_directions,
    sample_subspace,
)
from murmuration.studies.trajectory import trajectory_of
from murmuration.studies.weight_space import points_of

SIZE, STEPS = 400, 10


@pytest.fixture(scope="module")
def around() -> Neighbourhood:
    rng = torch.Generator().manual_seed(0)
    path = torch.randn(STEPS, SIZE, generator=rng) * torch.rand(SIZE, generator=rng) + 1
    path[:, :7] = 2.0  # weights that never moved
    return Neighbourhood(path[-1], lambda: iter(path), seed=5, member=1)


@pytest.fixture(scope="module")
def nets() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(2)]


@pytest.fixture(scope="module")
def labelled(nets):
    torch.manual_seed(1)
    x = torch.randn(80, 6)
    return x, nets[0](x).argmax(-1)  # the first network is always right


def drawn(around, sampler, count=30, **settings):
    return torch.stack(list(draw_vectors(around, sampler, count, **settings)))


def test_random_samples_lie_at_their_distance_in_every_direction(around):
    near = drawn(around, "random", radius=2.5, threshold=None) - around.final
    np.testing.assert_allclose(near.double().norm(dim=1), 2.5, rtol=1e-6)
    cosines = (near @ near.mT) / 2.5**2
    assert cosines[~torch.eye(30, dtype=bool)].abs().max() < 5 / math.sqrt(SIZE)
    far = (drawn(around, "random", 200, radius=(1.0, 3.0), threshold=None) - around.final).norm(dim=1)
    assert 1 <= far.min() < 1.1 < 2.9 < far.max() <= 3.001
    assert torch.equal(drawn(around, "random", 1, radius=0.0, threshold=None)[0], around.final)


def test_dropout_keeps_or_scales_every_weight(around):
    assert torch.equal(drawn(around, "dropout", 1, rate=0.0)[0], around.final)
    samples = drawn(around, "dropout", 50, rate=0.3)
    kept = samples != 0
    torch.testing.assert_close(samples, kept * around.final / 0.7, rtol=1e-6, atol=0)
    zeros = 1 - kept.double().mean().item()
    assert abs(zeros - 0.3) < 4 * math.sqrt(0.3 * 0.7 / samples.numel())
    rates = 1 - (drawn(around, "dropout", 40, rate=(0.0, 0.1)) != 0).double().mean(1)
    assert rates.max() < 0.1 + 4 * math.sqrt(0.1 * 0.9 / SIZE)
    with pytest.raises(mm.Misuse, match="rate=1"):
        drawn(around, "dropout", 1, rate=1.0)


def test_moments_are_those_of_numpy_and_the_average_is_the_mean(around):
    mean, std = around.moments
    path = np.stack([np.asarray(each, dtype=np.float64) for each in around.path()])
    np.testing.assert_allclose(mean, path.mean(0), rtol=1e-12)
    np.testing.assert_allclose(std, path.std(0), rtol=1e-9, atol=1e-12)
    average = drawn(around, "average", 4)
    assert len(average) == 1
    assert torch.equal(average[0], drawn(around, "diagonal", 1, scale=0.0)[0])
    assert torch.equal(average[0], mean.float())
    same = Neighbourhood(around.final, lambda: iter([around.final] * 7))
    assert torch.equal(drawn(same, "average", 1)[0], around.final)
    with pytest.raises(mm.Misuse, match="no checkpoints"):
        drawn(Neighbourhood(around.final, lambda: iter(())), "average", 1)


def test_the_diagonal_gaussian_has_the_standard_deviations_of_the_path(around):
    count, scale = 2000, 1.5
    mean, std = around.moments
    samples = drawn(around, "diagonal", count, scale=scale).double()
    assert torch.equal(
        samples[:, :7], mean[:7].float().double().expand(count, 7)
    )  # weights without variance never move
    ratio = ((samples - mean).square().mean(0).sqrt() / std)[7:] / scale
    assert (ratio - 1).abs().max() < 5 / math.sqrt(2 * count)


@pytest.mark.parametrize("scaling", ["unit", "eigen"])
def test_pca_samples_lie_in_the_span_with_the_stated_covariance(around, scaling):
    mean = around.moments[0]
    found = principal_directions(around.path, mean, 4)
    torch.testing.assert_close(found.directions @ found.directions.mT, torch.eye(4).double(), rtol=0, atol=1e-9)
    count, scale = 3000, 2.0
    steps = drawn(around, "pca", count, rank=4, scale=scale, scaling=scaling).double() - mean
    coordinates = steps @ found.directions.mT
    residual = (steps - coordinates @ found.directions).norm(dim=1) / steps.norm(dim=1)
    assert residual.max() < 1e-5
    expected = scale**2 * (torch.ones(4) if scaling == "unit" else found.variances).double()
    covariance = coordinates.mT @ coordinates / count
    noise = torch.outer(expected, expected).sqrt() * math.sqrt(2 / count)
    assert ((covariance - torch.diag(expected)).abs() < 5 * noise).all()
    distance = steps.square().sum(1).mean().sqrt().item()
    assert distance == pytest.approx(found.displacement(scaling, scale), rel=5 / math.sqrt(2 * count))


def test_the_eigenvalue_scaling_has_a_name_of_its_own(around):
    assert torch.equal(drawn(around, "pca-eigen", 5, rank=4), drawn(around, "pca", 5, rank=4, scaling="eigen"))


def test_the_gram_route_equals_the_singular_value_decomposition(around):
    mean = around.moments[0]
    rows = torch.stack(list(around.path())).double() - mean
    values, directions = torch.linalg.svd(rows, full_matrices=False)[1:]
    found = principal_directions(around.path, mean, 9)
    torch.testing.assert_close(found.variances, values[:9].square() / (STEPS - 1), rtol=1e-9, atol=0)
    torch.testing.assert_close((found.directions * directions[:9]).sum(1).abs(), torch.ones(9).double())
    with pytest.raises(mm.Misuse, match="rank=10: 10 weight vectors span at most 9"):
        principal_directions(around.path, mean, 10)
    line = Neighbourhood(around.final, lambda: iter([around.final * t for t in (1.0, 2.0, 4.0)]))
    with pytest.raises(mm.Misuse, match="fewer directions"):
        drawn(line, "pca", 1, rank=2)


def test_random_samples_are_accepted_by_validation_accuracy(nets, labelled):
    points = sample_subspace(nets, None, 0, "random", 12, val=labelled, radius=(0.0, 6.0), threshold=0.8)
    assert 0 < len(points) <= 12
    x, y = labelled
    for index in range(len(points)):
        assert (points.module(index)(x).argmax(-1) == y).double().mean() >= 0.8
    everything = sample_subspace(nets, None, 0, "random", 12, val=labelled, radius=(0.0, 6.0), threshold=0.0)
    free = sample_subspace(nets, None, 0, "random", 12, radius=(0.0, 6.0), threshold=None)
    assert torch.equal(everything.vectors, free.vectors)  # all at the first draw
    assert len(sample_subspace(nets, None, 0, "random", 12, val=labelled, threshold=1.01)) == 0
    near = sample_subspace(nets, None, 0, "random", 12, val=labelled, radius=(0.0, 6.0), margin=0.2)
    assert torch.equal(near.vectors, points.vectors)  # the member has accuracy 1
    with pytest.raises(mm.Misuse, match="give val="):
        sample_subspace(nets, None, 0, "random", 2)


def test_pca_of_random_samples_stays_near_the_member(nets, labelled):
    settings = {"radius": (0.0, 3.0), "threshold": 0.5}
    points = sample_subspace(nets, None, 0, "pca-random", 9, val=labelled, rank=3, scale=0.1, **settings)
    accepted = sample_subspace(nets, None, 0, "random", 9, val=labelled, **settings)
    centre = accepted.vectors.double().mean(0)
    basis = torch.linalg.svd(accepted.vectors.double() - centre, full_matrices=False)[2][:3]
    steps = points.vectors.double() - centre
    torch.testing.assert_close(steps @ basis.mT @ basis, steps, rtol=0, atol=1e-6)
    with pytest.raises(mm.Misuse, match="0 random samples were accepted"):
        sample_subspace(nets, None, 0, "pca-random", 9, val=labelled, threshold=1.01)


def test_samples_depend_on_seed_member_sampler_and_index_alone(nets):
    path = trajectory_of([[nets[1], nets[0], nets[1], nets[0]], [nets[0], nets[1], nets[1], nets[1]]])
    settings = {"random": {"threshold": None}, "pca": {"rank": 1}, "diagonal": {}, "dropout": {}}
    first = {n: sample_subspace(nets, path, 0, n, 5, **s).vectors for n, s in settings.items()}
    for name, given in reversed(settings.items()):  # another order, and more samples
        again = sample_subspace(nets, path, 0, name, 8, **given).vectors
        assert torch.equal(again[:5], first[name])
        assert not torch.equal(sample_subspace(nets, path, 0, name, 5, seed=1, **given).vectors, first[name])
    around = neighbourhood(nets, path, 0)
    draws = {name: torch.randn(50, generator=around.stream(name, 0)) for name in SAMPLERS}
    draws["retry"] = torch.randn(50, generator=around.stream("random", 0, 1))
    draws["member"] = torch.randn(50, generator=neighbourhood(nets, path, 1).stream("random", 0))
    assert len({tuple(each.tolist()) for each in draws.values()}) == len(SAMPLERS) + 2


def test_unknown_samplers_and_members_are_refused_and_own_samplers_run(nets):
    with pytest.raises(mm.Misuse, match="swag"):
        sample_subspace(nets, None, 0, "swag", 3)
    with pytest.raises(mm.Misuse, match="member 2 of 2"):
        sample_subspace(nets, None, 2, "dropout", 3)
    with pytest.raises(mm.Misuse, match="count=0"):
        sample_subspace(nets, None, 0, "dropout", 0)

    def halved(around, count):
        return (around.final / 2 for _ in range(count))

    points = sample_subspace(nets, None, 1, halved, 2)
    assert torch.equal(points.vectors[1], points_of(nets).vectors[1] / 2)


def test_settings_of_paper_and_plane_are_settings_of_their_samplers(nets, labelled):
    path = trajectory_of([[nets[index % 2] for index in range(8)]])
    for table in (PAPER, PLANE):
        for name, settings in table.items():
            given = {**settings, **({"rank": 1} if "pca" in name else {})}
            assert len(sample_subspace(nets[:1], path, 0, name, 4, val=labelled, **given)) > 0


def test_batch_norm_statistics_are_those_of_the_sampled_weights():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
    x = torch.randn(64, 5)
    points = sample_subspace([net], None, 0, "dropout", 2, train=x, rate=0.5)
    assert len(points) == 2
    for index in range(2):
        module = points.module(index)
        torch.testing.assert_close(module[1].running_mean, module[0](x).mean(0), rtol=1e-5, atol=1e-6)
    with pytest.raises(mm.Misuse, match="train_x"):
        sample_subspace([net], None, 0, "dropout", 2)


def test_samples_make_an_ensemble_like_any_other(tmp_path):
    data = mm.open_data("two-moons")
    trained = mm.fit("mlp", data, members=2, epochs=3, posthoc=None)
    points = sample_subspace(trained, None, 1, "random", 5, val=data.val, radius=(0.0, 1.0), threshold=0.5)
    ensemble = points.ensemble(trained).fit_posthoc(data.val)
    evaluation = mm.evaluate(ensemble, data)
    assert evaluation.scores["accuracy"] > 0.5
    ensemble.save(tmp_path / "samples")
    again = mm.load(tmp_path / "samples").predict(data.test.x)
    torch.testing.assert_close(again.outputs, ensemble.predict(data.test.x).outputs, rtol=0, atol=0)
    assert again.posthoc is not None
    assert len(list(islice(draw_vectors(neighbourhood(trained, None), "dropout", 3), 2))) == 2
