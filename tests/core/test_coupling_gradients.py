"""When members meet, how strongly, who is left out, and what a meeting must not change."""

import math

import pytest
import torch
from small_runs import (
    BATCH,
    CLASSES,
    ENGINES,
    EVERY,
    INPUTS,
    MEMBERS,
    batch,
    build,
    coupling_of,
    data,
    method,
    moved,
    networks,
    start,
    with_updater,
)
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.coupling.estimators import gradient_mixing
from murmuration.core.dynamics.optimizer import make_optimizer
from murmuration.core.engines import Engine, assemble
from murmuration.core.gradients import local_pass
from murmuration.core.recipe import make_recipe
from murmuration.core.state import Batch, Probe
from murmuration.core.step import step
from murmuration.core.weights import Structure
from murmuration.data import Data
from murmuration.system.streams import stream_seed
from murmuration.training.plan import Plan

SPACES = ["weights", "weights:estimator=svgd", "outputs", "outputs:prior=weights:1", "features", "input-gradients"]
SPACE = pytest.mark.parametrize("text", SPACES)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def push(text: str, at: int = 0, how: Engine = ENGINES["loop"]) -> dict[str, Tensor]:
    """What the repulsion adds to a step of the loss alone."""
    with_force, alone = start(), start()
    with_force.step = alone.step = at
    found, plain = moved(with_force, how, method(coupling_of(text)), batch()), moved(alone, how, method(None), batch())
    return {name: found[name] - plain[name] for name in found}


@pytest.mark.parametrize("text", [text for text in SPACES if "svgd" not in text])  # svgd needs every step
def test_members_meet_only_at_every_kth_step_and_then_k_times_as_strongly(text: str):
    sign = "," if ":" in text else ":"
    rare = f"{text}{sign}every=3"
    plain = moved(start(), ENGINES["loop"], method(None), batch())
    for at in (1, 2, 4):
        state = start()
        state.step = at
        probe = Probe(measure=True)
        assert same(moved(state, ENGINES["loop"], method(coupling_of(rare)), batch(), probe=probe), plain)
        assert probe.stats == {}
    if "prior" in text:  # draws anew at each step
        return
    usual, thrice = push(text, at=3), push(rare, at=3)
    for name, force in usual.items():
        torch.testing.assert_close(thrice[name], 3 * force, rtol=0, atol=1e-13)


def test_the_weight_follows_its_schedule():
    """Epochs of one step: the second has a quarter of the weight."""
    half = "input-gradients:schedule=steps:1=0.25"
    usual, later = push("input-gradients", at=1), push(half, at=1)
    for name, force in usual.items():
        torch.testing.assert_close(later[name], 0.25 * force, rtol=0, atol=1e-13)
    assert same(push(half, at=0), push("input-gradients", at=0))


@EVERY
def test_annealing_meets_the_loss_alone_also_between_meetings(how: Engine):
    plain, force = moved(start(), how, method(None), batch()), push("outputs", how=how)
    found = moved(start(), how, method(coupling_of("outputs:loss_scale=linear:4")), batch())
    for name, gradient in plain.items():
        torch.testing.assert_close(found[name], 0.25 * gradient + force[name], rtol=0, atol=1e-13)
    state = start()
    state.step = 1
    found = moved(state, how, method(coupling_of("outputs:loss_scale=linear:4,every=2")), batch())
    for name, gradient in plain.items():
        torch.testing.assert_close(found[name], 0.5 * gradient, rtol=1e-13, atol=0)


@EVERY
def test_svgd_mixes_loss_gradients_by_the_kernel(how: Engine):
    """(1/M) (sum_j K_ij grad_j + weight G_i): with weight 0 only the first part is left."""
    state = start()
    flat = torch.cat([state.population.own[name].flatten(1) for name in sorted(state.population.own)], dim=1)
    found = moved(state, how, method(coupling_of("weights:estimator=svgd,weight=0")), batch())
    plain = moved(start(), how, method(None), batch())
    distances = torch.cdist(flat, flat).square()
    kernel = (-distances * math.log(MEMBERS + 1) / distances.flatten().quantile(0.5)).exp()
    torch.testing.assert_close(gradient_mixing(flat.unsqueeze(1), "rde"), kernel / MEMBERS, rtol=0, atol=1e-12)
    for name, gradient in plain.items():
        mixed = torch.einsum("ij,j...->i...", kernel / MEMBERS, gradient)
        torch.testing.assert_close(found[name], mixed, rtol=0, atol=1e-12)


