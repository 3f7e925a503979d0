"""Whole runs of SWA, SWAG, snapshots and cSG-MCMC: killed runs, engines, combinations, refusals, divergence."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

import murmuration as mm
from murmuration.core.dynamics import CyclicalSgmcmc, StepTime, Swa, TrainTime, WeightPath
from murmuration.core.dynamics.base import keep_times
from murmuration.core.dynamics.cycles import Langevin
from murmuration.core.engines import engine
from murmuration.core.method import collectable
from murmuration.core.population import Population
from murmuration.core.recipe import make_recipe
from murmuration.data import Data, open_data
from murmuration.likelihoods import Categorical
from murmuration.models.nets import build_net
from murmuration.system.streams import Noise
from murmuration.training import Progress, TrainSpec, begin, train
from murmuration.training.plan import plan_for

PLAN = mm.Plan(members=2, epochs=4, batch_size=32, drop_last=True, engine="loop", lr=1e-2)
DYNAMICS = {  # of 24 steps; but for fge the last one is always collected
    "swa": "swa:start=0.5,collections=4",
    "swag": "swag:start=0.5,collections=6,rank=3,draws=3",
    "snapshot": "snapshot:cycles=3",
    "fge": "fge:period=2,low=0.1",
    "csgmcmc": "csgmcmc:cycles=2,samples=2,sampling=0.5",
}


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    """140 examples to train on, so 4 steps of an epoch without the last 12; six of these epochs are 24 steps."""
    return open_data((digits.train.prepared[:200], digits.train.y[:200]))


def fit(data: Data, answers: dict[str, object] | str, net: object = "mlp", **settings) -> mm.Ensemble:
    """Train on few examples; a text alone is the dynamics of a deep ensemble."""
    others = {name: settings.pop(name) for name in ("out", "progress") if name in settings}
    chosen = {"dynamics": answers} if isinstance(answers, str) else dict(answers)
    recipe = make_recipe(chosen.pop("preset", "deep-ensemble"), **chosen)
    plan = replace(PLAN, **{"epochs": 6, **settings})
    return mm.fit(net, data, recipe=recipe, plan=plan, checkpoint_seconds=0, **others, posthoc=None)


def tensors(ensemble: mm.Ensemble) -> dict[str, Tensor]:
    return ensemble.groups[0].population.to_tensors()


def assert_same_bits(a: mm.Ensemble, b: mm.Ensemble) -> None:
    assert tensors(a).keys() == tensors(b).keys()
    assert all(torch.equal(tensors(a)[name], tensors(b)[name]) for name in tensors(a))


def stop_after(steps: int) -> Callable[..., None]:
    def show(text: str, done: int, total: int, record: dict | None) -> None:
        if done == steps:
            raise InterruptedError

    return show


def killed(path: Path, steps: int, data: Data, answers: dict[str, object] | str, net: object, **settings) -> Path:
    """A run that was stopped after so many steps, before their checkpoint was written."""
    with pytest.raises(InterruptedError):
        fit(data, answers, net, out=path, progress=stop_after(steps), **settings, posthoc=None)
    return path


# killed runs


def test_the_steps_of_these_runs_and_their_collections(little: Data):
    end = TrainTime(24, 4, 6)
    assert len(little.train) // PLAN.batch_size == 4
    times = {name: keep_times(make_recipe(dynamics=text).dynamics, end) for name, text in DYNAMICS.items()}
    assert times == {
        "swa": [15, 18, 21, 24],
        "swag": [14, 16, 18, 20, 22, 24],
        "snapshot": [8, 16, 24],
        "fge": [5, 13, 21],  # after the steps with the lowest learning rate
        "csgmcmc": [9, 12, 21, 24],
    }


@pytest.mark.parametrize(
    "engine", ["loop", *(pytest.param(name, marks=pytest.mark.slow) for name in ("stacked", "threads"))]
)
@pytest.mark.parametrize("name", DYNAMICS)
def test_a_killed_run_ends_with_the_same_bits(name, engine, little: Data, normalised_net, tmp_path: Path):
    """A network with batch norm and dropout, killed before, between and after collections."""
    undisturbed = fit(little, DYNAMICS[name], normalised_net, engine=engine, posthoc=None)
    for steps in (5, 17, 23):
        path = killed(tmp_path / str(steps), steps, little, DYNAMICS[name], normalised_net, engine=engine)
        resumed = mm.resume(path, net=normalised_net, data=little)
        assert_same_bits(undisturbed, resumed)
        assert resumed.history == undisturbed.history


@dataclass(frozen=True)
class Largest(mm.Dynamics):
    """Members at the weights of largest norm on their path: a dynamics of the caller's own, with settings."""

    refreshes_statistics: ClassVar[bool] = True
    every: int = 3

    def keep(self, time: TrainTime) -> bool:
        return time.step % self.every == 0

    def collect(self, path: WeightPath, population: Population, rows: Tensor) -> None:
        best = path.points.setdefault("best", population.clone())
        path.counts.setdefault("best", torch.zeros(population.members, dtype=torch.int64))[rows] += 1
        new, old = (
            sum(t.flatten(1).square().sum(1) for t in each.own.values() if t.is_floating_point())
            for each in (population, best)
        )
        best.copy_members(population, rows[(new > old)[rows]])

    def finish(self, path: WeightPath, population: Population, streams: object) -> tuple[Population, Tensor]:
        return path.points["best"], torch.arange(population.members)


