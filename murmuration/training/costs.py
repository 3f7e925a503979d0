"""`estimate_costs`: time, memory, disk and communication of a training run before it is paid for.

A few steps of a few members are made on the real network and batch, and scaled: seconds of a step are linear in the
members of a process, epochs and steps multiply them. What comes before the first step is timed as it is done here;
scores and the report of a command are a stated constant. Memory and disk are sums of tensors whose sizes are known;
communication is arithmetic on the sizes of what members exchange.
"""

import math
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from murmuration.core.coupling.space import OWN_WEIGHTS
from murmuration.core.dynamics import Dynamics, TrainTime, WeightPath
from murmuration.core.dynamics.base import keep_times
from murmuration.core.engines import Engine, Team, assemble, member_outputs
from murmuration.core.gradients import local_pass
from murmuration.core.population import Population
from murmuration.core.recipe import Recipe, make_recipe
from murmuration.core.step import step
from murmuration.models.nets.source import Net
from murmuration.system.errors import Misuse, require_integer
from murmuration.system.progress import html_table
from murmuration.system.streams import Noise
from murmuration.training import Progress, TrainSpec, begin, choose_engine
from murmuration.training.batches import epoch_batches
from murmuration.training.head_only import head_only_spec
from murmuration.training.plan import Plan, plan_for
from murmuration.training.resolve import resolve

# measured, see docs/results/costs.md
STOPPED_TABLES = "six tables of 178 to 5,000 rows took 2 to 20 % of the epochs of their defaults"
FEW = 8  # members that are measured, at most
WARM_UP, STEPS = 4, 7  # steps before those that are timed, for caches and captured operators; steps that are timed
INPUTS = 512  # validation examples of a timed forward pass, at most
FLOAT, COUNTS = 4, 16  # bytes of a number, and of the two counts that are summed with shared gradients
WEIGHTS = "(((M - m) x p + m x (P - p) + M^2) x 4 + (ranks - 1) x m) / every"
MIXED_WEIGHTS = "(3 x (M - m) x p + 2 x m x (P - p) + 2 x M^2) x 4 + 2 x (ranks - 1) x m"
FEWEST = 3  # members that a proposal keeps as long as it can
SHARES, SMALL_SHARES = (0.9, 0.8, 0.7, 0.6, 0.5), (0.4, 0.3, 0.2, 0.1, 0.05)  # of the epochs, in a proposal
Result = TypeVar("Result")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Seconds:
    """A time by the clock, and the processor time of all threads together."""

    wall: float
    cpu: float

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.wall + other.wall, self.cpu + other.cpu)

    def __mul__(self, times: float) -> "Seconds":
        return Seconds(self.wall * times, self.cpu * times)


NOTHING = Seconds(0.0, 0.0)
REPORT = Seconds(1.1, 1.1)  # scores with intervals, metrics.json and report.html of a few hundred test examples


@dataclass(frozen=True)
class Exchange:
    """What a rank receives from the others in one step, as a formula and in bytes."""

    what: str
    formula: str
    terms: dict[str, int]
    bytes_per_step: float


@dataclass(frozen=True)
class Probe:
    """Measurements of a few steps, and the sizes they showed."""

    engine: Engine
    steps: dict[int, Seconds]  # members -> median of a step
    passed: Seconds  # forward pass of one input by one member
    population: Population  # of the members measured
    opt_state: int  # bytes of the optimizer's state for a member
    activations: int  # bytes that a member's graph holds
    features: tuple[int, int] | None  # (B, R) of the coupling's space; None: no coupling
    first: Seconds = NOTHING  # first weights, choice of the engine, and what the first steps take more than others

    def step(self, members: int) -> Seconds:
        """Return the seconds of a step of this number of members, on the line through the measured ones."""
        sizes = sorted(self.steps)
        if members in self.steps or len(sizes) == 1:
            return self.steps[members] if members in self.steps else self.steps[sizes[0]] * (members / sizes[0])
        low, high = self.steps[sizes[0]], self.steps[sizes[-1]]
        slope = (high + low * -1) * (1 / (sizes[-1] - sizes[0]))
        seconds = high + slope * (members - sizes[-1])
        return Seconds(max(seconds.wall, low.wall / FEW), max(seconds.cpu, low.cpu / FEW))


