"""Gradient clipping, warm-up, learning-rate multipliers, and the order of batches."""

from dataclasses import replace

import pytest
import torch
from small_runs import ENGINES, EVERY, MEMBERS, batch, build, method, moved, start, with_updater
from torch.nn.utils import get_total_norm

import murmuration as mm
from murmuration.core.dynamics import TrainTime, learning_rate_factor
from murmuration.core.engines import assemble
from murmuration.core.step import step
from murmuration.data import Data, Split
from murmuration.system.streams import ALL_MEMBERS, generator
from murmuration.training.batches import epoch_batches, learning_rate, plan_slices
from murmuration.training.plan import Plan, plan_from_json

HEAD = "head."


def norms(gradients: dict[str, torch.Tensor]) -> torch.Tensor:
    """The norm (M,) of each member's gradients over all tensors."""
    return torch.stack([get_total_norm([g[i] for g in gradients.values()]) for i in range(MEMBERS)])


def clipped_rows(gradients: dict[str, torch.Tensor], largest: float) -> dict[str, torch.Tensor]:
    """Reference: torch's own clipping of one network at a time."""
    found = {name: g.clone() for name, g in gradients.items()}
    for i in range(MEMBERS):
        parameters = [torch.nn.Parameter(g[i]) for g in found.values()]
        for parameter, g in zip(parameters, found.values(), strict=True):
            parameter.grad = g[i]
        torch.nn.utils.clip_grad_norm_(parameters, largest)
    return found


@EVERY
def test_each_member_is_clipped_by_its_own_norm(how):
    plain = moved(start(), how, method(None), batch())
    lengths = norms(plain).sort().values
    largest = float(lengths[1] + lengths[2]) / 2  # two members are above, two below
    found = moved(start(), how, with_updater(method(None), clip_norm=largest), batch())
    expected = clipped_rows(plain, largest)
    for name, gradient in expected.items():  # torch divides by the norm + 1e-6
        torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-9)
    below = norms(plain) < largest
    assert below.sum() == 2
    assert all(torch.equal(found[name][below], plain[name][below]) for name in plain)
    torch.testing.assert_close(norms(found)[~below], torch.full((2,), largest, dtype=torch.float64))


@EVERY
def test_shared_gradients_are_clipped_together_and_apart_from_own_ones(how):
    def shared_step(clip_norm: float | None) -> torch.Tensor:
        state = start(shared=True)
        before = state.population.clone()
        with assemble(how, build()) as team:
            step(team, with_updater(method(None), clip_norm=clip_norm), state, batch())
        return torch.cat([(before.shared[name] - t).flatten() for name, t in state.population.shared.items()])

    plain = shared_step(None)
    largest = 0.5 * float(plain.norm())
    torch.testing.assert_close(shared_step(largest), 0.5 * plain, rtol=1e-12, atol=0)
    assert torch.equal(shared_step(10 * largest), plain)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_bound_that_is_never_reached_changes_no_bit(engine, digits: Data):
    plan = Plan(members=2, epochs=1, batch_size=128, engine=engine)
    plain, wide = (mm.fit("mlp", digits, plan=replace(plan, clip_norm=bound), posthoc=None) for bound in (None, 1e6))
    assert_same_bits(plain, wide)


def assert_same_bits(a: mm.Ensemble, b: mm.Ensemble) -> None:
    mine, other = (each.groups[0].population.to_tensors() for each in (a, b))
    assert mine.keys() == other.keys()
    assert all(torch.equal(mine[name], other[name]) for name in mine)


def test_the_learning_rate_rises_linearly_and_then_follows_its_schedule():
    plan, steps = Plan(lr=0.1, warmup=1.5, epochs=4), 8
    found = [learning_rate(plan, "cosine", TrainTime(step, steps, 4)) for step in range(32)]
    schedule = [0.1 * learning_rate_factor("cosine", TrainTime(step, steps, 4)) for step in range(32)]
    assert found[:12] == pytest.approx([value * (step + 1) / 12 for step, value in enumerate(schedule[:12])])
    assert found[11:] == schedule[11:]
    assert [learning_rate(replace(plan, warmup=0.0), "cosine", TrainTime(s, steps, 4)) for s in range(32)] == schedule


def test_the_history_has_the_learning_rate_of_the_last_step(digits: Data):
    plan = Plan(members=1, epochs=2, batch_size=256, engine="loop", lr=0.01, warmup=10.0, schedule="constant")
    lrs = [record["lr"] for record in mm.fit("mlp", digits, plan=plan, posthoc=None).history]
    assert lrs == pytest.approx([0.001, 0.002])


