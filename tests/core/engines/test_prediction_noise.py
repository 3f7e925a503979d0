"""The noise of predictions: a draw is one function of its inputs, addressed by the seed, the member and the draw."""

from dataclasses import replace

import pytest
import torch

import murmuration as mm
from murmuration.core.engines import outputs
from murmuration.core.presets import PRESETS
from murmuration.data import Data
from murmuration.prediction.ensemble import Ensemble
from murmuration.system.streams import Noise

DRAWS = 3
ROUNDING = {"rtol": 1e-4, "atol": 1e-5}  # of outputs near 1: operators on batches of other sizes sum in other orders
STOCHASTIC = [name for name, preset in PRESETS.items() if preset.value.weights.stochastic]


@pytest.fixture(scope="module")
def few(digits: Data) -> Data:
    """Digits of few training examples: what members have learned does not matter here."""
    return replace(digits, train=digits.train[:64])


def briefly_trained(net: object, data: Data, recipe: str, **settings: int) -> Ensemble:
    given = {"members": 1, "epochs": 1, **settings}
    return mm.fit(net, data, recipe=recipe, plan=mm.Plan(batch_size=32, engine="loop", posthoc=None, **given))


def outputs_of(ensemble: Ensemble, x: torch.Tensor) -> torch.Tensor:
    return ensemble.predict(x, draws=DRAWS, prepared=True).outputs


@pytest.mark.slow
@pytest.mark.parametrize("net", ["mlp", "small-cnn", "normalised"])
@pytest.mark.parametrize("recipe", STOCHASTIC)
def test_an_input_has_the_same_outputs_whatever_is_predicted_beside_it(
    few: Data, normalised_net, monkeypatch, recipe: str, net: str
):
    """Alone, in another chunk, at another place of its batch, and in a stream."""
    members = {"members": 2} if recipe in ("rank1-bnn", "mc-dropout") else {}
    ensemble = briefly_trained(normalised_net if net == "normalised" else net, few, recipe, **members)
    x = few.test.prepared[:40]
    whole = outputs_of(ensemble, x)
    assert whole[0].std(0).max() > 0.01  # inputs have different outputs
    for i in (0, 17, 39):
        torch.testing.assert_close(whole[:, i : i + 1], outputs_of(ensemble, x[i : i + 1]), **ROUNDING)
    torch.testing.assert_close(whole, outputs_of(ensemble, x.flip(0)).flip(1), **ROUNDING)
    monkeypatch.setattr(outputs, "CHUNK", 16)
    torch.testing.assert_close(whole, outputs_of(ensemble, x), **ROUNDING)
    pieces = torch.cat([each.outputs for each in ensemble.stream(x, 7, prepared=True)], dim=1)
    torch.testing.assert_close(pieces, ensemble.predict(x, prepared=True).outputs, **ROUNDING)


@pytest.mark.parametrize("recipe", ["mc-dropout", "bayes", "ivon"])
def test_prediction_noise_follows_from_the_seed(few: Data, recipe: str):
    """The same members under another seed are drawn otherwise."""
    ensemble = briefly_trained("mlp", few, recipe, seed=3)
    other = replace(ensemble, manifest=replace(ensemble.manifest, plan={**ensemble.manifest.plan, "seed": 4}))
    x = few.test.prepared[:8]
    assert torch.equal(outputs_of(ensemble, x), outputs_of(ensemble, x))
    assert (outputs_of(ensemble, x) - outputs_of(other, x)).abs().amin(-1).max() > 1e-4


@pytest.mark.parametrize("recipe", ["mc-dropout", "bayes"])
def test_fewer_draws_are_the_first_of_more_and_members_differ(few: Data, recipe: str):
    ensemble = briefly_trained("mlp", few, recipe, members=2)
    x = few.test.prepared[:8]
    many, some = (ensemble.predict(x, draws=draws, prepared=True).outputs.unflatten(0, (2, draws)) for draws in (5, 2))
    torch.testing.assert_close(many[:, :2], some, **ROUNDING)
    twins = replace(
        ensemble.groups[0].population, own={k: t[[0, 0]] for k, t in ensemble.groups[0].population.own.items()}
    )
    same = replace(ensemble, groups=(replace(ensemble.groups[0], population=twins),))
    first, second = same.predict(x, draws=2, prepared=True).outputs.unflatten(0, (2, 2))
    assert (first - second).abs().max() > 1e-4


def test_prediction_noise_is_not_training_noise():
    for stream in ("prediction", "prediction-masks"):
        for draw in range(4):
            like = torch.empty(64)
            training = [Noise(0, member, step) for member in range(4) for step in range(4)]
            mine = Noise(0, 0, draw, stream)
            assert not any(torch.equal(mine.normal(like), each.normal(like)) for each in training)


def test_dropout_masks_of_a_draw_differ_between_draws_and_units(few: Data):
    """One mask for all inputs is not one decision for all units."""
    ensemble = briefly_trained("mlp", few, "mc-dropout")
    made = ensemble.predict(few.test.prepared[:8], draws=DRAWS).outputs
    assert (made[0] - made[1]).abs().max() > 1e-3
    assert not torch.equal(made[0], ensemble.member(0)(few.test.prepared[:8]).detach())
