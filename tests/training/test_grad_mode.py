"""Training does not depend on the gradient mode of the caller."""

import pytest
import torch

import murmuration as mm

RECIPES = ("deep-ensemble", "bayes", "ivon", "swag", "csgmcmc", "mc-dropout", "forde")


@pytest.mark.parametrize("recipe", RECIPES)
def test_fit_without_gradients_of_the_caller_has_the_same_bits(recipe: str, moons: mm.Data):
    settings = {"recipe": recipe, "epochs": 4, "batch_size": 256, "posthoc": None}
    expected = mm.fit("mlp:hidden=8", moons, **settings)
    with torch.no_grad():
        ensemble = mm.fit("mlp:hidden=8", moons, **settings)
        assert not torch.is_grad_enabled()
    assert ensemble.engine == expected.engine
    assert torch.equal(ensemble.predict(moons.test).outputs, expected.predict(moons.test).outputs)


def test_fit_in_inference_mode_is_refused(moons: mm.Data):
    with torch.inference_mode(), pytest.raises(mm.Misuse, match=r"inside torch.inference_mode\(\) has no gradients"):
        mm.fit("mlp:hidden=8", moons, epochs=1)