def moved_without_the_third(text: str) -> dict[str, Tensor]:
    """The gradients of members 0, 1 and 3 if there is no other."""
    three = start()
    three.population = three.population.take(torch.tensor([0, 1, 3]))
    three.active = three.active[:3]
    three.opt_state = {kind: {name: t[:3] for name, t in named.items()} for kind, named in three.opt_state.items()}
    x, y = data()
    given = Batch(lambda group: tuple(part.expand(3, *part.shape)[group] for part in (x, y)), 1.0)
    return moved(three, ENGINES["loop"], method(coupling_of(text, members=3)), given)


@SPACE
@EVERY
def test_a_member_that_shows_nonsense_is_neither_seen_nor_pushed(how: Engine, text: str):
    state = start()
    state.population.own["head.weight"][2] = math.inf
    found = moved(state, how, method(coupling_of(text)), batch())
    assert state.active.tolist() == [True, True, False, True]
    assert not any(tensor[2].nan_to_num(0.0).any() for tensor in found.values())
    for name, gradient in moved_without_the_third(text).items():
        if "prior" in text:  # the last member draws another stranger as the third of three
            assert found[name][[0, 1, 3]].isfinite().all()
        else:
            torch.testing.assert_close(found[name][[0, 1, 3]], gradient, rtol=0, atol=1e-12)


@EVERY
def test_svgd_mixes_weight_decay_as_it_mixes_losses(how: Engine):
    """Coupled decay is the gradient of a prior: with it, a step is that of losses with the penalty written in."""
    state, decay = start(), 0.3
    matrix = gradient_mixing(torch.cat([t.flatten(1) for t in state.population.own.values()], 1).unsqueeze(1), "rde")
    optimizer = make_optimizer("sgd", momentum=0.0, weight_decay=decay, decay="coupled")
    decaying = with_updater(method(coupling_of("weights:estimator=svgd,weight=0")), optimizer=optimizer)
    before = state.population.clone().own
    plain = moved(start(), how, method(coupling_of("weights:estimator=svgd,weight=0")), batch())
    found = moved(state, how, decaying, batch())
    for name, gradient in found.items():
        expected = plain[name] + decay * torch.tensordot(matrix, before[name], dims=1)
        torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("text", [None, "features"])
@EVERY
def test_what_all_share_moves_on_without_a_member_that_never_was_sound(how: Engine, text: str | None):
    """The step that finds it moves nothing shared; from then on its part of the shared gradient is zero."""
    state, chosen = start(shared=True), method(None if text is None else coupling_of(text))
    state.population.own["body.0.weight"][2] = math.nan
    moved(state, how, chosen, batch())
    assert state.active.tolist() == [True, True, False, True]
    before, rest = state.population.clone(), networks(state.population)
    moved(state, how, chosen, batch())
    assert all(tensor.isfinite().all() for tensor in state.population.shared.values())
    if text is None:
        x, y = data()
        losses = [nn.functional.cross_entropy(rest[i](x), y) for i in (0, 1, 3)]
        slopes = [torch.autograd.grad(loss, rest[i].head.weight)[0] for i, loss in zip((0, 1, 3), losses, strict=True)]
        expected = before.shared["head.weight"] - sum(slopes) / MEMBERS
        torch.testing.assert_close(state.population.shared["head.weight"], expected, rtol=0, atol=1e-12)
    assert not torch.equal(state.population.shared["head.weight"], before.shared["head.weight"])


@pytest.mark.parametrize("text", ["weights", "weights:estimator=svgd"])
@EVERY
def test_weights_out_of_all_proportion_are_nonsense(how: Engine, text: str):
    """Though the loss is a number yet: the member goes on alone, and takes nobody's distances into its rounding."""
    state, alone = start(), start()
    for each in (state, alone):
        each.population.own["head.weight"][2] = 1e50
        each.population.own["head.weight"][2, 0] *= -1
    found, plain = moved(state, how, method(coupling_of(text)), batch()), moved(alone, how, method(None), batch())
    assert bool(state.active.all())
    for name, gradient in moved_without_the_third(text).items():
        torch.testing.assert_close(found[name][[0, 1, 3]], gradient, rtol=0, atol=1e-12)
        torch.testing.assert_close(found[name][2], plain[name][2], rtol=1e-12, atol=0)


