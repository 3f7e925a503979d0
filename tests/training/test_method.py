"""`mm.Method` in a hand-written loop: bit-identical to `mm.fit`, saved and restored, refused where it cannot work."""

from pathlib import Path
from typing import Any

import documented_commands as documented
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import murmuration as mm
from murmuration.core.dynamics import TrainTime
from murmuration.core.presets import PRESETS
from murmuration.training.batches import example_order, learning_rate, plan_slices
from murmuration.training.plan import plan_from_json

SEED, EPOCHS = 7, 2
ONE = ("single", "swa", "swag", "snapshot", "csgmcmc")
TUNED = ("forde-tuned",)  # chosen on validation examples, which a loop of one's own has not
SETTINGS = {"epochs": EPOCHS, "batch_size": 128}


def by_hand(method: mm.Method, data: mm.Data, plan: mm.Plan, state=None, until: int | None = None):
    """Train with the batches and learning rates of `mm.fit` in a plain loop."""
    x, y = data.train.prepared, data.train.y
    state = method.init(seed=SEED) if state is None else state
    schedule = plan.schedule or method.recipe.dynamics.schedule() or "cosine"
    slices = plan_slices(len(x), plan)
    for step in range(state.step, until or len(slices) * EPOCHS):
        epoch, index = divmod(step, len(slices))
        rows = example_order(data.train, plan, -1, epoch)[slices[index]]
        method.step(state, x[rows], y[rows], lr=learning_rate(plan, schedule, TrainTime(step, len(slices), EPOCHS)))
    return state


def assert_same(first: mm.Ensemble, second: mm.Ensemble, x: torch.Tensor) -> None:
    a, b = (ensemble.groups[0].population.to_tensors() for ensemble in (first, second))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert torch.equal(first.predict(x, prepared=True).outputs, second.predict(x).outputs)


@pytest.mark.parametrize("engine", ["loop", "stacked", pytest.param("threads", marks=pytest.mark.slow)])
@pytest.mark.parametrize("recipe", [name for name in PRESETS if name not in TUNED])
def test_a_hand_written_loop_is_bit_identical_to_fit(recipe: str, engine: str, moons: mm.Data):
    members = {} if recipe in ONE else {"members": 3}
    plan = mm.Plan(**SETTINGS, **members, engine=engine, lr=3e-3, seed=SEED, batch_order="same")
    fitted = mm.fit("mlp", moons, recipe=recipe, plan=plan, posthoc=None)
    method = mm.Method(
        "mlp", fitted.likelihood, recipe, inputs=moons.train.prepared, engine=engine, **SETTINGS, **members
    )
    state = by_hand(method, moons, plan_from_json(fitted.manifest.plan))
    assert_same(fitted, method.ensemble(state), moons.test.prepared)


@pytest.mark.parametrize("recipe", ["deep-ensemble", "forde", "batch-ensemble", "bayes", "multi-swag", "csgmcmc"])
def test_a_state_is_saved_and_restored_as_safetensors(recipe: str, moons: mm.Data, tmp_path: Path):
    members = {} if recipe in ONE else {"members": 2}
    settings = {**SETTINGS, **members, "engine": "loop", "inputs": moons.train.prepared}
    method, plan = mm.Method("mlp", mm.Categorical(2), recipe, **settings), mm.Plan(**SETTINGS, lr=3e-3, seed=SEED)
    undisturbed = by_hand(method, moons, plan)
    save_file(by_hand(method, moons, plan, until=3).state_dict(), tmp_path / "state.safetensors")
    other = mm.Method("mlp", mm.Categorical(2), recipe, **settings)
    restored = other.load_state(load_file(tmp_path / "state.safetensors"))
    assert restored.step == 3
    continued = by_hand(other, moons, plan, restored)
    first, second = undisturbed.state_dict(), continued.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_torch_optimizer_has_a_state_too(moons: mm.Data):
    settings = {**SETTINGS, "members": 2, "optimizer": torch.optim.Adagrad, "inputs": moons.train.prepared}
    method, plan = mm.Method("mlp", mm.Categorical(2), **settings), mm.Plan(**SETTINGS, lr=3e-3, seed=SEED)
    whole, part = by_hand(method, moons, plan), by_hand(method, moons, plan, until=2)
    again = by_hand(method, moons, plan, method.load_state(part.state_dict()))
    for name, tensor in whole.population.own.items():
        assert torch.equal(tensor, again.population.own[name])


