"""Captured steps: the bits of steps that are computed anew, and what is never captured."""

from dataclasses import replace
from types import MethodType

import pytest
import torch
from torch import Tensor, nn

import murmuration as mm
import murmuration.core.flat_buffers as flat_buffers
from murmuration.core.engines import Team, assemble, engine
from murmuration.core.engines.captures import FIRST, Captures
from murmuration.core.flat_buffers import flat_view, flatten
from murmuration.core.group_step import GroupStep
from murmuration.core.state import Probe
from murmuration.models.nets.dense import with_head
from murmuration.training.batches import epoch_batches
from murmuration.training.loop import begin, run_epoch, train
from murmuration.training.spec import TrainSpec

PLAN = mm.Plan(members=3, epochs=3, batch_size=16, lr=1e-2, posthoc=None)
CAPTURED = ("deep-ensemble", "batch-ensemble", "weight-rde", "function-rde", "forde", "swag", "snapshot")


def dense() -> nn.Module:
    return with_head([nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh()], 8, 2)


def dropped() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))


class Silent:
    """Watches nothing."""

    def after_step(self, progress: object) -> None: ...

    def after_epoch(self, progress: object) -> None: ...


@pytest.fixture(scope="module")
def moons() -> mm.Data:
    return mm.open_data("two-moons")


def few(data: mm.Data, rows: int = 150) -> mm.Data:
    return replace(data, train=data.train[:rows])


def trained(spec: TrainSpec, how: str, *, direct: bool = False, capture: bool = True) -> tuple[list[Tensor], Team]:
    """All tensors after the epochs of a plan, and the team that trained them."""
    progress = begin(spec)
    with assemble(engine(how, direct), spec.member(0)) as team:
        team.captures.possible &= capture
        for _ in range(spec.plan.epochs):
            run_epoch(team, spec.method.step_config, spec, progress, Silent())
    return [*progress.state.population.to_tensors().values(), progress.loss_sum], team


def spec_of(data: mm.Data, recipe: str = "deep-ensemble", build=dense, likelihood=None, **changed) -> TrainSpec:
    chosen = likelihood or mm.Categorical(2)
    return TrainSpec(build, data, chosen, mm.make_recipe(recipe), replace(PLAN, **changed))


def is_captured(team: Team) -> bool:
    return any(entry.trusted for entry in team.captures._entries.values())


def assert_equal(first: list[Tensor], second: list[Tensor]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("recipe", CAPTURED)
@pytest.mark.parametrize("direct", [False, True])
def test_captured_steps_have_the_bits_of_others(moons: mm.Data, recipe: str, direct: bool):
    spec = spec_of(few(moons), recipe)
    captured, team = trained(spec, "stacked", direct=direct)
    assert is_captured(team)
    assert_equal(captured, trained(spec, "stacked", direct=direct, capture=False)[0])


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["deep-ensemble", "weight-rde", "swag"])
@pytest.mark.parametrize(("how", "direct"), [("stacked", True), ("stacked", False), ("threads", False)])
def test_dropout_masks_are_drawn_anew_at_every_step(moons: mm.Data, recipe: str, how: str, direct: bool):
    spec = spec_of(few(moons, 154), recipe, build=dropped, epochs=6)
    captured, team = trained(spec, how, direct=direct)
    assert is_captured(team) or (how, recipe) == ("threads", "weight-rde")
    assert_equal(captured, trained(spec, how, direct=direct, capture=False)[0])


@pytest.mark.parametrize("how", ["loop", "threads", "threads-stacked"])
def test_groups_of_members_are_captured_one_by_one(moons: mm.Data, how: str):
    spec = spec_of(few(moons))
    captured, team = trained(spec, how)
    assert sum(entry.trusted for entry in team.captures._entries.values()) > 1
    assert_equal(captured, trained(spec, how, capture=False)[0])


def test_last_batches_of_another_size_and_sample_weights(moons: mm.Data):
    data = few(moons, 154)  # 9 batches of 16, and one of 10
    weighted = replace(data, train=replace(data.train, weight=torch.rand(154) + 0.5))
    spec = spec_of(weighted, epochs=6)
    captured, team = trained(spec, "stacked", direct=True)
    assert [entry.trusted for entry in team.captures._entries.values()] == [True, True]
    assert_equal(captured, trained(spec, "stacked", direct=True, capture=False)[0])


