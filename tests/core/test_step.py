"""The step against naive references: explicit networks, one autograd graph, no engine."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from murmuration.core.coupling import Coupling, Repulsion, Space, SpaceInputs
from murmuration.core.coupling.estimators import Interaction
from murmuration.core.coupling.space import INPUTS as INPUTS_NEEDED
from murmuration.core.dynamics.optimizer import make_optimizer
from murmuration.core.engines import assemble, engine
from murmuration.core.population import Population, populate
from murmuration.core.state import Batch, State, StepConfig
from murmuration.core.step import step
from murmuration.core.update import Updater
from murmuration.core.weights import POINT
from murmuration.likelihoods import Categorical

MEMBERS, INPUTS, CLASSES = 4, 6, 3
ENGINES = [engine("loop"), engine("stacked"), engine("stacked", direct=True), engine("threads")]
ENGINES += [engine("threads-stacked", direct=True)]


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 5), nn.Tanh(), nn.Linear(5, CLASSES)).double()


def start(shared=None) -> State:
    torch.manual_seed(0)
    population = populate(lambda _: build(), MEMBERS, shared)
    optimizer = make_optimizer("sgd", momentum=0.0)
    active = torch.ones(MEMBERS, dtype=torch.bool)
    return State(population, optimizer.init(population.own), optimizer.init(population.shared), active)


def batch(lr: float = 0.1) -> Batch:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(MEMBERS, 8, INPUTS, generator=generator, dtype=torch.float64)
    y = torch.randint(CLASSES, (MEMBERS, 8), generator=generator)
    return Batch(lambda group: (x[group], y[group]), lr)


SGD = Updater(make_optimizer("sgd", momentum=0.0))


def method(coupling=None, gamma: float = 1.0) -> StepConfig:
    return StepConfig(Categorical(CLASSES), POINT, coupling, SGD, gamma=gamma)


def run(state: State, how, chosen: StepConfig, given: Batch) -> Tensor:
    with assemble(how, build()) as team:
        return step(team, chosen, state, given)


def explicit(population: Population, index: int) -> nn.Module:
    """Member `index` as an ordinary network."""
    net = build()
    tensors = {name: tensor[index].clone() for name, tensor in population.own.items()}
    net.load_state_dict({**tensors, **{name: tensor.clone() for name, tensor in population.shared.items()}})
    return net


@dataclass(frozen=True)
class OutputRepulsion(Space):
    """exp(-|s_i - s_j|^2 / 2) summed over the others, s = outputs; a stand-in space with a closed form."""

    def features(self, inputs: SpaceInputs) -> Tensor:
        return inputs.outputs.flatten(1)

    def repulsion(self, features: Tensor) -> Interaction:
        difference = features[:, None] - features[None]  # (M, M, D)
        kernel = (-0.5 * difference.square().sum(-1)).exp()
        return Interaction(-(kernel.unsqueeze(-1) * difference).sum(1), kernel)


@dataclass(frozen=True)
class InputGradientRepulsion(OutputRepulsion):
    """The same force between gradients of the summed outputs with respect to the inputs: needs a double backward."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset((INPUTS_NEEDED,))

    def features(self, inputs: SpaceInputs) -> Tensor:
        return torch.autograd.grad(inputs.outputs.sum(), inputs.x, create_graph=True)[0].flatten(1)


@pytest.mark.parametrize("how", ENGINES, ids=lambda e: f"{e.name}{'-direct' if e.direct else ''}")
def test_uncoupled_members_move_as_networks_trained_alone(how):
    state, given = start(), batch()
    before = state.population.clone()
    losses = run(state, how, method(), given)
    x, y = given.fetch(slice(MEMBERS))
    for i in range(MEMBERS):
        net = explicit(before, i)
        loss = nn.functional.cross_entropy(net(x[i]), y[i])
        loss.backward()
        assert losses[i].item() == pytest.approx(loss.item(), rel=1e-6)  # losses are reported in float32
        for name, parameter in net.named_parameters():
            moved = parameter.detach() - 0.1 * parameter.grad
            torch.testing.assert_close(state.population.own[name][i], moved, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("space", [OutputRepulsion(), InputGradientRepulsion()], ids=["outputs", "input gradients"])
@pytest.mark.parametrize("how", ENGINES, ids=lambda e: f"{e.name}{'-direct' if e.direct else ''}")
def test_a_cotangent_is_pulled_back_together_with_the_loss(how, space):
    """Reference: one graph over all members, the other members' signatures held constant."""
    state, given = start(), batch()
    before = state.population.clone()
    run(state, how, method(Coupling(Repulsion(space), space, weight=1.0)), given)
    x, y = given.fetch(slice(MEMBERS))
    nets = [explicit(before, i) for i in range(MEMBERS)]
    inputs = [x[i].clone().requires_grad_() for i in range(MEMBERS)]
    outputs = [net(value) for net, value in zip(nets, inputs, strict=True)]
    if isinstance(space, InputGradientRepulsion):
        pairs = zip(outputs, inputs, strict=True)
        shown = [torch.autograd.grad(o.sum(), i, create_graph=True)[0].flatten() for o, i in pairs]
    else:
        shown = [o.flatten() for o in outputs]
    for i, net in enumerate(nets):
        force = sum((-0.5 * (shown[i] - other.detach()).square().sum()).exp() for other in shown)
        loss = nn.functional.cross_entropy(outputs[i], y[i]) + force
        gradients = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True, materialize_grads=True)
        for (name, parameter), gradient in zip(net.named_parameters(), gradients, strict=True):
            moved = parameter.detach() - 0.1 * gradient
            torch.testing.assert_close(state.population.own[name][i], moved, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("gamma", [1.0, float(MEMBERS)])
@pytest.mark.parametrize("how", ENGINES, ids=lambda e: f"{e.name}{'-direct' if e.direct else ''}")
def test_shared_tensors_move_by_gamma_over_m_times_the_sum(how, gamma):
    state, given = start(shared=lambda name: name.startswith("0.")), batch()
    before = state.population.clone()
    run(state, how, method(gamma=gamma), given)
    x, y = given.fetch(slice(MEMBERS))
    total = torch.zeros_like(before.shared["0.weight"])
    for i in range(MEMBERS):
        net = explicit(before, i)
        nn.functional.cross_entropy(net(x[i]), y[i]).backward()
        total += net[0].weight.grad
    expected = before.shared["0.weight"] - 0.1 * gamma / MEMBERS * total
    torch.testing.assert_close(state.population.shared["0.weight"], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("how", ENGINES, ids=lambda e: f"{e.name}{'-direct' if e.direct else ''}")
def test_a_member_with_a_loss_that_is_not_finite_stands_still(how):
    state, given = start(), batch()
    state.population.own["0.weight"][2] = torch.inf
    before = state.population.clone()
    losses = run(state, how, method(), given)
    assert not losses[2].isfinite()
    assert state.active.tolist() == [True, True, False, True]
    assert "at step 0" in str(state.diverged[2])
    for name, tensor in state.population.own.items():
        assert torch.equal(tensor[2], before.own[name][2])
        assert not torch.equal(tensor[1], before.own[name][1])
