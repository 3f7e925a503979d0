"""Which calibrator is kept: priors, held-out gains, the test against luck, the form of a regression, and the record."""

import math

import numpy as np
import pytest
import torch
from calibration_factories import draw_labels, gaussian_mixture, mean_loss, overconfident, random_logits, tempered

from murmuration.likelihoods import Categorical, MultiLabel
from murmuration.prediction.posthoc import (
    PostHocConfig,
    choose_calibrator,
    fit as choosing,
    fit_calibrator,
    fit_posthoc,
)
from murmuration.prediction.posthoc.calibration import LabelTemperatures, Temperature, fit_temperature
from murmuration.prediction.posthoc.std_scaling import (
    MomentMatching,
    NoiseScaling,
    StdScaling,
    factor_penalty,
    fit_moments,
)
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse


def sure(inputs: int, seed: int, *, margin: float = 5.0) -> tuple[Predictive, torch.Tensor]:
    """Two sure classes that are right as often as they say: among a few examples there is mostly no mistake."""
    logits = torch.zeros(1, inputs, 2, dtype=torch.float64)
    logits[..., 0] = margin
    return Predictive(logits, Categorical(2)), draw_labels(logits[0].softmax(-1), seed)


# What is kept


def test_a_few_examples_without_a_mistake_do_not_sharpen() -> None:
    pred, y = sure(23, 0)
    assert (y == 0).all()
    assert fit_temperature(pred, y, math.inf).temperature == pytest.approx(0.02, rel=1e-3)  # what it used to be
    calibrator, choice = choose_calibrator("temperature", pred, y)
    assert calibrator == Temperature(1.0)
    assert choice is not None
    assert not choice.kept
    assert choice.gain > choice.error  # every example gains, and none shows what a mistake would cost
    assert choice.p_value > 0.5


@pytest.mark.parametrize("method", ["temperature", "pool_temperature", "vector", "isotonic", "member_temperature"])
def test_clear_overconfidence_is_mended_by_every_method(method: str) -> None:
    pred, y = overconfident(inputs=400)
    calibrator, choice = choose_calibrator(method, pred, y)
    assert choice is not None
    assert choice.kept
    fresh, later = (part for part in overconfident(inputs=2000))
    fresh, later = fresh.at(slice(400, 2000)), later[400:]
    assert mean_loss(calibrator(fresh), later) < mean_loss(fresh, later) - 0.3
    assert choice.about.startswith(f"{method} is kept: the NLL of held-out examples falls by ")


def test_right_predictions_are_left_alone() -> None:
    """At most 2 % on either side are kept where predictions are right: of 24, four or more with probability 0.01."""
    kept = 0
    for seed in range(12):
        for pred, y in (tempered(1.0, members=3, inputs=30, seed=seed), numbers(30, 1.0, seed)):
            choice = choose_calibrator("temperature", pred, y)[1]
            assert choice is not None
            kept += choice.kept
    assert kept <= 3


def numbers(inputs: int, factor: float, seed: int) -> tuple[Predictive, torch.Tensor]:
    return gaussian_mixture(factor=factor, inputs=inputs, targets=1, seed=seed)


def test_the_prior_that_leaves_one_example_out_is_the_written_one() -> None:
    """Losses on a grid stand for fits without each example: compared with these fits, one by one."""
    pred, y = overconfident(members=2, inputs=12)
    found = {each.prior_std: each for each in choosing.candidates("temperature", pred, y)}
    for prior_std in (0.12, 0.5):
        rows = np.arange(12)
        alone = []
        for row in rows:
            rest = torch.from_numpy(rows[rows != row])
            fitted = fit_temperature(pred.at(rest), y[rest], prior_std)
            alone.append(-fitted(pred.at([int(row)])).log_prob(y[[row]]).item())
        np.testing.assert_allclose(
            found[prior_std].held_out.numpy(), alone, rtol=0.04, atol=0.01
        )  # half a spacing of log T
        best = found[prior_std].fit(prior_std)
        assert best.temperature == pytest.approx(fit_temperature(pred, y, prior_std).temperature, rel=1e-4)  # type: ignore[attr-defined]