@pytest.mark.parametrize("outliers", [0.0, 0.02])
def test_regressions_and_repulsion_that_grows(outliers):
    x = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
    data = mm.open_data((x.numpy(), (x[:, 0] * x[:, 1]).numpy()), task="regression")
    likelihood = mm.HeteroscedasticGaussian(outliers=outliers).for_targets(data.train.y)
    spec = spec_of(data, build=lambda: with_head([nn.Linear(3, 8), nn.ReLU()], 8, 2), likelihood=likelihood)
    recipe = mm.make_recipe("function-rde", coupling="outputs:schedule=cosine")
    for chosen in (spec, replace(spec, recipe=recipe)):
        captured, team = trained(chosen, "stacked", direct=True)
        assert is_captured(team)
        assert_equal(captured, trained(chosen, "stacked", direct=True, capture=False)[0])


@pytest.mark.slow
def test_members_that_stop_early_stay_where_they_are(moons: mm.Data):
    given = {"members": 3, "epochs": 12, "patience": 1, "lr": 0.03, "batch_size": 16, "posthoc": None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Captures, "replay", lambda *_: None)
        plain = mm.fit(dense, moons, **given)
    ensemble = mm.fit(dense, moons, **given)
    assert len({tuple(record["active"]) for record in ensemble.history}) > 1
    for a, b in zip(plain.groups, ensemble.groups, strict=True):
        pairs = zip(a.population.to_tensors().values(), b.population.to_tensors().values(), strict=True)
        assert all(torch.equal(*pair) for pair in pairs)


def test_a_loss_that_changes_is_captured_anew(moons: mm.Data):
    class Smoothed(mm.Categorical):
        def during(self, progress: float) -> mm.Categorical:
            return replace(self, label_smoothing=0.2 if progress > 0.3 else 0.0)

    Smoothed.__module__ = "murmuration.likelihoods"  # as one of the library's
    spec = spec_of(few(moons), likelihood=Smoothed(2), epochs=4)
    captured, team = trained(spec, "stacked", direct=True)
    assert is_captured(team)
    assert_equal(captured, trained(spec, "stacked", direct=True, capture=False)[0])


