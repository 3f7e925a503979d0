"""Predicted costs: sizes against a real run, formulas against counted numbers, proposals within their budget."""

from pathlib import Path

import numpy as np
import pytest
import torch

import murmuration as mm
from murmuration.core.dynamics import TrainTime
from murmuration.core.recipe import make_recipe
from murmuration.training.costs import Probe, Seconds, exchanges, kept_per_row, parse_budget


@pytest.mark.parametrize("recipe", ["deep-ensemble", "multi-swag", "snapshot", "batch-ensemble"])
def test_members_on_the_disk_are_those_of_a_real_run(recipe, tmp_path: Path):
    settings = {"recipe": recipe, "members": 2, "epochs": 4, "batch_size": 128}
    found = mm.estimate_costs("mlp", "digits", **settings)
    ensemble = mm.fit("mlp", "digits", out=tmp_path / "run", progress=False, **settings)
    stored = sum(t.numel() * t.element_size() for t in ensemble.to_tensors().values())
    assert found.disk["members"] == stored
    assert 0 <= (tmp_path / "run" / "members.safetensors").stat().st_size - stored < 20_000  # names and shapes


@pytest.mark.parametrize(
    ("name", "count"), [("optimizer", 1), ("swa", 1), ("swag:draws=7", 7), ("snapshot:cycles=3", 3)]
)
def test_members_that_a_dynamics_makes_of_one(name, count):
    assert kept_per_row(make_recipe("deep-ensemble", dynamics=name).dynamics, TrainTime(60, 10, 6)) == count


def test_time_grows_in_proportion_to_epochs():
    few, many = (mm.estimate_costs("mlp", "two-moons", members=2, epochs=n) for n in (1, 50))
    assert few.training.wall == pytest.approx((few.step * few.steps_per_epoch).wall, rel=1)
    for found in (few, many):
        validation = found.training.wall / found.epochs - found.step.wall * found.steps_per_epoch
        assert validation >= 0


def test_steps_are_on_the_line_through_the_measured_ones():
    steps = {4: Seconds(0.4, 0.3), 8: Seconds(0.6, 0.5)}
    probe = Probe(None, steps, Seconds(0, 0), None, 0, 0, None)  # type: ignore[arg-type]
    assert probe.step(8) == steps[8]
    assert probe.step(16).wall == pytest.approx(1.0)
    assert probe.step(6).wall == pytest.approx(0.5)
    assert probe.step(1).wall == pytest.approx(0.25)


def sent_and_received(members: int, ranks: int, width: int) -> int:
    """Numbers that rank 0 receives when rows (m, P) of all ranks become columns (M, p), and back, one by one."""
    owner = [rank for rank in range(ranks) for _ in range(members // ranks)]
    column = [rank for rank in range(ranks) for _ in range(width // ranks)]
    there = sum(owner[row] != 0 and column[place] == 0 for row in range(members) for place in range(width))
    back = sum(owner[row] == 0 and column[place] != 0 for row in range(members) for place in range(width))
    return there + back


def test_formulas_of_communication_are_what_is_counted():
    (weights,) = exchanges(8, 4, "weights", (1, 24), 24, 0)
    assert weights.bytes_per_step == 4 * (sent_and_received(8, 4, 24) + 8 * 8) + 3 * 2  # and flags of members
    (features,) = exchanges(8, 4, "features", (5, 3), 24, 0, every=2)
    assert features.bytes_per_step == 4 * (8 - 2) * 5 * 3 / 2
    (shared,) = exchanges(8, 4, None, (0, 0), 24, 100)
    assert shared.bytes_per_step == 400 + 2 * 8  # and two counts
    assert exchanges(8, 1, "features", (5, 3), 24, 100) == ()


def test_sizes_of_what_is_exchanged_are_those_of_the_network():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    settings = {"members": 4, "batch_size": 16, "ranks": 2}
    outputs = mm.estimate_costs(net, "digits", recipe="function-rde", **settings).exchanges
    assert outputs[0].terms["B"] * outputs[0].terms["R"] == 16 * 10
    gradients = mm.estimate_costs(net, "digits", recipe="forde", **settings).exchanges
    assert (gradients[0].terms["B"], gradients[0].terms["R"]) == (16, 64)
    weights = mm.estimate_costs(net, "digits", recipe="weight-rde", **settings).exchanges
    assert weights[0].terms["P"] == 650
    assert mm.estimate_costs(net, "digits", **settings).exchanges == ()


def test_a_budget_gives_up_members_first_and_is_kept():
    plenty = mm.estimate_costs("mlp", "two-moons", members=6, epochs=20, budget="10h").proposal
    assert (plenty.members, plenty.epochs, plenty.given_up) == (6, 20, "nothing")
    tight = mm.estimate_costs("mlp", "two-moons", members=6, epochs=20, budget=1e-6)
    assert tight.proposal is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("0.5h", 1800), (90, 90), ("2d", 172800)]
)
def test_budgets_in_words(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "-3", "soon", "3 weeks", "0s", "30m!"])
def test_budgets_that_are_no_times(text):
    with pytest.raises(mm.Misuse, match="expected a time such as"):
        parse_budget(text)


def test_early_stopping_makes_the_time_the_most_it_can_be():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    stopped = mm.estimate_costs(None, (x, x[:, 0]), members=1)
    assert stopped.patience == 100
    assert stopped.caveat.startswith("at most: training stops after 100 epochs without a better validation NLL; six")
    assert stopped.to_json()["caveat"] == stopped.caveat
    assert mm.estimate_costs("mlp", "two-moons", members=1, epochs=1).caveat == ""


def test_more_ranks_than_members_are_refused():
    with pytest.raises(mm.Misuse, match="ranks=5 for 2 members"):
        mm.estimate_costs("mlp", "two-moons", members=2, ranks=5)