@dataclass(frozen=True, repr=False)
class CostEstimate:
    """The predicted costs of a training run.

    Attributes:
        recipe: Name of the recipe.
        members: Number of members of all ranks.
        epochs: Number of epochs.
        steps_per_epoch: Steps per epoch.
        ranks: Number of processes that members are divided among.
        engine: Name of the engine.
        measured_members: Numbers of members whose steps were timed.
        step: Time of one step of a rank's members.
        training: Time of a rank: steps and validation.
        evaluation: Time of forward passes for post-hoc steps and test scores, on one process.
        memory: Bytes of a rank, by what they hold.
        disk: Bytes, by what they hold.
        exchanges: What a rank receives from the others in a step.
        start: Time to open the data, and of the imports of a command.
        first: Time of first weights, of the choice of the engine, and what the first steps take more than others.
        report: Time of the scores and the report of a command.
        patience: Epochs without improvement that end training earlier; None: all epochs are trained.
        of_table: Whether the data is a table or rows of numbers.
        proposal: Settings that fit the budget, if one was given.
    """

    recipe: str
    members: int
    epochs: int
    steps_per_epoch: int
    ranks: int
    engine: str
    measured_members: tuple[int, ...]
    step: Seconds  # of a rank's members
    training: Seconds  # of a rank: steps and validation
    evaluation: Seconds  # forward passes for post-hoc steps and test scores, on one process
    memory: dict[str, int]  # bytes of a rank, by what they hold
    disk: dict[str, int]  # bytes, by what they hold
    exchanges: tuple[Exchange, ...]
    start: Seconds = NOTHING  # opening of the data, and imports of a command
    first: Seconds = NOTHING  # first weights, choice of the engine, and what the first steps take more than others
    report: Seconds = NOTHING  # scores and report of a command
    patience: int | None = None  # early stopping
    of_table: bool = False
    proposal: "Proposal | None" = None

    @property
    def total(self) -> Seconds:
        return self.start + self.first + self.training + self.evaluation + self.report

    def __repr__(self) -> str:
        """Return the size of the run, its time, memory and disk in a few lines."""
        return "\n".join([self._title, *(f"  {name}: {text}" for name, text in self._rows().items())])

    def _repr_html_(self) -> str:
        return html_table(self._title, self._rows())

    @property
    def _title(self) -> str:
        size = f"{self.members} members, {self.epochs} epochs, {self.steps_per_epoch * self.epochs:,} steps"
        ranks = f", {self.ranks} processes" if self.ranks > 1 else ""
        return f"CostEstimate of {self.recipe}: {size}, engine {self.engine}{ranks}"

    def _rows(self) -> dict[str, str]:
        parts = {"total": self.total, "training": self.training, "a step": self.step}
        rows = {name: f"{part.wall:.3g} s by the clock, {part.cpu:.3g} s of CPU time" for name, part in parts.items()}
        sizes = {"memory of a process": self.memory, "disk": self.disk}
        rows |= {name: f"{sum(terms.values()) / 1e6:,.3g} MB" for name, terms in sizes.items()}
        return rows if self.proposal is None else {**rows, "proposal": str(self.proposal)}

    @property
    def caveat(self) -> str:
        """What early stopping makes of the time; empty without it."""
        if self.patience is None:
            return ""
        seen = f"; {STOPPED_TABLES}" if self.of_table else ""
        return f"at most: training stops after {self.patience} epochs without a better validation NLL{seen}"

    @property
    def bytes_per_step(self) -> float:
        """What a rank receives from the others in a step."""
        return sum(exchange.bytes_per_step for exchange in self.exchanges)

    @property
    def bytes_in_total(self) -> float:
        return self.bytes_per_step * self.steps_per_epoch * self.epochs

    def to_json(self) -> dict[str, Any]:
        record = {**asdict(self), "total": asdict(self.total), "caveat": self.caveat}
        record |= {"memory_bytes": sum(self.memory.values()), "disk_bytes": sum(self.disk.values())}
        return record | {"received_bytes_per_step": self.bytes_per_step, "received_bytes": self.bytes_in_total}