class Own(nn.Module):
    """A network of the caller's own, whose forward pass may be different at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.calls = dense(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layers(x) * (1 if self.calls < 20 else 2)


def hooked() -> nn.Module:
    net = dense()
    net.register_forward_hook(lambda module, args, result: 2 * result)
    return net


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.parametrize("build", [Own, hooked, normalised])
def test_networks_that_may_compute_otherwise_are_not_captured(moons: mm.Data, build):
    spec = spec_of(few(moons), build=build)
    plain = trained(spec, "stacked", capture=False)[0]
    captured, team = trained(spec, "stacked")
    assert not is_captured(team)
    assert_equal(captured, plain)


def test_a_module_with_a_replaced_forward_is_not_captured(moons: mm.Data):
    calls = []

    def changing(self: nn.Module, x: Tensor) -> Tensor:
        calls.append(len(x))
        return x.relu() if len(calls) < 40 else x

    def build() -> nn.Module:
        net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
        net[1].forward = MethodType(changing, net[1])
        return net

    assert not Captures(build()).possible


def test_the_factor_of_a_loss_that_underflows_is_that_of_the_step(moons: mm.Data):
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.ReLU(), nn.Linear(8, 2))

    coupling = "input-gradients:lengthscales=identity,batch_fraction=0.5,loss_scale=hyper:400000"
    recipe = mm.make_recipe(mm.Recipe("early"), coupling=coupling)
    spec = replace(spec_of(few(moons), build=build), recipe=recipe)

    def run(capture: bool) -> list[Tensor]:
        progress = begin(spec)
        with assemble(engine("stacked"), spec.member(0)) as team:
            team.captures.possible &= capture
            for step in (0, 200_000):  # the factor is zero in single precision at first, and not later
                progress.state.step = step
                run_epoch(team, spec.method.step_config, spec, progress, Silent())
            assert is_captured(team) == capture
        return [*progress.state.population.to_tensors().values()]

    assert_equal(run(True), run(False))


@pytest.mark.parametrize("recipe", ["bayes", "mc-dropout", "feature-rde"])
def test_random_weights_and_shapes_that_depend_on_values_are_not_captured(moons: mm.Data, recipe: str):
    spec = spec_of(few(moons), recipe)
    tensors, team = trained(spec, "stacked", direct=True)
    assert not is_captured(team)
    assert_equal(tensors, trained(spec, "stacked", direct=True, capture=False)[0])


def test_likelihoods_and_spaces_of_the_callers_own_are_not_captured(moons: mm.Data):
    class Mine(mm.Categorical):
        pass

    spec = spec_of(few(moons), likelihood=Mine(2))
    assert not is_captured(trained(spec, "stacked", direct=True)[1])


def test_features_that_are_not_finite_are_computed_anew(moons: mm.Data):
    """A replayed step knows no exceptions: a diverged member is left to the step that handles it."""
    found = []
    for capture in (True, False):
        spec = spec_of(few(moons), "function-rde")
        progress = begin(spec)
        with assemble(engine("stacked", True), spec.member(0)) as team:
            team.captures.possible &= capture
            run_epoch(team, spec.method.step_config, spec, progress, Silent())
            next(iter(progress.state.population.own.values()))[1] = torch.inf
            run_epoch(team, spec.method.step_config, spec, progress, Silent())
        assert list(progress.state.diverged) == [1]
        found.append(list(progress.state.population.to_tensors().values()))
    assert_equal(*found)


def test_gradients_of_captured_steps_and_weights_are_vectors(moons: mm.Data, monkeypatch: pytest.MonkeyPatch):
    """So the optimizer moves all members at once, without a copy; also after a checkpoint, whose tensors are apart."""
    joined = []
    monkeypatch.setattr(flat_buffers, "flatten", lambda tensors: joined.append(1) or flatten(tensors))
    spec = spec_of(few(moons, 160), epochs=1)
    progress = begin(spec)
    own = {name: tensor.clone() for name, tensor in progress.state.population.own.items()}
    progress.state.population = replace(progress.state.population, own=own)
    train(spec, engine("stacked", True), progress, Silent())
    assert len(joined) == 4  # before steps are replayed
    assert flat_view(list(progress.state.population.own.values())) is not None


def test_short_runs_record_nothing(moons: mm.Data):
    spec = spec_of(few(moons, 16 * FIRST), epochs=1)
    assert not any(entry.captured for entry in trained(spec, "stacked", direct=True)[1].captures._entries.values())


def test_what_can_be_captured_is_known_without_a_step(moons: mm.Data):
    spec = spec_of(few(moons))
    progress = begin(spec)
    with assemble(engine("stacked", True), spec.member(0)) as team:
        config, batch = spec.method.step_config, epoch_batches(spec.train_split, spec.plan, 0)(0)
        task = GroupStep(team, config, progress.state, slice(0, spec.plan.members), batch, Probe())
        assert task.inputs() is not None
        unknown = replace(config, likelihood=type("Mine", (mm.Categorical,), {"__module__": "mine"})(2))
        assert replace(task, config=unknown).inputs() is None


@pytest.mark.parametrize("recipe", ["batch-ensemble", "deep-ensemble"])
def test_a_member_that_becomes_inactive_after_the_capture_moves_nothing_more(moons: mm.Data, recipe: str):
    spec = spec_of(few(moons), recipe)

    def run(capture: bool) -> list[Tensor]:
        progress = begin(spec)
        with assemble(engine("stacked"), spec.member(0)) as team:
            team.captures.possible &= capture
            for epoch in range(4):
                progress.state.active[1] = epoch < 2
                run_epoch(team, spec.method.step_config, spec, progress, Silent())
            assert is_captured(team) == capture
        return [*progress.state.population.to_tensors().values()]

    assert_equal(run(True), run(False))
