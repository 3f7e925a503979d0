"""Repeated predictions: the same bits at every call, by every thread, and after every copy of an ensemble."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import murmuration as mm
from murmuration.core.engines import Predictor, engine, predictor
from murmuration.core.engines.outputs import CHUNK
from murmuration.core.population import populate
from murmuration.core.weights import POINT
from murmuration.data import Data
from murmuration.prediction.ensemble import Ensemble

ROUNDING = {"rtol": 1e-4, "atol": 1e-5}  # of outputs near 1: batched products sum in another order


class Normalised(nn.Module):
    """A dense network that only vmap stacks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).relu())


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project, self.last = nn.Linear(2, 12), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x.unflatten(1, (3, 2))).chunk(3, -1)
        return self.last(nn.functional.scaled_dot_product_attention(q, k, v).mean(1))


class Branch(nn.Module):
    """A network whose operators depend on the values of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) if x.sum() > 0 else self.b(x)


class ThroughNumpy(Branch):
    """The same, unnoticed by torch."""

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) if x.detach().numpy().sum() > 0 else self.b(x)


class Restless(nn.Module):
    """A network with random numbers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + torch.randn_like(x))


class Editing(nn.Module):
    """A network that writes to a tensor of its own making, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        padded = torch.zeros(len(x), 6)
        padded[:, 1:] = x[:, 1:]
        return self.last(padded)


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24, 3),
    )


def recurrent() -> nn.Module:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.last = nn.GRU(2, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.cells(x.unflatten(1, (3, 2)))[0][:, -1])

    return Recurrent()


NETS = {
    each.__name__: each
    for each in (dense, convolutional, recurrent, Normalised, Attention, Branch, ThroughNumpy, Editing)
}
CAPTURED = {"dense", "convolutional", "recurrent", "Normalised", "Attention", "Editing"}


def networks(build: object, count: int = 3) -> list[nn.Module]:
    torch.manual_seed(0)
    return [build().eval() for _ in range(count)]


def predictor_of(nets: list[nn.Module]) -> Predictor:
    return Predictor(nets[0], POINT, populate(nets.__getitem__, len(nets)), engine("stacked", direct=True))


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_every_call_has_the_outputs_of_the_networks_and_the_bits_of_the_first(net: str, rows: int):
    nets = networks(NETS[net])
    run = predictor_of(nets)
    inputs = [torch.randn(rows, 6) + shift for shift in (0, 3, -3)]
    first = [run(x) for x in inputs]
    for x, expected in zip(inputs, first, strict=True):
        with torch.no_grad():
            torch.testing.assert_close(expected, torch.stack([each(x) for each in nets]), **ROUNDING)
        for _ in range(2):
            assert torch.equal(run(x), expected)
    assert bool(run._captured) == (net in CAPTURED and (rows <= predictor.FEW or net == "dense"))


@pytest.mark.parametrize(("members", "threads", "alone"), [(3, 2, True), (4, 2, False), (3, 1, False)])
def test_many_inputs_run_one_member_at_a_time_where_threads_would_share_members_unevenly(
    members: int, threads: int, alone: bool, monkeypatch
):
    nets = networks(NETS["dense"], members)
    run, x = predictor_of(nets), torch.randn(300, 6)
    monkeypatch.setattr(predictor.torch, "get_num_threads", lambda: threads)
    assert next(run._engines(x, 1)) == engine("loop" if alone else "stacked", direct=not alone)
    made = [run(x) for _ in range(3)]
    assert run._captured
    assert torch.equal(made[0], made[2])
    with torch.no_grad():
        plain = torch.stack([each(x) for each in nets])
    torch.testing.assert_close(made[0], plain, **({"rtol": 0, "atol": 0} if alone else ROUNDING))


def test_the_last_pass_of_many_inputs_does_not_stand_for_a_call_on_as_many(monkeypatch):
    """Both are captured by the shape of their inputs, and run by different engines: bits would depend on past calls."""
    run = predictor_of(networks(NETS["dense"], 3))
    monkeypatch.setattr(predictor.torch, "get_num_threads", lambda: 2)
    many = torch.randn(CHUNK + 100, 6)
    first = [run(many) for _ in range(3)]
    assert run._replayed(many, 1) is not None
    assert run._replayed(many[:100], 1) is None
    for _ in range(3):
        assert torch.equal(run(many[:100]), predictor_of(networks(NETS["dense"], 3))(many[:100]))
    assert torch.equal(run(many), first[0])


def test_one_image_is_stacked_and_several_are_not():
    nets = networks(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)))
    run = predictor_of(nets)
    run._refused.add(engine("stacked", direct=True))
    for rows, expected in ((1, "stacked"), (2, "loop")):
        x = torch.randn(rows, 1, 4, 4)
        assert next(run._engines(x, 1)) == engine(expected)
        with torch.no_grad():
            torch.testing.assert_close(run(x), torch.stack([each(x) for each in nets]), **ROUNDING)


@pytest.mark.parametrize("net", sorted(CAPTURED))
def test_a_captured_call_does_not_run_the_network(net: str):
    run, x = predictor_of(networks(NETS[net])), torch.randn(2, 6)
    expected = torch.stack([run(x) for _ in range(2)])[0]

    class Refuse(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            assert func is not nn.functional.linear
            return func(*args, **(kwargs or {}))

    with Refuse():
        assert torch.equal(run(x), expected)


def test_random_numbers_of_a_network_are_those_of_its_members():
    """They come from the member's stream, and are the same at every call, captured or not."""
    run, x = predictor_of(networks(Restless)), torch.randn(2, 6)
    first, *others = (run(x) for _ in range(4))
    assert all(torch.equal(first, each) for each in others)
    assert (first - torch.stack([net.last(x) for net in networks(Restless)])).abs().amax((1, 2)).min() > 1e-3


