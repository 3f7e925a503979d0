"""The last batch of an epoch: smaller than the others, joined where it would be one example, dropped where asked."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.recipe import make_recipe
from murmuration.data import Split
from murmuration.system.streams import generator, global_stream
from murmuration.training.batches import batch_slices, epoch_batches, plan_slices
from murmuration.training.plan import plan_for, plan_from_json
from murmuration.training.resolve import make_spec

X = torch.randn(140, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


@pytest.mark.parametrize("size", [1, 3, 8, 64])
@pytest.mark.parametrize("parts", [1, 3])
def test_every_example_is_in_one_batch(size: int, parts: int):
    for examples in range(1, 100):
        slices = batch_slices(examples, size, parts=parts)
        assert [row for rows in slices for row in range(rows.start, rows.stop)] == list(range(examples))
        sizes = [rows.stop - rows.start for rows in slices]
        assert all(each == size for each in sizes[:-1])
        if examples > size:
            assert sizes[-1] >= min(size, 2 * parts)
        kept = batch_slices(examples, size, drop_last=True)
        assert len(kept) == max(1, examples // size)
        assert {rows.stop - rows.start for rows in kept} == {min(size, examples)}


def plain_loop(build, rows: int, plan: mm.Plan, member: int) -> list[Tensor]:
    """A member trained by hand: torch's SGD on the mean loss of batches of its own order, the last one smaller."""
    with global_stream(plan.seed, "initialisation", member):
        net = build()
    steps = torch.optim.SGD(net.parameters(), lr=plan.lr)
    for epoch in range(plan.epochs):
        order = torch.randperm(rows, generator=generator(plan.seed, "batches", member, epoch))
        parts = list(order.split(plan.batch_size))
        if len(parts[-1]) < plan.batch_size and plan.drop_last:
            parts.pop()
        if len(parts[-1]) == 1:
            parts[-2:] = [torch.cat(parts[-2:])]
        for chosen in parts:
            steps.zero_grad()
            nn.functional.cross_entropy(net(X[chosen]), Y[chosen]).backward()
            steps.step()
    return [tensor.detach() for tensor in net.parameters()]


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2))


@pytest.mark.parametrize("engine", ["loop", "stacked", "threads"])
@pytest.mark.parametrize(
    ("build", "rows", "drop_last"), [(dense, 105, False), (normed, 97, False), (normed, 105, False), (dense, 105, True)]
)
def test_members_are_trained_on_the_last_batch(engine, build, rows, drop_last):
    plan = mm.Plan(
        members=2, epochs=3, batch_size=32, lr=0.1, optimizer="sgd", momentum=0.0, schedule="constant", posthoc=None
    )
    data = mm.open_data((X, Y), prepare="none", val=torch.arange(rows, 140).numpy(), test=0.0)
    found = mm.fit(build, data, plan=plan, engine=engine, drop_last=drop_last)
    for member in range(2):
        expected = plain_loop(build, rows, mm.Plan(**{**vars(plan), "drop_last": drop_last}), member)
        for mine, theirs in zip(found.member(member).parameters(), expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=2e-6)


def test_members_that_split_a_batch_split_the_last_one_too():
    plan = mm.Plan(members=3, batch_size=12, batch_order="split")
    split = Split(torch.arange(20.0).view(-1, 1), torch.arange(20))
    batches, count = epoch_batches(split, plan, 0), len(plan_slices(20, plan))
    shapes = [tuple(batches(index).fetch(slice(3))[1].shape) for index in range(count)]
    assert shapes == [(3, 4), (3, 2)]  # 8 examples left: two for each, and two that no member gets


@pytest.mark.parametrize("weighting", ["uniform", "blundell"])
def test_the_kl_divergence_counts_once_an_epoch(weighting):
    """Beside mean losses, an epoch's weights of the KL divergence add to steps / N: N times it per N examples."""
    plan = plan_for(make_recipe("bayes"), epochs=2, batch_size=32)
    data = mm.open_data((X, Y), val=torch.arange(105, 140).numpy(), test=0.0)
    spec, _ = make_spec("mlp", data, make_recipe("bayes"), plan)
    objective = replace(spec.method.step_config.objective, weighting=weighting)
    assert spec.end.steps_per_epoch == objective.steps_per_epoch == 4
    weights = [objective.kl_weight(step) for step in range(4, 8)]
    assert sum(weights) == pytest.approx(objective.beta * 4 / 105)


def test_repulsion_has_the_steps_of_the_run():
    recipe = make_recipe("forde")
    plan = plan_for(recipe, members=2, epochs=2, batch_size=32)
    data = mm.open_data((X, Y), val=torch.arange(105, 140).numpy(), test=0.0)
    spec, _ = make_spec("mlp", data, recipe, plan)
    assert spec.method.coupling.steps_per_epoch == spec.end.steps_per_epoch == 4
    assert spec.method.coupling.weight == 1 / 32


def test_a_run_without_the_setting_dropped_its_last_batches():
    record = mm.Plan().to_json()
    assert plan_from_json(record).drop_last is False
    del record["drop_last"]
    assert plan_from_json(record).drop_last is True


def test_statistics_of_averaged_weights_take_any_number_of_examples():
    """513 training examples: 512 and one, which batch normalisation cannot take alone."""
    x = torch.randn(530, 3, generator=torch.Generator().manual_seed(0))
    data = mm.open_data((x, (x[:, 0] > 0).long()), val=torch.arange(513, 530).numpy(), test=0.0)

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    swa = mm.fit(build, data, recipe="swa", epochs=4, batch_size=128, engine="loop", posthoc=None)
    assert torch.isfinite(swa.predict(x[:5]).outputs).all()
