"""The weight of complexity beside the data: sums, limits, and a posterior that is known exactly."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from murmuration.core.weights.elbo import ELBO, batch_weight, reduce_losses, warmup_factor
from murmuration.core.weights.gaussian import softplus_inverse
from murmuration.core.weights.priors import gaussian_kl
from murmuration.system.errors import Misuse

X, Y, NOISE = (torch.tensor(v, dtype=torch.float64) for v in ((1.0, 2.0, -1.0), (0.9, 2.2, -1.1), 0.5))
EVIDENCE = -2.899612


@pytest.mark.parametrize("weighting", ["uniform", "blundell"])
@pytest.mark.parametrize("batches", [1, 2, 188, 5000])
def test_an_epoch_bears_its_complexity_once(weighting, batches):
    total = math.fsum(batch_weight(weighting, index, batches) for index in range(batches))
    assert total == pytest.approx(1, abs=1e-12)
    bound = ELBO(640, batches, 8, beta=0.5, weighting=weighting)
    weights = [bound.kl_weight(7 * batches + index) for index in range(batches)]
    assert math.fsum(weights) == pytest.approx(0.5 * batches / 640, rel=1e-12)  # the mean convention: M / N times beta


def test_of_four_batches_each_bears_twice_what_the_next_one_does():
    assert [15 * batch_weight("blundell", index, 4) for index in range(4)] == pytest.approx([8, 4, 2, 1], rel=1e-15)
    assert [batch_weight("uniform", index, 4) for index in range(4)] == [0.25] * 4


@pytest.mark.parametrize("epochs", [1, 2, 3, 4, 7, 100])
def test_warming_up_begins_at_nothing_and_ends(epochs):
    quarter = epochs // 4
    assert warmup_factor(0, epochs) == (0 if quarter else 1)
    assert warmup_factor(quarter, epochs) == 1
    assert all(warmup_factor(e, epochs) <= warmup_factor(e + 1, epochs) for e in range(epochs))
    assert warmup_factor(0, epochs, 0.0) == 1
    assert [warmup_factor(epoch, 16) for epoch in range(6)] == [0, 0.25, 0.5, 0.75, 1, 1]


def test_the_tighter_bound_is_never_above_the_other():
    losses = torch.rand(5, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 4
    assert (reduce_losses(losses, "log-mean-exp") <= reduce_losses(losses, "elbo")).all()
    torch.testing.assert_close(
        reduce_losses(losses, "log-mean-exp"), -(-losses).exp().mean(0).log(), rtol=1e-12, atol=0
    )
    assert torch.equal(reduce_losses(losses[:1], "elbo"), reduce_losses(losses[:1], "log-mean-exp"))
    with pytest.raises(Misuse, match="unknown reduction 'mean'"):
        reduce_losses(losses, "mean")


def fit(mean: Tensor, std: Tensor) -> Tensor:
    """The expected log likelihood of one weight, under noise of known deviation."""
    expected = ((Y - mean * X).square() + std.square() * X.square()) / (2 * NOISE**2)
    return -(expected + 0.5 * torch.log(2 * math.pi * NOISE**2)).sum()


def elbo(mean: Tensor, std: Tensor) -> Tensor:
    """Exact, under N(0, 1)."""
    return fit(mean, std) - gaussian_kl(mean, std, 0.0, 1.0)


def reversed_bound(mean: Tensor, std: Tensor) -> Tensor:
    """With the divergence of the prior from the posterior instead."""
    return fit(mean, std) - gaussian_kl(torch.zeros_like(mean), torch.ones_like(std), mean, std)


def test_the_bound_touches_the_evidence_at_the_posterior():
    best = elbo(torch.tensor(1.024, dtype=torch.float64), torch.tensor(0.2, dtype=torch.float64)).item()
    covariance = NOISE**2 * torch.eye(3, dtype=torch.float64) + torch.outer(X, X)
    evidence = torch.distributions.MultivariateNormal(torch.zeros(3, dtype=torch.float64), covariance).log_prob(Y)
    assert best == pytest.approx(evidence.item(), abs=1e-12)
    assert best == pytest.approx(EVIDENCE, abs=5e-7)
    for mean, std in ((1.0, 0.2), (1.024, 0.25), (0.0, 1.0), (1.1, 0.1)):
        assert elbo(torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)).item() < best
    means, stds = torch.linspace(-2, 4, 121, dtype=torch.float64), torch.logspace(-3, 1, 121, dtype=torch.float64)
    elsewhere = torch.func.vmap(elbo)(*(grid.flatten() for grid in torch.meshgrid(means, stds, indexing="ij")))
    assert elsewhere.max().item() < best


def descended(bound: Callable[[Tensor, Tensor], Tensor]) -> tuple[float, float]:
    """The mean and the std at which gradient descent on (mean, rho) ends, from the prior."""
    values = torch.stack([torch.tensor(0.0), softplus_inverse(torch.tensor(1.0))]).double().requires_grad_()
    for _ in range(2000):
        (gradient,) = torch.autograd.grad(-bound(values[0], torch.nn.functional.softplus(values[1])), values)
        with torch.no_grad():
            values -= 0.02 * gradient
    return values[0].item(), torch.nn.functional.softplus(values[1]).item()


def test_gradient_descent_finds_the_posterior():
    assert descended(elbo) == pytest.approx((1.024, 0.2), abs=1e-3)


def test_with_the_reversed_divergence_it_ends_elsewhere():
    """Its slopes are zero where m (24 + 1 / v) = 25.6 and 24 v^2 + v = 1 + m^2: at a std of 0.507."""
    mean, std = descended(reversed_bound)
    assert mean * (24 + 1 / std**2) == pytest.approx(25.6, rel=1e-6)
    assert 24 * std**4 + std**2 == pytest.approx(1 + mean**2, rel=1e-6)
    assert std == pytest.approx(0.507, abs=5e-4)


def expected_log_softmax(mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
    """A lower bound (...) of E log softmax(f)[y] for independent logits f ~ N(mean, variance) (..., K), without draws.

    m_y - logsumexp(m + v / 2) by Jensen's inequality: the objective of a variational last layer on point features,
    with m = W x and v = x^T S x + noise for each class (VBLL, Harrison et al. 2024). Equal where all variances are 0;
    far below where they are large beside 1.

    >>> found = expected_log_softmax(torch.tensor([1.0, 0, -1]), torch.tensor([0.5, 0.2, 0.1]), torch.tensor(0))
    >>> round(found.item(), 6)
    -0.605883
    """
    return mean.gather(-1, y.unsqueeze(-1)).squeeze(-1) - torch.logsumexp(mean + variance / 2, -1)


def test_the_closed_bound_of_a_last_layer():
    """By hand, and below what draws find; the draws' mean is about -0.483."""
    mean, variance = (torch.tensor(v, dtype=torch.float64) for v in ((1.0, 0.0, -1.0), (0.5, 0.2, 0.1)))
    found = expected_log_softmax(mean, variance, torch.tensor(0)).item()
    assert found == pytest.approx(-0.605883, abs=5e-7)
    eps = torch.randn(200_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = (mean + variance.sqrt() * eps).log_softmax(-1)[:, 0]
    assert drawn.mean().item() == pytest.approx(-0.483, abs=4 * drawn.std().item() / 200_000**0.5 + 5e-4)
    assert found < drawn.mean().item()


def test_the_closed_bound_is_exact_without_variance_and_never_above_the_truth():
    generator = torch.Generator().manual_seed(1)
    mean = 2 * torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    variance = 2 * torch.rand(2, 6, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (2, 6), generator=generator)
    exact = mean.log_softmax(-1).gather(-1, y[..., None])[..., 0]
    torch.testing.assert_close(expected_log_softmax(mean, torch.zeros_like(mean), y), exact, rtol=1e-12, atol=1e-12)
    eps = torch.randn(20_000, 2, 6, 4, generator=generator, dtype=torch.float64)
    drawn = (mean + variance.sqrt() * eps).log_softmax(-1).gather(-1, y.expand(20_000, 2, 6)[..., None])[..., 0]
    assert (expected_log_softmax(mean, variance, y) < drawn.mean(0) + 4 * drawn.std(0) / 20_000**0.5).all()
