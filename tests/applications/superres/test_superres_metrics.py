"""PSNR, SSIM and scores of uncertainty, against closed forms."""

import math

import pytest
import torch
from superres_factories import grain

from murmuration.applications.superres.evaluation import correlation, error_by_std, psnr, score_uncertainty, ssim


def test_psnr_of_known_errors():
    black, white = torch.zeros(2, 3), torch.ones(2, 3)
    assert psnr(black, white) == 0.0
    assert psnr(white, white) == math.inf
    truth = grain(30, 20)
    assert psnr(truth + 0.1, truth) == pytest.approx(20.0, abs=1e-5)


def test_ssim_by_hand():
    """Flat pictures a and b have (2ab + C1) / (a^2 + b^2 + C1); a picture is like itself."""
    a, b = torch.full((12, 13), 0.3), torch.full((12, 13), 0.8)
    assert ssim(a, b) == pytest.approx((0.48 + 1e-4) / (0.73 + 1e-4), abs=1e-6)
    assert ssim(grain(20, 15), grain(20, 15)) == pytest.approx(1.0, abs=1e-12)
    assert math.isnan(ssim(grain(10, 30), grain(10, 30)))


def smoothed(images: torch.Tensor) -> torch.Tensor:
    """Gaussian means (n, H - 10, W - 10) of images (n, H, W)."""
    bell = torch.exp(-(torch.arange(11).double() - 5).square() / (2 * 1.5**2))
    bell = bell / bell.sum()
    down = torch.nn.functional.conv2d(images[:, None], bell.view(1, 1, -1, 1))
    return torch.nn.functional.conv2d(down, bell.view(1, 1, 1, -1))[:, 0]


def test_ssim_is_the_formula_of_wang():
    from skimage import metrics

    truth = torch.nn.functional.avg_pool2d(grain(1, 44, 52), 3, 1)[0].double()
    made = (truth + 0.1 * grain(42, 50, seed=1).double()).clamp(0, 1)
    a, b, aa, bb, ab = smoothed(torch.stack([made, truth, made * made, truth * truth, made * truth]))
    similarity = (2 * a * b + 1e-4) * (2 * (ab - a * b) + 9e-4)
    similarity /= (a**2 + b**2 + 1e-4) * (aa - a**2 + bb - b**2 + 9e-4)
    assert ssim(made, truth) == pytest.approx(float(similarity.mean()), abs=1e-10)
    assert psnr(made, truth) == pytest.approx(
        metrics.peak_signal_noise_ratio(truth.numpy(), made.numpy(), data_range=1.0), abs=1e-9
    )


def test_correlations_by_hand():
    from scipy.stats import pearsonr, spearmanr

    a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 4.0], [9.0, 100.0]])
    assert correlation(spearmanr, a, b) == pytest.approx(1.0)
    assert correlation(pearsonr, a, 3 - 2 * a) == pytest.approx(-1.0)
    assert math.isnan(correlation(pearsonr, torch.ones(4), a))


def test_uncertainty_of_a_perfect_map():
    """Errors drawn from the very standard deviations: all of the squared error is explained and 95 % covered."""
    generator = torch.Generator().manual_seed(5)  # another seed than the standard deviations
    std = 0.01 + 0.1 * grain(200, 200)
    error = (std * torch.randn(200, 200, generator=generator)).abs()
    found = score_uncertainty(std, error, grain(200, 200, seed=3), noise_std=1e-9)
    assert found["epistemic_fraction"] == pytest.approx(1.0, abs=0.03)  # 40,000 squares: standard error about 0.01
    assert found["noise_fraction"] < 1e-12
    assert found["coverage"] == pytest.approx(0.95, abs=0.005)
    assert found["rank_correlation"] > 0.4
    assert abs(found["edge_correlation"]) < 0.02  # unrelated: standard error 0.005
    for predicted, made in error_by_std(std, error):
        assert made == pytest.approx(predicted, rel=0.05)  # 4,000 a bin: standard error about 0.011


def test_uncertainty_of_noise_alone():
    error = torch.full((8, 8), 0.02)
    found = score_uncertainty(torch.zeros(8, 8), error, grain(8, 8), noise_std=0.01)
    assert found["noise_fraction"] == pytest.approx(0.25, rel=1e-5)
    assert found["epistemic_fraction"] == 0
    assert found["coverage"] == 0.0  # 0.02 lies beyond 1.96 times 0.01
    assert math.isnan(found["correlation"])
    assert math.isnan(found["rank_correlation"])
