"""MOPED: Gaussian weights that begin at a trained network; initial values, KL, training and refusals."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.engines import assemble, engine, member_outputs
from murmuration.core.recipe import Recipe, make_recipe
from murmuration.data import Data, open_data
from murmuration.system.streams import Noise
from murmuration.training import Progress, begin
from murmuration.training.plan import Plan
from murmuration.training.resolve import make_spec

PLAN = Plan(members=2, epochs=2, batch_size=32, engine="loop", lr=1e-2)


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    return open_data((digits.train.prepared[:160], digits.train.y[:160]))


@pytest.fixture(scope="module")
def run(little: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three trained networks."""
    path = tmp_path_factory.mktemp("runs") / "trained"
    mm.fit("mlp", little, plan=replace(PLAN, members=3), out=path, posthoc=None)
    return path


def moped(run: object, more: str = "", sharing: str = "own") -> Recipe:
    return make_recipe(Recipe("moped"), sharing=sharing, weights=f"moped:init_from={run}{more}")


def begun(net, little: Data, answers: Recipe) -> tuple[Progress, Tensor]:
    """How a spec begins, and what its members say at their means."""
    spec, _ = make_spec(net, little, answers, PLAN)
    progress, method = begin(spec), spec.method.step_config
    with assemble(engine("loop"), spec.member(0)) as team:
        outputs = member_outputs(team, method.weights.deterministic(), progress.state.population, little.test.prepared)
    return progress, outputs


@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_means_and_centres_are_the_trained_weights_and_spreads_parts_of_them(delta: float, run: Path, little: Data):
    progress, _ = begun("mlp", little, moped(run, f",init_std_ratio={delta}"))
    population, nets = progress.state.population, [mm.load(run).member(i) for i in range(2)]
    for name, parameter in nets[0].named_parameters():
        trained = torch.stack([parameter, nets[1].get_parameter(name)]).detach()
        assert torch.equal(population.own[name], trained)
        assert torch.equal(population.buffers[f"{name}:centre"], trained)
        rho = torch.log(torch.expm1(delta * trained.abs()) + 1e-20)
        torch.testing.assert_close(population.own[f"{name}:std_param"], rho, rtol=1e-6, atol=1e-6)


def test_the_first_cost_by_hand(run: Path, little: Data):
    """KL(N(w, s^2) || N(w, 1)) = -log s + s^2 / 2 - 1/2 of every weight, with s = 0.1 abs(w)."""
    spec, _ = make_spec("mlp", little, moped(run), PLAN)
    population, method = begin(spec).state.population, spec.method.step_config
    cost = method.weights.complexity(population.own, {}, population.buffers, [Noise(0, 0), Noise(0, 1)])
    assert cost is not None
    for i in range(2):
        weights = torch.cat([p.detach().double().flatten() for p in mm.load(run).member(i).parameters()])
        std = 0.1 * weights.abs() + 1e-20
        expected = (-std.log() + std.square() / 2 - 0.5).sum().item()
        assert cost[i].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("sharing", ["own", "backbone"])
def test_the_means_say_what_the_trained_networks_say(sharing: str, run: Path, little: Data):
    """Bit for bit; a body that is shared is the first network's."""
    _, outputs = begun("mlp", little, moped(run, sharing=sharing))
    trained = mm.load(run)
    first = trained.member(0)
    with torch.no_grad():
        assert torch.equal(outputs[0], first(little.test.prepared))
        second = trained.member(1)
        if sharing == "backbone":
            second.get_submodule("body").load_state_dict(first.get_submodule("body").state_dict())
        assert torch.equal(outputs[1], second(little.test.prepared))


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(3), nn.Flatten())
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


@pytest.fixture
def net(little: Data) -> nn.Module:
    """A network with statistics of its own."""
    torch.manual_seed(5)
    made = Normalised()
    with torch.no_grad():
        made.train()(3 * little.train.prepared[:50] + 1)
    return made


def test_a_net_of_one_s_own_is_taken_as_it_is(net: nn.Module, little: Data):
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    progress, outputs = begun(net, little, moped("yes"))
    with torch.no_grad():
        expected = net.eval()(little.test.prepared)
    for each in outputs:
        torch.testing.assert_close(each, expected)  # images lie otherwise in memory, and sums round otherwise
    assert "body.1.weight:centre" not in progress.state.population.buffers  # a number, not a distribution
    ensemble = mm.fit(net, little, recipe=moped("yes"), plan=PLAN, posthoc=None)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert ensemble.predict(little.test.x[:3], draws=2).outputs.isfinite().all()


