"""t-SNE of predictions: entropies, objective and determinism; separation of runs in predictions and on the map."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.studies.embedding import (
    Row,
    conditional_probabilities,
    embed,
    embed_paths,
    kl_objective,
    principal_coordinates,
    separation,
    squared_distances,
    tsne,
)
from murmuration.studies.trajectory import trajectory_of
from murmuration.system.records import plain_json


@pytest.fixture(scope="module")
def clusters():
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(size=(25, 40)) * 0.1 + rng.normal(size=40) for _ in range(3)])


@pytest.mark.parametrize("perplexity", [1.5, 5, 30, 70])
def test_rows_have_the_entropy_of_the_perplexity(clusters, perplexity):
    p = conditional_probabilities(squared_distances(clusters), perplexity)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)
    assert (np.diagonal(p) == 0).all()
    entropies = -(p * np.log(np.where(p > 0, p, 1))).sum(1)
    np.testing.assert_allclose(entropies, math.log(perplexity), atol=1e-4)
    far = conditional_probabilities(1e8 * squared_distances(clusters), perplexity)
    np.testing.assert_allclose(far, p, atol=1e-6)  # distances have no unit
    with pytest.raises(mm.Misuse, match="perplexity=80"):
        conditional_probabilities(squared_distances(clusters), 80)


def test_principal_coordinates_keep_all_distances(clusters):
    np.testing.assert_allclose(
        squared_distances(principal_coordinates(clusters)), squared_distances(clusters), atol=1e-9
    )
    np.testing.assert_allclose(squared_distances(clusters)[3, 60], ((clusters[3] - clusters[60]) ** 2).sum())


def test_the_map_is_the_same_for_a_seed_and_keeps_clusters_apart(clusters):
    from sklearn.metrics import silhouette_score

    first = tsne(clusters, perplexity=20, seed=1, iterations=400)
    np.testing.assert_array_equal(first, tsne(clusters, perplexity=20, seed=1, iterations=400))
    assert silhouette_score(first, np.repeat([0, 1, 2], 25)) > 0.5
    exaggerated = tsne(clusters, perplexity=20, seed=1, iterations=250)  # the end of the first phase
    squared = squared_distances(clusters)
    assert kl_objective(squared, first, 20) < kl_objective(squared, exaggerated, 20)


def test_the_objective_is_that_of_scikit_learn(clusters):
    from sklearn.manifold import TSNE

    model = TSNE(perplexity=10, method="exact", random_state=0, max_iter=800)
    positions = model.fit_transform(clusters.astype(np.float32))
    # scikit-learn has the objective before its last step
    assert kl_objective(squared_distances(clusters), positions, 10) == pytest.approx(model.kl_divergence_, rel=1e-3)


def test_separation_is_counted_by_hand():
    places = np.array([[0.0], [2.0], [10.0], [14.0], [50.0], [1.0], [11.0], [3.0]])
    runs, kinds = [0, 0, 1, 1, 1, 0, 1, 1], ["path"] * 5 + ["sample"] * 3
    late = [True] * 4 + [False] * 4
    found = separation(squared_distances(places), runs, kinds, late)
    assert found.within == pytest.approx((2 + 4) / 2)
    assert found.between == pytest.approx((10 + 14 + 8 + 12) / 4)
    assert found.own_run == pytest.approx(2 / 3)  # the last sample of run 1 is nearest to run 0
    assert found.ratio == pytest.approx(11 / 3)
    alone = separation(squared_distances(places[:2]), runs[:2], kinds[:2], late[:2])
    assert math.isnan(alone.between)
    assert math.isnan(alone.own_run)


def test_runs_and_their_samples_are_embedded_together():
    torch.manual_seed(0)
    starts = [nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(2)]
    paths = []
    for net in starts:
        path = []
        for step in range(12):
            moved = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
            moved.load_state_dict({name: (1 + step / 8) * value for name, value in net.state_dict().items()})
            path.append(moved)
        paths.append(path)
    data = torch.randn(60, 5), torch.arange(60) % 3
    nets = [path[-1] for path in paths]
    settings = {"dropout": {"rate": 0.01}, "random": {"threshold": None, "radius": 0.05}}
    found = embed_paths(nets, trajectory_of(paths), data, samplers=settings, count=5, examples=40)
    assert found.positions.shape == (2 * (12 + 10), 2)
    assert found.methods[:12] == ("path",) * 12
    assert found.methods[12:22] == ("dropout",) * 5 + ("random",) * 5
    assert found.runs.count(1) == 22
    assert found.epochs[:12] == tuple(map(float, range(1, 13)))
    assert found.examples == 40
    assert found.predictions.own_run == 1  # samples this near belong to their run
    clusters, stay = found.verdicts
    assert clusters.estimates[0].value == pytest.approx(found.predictions.ratio)
    assert stay.estimates[0].value == 1
    assert (clusters.word, stay.word) == ("cannot tell", "cannot tell")  # two runs have no interval
    assert found.perplexity == pytest.approx(43 / 3)
    x = data[0][:40]
    difference = (nets[0](x).softmax(-1) - nets[1](x).softmax(-1)).flatten().norm().item()
    late = [index for index in range(12) if index >= 2]
    everything = [[path[i](x).softmax(-1).flatten() for i in late] for path in paths]
    between = torch.cdist(*(torch.stack(each) for each in everything)).mean().item()
    assert found.predictions.between == pytest.approx(between, rel=1e-4)
    assert difference > 0
    json.dumps(plain_json(found), allow_nan=False)
    assert len(found.frame()) == 2 * 44
    with pytest.raises(mm.Misuse, match="none of them exists"):
        embed_paths(nets, trajectory_of(paths), data, members=(5,))
    with pytest.raises(mm.Misuse, match="at least 4"):
        embed(np.zeros((2, 3)), [Row(0, "path", "path")] * 2, examples=1)
