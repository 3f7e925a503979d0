"""The metric of input gradients, by three roads, and its independence of the unit of length."""

import pytest
import torch
from torch import Tensor

from murmuration.core.coupling import InputGradientSpace
from murmuration.core.coupling.bandwidths import denominator
from murmuration.core.coupling.estimators import ESTIMATORS, rbf, squared_distances
from murmuration.core.coupling.input_gradients import MAX_ROWS, spectrum, tune

# Eigenvectors are kept in single precision: a few times 6e-8 of the largest weight.
SINGLE = 2e-6


def space(lengthscales: str = "pca", **others) -> InputGradientSpace:
    return InputGradientSpace(bandwidth="code", lengthscales=lengthscales, **others)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs(examples: int = 40, width: int = 6) -> Tensor:
    return randn(examples, width) * torch.linspace(0.3, 3.0, width, dtype=torch.float64) + 0.5


def units(*shape: int, seed: int = 1) -> Tensor:
    return torch.nn.functional.normalize(randn(*shape, seed=seed), dim=-1)


def distance(metric, a: Tensor, b: Tensor) -> Tensor:
    return (metric(a) - metric(b)).square().sum(-1)


@pytest.mark.parametrize("centred", [False, True])
def test_three_roads_lead_to_the_same_distance(centred: bool):
    """(s - s')' U Lambda U' (s - s') = (s - s')' C (s - s') = |X (s - s')|^2 / (N - 1)."""
    x, a, b = inputs(), units(10, 6), units(10, 6, seed=2)
    rows = x - x.mean(0) if centred else x
    covariance = rows.T @ rows / (len(x) - 1)
    values, vectors = torch.linalg.eigh(covariance)
    found = distance(space(centred=centred).make_metric(x.float()), a, b)
    first = (((a - b) @ vectors).square() * values).sum(-1)
    second = torch.einsum("nd,de,ne->n", a - b, covariance, a - b)
    third = (rows @ (a - b).T).square().sum(0) / (len(x) - 1)
    torch.testing.assert_close(first, second, rtol=1e-12, atol=0)
    torch.testing.assert_close(second, third, rtol=1e-12, atol=0)
    torch.testing.assert_close(found, first, rtol=0, atol=SINGLE * values.max().item())


def test_four_points_in_the_plane():
    x = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    values, vectors, rest = spectrum(x, 128)
    torch.testing.assert_close(values, torch.tensor([8 / 3, 2 / 3]))
    torch.testing.assert_close(vectors.abs(), torch.eye(2))
    assert rest == 0.0
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    assert distance(space().make_metric(x), one, other).item() == pytest.approx(10 / 3, rel=1e-6)
    for form, weights in {"paper": (1.4545455, 0.8), "poster": (1.8333333, 0.8333333)}.items():
        torch.testing.assert_close(tune(values, 0.5, form), torch.tensor(weights))
        metric = space("tuned", form=form, alpha=0.5).make_metric(x)
        assert distance(metric, one, other).item() == pytest.approx(sum(weights), rel=1e-6)


@pytest.mark.parametrize("form", ["paper", "poster"])
@pytest.mark.parametrize("rank", [2, 128])
def test_tuned_lengthscales_go_from_the_identity_to_pca(rank: int, form: str):
    x, a, b = inputs(), units(10, 6), units(10, 6, seed=2)
    ends = [space("tuned", form=form, alpha=alpha, rank=rank).make_metric(x.float()) for alpha in (0.0, 1.0)]
    torch.testing.assert_close(distance(ends[0], a, b), (a - b).square().sum(-1), rtol=SINGLE, atol=0)
    assert torch.equal(ends[1](a), space(rank=rank).make_metric(x.float())(a))
    assert torch.equal(tune(torch.tensor([0.0, 2.0]), 0.0, form), torch.ones(2))  # also of a direction nobody goes