def test_members_may_have_batches_and_sample_weights_of_their_own(moons: mm.Data):
    x, y = moons.train.prepared, moons.train.y
    method = mm.Method("mlp", mm.Categorical(2), inputs=x, members=2, engine="loop")
    state, swapped = method.init(0), method.init(0)
    losses = method.step(state, [x[:32], x[32:64]], [y[:32], y[32:64]], lr=1e-2)
    other = method.step(swapped, [x[32:64], x[32:64]], [y[32:64], y[32:64]], lr=1e-2)
    assert losses[0] != other[0]
    assert losses[1] == other[1]
    weight = torch.ones(32)
    weight[:16] = 0
    halved = method.step(method.init(0), x[:32], y[:32], lr=1e-2, weight=2 * weight)
    expected = method.step(method.init(0), x[16:32], y[16:32], lr=1e-2)
    torch.testing.assert_close(halved, expected)


def test_an_ensemble_is_calibrated_saved_and_loaded(moons: mm.Data, tmp_path: Path):
    net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    method = mm.Method(net, mm.Categorical(2), "bayes", inputs=moons.train.prepared, **SETTINGS)
    ensemble = method.ensemble(by_hand(method, moons, mm.Plan(**SETTINGS, lr=1e-2)))
    ensemble = ensemble.fit_posthoc(moons.val.prepared, moons.val.y)
    ensemble.save(tmp_path / "run")
    loaded = mm.load(tmp_path / "run", net=net)
    x = moons.test.prepared
    assert torch.equal(ensemble.predict(x).probs, loaded.predict(x).probs)
    assert torch.equal(ensemble.predict(x, draws=3).outputs, loaded.predict(x, draws=3).outputs)


def test_a_member_that_diverges_is_left_out(moons: mm.Data):
    x, y = moons.train.prepared.clone(), moons.train.y
    method = mm.Method("mlp", mm.Categorical(2), inputs=x, members=2, engine="loop")
    state, bad = method.init(0), x[:32].clone()
    bad[0] = 3e38  # finite, and its outputs are not
    losses = method.step(state, [x[:32], bad], [y[:32], y[:32]])
    assert losses.isnan().tolist() == [False, True]
    ensemble = method.ensemble(state)
    assert ensemble.members == 1
    assert method.load_state(state.state_dict()).diverged.keys() == {1}
    method.step(state, [bad, x[:32]], [y[:32], y[:32]])
    with pytest.raises(mm.Misuse, match="every member has diverged: lower the learning rate"):
        method.ensemble(state)


NET = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"recipe": "forde"}, "recipe forde needs training inputs: write inputs=x_train"),
        ({"net": "mlp"}, "network 'mlp' needs training inputs: write inputs=x_train"),
        ({"recipe": "swag"}, "dynamics swag depends on the length of training: write epochs="),
        ({"recipe": "mixed"}, "recipe mixed has members that are not networks: train it with mm.fit"),
        ({"recipe": "forde-tuned"}, "chooses its settings on validation examples: train it with mm.fit"),
        ({"patience": 3}, "unknown setting of a method 'patience'"),
        ({"likelihood": "categorical"}, "likelihood='categorical': give an object such as mm.Categorical"),
    ],
)
def test_what_does_not_fit_is_refused(settings, message):
    given = {"net": NET, "likelihood": mm.Categorical(2), **settings}
    with pytest.raises(mm.Misuse, match=message):
        mm.Method(given.pop("net"), given.pop("likelihood"), given.pop("recipe", "deep-ensemble"), **given)


def test_steps_beyond_the_plan_are_refused(moons: mm.Data):
    x, y = moons.train.prepared, moons.train.y
    method = mm.Method(NET, mm.Categorical(2), inputs=x, epochs=1, steps_per_epoch=1)
    state = method.init(0)
    method.step(state, x[:8], y[:8])
    with pytest.raises(mm.Misuse, match=r"step 2 of 1: training was planned for epochs=1"):
        method.step(state, x[:8], y[:8])


