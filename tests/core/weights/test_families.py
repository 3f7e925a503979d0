"""Weights under masks, fixed or redrawn, against explicit networks and the moments of dropout."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.engines import engine
from murmuration.core.population import populate
from murmuration.core.recipe import Recipe, make_recipe
from murmuration.core.sharing import SHARING
from murmuration.core.weights import WEIGHTS, Masks, trace_kernels
from murmuration.data import Data, open_data
from murmuration.prediction.ensemble import Ensemble, MemberGroup
from murmuration.runs.manifest import Manifest
from murmuration.system.errors import Misuse
from murmuration.system.option_text import parse
from murmuration.system.streams import generator
from murmuration.training.plan import Plan

PLAN = Plan(members=3, epochs=1, batch_size=32, engine="loop", lr=1e-2)
ENGINES = ["loop", "stacked", "threads", "threads-stacked"]


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    return open_data((digits.train.prepared[:200], digits.train.y[:200]))


class WithDropout(nn.Module):
    def __init__(self, drops: bool = True) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 12), nn.Linear(12, 10)
        self.drop = nn.Dropout(0.5) if drops else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(torch.relu(self.first(x.flatten(1)))))


class Pictures(nn.Module):
    """Two convolutions, batch normalisation, and no dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3, groups=2)
        self.norm, self.head = nn.BatchNorm2d(4), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.second(torch.relu(self.norm(self.first(x))))).mean((2, 3)))


def drawn(net: nn.Module, text: str, x: Tensor, *, members: int = 1, how: str = "loop") -> Ensemble:
    """An ensemble of untrained networks with such weights."""
    torch.manual_seed(0)
    population = populate(lambda i: net, members)
    manifest = Manifest(kernels=trace_kernels(net, x[:2]).to_json())
    return Ensemble(
        (MemberGroup(net, population),), None, engine(how), make_recipe(Recipe("made"), weights=text), manifest
    )


def identities(*between: nn.Module) -> nn.Module:
    """Two layers that hand on what they get."""
    first, last = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    for layer in (first, last):
        nn.init.eye_(layer.weight)
    return nn.Sequential(first, *between, last).eval()


# one mask a member