@EVERY
def test_a_gradient_that_is_nonsense_is_not_mixed_into_others(how: Engine):
    """Sound weights on an example that is not a number: under SVGD the others take no part of that gradient."""
    x, y = (part.expand(MEMBERS, *part.shape).clone() for part in data())
    x[2, 0, 0] = math.nan
    state, text = start(), "weights:estimator=svgd,weight=0"
    given = Batch(lambda group: (x[group], y[group]), 1.0)
    found = moved(state, how, method(coupling_of(text)), given)
    assert state.active.tolist() == [True, True, False, True]
    for name, gradient in moved_without_the_third(text).items():
        torch.testing.assert_close(found[name][[0, 1, 3]], gradient, rtol=0, atol=1e-12)
        assert torch.equal(found[name][2], torch.zeros_like(found[name][2]))


@SPACE
def test_nonsense_of_everybody_is_reported_and_moves_nobody(text: str):
    state = start()
    state.population.own["head.weight"][:] = math.nan
    found = moved(state, ENGINES["stacked"], method(coupling_of(text)), batch(), probe=Probe(measure=True))
    assert len(state.diverged) == MEMBERS
    assert all(bool((tensor.nan_to_num(0.0) == 0).all()) for tensor in found.values())


def normalised() -> nn.Module:
    layers = [nn.Linear(INPUTS, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.Linear(4, CLASSES)).double()


@pytest.mark.parametrize("name", ["loop", "stacked", "threads", "threads-stacked"])  # a direct engine refuses the net
@pytest.mark.parametrize(
    "text", ["input-gradients:batch_fraction=0.5", "input-gradients", "outputs:prior=weights:1", "weights"]
)
def test_running_statistics_are_those_of_a_step_without_repulsion(name: str, text: str):
    how = ENGINES[name]
    plain, repelled = start(make=normalised), start(make=normalised)
    before = plain.population.clone()
    moved(plain, how, method(None), batch(), normalised)
    moved(repelled, how, method(coupling_of(text)), batch(), normalised)
    for name, tensor in plain.population.buffers.items():
        assert torch.equal(repelled.population.buffers[name], tensor), name
        assert not torch.equal(before.buffers[name], tensor), name


def test_a_share_of_the_batch_runs_apart_and_shows_what_it_would_have_shown(monkeypatch):
    """As a network that runs over the share once more, which one that mixes examples must."""
    group, found = slice(1, 3), []
    chosen = method(coupling_of("input-gradients:batch_fraction=0.5"))
    for mixes in (False, True):
        monkeypatch.setattr(Structure, "mixes_examples", mixes)
        with assemble(ENGINES["loop"], build()) as team:
            found.append(local_pass(team, chosen, start(), group, batch()))
    apart, again = found
    assert apart.losses.grad_fn is not None
    torch.testing.assert_close(apart.losses.detach(), again.losses, rtol=1e-12, atol=1e-15)
    assert apart.features is not None
    torch.testing.assert_close(apart.features, again.features, rtol=1e-12, atol=1e-15)


def test_on_a_share_of_the_batch_members_wait_without_the_graph_of_their_losses(monkeypatch):
    """Where a network mixes examples, loss gradients are there before the meeting; what was shown has its own graph."""
    monkeypatch.setattr(Structure, "mixes_examples", True)
    state, group = start(), slice(1, 3)
    chosen = method(coupling_of("input-gradients:batch_fraction=0.5,loss_scale=linear:4"))
    with assemble(ENGINES["loop"], build()) as team:
        state.step = 1
        waiting = local_pass(team, chosen, state, group, batch())
        plain = local_pass(team, method(None), state, group, batch())
    assert waiting.losses.grad_fn is None
    assert torch.equal(waiting.losses, plain.losses)
    assert waiting.features is not None
    assert waiting.features.grad_fn is not None
    assert waiting.gradients is not None
    half = 0.5 * plain.losses.sum()  # the second of four steps of annealing
    wanted = torch.autograd.grad(half, list(plain.own.values()))
    torch.testing.assert_close(waiting.gradients[0], list(wanted), rtol=1e-12, atol=1e-15)


def test_a_batch_twice_as_long_is_pushed_half_as_hard():
    """Every example twice: r and the mean loss are the same, and 1/B is half."""

    def pushes(times: int) -> dict[str, Tensor]:
        x, y = (part.repeat(times, *[1] * (part.dim() - 1)) for part in data())
        settings = coupling_of("input-gradients").repulsion
        coupling = settings.prepare(x, members=MEMBERS, batch=times * BATCH, epochs=1)
        given = Batch(lambda group: tuple(part.expand(MEMBERS, *part.shape)[group] for part in (x, y)), 1.0)
        found = moved(start(), ENGINES["stacked"], method(coupling), given)
        plain = moved(start(), ENGINES["stacked"], method(None), given)
        return {"loss": plain["head.weight"], **{name: found[name] - plain[name] for name in found}}

    once, twice = pushes(1), pushes(2)
    torch.testing.assert_close(twice.pop("loss"), once["loss"], rtol=0, atol=1e-13)
    for name, force in twice.items():
        torch.testing.assert_close(force, 0.5 * once[name], rtol=0, atol=1e-13)


@EVERY
def test_strangers_come_from_each_member_s_own_stream(how: Engine):
    """A prior of functions: the same draws on every engine, others at the next step."""
    text = "outputs:prior=weights:1,weight=1"
    reference = moved(start(), ENGINES["loop"], method(coupling_of(text)), batch())
    found = moved(start(), how, method(coupling_of(text)), batch())
    for name, gradient in reference.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-11)
    later = start()
    later.step = 1
    other = moved(later, how, method(coupling_of(text)), batch())
    assert (other["head.weight"] - found["head.weight"]).abs().max() > 1e-3


