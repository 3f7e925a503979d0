"""Which weights go: nested masks, exact shares, lines that agree with each other, and bounds on what changes."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from frozen_networks import X, same_body
from pruning_factories import holds_zeros, masks, population, rows, trained, without
from torch import nn

from murmuration.applications.pruning import Pruning, prune_population
from murmuration.applications.pruning.masks import channel_scores, count_parameters, layer_densities, sparsity_of
from murmuration.core.population import KEPT, populate
from murmuration.core.presets import PRESETS
from murmuration.core.recipe import make_recipe
from murmuration.core.weights import Kernel, Point, trace_kernels
from murmuration.data import Data, open_data
from murmuration.prediction.ensemble import Ensemble
from murmuration.system.errors import Misuse

RECIPES = ("deep-ensemble", "bayes", "batch-ensemble")


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    return open_data((digits.train.prepared[:160], digits.train.y[:160]))


@pytest.fixture(scope="module")
def ensembles(little: Data) -> dict[str, Ensemble]:
    return {name: trained(little, name) for name in RECIPES}


EVERY = pytest.mark.parametrize("name", RECIPES)


@EVERY
def test_a_threshold_of_zero_changes_nothing_where_nothing_is_zero(name: str, ensembles, little: Data):
    ensemble = ensembles[name]
    same = without(ensemble, Pruning(threshold=0.0), little)
    assert all(mask.all() for mask in masks(same).values())
    assert torch.equal(same.predict(little.test.x).outputs, ensemble.predict(little.test.x).outputs)


@pytest.mark.parametrize(
    ("name", "rule"), [(n, "magnitude") for n in RECIPES] + [("bayes", "snr"), ("bayes", "log-alpha")]
)
def test_masks_are_nested_in_the_threshold(name: str, rule: str, ensembles, little: Data):
    lines = (3.0, 1.0, 0.0, -2.0) if rule == "log-alpha" else (0.005, 0.02, 0.05, 0.08)
    found = [without(ensembles[name], Pruning(rule, threshold=line), little) for line in lines]
    left = [count_parameters(population(each)).nonzero for each in found]
    assert all(more > fewer for more, fewer in pairwise(left))
    for wide, narrow in pairwise(map(masks, found)):
        assert all(bool((narrow[key] <= wide[key]).all()) for key in wide)


@EVERY
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_a_sparsity_is_met_exactly_and_nested(name: str, scope: str, ensembles, little: Data):
    found = [without(ensembles[name], Pruning(sparsity=share, scope=scope), little) for share in (0.0, 0.3, 0.7, 0.95)]
    trace = trace_kernels(found[0].groups[0].module, little.train.prepared[:2])
    for share, each in zip((0.0, 0.3, 0.7, 0.95), found, strict=True):
        whole = sum(mask[0].numel() for mask in masks(each).values())
        for member in range(each.members):
            gone = {key: int((~mask[member]).sum()) for key, mask in masks(each).items()}
            assert scope == "layer" or sum(gone.values()) == round(share * whole)
            assert scope == "global" or all(n == round(share * masks(each)[key][0].numel()) for key, n in gone.items())
        assert sparsity_of(population(each), trace) == pytest.approx(share, abs=2 / min(640, whole))
    for wide, narrow in pairwise(map(masks, found)):
        assert all(bool((narrow[key] <= wide[key]).all()) for key in wide)
    assert holds_zeros(found[2])


@EVERY
def test_what_goes_is_worth_least(name: str, ensembles, little: Data):
    """Each member's own kernels are compared with each other; what members share is pruned once, for all."""
    ensemble = ensembles[name]
    found = masks(without(ensemble, Pruning(sparsity=0.6), little))
    for member in range(ensemble.members):
        gone = torch.cat([rows(ensemble, key)[member].abs()[~mask[member]] for key, mask in found.items()])
        left = torch.cat([rows(ensemble, key)[member].abs()[mask[member]] for key, mask in found.items()])
        assert gone.max() <= left.min()
    if name == "batch-ensemble":
        assert all(torch.equal(mask[0], mask[1]) for mask in found.values())