def test_a_killed_run_of_one_s_own_dynamics_needs_it_again(little: Data, normalised_net, tmp_path: Path):
    answers = {"dynamics": Largest(every=2)}
    undisturbed = fit(little, answers, normalised_net, posthoc=None)
    for steps in (1, 7, 23):
        path = killed(tmp_path / str(steps), steps, little, answers, normalised_net)
        with pytest.raises(mm.Misuse, match="recipe="):
            mm.resume(path, net=normalised_net, data=little)
        recipe = make_recipe("deep-ensemble", **answers)
        assert_same_bits(undisturbed, mm.resume(path, net=normalised_net, data=little, recipe=recipe))
    assert_same_bits(undisturbed, mm.load(path, net=normalised_net, recipe=recipe))


# batch norm


@pytest.mark.parametrize("name", ["swa", "swag"])
def test_averaged_members_have_statistics_of_their_own_weights(name, little: Data, normalised_net):
    """Reference: torch's own update on one batch, with dropout off, as it is before the norm layer of this network."""
    ensemble = fit(little, DYNAMICS[name], normalised_net, posthoc=None)
    for index in range(ensemble.members):
        member = ensemble.member(index)
        found = {key: t.clone() for key, t in member.state_dict().items() if key.startswith("norm.running")}
        update_bn([little.train.prepared], member)
        for key, tensor in found.items():
            torch.testing.assert_close(tensor, member.state_dict()[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["snapshot", "fge", "csgmcmc"])
def test_points_of_the_path_keep_the_statistics_they_had(name, little: Data, normalised_net):
    ensemble = fit(little, DYNAMICS[name], normalised_net, posthoc=None)
    counts = tensors(ensemble)["buffers/norm.num_batches_tracked"].tolist()
    times = keep_times(ensemble.recipe.dynamics, TrainTime(24, 4, 6))
    assert counts == [time for time in times for _ in range(2)]


# Langevin noise


def test_every_engine_walks_the_same_chain(little: Data):
    """Up to rounding: 24 steps from the same weights with the same noise, in single precision."""
    noisy = "csgmcmc:cycles=1,samples=2,sampling=1,temperature=1,examples=100"
    chains = {each: tensors(fit(little, noisy, engine=each, posthoc=None)) for each in ("loop", "stacked", "threads")}
    for name, tensor in chains["loop"].items():
        torch.testing.assert_close(chains["stacked"][name], tensor, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(chains["threads"][name], tensor, rtol=1e-3, atol=1e-4)
    other = tensors(fit(little, noisy, seed=1, posthoc=None))
    assert not torch.allclose(next(iter(other.values())), next(iter(chains["loop"].values())), atol=1e-2)


def noise_of_updates(data: Data, monkeypatch, **settings) -> list[list[Tensor]]:
    """The noise of every update in one epoch of a run, tensors (M, ...)."""
    drawn, update = [], Langevin.update

    def recorded(self, parameters, gradients, state, when: StepTime) -> None:
        def draw(likes: list[Tensor]) -> list[Tensor]:
            drawn.append(when.draw(likes))
            return drawn[-1]

        update(self, parameters, gradients, state, replace(when, draw=draw))

    monkeypatch.setattr(Langevin, "update", recorded)
    fit(data, "csgmcmc:cycles=1,samples=1,sampling=1", epochs=1, engine="stacked", **settings, posthoc=None)
    groups = len(drawn) // 5  # one step is a trial of the engine
    return drawn[groups:]


def row(noise: list[Tensor], member: int) -> Tensor:
    """The noise of one member in one update, in the order of its stream."""
    return torch.cat([each[member].flatten() for each in noise])


def assert_uncorrelated(a: Tensor, b: Tensor) -> None:
    count = min(len(a), len(b))
    assert count >= 100
    found = torch.corrcoef(torch.stack([a[:count], b[:count]]))[0, 1]
    assert abs(float(found)) < 4 / count**0.5


def test_members_and_steps_have_different_noise(little: Data, monkeypatch):
    first, second, third, _ = noise_of_updates(little, monkeypatch)
    assert_uncorrelated(row(first, 0), row(first, 1))
    assert_uncorrelated(row(first, 0), row(second, 0))
    assert_uncorrelated(row(second, 1), row(third, 1))


def test_groups_of_tensors_have_different_noise(little: Data, monkeypatch):
    """Tensors with different learning rates are updated one group after another."""
    drawn = noise_of_updates(little, monkeypatch, lr_multipliers=(("*.bias", 2.0),))
    assert len(drawn) == 8
    assert_uncorrelated(row(drawn[0], 0), row(drawn[1], 0))


def test_the_noise_of_steps_is_not_that_of_dropout():
    like = torch.empty(4000)
    dropout, langevin = Noise(0, 1, 7), Noise(0, 1, 7, "langevin")
    assert_uncorrelated(dropout.normal(like), langevin.normal(like))
    assert not torch.equal(Noise(0, 1, 7).bits(64, like.device), Noise(0, 1, 7, "langevin").bits(64, like.device))


# combinations


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "members"),
    [
        ({"preset": "forde", "dynamics": DYNAMICS["swag"]}, 6),
        ({"preset": "forde", "dynamics": DYNAMICS["snapshot"]}, 6),
        ({"preset": "svgd", "dynamics": DYNAMICS["csgmcmc"]}, 8),
        ({"preset": "batch-ensemble", "dynamics": DYNAMICS["swa"]}, 2),
        ({"preset": "batch-ensemble", "dynamics": DYNAMICS["swag"]}, 6),
        ({"preset": "batch-ensemble", "dynamics": DYNAMICS["snapshot"]}, 6),
        ({"preset": "batch-ensemble", "dynamics": DYNAMICS["csgmcmc"]}, 8),
        ({"preset": "mask-ensemble", "dynamics": DYNAMICS["swa"]}, 2),
        ({"weights": "gaussian", "dynamics": DYNAMICS["swa"]}, 2),
        ({"weights": "gaussian", "dynamics": DYNAMICS["snapshot"]}, 6),
        ({"weights": "dropout", "dynamics": DYNAMICS["swa"]}, 2),
    ],
    ids=str,
)
def test_combinations_train_and_survive_their_files(answers, members, little: Data, tmp_path: Path):
    ensemble = fit(little, answers, epochs=12, out=tmp_path / "run", posthoc=None)
    assert ensemble.members == members
    again = mm.load(tmp_path / "run")
    assert_same_bits(ensemble, again)
    predicted = ensemble.predict(little.test.x)
    assert torch.equal(predicted.outputs, again.predict(little.test.x).outputs)
    assert predicted.outputs.isfinite().all()
    hits = (predicted.predicted == little.test.y).double().mean()
    assert hits > 0.5  # of ten classes, from 140 examples
    probabilities = predicted.probs  # members differ
    assert (probabilities - probabilities[:1]).abs().max() > 1e-4


