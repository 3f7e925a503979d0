"""Four small networks in double precision, one batch, and a step whose move is its gradient."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from murmuration.core.coupling import COUPLINGS, Coupling
from murmuration.core.dynamics.optimizer import make_optimizer
from murmuration.core.engines import Engine, assemble
from murmuration.core.population import Population, populate
from murmuration.core.state import Batch, Probe, State, StepConfig
from murmuration.core.step import step
from murmuration.core.update import Updater
from murmuration.core.weights import POINT
from murmuration.likelihoods import Categorical
from murmuration.models.nets.dense import with_head
from murmuration.system.option_text import parse

MEMBERS, BATCH, INPUTS, CLASSES = 4, 6, 5, 3
ENGINES = {
    "loop": Engine("loop"),
    "stacked": Engine("stacked", stacked=True),
    "stacked, direct": Engine("stacked", stacked=True, direct=True),
    "threads": Engine("threads", workers=2),
    "threads-stacked": Engine("threads-stacked", workers=2, stacked=True),
    "threads-stacked, direct": Engine("threads-stacked", workers=2, stacked=True, direct=True),
}
SGD = Updater(make_optimizer("sgd", momentum=0.0))
EVERY = pytest.mark.parametrize("how", ENGINES.values(), ids=ENGINES)


def build(outputs: int = CLASSES) -> nn.Module:
    return with_head([nn.Linear(INPUTS, 4), nn.Tanh()], 4, outputs).double()


def data() -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(1)
    x = torch.randn(BATCH, INPUTS, generator=stream, dtype=torch.float64) * torch.linspace(0.5, 2, INPUTS)
    return x, torch.randint(CLASSES, (BATCH,), generator=stream)


def coupling_of(text: str, members: int = MEMBERS, **changed) -> Coupling:
    settings = parse(text, "coupling", COUPLINGS)
    assert settings is not None
    made = replace(settings, **changed).prepare(data()[0], members=members, batch=BATCH, epochs=1)
    assert made is not None
    return made


def start(shared: bool = False, make=build) -> State:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        population = populate(lambda _: make(), MEMBERS, (lambda name: name.startswith("head.")) if shared else None)
    optimizer = make_optimizer("sgd", momentum=0.0)
    active = torch.ones(population.members, dtype=torch.bool)
    return State(population, optimizer.init(population.own), optimizer.init(population.shared), active)


def batch(lr: float = 1.0) -> Batch:
    x, y = data()
    rows = [torch.as_tensor(part).expand(MEMBERS, *part.shape) for part in (x, y)]
    return Batch(lambda group: (rows[0][group], rows[1][group]), lr)


def method(coupling: Coupling | None, likelihood=None) -> StepConfig:
    return StepConfig(likelihood or Categorical(CLASSES), POINT, coupling, SGD)


def with_updater(config: StepConfig, **changed) -> StepConfig:
    return replace(config, updater=replace(config.updater, **changed))


def moved(
    state: State, how: Engine, chosen: StepConfig, given: Batch, make=build, probe: Probe | None = None
) -> dict[str, Tensor]:
    """The gradients (M, ...) that one step applies."""
    before = state.population.clone()
    with assemble(how, make()) as team:
        step(team, chosen, state, given, probe)
    return {name: before.own[name] - tensor for name, tensor in state.population.own.items()}


def networks(population: Population, make=build) -> list[nn.Module]:
    """The members as ordinary networks."""
    nets = [make() for _ in range(population.members)]
    for i, net in enumerate(nets):
        own = {name: tensor[i] for name, tensor in (*population.own.items(), *population.buffers.items())}
        net.load_state_dict({**own, **population.shared})
    return nets
