"""Losses against torch, closed forms and finite differences."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.likelihoods import (
    Categorical,
    Focal,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    MultiLabel,
    Quantiles,
    likelihood_from_json,
)
from murmuration.likelihoods.base import member_losses
from murmuration.system.errors import Misuse

MEMBERS, EXAMPLES, CLASSES = 2, 7, 4
WEIGHTS = (0.5, 1.0, 2.0, 4.0)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labels() -> Tensor:
    return torch.arange(EXAMPLES).expand(MEMBERS, -1) % CLASSES


def rows(losses: Tensor) -> Tensor:
    """Losses of all members and examples, one after another."""
    return losses.reshape(-1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_cross_entropy_is_that_of_torch(smoothing: float, weights: tuple[float, ...] | None) -> None:
    outputs, y = drawn(MEMBERS, EXAMPLES, CLASSES), labels()
    found = Categorical(CLASSES, class_weight=weights, label_smoothing=smoothing).loss(outputs, y)
    given = None if weights is None else torch.tensor(weights).double()
    settings = {"weight": given, "label_smoothing": smoothing}
    expected = F.cross_entropy(outputs.flatten(0, 1), rows(y), reduction="none", **settings)
    torch.testing.assert_close(rows(found), expected, atol=1e-14, rtol=0)
    mean = F.cross_entropy(outputs.flatten(0, 1), rows(y), **settings)  # divided by the sum of the weights
    factor = 1.0 if given is None else given[rows(y)].mean()
    torch.testing.assert_close(found.mean() / factor, mean, atol=1e-14, rtol=0)


def test_label_smoothing_is_the_mean_over_a_softened_label() -> None:
    outputs, y = drawn(EXAMPLES, CLASSES), labels()[0]
    target = 0.9 * F.one_hot(y, CLASSES).double() + 0.1 / CLASSES
    expected = -(target * outputs.log_softmax(-1)).sum(-1)
    torch.testing.assert_close(Categorical(CLASSES, label_smoothing=0.1).loss(outputs, y), expected, atol=1e-14, rtol=0)


def test_the_focal_loss_is_its_formula_and_cross_entropy_at_gamma_zero() -> None:
    outputs, y = drawn(EXAMPLES, CLASSES), labels()[0]
    p = outputs.softmax(-1).gather(-1, y[:, None])[:, 0]
    torch.testing.assert_close(Focal(CLASSES, 1.5).loss(outputs, y), -((1 - p) ** 1.5) * p.log(), atol=1e-14, rtol=0)
    assert torch.equal(Focal(CLASSES, 0.0).loss(outputs, y), Categorical(CLASSES).loss(outputs, y))
    weighted = Focal(CLASSES, 1.5, class_weight=WEIGHTS).loss(outputs, y)
    expected = torch.tensor(WEIGHTS).double()[y] * Focal(CLASSES, 1.5).loss(outputs, y)
    torch.testing.assert_close(weighted, expected, atol=1e-14, rtol=0)
    sure = torch.tensor([[200.0, 0.0]], requires_grad=True)  # 1 - p is 0 in float32
    assert torch.autograd.grad(Focal(2, 0.5).loss(sure, torch.tensor([0])).sum(), sure)[0].isfinite().all()


def test_the_loss_of_labels_is_the_sum_of_binary_cross_entropies() -> None:
    outputs = drawn(MEMBERS, EXAMPLES, 3)
    y = (drawn(MEMBERS, EXAMPLES, 3, seed=1) > 0).double()
    expected = sum(F.binary_cross_entropy(outputs[..., k].sigmoid(), y[..., k], reduction="none") for k in range(3))
    torch.testing.assert_close(MultiLabel(3).loss(outputs, y), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(MultiLabel(3).log_prob(outputs, y[0])[0], -expected[0], atol=1e-12, rtol=0)
    weighted = F.binary_cross_entropy_with_logits(outputs, y, pos_weight=torch.tensor([1.0, 2, 3]), reduction="none")
    torch.testing.assert_close(MultiLabel(3, (1, 2, 3)).loss(outputs, y), weighted.sum(-1), atol=1e-12, rtol=0)


@pytest.mark.parametrize("learned", [True, False])
def test_the_loss_of_a_gaussian_is_the_density_in_the_units_of_the_target(learned: bool) -> None:
    units = (3.0, -1.0), (0.2, 50.0)
    likelihood = HeteroscedasticGaussian(*units) if learned else Gaussian(0.7, *units)
    outputs, y = drawn(MEMBERS, EXAMPLES, likelihood.width), 10 * drawn(EXAMPLES, 2, seed=1)
    mean, var = likelihood.mean_var(outputs)
    expected = -torch.distributions.Normal(mean, var.sqrt()).log_prob(y).sum(-1)
    shift, scale = (torch.tensor(each, dtype=torch.float64) for each in units)
    exact = (y - shift) / scale
    torch.testing.assert_close(likelihood.loss(outputs, exact.expand(MEMBERS, -1, -1)), expected, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(likelihood.log_prob(outputs, y), -expected, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(likelihood.encode(y), exact.float(), atol=0, rtol=0)
    if not learned:
        torch.testing.assert_close(var, torch.full_like(var, 0.49), atol=1e-14, rtol=0)


def test_the_pinball_loss_is_that_of_sklearn() -> None:
    from sklearn.metrics import mean_pinball_loss

    levels, y, outputs = (0.1, 0.5, 0.8), drawn(EXAMPLES, 2, seed=1), drawn(1, EXAMPLES, 6)
    likelihood = Quantiles(levels, (0.0, 0.0), (1.0, 1.0))
    quantiles = outputs[0].view(EXAMPLES, 2, 3)
    expected = [mean_pinball_loss(y, quantiles[..., i], alpha=level) for i, level in enumerate(levels)]
    assert likelihood.loss(outputs, y[None]).mean().item() == pytest.approx(2 * np.mean(expected), rel=1e-12)


def test_the_minimiser_of_the_pinball_loss_is_the_quantile() -> None:
    """For a constant the subgradient vanishes at the order statistic: level * n lies strictly between two ranks."""
    y, levels = drawn(101, 1, seed=3), (0.1, 0.5, 0.9)
    likelihood, ordered = Quantiles(levels, (0.0,), (1.0,)), y[:, 0].sort().values
    expected = torch.stack([ordered[math.ceil(level * len(y)) - 1] for level in levels])

    def loss(quantiles: Tensor) -> float:
        return likelihood.loss(quantiles.expand(1, len(y), 3), y[None]).mean().item()

    for k in range(3):
        for other in ordered:
            moved = expected.clone()
            moved[k] = other
            assert loss(expected) <= loss(moved) + 1e-15


def losses_of() -> dict[str, tuple[Likelihood, Tensor]]:
    values = drawn(EXAMPLES, 2, seed=4)
    return {
        "weighted": (Categorical(CLASSES, class_weight=WEIGHTS, label_smoothing=0.2), labels()[0]),
        "softplus": (Categorical(CLASSES, "softplus", label_smoothing=0.2), labels()[0]),
        "focal": (Focal(CLASSES, 2.0, class_weight=WEIGHTS), labels()[0]),
        "labels": (MultiLabel(4, WEIGHTS), (drawn(EXAMPLES, 4, seed=5) > 0).double()),
        "gaussian": (Gaussian(0.5, (1.0, 2.0), (3.0, 0.5)), values),
        "heteroscedastic": (HeteroscedasticGaussian((1.0, 2.0), (3.0, 0.5)), values),
        "quantiles": (Quantiles((0.1, 0.9), (1.0, 2.0), (3.0, 0.5)), values),
    }


@pytest.mark.parametrize("name", losses_of())
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    likelihood, y = losses_of()[name]
    outputs = drawn(1, EXAMPLES, likelihood.width, seed=2).requires_grad_()
    weight = torch.linspace(0.1, 2, EXAMPLES).double()[None]
    assert torch.autograd.gradcheck(lambda given: likelihood.loss(given, y[None], weight), outputs)
    assert torch.equal(likelihood.loss(outputs, y[None], weight), likelihood.loss(outputs, y[None]) * weight)
    again = likelihood_from_json(json.loads(json.dumps(likelihood.to_json())))
    assert again == likelihood


def test_targets_far_from_zero_keep_their_digits() -> None:
    y = 1.7e9 + 10 * torch.linspace(-2, 2, 41, dtype=torch.float64)[:, None]
    likelihood = Quantiles().for_targets(y)
    for other in (HeteroscedasticGaussian().for_targets(y), Gaussian(2.0).for_targets(y)):
        assert torch.equal(other.encode(y), likelihood.encode(y))
    np.testing.assert_allclose(likelihood.encode(y), (y - 1.7e9) / y.std(correction=0), atol=1e-6)
    assert likelihood.encode(y).dtype == torch.float32
    plain = torch.randn(3, 1)
    assert Gaussian(1.0).encode(plain) is plain


def test_validation_is_weighted_by_sample_weights_and_not_by_class_weights() -> None:
    outputs, y = drawn(3, EXAMPLES, CLASSES), labels()[0]
    plain = Categorical(CLASSES).validate(outputs, y)
    assert Categorical(CLASSES, class_weight=WEIGHTS, label_smoothing=0.3).validate(outputs, y) == plain
    weight = torch.ones(EXAMPLES)
    weight[2] = 2.0
    twice = torch.cat([torch.arange(EXAMPLES), torch.tensor([2])])
    found, expected = (
        Categorical(CLASSES).validate(outputs, y, weight),
        Categorical(CLASSES).validate(outputs[:, twice], y[twice]),
    )
    assert found["val_nll"] == pytest.approx(expected["val_nll"], rel=1e-12)
    assert found["ensemble"] == pytest.approx(expected["ensemble"], rel=1e-12)


class Simple(Likelihood):
    """A loss without weights and members."""

    task = "regression"
    width = 1

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return (outputs - y).abs().sum(-1)


def test_a_loss_without_weights_and_members_is_called_without_them() -> None:
    outputs, y = drawn(MEMBERS, EXAMPLES, 1), drawn(MEMBERS, EXAMPLES, 1, seed=1)
    weight, member = torch.rand(MEMBERS, EXAMPLES).double(), torch.arange(MEMBERS)
    expected = (outputs - y).abs().sum(-1)
    assert torch.equal(member_losses(Simple(), outputs, y, None, member), expected)
    assert torch.equal(member_losses(Simple(), outputs, y, weight, member), expected * weight)


def test_a_loss_of_another_shape_is_refused() -> None:
    class Summed(Simple):
        def loss(self, outputs: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
            return (outputs - y).abs().sum()

    with pytest.raises(Misuse, match=r"Summed.loss returned shape \(\): expected \(2, 7\), members and examples"):
        member_losses(Summed(), drawn(MEMBERS, EXAMPLES, 1), drawn(MEMBERS, EXAMPLES, 1), None, torch.arange(2))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Categorical(3, class_weight=(1.0, 2.0)), "class_weight of 2 numbers: expected 3"),
        (lambda: Categorical(2, class_weight=(1.0, -2.0)), "none negative"),
        (lambda: Categorical(2, class_weight="equal"), "class_weight 'equal'"),
        (lambda: Categorical(2, label_smoothing=1.0), "label_smoothing=1: expected"),
        (lambda: Focal(2, -1.0), "gamma=-1: expected"),
        (lambda: MultiLabel(3, (1.0,)), "positive_weight of 1 numbers: expected 3"),
        (lambda: Quantiles((0.5,)), "at least two"),
        (lambda: Quantiles((0.9, 0.1)), "increasing"),
        (lambda: Categorical(2).for_targets(torch.tensor([0, 2])), "expected labels 0 to 1"),
        (lambda: Categorical(3, class_weight="balanced").for_targets(torch.tensor([0, 2])), "class 1 has no training"),
        (lambda: MultiLabel(2).for_targets(torch.tensor([[0.0, 0.5]])), "a target of 0.5: expected zeros and ones"),
        (lambda: MultiLabel(2).for_targets(torch.zeros(5, 3)), r"shape \(5, 3\): expected \(examples, 2\)"),
        (lambda: Gaussian(1.0, targets=1).for_targets(torch.zeros(5, 2)), r"shape \(5, 2\): expected \(examples, 1\)"),
    ],
)
def test_settings_that_do_not_fit_are_refused(make, told: str) -> None:
    with pytest.raises(Misuse, match=told):
        make()


def test_balanced_class_weights_have_mean_one_over_the_training_examples() -> None:
    y = torch.tensor([0] * 6 + [1] * 3 + [2])
    found = Categorical(3, class_weight="balanced").for_targets(y)
    from sklearn.utils.class_weight import compute_class_weight

    np.testing.assert_allclose(found.class_weight, compute_class_weight("balanced", classes=np.arange(3), y=y.numpy()))
    assert torch.tensor(found.class_weight)[y].mean().item() == pytest.approx(1)