def test_settings_after_the_name_are_obeyed() -> None:
    pred, y = sure(23, 0)
    asked, choice = choose_calibrator("temperature:prior_std=inf", pred, y)
    assert choice is None
    assert asked == fit_temperature(pred, y, math.inf)
    steps = fit_posthoc(*sure(46, 0), PostHocConfig("temperature:prior_std=0.5"))
    assert steps.choice is None
    assert steps.calibrator != Temperature(1.0)
    with pytest.raises(Misuse, match=r"calibrator 'vector:prior_std=0': expected a number above 0"):
        choose_calibrator("vector:prior_std=0", pred, y)


def test_labels_are_chosen_one_by_one() -> None:
    logits = random_logits(3, 400, 2, seed=4)
    y = torch.stack(
        [(torch.rand(400, generator=torch.Generator().manual_seed(k)) < p).long() for k, p in rates(logits)]
    )
    pred = Predictive(logits * torch.tensor([4.0, 1.0], dtype=torch.float64), MultiLabel(2))
    calibrator, choice = choose_calibrator("temperature", pred, y.T)
    assert isinstance(calibrator, LabelTemperatures)
    assert calibrator.temperatures[0] > 2
    assert calibrator.temperatures[1] == 1
    assert choice is not None
    assert choice.kept