def test_what_a_meeting_was_like():
    probe = Probe(measure=True)
    found = moved(start(), ENGINES["loop"], method(coupling_of("input-gradients")), batch(), probe=probe)
    plain = moved(start(), ENGINES["loop"], method(None), batch())
    lengths = [
        math.sqrt(sum(float(t.square().sum()) for t in each))
        for each in ([found[n] - plain[n] for n in plain], plain.values())
    ]
    assert probe.stats["push_to_loss"] == pytest.approx(lengths[0] / lengths[1], rel=1e-9)
    x, y = data()
    units = []
    for net in networks(start().population):
        inputs = x.clone().requires_grad_()
        g = torch.autograd.grad(net(inputs).gather(1, y[:, None]).sum(), inputs)[0]
        units.append(g / g.norm(dim=1, keepdim=True))
    pairs = [float((units[i] * units[j]).sum(1).mean()) for i in range(MEMBERS) for j in range(i)]
    assert probe.stats["cosine"] == pytest.approx(sum(pairs) / len(pairs), abs=1e-6)


def test_stopped_members_are_seen_and_stand_still():
    stopped, all_move = start(), start()
    stopped.active[1] = False
    with assemble(ENGINES["loop"], build()) as team:
        losses = step(team, method(coupling_of("outputs")), stopped, batch())
    assert losses.isnan().tolist() == [False, True, False, False]
    reference = moved(all_move, ENGINES["loop"], method(coupling_of("outputs")), batch())
    before = start().population.own
    for name, gradient in reference.items():
        expected = before[name] - gradient * torch.tensor([1.0, 0.0, 1.0, 1.0]).view(-1, *[1] * (gradient.dim() - 1))
        torch.testing.assert_close(stopped.population.own[name], expected, rtol=0, atol=1e-15)


def test_every_epoch_measures_its_first_meeting(digits: Data):
    """Nineteen steps an epoch and a meeting at each fourth: epochs begin between meetings."""
    recipe = make_recipe("forde-identity", coupling="input-gradients:every=4")
    plan = Plan(members=2, epochs=3, batch_size=64, engine="loop")
    history = mm.fit("mlp", digits, recipe=recipe, plan=plan, posthoc=None).history
    told = [record["coupling"] for record in history]
    assert all(set(felt) == {"mean_kernel", "cosine", "push_to_loss"} for felt in told)
    assert len({felt["push_to_loss"] for felt in told}) == 3


def test_a_network_without_parts_is_refused_before_anything_is_written(digits: Data, tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    for engine in ("loop", "stacked"):
        with pytest.raises(mm.Misuse, match="Sequential has no parts body and head"):
            mm.fit(
                net,
                digits,
                recipe="feature-rde",
                members=2,
                epochs=1,
                plan=Plan(engine=engine),
                out=tmp_path / "run",
                posthoc=None,
            )
        assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_member_that_never_was_sound_does_not_disturb_the_others(digits: Data):
    """Member 1 begins with weights that overflow, and stays so to the end."""
    for recipe in ("weight-rde", "svgd", "function-rde", "forde-identity"):

        def build() -> nn.Module:
            net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
            if torch.initial_seed() == stream_seed(0, "initialisation", 1):
                nn.init.constant_(net[1].weight, 3e38)
            return net

        plan = Plan(engine="loop", batch_size=64, lr=0.01)
        ensemble = mm.fit(build, digits, recipe=recipe, members=3, epochs=2, plan=plan, posthoc=None)
        assert ensemble.history[-1]["active"].count(False) == 1, recipe
        assert ensemble.members == 2, recipe
        assert ensemble.history[-1]["ensemble"]["val_nll"] < 0.9, recipe
