"""Closed forms and golden numbers of kernels and forces between normalised input gradients, and invariances."""

import math

import pytest
import torch
from torch import Tensor

from murmuration.core.coupling.bandwidths import BANDWIDTHS, denominator
from murmuration.core.coupling.estimators import ESTIMATORS, ETA, gradient_mixing, rbf, squared_distances

NAMES = [*BANDWIDTHS, "fixed:0.8"]
SYMMETRIC = ["rde", "all", "off", "algorithm-1", "fixed:0.8"]


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def doubles(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def seen(g: Tensor, weights: Tensor | float = 1.0) -> Tensor:
    """Signatures (M, B, D) of input gradients: on the sphere, then scaled by the roots of the metric's weights."""
    eps = 1e-12
    return g / (g.square().sum(-1, keepdim=True) + eps**2).sqrt() * torch.as_tensor(weights, dtype=g.dtype).sqrt()


def pulled_back(g: Tensor, bandwidth: str, weights: Tensor | float = 1.0, force: str = "kde") -> tuple[Tensor, Tensor]:
    """r (M,) and the gradient (M, B, D) by input gradients g that the cotangents stand for."""
    g = g.detach().requires_grad_()
    t = seen(g, weights)
    found = ESTIMATORS[force](t.detach(), bandwidth)
    return found.log_density, torch.autograd.grad(t, g, found.cotangents)[0]


def kernels_by_loops(t: Tensor, bandwidth: str) -> tuple[Tensor, Tensor]:
    """k_ij (M, M) and grad_i k_ij (M, M, B, R), one pair and one sample at a time."""
    members, batch, _ = t.shape
    squared = torch.stack(
        [torch.cdist(t[:, b], t[:, b], compute_mode="donot_use_mm_for_euclid_dist") for b in range(batch)]
    )
    c = denominator(bandwidth, squared.square()).expand_as(squared)
    k, slopes = torch.zeros(members, members, dtype=t.dtype), torch.zeros(members, *t.shape, dtype=t.dtype)
    for i in range(members):
        for j in range(members):
            for b in range(batch):
                kappa = torch.exp(-(t[i, b] - t[j, b]).square().sum() / c[b, i, j])
                k[i, j] += kappa / batch
                slopes[i, j, b] = -(2 / (batch * c[b, i, j])) * kappa * (t[i, b] - t[j, b])
    return k, slopes


@pytest.mark.parametrize("bandwidth", NAMES)
@pytest.mark.parametrize("shape", [(2, 1, 3), (4, 3, 5), (6, 2, 1)])
def test_forces_equal_loops_over_pairs_and_samples(bandwidth: str, shape: tuple[int, int, int]):
    t = randn(*shape)
    k, slopes = kernels_by_loops(t, bandwidth)
    total, density = slopes.sum(1), k.sum(1)
    symmetric = (k + k.mT) / 2
    values, vectors = torch.linalg.eigh(symmetric)
    positive = vectors @ torch.diag(values.clamp_min(0)) @ vectors.mT  # k itself, where the bandwidth is shared
    inverse = torch.linalg.inv(positive + ETA * torch.eye(len(k), dtype=torch.float64))
    expected = {
        "kde": total / density[:, None, None],
        "sge": torch.einsum("ij,jbr->ibr", inverse, total),
        "ssge": torch.einsum("ij,jbr->ibr", positive @ inverse @ inverse, total),
        "blob": total / density[:, None, None] + torch.einsum("ijbr,j->ibr", slopes, 1 / density),
        "svgd": total / len(k),
    }
    for name, force in ESTIMATORS.items():
        found = force(t, bandwidth)
        scale = expected[name].abs().max().item()
        torch.testing.assert_close(found.cotangents, expected[name], rtol=0, atol=1e-12 * max(scale, 1))
        torch.testing.assert_close(found.log_density, density.log(), rtol=0, atol=1e-12)
        assert found.mean_kernel.item() == pytest.approx(
            k[~torch.eye(len(k), dtype=torch.bool)].mean().item(), abs=1e-12
        )
    torch.testing.assert_close(gradient_mixing(t, bandwidth), k / len(k), rtol=0, atol=1e-12)
    if bandwidth in SYMMETRIC:
        torch.testing.assert_close(positive, k, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("bandwidth", "r"), [("code", math.log(1.25)), ("all", math.log(1.25)), ("off", math.log(1.5))]
)
@pytest.mark.parametrize("angle", [0.3, 1.2, 3.0])
def test_two_linear_models_at_any_angle(bandwidth: str, r: float, angle: float):
    g = doubles([[[2.0, 0.0]], [[0.5 * math.cos(angle), 0.5 * math.sin(angle)]]])
    found, gradient = pulled_back(g, bandwidth)
    torch.testing.assert_close(found, doubles([r, r]), rtol=0, atol=6e-11)
    if bandwidth == "code":
        s, q = seen(g)[:, 0], 2 * (1 - math.cos(angle))
        expected = 0.8 * math.log(2) / q * (s[1] - math.cos(angle) * s[0]) / 2.0
        torch.testing.assert_close(gradient[0, 0], expected, rtol=0, atol=6e-11)


def test_two_orthogonal_linear_models():
    r, gradient = pulled_back(doubles([[[1.0, 0.0]], [[0.0, 1.0]]]), "code")
    torch.testing.assert_close(r, doubles([0.2231435513] * 2), rtol=0, atol=6e-11)
    torch.testing.assert_close(gradient[0, 0], doubles([0.0, 0.2772588722]), rtol=0, atol=6e-11)


@pytest.mark.parametrize("bandwidth", ["code", "all", "off"])
@pytest.mark.parametrize("members", [3, 4, 10])
def test_orthonormal_gradients(members: int, bandwidth: str):
    s = torch.eye(members, dtype=torch.float64).unsqueeze(1)
    r, gradient = pulled_back(s, bandwidth)
    coefficient = math.log(members) / (2 * members - 1)
    others = (1 - torch.eye(members, dtype=torch.float64)).unsqueeze(1)
    torch.testing.assert_close(r, torch.full_like(r, math.log((2 * members - 1) / members)), rtol=0, atol=6e-11)
    torch.testing.assert_close(gradient, coefficient * others, rtol=0, atol=6e-11)
    if members == 10:
        assert r[0].item() == pytest.approx(0.6418538862, abs=6e-11)
        assert coefficient == pytest.approx(0.1211886891, abs=6e-11)


GOLDEN = doubles([[[1, 2, 2], [2, -1, 2]], [[2, 1, -2], [1, 2, 2]], [[2, -2, 1], [-2, 1, 2]]])
SAME = (
    [0.4418327523, 0.5108256238, 0.4418327523],
    [[0.0523148709, -0.0130787177, -0.0130787177], [-0.0113348887, 0.0645216741, 0.0435957257]],
)
WEIGHTED = {
    "code": (
        [0.3845342255, 0.5108256238, 0.1759494099],
        [[0.1522080358, -0.0553053756, -0.0207986423], [-0.0524950007, 0.0293208745, 0.0671554379]],
    ),
    "all": (
        [0.3200112503, 0.3933258201, 0.1759494099],
        [[0.151860163, -0.0519964494, -0.0239336321], [-0.0334739184, 0.0360161403, 0.0514819886]],
    ),
    "off": (
        [0.5206397638, 0.6317189051, 0.3845342255],
        [[0.1325093853, -0.048185231, -0.0180694616], [-0.0384345784, 0.0171549962, 0.0470120765]],
    ),
}


@pytest.mark.parametrize("bandwidth", ["code", "all", "off"])
def test_golden_tensor(bandwidth: str):
    squared = squared_distances(seen(GOLDEN).transpose(0, 1))
    torch.testing.assert_close(squared[0], 2 * (1 - torch.eye(3, dtype=torch.float64)), rtol=0, atol=1e-14)
    torch.testing.assert_close(squared[1, [0, 0, 1], [1, 2, 2]], doubles([10, 20, 10]) / 9, rtol=0, atol=1e-14)
    c = denominator(bandwidth, squared).expand(2, 3, 3)
    expected = doubles([1.8204784533, 1.0113769185])[:, None, None].expand(2, 3, 3)
    torch.testing.assert_close(c, expected, rtol=0, atol=6e-11)
    r, gradient = pulled_back(GOLDEN, bandwidth)
    torch.testing.assert_close(r, doubles(SAME[0]), rtol=0, atol=6e-11)
    torch.testing.assert_close(gradient[0], doubles(SAME[1]), rtol=0, atol=6e-11)


@pytest.mark.parametrize("bandwidth", ["code", "all", "off"])
def test_golden_tensor_in_a_metric(bandwidth: str):
    weights = doubles([4.0, 1.0, 0.25])
    squared = squared_distances(seen(GOLDEN, weights).transpose(0, 1))
    torch.testing.assert_close(squared[0, [0, 0, 1], [1, 2, 2]], doubles([1.0, 2.25, 1.25]), rtol=0, atol=1e-14)
    torch.testing.assert_close(squared[1, [0, 0, 1], [1, 2, 2]], doubles([13, 68, 37]) / 9, rtol=0, atol=1e-14)
    if bandwidth == "code":
        expected = [[0.9102392266, 0.9102392266, 1.1377990333], [1.314789994, 1.314789994, 3.7420945984]]
        torch.testing.assert_close(denominator("code", squared)[:, 0], doubles(expected), rtol=0, atol=6e-11)
    r, gradient = pulled_back(GOLDEN, bandwidth, weights)
    torch.testing.assert_close(r, doubles(WEIGHTED[bandwidth][0]), rtol=0, atol=6e-11)
    torch.testing.assert_close(gradient[0], doubles(WEIGHTED[bandwidth][1]), rtol=0, atol=6e-11)


@pytest.mark.parametrize("bandwidth", NAMES)
def test_finite_differences_with_others_and_bandwidth_frozen(bandwidth: str):
    g, metric = randn(4, 3, 5), doubles([2.0, 1.0, 0.5, 1.5, 1.0])
    others = seen(g, metric).transpose(0, 1)  # (B, M, D)
    c = denominator(bandwidth, squared_distances(others)).expand(3, 4, 4)
    _, gradient = pulled_back(g, bandwidth, metric)

    def r(i: int, mine: Tensor) -> float:
        squared = (seen(mine, metric)[:, None] - others).square().sum(-1)  # (B, M)
        return (-squared / c[:, i]).exp().mean(0).sum().log().item()

    for i, b, d in [(0, 0, 0), (1, 2, 3), (3, 1, 4)]:
        step = torch.zeros(3, 5, dtype=torch.float64)
        step[b, d] = 1e-6
        slope = (r(i, g[i] + step) - r(i, g[i] - step)) / 2e-6
        assert slope == pytest.approx(gradient[i, b, d].item(), abs=1e-9)


def test_the_second_argument_and_the_median_count_as_constants():
    t = randn(1, 2, 3).requires_grad_()
    squared = squared_distances(t)
    held = ESTIMATORS["kde"](t.detach().transpose(0, 1), "all").cotangents.transpose(0, 1)
    through = rbf(squared, denominator("all", squared)).sum(-1).log().sum()
    torch.testing.assert_close(torch.autograd.grad(through, t, retain_graph=True)[0], 2 * held, rtol=1e-12, atol=0)
    moving = (
        rbf(squared, squared.sum((1, 2), keepdim=True) / 4 / math.log(2)).sum(-1).log().sum()
    )  # the median of 0 0 q q
    torch.testing.assert_close(torch.autograd.grad(moving, t)[0], torch.zeros_like(t), rtol=0, atol=1e-14)
