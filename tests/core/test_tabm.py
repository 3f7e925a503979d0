"""The recipes tabm, tabm-mini and packed: the forward pass of the official `tabm` package, and its initialisation."""

import pytest
import rtdl_num_embeddings
import tabm
import torch

import murmuration as mm
from murmuration.core.recipe import make_recipe
from murmuration.training import TrainSpec
from murmuration.training.plan import plan_for

MEMBERS, COLUMNS, WIDTH, CLASSES = 5, 4, 12, 3
ARCHITECTURES = {"tabm": "tabm", "tabm-mini": "tabm-mini", "packed": "tabm-packed"}


@pytest.fixture(scope="module")
def data() -> mm.Data:
    x = torch.randn(120, COLUMNS, generator=torch.Generator().manual_seed(0))
    return mm.open_data((x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5)), task="classification", prepare="robust")


def copy_members(ensemble: mm.Ensemble, official: tabm.TabM) -> None:
    """Copy trained members into the official network, parameter by parameter."""
    found = ensemble.groups[0].population
    every = {**found.shared, **found.own}
    names = [name for name in ("body.1", "body.4") if f"{name}.weight" in every]
    layers = [block[0] for block in official.backbone.blocks]
    pairs = []
    for name, layer in zip(names, layers, strict=True):
        weight = every[f"{name}.weight"]
        pairs += [(layer.weight, weight.mT if weight.dim() == 3 else weight), (layer.bias, every[f"{name}.bias"])]
        if hasattr(layer, "r"):
            pairs += [(layer.r, every[f"{name}.weight:in"]), (layer.s, every[f"{name}.weight:out"])]
    if hasattr(official.backbone, "affine"):
        pairs += [(official.backbone.affine.weight, every["body.1.weight:in"])]
    if official.num_module is not None:
        pairs += [(official.num_module.periodic.weight.view(-1), every["body.embedding.frequencies"])]
        pairs += [
            (getattr(official.num_module.linear, n), every[f"body.embedding.linear.{n}"]) for n in ("weight", "bias")
        ]
    pairs += [(official.output.weight, every["head.weight"].mT), (official.output.bias, every["head.bias"])]
    with torch.no_grad():
        for theirs, ours in pairs:
            assert theirs.shape == ours.shape
            theirs.copy_(ours)


@pytest.mark.parametrize("embed", ["none", "periodic"])
@pytest.mark.parametrize("recipe", ARCHITECTURES)
def test_the_forward_pass_is_the_official_one(recipe, embed, data):
    if recipe == "packed" and embed == "periodic":
        pytest.skip("packed members have embeddings of their own here, the official ones share them")
    net = f"mlp:hidden={WIDTH}x2,dropout=0.1" + (",embed=periodic,frequencies=3,size=2,sigma=0.3" * (embed != "none"))
    ensemble = mm.fit(net, data, recipe=recipe, members=MEMBERS, epochs=2, posthoc=None)
    numbers = rtdl_num_embeddings.PeriodicEmbeddings(COLUMNS, 2, n_frequencies=3, frequency_init_scale=0.3, lite=True)
    official = tabm.TabM.make(
        n_num_features=COLUMNS,
        d_out=CLASSES,
        n_blocks=2,
        d_block=WIDTH,
        k=MEMBERS,
        arch_type=ARCHITECTURES[recipe],
        num_embeddings=numbers if embed == "periodic" else None,
    ).eval()
    copy_members(ensemble, official)
    with torch.no_grad():
        expected = official(data.test.prepared).transpose(0, 1)  # (M, N, K)
    found = ensemble.predict(data.test.x).outputs
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert found.std(0).max() > 1e-3


def begin(recipe: str, data: mm.Data, net: str = "mlp:hidden=8,embed=piecewise,bins=3"):
    from murmuration.training.resolve import make_spec

    spec: TrainSpec = make_spec(net, data, make_recipe(recipe), plan_for(make_recipe(recipe)))[0]
    return spec, spec.method.initial_members()


def test_the_published_initialisation(data):
    spec, members = begin("tabm", data)
    assert spec.plan.batch_order == "same"
    assert members.members == 16
    inputs = members.own["body.1.weight:in"]  # (M, channels): a number and 3 bins for each column
    assert set(inputs.unique().tolist()) == {-1.0, 1.0}
    columns = inputs.view(16, COLUMNS, 4)
    assert (columns == columns[:, :, :1]).all()
    assert abs(columns[:, :, 0].mean()) < 4 / (16 * COLUMNS) ** 0.5
    assert (members.own["body.1.weight:out"] == 1).all()
    assert {"body.1.bias", "head.weight", "head.bias"} <= set(members.own)
    assert "body.1.weight" in members.shared


def test_mini_has_one_adapter_and_shared_biases(data):
    _, members = begin("tabm-mini", data, "mlp:hidden=8x2,embed=periodic,frequencies=2")
    assert set(members.own) == {"body.1.weight:in", "head.weight", "head.bias"}
    assert {"body.1.bias", "body.embedding.frequencies", "body.embedding.linear.weight"} <= set(members.shared)


def test_packed_members_differ_from_separate_ones_by_their_batches_alone(data):
    settings = {"members": 2, "epochs": 1, "posthoc": None}
    packed = mm.fit("mlp:hidden=8", data, recipe="packed", **settings)
    same = mm.fit("mlp:hidden=8", data, recipe="deep-ensemble", batch_order="same", **settings)
    own = mm.fit("mlp:hidden=8", data, recipe="packed", batch_order="own", **settings)
    separate = mm.fit("mlp:hidden=8", data, recipe="deep-ensemble", **settings)

    def outputs(ensemble: mm.Ensemble) -> torch.Tensor:
        return ensemble.predict(data.test.x).outputs

    assert torch.equal(outputs(packed), outputs(same))
    assert torch.equal(outputs(own), outputs(separate))
    assert not torch.equal(outputs(packed), outputs(separate))
