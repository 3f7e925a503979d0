"""`mm.Method`: a recipe bound to a network, for a training loop of your own."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from numbers import Real
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from murmuration.core.coupling.space import SAME_BATCH
from murmuration.core.dynamics import Dynamics, TrainTime
from murmuration.core.engines import Engine, Team, assemble, choose
from murmuration.core.method import BoundRecipe, collect, collectable, final_members
from murmuration.core.population import is_auxiliary
from murmuration.core.recipe import Recipe, make_recipe
from murmuration.core.roles import roles_of
from murmuration.core.state import MEMORY, Batch, NoiseStreams, Probe, State
from murmuration.core.step import step
from murmuration.likelihoods import CLASSIFICATION, REGRESSION, Likelihood, checked_likelihood
from murmuration.likelihoods.regression import Standardised
from murmuration.models.nets import edges_for
from murmuration.models.nets.source import Net
from murmuration.models.nets.validation import check_network
from murmuration.prediction.ensemble import Ensemble, MemberGroup
from murmuration.runs.manifest import Manifest
from murmuration.system.devices import CPU
from murmuration.system.errors import Misuse, first_line, listed, require_integer, unknown
from murmuration.system.streams import global_stream, kept_generators
from murmuration.system.workers import single_core_pool
from murmuration.training.batch_norm import refresh_batch_norm, statistics
from murmuration.training.batches import batch_slices
from murmuration.training.engine_choice import draws_globally, engine_for_optimizer
from murmuration.training.plan import plan_for
from murmuration.training.resolve import source_for
from murmuration.training.spec import bind

STEP_SETTINGS = (  # fields of `Plan` that concern a step
    *("members", "epochs", "batch_size", "optimizer", "momentum", "weight_decay", "decay", "l1", "clip_norm"),
    *("lr_multipliers", "same", "engine", "device", "precision", "first_member"),
)


ELSEWHERE = {"seed": "write init(seed=0)", "lr": "pass it to step", "schedule": "pass the rate of each step to step"}


class Method:
    """A recipe bound to a network and a likelihood: train its members in a loop of your own.

    `mm.fit` is such a loop with data, epochs, checkpoints and post-hoc steps; for the same batches its results are
    bit-identical.

    Args:
        net: Network by name, `nn.Module` (an architecture: members get fresh weights) or function that builds one.
        likelihood: Distribution of the target given the network's outputs, such as `mm.Categorical(10)`.
        recipe: Name of a preset, or a `Recipe`.
        inputs: Training inputs (N, ...) as the network takes them, or a sample of them. Needed by networks by name,
            and by recipes that act on the kernels of the network or compare members.
        targets: Training targets (N,) or (N, K), or a sample of them: for a regression, whose targets are standardised
            as `mm.fit` does, and for likelihoods that need the frequencies of classes.
        examples: Number N of training examples; by default that of `inputs`.
        steps_per_epoch: Steps of an epoch; by default as many as batches of `batch_size` examples.
        **settings: Fields of `mm.Plan` that concern a step: members, epochs, batch_size, optimizer, momentum,
            weight_decay, decay, l1, clip_norm, lr_multipliers, same, engine, device, precision, first_member.

    Raises:
        Misuse: If the recipe cannot do on this network what its name says, or needs something that is missing.

    >>> import murmuration as mm
    >>> data = mm.open_data("two-moons")
    >>> x, y = data.train.prepared, data.train.y
    >>> method = mm.Method("mlp", mm.Categorical(2), "forde", inputs=x, members=3, engine="loop")
    >>> state = method.init(seed=0)
    >>> for rows in torch.arange(len(x)).split(64):
    ...     losses = method.step(state, x[rows], y[rows], lr=1e-2)  # (M,)
    >>> method.ensemble(state).predict(data.test.prepared).mean.shape[1]
    2
    """

    def __init__(
        self,
        net: Net,
        likelihood: Likelihood,
        recipe: str | Recipe = "deep-ensemble",
        *,
        inputs: Any = None,
        targets: Any = None,
        examples: int | None = None,
        steps_per_epoch: int | None = None,
        **settings: Any,
    ) -> None:
        for name in settings:
            if name not in STEP_SETTINGS:
                if name in ELSEWHERE:
                    raise Misuse(f"{name}= of a method: {ELSEWHERE[name]}")
                raise unknown("setting of a method", name, STEP_SETTINGS)
        for name, count in (("examples", examples), ("steps_per_epoch", steps_per_epoch)):
            if count is not None:
                require_integer(name, count, 1)
        if "members" in settings:
            require_integer("members", settings["members"], 1)
        likelihood = completed(likelihood, targets)
        self.recipe, self.likelihood = make_recipe(recipe), likelihood
        self.plan = plan_for(self.recipe, **settings)
        self._timed = "epochs" in settings  # whether the number of steps is known
        if self.recipe.models:
            raise Misuse(f"recipe {self.recipe.name} has members that are not networks: train it with mm.fit")
        if self.recipe.sharing.frozen or self.recipe.weights.init_from:
            raise Misuse(f"recipe {self.recipe.name} starts from a trained network: train it with mm.fit")
        if self.recipe.coupling is not None and self.recipe.coupling.space.candidates():
            raise Misuse(f"recipe {self.recipe.name} chooses its settings on validation examples: train it with mm.fit")
        needs_inputs = isinstance(net, str) or self.recipe.needs_kernels or self.plan.l1
        if inputs is None and (needs_inputs or self.recipe.coupling is not None):
            why = f"network '{net}'" if isinstance(net, str) else f"recipe {self.recipe.name}"
            raise Misuse(f"{why} needs training inputs: write inputs=x_train, prepared as the network takes them")
        self.inputs = None if inputs is None else as_finite(inputs, "inputs").to(CPU)
        if self.inputs is not None and self.inputs.is_floating_point():
            self.inputs = self.inputs.float()
        if self.inputs is not None and (self.inputs.dim() < 2 or not len(self.inputs)):
            raise Misuse(f"inputs of shape {tuple(self.inputs.shape)}: expected training inputs (N, ...)")
        self.examples = examples or (self.plan.batch_size if self.inputs is None else len(self.inputs))
        shape = () if self.inputs is None else tuple(self.inputs.shape[1:])
        edges = None if self.inputs is None else edges_for(net, self.inputs)
        source = source_for(net, shape, likelihood, edges=edges)
        self._source = source
        if self.inputs is not None:
            self._check_network(self.inputs)
        self._build = source.build
        by_name = "name" in source.record  # of shape and network that `mm.load` knows
        self._net, self._input_shape = (source.record, list(shape)) if by_name else ({}, [])
        steps = steps_per_epoch or len(batch_slices(self.examples, self.plan.batch_size))
        self.end = TrainTime(steps * self.plan.epochs, steps, self.plan.epochs)
        self._bound: Callable[[int], BoundRecipe] = cache(self._bind)
        self._team: Team | None = None
        self._states: WeakValueDictionary[int, State] = WeakValueDictionary()  # by id, those of this method
        self.probe = Probe()  # statistics of the interaction at the start of an epoch, and timings
        bound = self._bound(0)
        bound.check_times(schedule=None, has_optimizer=self.plan.optimizer is not None, stops_early=False)
        if type(bound.dynamics) is not Dynamics and not self._timed:
            advice = "write epochs=, and steps_per_epoch= or batch_size="
            raise Misuse(f"dynamics {self.recipe.text('dynamics')} depends on the length of training: {advice}")

    def _check_network(self, x: Tensor) -> None:
        """Check the network on inputs (N, ...): those of training, or of the first step."""
        with kept_generators():
            check_network(self._source, self._source.build().cpu(), x[:2].cpu(), self.likelihood)

    def _bind(self, seed: int) -> BoundRecipe:
        plan = self.plan

        def network(member: int) -> nn.Module:
            source = 0 if "initialisation" in plan.same else member
            with global_stream(seed, "initialisation", plan.first_member + source):
                return self._build()

        noise = NoiseStreams(seed, plan.first_member, common="noise" in plan.same)
        more: dict[str, Any] = {"noise": noise, "examples": self.examples}
        bound = bind(self.recipe, network, self.likelihood, self.inputs, plan, self.end, **more)
        return replace(bound, gamma=bound.measure_gamma())

    def init(self, seed: int = 0) -> State:
        """Return the members before the first step.

        Args:
            seed: Seed of the initial weights and of all noise.

        Returns:
            A state that `step` changes; `state.state_dict()` gives its tensors.
        """
        require_integer("seed", seed, 0)
        bound = self._bound(int(seed))
        population = bound.start().to(self.plan.device)
        bound.refuse_unused_optimizer(population, self.plan.optimizer)
        return self._own(bound.init_state(population))

    def step(self, state: State, x: Any, y: Any, lr: float = 1e-3, *, weight: Any = None) -> Tensor:
        """Move every member once.

        Args:
            state: Changed in place.
            x: Inputs (B, ...) for all members, or a list with those of each member.
            y: Targets (B,) or (B, K), or a list with those of each member.
            lr: Learning rate.
            weight: Sample weights (B,), or a list with those of each member.

        Returns:
            The members' losses (M,); NaN for a member whose loss is not finite, which is not trained any more. A member
            whose features are not finite neither repels nor is repelled.

        Raises:
            Misuse: If inputs, targets, weights, the learning rate or the state do not fit, training is over, or members
                that are compared on the same examples get different ones.
        """
        bound = self._bound_to(state)
        if torch.is_inference_mode_enabled():
            raise Misuse("a step inside torch.inference_mode() has no gradients: leave the block")
        if not isinstance(lr, Real | Tensor) or not 0 <= float(lr) < math.inf:
            raise Misuse(f"lr={lr!r}: need a finite number that is not negative, such as 0.001")
        if bound.coupling is not None and SAME_BATCH in bound.coupling.space.needs and isinstance(x, list | tuple):
            raise Misuse(
                f"coupling {self.recipe.text('coupling')} compares members on the same examples: give x (B, ...)"
            )
        if self._timed and state.step >= self.end.step:
            raise Misuse(f"step {state.step + 1} of {self.end.step}: training was planned for epochs={self.end.epochs}")
        inputs, targets, weights = self._batch(x, y, weight)
        if self.inputs is None and self._team is None:
            self._check_network(inputs[0])
        batch = Batch(
            lambda group: (inputs[group], targets[group]),
            float(lr),
            time=self.end.at(state.step),
            weight=lambda group: None if weights is None else weights[group],
        )
        epoch, index = divmod(state.step, self.end.steps_per_epoch)
        likelihood = self.likelihood.during(min(epoch / self.end.epochs, 1.0))
        config = bound.step_config
        if likelihood is not self.likelihood:
            config = replace(config, likelihood=likelihood)
        # The first interaction of an epoch is measured.
        self.probe.measure = bound.coupling is not None and index < bound.coupling.repulsion.every
        with torch.enable_grad():
            losses = step(self._team_for(state, batch), config, state, batch, self.probe)
        collect(bound.dynamics, state, self.end.at(state.step))
        return losses

    def ensemble(self, state: State) -> Ensemble:
        """Return the members as an ensemble: those of the dynamics, without members that diverged or are not finite.

        Its `predict` takes inputs as the network does; `fit_posthoc` calibrates it on held-out examples. Averaged and
        drawn weights get batch-norm statistics of `inputs`.

        Args:
            state: State after the last step.

        Raises:
            Misuse: If every member has diverged, or statistics need inputs that the method does not have.
        """
        bound = self._bound_to(state)
        population, origins = final_members(bound.dynamics, state)
        finite = torch.isin(origins, collectable(state))
        if not bool(finite.any()):
            raise Misuse("every member has diverged: lower the learning rate")
        origins = origins[finite]
        population = population.take(finite.nonzero().flatten()) if not bool(finite.all()) else population.clone()
        if bound.dynamics.refreshes_statistics and self._team is not None and statistics(bound.structure):
            if self.inputs is None:
                dynamics = self.recipe.text("dynamics")
                raise Misuse(f"dynamics {dynamics} needs inputs for batch-norm statistics: write inputs=x_train")
            place = {"seed": state.noise.seed, "step": state.step}
            numbers = [bound.noise.member(int(origin)) for origin in origins]
            refresh_batch_norm(self._team, bound.weights, population, self.inputs, numbers=numbers, **place)
        plan = {name: getattr(self.plan, name) for name in ("seed", "first_member", "precision")}
        manifest = Manifest(
            plan={**plan, "seed": state.noise.seed},
            net=self._net,
            input_shape=self._input_shape,
            parameters=roles_of(bound.full_trace, population, bound.weights, self.recipe).to_json(),
            kernels=bound.trace.to_json() if self.recipe.needs_kernels else None,
        )
        groups = (MemberGroup(bound.network(0), population),)
        return Ensemble(groups, self.likelihood, self.engine or Engine("loop"), self.recipe, manifest)

    @property
    def engine(self) -> Engine | None:
        """The engine that runs the members, chosen at the first step."""
        return None if self._team is None else self._team.engine

    def load_state(self, tensors: dict[str, Tensor]) -> State:
        """Return the state that was stored.

        Args:
            tensors: The `state_dict()` of a state, such as the contents of a safetensors file.

        Raises:
            Misuse: If it is the state of another method: of other members, tensors or update rules.
        """
        if not isinstance(tensors, Mapping) or "noise" not in tensors:
            got = listed([*map(str, tensors)], 3) if isinstance(tensors, Mapping) else type(tensors).__name__
            raise Misuse(f"a state without 'noise', {got}: give state.state_dict()")
        fresh = self._refuse_foreign(tensors)
        names = dict.fromkeys([*fresh, *tensors])  # sums over tensors are rounded by their order
        copies = {name: tensors[name].to(self.plan.device, copy=True) for name in names}
        return self._own(State.from_state_dict(copies))

    def _refuse_foreign(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Refuse the tensors of a state of another method; return those of a fresh state of this one."""
        bound = self._bound(int(tensors["noise"][0]))
        fresh = bound.init_state(bound.start()).state_dict()
        for name, expected in fresh.items():
            tensor = tensors.get(name)
            if not isinstance(tensor, Tensor) or (tensor.shape, tensor.dtype) != (expected.shape, expected.dtype):
                is_tensor = isinstance(tensor, Tensor)
                got = f"shape {tuple(tensor.shape)} of {tensor.dtype}" if is_tensor else "missing"  # type: ignore
                wanted = f"shape {tuple(expected.shape)} of {expected.dtype}"
                raise Misuse(f"'{name}' of the state: {got}, expected {wanted} by this method")
        if not torch.equal(tensors["noise"].cpu(), fresh["noise"]):
            raise Misuse("the state has other random streams: expected the same first_member and same=")
        grows = [MEMORY] if callable(self.plan.optimizer) else []  # parts that steps add
        grows += [] if type(bound.dynamics) is Dynamics else ["path", "counts"]
        for name in tensors:
            known = name in fresh or name.split("/")[0] in grows
            if not known and not is_auxiliary(name.rpartition("/")[2]):  # masks of pruning may be added
                raise Misuse(f"'{name}' of the state is of another method: this one has no such tensor")
        return fresh

    def _bound_to(self, state: State) -> BoundRecipe:
        """Return the recipe with the random streams of a state; refuse a state of another method."""
        if not isinstance(state, State):
            raise Misuse(f"state is a {type(state).__name__}: give what init or load_state returned")
        if self._states.get(id(state)) is not state:
            self._refuse_foreign(state.state_dict())
            self._own(state)
        return self._bound(state.noise.seed)

    def _own(self, state: State) -> State:
        """Note that a state is one of this method."""
        self._states[id(state)] = state
        return state

    def _batch(self, x: Any, y: Any, weight: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return inputs (M, B, ...), encoded targets (M, B, ...) and sample weights (M, B) of a step, all checked."""
        inputs, targets = self._rows(x, "x"), self._rows(y, "y")
        if inputs.dim() < 2 or targets.dim() < 2 or not 0 < inputs.shape[1] == targets.shape[1]:
            counts = [len(rows[0]) if rows.dim() > 1 else 0 for rows in (inputs, targets)]
            raise Misuse(f"{counts[0]} inputs and {counts[1]} targets: give one target for each input")
        inputs = inputs.float() if inputs.is_floating_point() else inputs
        known = self.inputs
        if known is not None and (inputs.shape[2:], inputs.dtype) != (known.shape[1:], known.dtype):
            expected = f"(B, {', '.join(map(str, known.shape[1:]))}) of {known.dtype}"
            raise Misuse(f"x of shape {tuple(inputs.shape[1:])} and type {inputs.dtype}: expected {expected}")
        if known is None and inputs.dtype not in (torch.float32, torch.int64):
            raise Misuse(f"x of type {inputs.dtype}: give float32, or int64 tokens")
        targets = as_targets(targets, self.likelihood)
        weights = None if weight is None else self._rows(weight, "weight").float()
        if weights is not None and (weights.shape != inputs.shape[:2] or float(weights.min()) < 0):
            low, shape = float(weights.min()), tuple(weights.shape[1:])
            raise Misuse(f"weight of shape {shape} from {low:g}: give one number for each input, none below 0")
        return inputs, self.likelihood.encode(targets), weights

    def _rows(self, values: Any, name: str) -> Tensor:
        """Return (M, B, ...) of values (B, ...) for all members, or of a list of one for each."""
        members = self.plan.members
        if isinstance(values, list | tuple):
            if len(values) != members:
                raise Misuse(f"{name} is a list of {len(values)} for {members} members: give one for each, or a tensor")
            parts = [as_finite(part, name) for part in values]
            if len({part.shape for part in parts}) > 1:
                raise Misuse(f"{name} has shapes {listed(str(tuple(part.shape)) for part in parts)}: give equal ones")
            return torch.stack(parts).to(self.plan.device)
        tensor = as_finite(values, name).to(self.plan.device)
        return tensor.expand(members, *tensor.shape)

    def _team_for(self, state: State, batch: Batch) -> Team:
        """Return the workers that run members, chosen at the first step."""
        if self._team is not None:
            return self._team
        bound, plan = self._bound(state.noise.seed), self.plan
        module, requested = bound.network(0), engine_for_optimizer(plan)

        @contextmanager
        def trial(candidate: Engine) -> Iterator[Callable[[], object]]:
            trial_state = bound.init_state(state.population.clone())
            with assemble(candidate, module) as team:
                yield lambda: step(team, bound.step_config, trial_state, batch)

        draws_alone = draws_globally(module, batch.fetch(slice(0, 1))[0][0][:2].cpu())
        engine = Engine("loop") if draws_alone else choose(requested, trial, plan.members).engine
        pool = single_core_pool(engine.workers) if engine.workers else None  # its threads end with the method
        self._team = Team(engine, module, pool)
        return self._team


def as_finite(values: Any, name: str) -> Tensor:
    """Return values as a tensor; refuse what is not finite numbers."""
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        problem = f"{first_line(error):.80}: give a tensor or an array"
        raise Misuse(f"{name} is a {type(values).__name__}: {problem}") from None
    if tensor.is_complex():
        raise Misuse(f"{name} has type {tensor.dtype}: give real numbers")
    # A finite sum has finite terms; finite terms may overflow.
    if tensor.is_floating_point() and not math.isfinite(float(tensor.sum())) and not bool(tensor.isfinite().all()):
        raise Misuse(f"{name} has values that are not finite: leave them out or fill them in")
    return tensor


def completed(likelihood: Any, targets: Any) -> Likelihood:
    """Return a likelihood with the settings that follow from training targets; refuse one that lacks them."""
    if not isinstance(likelihood, Likelihood):
        raise Misuse(f"likelihood={likelihood!r:.60}: give an object such as mm.Categorical(10)")
    checked_likelihood(likelihood)
    if targets is not None:
        return likelihood.for_targets(as_targets(as_finite(targets, "targets")[None], likelihood, known=False)[0])
    if isinstance(likelihood, Standardised) and likelihood.shift is None and likelihood.scale is None:
        advice = "write targets=y_train, or shift=(0.0,), scale=(1.0,) for targets as they are"
        raise Misuse(f"{type(likelihood).__name__} has no mean and scale of the targets: {advice}")
    return likelihood


def as_targets(y: Tensor, likelihood: Likelihood, known: bool = True) -> Tensor:
    """Return targets (M, B) or (M, B, K) as a likelihood takes them, those of a regression (M, B, K).

    `known` says whether a regression knows its number of targets K.
    """
    if likelihood.task == CLASSIFICATION:
        if y.dim() != 2:
            raise Misuse(f"labels of shape {tuple(y.shape[1:])}: expected one whole number for each input, (B,)")
        return as_labels(y, getattr(likelihood, "classes", math.inf))
    if likelihood.task == REGRESSION:
        y = y.unsqueeze(-1) if y.dim() == 2 else y
        count = getattr(likelihood, "count", None) if known else None
        if y.dim() != 3 or (count is not None and y.shape[2] != count):
            columns = "K" if count is None else count
            raise Misuse(f"targets of shape {tuple(y.shape[1:])}: expected numbers (B, {columns})")
        return y
    labels = likelihood.width
    if y.shape[2:] != (labels,) or not bool(((y == 0) | (y == 1)).all()):
        raise Misuse(f"targets of shape {tuple(y.shape[1:])}: expected zeros and ones (B, {labels})")
    return y


def as_labels(y: Tensor, classes: float) -> Tensor:
    """Return class labels as int64; refuse numbers other than 0 to `classes` - 1."""
    low, high = map(Tensor.item, y.aminmax())
    if y.is_floating_point() or low < 0 or high >= classes:
        raise Misuse(f"labels of type {y.dtype} from {low} to {high}: expected whole numbers from 0 to {classes - 1}")
    return y.long()