WRITES = {
    "in place": lambda tensor: tensor.mul_(2),
    "through .data": lambda tensor: tensor.data.mul_(2),
    "through numpy": lambda tensor: np.multiply(tensor.numpy(), 2, out=tensor.numpy()),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_change_of_the_weights_is_seen(write: str):
    """A captured call holds views of the stored weights, and constants that are computed from them."""
    nets = [nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)) for _ in range(2)]
    run, x = predictor_of(nets), torch.randn(2, 6)
    before = [run(x) for _ in range(3)][-1]
    assert run._captured
    for tensor in run.population.own.values():
        WRITES[write](tensor)
    torch.testing.assert_close(run(x), 2 * before)
    torch.testing.assert_close(run(x), 2 * before)


@pytest.mark.parametrize("name", ["bayes", "mc-dropout"])
def test_draws_of_weights_that_were_changed_unnoticed_by_torch_are_made_again(ensembles, digits: Data, name: str):
    ensemble, x = copy.deepcopy(ensembles[name]), digits.test.x[:8]
    for _ in range(3):
        ensemble.predict(x, draws=3)
    assert ensemble._predictors[0]._captured
    for tensor in ensemble.groups[0].population.own.values():
        tensor.data.mul_(1.5)
    assert torch.equal(ensemble.predict(x, draws=3).outputs, copy.deepcopy(ensemble).predict(x, draws=3).outputs)


def test_constants_of_captured_calls_are_limited(ensembles: dict[str, Ensemble], digits: Data, monkeypatch):
    ensemble = replace(ensembles["bayes"])
    x, run = digits.test.x[:1], ensemble._predictors[0]
    kept = [ensemble.predict(x, draws=4).outputs for _ in range(3)][-1]
    held = sum(each.bytes for each in run._captured.values())
    stored = sum(each.nbytes for each in run.population.to_tensors().values())
    assert stored < held < 8 * stored  # four draws of the weights
    monkeypatch.setattr(predictor, "CAPTURED_BYTES", held - 1)
    other = replace(ensemble)
    assert torch.equal([other.predict(x, draws=4).outputs for _ in range(3)][-1], kept)
    assert not other._predictors[0]._captured


def test_shapes_beyond_a_number_are_not_captured(monkeypatch):
    monkeypatch.setattr(predictor, "CAPTURES", 2)
    run = predictor_of(networks(dense))
    for rows in (1, 2, 3, 1, 2, 3):
        run(torch.randn(rows, 6))
    assert len(run._captured) == 2


def test_stacked_outputs_that_are_wrong_are_refused(monkeypatch):
    """Members then run one by one."""
    nets = networks(dense)
    run, x = predictor_of(nets), torch.randn(2, 6)
    right, plain = run(x), predictor.member_outputs

    def wrong(team, *args, **kwargs):
        return plain(team, *args, **kwargs) + team.engine.stacked

    monkeypatch.setattr(predictor, "member_outputs", wrong)
    torch.testing.assert_close(predictor_of(nets)(x), right, **ROUNDING)


