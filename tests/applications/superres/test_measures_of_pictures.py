"""PSNR, SSIM and what is said of uncertainty, against closed forms and scikit-image."""

import math

import pytest
import torch
from photographs_made import grain

from murmuration.applications.superres.measures import by_doubt, correlation, doubt, psnr, ranks, squared_error, ssim


def test_psnr_of_known_errors():
    assert psnr(0.01) == 20.0
    assert psnr(1.0) == 0.0
    assert psnr(0.0) == math.inf
    truth = grain(30, 20)
    assert psnr(squared_error(truth + 0.1, truth)) == pytest.approx(20.0, abs=1e-5)


def test_ssim_by_hand():
    """Flat pictures a and b have (2ab + C1) / (a^2 + b^2 + C1); a picture is like itself."""
    a, b = torch.full((12, 13), 0.3), torch.full((12, 13), 0.8)
    assert ssim(a, b) == pytest.approx((0.48 + 1e-4) / (0.73 + 1e-4), abs=1e-6)
    assert ssim(grain(20, 15), grain(20, 15)) == pytest.approx(1.0, abs=1e-12)
    assert math.isnan(ssim(grain(10, 30), grain(10, 30)))


def test_ssim_is_that_of_scikit_image():
    from skimage import metrics

    truth = torch.nn.functional.avg_pool2d(grain(1, 44, 52), 3, 1)[0].double()
    made = (truth + 0.1 * grain(42, 50, seed=1).double()).clamp(0, 1)
    theirs = metrics.structural_similarity(
        *(picture.numpy() for picture in (made, truth)),
        data_range=1.0,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
    )
    assert ssim(made, truth) == pytest.approx(theirs, abs=1e-10)
    assert psnr(squared_error(made, truth)) == pytest.approx(
        metrics.peak_signal_noise_ratio(truth.numpy(), made.numpy(), data_range=1.0), abs=1e-9
    )


def test_ranks_are_those_of_scipy():
    from scipy.stats import rankdata, spearmanr

    a, b = (grain(40, seed=1) * 6).round(), grain(40, seed=2)
    assert ranks(a).numpy() + 1 == pytest.approx(rankdata(a.numpy()))
    assert correlation(ranks(a), ranks(b)) == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)


def test_doubt_of_a_perfect_map():
    """Errors drawn from the very standard deviations: all of the squared error is explained and 95 % covered."""
    generator = torch.Generator().manual_seed(5)  # another seed than the standard deviations
    std = 0.01 + 0.1 * grain(200, 200)
    error = (std * torch.randn(200, 200, generator=generator)).abs()
    found = doubt(std, error, grain(200, 200, seed=3), noise_std=1e-9)
    assert found.weights_share == pytest.approx(1.0, abs=0.03)  # 40,000 squares: standard error about 0.01
    assert found.noise_share < 1e-12
    assert found.coverage == pytest.approx(0.95, abs=0.005)
    assert found.rank_correlation > 0.4
    assert abs(found.edges) < 0.02  # unrelated: standard error 0.005
    for predicted, made in by_doubt(std, error):
        assert made == pytest.approx(predicted, rel=0.05)  # 4,000 a bin: standard error about 0.011


def test_doubt_of_noise_alone():
    error = torch.full((8, 8), 0.02)
    found = doubt(torch.zeros(8, 8), error, grain(8, 8), noise_std=0.01)
    assert found.noise_share == pytest.approx(0.25, rel=1e-5)
    assert found.weights_share == 0
    assert found.coverage == 0.0  # 0.02 lies beyond 1.96 times 0.01
    assert math.isnan(found.correlation)
    assert math.isnan(found.rank_correlation)