def test_a_trained_start_is_kept_and_made_better_use_of(run: Path, little: Data):
    """Two epochs from the networks of a run: still as good as they were, and far from two epochs from scratch."""
    trained = mm.score(mm.load(run).predict(little.train.x), little.train.y)["nll"]
    ensemble = mm.fit("mlp", little, recipe=moped(run), plan=PLAN, posthoc=None)
    assert mm.score(ensemble.predict(little.train.x), little.train.y)["nll"] < trained
    assert len(ensemble.predict(little.test.x[:2]).outputs) == 60


def test_saving_and_stopping_keep_every_bit(run: Path, little: Data, tmp_path: Path):
    """The trained run may be gone by then: what it gave is in the checkpoint."""
    answers = moped(run)
    whole = mm.fit("mlp", little, recipe=answers, plan=PLAN, out=tmp_path / "whole", posthoc=None)
    expected = whole.groups[0].population.to_tensors()
    assert any(name.endswith(":centre") for name in expected)
    found = mm.load(tmp_path / "whole")
    assert torch.equal(whole.predict(little.test.x).outputs, found.predict(little.test.x).outputs)

    def stop(text, done, total, record):
        if done == 1:
            raise InterruptedError

    nowhere = tmp_path / "moved"
    run.rename(nowhere)
    moved = replace(answers, weights=replace(answers.weights, init_from=str(nowhere)))
    for name, seconds in (("early", 1e9), ("late", 0)):
        desk = {"out": tmp_path / name, "progress": stop, "checkpoint_seconds": seconds}
        with pytest.raises(InterruptedError):
            mm.fit("mlp", little, recipe=moved, plan=PLAN, **desk, posthoc=None)
    nowhere.rename(run)
    for name in ("early", "late"):
        resumed = mm.resume(tmp_path / name, data=little).groups[0].population.to_tensors()
        assert all(torch.equal(tensor, resumed[key]) for key, tensor in expected.items())


def test_a_start_that_was_never_written_is_not_made_up(run: Path, little: Data, tmp_path: Path):
    def stop(text, done, total, record):
        if done == 1:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        mm.fit("mlp", little, recipe=moped(run), plan=PLAN, out=tmp_path / "run", progress=stop, posthoc=None)
    (tmp_path / "run" / "checkpoints" / "latest.json").unlink()
    with pytest.raises(
        mm.Failure, match=r"latest\.json is missing, and the first weights with it: remove .* and begin"
    ):
        mm.resume(tmp_path / "run", data=little)


@pytest.mark.parametrize(
    ("given", "init_from", "message"),
    [
        (
            "mlp",
            "yes",
            "init_from=yes needs a trained net: give an nn.Module, pretrained=True, or a run's directory as moped:",
        ),
        ("mlp", "runs/nowhere", "no run at runs/nowhere: the directory does not exist"),
        ("small-cnn", "RUN", "trained is of another architecture: "),
        ("other", "RUN", "trained holds members of another architecture: "),
    ],
)
def test_every_wrong_request_is_one_line(given: str, init_from: str, message: str, run: Path, little: Data):
    made = (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10))) if given == "other" else given
    with pytest.raises(mm.Misuse) as caught:
        mm.fit(made, little, recipe=moped(str(run) if init_from == "RUN" else init_from), plan=PLAN, posthoc=None)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_of_zero_begin_with_no_spread_and_a_finite_cost(little: Data):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    nn.init.zeros_(net[1].bias)
    spec, _ = make_spec(net, little, moped("yes"), PLAN)
    population = begin(spec).state.population
    own = {name: tensor.requires_grad_() for name, tensor in population.own.items()}
    cost = spec.method.step_config.weights.complexity(own, {}, population.buffers, [Noise(0, 0), Noise(0, 1)])
    assert cost is not None
    slope = torch.autograd.grad(cost.sum(), own["1.bias:std_param"])[0]
    assert cost.isfinite().all()
    torch.testing.assert_close(slope, torch.full_like(slope, -1.0), rtol=1e-5, atol=0)  # they can widen
    assert (nn.functional.softplus(own["1.bias:std_param"]) < 1e-19).all()
    assert math.log(1e-20) == pytest.approx(own["1.bias:std_param"].mean().item(), rel=1e-4)


def test_the_answer_reads_well():
    assert str(make_recipe("bayes", weights="moped:init_from=runs/x")).startswith(
        "bayes: sharing own, weights moped:init_from=runs/x"
    )
