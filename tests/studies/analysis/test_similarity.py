"""Cosines, disagreement and CKA of networks: identities, invariances and hard bounds."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

import murmuration as mm
from murmuration.models.nets import build_net
from murmuration.studies.divergence import jensen_shannon
from murmuration.studies.similarity import (
    cosines,
    disagreement_bounds,
    disagreements,
    gram,
    hsic,
    inner_products,
    linear_cka,
    network_similarity,
    pairwise,
    path_similarity,
    run_verdicts,
    verdicts_of,
)
from murmuration.studies.trajectory import trajectory_of
from murmuration.system.records import plain_json


def labelled(shape=(3, 8, 8), classes=4, count=60):
    torch.manual_seed(1)
    return torch.randn(count, *shape), torch.arange(count) % classes


def channels_permuted(net: nn.Module, scale: float = 1.0) -> nn.Module:
    """The same function of inputs: hidden units of a two-layer network in another order, scaled by a and 1 / a."""
    twin = copy.deepcopy(net)
    order = torch.randperm(twin[0].out_features, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        for name in ("weight", "bias"):
            getattr(twin[0], name).copy_(getattr(net[0], name)[order] * scale)
        twin[2].weight.copy_(net[2].weight[:, order] / scale)
    return twin


def test_a_network_is_like_itself_and_opposite_to_its_negative():
    torch.manual_seed(0)
    vector = torch.randn(1000)
    rows = [vector, vector, -vector, 7 * vector, torch.randn(1000)]
    found = cosines(lambda first: iter(rows[first:]))
    np.testing.assert_allclose(found[:4, :4], np.outer([1, 1, -1, 1], [1, 1, -1, 1]), atol=1e-12)
    assert (np.diagonal(found) == 1).all()
    assert (found == found.T).all()


def test_blocks_do_not_change_a_gram_matrix():
    torch.manual_seed(0)
    rows = list(torch.randn(7, 70_000))  # more than one part in double precision
    reads = []

    def read(first):
        for index in range(first, len(rows)):
            reads.append(index)
            yield rows[index]

    whole = torch.stack(rows).double()
    expected = (whole @ whole.mT).numpy()
    for size in (1, 2, 3, 7, 16):
        np.testing.assert_allclose(pairwise(read, inner_products, size), expected, rtol=1e-12)
    np.testing.assert_allclose(gram(read), expected, rtol=1e-12)
    reads.clear()
    pairwise(read, inner_products, 3)
    assert len(reads) == 7 + 4 + 1  # every block reads what comes after it, and nothing before


def test_permuted_and_rescaled_units_are_the_same_function_at_another_place():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
    found = network_similarity([net, channels_permuted(net), channels_permuted(net, 4.0)], labelled((12,)))
    assert (found.disagreement == 0).all()
    assert found.cosine[0, 1] < 0.9
    assert found.cosine[0, 2] < 0.9
    np.testing.assert_allclose(found.cka, 1.0, atol=1e-9)
    x = labelled((12,))[0]
    probs = torch.stack([each(x).softmax(-1) for each in (net, channels_permuted(net), channels_permuted(net, 4.0))])
    assert jensen_shannon(probs).abs().max() < 1e-6


def test_disagreement_obeys_its_bounds_and_the_triangle_inequality():
    rng = np.random.default_rng(0)
    for classes in (2, 3, 10):
        truth = rng.integers(classes, size=300)
        rights = rng.uniform(size=(12, 1)) > rng.uniform(size=(12, 300))
        tables = torch.from_numpy(np.where(rights, truth, rng.integers(classes, size=(12, 300))))
        d, a = disagreements(tables), (tables.numpy() == truth).mean(1)
        low, high = disagreement_bounds(a[:, None], a[None, :], classes)
        away = ~np.eye(12, dtype=bool)
        assert (low <= d + 1e-12).all()
        assert (d[away] <= high[away] + 1e-12).all()
        assert (d[:, :, None] <= d[:, None, :].transpose(0, 2, 1) + d[None] + 1e-12).all()  # d13 <= d12 + d23
        assert (np.diagonal(d) == 0).all()
        assert (d == d.T).all()


def test_cka_is_the_ratio_of_hsic_and_forgets_rotations_and_scales():
    torch.manual_seed(0)
    f, g = torch.randn(40, 6).double(), torch.randn(40, 90).double()
    centring = torch.eye(40).double() - 1 / 40
    by_kernels = [torch.trace(a @ a.mT @ centring @ b @ b.mT @ centring) for a, b in ((f, g), (f, f), (g, g))]
    assert linear_cka(f, g) == pytest.approx((by_kernels[0] / (by_kernels[1] * by_kernels[2]).sqrt()).item(), rel=1e-12)
    assert hsic(g, g) == pytest.approx(by_kernels[2].item(), rel=1e-12)  # more features than inputs
    assert linear_cka(f, f) == pytest.approx(1, abs=1e-12)
    rotation = torch.linalg.qr(torch.randn(6, 6).double()).Q
    assert linear_cka(3 * f @ rotation + 5, g) == pytest.approx(linear_cka(f, g), rel=1e-12)
    assert linear_cka(f @ torch.diag(torch.arange(1.0, 7).double()), g) != pytest.approx(linear_cka(f, g), rel=1e-3)
    assert np.isnan(linear_cka(torch.ones(40, 3), f))
    with pytest.raises(mm.Misuse, match="40 and 39 inputs"):
        linear_cka(f, g[:39])


def test_members_and_paths_are_compared_in_weights_predictions_and_features():
    torch.manual_seed(0)
    nets = [build_net("small-cnn", (3, 8, 8), 4).eval() for _ in range(3)]
    data = labelled()
    found = network_similarity(nets, data, groups=("a", "a", "b"))
    logits = torch.stack([net(data[0]) for net in nets])
    expected = (logits.argmax(-1)[0] != logits.argmax(-1)[2]).double().mean().item()
    assert found.disagreement[0, 2] == pytest.approx(expected)
    assert found.diversity[0, 2] == pytest.approx(expected / (1 - found.accuracy[2]))
    assert found.classes == 4
    assert found.mean("disagreement", same_group=True) == pytest.approx(found.disagreement[0, 1])
    orthogonal, twice = found.verdicts
    assert orthogonal.estimates[0].value == pytest.approx(found.cosine[:2, 2].mean())
    assert orthogonal.word == "cannot tell"  # two groups give no interval of a number without examples
    gap = found.disagreement[:2, 2].mean() - 2 * found.disagreement[0, 1]
    assert twice.estimates[0].value == pytest.approx(gap)
    assert twice.estimates[0].over == f"{found.examples} examples of 2 groups"
    assert ((found.cka > 0) & (found.cka <= 1 + 1e-9)).all()
    frame = found.frame()
    assert list(frame.columns) == ["measure", "first", "second", "value"]
    assert len(frame) == 4 * 9 + 3
    json.dumps(plain_json(found), allow_nan=False)

    path = path_similarity(trajectory_of([nets]), data)
    assert path.verdicts == ()  # three checkpoints have no end beside a beginning
    np.testing.assert_allclose(path.cosine, found.cosine, atol=1e-12)
    np.testing.assert_allclose(path.disagreement, found.disagreement)
    assert path.cka is None
    assert network_similarity(nets[:1], data).verdicts == ()


def test_runs_are_compared_with_late_checkpoints_of_one_run():
    torch.manual_seed(0)
    nets = [build_net("small-cnn", (3, 8, 8), 4).eval() for _ in range(6)]
    data, runs = labelled(), nets[:3]
    members = network_similarity(runs, data, cka=False)
    unlike = [path_similarity(trajectory_of([nets] * 3), data, member) for member in range(3)]  # six strangers
    one_end, different = run_verdicts(members, unlike)
    assert "last 3 checkpoints" in one_end.estimates[0].what
    assert (one_end.word, different.word) == ("does not hold", "does not hold")
    still = [path_similarity(trajectory_of([[net] * 6 for net in runs]), data, member) for member in range(3)]
    one_end, different = run_verdicts(members, still)
    assert one_end.word == "holds"
    pairs = members.disagreement[np.triu_indices(3, 1)]
    assert different.estimates[0].value == pytest.approx(pairs.mean())
    assert different.estimates[0].over == f"3 runs and {members.examples} examples"
    assert run_verdicts(members, [path_similarity(trajectory_of([runs]), data)]) == ()  # too short to have an end
    parts = {"members": members, **{f"path {i}": path for i, path in enumerate(still)}}
    assert [verdict.name for verdict in verdicts_of(parts)] == ["orthogonal", "one end", "different functions"]


def test_refusals_of_similarity():
    torch.manual_seed(0)
    nets = [build_net("small-cnn", (3, 8, 8), 4).eval() for _ in range(3)]
    data = labelled()
    with pytest.raises(mm.Misuse, match="2 names for 3 networks"):
        network_similarity(nets, data, names=("a", "b"))


def test_features_are_the_inputs_of_the_last_layer():
    torch.manual_seed(0)
    nets = [build_net("small-cnn", (3, 8, 8), 4).eval() for _ in range(2)]
    x, y = labelled()
    expected = linear_cka(*(net.body(x).detach() for net in nets))
    assert network_similarity(nets, (x, y)).cka[0, 1] == pytest.approx(expected, rel=1e-4)


def test_regressions_have_no_classes_to_disagree_on():
    net = mm.Ensemble.from_models([nn.Linear(3, 1)], task="regression")
    with pytest.raises(mm.Misuse, match="regression"):
        network_similarity(net, (torch.randn(5, 3), torch.zeros(5, 1)))
