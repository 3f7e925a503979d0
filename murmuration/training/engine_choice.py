"""Choosing the engine for one network, by trial steps on copies of the members."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from murmuration.core.engines import Choice, Engine, assemble, choose, engine
from murmuration.core.population import populate
from murmuration.core.step import step
from murmuration.core.weights import POINT, Structure, run_members
from murmuration.runs.checkpoints import Progress
from murmuration.system.errors import Misuse
from murmuration.system.streams import Noise, kept_generators
from murmuration.training.batches import epoch_batches
from murmuration.training.plan import Plan
from murmuration.training.spec import TrainSpec

HEAVY = 0.5  # seconds: when one step of all members takes longer, a few members are enough to compare engines


def choose_engine(spec: TrainSpec, progress: Progress) -> Choice:
    """Choose the engine that the plan asks for; trial steps are made on copies of the members."""
    plan, module, name = spec.plan, spec.method.structure, engine_for_optimizer(spec.plan)
    if draws_globally(module, spec.data.train.prepared[:2]):
        return Choice(engine("loop"), "the net draws random numbers outside dropout, so members run one after another")
    own_members = len(spec.rows)
    config, batch = spec.method.step_config, epoch_batches(spec.train_split, plan, 0, spec.schedule, spec.rows)(0)

    @contextmanager
    def trial(candidate: Engine, members: int) -> Iterator[Callable[[], object]]:
        state = spec.method.init_state(progress.state.population.group(slice(members)).clone())
        with assemble(candidate, module) as team:
            yield lambda: step(team, config, state, batch)

    if name == "fastest":
        with trial(engine("loop"), 1) as one_step:
            one_step()
            start = time.perf_counter()
            one_step()
        if own_members * (time.perf_counter() - start) > HEAVY:  # then time grows in proportion to members anyway
            own_members = min(own_members, 2 * engine("threads").workers)
    return choose(name, lambda candidate: trial(candidate, own_members), plan.members, spec.ranks.cores)


def engine_for_optimizer(plan: Plan) -> str:
    """Return the engine that the plan asks for; a torch optimizer moves single members, so it cannot be stacked."""
    if not callable(plan.optimizer):
        return plan.engine
    name = "threads" if plan.engine in ("auto", "fastest") else plan.engine
    if engine(name).stacked:
        raise Misuse(f"engine={plan.engine} with an optimizer of your own, which moves single members: write loop")
    return name if plan.members > 1 else plan.engine


def draws_globally(module: nn.Module, x: Tensor) -> bool:
    """Whether a training pass takes numbers from torch's global generator that dropout interception does not cover."""
    population = populate(lambda _: module, 1)
    tensors = POINT.realise(population.own, {}, [Noise(0, 0)]).with_buffers(population.buffers)
    with kept_generators(), torch.no_grad():
        before = torch.get_rng_state()
        run_members(Structure(module).train(True), tensors, x.expand(1, *x.shape), [Noise(0, 0)], False)
        after = torch.get_rng_state()
    return not torch.equal(before, after)