@dataclass(frozen=True)
class Proposal:
    """Settings whose predicted time is within a budget, and what was given up for it."""

    budget: float  # seconds
    recipe: str
    members: int
    epochs: int
    seconds: float
    given_up: str


def estimate_costs(
    net: Net | None = None,
    data: Any = "digits",
    *,
    recipe: str | Recipe = "deep-ensemble",
    plan: Plan | None = None,
    ranks: int = 1,
    budget: str | float | None = None,
    of_command: Seconds | None = None,
    **settings: Any,
) -> CostEstimate:
    """Estimate the time, memory, disk and communication of `fit` with the same arguments, from a few steps.

    Times are those of the machine as it is now, with whatever else runs on it. The estimate includes opening the data
    if
    it is opened here.

    Args:
        net: Network, as `fit` takes it.
        data: Data, as `fit` takes it.
        recipe: Name of a preset, or a `Recipe`.
        plan: Settings of training.
        ranks: Number of processes that members are divided among, each with a machine or GPU like this one to itself;
            the time of the exchange itself is not in the prediction.
        budget: A time such as "30m" or a number of seconds: the estimate then has a `proposal` of members, epochs and
            recipe that fit, and of what it gave up.
        of_command: The time that a command has taken so far: the estimate is then that of the command.
        **settings: Further keywords of `fit`.

    >>> estimate = estimate_costs("mlp", "two-moons", members=2, epochs=3)
    >>> estimate.members, estimate.epochs, estimate.bytes_per_step
    (2, 3, 0)
    """
    require_integer("ranks", ranks, 1)
    seconds = None if budget is None else parse_budget(budget)
    settings = {name: value for name, value in settings.items() if name not in ("out", "progress")}
    likelihood = settings.pop("likelihood", None)
    requested = {name: settings.get(name, getattr(plan, name, None)) for name in ("members", "batch_order")}
    settings |= {"trajectory": None}
    opening, run = timed(lambda: resolve(net, data, recipe, plan, settings, likelihood=likelihood))

    def make(other: Recipe) -> TrainSpec:
        """Return the specification that is trained: that of the heads alone on a frozen backbone."""
        own_plan = plan_for(other, run.plan, members=requested["members"] or 0, batch_order=requested["batch_order"])
        return head_only_spec(replace(run, recipe=other, plan=own_plan).spec()[0])

    spec = make(run.recipe)
    if ranks > spec.plan.members:
        raise Misuse(f"ranks={ranks} for {spec.plan.members} members: give at most {spec.plan.members}")
    probe = measure(spec, ranks)
    start, report = (opening, NOTHING) if of_command is None else (of_command, REPORT)
    costs = replace(estimate(spec, probe, ranks), start=start, report=report)
    if seconds is None:
        return costs
    return replace(costs, proposal=propose(make, spec, probe, ranks, seconds - (start + report).wall, seconds))