def test_log_alpha_and_signal_to_noise_draw_one_line(ensembles, little: Data):
    """log alpha = -2 log snr: a threshold of 3 is a ratio of e^-1.5."""
    by_ratio = without(ensembles["bayes"], Pruning("snr", threshold=math.exp(-1.5)), little)
    by_alpha = without(ensembles["bayes"], Pruning("log-alpha", threshold=3.0), little)
    assert masks(by_ratio).keys() == masks(by_alpha).keys()
    assert all(torch.equal(mask, masks(by_alpha)[key]) for key, mask in masks(by_ratio).items())
    assert not all(mask.all() for mask in masks(by_ratio).values())
    assert round(math.exp(-1.5), 3) == 0.223


def test_the_outputs_of_one_layer_move_by_no_more_than_the_threshold_allows():
    layer, x = nn.Sequential(nn.Linear(30, 4)), torch.randn(50, 30, generator=torch.Generator().manual_seed(0))
    members, tau = populate(lambda _: layer, 1), 0.08
    left = prune_population(members, Point(), trace_kernels(layer, x[:2]), Pruning(threshold=tau))
    gone = ~left.buffers["0.weight" + KEPT][0]
    assert 0 < int(gone.sum()) < gone.numel()
    change = (x @ left.own["0.weight"][0].T - x @ members.own["0.weight"][0].T).abs()
    bound = tau * x.abs() @ gone.float().T
    assert bool((change <= bound + 1e-6).all())
    assert change.max() > 0.1 * bound.max()


def test_pruning_again_only_takes_more(ensembles, little: Data):
    once = without(ensembles["bayes"], Pruning(sparsity=0.7), little)
    for again in (Pruning(sparsity=0.2), Pruning("snr", sparsity=0.5), Pruning(structured=True, sparsity=0.3)):
        twice = without(once, again, little)
        assert all(bool((masks(twice)[key] <= mask).all()) for key, mask in masks(once).items())
        assert holds_zeros(twice)


@EVERY
@pytest.mark.parametrize("scope", ["global", "layer", None])
def test_whole_channels_go_with_their_biases(name: str, scope: str, ensembles, little: Data):
    found = without(ensembles[name], Pruning(structured=True, sparsity=0.5, scope=scope), little)
    kernels = [key for key in masks(found) if key.endswith("weight")]
    assert sorted(kernels) == ["body.1.weight", "body.3.weight"]  # the head's outputs are the predictions
    gone = 0
    for key in kernels:
        channels = masks(found)[key].flatten(2)
        assert torch.equal(channels.any(2), channels.all(2))
        assert torch.equal(channels.any(2), masks(found)[key.replace("weight", "bias")])
        gone += int((~channels.any(2)[0]).sum())
    assert 0 <= 128 - gone <= (scope == "global")  # half of 128 and 128, but for the best of a layer that would go
    assert scope == "global" or holds_zeros(found)


def test_the_best_channel_of_a_layer_stays(ensembles, little: Data):
    found = masks(without(ensembles["deep-ensemble"], Pruning(structured=True, threshold=1e6), little))
    assert all(int(mask.flatten(2).any(2).sum()) == 2 for key, mask in found.items() if key.endswith("weight"))


