"""From a network and data to an ensemble in one call; from a killed run to the ensemble it would have become."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from murmuration.data import Data, open_data
from murmuration.engines import Engine
from murmuration.ensemble import Ensemble, Flock, load_safeguards, save_safeguards
from murmuration.errors import Failure, Misuse
from murmuration.likelihoods import Likelihood, likelihood_for, likelihood_from_json
from murmuration.nets.source import Net, NetSource, check_outputs, net_source
from murmuration.population import Population
from murmuration.provenance import describe
from murmuration.recipe import Plan, Recipe, plan_from_json, recipe_from_json
from murmuration.recipe import recipe as recipe_named
from murmuration.runs import (
    create_run,
    forget,
    load_checkpoint,
    load_members,
    read_history,
    read_json,
    read_run,
    require_free,
    save_checkpoint,
    save_members,
    write_json,
)
from murmuration.runs import sweep as sweep_up
from murmuration.safeguards import FEWEST, check_wishes
from murmuration.training import Job, Progress, begin, choose_engine, train
from murmuration.training.batches import steps_per_epoch
from murmuration.training.tuning import chosen, sweep, wants_sweep

SWEEP = "sweep.json"  # of alphas, in the run directory
CHECKPOINT_SECONDS = 30.0  # a killed run loses at most about this much

Show = Callable[[str, int, int, dict[str, Any] | None], None]  # what is said, steps done, steps in all, last record


def say_nothing(text: str, done: int, total: int, record: dict[str, Any] | None) -> None:
    """A show for nobody."""


def fit(
    net: Net | None = None,
    data: Any = "digits",
    *,
    recipe: str | Recipe = "deep-ensemble",
    members: int | None = None,
    epochs: int | None = None,
    seed: int | None = None,
    plan: Plan | None = None,
    noise_std: float | None = None,
    out: str | Path | None = None,
    show: Show = say_nothing,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Ensemble:
    """An ensemble of `net` trained on `data` by a recipe.

    `net` is a name, an `nn.Module` (an architecture: members get fresh weights) or a function that builds one; without
    it, pictures get a small convolutional net and everything else a multilayer perceptron. `data` is anything
    `open_data` takes. `plan` holds the other settings; members, epochs and seed go before it. With `out`, the run is
    written there, survives being killed and can be resumed.

    >>> ensemble = fit("mlp", "two-moons", members=2, epochs=1)
    >>> ensemble.members
    2
    """
    chosen = recipe_named(recipe)
    settings = _settings(plan or Plan(), chosen, {"members": members, "epochs": epochs, "seed": seed})
    if out is not None:
        require_free(Path(out))
    opened = open_data(data)
    if settings.augment and len(opened.input_shape) != 3:
        raise Misuse(f"augment={','.join(settings.augment)} changes pictures, and {opened.name} has none: leave it out")
    if settings.wishes is not None:
        check_wishes(settings.wishes, opened.task)
    likelihood = likelihood_for(opened.task, opened.train.y, len(opened.classes), noise_std)
    source = _source(net or default_net(opened), opened, likelihood)
    job = Job(source.build, opened, likelihood, chosen, settings)
    progress = begin(job)
    choice = choose_engine(job, progress)
    show(f"engine {choice.engine.name}: {choice.reason}", 0, 0, None)
    manifest = describe(job, source, choice.engine, choice.reason)
    made = create_run(Path(out), manifest) if out is not None else None
    return _carry_out(job, choice.engine, progress, manifest, Desk(out, show, checkpoint_seconds, made))


def resume(
    path: str | Path,
    *,
    net: Net | None = None,
    data: Any = None,
    show: Show = say_nothing,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Ensemble:
    """Continue a killed run; the ensemble is the one the undisturbed run would have left, bit for bit.

    A run on a network or tensors of the caller's own needs them again as `net` and `data`.
    """
    path = Path(path)
    manifest = read_run(path)
    if manifest["status"] == "complete":
        return load(path, net=net)
    sweep_up(path)
    opened = reopen(manifest, data)
    likelihood = likelihood_from_json(manifest["likelihood"])
    source = _source(_net_again(manifest, net), opened, likelihood)
    job = Job(source.build, opened, likelihood, recipe_from_json(manifest["recipe"]), plan_from_json(manifest["plan"]))
    progress = load_checkpoint(path)
    engine = engine_from(manifest)
    show(f"engine {engine.name}: as before", 0, 0, None)
    return _carry_out(job, engine, progress or begin(job), manifest, Desk(path, show, checkpoint_seconds))


def load(path: str | Path, *, net: Net | None = None, guarded: bool = True) -> Ensemble:
    """The ensemble of a finished run; one of a network of the caller's own needs that `net`, for its structure."""
    population, manifest = load_members(Path(path))
    likelihood = likelihood_from_json(manifest["likelihood"])
    shape = tuple(manifest["input_shape"])
    module = net_source(_net_again(manifest, net), shape, likelihood.width).build()
    _require_same_tensors(module, population, Path(path))
    return Ensemble(
        (Flock(module, population),),
        likelihood,
        engine_from(manifest),
        recipe_from_json(manifest["recipe"]),
        {key: value for key, value in manifest.items() if key not in ("format", "status")},
        read_history(Path(path)),
        load_safeguards(Path(path)) if guarded else None,
    )


def default_net(data: Data) -> str:
    """The network for inputs of this shape when none is asked for."""
    return "small-cnn" if len(data.input_shape) == 3 else "mlp"


def reopen(manifest: dict[str, Any], data: Any = None) -> Data:
    """The data of a run, refused if it is not what the run was trained on."""
    record = manifest["data"]
    if data is None and record["opening"] is None:
        raise Misuse(f"the run was trained on {record['name']} of the caller's own: give them again as data=")
    opened = open_data(data) if data is not None else open_data(**record["opening"])
    if opened.fingerprint != record["fingerprint"]:
        raise Failure(f"{record['name']} has changed since the run was trained: its fingerprint differs")
    return opened