RECIPES = {"deep-ensemble": 3, "batch-ensemble": 3, "bayes": 1, "mc-dropout": 1}


@pytest.fixture(scope="module")
def ensembles(digits: Data) -> dict[str, Ensemble]:
    few = replace(digits, train=digits.train[:64])
    plan = mm.Plan(epochs=1, batch_size=32, engine="loop", posthoc=None)
    made = {name: mm.fit("mlp", few, recipe=name, plan=replace(plan, members=m)) for name, m in RECIPES.items()}
    return {**made, "from_models": Ensemble.from_models([made["deep-ensemble"].member(i) for i in range(3)])}


@pytest.mark.parametrize("name", [*RECIPES, "from_models"])
def test_threads_have_equal_bits(ensembles: dict[str, Ensemble], digits: Data, name: str):
    """Eight threads of 25 calls each on a new predictor, while calls are being captured."""
    ensemble, x = ensembles[name], digits.test.prepared[:8]
    expected = [replace(ensemble).predict(x[i : i + 1], prepared=True).outputs for i in range(len(x))]
    shared = replace(ensemble)

    def calls(i: int) -> list[Tensor]:
        return [shared.predict(x[i : i + 1], prepared=True).outputs for _ in range(25)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(calls, range(8)))
    assert all(torch.equal(each, expected[i]) for i, outputs in enumerate(found) for each in outputs)
    assert shared._predictors[0]._captured


def test_copies_have_predictors_of_their_own(ensembles: dict[str, Ensemble], digits: Data):
    ensemble, x = ensembles["deep-ensemble"], digits.test.x[:1]
    expected = [ensemble.predict(x).outputs for _ in range(3)][-1]
    copies = [replace(ensemble), copy.copy(ensemble), copy.deepcopy(ensemble), pickle.loads(pickle.dumps(ensemble))]
    for each in (*copies, ensemble.to("cpu")):
        assert "_predictors" not in vars(each)
        assert torch.equal(each.predict(x).outputs, expected)
        assert each._predictors is not ensemble._predictors


def test_a_replaced_ensemble_predicts_with_its_own_members(ensembles: dict[str, Ensemble], digits: Data):
    ensemble, x = ensembles["deep-ensemble"], digits.test.x[:1]
    before = [ensemble.predict(x).outputs for _ in range(3)][-1]
    fewer = replace(ensemble.groups[0], population=ensemble.groups[0].population.group(slice(1, 3)))
    after = [replace(ensemble, groups=(fewer,)).predict(x).outputs for _ in range(3)][-1]
    torch.testing.assert_close(after, before[1:], **ROUNDING)


def test_inputs_of_another_memory_layout_have_the_same_outputs(ensembles: dict[str, Ensemble], digits: Data):
    ensemble, x = ensembles["deep-ensemble"], digits.test.prepared[:4]
    expected = [ensemble.predict(x, prepared=True).outputs for _ in range(3)][-1]
    turned = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    for _ in range(3):
        torch.testing.assert_close(ensemble.predict(turned, prepared=True).outputs, expected, **ROUNDING)


def test_outputs_do_not_depend_on_the_address_of_the_inputs(ensembles: dict[str, Ensemble], digits: Data):
    """A product of 3 rows by one matrix does, in torch."""
    for rows in (1, 3, 20):
        x = digits.test.prepared[:rows]
        expected = ensembles["deep-ensemble"].predict(x, prepared=True).outputs
        for offset in range(1, 16):
            moved = torch.empty(x.numel() + 16)[offset : offset + x.numel()].view(x.shape).copy_(x)
            assert torch.equal(ensembles["deep-ensemble"].predict(moved, prepared=True).outputs, expected)


def test_calibrated_predictions_keep_names_keys_and_rules(digits: Data):
    ensemble = mm.fit("mlp", replace(digits, train=digits.train[:64]), members=2, epochs=1)
    x = np.asarray(digits.test.x[:3])
    for _ in range(3):
        made = ensemble.predict(x)
        assert made.posthoc is ensemble.posthoc
        assert made.names == ensemble.names
        plain = ensemble.predict(x, calibrated=False)
        torch.testing.assert_close(made.logits * ensemble.posthoc.calibrator.temperature, plain.logits, **ROUNDING)