@pytest.mark.parametrize("net", [WithDropout, Pictures])
def test_masked_members_are_plain_networks_with_columns_left_out(net, little: Data):
    ensemble = mm.fit(net, little, recipe="mask-ensemble", plan=PLAN, posthoc=None)
    population = ensemble.groups[0].population
    assert not population.own
    x, outputs = little.test.prepared[:20], ensemble.predict(little.test.x[:20]).outputs
    for i in range(3):
        plain = net()
        plain.load_state_dict({**population.shared, **{k: v[i] for k, v in population.buffers.items()}}, strict=False)
        for name, mask in population.buffers.items():
            if not name.endswith(":in"):
                continue
            weight = dict(plain.named_parameters())[name.removesuffix(":in")].data
            groups = mask.shape[1] // weight.shape[1]
            each = len(weight) // groups
            for row in range(len(weight)):
                for column in range(weight.shape[1]):
                    weight[row, column] *= mask[i, (row // each) * weight.shape[1] + column]
        with torch.no_grad():
            torch.testing.assert_close(plain.eval()(x), outputs[i], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(ensemble.member(i)(x), outputs[i], rtol=1e-5, atol=1e-5)


def test_masks_are_drawn_once_and_kept(little: Data, tmp_path: Path):
    ensemble = mm.fit(WithDropout, little, recipe="mask-ensemble", plan=PLAN, out=tmp_path / "run", posthoc=None)
    masks = ensemble.groups[0].population.buffers
    assert list(masks) == ["last.weight:in"]
    torch.manual_seed(0)
    population = populate(lambda i: WithDropout(), 3, lambda name: True)
    trace = trace_kernels(WithDropout(), little.train.prepared[:2])
    first = Masks().init(population, trace, lambda i: generator(0, "factors", i))
    assert torch.equal(masks["last.weight:in"], first.buffers["last.weight:in"])
    again = mm.load(tmp_path / "run", net=WithDropout)
    assert torch.equal(again.groups[0].population.buffers["last.weight:in"], masks["last.weight:in"])
    assert set(masks["last.weight:in"].unique().tolist()) == {0.0, 2.0}
    assert len({tuple(row.tolist()) for row in masks["last.weight:in"]}) == 3


def test_masks_take_the_place_of_dropout_layers(little: Data):
    """With masks, a network with dropout layers trains to the same bits as one without."""
    with_layers, without = (
        mm.fit(lambda drops=drops: WithDropout(drops), little, recipe="mask-ensemble", plan=PLAN, posthoc=None)
        for drops in (True, False)
    )
    mine, theirs = (each.groups[0].population.to_tensors() for each in (with_layers, without))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(theirs[name], tensor) for name, tensor in mine.items())


def test_the_distribution_of_masks():
    net = nn.Sequential(nn.Linear(3, 4000), nn.Linear(4000, 2)).double()
    trace, weights = (
        trace_kernels(net, torch.zeros(1, 3).double()),
        parse("masks:distribution=bernoulli_0.3", "weights", WEIGHTS),
    )
    population = populate(lambda i: net, 2, lambda name: True)
    masks = weights.init(population, trace, lambda i: torch.Generator().manual_seed(i))
    mask = masks.buffers["1.weight:in"]
    assert mask.dtype == torch.float64
    assert set(mask.unique().tolist()) == {0.0, 1.0}
    assert abs(mask.mean() - 0.3) < 4 * (0.3 * 0.7 / mask.numel()) ** 0.5  # four standard errors


def test_masks_and_factors_do_not_meet(little: Data):
    both = make_recipe("batch-ensemble", weights="masks")
    with pytest.raises(Misuse, match="weights masks with rank-one factors: both would scale"):
        mm.fit("mlp", little, recipe=both, plan=PLAN, posthoc=None)


def test_one_member_that_shares_everything_is_read_back(little: Data, tmp_path: Path):
    mm.fit("mlp", little, recipe="mask-ensemble", plan=replace(PLAN, members=1), out=tmp_path / "run", posthoc=None)
    assert mm.load(tmp_path / "run").members == 1


# dropout that stays on


@pytest.mark.parametrize(("between", "rate"), [((), 0.25), ((nn.Dropout(0.5),), 0.5), ((nn.Dropout(0.0),), 0.25)])
def test_dropout_is_unbiased_and_has_its_variance(between, rate: float):
    """Each output is x / (1 - rate) or 0: mean x, variance x^2 rate / (1 - rate). Four standard errors."""
    net, x = identities(*between), torch.linspace(0.5, 2.0, 8).expand(5, 8).contiguous()
    ensemble = drawn(net, "dropout:rate=0.25,draws=400", x)
    outputs = ensemble.predict(x, prepared=True).outputs.double()  # (400, 5, 8)
    assert outputs.shape == (400, 5, 8)
    error = x * (rate / (1 - rate) / 400) ** 0.5
    assert ((outputs.mean(0) - x).abs() < 4 * error).all()
    kept = (outputs != 0).double().mean().item()
    assert abs(kept - (1 - rate)) < 4 * (rate * (1 - rate) / outputs.numel()) ** 0.5
    torch.testing.assert_close(outputs, torch.where(outputs != 0, x.double() / (1 - rate), 0.0), rtol=1e-4, atol=0)


def test_inputs_of_the_first_kernel_are_never_dropped():
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    single = nn.Sequential(nn.Linear(8, 3))
    outputs = drawn(single, "dropout:rate=0.9,draws=5", x).predict(x, prepared=True).outputs
    assert all(torch.equal(outputs[0], each) for each in outputs)
    family = parse("dropout:rate=0.2", "weights", WEIGHTS).in_network(
        trace_kernels(nn.Sequential(*identities(), nn.Linear(8, 2)), x)
    )
    assert family.spec.rates == {"1.weight": 0.2, "2.weight": 0.2}


@pytest.mark.parametrize("how", ENGINES)
def test_predictions_repeat_and_draws_differ(how: str):
    net, x = identities(nn.ReLU()), torch.rand(7, 8, generator=torch.Generator().manual_seed(0)) + 0.5
    ensemble = drawn(net, "dropout:rate=0.5,draws=4", x, members=2, how=how)
    outputs = ensemble.predict(x, prepared=True).outputs
    assert torch.equal(outputs, ensemble.predict(x, prepared=True).outputs)
    assert len({tuple(each.flatten().tolist()) for each in outputs}) >= 6  # two masks of 8 units may be equal
    assert len(ensemble.predict(x, draws=3, prepared=True).outputs) == 6
    assert torch.equal(outputs, drawn(net, "dropout:rate=0.5,draws=4", x, members=2).predict(x, prepared=True).outputs)


def test_a_member_s_draws_are_neighbours():
    nets = [identities(), identities()]
    nn.init.constant_(nets[1][0].weight, 100.0)
    x = torch.ones(3, 8)
    ensemble = drawn(nets[0], "dropout:rate=0.1,draws=3", x)
    ensemble = replace(ensemble, groups=(MemberGroup(nets[0], populate(nets.__getitem__, 2)),))
    sizes = ensemble.predict(x, prepared=True).outputs.abs().mean((1, 2))
    assert (sizes[:3] < 3).all()
    assert (sizes[3:] > 100).all()


def test_a_mask_before_a_convolution_covers_whole_channels():
    net = nn.Sequential(nn.Conv2d(3, 5, 1), nn.Conv2d(5, 5, 1, bias=False, groups=5), nn.Flatten())
    nn.init.constant_(net[1].weight, 1.0)
    nn.init.constant_(net[0].bias, 9.0)
    x = torch.rand(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    outputs = drawn(net, "dropout:rate=0.5,draws=20", x).predict(x, prepared=True).outputs.view(20, 4, 5, 36)
    dropped = outputs == 0
    assert torch.equal(dropped.all(-1), dropped.any(-1))
    assert 0.3 < dropped.double().mean() < 0.7


def test_batch_normalisation_is_in_evaluation_mode_while_dropout_is_active(little: Data):
    ensemble = mm.fit(Pictures, little, recipe="mc-dropout", plan=PLAN, posthoc=None)
    population = ensemble.groups[0].population
    before = {name: tensor.clone() for name, tensor in population.buffers.items()}
    with_others = ensemble.predict(little.test.x[:20], draws=2).outputs
    assert not torch.equal(with_others[0], with_others[1])
    assert all(torch.equal(tensor, before[name]) for name, tensor in population.buffers.items())
    undropped = replace(ensemble, recipe=make_recipe(ensemble.recipe, weights="dropout:rate=0,draws=1"))
    with torch.no_grad():
        plain = ensemble.member(0)(little.test.prepared[:20])
    torch.testing.assert_close(undropped.predict(little.test.x[:20]).outputs[0], plain, rtol=1e-5, atol=1e-5)


def test_the_network_s_own_rates_are_used_where_it_has_some(little: Data):
    trace = trace_kernels(WithDropout(), little.train.prepared[:2])
    assert parse("dropout:rate=0.3", "weights", WEIGHTS).in_network(trace).spec.rates == {}
    bare = trace_kernels(WithDropout(False), little.train.prepared[:2])
    assert parse("dropout:rate=0.3", "weights", WEIGHTS).in_network(bare).spec.rates == {"last.weight": 0.3}


@pytest.mark.parametrize("preset", ["deep-ensemble", "batch-ensemble"])
def test_dropout_joins_other_answers(preset: str, little: Data):
    """Validation rests; predictions do not."""
    chosen = make_recipe(preset, weights="dropout:draws=5,rate=0.2")
    ensemble = mm.fit("mlp", little, recipe=chosen, plan=PLAN, posthoc=None)
    outputs = ensemble.predict(little.val.x).outputs
    assert len(outputs) == 15
    assert not torch.equal(outputs[0], outputs[1])
    deterministic = replace(ensemble, recipe=make_recipe(ensemble.recipe, weights="point"))
    found = -deterministic.predict(little.val.x).log_prob(little.val.y).mean().item()
    assert ensemble.history[-1]["ensemble"]["val_nll"] == pytest.approx(found, rel=1e-5)


@pytest.mark.parametrize("how", ["loop", "threads", "stacked", "threads-stacked"])
def test_one_network_answers_many_times_on_every_engine(how: str, little: Data):
    ensemble = mm.fit("small-cnn", little, recipe="mc-dropout", plan=replace(PLAN, engine=how, members=1), posthoc=None)
    assert len(ensemble.predict(little.test.x[:4], draws=3).outputs) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gausian", "unknown answer to --weights 'gausian': did you mean 'gaussian'"),
        ("dropot", "did you mean 'dropout'?"),
        ("dropout:rate=1", "rate=1.0: need a probability of at least 0 and below 1, such as 0.1"),
        ("dropout:rate=-0.1", "rate=-0.1: need a probability"),
        ("dropout:rate=nan", "rate=nan: need a probability"),
        ("dropout:draws=0", "draws=0: need a whole number, at least 1"),
        ("dropout:draws=2.5", "weights setting draws=2.5: expected a whole number"),
        ("point:draws=3", "weights 'point:draws=3': point has no settings; write point"),
        ("masks:draws=3", "unknown setting of a weights (name=value) 'draws'"),
        (
            "masks:distribution=rademacher",
            "distribution=rademacher: masks must not be negative; write bernoulli_0.5 or inverted_0.5",
        ),
        ("masks:distribution=inverted", "distribution 'inverted' is not understood"),
        ("masks:kind=point", "unknown setting of a weights (name=value) 'kind'"),
    ],
)
def test_every_mistake_is_one_line_that_names_it(text: str, message: str):
    with pytest.raises(Misuse) as caught:
        parse(text, "weights", WEIGHTS)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_draws_of_weights_that_are_not_random_are_refused(little: Data):
    ensemble = mm.fit("mlp", little, plan=PLAN, posthoc=None)
    with pytest.raises(Misuse, match="draws=4 of weights point: they are not random; leave draws out"):
        ensemble.predict(little.test.x, draws=4)
    assert len(ensemble.predict(little.test.x, draws=1).outputs) == 3


def test_factors_have_the_type_of_their_kernel():
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).double()
    trace, sharing = trace_kernels(net, torch.zeros(1, 3).double()), parse("rank-one", "sharing", SHARING)
    population = populate(lambda i: net, 2, sharing.predicate(net, trace))
    made = sharing.add_factors(population, trace, lambda i: torch.Generator().manual_seed(i))
    assert {tensor.dtype for tensor in made.own.values()} == {torch.float64}