@pytest.mark.parametrize("recipe", ["swa", "swag"])
def test_averaged_weights_have_batch_norm_statistics_of_the_inputs_as_those_of_fit(recipe: str, moons: mm.Data):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    plan = mm.Plan(**SETTINGS, engine="loop", lr=3e-2, seed=SEED, batch_order="same", members=1)
    fitted = mm.fit(net, moons, recipe=recipe, plan=plan, posthoc=None)
    method = mm.Method(net, fitted.likelihood, recipe, inputs=moons.train.prepared, engine="loop", **SETTINGS)
    assert_same(fitted, method.ensemble(by_hand(method, moons, plan_from_json(fitted.manifest.plan))), moons.test.x)
    blind = mm.Method(net, mm.Categorical(2), recipe, steps_per_epoch=2, epochs=5, engine="loop", examples=64)
    state = blind.init()
    for _ in range(10):
        blind.step(state, moons.train.prepared[:64], moons.train.y[:64])
    with pytest.raises(mm.Misuse, match=r"batch-norm statistics: write inputs=x_train"):
        blind.ensemble(state)


def test_a_state_of_another_method_is_refused(moons: mm.Data):
    def method(recipe: str = "deep-ensemble", **settings: Any) -> mm.Method:
        inputs = moons.train.prepared
        return mm.Method("mlp:hidden=8", mm.Categorical(2), recipe, inputs=inputs, **{"members": 2, **settings})

    stored = method().init(0).state_dict()
    restored = method().load_state(stored).state_dict()
    assert all(torch.equal(restored[name], tensor) for name, tensor in stored.items())
    for other in (method(members=3), method("batch-ensemble"), method(optimizer="sgd", momentum=0.9)):
        with pytest.raises(mm.Misuse, match="of the state: "):
            other.load_state(stored)
    with pytest.raises(mm.Misuse, match="a state without 'noise'"):
        method().load_state({"weight": torch.zeros(1)})


def test_a_step_refuses_bad_rates_and_different_batches_of_compared_members(moons: mm.Data):
    x, y = moons.train.prepared[:8], moons.train.y[:8]
    method = mm.Method("mlp", mm.Categorical(2), "function-rde", inputs=x, members=2, engine="loop")
    state = method.init()
    for lr in (float("nan"), -1.0, float("inf")):
        with pytest.raises(mm.Misuse, match="need a finite number that is not negative"):
            method.step(state, x, y, lr=lr)
    with pytest.raises(mm.Misuse, match="compares members on the same examples"):
        method.step(state, [x, x], [y, y])
    with pytest.raises(mm.Misuse, match=r"seed= of a method: write init\(seed=0\)"):
        mm.Method("mlp", mm.Categorical(2), inputs=x, seed=1)


def test_the_program_of_the_page_runs(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (program,) = documented.page_programs(documented.ROOT / "docs" / "own-loop.md")
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["again"].members == names["ensemble"].members == 3


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), "labels of type torch.int64 from 0 to 2: expected whole .* 1$"),
        (torch.zeros(4, 2), torch.tensor([0, 1, -1, 0]), "labels of type torch.int64 from -1 to 1"),
        (torch.zeros(4, 2), torch.zeros(4), "labels of type torch.float32 from 0.0 to 0.0: expected whole numbers"),
        (torch.zeros(4, 2), torch.zeros(3, dtype=torch.long), "4 inputs and 3 targets: give one target for each"),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), "0 inputs and 0 targets: give one target for each"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(x, y, message):
    method = mm.Method(NET, mm.Categorical(2), members=2, engine="loop")
    with pytest.raises(mm.Misuse, match=message):
        method.step(method.init(0), x, y)


def test_batches_of_numpy_are_those_of_torch(moons: mm.Data):
    x, y = moons.train.prepared[:32], moons.train.y[:32]
    method = mm.Method(NET, mm.Categorical(2), members=2, engine="loop")
    losses = method.step(method.init(0), x, y)
    assert torch.equal(method.step(method.init(0), x.double().numpy(), y.numpy().astype(np.uint8)), losses)


@pytest.mark.parametrize("net", ["mlp:hidden=8", "mlp:hidden=8,embed=piecewise,bins=4"])
def test_an_ensemble_of_a_network_by_name_is_loaded_without_it(net: str, moons: mm.Data, tmp_path: Path):
    method = mm.Method(net, mm.Categorical(2), inputs=moons.train.prepared, members=2, engine="loop")
    ensemble, x = method.ensemble(method.init(0)), moons.test.prepared
    ensemble.save(tmp_path / "run")
    loaded = mm.load(tmp_path / "run")
    assert torch.equal(loaded.predict(x).outputs, ensemble.predict(x).outputs)
    loaded.save(tmp_path / "copy")
    assert torch.equal(mm.load(tmp_path / "copy").predict(x).outputs, ensemble.predict(x).outputs)
    with pytest.raises(mm.Misuse, match=r"expected .*\(2,\)"):
        loaded.predict(torch.zeros(4, 3))