def parse_budget(text: str | float) -> float:
    """Convert a time such as 45s, 30m, 1h30m, 2d, or a number of seconds, to seconds.

    >>> parse_budget("1h30m"), parse_budget("45")
    (5400.0, 45.0)
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", str(text))
    seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    if "".join(map("".join, parts)) != str(text):
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
    if not 0 < seconds < math.inf:
        raise Misuse(f"budget={text}: expected a time such as 45s, 30m or 1h30m")
    return float(seconds)


# measurement


def measure(spec: TrainSpec, ranks: int = 1) -> Probe:
    """Time steps of as many members as a rank has, or of a few, and of half as many, on the real network and batch.

    Of a coupled recipe they are two at least: a member alone is not coupled.
    """
    fewest = 2 if spec.recipe.coupling is not None and spec.plan.members > 1 else 1
    most = max(fewest, min(-(-spec.plan.members // ranks), FEW))
    half, largest = (replace(spec, plan=replace(spec.plan, members=m)) for m in (max(fewest, -(-most // 2)), most))
    weights, progress = timed(lambda: begin(largest))
    choice, engine = timed(lambda: choose_engine(largest, progress).engine)
    with assemble(engine, spec.member(0)) as team:
        more, step_of_most = timed_steps(team, largest, progress)
        steps = {} if half.plan.members == most else {half.plan.members: timed_steps(team, half, begin(half))[1]}
        passed = timed_pass(team, largest, progress)
        activations, features = graph_of_one(team, largest, progress)
    state, steps[most] = progress.state, step_of_most
    opt_state = sum(_bytes(named) for named in state.opt_state.values()) // most
    opt_state += sum(_bytes(probe) for probe in state.memory.get(0, [])) if state.memory else 0
    return Probe(engine, steps, passed, state.population, opt_state, activations, features, weights + choice + more)


def timed_steps(team: Team, spec: TrainSpec, progress: Progress) -> tuple[Seconds, Seconds]:
    """Return the time that first steps take beyond the others (captured operators, caches), and the others' median."""
    config, batches = spec.method.step_config, epoch_batches(spec.train_split, spec.plan, 0, spec.schedule)

    def run(index: int) -> None:
        step(team, config, progress.state, batches(index % spec.end.steps_per_epoch))

    seconds = [timed(partial(run, index))[0] for index in range(WARM_UP + STEPS)]
    usual, first = median(seconds[WARM_UP:]), sum(seconds[:WARM_UP], NOTHING)
    return Seconds(max(0.0, first.wall - WARM_UP * usual.wall), max(0.0, first.cpu - WARM_UP * usual.cpu)), usual


def timed_pass(team: Team, spec: TrainSpec, progress: Progress) -> Seconds:
    """Time a forward pass of one input by one member, by passes over validation examples."""
    inputs, population = spec.data.val.prepared[:INPUTS], progress.state.population
    run = partial(member_outputs, team, spec.method.weights.deterministic(), population, inputs)
    run()
    return median([timed(run)[0] for _ in range(3)]) * (1 / (len(inputs) * population.members))


def graph_of_one(team: Team, spec: TrainSpec, progress: Progress) -> tuple[int, tuple[int, int] | None]:
    """Return the bytes that autograd holds for a member's step beside its weights, and the size (B, R) of features."""
    batch = epoch_batches(spec.train_split, spec.plan, 0, spec.schedule)(0)
    bytes_held: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        bytes_held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        local = local_pass(team, spec.method.step_config, progress.state, slice(0, 1), batch)
    for tensor in (*local.own.values(), *local.shared.values()):
        bytes_held.pop(tensor.untyped_storage().data_ptr(), None)
    features = local.features
    shape = None if features is None else (int(features.shape[1]), int(features[0, 0].numel()))
    return sum(bytes_held.values()), shape


