"""From a network and data to an ensemble in one call; from a killed run to the ensemble it would have become."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from murmuration.carrying import CHECKPOINT_SECONDS, Desk, Show, carry_out, say_nothing
from murmuration.data import Data, open_data
from murmuration.engines import Engine
from murmuration.ensemble import Ensemble, MemberGroup, load_posthoc
from murmuration.errors import Failure, Misuse
from murmuration.likelihoods import Likelihood, likelihood_for, likelihood_from_json
from murmuration.memory import suggest_keeping_freed_memory
from murmuration.nets.narrow import narrowed
from murmuration.nets.source import Net, NetSource, check_outputs, net_source
from murmuration.population import Population, is_companion
from murmuration.posthoc.fit import check_config
from murmuration.provenance import describe
from murmuration.recipe import Plan, Recipe, plan_from_json, recipe_from_json
from murmuration.recipe import recipe as recipe_named
from murmuration.runs import (
    BACKBONE,
    create_run,
    load_checkpoint,
    load_members,
    read_history,
    read_run,
    read_tensors,
    require_free,
    save_checkpoint,
    write_tensors,
)
from murmuration.runs import sweep as sweep_up
from murmuration.training import Job, begin, choose_engine
from murmuration.training.frozen import at_work


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
    link: str | None = None,
    likelihood: Likelihood | None = None,
    out: str | Path | None = None,
    show: Show = say_nothing,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Ensemble:
    """An ensemble of `net` trained on `data` by a recipe.

    `net` is a name, an `nn.Module` (an architecture: members get fresh weights) or a function that builds one; without
    it, pictures get a small convolutional net and everything else a multilayer perceptron. `data` is anything
    `open_data` takes. `plan` holds the other settings; members, epochs and seed go before it. Of numbers, the noise can
    be given as `noise_std`; of classes, the `link` that makes probabilities of outputs: softmax or softplus; or the
    whole `likelihood`. With `out`, the run is written there, survives being killed and can be resumed.

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
    if settings.posthoc is not None:
        check_config(settings.posthoc, opened.task)
    job, source = job_for(net, opened, chosen, settings, noise_std=noise_std, link=link, likelihood=likelihood)
    work = at_work(job)
    work = replace(work, gamma=work.measured_gamma())
    progress = begin(work)
    choice = choose_engine(work, progress)
    show(f"engine {choice.engine.name}: {choice.reason}", 0, 0, None)
    if choice.engine.workers > 1:
        suggest_keeping_freed_memory()
    manifest = {**describe(job, source, choice.engine, choice.reason), "gamma": work.gamma}
    made = create_run(Path(out), manifest) if out is not None else None
    if out is not None and job.backbone is not None:
        write_tensors(Path(out) / BACKBONE, job.backbone.state_dict())
    if out is not None and job.around:  # what is trained already is not looked for again
        save_checkpoint(Path(out), progress)
    return carry_out(job, work, choice.engine, progress, manifest, Desk(out, show, checkpoint_seconds, made))


def job_for(
    net: Net | None,
    data: Data,
    recipe: Recipe,
    plan: Plan,
    *,
    noise_std: float | None = None,
    link: str | None = None,
    likelihood: Likelihood | None = None,
) -> tuple[Job, NetSource]:
    """The job of training a network on data by a recipe, and where its networks come from."""
    if likelihood is None:
        likelihood = likelihood_for(data.task, data.train.y, len(data.classes), noise_std, link)
    elif noise_std is not None or link is not None:
        raise Misuse("likelihood= and noise_std= or link=: give the likelihood alone, with its own settings")
    if likelihood.task != data.task:
        raise Misuse(f"a likelihood of {likelihood.task} for data of {data.task}: give one that fits the targets")
    source = _source(net or default_net(data), data, likelihood)
    weights, body = recipe.weighs, next(trained(recipe.shares.frozen, "backbone:frozen", net, source), None)
    around = trained(weights.init_from, "moped:init_from", net, source)
    return Job(source.build, data, likelihood, recipe, plan, backbone=body, around=tuple(around)), source


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
    likelihood, source = likelihood_from_json(manifest["likelihood"]), source_again(manifest, net)
    _check(source, opened, likelihood)
    chosen, plan = recipe_from_json(manifest["recipe"]), plan_from_json(manifest["plan"])
    kept = read_tensors(path / BACKBONE) if chosen.shares.frozen else None
    body = None if kept is None else filled(source.build(), kept, path / BACKBONE)
    job = Job(source.build, opened, likelihood, chosen, plan, backbone=body)
    work = replace(at_work(job), gamma=manifest.get("gamma"))
    progress = load_checkpoint(path)
    if progress is None and (chosen.weighs.init_from or "pruning" in manifest):
        raise Failure(f"{path} was killed before its first weights were written: remove it and begin anew")
    engine = engine_from(manifest)
    show(f"engine {engine.name}: as before", 0, 0, None)
    return carry_out(job, work, engine, progress or begin(work), manifest, Desk(path, show, checkpoint_seconds))