def test_channels_of_a_transposed_convolution_in_groups():
    layer = nn.ConvTranspose2d(4, 6, 3, groups=2)
    kernel = Kernel("0.weight", 4, 6, groups=2, transposed=True)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.weight[:2, 1] = 0.25  # of the first group, its second channel
        layer.weight[2:, 2] = -0.5  # of the second group, its third
    assert channel_scores(kernel, layer.weight.detach()).tolist() == [1.0, 0.25, 1.0, 1.0, 1.0, 0.5]
    net = nn.Sequential(layer, nn.Flatten(), nn.Linear(6 * 9, 2))
    x = torch.randn(2, 4, 1, 1, generator=torch.Generator().manual_seed(0))
    left = prune_population(
        populate(lambda _: net, 1), Point(), trace_kernels(net, x), Pruning(structured=True, threshold=0.6)
    )
    made = nn.functional.conv_transpose2d(x, left.own["0.weight"][0], left.own["0.bias"][0], groups=2)
    assert [bool(made[:, channel].any()) for channel in range(6)] == [True, False, True, True, True, False]


def test_numbers_left_are_counted(ensembles, little: Data):
    bayes = without(ensembles["bayes"], Pruning(sparsity=0.5), little)
    counts, weights = count_parameters(population(bayes)), 64 * 128 + 128 * 128 + 128 * 10
    assert counts.dense == weights + 266
    assert counts.nonzero == weights // 2 + 266
    assert counts.numbers == 2 * counts.nonzero  # a mean and a spread each
    assert counts.numbers_before == 2 * counts.dense
    points = count_parameters(population(without(ensembles["deep-ensemble"], Pruning(sparsity=0.5), little)))
    assert (points.dense, points.numbers) == (2 * counts.dense, 2 * counts.nonzero)
    trace = trace_kernels(bayes.groups[0].module, little.train.prepared[:2])
    layers = layer_densities(population(bayes), trace)
    assert [(each["name"], each["weights"]) for each in layers] == [
        ("body.1.weight", 8192),
        ("body.3.weight", 16384),
        ("head.weight", 1280),
    ]
    assert sum(each["weights"] * each["kept"] for each in layers) == pytest.approx(weights / 2)


def test_one_spread_for_a_layer_is_counted_once(little: Data):
    made = trained(little, make_recipe("bayes", weights="gaussian:std_param=alpha-layer,bias=point"))
    counts = count_parameters(population(without(made, Pruning(sparsity=0.5), little)))
    assert counts.numbers == counts.nonzero + 3


BAD = [
    ({"rule": "magnitud"}, "did you mean 'magnitude'"),
    ({"scope": "net"}, "unknown scope"),
    ({"sparsity": 1.0}, "below 1, such as 0.8"),
    ({"threshold": math.nan}, "need a finite number"),
    ({"sparsity": 0.5, "threshold": 0.1}, "give one"),
    ({"rule": "snr", "structured": True}, "leave rule out"),
]


@pytest.mark.parametrize(("given", "words"), BAD, ids=lambda each: str(each)[:30])
def test_bad_requests_are_refused(given: dict, words: str):
    with pytest.raises(Misuse, match=words):
        Pruning(**given)


def test_numbers_have_no_spread_to_go_by(ensembles, little: Data):
    with pytest.raises(Misuse, match="no kernel has one: write rule=magnitude"):
        without(ensembles["deep-ensemble"], Pruning("snr", sparsity=0.5), little)
    alone = replace(ensembles["deep-ensemble"].groups[0].population, own={}, buffers={})
    with pytest.raises(Misuse, match="nothing to prune"):
        prune_population(alone, Point(), trace_kernels(nn.Identity(), torch.zeros(2, 3)), Pruning(sparsity=0.5))


def test_pruning_spares_fixed_kernels():
    net = same_body()
    population = populate(lambda _: net, 2, fixed=lambda name: name.startswith("body.0"))
    trace = trace_kernels(net, X[:2])
    for structured in (False, True):
        pruned = prune_population(
            population, PRESETS["single"].value.weights, trace, Pruning(sparsity=0.5, structured=structured)
        )
        assert torch.equal(pruned.fixed["body.0.weight"][0], net.body[0].weight)
        assert "body.0.weight:kept" not in pruned.buffers
        assert (pruned.own["body.2.weight"] == 0).any()
    assert count_parameters(population).dense == population.parameters_stored()
