"""Quantile regression: the distribution through quantiles, its scores, calibration and intervals."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate

import murmuration as mm
from murmuration.data import Data
from murmuration.likelihoods import Quantiles
from murmuration.likelihoods.mixtures import QuantileCurves
from murmuration.prediction.posthoc.std_scaling import StdScaling
from murmuration.prediction.predictive import Predictive

LEVELS = (0.1, 0.4, 0.8)


def curve() -> QuantileCurves:
    return QuantileCurves(torch.tensor(LEVELS).double(), torch.tensor([[[[-1.0, 0.5, 3.0]]]]).double())


def at(values: float) -> torch.Tensor:
    return torch.tensor([[values]], dtype=torch.float64)


def test_the_cdf_passes_through_the_quantiles_and_undoes_the_quantile() -> None:
    found = curve()
    for level, knot in zip(LEVELS, (-1.0, 0.5, 3.0), strict=True):
        assert found.cdf(at(knot)).item() == pytest.approx(level, abs=1e-7)
    for level in (1e-6, 0.05, 0.1, 0.25, 0.4, 0.6, 0.8, 0.9, 1 - 1e-6):
        assert found.cdf(found.quantile(level)[0]).item() == pytest.approx(level, abs=1e-12)


def test_the_density_integrates_to_the_cdf_and_its_moments() -> None:
    found = curve()

    def density(y: float) -> float:
        return found.log_prob(at(y)).exp().item()

    def integral(function) -> float:
        ends = (-np.inf, -1.0, 0.5, 3.0, np.inf)
        return sum(integrate.quad(function, a, b, epsabs=1e-10)[0] for a, b in pairwise(ends))

    assert integral(density) == pytest.approx(1, abs=1e-7)
    mean = integral(lambda y: y * density(y))
    assert found.mean.item() == pytest.approx(mean, abs=1e-7)
    assert found.var.item() == pytest.approx(integral(lambda y: (y - mean) ** 2 * density(y)), abs=1e-6)
    assert density(-1 - 1e-9) == pytest.approx(density(-1 + 1e-9), rel=1e-6)  # continuous at the outermost knots
    assert density(3 - 1e-9) == pytest.approx(density(3 + 1e-9), rel=1e-6)


def test_crossing_and_equal_quantiles_are_sorted_and_kept_apart() -> None:
    likelihood = Quantiles(LEVELS, (5.0,), (2.0,))
    crossed = torch.tensor([[[1.0, -1.0, 0.0]], [[2.0, 2.0, 2.0]]]).double()
    found = likelihood.distribution(crossed)
    np.testing.assert_allclose(found.knots[0, 0, 0], [3.0, 5.0, 7.0])
    assert (found.knots.diff(dim=-1) > 0).all()
    assert found.log_prob(at(9.0)).isfinite().all()


def test_the_mixture_averages_distributions_and_not_quantiles() -> None:
    outputs = torch.tensor([[[-1.0, 0.0, 1.0]], [[4.0, 5.0, 6.0]]]).double()
    pred = Predictive(outputs, Quantiles((0.25, 0.5, 0.75), (0.0,), (1.0,)))
    assert pred.cdf(pred.quantile(0.3)).item() == pytest.approx(0.3, abs=1e-9)
    assert pred.total_var.item() == pytest.approx((pred.aleatoric_var + pred.epistemic_var).item())
    assert pred.epistemic_var.item() == pytest.approx(2.5**2)
    assert pred.log_prob([[2.0]]).item() == pytest.approx(pred.member_log_prob([[2.0]]).exp().mean().log().item())
    found = mm.score(pred, [[2.0]])
    assert "crps" not in found  # it would need another formula than that of Gaussians
    errors = [2.0 - pred.quantile(level).item() for level in (0.25, 0.5, 0.75)]
    pinball = [max(t * u, (t - 1) * u) for t, u in zip((0.25, 0.5, 0.75), errors, strict=True)]
    assert float(found["pinball"]) == pytest.approx(np.mean(pinball))


def test_stretching_multiplies_every_distance_from_the_mean() -> None:
    outputs = torch.randn(3, 20, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pred = Predictive(outputs, Quantiles(LEVELS, (5.0, 1e6), (2.0, 30.0)))
    found = StdScaling((2.0, 0.5))(pred)
    torch.testing.assert_close(found.mean, pred.mean, rtol=1e-10, atol=1e-9)
    factors = torch.tensor([2.0, 0.5]).double()
    torch.testing.assert_close(found.total_var, pred.total_var * factors.square(), rtol=1e-6, atol=1e-9)
    for level in (0.02, 0.5, 0.9):
        distance = pred.quantile(level) - pred.mean
        torch.testing.assert_close(found.quantile(level) - found.mean, factors * distance, rtol=1e-6, atol=1e-6)


def test_the_calibrator_finds_the_factor_that_quantiles_are_off_by() -> None:
    """Quantiles of N(0, 1) given half as wide: the factor is 2 up to its standard error, about 1 / sqrt(2 N)."""
    count, levels = 2000, (0.05, 0.25, 0.5, 0.75, 0.95)
    exact = torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(levels).double())
    pred = Predictive((0.5 * exact).expand(1, count, 5), Quantiles(levels, (0.0,), (1.0,)))
    y = torch.randn(count, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = mm.fit_calibrator("temperature", pred, y)
    assert isinstance(found, StdScaling)
    assert found.factors[0] == pytest.approx(2, abs=4 * 2 / np.sqrt(2 * count))
    with pytest.raises(mm.Misuse, match="'member_temperature' needs Gaussians, and Quantiles predicts others"):
        mm.fit_calibrator("member_temperature", pred, y)


def noisy(count: int = 800) -> Data:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(count, 1))
    return mm.open_data((x, 100 + x[:, 0] + rng.exponential(1 + x[:, 0] ** 2)))  # skewed noise


def test_it_learns_skewed_noise_and_goes_through_the_report(tmp_path: Path) -> None:
    data, plan = noisy(), mm.Plan(members=2, epochs=8, engine="loop", posthoc=mm.PostHocConfig())
    ensemble = mm.fit("mlp", data, likelihood=mm.Quantiles((0.1, 0.5, 0.9)), plan=plan, out=tmp_path / "run")
    pred = ensemble.predict(data.test.x, calibrated=False)
    below = [(data.test.y <= pred.quantile(level)).double().mean().item() for level in (0.1, 0.5, 0.9)]
    np.testing.assert_allclose(below, (0.1, 0.5, 0.9), atol=0.1)  # 2.5 standard errors of 160 examples
    low, middle, high = (pred.quantile(level).mean() for level in (0.1, 0.5, 0.9))
    assert high - middle > 1.5 * (middle - low)
    again = mm.load(tmp_path / "run")
    assert again.likelihood == ensemble.likelihood
    assert torch.equal(again.predict(data.test.x).outputs, ensemble.predict(data.test.x).outputs)
    found = mm.evaluate(again, data, shift=["feature_noise"], out=tmp_path / "report")
    assert {"pinball", "coverage_90"} <= set(found.scores)
    assert "Pinball" in (tmp_path / "report" / "report.html").read_text()
    assert {rule.method for rule in again.posthoc.conformal} == {"absolute", "quantile", "normalised"}
