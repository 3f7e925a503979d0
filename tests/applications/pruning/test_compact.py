"""The smaller network predicts what the masked one predicts, or is refused."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from pruning_factories import masks, population, pruned_run, trained, without
from torch import nn

import murmuration as mm
from murmuration.applications.pruning import Pruning, plan_pruning, prune, prune_population
from murmuration.applications.pruning.compact import compact_population
from murmuration.applications.pruning.narrow import narrowed
from murmuration.core.population import populate
from murmuration.core.recipe import make_recipe
from murmuration.core.weights import Point, trace_kernels
from murmuration.data import Data, open_data
from murmuration.evaluation import evaluate_ensemble
from murmuration.models.nets import build_net
from murmuration.system.errors import Misuse

HALF = Pruning(structured=True, sparsity=0.5)


@pytest.fixture(autouse=True)
def _few_levels(monkeypatch):
    monkeypatch.setattr("murmuration.applications.pruning.runs.LEVELS", (0.0, 0.5))


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    return open_data((digits.train.prepared[:160], digits.train.y[:160]))


def both(net: nn.Module, x: torch.Tensor, pruning: Pruning = HALF) -> tuple[nn.Module, nn.Module]:
    """The network with channels held at zero, and the one without these channels."""
    trace = trace_kernels(net, x[:2])
    left = prune_population(populate(lambda _: net, 1), Point(), trace, pruning)
    widths, fewer = compact_population(net, left, trace)
    net.load_state_dict({name: tensor[0] for name, tensor in left.own.items()})
    small = narrowed(net, widths)
    small.load_state_dict({name: tensor[0] for name, tensor in fewer.own.items()})
    return net.eval(), small.eval()


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("name", ["mlp", "small-cnn", "lenet5", "alexnet-half", "three-conv-three-fc"])
@torch.no_grad()
def test_predictions_stay_the_same(name: str, scope: str):
    """Up to rounding: sums over fewer numbers, in another order."""
    torch.manual_seed(0)
    net, x = build_net(name, (3, 32, 32), 10), torch.randn(4, 3, 32, 32)
    masked, small = both(net, x, Pruning(structured=True, sparsity=0.5, scope=scope))
    torch.testing.assert_close(small(x), masked(x), rtol=1e-4, atol=1e-5)
    assert parameters(small) < 0.8 * parameters(masked)
    assert masked(x).std() > 1e-3


def test_half_of_lenet_s_channels_leave_the_widths_that_follow():
    torch.manual_seed(0)
    net, x = build_net("lenet5", (1, 28, 28), 10), torch.randn(2, 1, 28, 28)
    _, small = both(net, x)
    shapes = [tuple(p.shape) for p in small.parameters() if p.dim() > 1]
    assert shapes == [(3, 1, 5, 5), (8, 3, 5, 5), (60, 200), (42, 60), (10, 42)]


@pytest.mark.parametrize("activation", ["tanh", "gelu", "silu"])
@torch.no_grad()
def test_activations_that_make_zero_of_zero_are_fine(activation: str):
    torch.manual_seed(0)
    net, x = build_net("lenet5", (1, 28, 28), 10, activation=activation), torch.randn(4, 1, 28, 28)
    masked, small = both(net, x)
    torch.testing.assert_close(small(x), masked(x), rtol=1e-4, atol=1e-5)


def test_networks_in_which_silence_is_heard_are_refused(normalised_net):
    x = torch.randn(2, 1, 28, 28)
    with pytest.raises(Misuse, match=r"Softplus 'body.\d' makes 0.693 of 0"):
        both(build_net("lenet5", (1, 28, 28), 10, activation="softplus"), x)
    with pytest.raises(Misuse, match="not a plain chain"):
        both(normalised_net(), torch.randn(2, 1, 8, 8))
    chain = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    with pytest.raises(Misuse, match="what BatchNorm1d '1' makes of silent channels"):
        both(chain, torch.randn(2, 4))
    grouped = nn.Sequential(nn.Conv2d(2, 4, 1), nn.Conv2d(4, 4, 1, groups=2), nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(Misuse, match="Conv2d '1'"):
        both(grouped, torch.randn(2, 2, 1, 1))


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["point", "gaussian:draws=2", "gaussian:std_param=alpha-channel,draws=2"])
def test_a_compact_run_is_a_smaller_run(weights: str, tmp_path: Path, little: Data):
    """Noise is drawn in the shapes of the network, so distributions are compared at their means."""
    data = (little.train.prepared, little.train.y)
    trained(open_data(data), make_recipe("single", weights=weights), "lenet5", tmp_path / "run")
    wide = pruned_run(tmp_path / "run", tmp_path / "wide", HALF, data=data)
    small = pruned_run(tmp_path / "run", tmp_path / "small", HALF, data=data, compact=True)
    x = little.test.prepared
    with torch.no_grad():
        torch.testing.assert_close(small.member(0)(x), wide.member(0)(x), rtol=1e-4, atol=1e-5)
    again = mm.load(tmp_path / "small")
    assert torch.equal(again.predict(x, prepared=True).outputs, small.predict(x, prepared=True).outputs)
    counts, masked = small.manifest.entries["pruning"]["counts"], wide.manifest.entries["pruning"]["counts"]
    assert counts["numbers"] == population(small).parameters_stored() < 0.4 * masked["numbers_before"]
    assert counts["dense"] == parameters(small.member(0)) == masked["nonzero"] - heard_less(wide)
    assert counts["numbers_before"] == masked["numbers_before"]
    for made in (small, wide):  # the table of costs and the section on pruning state one size
        assert (
            evaluate_ensemble(made, open_data(data)).cost["parameters"]
            == made.manifest.entries["pruning"]["counts"]["numbers"]
        )
    tuned = pruned_run(tmp_path / "run", tmp_path / "tuned", HALF, data=data, compact=True, finetune=1)
    for made in (small, tuned):
        shapes = {name: tuple(tensor.shape) for name, tensor in made.groups[0].module.named_parameters()}
        assert {row.name: row.shape for row in made.parameter_roles} == shapes
    assert {k: t.shape for k, t in population(tuned).own.items()} == {
        k: t.shape for k, t in population(small).own.items()
    }
    twice = pruned_run(tmp_path / "tuned", tmp_path / "twice", HALF, data=data, compact=True)
    assert parameters(twice.member(0)) < parameters(tuned.member(0))
    assert mm.load(tmp_path / "twice").manifest.net["widths"]["head"] == [21, 10]


def heard_less(wide: mm.Ensemble) -> int:
    """Weights that are not zero and listen to silent channels: a compact network does without them."""
    found, count = masks(wide), 0
    names = ["body.1.weight", "body.4.weight", "body.8.weight", "body.10.weight", "head.weight"]
    own = population(wide).own
    for before, after in pairwise(names):
        silent = ~found[before][0].flatten(1).any(1)
        weight = (
            own[after][0].flatten(2)
            if own[after].dim() > 3
            else own[after][0].reshape(len(own[after][0]), len(silent), -1)
        )
        count += int(weight[:, silent].count_nonzero())
    return count


def test_a_net_that_only_looks_like_a_chain_is_noticed(tmp_path: Path):
    """A dense layer along positions: as many of them as channels, and nothing but the outputs tells."""

    def net() -> nn.Module:
        return nn.Sequential(nn.Conv1d(1, 4, 1), nn.Linear(4, 4), nn.Flatten(), nn.Linear(16, 2))

    x = torch.randn(60, 1, 4, generator=torch.Generator().manual_seed(0))
    data = (x, (x.sum((1, 2)) > 0).long())
    mm.fit(net, data, recipe="single", epochs=1, out=tmp_path / "run", posthoc=None)
    found = plan_pruning(tmp_path / "run", HALF, net=net, data=data)
    with pytest.raises(Misuse, match="would predict otherwise"):
        prune(found, tmp_path / "out", compact=True)
    assert not (tmp_path / "out").exists()


def test_members_of_one_run_must_agree(tmp_path: Path, little: Data):
    ensemble = trained(little, "deep-ensemble")
    left = without(ensemble, HALF, little)
    trace = trace_kernels(left.groups[0].module, little.train.prepared[:2])
    with pytest.raises(Misuse, match=r"members keep different channels of body\.1\.weight"):
        compact_population(left.groups[0].module, population(left), trace)
    scaled = without(trained(little, "batch-ensemble"), HALF, little)
    with pytest.raises(Misuse, match="members scale channels"):
        compact_population(scaled.groups[0].module, population(scaled), trace)


def test_half_the_filters_with_spreads_are_half_the_numbers_and_not_the_same():
    """The half-width network of the Bayesian CNN study has 0.5059 of the point network's numbers, on CIFAR's shape."""
    whole, half = (parameters(build_net(name, (3, 32, 32), 10)) for name in ("alexnet", "alexnet-half"))
    assert 2 * half / whole == pytest.approx(0.5059, abs=5e-5)
