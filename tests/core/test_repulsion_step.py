"""Repulsive steps on every engine against naive references; learning rate 1, so a move is a gradient."""

import pytest
import torch
from naive_repulsion import Naive
from small_runs import (
    BATCH,
    ENGINES,
    EVERY,
    INPUTS,
    MEMBERS,
    batch,
    build,
    coupling_of,
    data,
    method,
    moved,
    networks,
    start,
)
from torch import Tensor, nn

from murmuration.core.coupling.estimators import ESTIMATORS
from murmuration.core.engines import Engine
from murmuration.core.population import Population
from murmuration.core.state import Batch, Probe
from murmuration.likelihoods import Gaussian

COUPLINGS = [f"weights:estimator={each}" for each in ("kde", "sge", "ssge", "blob", "svgd")]
COUPLINGS += [
    f"{space}:estimator={each}" for space in ("outputs", "features") for each in ("kde", "sge", "ssge", "blob")
]
COUPLINGS += [f"input-gradients:estimator={each}" for each in ("kde", "sge", "ssge", "blob")]
COUPLINGS += [
    "outputs:of=logits,prior=gaussian:0.3",
    "outputs:batch_fraction=0.5,prior=cauchy:0.2",
    "features:projection=2",
]
COUPLINGS += ["features:prior=gaussian:0.1,weight=0.7", "input-gradients:of=log-prob,bandwidth=all"]
COUPLINGS += [
    "input-gradients:batch_fraction=0.5",
    "input-gradients:lengthscales=pca",
    "weights:weight=2,loss_scale=linear:4",
]
COUPLINGS += ["input-gradients:batch_fraction=0.5,loss_scale=linear:4"]
COUPLINGS += ["input-gradients:lengthscales=tuned,alpha=0.4", "weights:estimator=svgd,loss_scale=linear:4,weight=3"]


def pca(weights) -> object:
    """The metric from the eigenvectors of the whole covariance."""
    x = data()[0]
    values, vectors = torch.linalg.eigh(x.T @ x / (len(x) - 1))
    return lambda s: (s @ vectors) * weights(values).sqrt()


METRICS = {"pca": lambda values: values, "tuned": lambda values: 1 / (0.6 + 0.4 / values)}
FOUND: dict[str, list[dict[str, Tensor]]] = {}


def expected(text: str, population: Population) -> list[dict[str, Tensor]]:
    """The naive answer, worked out once for all engines."""
    if text not in FOUND:
        coupling = coupling_of(text)
        naive = Naive(networks(population), *data(), coupling.repulsion, coupling.strength(0), coupling.loss_scale(0))
        lengthscales = getattr(coupling.space, "lengthscales", "")
        if lengthscales in METRICS:
            naive.metric = pca(METRICS[lengthscales])
        FOUND[text] = naive.gradients()
    return FOUND[text]


@EVERY
@pytest.mark.parametrize("measured", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "measured"])
@pytest.mark.parametrize("text", COUPLINGS)
def test_a_step_applies_the_naive_gradient(text: str, measured: bool, how: Engine):
    """Bound: 1e-9 of the largest gradient in double precision; 1e-5 where a metric is kept in single precision."""
    state = start()
    reference = expected(text, state.population)
    probe = Probe(measured)
    found = moved(state, how, method(coupling_of(text)), batch(), probe=probe)
    bound = 1e-5 if "lengthscales" in text else 1e-9
    for i, gradients in enumerate(reference):
        for name, gradient in gradients.items():
            torch.testing.assert_close(
                found[name][i], gradient, rtol=0, atol=bound * gradient.abs().max().item() + 1e-13
            )
    assert bool(probe.stats) is measured


@EVERY
def test_a_shared_head_gets_the_mean_gradient_of_the_losses(how: Engine):
    state = start(shared=True)
    before, coupling = state.population.clone(), coupling_of("features")
    found = moved(state, how, method(coupling), batch())
    reference = Naive(networks(before), *data(), coupling.repulsion, coupling.strength(0)).gradients()
    for name in ("head.weight", "head.bias"):
        mean = torch.stack([gradients[name] for gradients in reference]).mean(0)
        torch.testing.assert_close(before.shared[name] - state.population.shared[name], mean, rtol=0, atol=1e-12)
    for i, gradients in enumerate(reference):
        torch.testing.assert_close(found["body.0.weight"][i], gradients["body.0.weight"], rtol=0, atol=1e-11)