def test_a_frozen_backbone_stays_and_its_heads_are_drawn(little: Data):
    torch.manual_seed(0)
    net = build_net("mlp", little.input_shape, 10)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    answers = {"preset": "last-layer-ensemble", "sharing": "backbone:frozen=yes", "dynamics": DYNAMICS["swag"]}
    ensemble = fit(little, answers, net, posthoc=None)
    assert ensemble.members == 6
    states = [ensemble.member(index).state_dict() for index in range(6)]
    for name, tensor in before.items():
        same = [torch.equal(state[name], tensor) for state in states]
        assert all(same) if not name.startswith("head.") else not any(same)
    assert ensemble.predict(little.test.x).outputs.isfinite().all()


def test_weight_decay_reaches_mixed_langevin_gradients(little: Data):
    """SVGD mixes gradients and decay alike; a chain without noise must feel the decay as one without mixing does."""
    answers = {"preset": "svgd", "dynamics": "csgmcmc:cycles=1,samples=1,temperature=0"}
    plain, decayed = (fit(little, answers, weight_decay=decay, decay="coupled", posthoc=None) for decay in (0.0, 0.3))
    norms = [sum(float(t.square().sum()) for t in tensors(each).values()) for each in (plain, decayed)]
    assert norms[1] < 0.9 * norms[0]


