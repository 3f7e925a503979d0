"""The values of HCL's losses, on a flow that has moved, against formulas computed another way."""

import itertools

import torch
from hcl_factories import batch, learner, trained
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence
from torch.distributions.normal import Normal

from murmuration.applications.continual.flows import bayesian_layers, vector_flow
from murmuration.applications.continual.hcl import HCL, HCLConfig, Snapshot
from murmuration.applications.continual.latents import LatentClasses


def moved(replay: str) -> HCL:
    """A learner of the second task whose flow, classes and snapshot differ."""
    model = trained(learner(replay=replay, settle=2), steps=30)
    assert model.snapshot is not None
    assert model.classes.whitening is not None
    return model


def covariance(classes: LatentClasses) -> Tensor:
    """The covariance (D, D) of the classes: the inverse of W' W."""
    assert classes.whitening is not None
    return torch.linalg.inv(classes.whitening.double().T @ classes.whitening.double())


def log_density(model: HCL, x: Tensor, means: Tensor) -> Tensor:
    """Log densities (N,) of inputs: a Gaussian in latent space times the determinant of the Jacobian by autograd."""
    jacobians = torch.stack([torch.autograd.functional.jacobian(lambda v: model.flow(v[None])[0][0], row) for row in x])
    z = model.flow(x)[0].detach()
    latent = MultivariateNormal(means.double(), covariance(model.classes)).log_prob(z.double())
    return latent + jacobians.double().det().abs().log()


def test_the_likelihood_is_that_of_the_inputs():
    model = moved("none")
    x, y = batch(1, seed=1, count=16)
    z, log_det = model.flow(x)
    loss = model.losses(z, log_det, y)["likelihood"]
    means = model.classes.means[model.classes.of(y, 1)]
    torch.testing.assert_close(loss.double(), -log_density(model, x, means).mean() / 2, rtol=1e-5, atol=1e-5)


def replayed(model: HCL, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The inputs, latents and classes that the learner draws next."""
    assert model.snapshot is not None
    state = model.generator.get_state()
    drawn = model.snapshot.draw(count, model.generator)
    model.generator.set_state(state)
    return drawn


def test_functional_replay_is_a_distance_in_the_metric_of_the_classes():
    model = moved("functional")
    x, y = batch(1, seed=1, count=16)
    inputs, latents, _ = replayed(model, len(y))
    shift = (model.flow(inputs)[0] - latents).detach().double()
    expected = (shift @ torch.linalg.inv(covariance(model.classes)) * shift).sum(1).mean() / 2
    loss = model.losses(*model.flow(x), y)["replay"]
    assert float(expected) > 1e-3
    torch.testing.assert_close(loss.double(), expected, rtol=1e-4, atol=1e-7)


def test_generative_replay_is_the_likelihood_of_replayed_inputs():
    model = moved("generative")
    x, y = batch(1, seed=1, count=16)
    inputs, _, index = replayed(model, len(y))
    assert model.snapshot is not None
    pairs, now = model.snapshot.classes.pairs(), model.classes.pairs()
    means = torch.stack([model.classes.means[now.index(pairs[i])] for i in index.tolist()])
    loss = model.losses(*model.flow(x), y)["replay"]
    torch.testing.assert_close(loss.double(), -log_density(model, inputs, means).mean() / 2, rtol=1e-4, atol=1e-5)


def test_the_divergence_of_bayesian_layers_is_divided_by_the_examples_learned_from():
    torch.manual_seed(0)
    flow = vector_flow(2, couplings=2, hidden=8, bayesian=True)
    model = trained(HCL(flow, HCLConfig(agnostic=False, settle=2, replay="none")), tasks=(0,), steps=6)
    x, y = batch(0, seed=1, count=16)
    layers = bayesian_layers(model.flow)
    posteriors = [Normal(layer.mean, torch.nn.functional.softplus(layer.rho)) for layer in layers]
    priors = [Normal(layer.centre, layer.prior_std) for layer in layers]
    expected = sum(kl_divergence(*pair).sum() for pair in zip(posteriors, priors, strict=True)) / (4 * 64) / 2
    assert model.shown == 4 * 64  # two of six batches settled
    torch.testing.assert_close(model.losses(*model.flow(x), y)["divergence"], expected, rtol=1e-5, atol=0)


def test_classes_follow_the_statistics_every_so_many_batches():
    model = learner(settle=3, lr=1e-9)
    means = []
    for step in range(8):
        model.observe(*batch(0, seed=step), 0)
        means.append(model.classes.means.clone())
    assert [torch.equal(a, b) for a, b in itertools.pairwise(means[2:])] == [True, True, True, False, True]
    seen = [batch(0, seed=step) for step in range(6)]  # all batches before the renewal, which is at the seventh
    x, y = (torch.cat(parts) for parts in zip(*seen, strict=True))
    latents = model.flow(x)[0].detach()
    expected = torch.stack([latents[y == label].mean(0) for label in model.classes.labels.tolist()])
    torch.testing.assert_close(model.classes.means, expected, rtol=1e-4, atol=1e-4)


def test_tasks_of_unequal_size_are_replayed_alike():
    tasks, labels = torch.tensor([0, 1, 1, 1, 1]), torch.tensor([0, 0, 1, 2, 3])
    classes = LatentClasses(torch.zeros(5, 2), tasks, labels)
    index = Snapshot(vector_flow(2), classes, 100.0).draw(4000, torch.Generator().manual_seed(0))[2]
    shares = index.bincount(minlength=5) / len(index)
    error = 4 * (0.5 * 0.5 / 4000) ** 0.5  # four standard errors
    assert abs(float(shares[0]) - 0.5) < error
    torch.testing.assert_close(shares[1:], torch.full((4,), 0.125), rtol=0, atol=error)
