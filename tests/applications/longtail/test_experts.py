"""RIDE and SADE: the divergence and its gradient, the recipes and their losses."""

import pytest
import torch
import torch.nn.functional as F

import murmuration as mm
from murmuration.core.coupling import COUPLINGS
from murmuration.core.coupling.spaces import DivergenceSpace
from murmuration.core.recipe import recipe_from_json


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_cotangents_are_the_gradient_of_the_divergence(temperature: float) -> None:
    """Against automatic differentiation of -T^2 mean KL(mean || member), with the mean held constant."""
    logits = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    target = (logits.detach().mean(0) / temperature).softmax(-1)
    terms = [
        -(temperature**2) * F.kl_div((member / temperature).log_softmax(-1), target, reduction="batchmean")
        for member in logits
    ]
    torch.stack(terms).sum().backward()
    found = DivergenceSpace(temperature=temperature).repulsion(logits.detach())
    torch.testing.assert_close(found.cotangents, logits.grad, rtol=0, atol=1e-14)
    assert found.matrix.diagonal().tolist() == pytest.approx([1] * 3)
    assert 0 < float(found.mean_kernel) < 1


def test_equal_members_stay_equal() -> None:
    logits = torch.randn(1, 4, 3, dtype=torch.float64).expand(5, 4, 3)
    assert DivergenceSpace().repulsion(logits).cotangents.abs().max() < 1e-15


def test_the_divergence_keeps_members_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(200, 4, generator=generator).numpy(), (torch.arange(200) % 3).numpy()
    kernels = {}
    for weight in (0, 0.2):
        recipe = mm.make_recipe("ride", coupling=f"divergence:weight={weight}")
        run = mm.fit("mlp", (x, y), recipe=recipe, epochs=4, likelihood="cross-entropy", posthoc=None)
        kernels[weight] = run.history[-1]["coupling"]["mean_kernel"]
    assert kernels[0.2] < kernels[0]


@pytest.mark.parametrize(("recipe", "kind"), [("ride", mm.LDAM), ("sade", mm.Experts)])
def test_recipes_bring_their_losses(recipe: str, kind: type, tmp_path) -> None:
    data = mm.open_data("two-moons", imbalance=5)
    run = mm.fit("mlp", data, recipe=recipe, epochs=2, posthoc=None, out=tmp_path / "run")
    assert isinstance(run.likelihood, kind)
    assert run.members == 3
    population = run.groups[0].population
    assert all(name.startswith("body.") for name in population.shared)
    assert all(name.startswith("head.") for name in population.own)
    assert mm.load(tmp_path / "run").recipe == run.recipe
    assert recipe_from_json(run.recipe.to_json()) == run.recipe
    other = mm.fit("mlp", data, recipe=recipe, epochs=1, posthoc=None, likelihood="focal")
    assert isinstance(other.likelihood, mm.Focal)
    with pytest.raises(mm.Misuse, match=f"recipe {recipe} is for classification, and diabetes is a regression"):
        mm.fit("mlp", "diabetes", recipe=recipe, epochs=1)


def test_divergence_of_a_regression_is_refused() -> None:
    assert COUPLINGS["divergence"].value.weight == 0.2
    with pytest.raises(mm.Misuse, match="coupling divergence is for classes"):
        mm.fit("mlp", "diabetes", recipe=mm.make_recipe("deep-ensemble", coupling="divergence"), epochs=1)
    with pytest.raises(mm.Misuse, match="temperature=0: expected a positive"):
        mm.make_recipe("ride", coupling="divergence:temperature=0")