# refusals


@pytest.mark.parametrize(
    ("answers", "settings", "message"),
    [
        ({"weights": "gaussian", "dynamics": "swag"}, {}, "swag with random weights.* write weights point"),
        ({"weights": "dropout", "dynamics": "swag"}, {}, "swag with random weights.* write weights point"),
        ({"weights": "gaussian", "dynamics": "csgmcmc"}, {}, "csgmcmc with random weights.* write weights point"),
        ({"weights": "dropout", "dynamics": "csgmcmc"}, {}, "csgmcmc with random weights.* write weights point"),
        ("swa", {"patience": 3}, "stopping early with dynamics swa:"),
        ("swag", {"patience": 3}, "stopping early with dynamics swag:"),
        ("snapshot", {"patience": 3}, "stopping early with dynamics snapshot:"),
        ("csgmcmc", {"patience": 3}, "stopping early with dynamics csgmcmc:"),
        ("snapshot", {"schedule": "cosine"}, "schedule cosine with dynamics snapshot: its cycles are .* leave it out"),
        ("csgmcmc", {"schedule": "cosine"}, "schedule cosine with dynamics csgmcmc: its cycles are .* leave it out"),
        ("csgmcmc", {"optimizer": "sgd"}, "an optimizer with dynamics csgmcmc: .* leave it out"),
        ("csgmcmc", {"optimizer": torch.optim.RMSprop}, "an optimizer with dynamics csgmcmc: .* leave it out"),
        ("csgmcmc", {"weight_decay": 0.1, "decay": "decoupled"}, "decoupled weight decay .* write decay coupled"),
        ("csgmcmc:clip_norm=0", {}, "clip_norm=0.0: need a positive number such as 3, or inf"),
        ("csgmcmc", {"l1": 0.1}, "l1 with dynamics csgmcmc: .* leave it out"),
        ("swa", {"epochs": 1}, "swa would collect weights 1 times in 4 steps"),
        ("swag", {"epochs": 1}, "swag would collect weights 1 times in 4 steps"),
        ("fge", {"schedule": "cosine"}, "schedule cosine with dynamics fge: its cycles are .* leave it out"),
        ("fge:period=9", {"epochs": 1}, "no minimum of the learning rate within the run"),
        ("fge:low=0", {}, "period=2.0, low=0.0"),
        ("snapshot", {"epochs": 1}, "cycles=5 of dynamics snapshot in 4 steps: train longer"),
        ("csgmcmc:cycles=5,samples=1", {"epochs": 1}, "cycles=5 of dynamics csgmcmc in 4 steps: train longer"),
        (
            "csgmcmc:cycles=4",
            {"epochs": 3},
            "cycles=4, sampling=0.2 of dynamics csgmcmc in 12 steps: no step of a cycle",
        ),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_are_refused_in_one_line(answers, settings, message, little: Data, tmp_path: Path):
    with pytest.raises(mm.Misuse, match=message) as refused:
        fit(little, answers, out=tmp_path / "run", **settings, posthoc=None)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_csgmcmc_with_default_settings_fits_a_regression_with_learned_noise():
    """Without a bound of the gradients the chain diverges: RMSE of 1e17 in these ten epochs."""
    data = open_data("gaps-1d")
    found = mm.fit("mlp", data, recipe="csgmcmc", epochs=10, plan=mm.Plan(batch_size=32))
    error = mm.score(found.predict(data.val.x), data.val.y)["rmse"]
    assert error < 0.6 * float(data.val.y.std())
    assert CyclicalSgmcmc().gradient_bound() == 3.0
    assert CyclicalSgmcmc(clip_norm=float("inf")).gradient_bound() is None


def test_coupled_decay_of_csgmcmc_is_a_prior(little: Data):
    """Without noise the chain is gradient descent with weight decay, and ends with smaller weights."""
    chain = "csgmcmc:cycles=1,samples=1,temperature=0"
    plain, decayed = (fit(little, chain, weight_decay=decay, decay="coupled", posthoc=None) for decay in (0.0, 0.3))
    norms = [sum(float(t.square().sum()) for t in tensors(each).values()) for each in (plain, decayed)]
    assert norms[1] < 0.9 * norms[0]


def test_rules_of_a_chain_are_langevin_for_every_tensor(little: Data):
    recipe = make_recipe("batch-ensemble", dynamics="csgmcmc")
    plan = plan_for(recipe, PLAN, epochs=20)
    spec = TrainSpec(lambda: build_net("mlp", little.input_shape, 10), little, Categorical(10), recipe, plan)
    config = spec.method.step_config
    assert isinstance(spec.method.dynamics, CyclicalSgmcmc)
    assert spec.method.dynamics.examples == len(little.train)
    population = begin(spec).state.population
    for named in (population.own, population.shared):
        groups = config.updater.param_groups(named)
        assert {name for names, _, _ in groups for name in names} == set(named)
        assert all(isinstance(rule, Langevin) for _, rule, _ in groups)


# divergence


class Fragile(nn.Module):
    """A linear network whose outputs overflow in training after `last` steps."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.head = nn.Flatten(), nn.Linear(64, 10)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("last", torch.tensor(1e9))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
        return self.head(self.flat(x)) * torch.where(self.seen > self.last, torch.inf, 1.0)


@dataclass
class Recorder:
    """Copies of the members after every step."""

    seen: dict[int, Population] = field(default_factory=dict)

    def after_step(self, progress: Progress) -> None:
        self.seen[progress.state.step] = progress.state.population.clone()

    after_epoch = after_step


def run_fragile(data: Data, dynamics: str, last: int | None) -> tuple[Population, Recorder, Progress]:
    """Three members; member 1 diverges after `last` steps."""
    recipe = make_recipe("deep-ensemble", dynamics=dynamics)
    spec = TrainSpec(Fragile, data, Categorical(10), recipe, plan_for(recipe, PLAN, members=3, epochs=6))
    progress, recorder = begin(spec), Recorder()
    if last is not None:
        progress.state.population.buffers["last"][1] = last
    return train(spec, engine("loop"), progress, recorder), recorder, progress


def test_snapshots_of_a_member_that_diverges_are_those_of_its_finite_cycles(little: Data):
    whole, path, _ = run_fragile(little, DYNAMICS["snapshot"], None)
    found, _, progress = run_fragile(little, DYNAMICS["snapshot"], last=10)
    assert list(progress.state.diverged) == [1]
    assert whole.members == 9
    assert found.members == 7  # three cycles of two members, one of the other
    expected = [(8, 0), (8, 1), (8, 2), (16, 0), (16, 2), (24, 0), (24, 2)]
    for row, (step, member) in enumerate(expected):
        assert torch.equal(found.own["head.weight"][row], path.seen[step].own["head.weight"][member])


def test_the_average_of_a_member_that_diverges_is_that_of_its_finite_weights(little: Data):
    whole, path, _ = run_fragile(little, DYNAMICS["swa"], None)
    found, _, progress = run_fragile(little, DYNAMICS["swa"], last=19)
    assert progress.state.path.counts["mean"].tolist() == [4, 2, 4]
    mean = torch.stack([path.seen[step].own["head.weight"][1] for step in (15, 18)]).mean(0)
    torch.testing.assert_close(found.own["head.weight"][1], mean, rtol=1e-6, atol=1e-7)
    for member in (0, 2):
        assert torch.equal(found.own["head.weight"][member], whole.own["head.weight"][member])


def test_a_gaussian_of_a_member_that_diverges_is_that_of_its_finite_weights(little: Data):
    text = "swag:start=0.5,collections=6,rank=2,draws=2"  # columns of the others are overwritten
    whole, _, _ = run_fragile(little, text, None)
    found, _, after = run_fragile(little, text, last=17)
    assert after.state.path.counts["mean"].tolist() == [6, 2, 6]
    assert after.state.path.points["squares"].own["head.weight"][1].abs().max() > 0
    columns = [after.state.path.points[f"deviation/{k}"].own["head.weight"][1] for k in range(2)]
    assert not columns[0].any()  # the first deviation from a running mean is zero
    assert columns[1].any()
    assert found.own["head.weight"].isfinite().all()
    rows = [row for row in range(6) if row % 3 != 1]
    assert torch.equal(found.own["head.weight"][rows], whole.own["head.weight"][rows])


def test_a_member_that_diverges_before_its_first_epoch_leaves_nothing(little: Data):
    for text in DYNAMICS.values():
        found, _, progress = run_fragile(little, text, last=2)
        whole, _, _ = run_fragile(little, text, None)
        assert progress.state.diverged[1].restored == 0
        assert found.members == whole.members * 2 // 3


def test_only_finite_trained_members_are_collected():
    net = nn.Sequential(nn.Linear(3, 2))
    state = mm.Method(net, mm.Categorical(2), "batch-ensemble", inputs=torch.ones(4, 3), members=4).init()
    state.active[1] = False
    state.population.own["0.bias"][2, 1] = torch.nan
    assert collectable(state).tolist() == [0, 3]
    state.population.shared["0.weight"][0] = torch.inf
    assert collectable(state).tolist() == []


def test_a_member_that_was_not_finite_at_first_enters_the_mean_later():
    path, dynamics = WeightPath(), Swa()
    points = [Population(2, {"w": torch.tensor([[1.0], [value]])}, {}, {}) for value in (torch.nan, 3.0, 5.0)]
    for point, rows in zip(points, ([0], [0, 1], [0, 1]), strict=True):
        dynamics.collect(path, point, torch.tensor(rows))
    assert path.points["mean"].own["w"].flatten().tolist() == [1.0, 4.0]