def multiplied(pattern_lr: tuple[tuple[str, float], ...]) -> dict[str, torch.Tensor]:
    return moved(start(), ENGINES["stacked"], with_updater(method(None), lr_multipliers=pattern_lr), batch())


def test_multipliers_scale_the_tensors_they_match_and_the_last_match_counts():
    plain = multiplied(())
    found = multiplied((("*", 0.5), (f"{HEAD}*", 3.0)))
    for name, gradient in plain.items():
        torch.testing.assert_close(found[name], (3.0 if name.startswith(HEAD) else 0.5) * gradient, rtol=1e-12, atol=0)
    reversed_order = multiplied(((f"{HEAD}*", 3.0), ("*", 0.5)))
    assert all(torch.equal(reversed_order[name], multiplied((("*", 0.5),))[name]) for name in plain)


@pytest.mark.parametrize("recipe", ["deep-ensemble", "csgmcmc"])
def test_a_multiplier_of_zero_freezes(recipe, digits: Data):
    plan = Plan(members=2, epochs=3, batch_size=64, engine="loop", lr_multipliers=(("*.bias", 0.0),))
    ensemble = mm.fit("mlp", digits, recipe=recipe, plan=plan, posthoc=None)
    initial = mm.fit("mlp", digits, plan=replace(plan, epochs=1, lr=1e-30, lr_multipliers=()), posthoc=None)
    population, before = ensemble.groups[0].population, initial.groups[0].population
    for name, tensor in population.own.items():
        times = len(tensor) // len(before.own[name])
        assert torch.equal(tensor, before.own[name].repeat(times, *(1,) * (tensor.dim() - 1))) == name.endswith("bias")


def test_a_pattern_that_matches_nothing_is_refused(digits: Data):
    plan = Plan(members=2, epochs=1, lr_multipliers=(("*.bias", 0.5), ("haed.*", 2.0)))
    with pytest.raises(
        mm.Misuse, match=r"lr_multipliers: 'haed\.\*' matches no tensor of the net; write a pattern of "
    ):
        mm.fit("mlp", digits, plan=plan, posthoc=None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip_norm": 0.0}, "clip_norm=0.0: need a positive number such as 1"),
        ({"warmup": -1.0}, "warmup=-1.0: need a number of epochs that is not negative"),
        ({"lr_multipliers": (("*", -1.0),)}, r"lr_multipliers: -1.0 for '\*'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(mm.Misuse, match=message):
        Plan(**settings)


def test_the_settings_survive_json():
    plan = Plan(clip_norm=2.0, warmup=0.5, lr_multipliers=(("head.*", 0.1), ("*.bias", 0.0)))
    assert plan_from_json(plan.to_json()) == plan


def marked(count: int) -> Split:
    return Split(torch.arange(float(count)).view(-1, 1), torch.arange(count))


@pytest.mark.parametrize("order", ["own", "same", "split"])
def test_batches_follow_the_permutation_of_their_stream(order):
    plan = Plan(members=2, epochs=5, batch_size=8, seed=3, batch_order=order)
    split, epoch = marked(30), 2
    batches = epoch_batches(split, plan, epoch, "cosine")
    streams = [ALL_MEMBERS if order != "own" else member for member in range(2)]
    permutations = [torch.randperm(30, generator=generator(3, "batches", member, epoch)) for member in streams]
    for index in range(len(plan_slices(30, plan))):
        x, y = batches(index).fetch(slice(2))
        for member, permutation in enumerate(permutations):
            rows = permutation[8 * index : 8 * index + 8]
            half = len(rows) // 2
            rows = rows[half * member : half * member + half] if order == "split" else rows
            assert y[member].tolist() == rows.tolist() == x[member].flatten().tolist()
        time = TrainTime(epoch * 4 + index, 4, 5)
        assert batches(index).time == time
        assert batches(index).lr == learning_rate(plan, "cosine", time)


def test_the_schedule_of_the_plan_is_used_where_none_is_given():
    plan = Plan(members=1, epochs=4, batch_size=8, schedule="halve:1", lr=0.8)
    assert [epoch_batches(marked(16), plan, epoch)(0).lr for epoch in range(4)] == pytest.approx([0.8, 0.4, 0.2, 0.1])
    assert epoch_batches(marked(16), plan, 3, "constant")(0).lr == 0.8