@EVERY
@pytest.mark.parametrize("text", ["weights", "outputs", "features", "input-gradients"])
def test_regression_is_repelled_as_classification_is(text: str, how: Engine):
    def make() -> nn.Module:
        return build(2)

    state, coupling, (x, _) = start(make=make), coupling_of(text), data()
    y = torch.sin(x[:, :2])
    naive = Naive(networks(state.population, make), x, y, coupling.repulsion, coupling.strength(0))
    reference = naive.gradients()
    given = Batch(lambda group: tuple(part.expand(MEMBERS, *part.shape)[group] for part in (x, y)), 1.0)
    likelihood = Gaussian(1.0, shift=(0.0, 0.0), scale=(1.0, 1.0))
    found = moved(state, how, method(coupling, likelihood), given, make)
    for i, gradients in enumerate(reference):
        for name, gradient in gradients.items():
            torch.testing.assert_close(
                found[name][i], gradient, rtol=0, atol=1e-9 * gradient.abs().max().item() + 1e-13
            )


@EVERY
def test_a_linear_function_feels_the_force_through_its_inputs(how: Engine):
    """F = X w, X square: the step is X' (d - r), d the slope of the loss and r the force, both by F."""

    def make() -> nn.Module:
        return nn.Linear(INPUTS, 1, bias=False).double()

    x = data()[0][:INPUTS]
    y = x[:, :1].sin()
    state, coupling = start(make=make), coupling_of("outputs:weight=0.3")
    functions = state.population.own["weight"][:, 0] @ x.T  # (M, B)
    r = ESTIMATORS["kde"](functions.unsqueeze(1), "rde").cotangents[:, 0]
    given = Batch(lambda group: tuple(part.expand(MEMBERS, *part.shape)[group] for part in (x, y)), 1.0)
    found = moved(state, how, method(coupling, Gaussian(1.0)), given, make)
    torch.testing.assert_close(found["weight"][:, 0], ((functions - y.T) / INPUTS + 0.3 * r) @ x, rtol=0, atol=1e-12)


def test_finite_differences_of_r_with_frozen_others_and_bandwidth():
    """The repulsion's part of a step is the slope of log sum_j k_ij by the member's own weights."""
    state, (x, y) = start(), data()
    coupling, nets = coupling_of("input-gradients"), networks(state.population)
    before = state.population.clone()
    with_force = moved(state, ENGINES["stacked"], method(coupling), batch())
    state.population.copy_members(before, torch.arange(MEMBERS))
    state.step = 0
    loss_alone = moved(state, ENGINES["stacked"], method(None), batch())
    naive = Naive(nets, x, y, coupling.repulsion)
    frozen = [naive.input_gradients(net, BATCH).detach() for net in nets]
    denominators = [[naive.denominator(frozen, j, b) for b in range(BATCH)] for j in range(MEMBERS)]
    c = torch.tensor(denominators, dtype=torch.float64)  # (M, B)

    def r(net: nn.Module) -> float:
        distances = (naive.input_gradients(net, BATCH).detach() - torch.stack(frozen)).square().sum(-1)  # (M, B)
        return (-distances / c).exp().mean(1).sum().log().item()

    for i, name, place in ((0, "body.0.weight", (1, 2)), (2, "head.weight", (0, 3)), (3, "body.0.bias", (1,))):
        weight = dict(nets[i].named_parameters())[name].data
        values = []
        for bump in (1e-6, -1e-6):
            kept = weight[place].clone()
            weight[place] += bump
            values.append(r(nets[i]))
            weight[place] = kept
        slope = (values[0] - values[1]) / 2e-6 / BATCH  # times the weight 1/B
        push = (with_force[name][i] - loss_alone[name][i])[place]
        assert push.item() == pytest.approx(slope, abs=1e-9)
