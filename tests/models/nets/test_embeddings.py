"""Embeddings of numbers against `rtdl_num_embeddings`, networks for tables on every engine, options as text."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import rtdl_num_embeddings as published
import torch
from torch import nn

import murmuration as mm
from murmuration.models.nets import build_net, column_edges
from murmuration.models.nets.embeddings import Periodic, PiecewiseLinear, PiecewiseReLU
from murmuration.training.plan import Plan

NETS = ("mlp:hidden=8,embed=piecewise,bins=4,dropout=0.1", "real-mlp:hidden=8,embed=periodic,frequencies=3,size=2")
NETS += ("residual-mlp:hidden=8x2,embed=piecewise,bins=3", "mlp:hidden=8,embed=piecewise-relu,bins=4,size=3")


def rows(count: int = 60, columns: int = 3) -> torch.Tensor:
    """Numbers, the last column with few distinct values."""
    x = torch.randn(count, columns, generator=torch.Generator().manual_seed(0))
    x[:, -1] = (2 * x[:, -1]).round()
    return x


def table(count: int = 80) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": draw.normal(size=count), "b": draw.exponential(size=count)})
    frame["c"] = draw.choice(["u", "v", "w"], count)
    frame.loc[::9, "a"] = np.nan
    return frame.assign(y=frame["b"] + (frame["c"] == "u"))


def test_edges_are_the_published_bins():
    ours, theirs = column_edges(rows(), 8), published.compute_bins(rows().double(), 8)
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(torch.tensor(mine, dtype=torch.float64), expected)


def test_columns_of_two_values_have_no_edges():
    x = torch.stack([torch.arange(9.0) % 2, torch.arange(9.0), torch.zeros(9)], dim=1)
    assert [len(each) for each in column_edges(x, 4)] == [0, 5, 0]


def test_piecewise_linear_encoding_equals_the_published_one():
    edges = column_edges(rows(), 8)
    new = 2 * rows(30)  # also outside the edges
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = published.PiecewiseLinearEncoding([torch.tensor(each) for each in edges])(new)
    torch.testing.assert_close(PiecewiseLinear(edges, numbers=False)(new), expected, rtol=1e-6, atol=1e-6)
    with_numbers = PiecewiseLinear(edges)
    first = [sum(with_numbers.chunks[:column]) for column in range(3)]
    assert torch.equal(with_numbers(new)[:, first], new)


def test_categories_pass_as_they_are():
    edges = ((), (0.0, 1.0, 2.0), ())
    x = torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.5, 1.0]])
    expected = torch.tensor([[1, 0.5, 0.5, 0, 0], [0, 1.5, 1, 0.5, 1]])
    torch.testing.assert_close(PiecewiseLinear(edges)(x), expected)
    assert torch.equal(Periodic(edges, 2, 0.1, 4)(x)[:, 4:], x[:, [0, 2]])
    assert torch.equal(PiecewiseReLU(edges, 4)(x)[:, 4:], x[:, [0, 2]])


def test_trained_piecewise_linear_embedding_equals_the_published_one():
    """Without the number itself; the published padding of columns with fewer bins is in front of the last bin."""
    edges = column_edges(rows(), 8)
    bins = [len(each) - 1 for each in edges]
    assert len(set(bins)) > 1
    theirs = published.PiecewiseLinearEmbeddings(
        [torch.tensor(each) for each in edges], 5, activation=True, version="A"
    )
    ours = PiecewiseReLU(edges, 5)
    with torch.no_grad():
        ours.weight.zero_()
        for column, count in enumerate(bins):
            used = [*range(count - 1), max(bins) - 1]
            ours.weight[column, :, 1 : count + 1] = theirs.linear.weight[column, used].T
        ours.bias.copy_(theirs.linear.bias.unsqueeze(-1))
    torch.testing.assert_close(ours(rows()), theirs(rows()).flatten(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layer", [PiecewiseLinear, lambda edges: PiecewiseReLU(edges, 4)])
def test_values_far_outside_of_the_training_rows_count_as_one_range_beyond(layer):
    """Up to there the number goes on, and its bins are at their ends: the embedding is linear in it."""
    embed = layer(((0.0, 1.0, 4.0),))
    if isinstance(embed, PiecewiseReLU):
        nn.init.normal_(embed.weight)
    made = embed(torch.tensor([[8.0], [8.1], [1e6], [-4.0], [-4.1], [-1e6], [torch.inf]]))
    assert torch.equal(made[:3], made[:1].expand(3, -1))
    assert torch.equal(made[3:6], made[3:4].expand(3, -1))
    assert torch.equal(made[6], made[0])
    inside = PiecewiseLinear(((0.0, 1.0, 4.0),))(torch.tensor([[4.0], [6.0], [8.0]]))
    torch.testing.assert_close(inside, torch.tensor([[4.0, 1, 1], [6.0, 1, 1], [8.0, 1, 1]]))


def test_trained_piecewise_linear_embedding_begins_as_a_linear_one():
    ours = PiecewiseReLU(column_edges(rows(), 8), 4)
    assert 0.5 < ours.weight[..., 0].abs().max() <= 1
    assert not ours.weight[..., 1:].any()
    expected = torch.relu(rows().unsqueeze(-1) * ours.weight[..., 0] + ours.bias[..., 0]).flatten(1)
    torch.testing.assert_close(ours(rows()), expected)


def test_periodic_embedding_equals_the_published_one():
    theirs = published.PeriodicEmbeddings(3, 5, n_frequencies=4, frequency_init_scale=0.3, lite=True)
    ours = Periodic(((0.0, 1.0),) * 3, 4, 0.3, 5)
    with torch.no_grad():
        ours.frequencies.copy_(theirs.periodic.weight.flatten())
        ours.linear.load_state_dict(theirs.linear.state_dict())
    torch.testing.assert_close(ours(rows()), theirs(rows()).flatten(1), rtol=1e-5, atol=1e-6)
    assert ours.frequencies.abs().max() < 0.9


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("recipe", ["deep-ensemble", "batch-ensemble"])
def test_every_engine_gives_the_loop_s_answer(net, recipe):
    """Rank-one factors, shared frequencies, own scales and fixed edges: the same members up to rounding."""
    data = mm.open_data(table(), target="y", prepare="robust")
    plan = Plan(members=3, epochs=2, batch_size=16, engine="loop", posthoc=None)
    reference = mm.fit(net, data, recipe=recipe, plan=plan).predict(data.test.x).outputs
    for engine in ("stacked", "threads"):
        found = mm.fit(net, data, recipe=recipe, plan=replace(plan, engine=engine)).predict(data.test.x).outputs
        torch.testing.assert_close(found, reference, rtol=1e-3, atol=1e-3)


def test_dense_nets_with_embeddings_are_stacked():
    data = mm.open_data(table(), target="y")
    for net in (*NETS[:2], NETS[-1]):
        ensemble = mm.fit(net, data, members=2, epochs=1, posthoc=None)
        assert ensemble.manifest.engine["reason"] == "all operators take a member axis"


@pytest.mark.parametrize("net", NETS)
def test_a_run_has_its_edges(net, tmp_path):
    frame = table()
    ensemble = mm.fit(net, frame, target="y", members=2, epochs=1, out=tmp_path / "run")
    again = mm.load(tmp_path / "run")
    assert torch.equal(again.predict(frame).outputs, ensemble.predict(frame).outputs)
    named = ensemble.preparation.names
    numbers = [name for name, edges in zip(named, again.manifest.net["edges"], strict=True) if edges]
    assert numbers == ["a", "b"]


@pytest.mark.parametrize(("bins", "told"), [(-3, "expected a positive number"), (1000, "for 68 training rows")])
def test_edges_of_impossible_bins_are_refused(bins, told):
    with pytest.raises(mm.Misuse, match=told):
        mm.fit(f"mlp:embed=piecewise,bins={bins}", table(), target="y", epochs=1)


def test_options_as_text():
    net = build_net("mlp:hidden=20x2-5,activation=selu,dropout=0.2", (13,), 1)
    keywords = build_net("mlp", (13,), 1, hidden=(20, 20, 5), activation="selu", dropout=0.2)
    assert str(net) == str(keywords)


@pytest.mark.parametrize(
    ("net", "told"),
    [
        ("mlp:embed=spline", "unknown embedding of numbers"),
        ("mlp:embed=piecewise", "write edges=column_edges"),
        ("mlp:hidden=0", "widths of at least 1"),
        ("mlp:hidden=wide", "write for example hidden=256x3"),
        ("mlp:depth=3", "unknown option of the net"),
        ("linear:hidden=3", "linear has no option 'hidden'"),
        ("mlpp:hidden=3", "unknown net 'mlpp'"),
        ("residual-mlp:hidden=8-4", "expected equal widths"),
        ("mlp:embed=piecewise,bins=0", "bins=0 of an embedding of numbers: expected a positive number"),
        ("mlp:embed=piecewise-relu,size=-3", "size=-3 of an embedding of numbers: expected a positive number"),
        ("mlp:bins=16", "bins=16 is not used with embed=none: leave it out, or write embed=piecewise or"),
        ("mlp:embed=piecewise,size=8", "size=8 is not used with embed=piecewise"),
        ("mlp:embed=periodic,bins=9", "bins=9 is not used with embed=periodic"),
    ],
)
def test_misuse(net, told):
    with pytest.raises(mm.Misuse, match=told):
        build_net(net, (3,), 1)
