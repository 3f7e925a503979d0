"""The diagnosis of members that share: regimes known beforehand, numbers worked out twice, sentences that fit."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

import murmuration as mm
from murmuration.core.recipe import Recipe, make_recipe
from murmuration.core.tangent_kernels import smooth_gamma
from murmuration.studies.kernels import (
    KernelDiagnosis,
    cosines,
    initial_ensemble,
    kernel_diagnosis,
    kernels_at_infinite_width,
    kernels_before,
    kernels_before_run,
    mean_correlation,
    ratio,
    regime,
    spec_of,
    start_diagnosis,
    subset,
)
from murmuration.training.resolve import make_spec

WIDTH = 256


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(2, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))


def shared(how: str) -> Recipe:
    return make_recipe("batch-ensemble", sharing=how)


def pairs(found: KernelDiagnosis) -> np.ndarray:
    return found.alignment[~np.eye(found.members, dtype=bool)]


def test_random_signs_make_members_independent(moons):
    found = kernels_before(wide, moons, recipe=shared("rank-one:init=rademacher,gamma=M"), members=8)
    # Two members' kernels are sums over neurons of products with random signs: off zero by about 1 / sqrt(N).
    assert abs(pairs(found)).max() < 4 / math.sqrt(WIDTH)
    assert abs(found.regime.tangent_ratio) < 4 / math.sqrt(WIDTH * 28)  # 28 pairs
    assert found.regime.name == "independent"
    assert found.capacity == 8 / WIDTH
    assert (found.layer, found.width) == ("4.weight", WIDTH)
    assert found.verdict.startswith("independent: a step of one member hardly changes the others")
    assert found.advice[0] == "gamma=M is right: a member learns as fast as a separate network"


def test_factors_around_one_make_members_collective(moons):
    found = kernels_before(wide, moons, recipe=shared("rank-one:init=normal_1_0.5"), members=8)
    assert found.regime.name == "collective"
    assert pairs(found).min() > 0
    assert found.regime.pull == pytest.approx(7 * found.regime.tangent_ratio)
    assert found.regime.gamma == pytest.approx(8 / (1 + found.regime.pull))
    assert 0.05 < found.regime.covariance_ratio < 0.95
    assert found.verdict.startswith("collective: steps of the other members move a member")
    assert found.advice[0].startswith("gamma=1 is right")


def test_equal_factors_and_biases_are_degenerate(moons):
    found = kernels_before("mlp", moons, recipe=shared("rank-one:init=ones,bias=shared"), members=3)
    assert found.regime.name == "degenerate"
    np.testing.assert_allclose(found.alignment, np.ones((3, 3)), atol=1e-6)  # float32 sums
    assert found.correlation == pytest.approx(1.0, abs=1e-12)  # the very same outputs
    assert found.regime.covariance_ratio == pytest.approx(1.0, abs=1e-12)
    assert found.verdict.startswith("degenerate: all members are the same function; on the same batches they stay so")
    assert found.advice[0].startswith(
        "choose factors that differ: init=ones leaves all members the same; write sharing"
    )


def test_equal_members_stay_equal_on_the_same_batches_only(moons):
    regimes = {}
    for batches in ("same", "own"):
        plan = mm.Plan(members=2, epochs=1, engine="loop", batch_order=batches)
        ensemble = mm.fit("mlp", moons, recipe=shared("rank-one:init=ones,bias=shared"), plan=plan, posthoc=None)
        regimes[batches] = kernel_diagnosis(ensemble, moons.test.prepared).regime.name
    assert regimes["same"] == "degenerate"
    assert regimes["own"] != "degenerate"


def test_who_shares_nothing_is_independent_exactly(moons):
    found = kernels_before("mlp", moons, members=4)
    assert (found.regime.name, found.regime.tangent_ratio, found.own_fraction) == ("independent", 0.0, 1.0)
    np.testing.assert_array_equal(found.alignment, np.eye(4))
    assert math.isnan(found.capacity)
    assert found.verdict == "independent by construction: members share nothing that is trained, so T_o = 0"
    assert found.advice == ("gamma does not matter: there is no shared step to scale",)


def test_own_heads_on_a_shared_body(moons):
    found = kernels_before("mlp", moons, recipe="last-layer-ensemble", members=4)
    assert found.shares
    assert found.regime.name in ("independent", "between")  # heads of mean zero: T_o is chance alone
    assert abs(pairs(found)).max() < 4 / math.sqrt(2 * 128)  # two outputs of 128 neurons each
    assert 0 < found.own_fraction < 1


def test_a_frozen_body_is_no_part_of_the_kernel(moons):
    trained = mm.fit("mlp", moons, recipe="single", epochs=1, posthoc=None).member(0)
    frozen = make_recipe("last-layer-ensemble", sharing="backbone:frozen=yes")
    plan = mm.Plan(members=3, epochs=1, engine="loop")
    found = kernels_before(trained, moons, recipe=frozen, plan=plan)
    assert (found.shares, found.regime.tangent_ratio) == (False, 0.0)
    ensemble = mm.fit(trained, moons, recipe=frozen, plan=plan, posthoc=None)
    assert kernel_diagnosis(ensemble, moons.test.prepared).regime.tangent_ratio == 0.0
    again = kernels_before_run(ensemble, moons, moons.test.prepared, net=trained)
    assert again.correlation == found.correlation


def test_masks_are_collective_and_own_nothing(moons):
    found = kernels_before("mlp", moons, recipe="mask-ensemble", members=6)
    assert (found.regime.name, found.own_fraction) == ("collective", 0.0)


def test_ratio_and_alignment_from_whole_jacobians(moons):
    recipe = make_recipe("deep-ensemble", sharing="names:shared=0.*")
    net = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 2))
    spec, _ = make_spec(net, moons, recipe, mm.Plan(members=3))
    x = moons.test.prepared[:6]
    found = start_diagnosis(spec, x)
    population = initial_ensemble(spec).groups[0].population
    rows = []
    for member in range(3):
        own = {name: tensor[member] for name, tensor in population.own.items()}
        slopes = jacrev(lambda w, own=own: functional_call(net, {**own, **w}, (x,)))(population.shared)
        rows.append(torch.cat([slope.flatten(2) for slope in slopes.values()], 2).flatten().double())
    gram = torch.stack(rows) @ torch.stack(rows).mT
    off = (gram.sum() - gram.trace()) / 6
    assert found.regime.tangent_ratio == pytest.approx((off / (gram.trace() / 3)).item(), rel=1e-4)  # float32
    scale = gram.diagonal().sqrt()
    np.testing.assert_allclose(found.alignment, gram / torch.outer(scale, scale), atol=1e-5)


def test_diversity_of_the_start_is_a_mean_over_initialisations(moons):
    recipe = shared("rank-one:init=normal_1_0.5")
    spec, _ = make_spec("mlp", moons, recipe, mm.Plan(members=3, seed=4))
    x = moons.test.prepared[:5]
    found = start_diagnosis(spec, x, further=2)
    same, other = [], []
    for seed in (4, 5, 6):
        outputs = (
            initial_ensemble(replace(spec, plan=mm.Plan(members=3, seed=seed)))
            .predict(x, prepared=True)
            .outputs.double()
        )
        same += [(outputs[a] ** 2).mean() for a in range(3)]
        other += [(outputs[a] * outputs[b]).mean() for a in range(3) for b in range(3) if a != b]
    assert found.initialisations == 3
    assert found.regime.covariance_ratio == pytest.approx(float(np.mean(other) / np.mean(same)), rel=1e-5)


@pytest.mark.parametrize("recipe", ["batch-ensemble", "mask-ensemble", "deep-ensemble"])
def test_a_run_begins_again_bit_for_bit(moons, tmp_path, recipe):
    # A step so short that float32 cannot hold it leaves members as they began.
    plan = mm.Plan(members=3, epochs=1, lr=1e-30, seed=7, engine="loop")
    mm.fit("mlp", moons, recipe=recipe, plan=plan, out=tmp_path / "run", posthoc=None)
    ensemble = mm.load(tmp_path / "run")
    begun = initial_ensemble(spec_of(ensemble, moons)).groups[0].population.to_tensors()
    left = ensemble.groups[0].population.to_tensors()
    assert begun.keys() == left.keys()
    assert all(torch.equal(begun[name], left[name]) for name in left)
    after, before = (
        kernel_diagnosis(ensemble, moons.test.prepared),
        kernels_before_run(ensemble, moons, moons.test.prepared),
    )
    np.testing.assert_allclose(after.alignment, before.alignment, atol=1e-6)  # a file sums its tensors in another order
    assert (after.stage, before.stage, after.correlation) == ("after", "before", before.correlation)
    planned = kernels_before("mlp", moons, recipe=recipe, plan=plan)
    np.testing.assert_array_equal(planned.alignment, before.alignment)
    assert planned.regime == before.regime


def test_a_run_that_began_otherwise_is_not_made_up(moons):
    ensemble = mm.fit(
        "mlp", moons, recipe="batch-ensemble", plan=mm.Plan(members=2, epochs=1, engine="loop"), posthoc=None
    )
    other = replace(ensemble, recipe=shared("rank-one:bias=shared"))
    with pytest.raises(mm.Failure, match=r"of another version, with other initial members: 'head\.bias'"):
        kernels_before_run(other, moons, moons.test.prepared)


def test_ensembles_trained_elsewhere_have_no_beginning(moons):
    ensemble = mm.Ensemble.from_models([nn.Linear(2, 2), wide()])
    found = kernel_diagnosis(ensemble, moons.test.prepared)
    assert (found.members, found.regime.tangent_ratio, found.shares) == (2, 0.0, False)
    with pytest.raises(
        mm.Misuse, match="the ensemble was not trained by this library: its initial members are unknown"
    ):
        kernels_before_run(ensemble, moons, moons.test.prepared)


def test_one_member_has_nobody_to_compare_with(moons):
    with pytest.raises(mm.Misuse, match="the ensemble has 1 member: kernels between members need at least 2"):
        kernels_before("mlp", moons, recipe="single")
    with pytest.raises(mm.Misuse, match="kernels between members need at least 2"):
        kernel_diagnosis(mm.Ensemble.from_models([nn.Linear(2, 2)]), moons.test.prepared)


def test_inputs_are_drawn_by_the_seed():
    x = torch.arange(100.0)[:, None]
    assert torch.equal(subset(x, 7, 1), subset(x, 7, 1))
    assert not torch.equal(subset(x, 7, 1), subset(x, 7, 2))
    assert len(set(subset(x, 7, 1).flatten().tolist())) == 7
    assert subset(x, 100, 1) is x
    with pytest.raises(mm.Misuse, match="inputs=0: need at least 1"):
        subset(x, 0, 1)


def test_small_matrices_by_hand():
    gram = torch.tensor([[4.0, 2.0], [2.0, 9.0]], dtype=torch.float64)
    assert ratio(gram) == pytest.approx(2 / 6.5)
    torch.testing.assert_close(cosines(gram), torch.tensor([[1, 1 / 3], [1 / 3, 1]], dtype=torch.float64))
    line = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    assert mean_correlation(torch.stack([line, 5 + 3 * line])) == pytest.approx(1.0)
    assert mean_correlation(torch.stack([line, -line])) == pytest.approx(-1.0)


def case(how: str, tangent: float, *, members: int = 8, covariance: float = 0.5, **known: object) -> KernelDiagnosis:
    """A diagnosis with this ratio, made up."""
    numbers = {
        "inputs": 4,
        "correlation": 0.0,
        "own_fraction": 0.1,
        "shares": True,
        "layer": "head.weight",
        "width": 128,
    }
    found = regime(covariance, tangent, members)
    return KernelDiagnosis("before", shared(how), regime=found, alignment=np.eye(members), **{**numbers, **known})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (case("rank-one", 0.001), "use gamma=M: with gamma=1 shared weights learn 8 times slower than alone"),
        (case("rank-one:gamma=smooth", 0.001), "gamma=smooth is right: a member learns as fast as a separate network"),
        (case("rank-one", 0.9), "gamma=1 is right"),
        (case("rank-one", 0.3), "gamma=1 is right, on the slow side: gamma=2.6 would be as fast as a separate network"),
        (
            case("rank-one:gamma=M", 0.9),
            "use gamma=1: with gamma=M members' steps add up to 7.3 times a separate network's",
        ),
        (case("rank-one", 0.05), "use gamma=5.9: with gamma=1 shared weights learn 5.9 times slower"),
        (case("rank-one:gamma=M", 0.05), "gamma=M is right"),
        (case("rank-one:gamma=M", -1 / 7), "no gamma helps: members' steps cancel"),
    ],
)
def test_which_gamma_is_right(found: KernelDiagnosis, words: str):
    assert found.advice == (words,)
    assert found.regime.gamma == smooth_gamma(8, found.regime.tangent_ratio)


def test_what_else_there_is_to_say():
    adam = case("rank-one:gamma=M", 0.0, optimizer="adam")
    assert adam.advice[1].startswith("with adam gamma has almost no effect")
    found = kernels_before("mlp", "two-moons", recipe="batch-ensemble", members=3)
    assert found.optimizer == "adam"  # the default
    tied = case("rank-one-uv:init=rademacher", 0.08)
    assert tied.advice[0].endswith("but the shared bias couples them: write bias=own")
    crowded = case("rank-one:gamma=M", 0.0, members=32)
    assert crowded.slowest == pytest.approx(0.25)  # (1 - sqrt(32 / 128))²
    assert crowded.advice[1] == (
        "32 members in 128 channels (inputs of head.weight): some combination of members learns at 0.25 of the usual "
        "speed; a wider network helps"
    )
    full = case("rank-one:gamma=M", 0.0, members=32, width=16)
    assert "some combination of members cannot learn at all" in full.advice[1]
    against = case("rank-one:gamma=M", -0.05)
    assert against.verdict == (
        "between: members counteract each other; steps of the others undo 0.35 of a member's own"
    )
    other = replace(case("rank-one", 1.0, covariance=1.0), recipe=make_recipe("deep-ensemble", sharing="head"))
    assert other.advice == (
        "sharing head leaves members nothing that distinguishes them: write sharing rank-one, or own",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "sharing"),
    [("batch-ensemble", "rank-one-uv"), ("batch-ensemble", "rank-one:init=sign_0.75"), ("mask-ensemble", None)],
)
def test_wide_networks_tend_to_the_limit_of_infinite_width(digits, recipe, sharing):
    """Mean over initialisations of networks of 512 neurons: off by chance of about 1 / sqrt(N), a few per cent."""

    def net() -> nn.Module:
        layers = [nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
        return nn.Sequential(nn.Flatten(), *layers)

    chosen = make_recipe(recipe) if sharing is None else shared(sharing)
    found = [kernels_before(net, digits, recipe=chosen, members=6, seed=seed, inputs=6) for seed in range(3)]
    limit = kernels_at_infinite_width(net, digits, recipe=chosen, members=6, inputs=6)
    assert limit.stage == "limit"
    mean = np.mean([each.regime.tangent_ratio for each in found])
    assert mean == pytest.approx(limit.regime.tangent_ratio, abs=0.035)
    mean = np.mean([each.regime.covariance_ratio for each in found])
    assert mean == pytest.approx(limit.regime.covariance_ratio, abs=0.07)  # of 27 initialisations and ten outputs
    assert limit.regime.gamma == smooth_gamma(6, limit.regime.tangent_ratio)
    np.testing.assert_allclose(pairs(limit), limit.regime.tangent_ratio)


def test_the_limit_is_refused_where_it_is_not_known(digits):
    with pytest.raises(mm.Misuse, match="known for chains of Linear and ReLU layers"):
        kernels_at_infinite_width("small-cnn", digits, recipe="batch-ensemble", members=3)
    with pytest.raises(mm.Misuse, match="known for members that differ by rank-one factors, or by fixed masks"):
        kernels_at_infinite_width("mlp", digits, members=3)
