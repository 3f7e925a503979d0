"""Which examples members see: other orders in every epoch, own ones by member, the same where they are compared."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import murmuration as mm
from murmuration.core.coupling import SpaceInputs
from murmuration.core.recipe import make_recipe
from murmuration.data import Split
from murmuration.training.batches import epoch_batches
from murmuration.training.plan import plan_for

PLAN = mm.Plan(members=3, epochs=4, batch_size=8, engine="stacked")
EXAMPLES = 40


def orders(epoch: int, batch_order: str) -> Tensor:
    """The examples (M, N) that the members see in an epoch, in order."""
    rows = torch.arange(EXAMPLES)
    batch = epoch_batches(Split(rows[:, None].float(), rows), replace(PLAN, batch_order=batch_order), epoch)
    return torch.cat([batch(index).fetch(slice(0, 3))[1] for index in range(EXAMPLES // 8)], dim=1)


@pytest.mark.parametrize("batch_order", ["own", "same"])
def test_every_epoch_has_another_order_of_all_examples(batch_order: str):
    found = [orders(epoch, batch_order) for epoch in range(4)]
    for order in found:
        assert torch.equal(order.sort(1).values, torch.arange(EXAMPLES).expand(3, EXAMPLES))
    for first in range(4):
        for second in range(first):
            same_places = (found[first] == found[second]).sum(1)
            assert (same_places < EXAMPLES / 4).all()  # one on average, for two random orders


def test_members_have_orders_of_their_own_or_one_order():
    own, same = orders(0, "own"), orders(0, "same")
    assert all((own[i] != own[j]).any() for i in range(3) for j in range(i))
    assert all(torch.equal(same[0], same[i]) for i in range(3))


def test_batches_drawn_with_replacement():
    """N draws of N examples hit 1 - 1/e of them, with a standard deviation of sqrt((e - 2) / N) / e."""
    count, plan = 4000, replace(PLAN, batch_size=100, replacement=True)
    rows = torch.arange(count)
    epochs = [epoch_batches(Split(rows[:, None].float(), rows), plan, epoch) for epoch in range(2)]
    found = [torch.cat([batch(index).fetch(slice(0, 3))[1] for index in range(40)], dim=1) for batch in epochs]
    assert found[0].shape == (3, count)
    drawn = [len(order.unique()) / count for epoch in found for order in epoch]
    assert drawn == pytest.approx([1 - math.exp(-1)] * 6, abs=4 * math.sqrt((math.e - 2) / count) / math.e)
    assert not torch.equal(found[0], found[1])


@pytest.mark.parametrize("preset", ["function-rde", "feature-rde", "forde", "forde-identity"])
def test_members_that_are_compared_on_examples_see_the_same_ones(preset: str, monkeypatch):
    recipe = make_recipe(preset)
    space, seen = type(recipe.coupling.space), []  # type: ignore[union-attr]
    features = space.features

    def recorded(self, inputs: SpaceInputs) -> Tensor:
        seen.append((inputs.x.detach().clone(), inputs.y.clone()))
        return features(self, inputs)

    monkeypatch.setattr(space, "features", recorded)
    x, y = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    mm.fit("mlp", (x.numpy(), y.numpy()), recipe=recipe, plan=replace(PLAN, epochs=1))
    assert len(seen) >= 4
    for inputs, targets in seen:
        assert len(inputs) == 3
        for tensor in (inputs, targets):
            assert all(torch.equal(tensor[0], tensor[i]) for i in (1, 2))


@pytest.mark.parametrize("preset", ["deep-ensemble", "weight-rde", "svgd"])
def test_members_that_are_not_have_batches_of_their_own(preset: str):
    assert plan_for(make_recipe(preset), PLAN).batch_order == "own"


@pytest.mark.parametrize(
    ("setting", "value", "problem"),
    [("same", 0.5, "random stream"), ("batch_order", torch.zeros(2), "batch_order"), ("batch_order", 1, "batch_order")],
)
def test_orders_of_another_type_are_refused_in_one_line(setting: str, value: object, problem: str) -> None:
    with pytest.raises(mm.Misuse, match=problem):
        plan_for(make_recipe("forde"), **{setting: value})
