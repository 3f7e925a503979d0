"""Links of the categorical likelihood, in the loss and in everything that uses probabilities."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import murmuration as mm
from murmuration.core.coupling import OutputSpace, SpaceInputs
from murmuration.data import Data
from murmuration.evaluation.ood import has_logits
from murmuration.likelihoods import Categorical, Gaussian, likelihood_from_json, link_of
from murmuration.likelihoods.classes import EXP_BELOW, log_softplus
from murmuration.prediction.posthoc.calibration import Temperature, VectorScaling, fit_calibrator
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse

SOFTPLUS = Categorical(4, "softplus")


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return 3 * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def direct(outputs: torch.Tensor) -> torch.Tensor:
    """Softplus over its sum, as the formula says."""
    positive = torch.log1p(outputs.exp())
    return positive / positive.sum(-1, keepdim=True)


def test_three_outputs_by_hand() -> None:
    outputs = torch.tensor([[2.0, -1.0, 0.5]], dtype=torch.float64)
    probs = Categorical(3, "softplus").probs(outputs)
    np.testing.assert_allclose(probs[0], [0.622953, 0.091751, 0.285296], atol=5e-7)
    assert probs.sum().item() == pytest.approx(1, abs=1e-15)
    np.testing.assert_allclose(Categorical(3).probs(outputs)[0], [0.785597, 0.039113, 0.175290], atol=5e-7)


def test_it_is_softplus_over_its_sum_and_keeps_the_order() -> None:
    outputs, y = drawn(200, 4), torch.arange(200) % 4
    probs = direct(outputs)
    torch.testing.assert_close(SOFTPLUS.probs(outputs), probs, atol=1e-14, rtol=0)
    assert torch.equal(SOFTPLUS.probs(outputs).argmax(-1), outputs.argmax(-1))
    expected = -probs.gather(1, y[:, None])[:, 0].log()
    torch.testing.assert_close(SOFTPLUS.loss(outputs, y), expected, atol=1e-13, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("low", [-1000.0, -88.0, 1000.0])
def test_far_out_values_and_gradients_are_finite(low: float, dtype: torch.dtype) -> None:
    outputs = torch.tensor([[low, 0.0, 1.0], [low, low, low]], dtype=dtype, requires_grad=True)
    likelihood = Categorical(3, "softplus")
    loss = likelihood.loss(outputs, torch.tensor([0, 0]))
    (gradient,) = torch.autograd.grad(loss.sum(), outputs, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), outputs)
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
    assert second.isfinite().all()
    if low < 0:
        normaliser = math.log(math.log(2) + math.log1p(math.e))
        assert loss[0].item() == pytest.approx(normaliser - low, rel=1e-6)  # log softplus(x) is x itself
        np.testing.assert_allclose(likelihood.probs(outputs)[1].detach(), [1 / 3] * 3, rtol=1e-6)
        assert gradient[0, 0].item() == pytest.approx(-1, abs=1e-6)


def test_both_branches_meet() -> None:
    x = torch.tensor([EXP_BELOW - 1e-9, EXP_BELOW + 1e-9, 39.0, 41.0], dtype=torch.float64)
    exact = [math.log(math.log1p(math.exp(value))) for value in x.tolist()]
    np.testing.assert_allclose(log_softplus(x), exact, rtol=1e-15)


def test_gradients_are_those_of_finite_differences() -> None:
    outputs, y = drawn(5, 4, seed=2).requires_grad_(), torch.tensor([0, 1, 2, 3, 0])
    assert torch.autograd.gradcheck(lambda given: SOFTPLUS.loss(given, y), outputs)
    assert torch.autograd.gradgradcheck(lambda given: SOFTPLUS.loss(given, y), outputs)


def test_it_is_written_down_and_old_records_mean_softmax() -> None:
    assert likelihood_from_json(json.loads(json.dumps(SOFTPLUS.to_json()))) == SOFTPLUS
    assert likelihood_from_json({"kind": "categorical", "classes": 3}) == Categorical(3, "softmax")
    with pytest.raises(Misuse, match=r"link 'softpuls'.*softplus"):
        Categorical(3, "softpuls")
    with pytest.raises(Misuse, match="link=softplus is for classification"):
        mm.fit("mlp", "x-sin-x", epochs=1, members=1, link="softplus", posthoc=None)
    x = torch.randn(2, 3)
    assert link_of(Gaussian(1.0))(x) is x


def test_a_predictive_reads_outputs_by_their_link() -> None:
    outputs = drawn(5, 30, 4)
    pred, probs = Predictive(outputs, SOFTPLUS), direct(outputs)
    torch.testing.assert_close(pred.probs, probs, atol=1e-14, rtol=0)
    y = torch.arange(30) % 4
    expected = probs.gather(-1, y.expand(5, -1)[..., None])[..., 0].mean(0).log()
    torch.testing.assert_close(pred.log_prob(y), expected, atol=1e-13, rtol=0)
    torch.testing.assert_close(pred.energy, -torch.log1p(outputs.exp()).sum(-1).log().mean(0), atol=1e-13, rtol=0)
    assert has_logits(pred)
    other = Predictive.from_probs(probs)  # made elsewhere: the same but for what probabilities do not say
    for name in ("entropy", "mutual_information", "aleatoric_covariance", "epistemic_var", "logit_variance"):
        torch.testing.assert_close(getattr(pred, name), getattr(other, name), atol=1e-12, rtol=0)


def test_calibrators_work_on_the_logits_of_the_link() -> None:
    outputs = drawn(3, 200, 4)
    pred, same = Predictive(outputs, SOFTPLUS), Predictive.from_probs(direct(outputs))
    y = torch.multinomial(same.mean, 1, generator=torch.Generator().manual_seed(1))[:, 0]
    powers = direct(outputs).sqrt()
    torch.testing.assert_close(Temperature(2.0)(pred).probs, powers / powers.sum(-1, keepdim=True), atol=1e-13, rtol=0)
    for plain in (Temperature(1.0), VectorScaling((1.0,) * 4, (0.0,) * 4)):
        torch.testing.assert_close(plain(pred).probs, pred.probs, atol=1e-13, rtol=0)
    for name in ("temperature", "member_temperature", "pool_temperature", "isotonic"):  # vector sees a row's shift
        found, expected = (fit_calibrator(name, each, y)(each) for each in (pred, same))
        torch.testing.assert_close(found.probs, expected.probs, atol=1e-5, rtol=0)


def test_repulsion_of_outputs_sees_the_probabilities_of_the_link() -> None:
    outputs, x, y = drawn(3, 6, 4), torch.zeros(3, 6, 2), torch.zeros(3, 6, dtype=torch.long)
    shown = SpaceInputs({}, (), x, y, outputs, torch.zeros(3), link=SOFTPLUS.logits)
    seen = OutputSpace().features(shown)
    torch.testing.assert_close(seen, direct(outputs).flatten(1).unsqueeze(1), atol=1e-14, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["deep-ensemble", "bayes", "function-rde"])
def test_it_learns_and_is_kept_with_the_run(recipe: str, digits: Data, tmp_path: Path) -> None:
    plan = mm.Plan(members=2, epochs=4, engine="loop", posthoc=mm.PostHocConfig())
    ensemble = mm.fit("mlp", digits, recipe=recipe, plan=plan, link="softplus", out=tmp_path / "run")
    assert ensemble.likelihood == Categorical(10, "softplus")
    found = mm.score(ensemble.predict(digits.test.x), digits.test.y)
    assert found["accuracy"] > 0.9
    again = mm.load(tmp_path / "run")
    assert again.likelihood == ensemble.likelihood
    assert torch.equal(again.predict(digits.test.x[:9]).outputs, ensemble.predict(digits.test.x[:9]).outputs)
    raw = ensemble.predict(digits.test.x[:9], calibrated=False)
    torch.testing.assert_close(raw.probs, direct(raw.outputs.double()), atol=1e-12, rtol=0)
    history = ensemble.history[-1]["val_nll"][0]
    if recipe == "deep-ensemble":
        alone = ensemble.predict(digits.val.x, calibrated=False).member_log_prob(digits.val.y)
        assert history == pytest.approx(-alone[0].mean().item(), rel=1e-5)