def timed(work: Callable[[], Result]) -> tuple[Seconds, Result]:
    """Return the time that a piece of work takes, and its result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu), result


def median(times: Sequence[Seconds]) -> Seconds:
    return Seconds(statistics.median(t.wall for t in times), statistics.median(t.cpu for t in times))


# scaling


def estimate(spec: TrainSpec, probe: Probe, ranks: int = 1) -> CostEstimate:
    """Estimate the costs of a whole run from the measurements of a few steps."""
    plan, end, val, test = spec.plan, spec.end, len(spec.data.val), len(spec.data.test)
    own = -(-plan.members // ranks)
    one_step = probe.step(own)
    members = plan.members * kept_per_row(spec.method.dynamics, end)
    predictions = members * spec.recipe.weights.resolve_draws(None)
    scored = (0 if plan.posthoc is None else val) + (test or val)
    sizes = (plan.members, plan.epochs, end.steps_per_epoch, ranks, probe.engine.name, tuple(probe.steps))
    training = (one_step * end.steps_per_epoch + probe.passed * (own * val)) * plan.epochs
    seconds = (one_step, training, probe.passed * (predictions * scored))
    memory, disk = memory_terms(spec, probe, own, predictions * max(val, test)), disk_terms(spec, probe, members)
    received = communication(spec, probe, plan.members, ranks)
    costs = CostEstimate(spec.recipe.name, *sizes, *seconds, memory, disk, received, first=probe.first)
    return replace(costs, patience=plan.patience, of_table=len(spec.data.input_shape) == 1)


def kept_per_row(dynamics: Dynamics, end: TrainTime) -> int:
    """Return the number of members that the dynamics makes of a trained one, by running it on one number."""
    tiny, path = Population(1, {"w": torch.zeros(1, 1)}, {}, {}), WeightPath()
    for _ in keep_times(dynamics, end):
        dynamics.collect(path, tiny, torch.tensor([0]))
    return dynamics.finish(path, tiny, lambda member, draw: Noise(0, member, draw, "draws"))[0].members


def weight_bytes(population: Population, members: int) -> int:
    """Return the bytes of the tensors of this number of members."""
    own = (_bytes(population.own) + _bytes(population.buffers)) // population.members * members
    return own + _bytes(population.shared) + _bytes(population.fixed)


def memory_terms(spec: TrainSpec, probe: Probe, members: int, predictions: int) -> dict[str, int]:
    """Return the bytes of a process that trains so many members, by what they hold; their sum is about the peak."""
    weights, copies = weight_bytes(probe.population, members), spec.method.dynamics.copies(spec.end)
    one_pass = probe.engine.stacked or spec.method.coupling is not None
    together = members if one_pass else min(members, probe.engine.workers)
    return {
        "process, libraries and data now": resident_bytes(),
        "weights and a copy to return to": 2 * weights,
        "gradients": weights,
        "optimizer state": probe.opt_state * members,
        "weights collected by the dynamics": copies * weights,
        f"activations of {together} members": probe.activations * together,
        "predictions": predictions * spec.likelihood.width * FLOAT,
    }


def disk_terms(spec: TrainSpec, probe: Probe, members: int) -> dict[str, int]:
    """Return the bytes of a run directory while it is trained, by what they hold."""
    rows, copies = spec.plan.members, 2 + spec.method.dynamics.copies(spec.end)
    checkpoint = copies * weight_bytes(probe.population, rows) + probe.opt_state * rows
    return {"members": weight_bytes(probe.population, members), "checkpoint, until the run is complete": checkpoint}


def communication(spec: TrainSpec, probe: Probe, members: int, ranks: int) -> tuple[Exchange, ...]:
    """Return what a rank receives from the others in a step; nothing if it is alone, or members are independent."""
    numbers = sum(tensor[0].numel() for tensor in probe.population.own.values())
    shared = sum(tensor.numel() for tensor in probe.population.shared.values())
    coupling, features = spec.recipe.coupling, probe.features
    if coupling is None or features is None:
        return exchanges(members, ranks, None, (0, 0), numbers, shared)
    space, mixing = "weights" if OWN_WEIGHTS in coupling.space.needs else "features", coupling.space.mixing_estimator
    return exchanges(members, ranks, space, features, numbers, shared, mixing=mixing, every=coupling.every)


def exchanges(
    members: int,
    ranks: int,
    space: str | None,
    features: tuple[int, int],
    numbers: int,
    shared: int,
    *,
    mixing: bool = False,
    every: int = 1,
) -> tuple[Exchange, ...]:
    """Return the collectives of a step, in float32, as bytes that the first rank, which has the most members, receives.

    Features (B, R) of all members are gathered. Weights of P numbers a member are exchanged by columns, so that no rank
    holds all of them, and their cotangents back; products (M, M) are summed, and a byte a member is the flag of a
    finite one. Mixed gradients (SVGD) are exchanged in the same way, with the weights once more. S shared gradients are
    summed, with two counts of members; the payload of a sum is counted. `every` is the number of steps between two
    interactions.

    >>> exchanges(10, 5, "features", (32, 10), 0, 0)[0].bytes_per_step
    10240.0
    >>> exchanges(3, 2, "weights", (1, 7), 7, 0)[0].bytes_per_step  # (1 x 4 + 2 x 3 + 9) x 4 + 2
    78.0
    """
    if ranks == 1:
        return ()
    rows, m = [], -(-members // ranks)
    base = {"M": members, "ranks": ranks, "every": every}
    if space == "features":
        size: float = (ranks - 1) * m * features[0] * features[1] * FLOAT / every
        formula = "(ranks - 1) x ceil(M / ranks) x B x R x 4 / every"
        terms = base | {"B": features[0], "R": features[1]}
        rows.append(Exchange("features of the others (all-gather)", formula, terms, size))
    if space == "weights":
        p = -(-numbers // ranks)
        there, back = (members - m) * p, m * (numbers - p)
        size = (3 * there + 2 * back + 2 * members**2 if mixing else there + back + members**2) * FLOAT
        size += (2 if mixing else 1) * (ranks - 1) * m
        what = "weights and cotangents by columns (all-to-all), products (all-reduce)"
        terms = base | {"P": numbers, "m": m, "p": p}
        rows.append(Exchange(what, MIXED_WEIGHTS if mixing else WEIGHTS, terms, size / every))
    if shared:
        what, size = "gradients of shared tensors (all-reduce)", shared * FLOAT + COUNTS
        rows.append(Exchange(what, "S x 4 + 16", {"S": shared}, size))
    return tuple(rows)


def resident_bytes() -> int:
    """Return the memory of this process now, or its peak so far where the system does not say (not Linux)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def _bytes(named: Any) -> int:
    return sum(t.numel() * t.element_size() for t in named.values() if isinstance(t, Tensor))