@pytest.mark.parametrize("form", ["paper", "poster"])
@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("rank", [1, 3, 6, 128])
def test_the_directions_that_are_not_told_apart_have_their_mean_eigenvalue(rank: int, alpha: float, form: str):
    x, a, b = inputs(), units(10, 6), units(10, 6, seed=2)
    values, vectors = (part.flip(-1) for part in torch.linalg.eigh(x.T @ x / (len(x) - 1)))
    if rank < 6:
        values = torch.cat([values[:rank], values[rank:].mean().expand(6 - rank)])
    weights = 1 / ((1 - alpha) + alpha / values) if form == "paper" else (1 - alpha) + alpha * values
    expected = (((a - b) @ vectors).square() * weights).sum(-1)
    found = distance(space("tuned", form=form, rank=rank, alpha=alpha).make_metric(x.float()), a, b)
    torch.testing.assert_close(found, expected, rtol=0, atol=SINGLE * weights.max().item())
    if alpha == 1.0:
        pca = distance(space("pca", rank=rank).make_metric(x.float()), a, b)
        torch.testing.assert_close(pca, expected, rtol=0, atol=SINGLE * weights.max().item())


def test_fewer_examples_than_directions():
    """Three inputs of six numbers: along what they leave out, nobody is pushed by pca."""
    x = inputs(3)
    values, vectors, rest = spectrum(x.float(), 128)
    assert len(values) == 3
    assert rest == 0.0
    beside = torch.linalg.svd(x)[2][3:]  # orthogonal to all inputs
    found = distance(space().make_metric(x.float()), beside[0], beside[1])
    assert found.item() == pytest.approx(0.0, abs=1e-10)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(3), rtol=0, atol=1e-6)


@pytest.mark.parametrize("bandwidth", ["rde", "all", "off", "code"])
def test_the_unit_of_the_covariance_cancels_in_the_median(bandwidth: str):
    x, s = inputs(), units(4, 3, 6)
    kernels, forces = [], []
    for factor in (1.0, 30.0):
        metric = space().make_metric((factor * x).float())
        t = metric(s)
        squared = squared_distances(t.transpose(0, 1))
        kernels.append(rbf(squared, denominator(bandwidth, squared)))
        forces.append(ESTIMATORS["kde"](t, bandwidth).cotangents * factor)  # grad by t is one over a length
    torch.testing.assert_close(kernels[0], kernels[1], rtol=0, atol=1e-6)
    torch.testing.assert_close(forces[0], forces[1], rtol=1e-5, atol=1e-6)


def test_many_inputs_are_represented_by_evenly_spread_ones():
    """Sorted inputs, as many data sets have them: the first half must not stand for all."""
    x = torch.cat([torch.zeros(MAX_ROWS - 1, 2), torch.ones(MAX_ROWS, 2)])
    values, _, _ = spectrum(x, 2)
    whole = torch.linalg.eigvalsh((x.T @ x / (len(x) - 1)).double())
    assert values[0].item() == pytest.approx(whole[-1].item(), rel=2 / MAX_ROWS)


def test_candidates_are_the_published_alphas_until_one_is_chosen():
    x = inputs().float()
    s = units(5, 6).float()
    chosen = space("tuned").candidates()
    assert list(chosen) == ["0", "0.1", "0.2", "0.4", "0.8", "1"]
    given = space("tuned", alpha=0.4).prepare(x)
    assert torch.equal(given.metric(s), chosen["0.4"].prepare(x).metric(s))
    assert not torch.allclose(given.metric(s), chosen["0.8"].prepare(x).metric(s), atol=1e-3)
    assert space("tuned", alpha=0.4).candidates() == {}
    assert space("pca").candidates() == {}


def test_tuned_weights_to_all_printed_digits():
    values = torch.tensor([8 / 3, 2 / 3], dtype=torch.float64)
    for form, weights in {"paper": (1.4545455, 0.8), "poster": (1.8333333, 0.8333333)}.items():
        expected = torch.tensor(weights, dtype=torch.float64)
        torch.testing.assert_close(tune(values, 0.5, form), expected, rtol=0, atol=6e-8)