def sines() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    return x, 100 + 10 * x[:, 0].sin()


@pytest.mark.parametrize("likelihood", [mm.Gaussian(1.0), mm.HeteroscedasticGaussian(), mm.Quantiles()])
def test_a_regression_learns_from_targets_of_one_axis_in_their_units(likelihood: mm.Likelihood):
    x, y = sines()

    def trained(targets: torch.Tensor) -> torch.Tensor:
        net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, likelihood.width))
        method = mm.Method(net, likelihood, inputs=x, targets=y, members=2, engine="loop")
        state = method.init(0)
        for _ in range(200):
            method.step(state, x, targets, lr=2e-2)
        return method.ensemble(state).predict(x).mean

    mean = trained(y)
    assert float((mean[:, 0] - y).square().mean().sqrt()) < 2
    assert torch.equal(mean, trained(y[:, None]))


def test_a_regression_without_units_is_refused():
    with pytest.raises(mm.Misuse, match=r"no mean and scale of the targets: write targets=y_train, or shift="):
        mm.Method(nn.Linear(2, 1), mm.Gaussian(1.0))
    mm.Method(nn.Linear(2, 1), mm.Gaussian(1.0, (0.0,), (1.0,)))


def test_likelihoods_get_the_frequencies_of_targets():
    y = torch.tensor([0] * 9 + [1])
    method = mm.Method(NET, mm.LogitAdjusted(2), targets=y, members=2)
    assert method.likelihood == mm.LogitAdjusted(2).for_targets(y)


FLOATS, LABELS = torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])
NUMBERS = mm.Gaussian(1.0, (0.0,), (1.0,))


@pytest.mark.parametrize(
    ("likelihood", "changes", "message"),
    [
        (NUMBERS, {"y": torch.zeros(4, 2)}, r"targets of shape \(4, 2\): expected numbers \(B, 1\)"),
        (NUMBERS, {"y": torch.tensor([0, 1, torch.nan, 2])}, "y has values that are not finite"),
        (mm.MultiLabel(2), {"y": torch.full((4, 2), 2)}, r"expected zeros and ones \(B, 2\)"),
        (mm.MultiLabel(2), {"y": LABELS}, r"expected zeros and ones \(B, 2\)"),
        (mm.Categorical(2), {"y": LABELS[:, None]}, r"labels of shape \(4, 1\): expected one whole number"),
        (mm.Categorical(2), {"y": None}, "y is a NoneType: .*: give a tensor or an array"),
        (mm.Categorical(2), {"y": LABELS[0]}, "4 inputs and 0 targets"),
        (mm.Categorical(2), {"x": FLOATS.to(torch.uint8)}, "x of type torch.uint8: give float32, or int64 tokens"),
        (mm.Categorical(2), {"x": FLOATS.to(torch.complex64)}, "x has type torch.complex64: give real numbers"),
        (mm.Categorical(2), {"x": FLOATS + torch.nan}, "x has values that are not finite"),
        (mm.Categorical(2), {"x": None}, "x is a NoneType"),
        (mm.Categorical(2), {"x": [FLOATS, FLOATS[:3]]}, r"x has shapes \(4, 2\), \(3, 2\): give equal ones"),
        (mm.Categorical(2), {"weight": -torch.ones(4)}, "weight of shape .* from -1: .* none below 0"),
        (mm.Categorical(2), {"weight": torch.ones(3)}, "give one number for each input"),
        (mm.Categorical(2), {"weight": torch.ones(4) / 0}, "weight has values that are not finite"),
        (mm.Categorical(2), {"weight": "w"}, "weight is a str"),
        (mm.Categorical(2), {"lr": "1e-3"}, "lr='1e-3': need a finite number"),
        (mm.Categorical(2), {"lr": None}, "lr=None: need a finite number"),
        (mm.Categorical(2), {"state": None}, "state is a NoneType: give what init or load_state returned"),
    ],
)
def test_steps_name_what_does_not_fit(likelihood, changes, message):
    net = nn.Linear(2, likelihood.width)
    method = mm.Method(net, likelihood, members=2, engine="loop")
    y = {"regression": torch.zeros(4), "multi-label": torch.zeros(4, 2)}.get(likelihood.task, LABELS)
    given = {"state": method.init(0), "x": FLOATS, "y": y, **changes}
    with pytest.raises(mm.Misuse, match=message):
        method.step(**given)


