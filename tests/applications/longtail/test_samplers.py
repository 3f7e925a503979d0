"""Samplers of classes: probabilities, draws, streams, resumed runs, and refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import murmuration as mm
from murmuration.data import Split
from murmuration.data.samplers import SAMPLERS, draw_examples
from murmuration.training.batches import epoch_batches

COUNTS = (900, 90, 10)
LABELS = torch.arange(3).repeat_interleave(torch.tensor(COUNTS))
PLAN = mm.Plan(members=2, epochs=4, batch_size=50, sampler="progressive")
ROOTS = [math.sqrt(count) / sum(map(math.sqrt, COUNTS)) for count in COUNTS]


def rows_of(plan: mm.Plan, epoch: int) -> Tensor:
    """The examples (M, N) that the members see in an epoch."""
    batch = epoch_batches(Split(torch.arange(1000.0)[:, None], LABELS), plan, epoch)
    return torch.cat([batch(index).fetch(slice(0, 2))[0][..., 0] for index in range(20)], dim=1).long()


@pytest.mark.parametrize(
    ("name", "progress", "expected"),
    [
        ("instance", 0.3, [0.9, 0.09, 0.01]),
        ("square-root", 0.3, ROOTS),
        ("balanced", 0.3, [1 / 3] * 3),
        ("progressive", 0.0, [0.9, 0.09, 0.01]),
        ("progressive", 0.5, [(0.9 + 1 / 3) / 2, (0.09 + 1 / 3) / 2, (0.01 + 1 / 3) / 2]),
        ("progressive", 1.0, [1 / 3] * 3),
    ],
)
def test_probabilities(name: str, progress: float, expected: list[float]) -> None:
    found = SAMPLERS[name].value(torch.tensor(COUNTS), progress)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_a_class_without_examples_is_never_drawn() -> None:
    for row in SAMPLERS.values():
        found = row.value(torch.tensor([5, 0, 3]), 0.5)
        assert found[1] == 0
        assert found.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "instance"])
def test_draws_follow_the_probabilities_and_are_uniform_within_a_class(name: str) -> None:
    expected = SAMPLERS[name].value(torch.tensor(COUNTS), 0.5)
    stream = torch.Generator().manual_seed(0)
    rows = torch.cat([draw_examples(LABELS, name, 0.5, stream) for _ in range(20)])
    shares = LABELS[rows].bincount() / len(rows)
    assert (((shares - expected) / (expected * (1 - expected) / len(rows)).sqrt()).abs() < 4).all()
    rare = rows[LABELS[rows] == 2].bincount(minlength=1000)[-10:].double()
    assert ((rare - rare.mean()) ** 2 / rare.mean()).sum() < 9 + 4 * math.sqrt(18)  # chi-squared of 9 degrees


def test_draws_have_a_stream_of_their_own_by_member_and_epoch() -> None:
    found = [rows_of(PLAN, epoch) for epoch in range(3)]
    assert torch.equal(found[1], rows_of(PLAN, 1))
    assert not torch.equal(found[1][0], found[1][1])
    assert not torch.equal(found[1], found[2])
    same = rows_of(replace(PLAN, batch_order="same"), 1)
    assert torch.equal(same[0], same[1])
    assert not torch.equal(rows_of(replace(PLAN, seed=1), 1), found[1])
    share = [(LABELS[rows] == 2).double().mean().item() for rows in found]
    expected = [0.01 + epoch / 4 * (1 / 3 - 0.01) for epoch in range(3)]
    assert share == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 2000))


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_with_the_same_draws(tmp_path) -> None:
    class Stop(Exception):  # noqa: N818
        pass

    def stop(_, epoch: int, *__) -> None:
        if epoch == 2:
            raise Stop

    settings = {"recipe": "deep-ensemble", "plan": replace(PLAN, batch_size=32, engine="loop"), "posthoc": None}
    whole = mm.fit("mlp", "two-moons", **settings)
    with pytest.raises(Stop):
        mm.fit("mlp", "two-moons", out=tmp_path / "run", progress=stop, checkpoint_seconds=0, **settings)
    again = mm.resume(tmp_path / "run")
    for index in range(2):
        for one, other in zip(whole.member(index).parameters(), again.member(index).parameters(), strict=True):
            assert torch.equal(one, other)
    plain = mm.fit("mlp", "two-moons", **{**settings, "sampler": "instance"})
    assert not torch.equal(next(plain.member(0).parameters()), next(whole.member(0).parameters()))


def test_what_a_sampler_cannot_do_is_refused() -> None:
    with pytest.raises(mm.Misuse, match="unknown sampler 'equal'"):
        mm.Plan(sampler="equal")
    with pytest.raises(mm.Misuse, match="replacement with sampler=balanced"):
        mm.Plan(sampler="balanced", replacement=True)
    with pytest.raises(mm.Misuse, match="sampler=balanced is by class, and diabetes is a regression: leave it out"):
        mm.fit("mlp", "diabetes", sampler="balanced", epochs=1)
    labelled = torch.utils.data.TensorDataset(torch.randn(40, 3), torch.arange(40) % 2)
    loader = torch.utils.data.DataLoader(labelled, batch_size=8)
    with pytest.raises(mm.Misuse, match="sampler=balanced and a DataLoader with an order of its own"):
        mm.fit("mlp", loader, sampler="balanced", epochs=1)
