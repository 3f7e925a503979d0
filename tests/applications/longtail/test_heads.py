"""Heads trained again or normalised, covariance lent by common classes, and weights of experts without labels."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import murmuration as mm
from murmuration.applications.longtail import (
    Transfer,
    agreement_weights,
    expert_weights,
    normalise_heads,
    retrain_heads,
    transfer_covariance,
)
from murmuration.applications.longtail.heads import TAUS
from murmuration.prediction.posthoc.losses import balanced_mean


@pytest.fixture(scope="module")
def blobs() -> mm.Data:
    """Two Gaussians, the second with a tenth of the training examples; validation and test are balanced."""
    generator = np.random.default_rng(0)
    y = np.arange(900) % 2
    x = generator.normal(size=(900, 3)) + 1.2 * y[:, None]
    return mm.open_data((x, y), imbalance=10, val=0.3, test=0.3)


@pytest.fixture(scope="module")
def plain(blobs: mm.Data) -> mm.Ensemble:
    return mm.fit("mlp", blobs, members=2, epochs=4, posthoc=None)


def balanced_accuracy(ensemble: mm.Ensemble, split) -> float:
    return balanced_mean((ensemble.predict(split, calibrated=False).predicted == split.y).double(), split.y)


def bodies(ensemble: mm.Ensemble) -> list[torch.Tensor]:
    own = ensemble.groups[0].population.own
    return [tensor for name, tensor in own.items() if not name.startswith("head.")]


def test_heads_are_trained_again_and_bodies_stay(blobs: mm.Data, plain: mm.Ensemble, tmp_path) -> None:
    before = {name: tensor.clone() for name, tensor in plain.groups[0].population.own.items()}
    again = retrain_heads(plain, blobs, epochs=4)
    assert all(torch.equal(one, other) for one, other in zip(bodies(plain), bodies(again), strict=True))
    weights = again.groups[0].population.own["head.weight"]
    assert not torch.equal(weights, before["head.weight"])
    assert not torch.equal(weights[0], weights[1])
    assert all(torch.equal(tensor, plain.groups[0].population.own[name]) for name, tensor in before.items())
    assert balanced_accuracy(again, blobs.test) > balanced_accuracy(plain, blobs.test) + 0.05
    again.save(tmp_path / "run")
    loaded = mm.load(tmp_path / "run")
    assert torch.equal(loaded.predict(blobs.test).outputs, again.predict(blobs.test).outputs)
    other = retrain_heads(plain, blobs, epochs=4)
    assert torch.equal(other.groups[0].population.own["head.weight"], weights)


def test_a_head_trained_again_is_that_of_a_frozen_backbone(blobs: mm.Data, plain: mm.Ensemble) -> None:
    """Two ways to one number: the body as a frozen backbone of a recipe, and its features as data."""
    alone = replace(
        plain, groups=(replace(plain.groups[0], population=plain.groups[0].population.take(torch.tensor([0]))),)
    )
    found = retrain_heads(alone, blobs, epochs=2)
    recipe = mm.make_recipe("last-layer-ensemble", sharing="backbone:frozen=yes")
    frozen = mm.fit(
        plain.member(0),
        blobs,
        recipe=recipe,
        members=1,
        epochs=2,
        sampler="balanced",
        posthoc=None,
        likelihood="cross-entropy",
    )
    x = blobs.test
    torch.testing.assert_close(frozen.predict(x).outputs, found.predict(x).outputs, rtol=0, atol=1e-6)


def test_rows_are_divided_by_a_power_of_their_length(blobs: mm.Data, plain: mm.Ensemble) -> None:
    own = plain.groups[0].population.own
    assert torch.equal(normalise_heads(plain, blobs, 0.0).groups[0].population.own["head.weight"], own["head.weight"])
    unit = normalise_heads(plain, blobs, 1.0).groups[0].population.own
    torch.testing.assert_close(unit["head.weight"].norm(dim=2), torch.ones(2, 2))
    torch.testing.assert_close(unit["head.bias"], own["head.bias"] / own["head.weight"].norm(dim=2))
    errors = {
        tau: balanced_accuracy(normalise_heads(plain, blobs, tau), blobs.val) for tau in (0.0, 0.5, 1.0, 1.5, 2.0)
    }
    chosen = normalise_heads(plain, blobs)
    assert balanced_accuracy(chosen, blobs.val) >= max(errors.values()) - 1e-9
    assert 0 <= chosen.manifest.entries["heads"]["tau"] <= 2


@pytest.mark.parametrize("recipe", ["bayes", "batch-ensemble", "feature-rde"])
def test_members_without_own_heads_are_refused(recipe: str, blobs: mm.Data) -> None:
    run = mm.fit("mlp", blobs, recipe=recipe, epochs=1, posthoc=None)
    for change in (retrain_heads, normalise_heads):
        with pytest.raises(mm.Misuse, match="expected members with heads of their own and point estimates"):
            change(run, blobs)


def test_draws_have_the_mean_of_the_class_and_the_covariance_of_its_neighbours() -> None:
    stream = torch.Generator().manual_seed(0)
    shapes = [torch.randn(3, 3, generator=stream, dtype=torch.float64) for _ in range(3)]
    centres = torch.tensor([[0.0, 0, 0], [9, 0, 0], [0, 9, 0]], dtype=torch.float64)
    common = [
        centre + torch.randn(200, 3, generator=stream, dtype=torch.float64) @ shape
        for centre, shape in zip(centres, shapes, strict=True)
    ]
    rare = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64) + torch.randn(6, 3, generator=stream, dtype=torch.float64)
    x, y = torch.cat([*common, rare]), torch.arange(4).repeat_interleave(torch.tensor([200, 200, 200, 6]))
    count = 20_000
    more, labels = transfer_covariance(x, y, Transfer(neighbours=1, up_to=count), seed=3)
    assert torch.equal(more[: len(x)], x)
    assert labels.bincount().tolist() == [200, 200, 200, count]
    drawn = more[len(x) :]
    expected = torch.cov(common[0].T)
    error = 4 * (expected.diagonal() / len(drawn)).sqrt()
    assert ((drawn.mean(0) - rare.mean(0)).abs() < error).all()
    variances = expected.diagonal()
    bound = 4 * ((variances[:, None] * variances + expected.square()) / len(drawn)).sqrt()  # of a sample covariance
    assert ((torch.cov(drawn.T) - expected).abs() < bound).all()
    pooled = transfer_covariance(x, y, Transfer(neighbours=None, up_to=count))[0][len(x) :]
    mean_covariance = torch.stack([torch.cov(each.T) for each in common]).mean(0)
    variances = mean_covariance.diagonal()
    bound = 4 * ((variances[:, None] * variances + mean_covariance.square()) / len(pooled)).sqrt()
    assert ((torch.cov(pooled.T) - mean_covariance).abs() < bound).all()
    again = transfer_covariance(x, y, Transfer(neighbours=1, up_to=count), seed=3)[0]
    assert torch.equal(again, more)
    with pytest.raises(mm.Misuse, match="no class has more than 500 examples, the largest 200"):
        transfer_covariance(x, y, Transfer(many=500))


def test_heads_are_trained_on_transferred_covariance(blobs: mm.Data, plain: mm.Ensemble) -> None:
    again = retrain_heads(plain, blobs, transfer=Transfer(many=50), sampler="instance", epochs=4)
    assert balanced_accuracy(again, blobs.test) > balanced_accuracy(plain, blobs.test) + 0.05


def test_the_expert_that_agrees_with_itself_gains_weight() -> None:
    """One expert is sure and stable, the others are noise: its weight grows until another falls to 0.05."""
    stream = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 4
    stable = 4 * torch.nn.functional.one_hot(labels, 4).double()
    views = [
        torch.stack([stable, *(2 * torch.randn(300, 4, generator=stream, dtype=torch.float64) for _ in range(2))])
        for _ in range(2)
    ]
    weights = agreement_weights(*(mm.Predictive(view, mm.Categorical(4)) for view in views))
    assert weights.sum().item() == pytest.approx(1)
    assert weights.argmax() == 0
    assert weights[0] > 0.8
    assert weights.min() >= 0.05
    same = mm.Predictive(views[0][:1].repeat(3, 1, 1), mm.Categorical(4))
    torch.testing.assert_close(agreement_weights(same, same), torch.full((3,), 1 / 3, dtype=torch.float64))


def test_weights_of_experts_on_images() -> None:
    data = mm.open_data("digits", imbalance=60)
    run = mm.fit("small-cnn", data, recipe="sade", epochs=1, posthoc=None)
    images = data.test.prepared[:60]
    weights = expert_weights(run, images)
    assert weights.shape == (3,)
    assert torch.equal(weights, expert_weights(run, images))
    mixture = replace(run.predict(data.test), weights=weights)
    torch.testing.assert_close(mixture.mean, torch.einsum("s,snk->nk", weights.to(mixture.probs), mixture.probs))
    with pytest.raises(mm.Misuse, match="expected images, and some"):
        expert_weights(run, images.flatten(1))
    with pytest.raises(mm.Misuse, match="unknown augmentation 'turn'"):
        expert_weights(run, images, ("turn",))


def test_the_power_is_that_of_the_least_balanced_error_not_of_the_plain_one(blobs: mm.Data, plain: mm.Ensemble) -> None:
    rare = (blobs.val.y == 1).nonzero().flatten()[:12]
    rows = torch.cat([(blobs.val.y == 0).nonzero().flatten(), rare])
    data, common_favoured = replace(blobs, val=blobs.val[rows]), copy.deepcopy(plain)
    own = common_favoured.groups[0].population.own
    own["head.weight"][:, 0] *= 4  # a long row: at tau = 0 every input is of the common class
    own["head.bias"] += torch.tensor([0.5, 1.0])

    def errors(tau: float) -> tuple[float, float]:
        wrong = normalise_heads(common_favoured, data, tau).predict(data.val, calibrated=False).predicted != data.val.y
        return balanced_mean(wrong.double(), data.val.y), float(wrong.double().mean())

    by_tau = {tau: errors(tau) for tau in TAUS}
    balanced, common = (min(TAUS, key=lambda tau: by_tau[tau][kind]) for kind in (0, 1))
    assert balanced != common
    assert normalise_heads(common_favoured, data).manifest.entries["heads"]["tau"] == balanced