def test_inputs_other_than_those_of_the_method_are_refused():
    method = mm.Method(NET, mm.Categorical(2), inputs=FLOATS, members=2)
    for x in (torch.zeros(4, 3), torch.zeros(4, 2, dtype=torch.int64)):
        with pytest.raises(mm.Misuse, match=r"expected \(B, 2\) of torch.float32"):
            method.step(method.init(0), x, LABELS)
    with pytest.raises(mm.Misuse, match=r"inputs is a Data: .*: give a tensor or an array"):
        mm.Method(NET, mm.Categorical(2), inputs=mm.open_data("two-moons"))
    for inputs, message in ((torch.zeros(0, 2), "expected training inputs"), (FLOATS + torch.inf, "not finite")):
        with pytest.raises(mm.Misuse, match=message):
            mm.Method(NET, mm.Categorical(2), "forde", inputs=inputs)


@pytest.mark.parametrize("settings", [{"examples": 2.5}, {"examples": True}, {"examples": -3}, {"steps_per_epoch": 0}])
def test_counts_are_whole_numbers(settings):
    with pytest.raises(mm.Misuse, match="need a whole number, at least 1"):
        mm.Method(NET, mm.Categorical(2), **settings)
    with pytest.raises(mm.Misuse, match="seed=-1: need a whole number, at least 0"):
        mm.Method(NET, mm.Categorical(2)).init(-1)


def test_a_restored_state_does_not_share_memory_with_what_was_stored(moons: mm.Data):
    method = mm.Method(NET, mm.Categorical(2), members=2, engine="loop")
    stored = method.init(0).state_dict()
    before = {name: tensor.clone() for name, tensor in stored.items()}
    method.step(method.load_state(stored), moons.train.prepared[:8], moons.train.y[:8])
    assert all(torch.equal(before[name], tensor) for name, tensor in stored.items())


def test_states_of_other_methods_are_refused_by_every_part(moons: mm.Data):
    def method(recipe: str = "deep-ensemble", **settings: Any) -> mm.Method:
        settings = {"members": 2, "epochs": 8, "steps_per_epoch": 1, "engine": "loop", **settings}
        return mm.Method("mlp:hidden=8", mm.Categorical(2), recipe, inputs=moons.train.prepared, **settings)

    x, y = moons.train.prepared[:8], moons.train.y[:8]
    collected = method("multi-swag")
    swag = collected.init(0)
    for _ in range(8):
        collected.step(swag, x, y)
    states = [method(members=3).init(0), method("batch-ensemble").init(0), method(first_member=2).init(0), swag]
    for state in (*states, method(optimizer="sgd", momentum=0.9).init(0)):
        for use in (lambda own, s=state: own.step(s, x, y), lambda own, s=state: own.ensemble(s)):
            with pytest.raises(mm.Misuse, match="the state"):
                use(method())
    doubles = {name: t.double() if t.is_floating_point() else t for name, t in method().init(0).state_dict().items()}
    with pytest.raises(mm.Misuse, match=r"of torch\.float64, expected"):
        method().load_state(doubles)
    assert method().step(method().init(3), x, y).isfinite().all()  # of an equal method


def test_members_with_infinite_weights_are_not_in_the_ensemble(moons: mm.Data):
    x, y = moons.train.prepared[:32], moons.train.y[:32]
    method = mm.Method("mlp:hidden=8", mm.Categorical(2), inputs=x, members=2, optimizer="sgd", engine="loop")
    state = method.init(0)
    method.step(state, [x, 1e30 * x], [y, y], lr=1e10)
    assert state.active.all()  # its loss was finite
    assert method.ensemble(state).predict(x).mean.isfinite().all()


def test_steps_need_no_gradient_mode_and_refuse_inference_mode(moons: mm.Data):
    x, y = moons.train.prepared[:32], moons.train.y[:32]
    method = mm.Method("mlp:hidden=8", mm.Categorical(2), "bayes", inputs=x)
    state, expected = method.init(0), method.init(0)
    with torch.no_grad():
        method.step(state, x, y)
    method.step(expected, x, y)
    pairs = zip(state.state_dict().values(), expected.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    with torch.inference_mode(), pytest.raises(mm.Misuse, match=r"inside torch.inference_mode\(\) has no gradients"):
        method.step(state, x, y)