def engine_from(manifest: dict[str, Any]) -> Engine:
    return Engine(**{key: manifest["engine"][key] for key in ("name", "workers", "stacked", "direct")})


@dataclass
class Desk:
    """Who looks on while a run is carried out: shows progress and writes checkpoints."""

    out: str | Path | None
    show: Show
    checkpoint_seconds: float
    made: Path | None = None  # the topmost directory that was made for the run
    total: int = 0
    saved: float = 0.0

    def after_step(self, progress: Progress) -> None:
        self.show("", progress.state.step, self.total, None)
        self._save_if_due(progress)

    def after_epoch(self, progress: Progress) -> None:
        self.show("", progress.state.step, self.total, progress.history[-1])
        self._save_if_due(progress)

    def _save_if_due(self, progress: Progress) -> None:
        if self.out is not None and time.monotonic() - self.saved >= self.checkpoint_seconds:
            save_checkpoint(Path(self.out), progress)
            self.saved = time.monotonic()


def _carry_out(job: Job, engine: Engine, progress: Progress, manifest: dict[str, Any], desk: Desk) -> Ensemble:
    desk.total = steps_per_epoch(len(job.data.train), job.plan.batch_size) * job.plan.epochs
    job, tuning = _tuned(job, engine, desk)
    desk.saved = time.monotonic()
    population = train(job, engine, progress, desk)
    _require_someone(progress)
    trouble = {str(member): text for member, text in progress.state.trouble.items()}
    complete = {**manifest, **tuning, "seconds": progress.seconds, "trouble": trouble}
    if job.coupling is not None:
        complete["coupling_seconds"] = dict(progress.state.seconds)
    flock = Flock(job.member(0), population)
    plain = Ensemble((flock,), job.likelihood, engine, job.recipe, complete, progress.history)
    ensemble = _safeguarded(plain, job, desk)
    if desk.out is not None:
        try:
            save_safeguards(Path(desk.out), ensemble.safeguards)
            save_members(Path(desk.out), population, complete, progress.history)
        except Failure:  # a full disk, say: what cannot be continued is not left behind
            forget(Path(desk.out), desk.made or Path(desk.out))
            raise
    return ensemble


def _tuned(job: Job, engine: Engine, desk: Desk) -> tuple[Job, dict[str, Any]]:
    """The job with what validation must decide first, and the record of how it decided; a killed sweep goes on."""
    if not wants_sweep(job):
        return job, {}
    file = Path(desk.out) / SWEEP if desk.out is not None else None
    done = read_json(file) if file is not None and file.exists() else {}

    def save(found: dict[str, float]) -> None:
        if file is not None:
            write_json(file, found)

    found = sweep(job, engine, done, save, lambda text: desk.show(text, 0, 0, None))
    alpha = chosen(found)
    desk.show(f"alpha {alpha:g} has the lowest NLL on corrupted validation examples", 0, 0, None)
    return replace(job, alpha=alpha), {"sweep": found, "alpha": alpha}


def _safeguarded(ensemble: Ensemble, job: Job, desk: Desk) -> Ensemble:
    """The ensemble with the safeguards that the plan wishes for, if there are examples to fit them on."""
    val, wishes = job.data.val, job.plan.wishes
    if wishes is None:
        return ensemble
    if len(val) < FEWEST:
        desk.show(f"no safeguards: {len(val)} validation examples, and they take {FEWEST}", 0, 0, None)
        return ensemble
    try:
        return ensemble.safeguarded(val.x, val.y, wishes)
    except (Misuse, Failure) as error:  # a trained ensemble is not lost because it cannot be calibrated
        desk.show(f"no safeguards: {error}", 0, 0, None)
        return ensemble


def _require_someone(progress: Progress) -> None:
    """A run in which every member fell before its first sound epoch has nothing to offer."""
    lost = [text for text in progress.state.trouble.values() if "as initialised" in text]
    if len(lost) == progress.state.population.members:
        raise Failure(f"no member could be trained ({lost[0]}): lower the learning rate")


def _settings(plan: Plan, recipe: Recipe, given: dict[str, int | None]) -> Plan:
    changed: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    settings = replace(plan, **changed)
    settings = settings if recipe.members is None else replace(settings, members=recipe.members)
    repulsion = recipe.repulsion
    if repulsion is not None and repulsion.same_examples and settings.members > 1:
        return replace(settings, batches="same")  # what members show can be compared on the same examples only
    return settings


def _source(net: Net, data: Data, likelihood: Likelihood) -> NetSource:
    source = net_source(net, data.input_shape, likelihood.width)
    with torch.random.fork_rng(devices=[]):
        check_outputs(source.build(), data.train.x[:2], likelihood.width)
    return source


def _net_again(manifest: dict[str, Any], net: Net | None) -> Net:
    if net is not None:
        return net
    if "name" not in manifest["net"]:
        raise Misuse(f"the run's net is {manifest['net']['module']}, a module of your own: give it again as net=")
    name: str = manifest["net"]["name"]
    return name


def _require_same_tensors(module: torch.nn.Module, population: Population, path: Path) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in module.named_parameters()}
    stored = {name: tuple(tensor.shape[1:]) for name, tensor in population.own.items()}
    stored |= {name: tuple(tensor.shape) for name, tensor in population.shared.items()}
    if shapes != stored:
        differing = sorted(set(shapes.items()) ^ set(stored.items()))[0]
        raise Misuse(
            f"{path} holds members of another architecture: '{differing[0]}' differs; give the net= it was made of"
        )