def rates(logits: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
    return [(k, logits[..., k].sigmoid().mean(0)) for k in range(2)]


# Regressions


def apart(inputs: int, seed: int, *, noise: float = 0.2) -> tuple[Predictive, torch.Tensor]:
    """Members whose noise is far smaller than their distance, and targets between them: a Gaussian of the variance."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(5, inputs, 1))
    std = np.sqrt(means.var(0) + noise**2)
    y = means.mean(0) + 1.5 * std * rng.normal(size=(inputs, 1))
    return Predictive.from_moments(means, noise), torch.from_numpy(y)


def modes(pred: Predictive) -> int:
    """The number of separate peaks of the density of the first input."""
    grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    density = pred.at([0] * len(grid)).log_prob(grid[:, None])
    return int(((density[1:-1] > density[:-2]) & (density[1:-1] > density[2:])).sum())


def test_members_far_apart_are_calibrated_without_gaps() -> None:
    pred, y = apart(60, 0)
    calibrator, choice = choose_calibrator("temperature", pred, y)
    assert choice is not None
    assert choice.kept
    assert not isinstance(calibrator, StdScaling)
    fresh, later = apart(2000, 1)
    assert modes(fresh) > 2
    assert modes(fit_calibrator("temperature", pred, y)(fresh)) > 2  # stretched, they stay apart
    assert modes(calibrator(fresh)) == 1
    stretched = mean_loss(fit_calibrator("temperature", pred, y)(fresh), later)
    assert mean_loss(calibrator(fresh), later) < stretched - 0.1


def test_quantiles_crps_and_coverage_follow_from_one_gaussian() -> None:
    from murmuration.evaluation.metrics.per_example import columns

    pred, y = apart(500, 2)
    matched = MomentMatching((1.5,))(pred)
    mean, std = pred.mean, 1.5 * pred.total_var.sqrt()
    single = Predictive.from_moments(mean[None], std[None])
    torch.testing.assert_close(matched.quantile(0.9), single.quantile(0.9), atol=1e-12, rtol=0)
    torch.testing.assert_close(matched.log_prob(y), single.log_prob(y), atol=1e-12, rtol=0)
    one, other = columns(matched, y), columns(single, y)
    for name in ("crps", "pit", "inside_90", "interval_width", "squared_error"):
        np.testing.assert_allclose(one[name], other[name], atol=1e-9, err_msg=name)
    torch.testing.assert_close(matched.epistemic_var, 2.25 * pred.epistemic_var, atol=1e-12, rtol=0)
    torch.testing.assert_close(matched.aleatoric_var, 2.25 * pred.aleatoric_var, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("form", "kind"), [("noise_scaling", NoiseScaling), ("moment_matching", MomentMatching)])
def test_known_factors_of_the_other_forms_are_recovered(form: str, kind: type) -> None:
    """Noise twice as large, or a Gaussian twice as wide; the standard error of a factor is near f / sqrt(2 N)."""
    rng = np.random.default_rng(3)
    means, noise, inputs = 0.5 * rng.normal(size=(3, 4000, 1)), 0.7, 4000
    pred = Predictive.from_moments(means, noise)
    if form == "noise_scaling":
        y = means[rng.integers(3, size=inputs), np.arange(inputs)] + 2 * noise * rng.normal(size=(inputs, 1))
    else:
        y = means.mean(0) + 2 * pred.total_var.sqrt().numpy() * rng.normal(size=(inputs, 1))
    fitted = fit_calibrator(form, pred, y)
    assert isinstance(fitted, kind)
    assert fitted.factors[0] == pytest.approx(2.0, abs=4 * 2 / math.sqrt(2 * inputs))  # type: ignore[attr-defined]


def test_the_prior_of_a_factor_counts_as_examples() -> None:
    """With prior std s the factor is that of 1 / (2 s^2) more examples whose standardised error is 1."""
    pred, y = numbers(40, 2.0, 5)
    z = ((y - pred.mean).square() / pred.total_var).sum().item()
    assert fit_moments(pred, y, 0.25).factors[0] == pytest.approx(math.sqrt((z + 8) / 48), rel=1e-12)
    for form in ("temperature", "noise_scaling", "moment_matching"):
        wide, near = (fit_calibrator(f"{form}:prior_std={s}", pred, y) for s in (10, 0.02))
        assert near.factors[0] == pytest.approx(1.0, abs=0.06)  # type: ignore[attr-defined]
        assert wide.factors[0] > near.factors[0]  # type: ignore[attr-defined]
    t = torch.tensor([-1e-3, 1e-3], dtype=torch.float64)
    torch.testing.assert_close(factor_penalty(t, 0.3), t.square() / (2 * 0.3**2), rtol=2e-3, atol=0)


# Scores of members


def test_fair_and_member_scores_are_those_before_the_calibrator() -> None:
    """Stretched members look diverse: their correction for the number of members would even make the RMSE negative."""
    import murmuration as mm

    pred, y = apart(300, 6)
    steps = fit_posthoc(pred, y, PostHocConfig("temperature:prior_std=inf"))
    assert steps.calibrator is not None
    stretched, plain = mm.score(steps.calibrated(pred), y), mm.score(pred, y)
    for name in ("rmse_fair", "crps_fair", "member_rmse", "member_nll"):
        assert stretched[name] == plain[name]
    assert mm.score(steps.calibrator(pred), y)["rmse_fair"] < plain["rmse_fair"] - 0.01  # what it would be after it
    assert stretched["nll"] < plain["nll"]
    part = steps.calibrated(pred).at(slice(0, 50)).select([0, 2])
    assert torch.equal(part.uncalibrated.outputs, pred.at(slice(0, 50)).select([0, 2]).outputs)  # type: ignore[union-attr]


def test_predictions_of_folds_are_learned_from() -> None:
    """Each part from other members, joined: calibrator and rules are those of the joined predictions."""
    parts = [overconfident(inputs=60) for _ in range(3)]
    joined = Predictive.concatenate([pred.at(slice(20 * k, 20 * k + 20)) for k, (pred, _) in enumerate(parts)])
    y = torch.cat([labels[20 * k : 20 * k + 20] for k, (_, labels) in enumerate(parts)])
    steps = fit_posthoc(joined, y)
    assert (steps.calibrator_examples, steps.rule_examples) == (30, 30)
    assert steps == fit_posthoc(*(part[:60] if isinstance(part, torch.Tensor) else part for part in parts[0]))


def test_the_prior_of_a_factor_punishes_narrow_distributions_more() -> None:
    """v (exp(-2 t) - 1 + 2 t) / 2 with v = 1 / (2 prior_std^2) = 2, by hand at t = 0.5 and t = -0.5."""
    penalty = factor_penalty(torch.tensor([0.0, 0.5, -0.5], dtype=torch.float64), 0.5)
    torch.testing.assert_close(penalty, torch.tensor([0.0, math.exp(-1), math.e - 2], dtype=torch.float64))


def test_a_gain_within_its_standard_error_is_not_even_tested_for_luck() -> None:
    choices = [choose_calibrator("temperature", *sure(60, seed, margin=1.0))[1] for seed in range(20)]
    doubtful = [choice for choice in choices if choice is not None and 0 < choice.gain <= choice.error]
    assert doubtful
    assert all(not choice.kept and choice.p_value == 1.0 for choice in doubtful)