# a budget


def propose(
    make: Callable[[Recipe], TrainSpec], spec: TrainSpec, probe: Probe, ranks: int, left: float, budget: float
) -> Proposal | None:
    """Propose settings that fit: all as asked for, else fewer members, fewer epochs, no coupling, one run; or None.

    `left` are the seconds of the budget that opening and report leave.
    Members are given up before epochs, down to three; then epochs, down to half of them; then repulsion; then separate
    runs, for snapshots of one; then further epochs.
    """
    name, requested, epochs, recipes = spec.recipe.name, spec.plan.members, spec.plan.epochs, fallbacks(spec.recipe)
    for turn, recipe in enumerate(recipes):
        if turn:
            spec = make(recipe)
            probe = measure(spec, min(ranks, spec.plan.members))
        rows = requested if turn == 0 or recipe.members is None else 1
        fewest = min(FEWEST, rows)
        shares = SHARES if turn < len(recipes) - 1 else SHARES + SMALL_SHARES
        tries = [(members, epochs) for members in range(rows, fewest - 1, -1)]
        for members, fewer in tries + [(fewest, max(1, int(share * epochs))) for share in shares]:
            if not can_train(spec, fewer):
                continue
            plan = replace(spec.plan, members=members, epochs=fewer)
            wall = estimate(replace(spec, plan=plan), probe, min(ranks, members)).total.wall
            if wall <= left:
                lost = [f"{requested - members} of {requested} members"] if members < requested else []
                lost += [f"{epochs - fewer} of {epochs} epochs"] if fewer < epochs else []
                lost += [f"recipe {name}"] if spec.recipe.name != name else []
                description, total = ", ".join(lost) or "nothing", wall + budget - left
                return Proposal(budget, spec.recipe.name, members, fewer, total, description)
    return None


def can_train(spec: TrainSpec, epochs: int) -> bool:
    """Whether the dynamics can do with so many epochs."""
    try:
        replace(spec, plan=replace(spec.plan, epochs=epochs)).check()
    except Misuse:
        return False
    return True


def fallbacks(recipe: Recipe) -> list[Recipe]:
    """List the recipe, then cheaper ones: independent members instead of coupled ones, and snapshots of one run."""
    recipes = [recipe]
    if recipe.coupling is not None:
        recipes.append(make_recipe("deep-ensemble", sharing=recipe.sharing, weights=recipe.weights))
    plain = recipe.sharing.what == "own" and not recipe.weights.stochastic
    return [*recipes, make_recipe("snapshot")] if plain and recipe.name != "snapshot" else recipes
