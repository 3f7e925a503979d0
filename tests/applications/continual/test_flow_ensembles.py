"""Several flows in one stream: the mean of their predictions, and the task of an input in three ways."""

import math

import pytest
import torch
from torch import Tensor

from murmuration.applications.continual.ensembles import BayesianHCL, HCLEnsemble, by_task, statistics_by_task
from murmuration.applications.continual.flows import bayesian_layers, vector_flow
from murmuration.applications.continual.hcl import HCL, HCLConfig
from murmuration.applications.continual.latents import LatentClasses
from murmuration.system.errors import Misuse

CENTRES = torch.tensor([[[-4.0, 0.0], [4.0, 0.0]], [[0.0, -4.0], [0.0, 4.0]]])  # (task, label, 2)


def batch(task: int, seed: int, count: int = 32) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 2
    return CENTRES[task][y] + 0.5 * torch.randn(count, 2, generator=rng), y


def make(members: int, agnostic: bool = False) -> HCLEnsemble:
    learners = []
    for member in range(members):
        torch.manual_seed(member)
        config = HCLConfig(agnostic=agnostic and not member, settle=2, lr=3e-3, strength=10.0, seed=member)
        learners.append(HCL(vector_flow(2, couplings=2, hidden=8), config))
    return HCLEnsemble(learners)


@pytest.fixture(scope="module")
def trained() -> HCLEnsemble:
    ensemble = make(3)
    for step in range(40):
        ensemble.observe(*batch(step // 20, step), step // 20)
    return ensemble


def test_one_flow_is_the_flow(trained: HCLEnsemble) -> None:
    """The nearest mean of one flow is the class of largest probability."""
    first = trained.learners[0]
    x = torch.cat([batch(task, 99)[0] for task in (0, 1)])
    for found, expected in zip(HCLEnsemble([first]).classify(x), first.classify(x), strict=True):
        assert torch.equal(found, expected)


def test_predictions_are_means_over_flows(trained: HCLEnsemble) -> None:
    x, y = batch(1, 99)
    labels, tasks = trained.classify(x)
    assert (labels == y).float().mean() > 0.95
    assert (tasks == 1).float().mean() > 0.95
    predictive = trained.predict(x)
    assert predictive.outputs.shape == (3, 32, 4)
    far = trained.predict(torch.zeros(1, 2))  # between all classes
    assert float(far.mutual_information[0]) > float(predictive.mutual_information.mean())


def test_tasks_are_identified(trained: HCLEnsemble) -> None:
    for by, least in (("density", 0.95), ("typicality", 0.95), ("disagreement", 0.5)):
        rates = [(trained.identify(batch(task, 99)[0], by) == task).float().mean() for task in (0, 1)]
        assert sum(rates) / 2 >= least, by
    with pytest.raises(Misuse, match="unknown identification 'guess'"):
        trained.identify(torch.zeros(1, 2), "guess")


def test_densities_of_tasks_are_mixtures_of_their_classes(trained: HCLEnsemble) -> None:
    means = torch.tensor([[0.0], [2.0], [5.0]])
    classes = LatentClasses(means, torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]))
    z, log_det = torch.tensor([[1.0]]), torch.tensor([0.5])
    found = by_task(classes, z, log_det, [0, 1])[0]
    normal = torch.distributions.Normal(means[:, 0], 1.0).log_prob(torch.tensor(1.0))
    torch.testing.assert_close(found[0, 1], (normal[:2].exp().mean()).log())
    torch.testing.assert_close(found[1], torch.stack([normal[2] + 0.5, normal[2], torch.tensor(0.5)]))
    assert statistics_by_task(trained.learners[0], batch(0, 1)[0], [0, 1]).shape == (32, 2, 3)


def test_the_first_flow_finds_the_tasks() -> None:
    ensemble = make(2, agnostic=True)
    x, y = batch(0, 0)
    for step in range(4):
        ensemble.observe(*batch(0, step))
    ensemble.observe(x, y + 2)  # labels that task 0 does not have
    assert [learner.task for learner in ensemble.learners] == [1, 1]
    with pytest.raises(Misuse, match="all but the first with agnostic=False"):
        HCLEnsemble([])


def bayesian(members: int = 3) -> BayesianHCL:
    torch.manual_seed(0)
    flow = vector_flow(2, couplings=2, hidden=8, bayesian=True)
    return BayesianHCL(HCL(flow, HCLConfig(agnostic=False, settle=2, lr=3e-3, strength=10.0)), members)


def test_bayesian_coupling_nets_begin_at_the_identity_and_their_prior() -> None:
    """The divergence is that of two Gaussians with equal means: log(1 / r) + (r^2 - 1) / 2 a weight, r = 0.01."""
    flow = bayesian().learner.flow
    x, _ = batch(0, 0)
    z, log_det = flow(x)
    assert torch.equal(z, x)
    assert not log_det.any()
    layers = bayesian_layers(flow)
    weights = sum(layer.mean.numel() for layer in layers)
    expected = weights * (math.log(100) + (1e-4 - 1) / 2)
    assert sum(layer.divergence() for layer in layers).item() == pytest.approx(expected, rel=1e-4)
    for layer in layers:
        layer.redraw(torch.Generator().manual_seed(0))
    z, log_det = flow(x)
    assert not torch.equal(z, x)
    torch.testing.assert_close(flow.inverse(z), x, atol=1e-5, rtol=0)
    jacobian = torch.autograd.functional.jacobian(lambda one: flow(one[None])[0][0], x[0])
    torch.testing.assert_close(jacobian.det().abs().log(), log_det[0], atol=1e-5, rtol=0)


def test_draws_of_a_bayesian_flow_tell_tasks_apart() -> None:
    ensemble = bayesian()
    for step in range(40):
        losses = ensemble.observe(*batch(step // 20, step), step // 20)
    assert losses["divergence"] > 0
    x, y = batch(1, 99)
    labels, tasks = ensemble.classify(x)
    assert (labels == y).float().mean() > 0.95
    assert (tasks == 1).float().mean() > 0.95
    assert torch.equal(ensemble.predict(x).outputs, ensemble.predict(x).outputs)
    assert ensemble.predict(x).outputs.std(0).max() > 0
    assert (ensemble.identify(x, "density") == 1).float().mean() > 0.95
    other = bayesian()
    other.restore(ensemble.state())
    assert torch.equal(other.predict(x).outputs, ensemble.predict(x).outputs)
    with pytest.raises(Misuse, match="a flow with Bayesian coupling nets"):
        BayesianHCL(make(1).learners[0], 3)
