"""Random streams that all members have in common: initialisation, batch order and noise, each apart from the others."""

import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.recipe import make_recipe
from murmuration.data import Data
from murmuration.training.batches import epoch_batches
from murmuration.training.plan import SAME, Plan, plan_for
from murmuration.training.resolve import make_spec

PLAN = Plan(members=3, epochs=2, batch_size=32, lr=1e-2, engine="loop", posthoc=None)
ALL = tuple(SAME)


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    return replace(digits, train=digits.train[:96], val=digits.val[:20])


def members(net, data: Data, **settings) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        population = mm.fit(net, data, **{"plan": PLAN, **settings}).groups[0].population
    return {**population.own, **population.buffers}


def all_equal(tensors: dict[str, Tensor]) -> bool:
    return all(torch.equal(t, t[:1].expand_as(t)) for t in tensors.values())


def same_bits(a: dict[str, Tensor], b: dict[str, Tensor], member: int | slice = slice(None)) -> bool:
    return all(torch.equal(tensor[member], b[name][member]) for name, tensor in a.items())


@pytest.mark.parametrize("engine", ["loop", "stacked", "threads", "threads-stacked"])
def test_members_with_all_streams_in_common_are_equal_on_every_engine(little, engine):
    """A network with dropout: without the same noise, or the same batches, or the same weights, members differ.

    Two members, because `threads-stacked` has groups of two sizes for three, which are rounded differently.
    """
    assert all_equal(members("small-cnn", little, members=2, engine=engine, same=ALL))
    for left_out in ALL if engine == "threads" else ("noise",):
        some = tuple(name for name in ALL if name != left_out)
        assert not all_equal(members("small-cnn", little, engine=engine, same=some))


def normalised_behind_dropout() -> nn.Module:
    layers = [nn.Linear(64, 12), nn.Dropout(0.3), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10)]
    return nn.Sequential(nn.Flatten(), *layers)


@pytest.mark.parametrize("recipe", ["bayes", "csgmcmc", "swa", "batch-ensemble"])
def test_members_with_all_streams_in_common_are_equal_in_every_recipe(little, recipe):
    """Draws of Gaussian weights, Langevin noise, batch-norm statistics behind dropout, rank-one factors."""
    settings = {"recipe": recipe, "epochs": 8} if recipe == "csgmcmc" else {"recipe": recipe}
    found = members(normalised_behind_dropout, little, **settings, members=2, same=ALL, augment=("flip",))
    if recipe == "csgmcmc":
        found = {name: t.unflatten(0, (-1, 2)).transpose(0, 1) for name, t in found.items()}  # points of two paths
    assert all_equal(found)


def test_one_stream_in_common_leaves_the_others_alone(little):
    def batches(plan: Plan) -> Tensor:
        return torch.stack([epoch_batches(little.train, plan, 1)(i).fetch(slice(0, 3))[0] for i in range(3)])

    def start(plan: Plan) -> dict[str, Tensor]:
        return make_spec("small-cnn", little, make_recipe(), plan)[0].method.initial_members().own

    given = {name: replace(PLAN, same=(name,)) for name in SAME}
    for name in ("initialisation", "noise"):
        assert torch.equal(batches(given[name]), batches(PLAN))
    for name in ("batches", "noise"):
        assert same_bits(start(given[name]), start(PLAN))
    common = batches(given["batches"])
    assert torch.equal(common, batches(replace(PLAN, batch_order="same")))
    assert torch.equal(common, common[:, :1].expand_as(common))
    begun = start(given["initialisation"])
    assert all_equal(begun)
    assert same_bits(begun, start(PLAN), 0)  # the first member's


def test_numbers_in_common_are_those_of_the_first_member(little):
    own = members("small-cnn", little)
    common = members("small-cnn", little, same=("initialisation", "noise"))
    assert same_bits(own, common, 0)
    assert not same_bits(own, common, 1)


def test_batches_in_common_are_the_batch_order_same(little):
    assert same_bits(members("mlp", little, same=("batches",)), members("mlp", little, batch_order="same"))
    with pytest.raises(mm.Misuse, match="batch_order=split with same=batches"):
        Plan(batch_order="split", same=("batches",))
    assert plan_for(make_recipe(), PLAN, same=("batches",)).batch_order == "same"


def test_other_names_are_refused():
    with pytest.raises(mm.Misuse, match=r"random stream 'init'.*initialisation"):
        Plan(same=("init",))
    assert Plan(same="batches, noise").same == ("batches", "noise")


def test_equal_members_are_warned_of_in_one_line(little):
    with pytest.warns(UserWarning, match="same batches: they will be identical$"):
        mm.fit("mlp", little, plan=PLAN, epochs=1, same=ALL)
    with pytest.warns(UserWarning, match="by dropout and other noise alone$"):
        mm.fit("mlp", little, plan=PLAN, epochs=1, same=("initialisation",), batch_order="same")


@pytest.mark.parametrize("recipe", ["forde", "ride", "sade"])
def test_a_lone_member_of_interacting_or_different_ones_is_warned_of(little, recipe):
    with pytest.warns(UserWarning, match="^one member and .*: it is trained as a network alone; write members=2"):
        mm.fit("mlp", little, recipe=recipe, members=1, epochs=1, posthoc=None)


def test_a_resumed_run_has_its_streams_in_common_again(tmp_path, little):
    def show(text, done, total, record):
        if done >= 4:
            raise KeyboardInterrupt

    settings = {"plan": PLAN, "same": ("initialisation", "noise"), "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        mm.fit("small-cnn", little, **settings, progress=show, checkpoint_seconds=0)
    found = mm.resume(tmp_path / "run", data=little).groups[0].population.own
    assert same_bits(found, members("small-cnn", little, same=("initialisation", "noise")))
