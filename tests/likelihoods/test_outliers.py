"""Contaminated normals: noise with heavy tails, of which a share is three times as wide."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate, optimize, stats

import murmuration as mm
from murmuration.evaluation.metrics import score_examples
from murmuration.likelihoods import HeteroscedasticGaussian, likelihood_by_name
from murmuration.likelihoods.mixtures import Normals, contaminated_quantile
from murmuration.prediction.posthoc.std_scaling import MomentMatching, StdScaling, fit_noise, fit_std, only_gaussians
from murmuration.prediction.predictive import Predictive

SHARE = 0.05
RNG = np.random.default_rng(0)
MEANS, STDS, WEIGHTS = RNG.normal(size=(3, 6, 1)), RNG.uniform(0.5, 2, size=(3, 6, 1)), [0.2, 0.3, 0.5]


def parts(mean, std):
    """The two Gaussians by hand: var = (1 - e) s^2 + e (3 s)^2."""
    narrow = std / np.sqrt(1 + 8 * SHARE)
    return (1 - SHARE, stats.norm(mean, narrow)), (SHARE, stats.norm(mean, 3 * narrow))


def mixture() -> Predictive:
    return Predictive.from_moments(MEANS, STDS, WEIGHTS, outliers=SHARE)


def test_density_and_cdf_are_those_of_two_gaussians():
    y = np.linspace(-9, 9, 50)
    own = Normals(
        torch.full((1, 50, 1), 0.7, dtype=torch.float64), torch.full((1, 50, 1), 1.69, dtype=torch.float64), SHARE
    )
    target = torch.from_numpy(y)[:, None]
    density = sum(share * part.pdf(y) for share, part in parts(0.7, 1.3))
    below = sum(share * part.cdf(y) for share, part in parts(0.7, 1.3))
    np.testing.assert_allclose(own.log_prob(target)[0, :, 0], np.log(density), rtol=1e-8)  # softplus beyond 20: 2e-9
    np.testing.assert_allclose(own.cdf(target)[0, :, 0], below, rtol=1e-12)


def test_moments_are_those_that_were_given():
    own = Normals(*torch.tensor([[[[0.7]]], [[[1.69]]]], dtype=torch.float64), SHARE)

    def moment(power: int) -> float:
        point = lambda y: (y - 0.7) ** power * float(own.log_prob(torch.tensor([[y]])).exp())  # noqa: E731
        return integrate.quad(point, -60, 60, points=[0.7], limit=400)[0]

    assert [moment(power) for power in (0, 1, 2)] == pytest.approx([1, 0, 1.69], abs=1e-7)


@pytest.mark.parametrize("level", [1e-6, 0.05, 0.5, 0.9, 0.999])
def test_quantiles_invert_the_cdf(level):
    cdf = lambda z: sum(share * part.cdf(z) for share, part in parts(0, 1)) - level  # noqa: E731
    assert contaminated_quantile(level, SHARE) == pytest.approx(optimize.brentq(cdf, -40, 40, xtol=1e-13), abs=1e-9)
    assert contaminated_quantile(level, 1e-12) == pytest.approx(stats.norm.ppf(level), abs=1e-5)
    np.testing.assert_allclose(mixture().cdf(mixture().quantile(level)), level, rtol=1e-9)


def test_crps_is_the_integral_of_the_squared_distance_of_cdfs():
    y = RNG.normal(size=(6, 1)) * 3
    found = score_examples(mixture(), y).columns["crps"]
    grid = np.linspace(-60, 60, 240_001)
    for row in range(6):
        cdf = sum(
            weight * share * part.cdf(grid)
            for weight, mean, std in zip(WEIGHTS, MEANS[:, row, 0], STDS[:, row, 0], strict=True)
            for share, part in parts(mean, std)
        )
        expected = integrate.simpson((cdf - (grid >= y[row, 0])) ** 2, x=grid)
        assert found[row] == pytest.approx(expected, abs=1e-3)  # of the step at y, half a cell of 5e-4


def test_members_with_outliers_are_two_gaussians_each():
    pred, y = mixture(), RNG.normal(size=(6, 1)) * 3
    plain = only_gaussians(pred)
    assert (len(plain.outputs), plain.outliers) == (6, 0.0)
    for one in ("mean", "total_var", "aleatoric_var", "epistemic_var"):
        torch.testing.assert_close(getattr(plain, one), getattr(pred, one), rtol=1e-12, atol=0)
    torch.testing.assert_close(plain.log_prob(y), pred.log_prob(y), rtol=1e-8, atol=0)
    crps = [score_examples(each, y).columns["crps"] for each in (pred, plain)]
    np.testing.assert_allclose(*crps, rtol=1e-12)


def test_a_fair_crps_is_that_of_many_members():
    """Members alike: the score of infinitely many is that of one, and it is estimated from pairs of distinct ones."""
    mean, y = np.zeros((4, 500, 1)), RNG.normal(size=(500, 1))
    columns = score_examples(Predictive.from_moments(mean, 1.0, outliers=SHARE), y).columns
    np.testing.assert_allclose(columns["crps_fair"], columns["crps"], rtol=1e-9)


def test_the_loss_is_the_negative_log_density():
    likelihood = HeteroscedasticGaussian((3.0, -1.0), (2.0, 0.5), SHARE)
    outputs, y = torch.randn(2, 7, 4).double(), torch.randn(7, 2).double() * 4
    own = likelihood.loss(outputs, ((y - torch.tensor([3.0, -1.0])) / torch.tensor([2.0, 0.5])).expand(2, 7, 2))
    torch.testing.assert_close(own, -likelihood.log_prob(outputs, y), rtol=1e-8, atol=1e-8)


def test_an_outlier_pulls_less():
    """Far from the mean the gradient is a ninth: the distance counts by the noise of outliers."""

    def slope(outliers: float) -> float:
        outputs = torch.tensor([[[0.0, 1.0]]], requires_grad=True)
        HeteroscedasticGaussian((0.0,), (1.0,), outliers).loss(outputs, torch.tensor([[[30.0]]])).sum().backward()
        return outputs.grad[0, 0, 0].item()

    assert slope(SHARE) / slope(0.0) == pytest.approx((1 + 8 * SHARE) / 9, rel=1e-5)


def test_calibrators_keep_the_tails_and_find_the_stretch():
    rng, count = np.random.default_rng(1), 20_000
    narrow = 1 / np.sqrt(1 + 8 * SHARE)
    noise = narrow * np.where(rng.random(count) < SHARE, 3.0, 1.0) * rng.normal(size=count)
    pred = Predictive.from_moments(np.zeros((2, count, 1)), 1.0, outliers=SHARE)
    y = torch.from_numpy(2 * noise)[:, None]
    error = 4 / np.sqrt(2 * count)  # four standard errors of the logarithm of a Gaussian's scale; heavy tails: less
    for fit in (fit_std, fit_noise):
        found = fit(pred, y)
        assert np.log(found.factors[0] / 2) == pytest.approx(0, abs=error)
        assert found(pred).outliers == SHARE
    one = MomentMatching((2.0,))(mixture())
    high = one.mean + contaminated_quantile(0.95, SHARE) * one.total_var.sqrt()
    torch.testing.assert_close(one.interval(0.9)[1], high, rtol=1e-9, atol=0)
    assert StdScaling((1.5,))(mixture()).outliers == SHARE


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    return pd.DataFrame(x, columns=["a", "b"]).assign(y=x[:, 0] + 0.1 * rng.standard_t(2, 120))


def test_regressions_of_tables_have_them_by_default(table, tmp_path):
    quick = {"target": "y", "members": 2, "steps": 12, "posthoc": None}
    ensemble = mm.fit(None, table, out=tmp_path / "run", **quick)
    assert (ensemble.likelihood.outliers, ensemble.likelihood.inflation) == (0.02, 1.3)
    again = mm.load(tmp_path / "run")
    assert again.likelihood == ensemble.likelihood
    assert torch.equal(again.predict(table).cdf(table[["y"]]), ensemble.predict(table).cdf(table[["y"]]))
    assert mm.fit(None, table, likelihood="gaussian", **quick).likelihood.outliers == 0
    assert isinstance(mm.fit(None, table, noise_std=0.1, **quick).likelihood, mm.Gaussian)
    assert mm.fit("linear", table, target="y", members=2, epochs=1, posthoc=None).likelihood.outliers == 0


def test_noise_is_inflated_in_predictions_and_validation_not_in_the_loss():
    """With inflation c the predicted std is c times the trained one: densities are those of N(f, (c s)^2)."""
    outputs, y = torch.randn(3, 50, 2, generator=torch.Generator().manual_seed(0)), torch.linspace(-2, 2, 50)[:, None]
    plain, wide = (HeteroscedasticGaussian((1.0,), (2.0,), inflation=c) for c in (1.0, 1.5))
    assert torch.equal(plain.loss(outputs, y), wide.loss(outputs, y))
    (mean, var), (same, inflated) = plain.mean_var(outputs), wide.mean_var(outputs)
    assert torch.equal(mean, same)
    torch.testing.assert_close(inflated, 2.25 * var)
    normal = torch.distributions.Normal(mean, 1.5 * var.sqrt())
    expected = -normal.log_prob(y).squeeze(-1).mean(-1)  # (M,)
    torch.testing.assert_close(torch.tensor(wide.validate(outputs, y)["val_nll"]), expected, rtol=1e-5, atol=1e-6)
    pred = Predictive(outputs, wide)
    torch.testing.assert_close(pred.aleatoric_var, inflated.double().mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(pred.epistemic_var, Predictive(outputs, plain).epistemic_var)


def test_names_and_refusals(table):
    assert likelihood_by_name("gaussian:inflation=1.2", "regression", 0) == HeteroscedasticGaussian(inflation=1.2)
    with pytest.raises(mm.Misuse, match=r"inflation=0: expected a positive factor such as 1\.2"):
        mm.fit(None, table, target="y", likelihood="gaussian:inflation=0")
    assert likelihood_by_name("gaussian:outliers=0.1", "regression", 0) == HeteroscedasticGaussian(outliers=0.1)
    with pytest.raises(mm.Misuse, match=r"outliers=0\.6: expected a share of the targets from 0 to below 0\.5"):
        mm.fit(None, table, target="y", likelihood="gaussian:outliers=0.6")
    with pytest.raises(mm.Misuse, match="unknown setting of a loss"):
        mm.fit(None, table, target="y", likelihood="gaussian:shift=1")
    with pytest.raises(mm.Misuse, match="loss gaussian is for regression, and this data is a classification"):
        mm.fit("mlp", "iris", likelihood="gaussian", epochs=1)
    with pytest.raises(mm.Misuse, match="link=softplus is for classification"):
        mm.fit(None, table, target="y", link="softplus")