def load(path: str | Path, *, net: Net | None = None, guarded: bool = True) -> Ensemble:
    """The ensemble of a finished run; one of a network of the caller's own needs that `net`, for its structure."""
    population, manifest = load_members(Path(path))
    likelihood = likelihood_from_json(manifest["likelihood"])
    module = source_again(manifest, net).build()
    _require_same_tensors(module, population, Path(path))
    return Ensemble(
        (MemberGroup(module, population),),
        likelihood,
        engine_from(manifest),
        recipe_from_json(manifest["recipe"]),
        {key: value for key, value in manifest.items() if key not in ("format", "status")},
        read_history(Path(path)),
        load_posthoc(Path(path)) if guarded else None,
    )


def trained(what: bool | str, setting: str, net: Net | None, source: NetSource) -> Iterator[nn.Module]:
    """The trained networks that a setting asks for: none, the one given (`yes`), or the members of a run."""
    if what is True:
        if not isinstance(net, nn.Module):
            name = setting.partition(":")[2]
            raise Misuse(f"{name}=yes needs a trained net: give an nn.Module, or a run's directory as {setting}=runs/x")
        yield filled(source.build(), net.state_dict(), "the net")
    elif what:
        run = load(what, net=None if isinstance(net, str) else net, guarded=False)
        yield from (filled(source.build(), run.member(i).state_dict(), what) for i in range(run.members))


def filled(module: nn.Module, tensors: dict[str, torch.Tensor], whose: str | Path) -> nn.Module:
    """The module with these tensors, refused if they belong to another architecture."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise Misuse(f"{whose} is of another architecture: {str(error).splitlines()[1].strip()}") from error
    return module.eval()


def default_net(data: Data) -> str:
    """The network for inputs of this shape when none is asked for."""
    return "small-cnn" if len(data.input_shape) == 3 else "mlp"


def reopen(manifest: dict[str, Any], data: Any = None) -> Data:
    """The data of a run, refused if it is not what the run was trained on."""
    record = manifest["data"]
    if data is None and record["source"] is None:
        raise Misuse(f"the run was trained on {record['name']} of the caller's own: give them again as data=")
    opened = open_data(data) if data is not None else open_data(**record["source"])
    if opened.fingerprint != record["fingerprint"]:
        raise Failure(f"{record['name']} has changed since the run was trained: its fingerprint differs")
    return opened


def engine_from(manifest: dict[str, Any]) -> Engine:
    return Engine(**{key: manifest["engine"][key] for key in ("name", "workers", "stacked", "direct")})


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
    _check(source, data, likelihood)
    return source


def _check(source: NetSource, data: Data, likelihood: Likelihood) -> None:
    with torch.random.fork_rng(devices=[]):
        check_outputs(source.build(), data.train.x[:2], likelihood.width)


def source_again(manifest: dict[str, Any], net: Net | None = None) -> NetSource:
    """Where the networks of a run come from, as narrow as its members are; `net` is the caller's own, if it is one."""
    width = likelihood_from_json(manifest["likelihood"]).width
    source = net_source(_net_again(manifest, net), tuple(manifest["input_shape"]), width)
    widths = manifest["net"].get("widths")
    return source if widths is None else narrow_source(source, widths)


def narrow_source(source: NetSource, widths: dict[str, Any]) -> NetSource:
    """The source with fewer channels in its networks' layers."""
    return NetSource(lambda: narrowed(source.build(), widths), {**source.record, "widths": widths})


def _net_again(manifest: dict[str, Any], net: Net | None) -> Net:
    if net is not None:
        return net
    if "name" not in manifest["net"]:
        raise Misuse(f"the run's net is {manifest['net']['module']}, a module of your own: give it again as net=")
    name: str = manifest["net"]["name"]
    return name


def _require_same_tensors(module: torch.nn.Module, population: Population, path: Path) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in module.named_parameters()}
    stored = {name: tuple(tensor.shape[1:]) for name, tensor in population.own.items() if not is_companion(name)}
    stored |= {name: tuple(tensor.shape) for name, tensor in population.shared.items() if not is_companion(name)}
    if shapes != stored:
        differing = sorted(set(shapes.items()) ^ set(stored.items()))[0]
        raise Misuse(
            f"{path} holds members of another architecture: '{differing[0]}' differs; give the net= it was made of"
        )
