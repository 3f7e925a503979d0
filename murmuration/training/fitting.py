"""fit, resume, load: from a network and data, or from a run directory, to an ensemble.

`fit` opens the data, makes a `TrainSpec`, chooses an engine, creates the run directory and calls `run_training`, which
trains, writes checkpoints, fits the post-hoc steps and completes the run. `resume` enters there with a checkpoint.
"""

import inspect
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from murmuration.core.engines import Engine, find_ranks
from murmuration.core.engines.ranks import in_process_group
from murmuration.core.population import Population, population_from_tensors
from murmuration.core.recipe import Recipe, make_recipe, recipe_from_json
from murmuration.data import Data, open_data, open_training_data, preparation_from_json
from murmuration.data.preparation import FeaturePreparation
from murmuration.data.samplers import INSTANCE
from murmuration.likelihoods import (
    CLASSIFICATION,
    MULTI_LABEL,
    REGRESSION,
    Likelihood,
    fit_likelihood,
    likelihood_by_name,
    likelihood_for,
    likelihood_from_json,
    width_of,
)
from murmuration.models.estimators.member import check_fit
from murmuration.models.estimators.storage import load_models, require_skops
from murmuration.models.estimators.table import is_model, kind_of, models_for, name_of, refuse_unused
from murmuration.models.features import feature_source, features_again, stored_preparation
from murmuration.models.nets import edges_for
from murmuration.models.nets.adapt import Output, plain_module
from murmuration.models.nets.given_weights import State, Weights, describe_start, given_weights, with_weights
from murmuration.models.nets.inputs import COSINES, ending_in_cosines, for_preparation, output_again
from murmuration.models.nets.narrow import narrowed
from murmuration.models.nets.pretrained import HEAD, keeping_statistics, pretrained_state
from murmuration.models.nets.source import EDGES, EVERY, Net, NetSource, check_net, net_source
from murmuration.models.nets.validation import (
    check_initialisation,
    check_network,
    plain_tensors,
    require_same_plain_tensors,
)
from murmuration.prediction.ensemble import Ensemble, MemberGroup, load_posthoc
from murmuration.prediction.given_models import load_given, require_same_tensors
from murmuration.prediction.posthoc.fit import check_config
from murmuration.runs import checkpoints
from murmuration.runs import directory as runs
from murmuration.runs.directory import versions as versions
from murmuration.runs.kinds import run_kind
from murmuration.runs.processes import (
    agree,
    continues,
    is_first,
    refuse_several,
    refusing_together,
    require_visible,
)
from murmuration.system.devices import CPU, is_available, refuse_autocast, resolve_device
from murmuration.system.errors import Failure, Misuse, require_integer, unknown
from murmuration.system.files import read_tensors
from murmuration.system.interrupts import CHECKPOINT_SECONDS
from murmuration.system.memory import suggest_keeping_freed_memory
from murmuration.system.progress import Show, counting_bar, is_watched, training_bar
from murmuration.training import TrainSpec, begin, choose_engine
from murmuration.training.batches import plan_for_loader, plan_for_steps
from murmuration.training.folds import fit_folds, fit_models, pooled
from murmuration.training.head_only import head_only_spec, with_backbone
from murmuration.training.loop import digest, start_from
from murmuration.training.manifests import describe, engine_again, engine_from
from murmuration.training.plan import Plan, plan_from_json
from murmuration.training.run import (
    ProgressCallback,
    run_training,
    save_first_weights,
    show_nothing,
    trajectory_cost,
)
from murmuration.training.table_defaults import defaults_for, filled_loss, filled_plan

InitFrom = Weights | Ensemble  # weights that members begin with; text is a run directory or a file


@refusing_together
def fit(
    net: Net | None = None,
    data: Any = "digits",
    *,
    recipe: str | Recipe = "deep-ensemble",
    plan: Plan | None = None,
    folds: int | None = None,
    noise_std: float | None = None,
    link: str | None = None,
    likelihood: Likelihood | str | None = None,
    init_from: InitFrom | None = None,
    reset: str | Sequence[str] = (),
    pretrained: bool | str | Path = False,
    features: str | None = None,
    features_from: str | Path | None = None,
    output: Output | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    show: Show | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **settings: Any,
) -> Ensemble:
    """Train an ensemble of `net` on `data` by a recipe, and calibrate it on validation examples.

    `net` is a name, an `nn.Module` (an architecture: members get fresh weights) or a function that builds one; without
    it, images get a small convolutional net, tables a network by their size and all other inputs a multilayer
    perceptron. Tables get settings of training by their size too (`table_defaults`), also for an `mlp` by name, unless
    `plan` is given. Parameters of the network with `requires_grad=False` are not trained. `init_from` are weights that
    members begin with instead of random ones: a network, a list of one for each member, an ensemble, a state dict, a
    run directory or a `.safetensors` file; tensors named by `reset`, such as "head" or a list of patterns, are random
    all the same. `pretrained` begins with the published weights of a network by name and random heads: True for those
    of an installed package or of the folder of `hf:FOLDER`, or a file of them (`.safetensors`, `.pth`). `features`
    names a pretrained network whose features of images, computed once, take the place of inputs: `net` is then the
    head, a linear one if left out, and `features_from` a file of that network's weights (see `embed`). Of a network
    that gives a tuple, a dict or an object, `output` is the position, the key or attribute, or a function of it that
    picks the tensor of predictions.

    `data` is a pair (x, y), a pandas table with `target=`, a torch Dataset or DataLoader, of which 15 % validate
    (`val=`) and the rest is trained on; or `(train, val)` of Datasets or DataLoaders, a path, a name or a `Data`, which
    keep their splits (see `open_data`). `recipe` is the name of a preset or a `Recipe`. With `folds` (cross-fitting),
    training and validation examples are divided into so many folds, each of which validates members that train on the
    others: `members` of each fold are the ensemble, which is calibrated on their predictions for their own folds.

    Further keywords are the fields of `Plan`, such as `members`, `epochs`, `seed`, `lr`, `batch_size`, `device`,
    `patience`, `optimizer`, `posthoc` (None: no calibration), which take precedence over those of `plan`; and the
    keywords of `open_data`, such as `target`, `task`, `val`, `groups`, `time`, `drop`. `noise_std` fixes the noise of a
    regression, `link` is softmax or softplus for a classification, `likelihood` replaces both and says what numbers
    mean: an object, or a loss for classes by name, such as "logit-adjusted:tau=1" (`murmur list losses`). With `out`,
    the run is written there, survives being killed and can be resumed; Ctrl-C and SIGTERM write a checkpoint first. A
    progress bar is shown on a terminal and in a notebook unless `progress` is False.

    >>> ensemble = fit("mlp", "two-moons", members=2, epochs=1)
    >>> ensemble.members
    2
    """
    if is_model(net) and (init_from is not None or pretrained or output is not None or features is not None):
        raise Misuse(f"init_from, pretrained, output or features with {name_of(net)}: they are for networks")
    if is_model(net):
        refuse_several(name_of(net))
    if net is None and init_from is not None:
        net = architecture_of(init_from)
    if net is not None and not is_model(net):
        check_net(net)
    chosen = make_recipe(recipe)
    planned, reading = sort_settings(settings, net)
    if "members" in planned:
        require_integer("members", planned["members"], 1)
    filled = replace(plan or Plan(), **planned).for_recipe(chosen)
    refuse_autocast(filled.device)
    quiet = progress is False or not is_first() or (progress is None and not is_watched())
    if continues(out):
        mine = {"net": net, "data": data, "recipe": recipe, "likelihood": likelihood, "optimizer": filled.optimizer}
        again: Any = {name: None if isinstance(value, str | Path) else value for name, value in mine.items()}
        again |= {"output": output, "checkpoint_seconds": checkpoint_seconds, "show": show or show_nothing}
        return resume(str(out), **again)
    if is_first():
        runs.check_new(out)
    if out is None and filled.trajectory is not None:
        raise Misuse(f"trajectory='{filled.trajectory}' without out: checkpoints are files of a run; give out='runs/x'")
    stated = getattr(likelihood, "task", None)
    if stated in (MULTI_LABEL, REGRESSION) and not isinstance(data, Data):
        reading.setdefault("task", stated)
    if features_from is not None and features is None:
        raise Misuse(f"features_from={str(features_from)!r} without features=: name the network of these weights")
    with counting_bar(f"features by {features}", quiet or features is None) as count:
        if features is not None:
            found = feature_source(features, features_from or True, reading.get("size"), out=out, count=count)
            reading |= {"features": found, "size": found.size}
        opened = open_training_data(data, **reading)
    random_start = init_from is None and not pretrained
    defaults = defaults_for(opened, chosen, net) if plan is None and random_start else None
    if defaults is not None:
        net, filled = defaults.net, filled_plan(defaults, planned).for_recipe(chosen)
        likelihood = filled_loss(defaults, likelihood, noise_std)
    filled = plan_for_steps(plan_for_loader(filled, opened.train, planned), opened.train)
    if out is not None and (chosen.models or (is_model(net) and kind_of(net).package == "sklearn")):
        require_skops()
    given: dict[str, Any] = {"noise_std": noise_std, "link": link, "likelihood": likelihood}
    with nullcontext(show) if show is not None else training_bar(filled.epochs, quiet, chosen.name) as told:
        if is_model(net):
            few = replace(filled, members=planned.get("members") or getattr(plan, "members", 0) or 1)
            own = choose_likelihood(likelihood, opened, chosen, noise_std, link)
            own = fit_likelihood(own, opened.task, opened.train.y)
            ensemble = fit_models(net, opened, chosen, few, own, folds, told)
        else:
            given |= {"init_from": init_from, "reset": reset, "pretrained": pretrained, "output": output}
            if folds is None:
                spec, source = make_spec(net, opened, chosen, filled, **given)
                return _fit(spec, source, out, told, checkpoint_seconds)
            spec, source = make_spec(net, pooled(opened), chosen, filled, **given)
            train = partial(_fit, source=source, out=None, show=told, checkpoint_seconds=checkpoint_seconds)
            ensemble = fit_folds(spec, opened, folds, train, told)
    if out is not None and is_first():
        ensemble.save(out)
    return ensemble


FOREIGN = {  # keywords of other libraries -> what to write
    "learning_rate": "lr=...",
    "n_estimators": "members=...",
    "num_members": "members=...",
    "n_epochs": "epochs=...",
    "max_epochs": "epochs=...",
    "max_iter": "epochs=...",
    "class_weight": "likelihood=mm.Categorical(K, class_weight='balanced') for K classes",
    "sample_weight": "weight=...",
    "random_state": "seed=...",
    "verbose": "progress=True or progress=False",
    "validation_split": "val=..., such as val=0.15",
    "validation_data": "val=(x_val, y_val)",
}


def sort_settings(settings: dict[str, Any], net: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keywords of `fit` that are fields of `Plan`, and those that are keywords of `open_data`.

    Refuses keywords that nobody knows, and fields that do nothing for this network or model.
    """
    planned = {field.name for field in fields(Plan)}
    reading = set(inspect.signature(open_data).parameters) - {"source", "seed"}
    for name in settings:
        if name in FOREIGN:
            raise Misuse(f"unknown keyword of fit '{name}': write {FOREIGN[name]}")
        if name not in planned | reading:
            own = set(inspect.signature(fit).parameters) - {"settings"}
            raise unknown("keyword of fit", name, planned | reading | own)
    chosen = {name: value for name, value in settings.items() if name in planned}
    refuse_unused(net, chosen)
    return chosen, {name: value for name, value in settings.items() if name in reading}


def _fit(
    whole: TrainSpec, source: NetSource, out: str | Path | None, show: Show, checkpoint_seconds: float
) -> Ensemble:
    """The ensemble of a new run, in `out` if that is given."""
    whole = with_ranks(whole, source.record)
    spec, first = head_only_spec(whole), whole.ranks.first
    show = show if first else show_nothing
    spec = replace(spec, gamma=spec.method.measure_gamma())
    progress = begin(spec)
    choice = choose_engine(spec, progress)
    show(f"engine {choice.engine.name}: {choice.reason}", 0, 0, None)
    if copies := spec.method.dynamics.copies(spec.end):
        size = sum(t.numel() * t.element_size() for t in progress.state.population.to_tensors().values())
        text = f"dynamics {whole.recipe.text('dynamics')}: up to {copies} copies of the weights"
        show(f"{text}, {copies * size / 1e6:.3g} MB", 0, 0, None)
    if whole.plan.trajectory is not None:
        show(f"trajectory {whole.plan.trajectory}: {trajectory_cost(whole, spec, progress)}", 0, 0, None)
    if choice.engine.workers > 1:
        suggest_keeping_freed_memory()
    roles = whole.roles(with_backbone(progress.state.population, whole.backbone))
    if whole.recipe.needs_kernels:
        show(roles.summary, 0, 0, None)
    found = {"gamma": spec.gamma, "parameters": roles.to_json()}
    manifest = describe(whole, source, choice.engine, choice.reason) | found
    path = None if out is None else Path(out)
    callback = ProgressCallback(path, show, checkpoint_seconds, new=True, ranks=spec.ranks)
    with runs.new_run(path if first else None):
        if path is not None and first:
            runs.create_run(path, manifest, whole.data.preparation, partial(save_first_weights, path, whole, progress))
        if path is not None and not whole.ranks.alone:
            require_visible(path, whole.ranks)
            if whole.init_from:
                checkpoints.save_checkpoint(path, progress, spec.ranks)
        return run_training(whole, spec, choice.engine, progress, manifest, callback)


def make_spec(
    net: Net | None,
    data: Data,
    recipe: Recipe,
    plan: Plan,
    *,
    noise_std: float | None = None,
    link: str | None = None,
    likelihood: Likelihood | str | None = None,
    init_from: InitFrom | None = None,
    reset: str | Sequence[str] = (),
    pretrained: bool | str | Path = False,
    output: Output | None = None,
) -> tuple[TrainSpec, NetSource]:
    """The specification of training a network on data by a recipe, and the source of its networks."""
    patterns = (reset,) if isinstance(reset, str) else tuple(reset)
    if patterns and init_from is None:
        raise Misuse(f"reset={reset!r} without init_from: all weights are random anyway; leave reset out")
    if isinstance(data.preparation, FeaturePreparation) and recipe.sharing.frozen:
        raise Misuse("features and a frozen backbone: the heads on features have no body; choose sharing own")
    if init_from is not None and recipe.sharing.frozen:
        raise Misuse("init_from with a frozen backbone: the body is given by frozen=; leave one of the two out")
    if not len(data.val):
        raise Misuse(f"{data.name} has no validation examples: training needs some; give val= a share such as 0.15")
    if plan.augment and len(data.input_shape) != 3:
        raise Misuse(f"augment={','.join(plan.augment)} is for images, and {data.name} has none: leave it out")
    if plan.sampler != INSTANCE and data.task != CLASSIFICATION:
        raise Misuse(f"sampler={plan.sampler} is by class, and {data.name} is a {data.task}: leave it out")
    likelihood = choose_likelihood(likelihood, data, recipe, noise_std, link)
    likelihood = fit_likelihood(likelihood, data.task, data.train.y)
    classes = getattr(likelihood, "classes", None)
    if data.classes and classes is not None and classes != len(data.classes):
        name = type(likelihood).__name__
        raise Misuse(f"{name}({classes}) for data of {len(data.classes)} classes: write {name}({len(data.classes)})")
    if plan.posthoc is not None:
        check_config(plan.posthoc, likelihood.task)
    anew = EVERY if init_from is None else patterns
    chosen = net or default_net(data)
    edges = edges_for(chosen, data.train.prepared)
    plain = net_source(chosen, data.input_shape, likelihood.width, anew, edges)
    if likelihood.takes_cosines and "name" in plain.record:
        plain = ending_in_cosines(plain)
    source = for_preparation(plain, data.preparation, data.input_shape, output)
    used = init_from is not None or True in (recipe.sharing.frozen, recipe.weights.init_from)
    if isinstance(net, nn.Module) and not used:
        check_initialisation(plain_module(net))
    source = _checked(source, data, likelihood, plan.device)
    published = None
    if pretrained:
        if init_from is not None:
            raise Misuse("pretrained= and init_from=: both are weights to begin with; leave one of them out")
        published = pretrained_state(net, source.build(), pretrained, data.preparation)
        source = keeping_statistics(source)
        init_from, patterns = None if recipe.sharing.frozen else published, (HEAD,)
    backbone = next(trained_networks(recipe.sharing.frozen, "backbone:frozen", net, source, published), None)
    if init_from is not None:
        if isinstance(recipe.weights.init_from, str):
            raise Misuse("init_from twice, as a keyword and among the settings of the weights: leave one of them out")
        begin_with = starting_networks(init_from, patterns, net, source, plan.members)
        start = describe_start(init_from if published is None else f"pretrained {pretrained}", patterns)
        source = replace(source, record={**source.record, "init_from": start})
    else:
        begin_with = tuple(trained_networks(recipe.weights.init_from, "moped:init_from", net, source))
    spec = TrainSpec(source.build, data, likelihood, recipe, plan, backbone=backbone, init_from=begin_with)
    spec = replace(spec, reset=patterns)
    for name in models_for(recipe.models, data.task):
        check_fit(name, data, likelihood)
    if COSINES in source.record:
        require_traceable_cosines(spec)
    return spec, source


def choose_likelihood(
    given: Likelihood | str | None, data: Data, recipe: Recipe, noise_std: float | None, link: str | None
) -> Any:
    """The likelihood given, by object or name; else that of the recipe's loss, or of the task."""
    if given is None and recipe.loss is not None:
        if data.task != CLASSIFICATION:
            raise Misuse(
                f"recipe {recipe.name} is for classification, and {data.name} is a {data.task}: choose another"
            )
        given = recipe.loss
    if isinstance(given, str) and noise_std is None:
        return likelihood_by_name(given, data.task, len(data.classes), link)
    if given is None:
        return likelihood_for(data.task, data.train.y, len(data.classes), noise_std, link)
    if noise_std is not None or link is not None:
        raise Misuse("likelihood= and noise_std= or link=: give the likelihood alone, with its own settings")
    return given


def require_traceable_cosines(spec: TrainSpec) -> None:
    """Refuse a recipe that acts on kernels and cannot act on that of a last layer of cosines."""
    try:
        spec.method.trace  # noqa: B018
    except Misuse:
        raise Misuse(
            f"recipe {spec.recipe.name} cannot act on a last layer of cosines: write likelihood='ldam:scale=1' (--loss"
            " ldam:scale=1), which leaves the last layer as it is"
        ) from None


@refusing_together
def resume(
    path: str | Path,
    *,
    net: Net | None = None,
    data: Any = None,
    recipe: Recipe | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] | None = None,
    likelihood: Likelihood | None = None,
    device: str | None = None,
    output: Output | None = None,
    show: Show = show_nothing,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Ensemble:
    """Continue a killed run; the ensemble is the one the undisturbed run would have left, bit for bit.

    A run on a network, data, recipe objects, an optimizer or a likelihood of the caller's own needs them again. The
    run goes on where it was begun, and is refused if that device is missing; on another `device` rounding differs.
    """
    path = Path(path)
    with runs.locked(None if runs.is_settled(path) or not is_first() else path):
        manifest = runs.read_run(path)
        if manifest["status"] == "complete":
            runs.require_files(path, manifest)
            return load(path, net=net, recipe=recipe, likelihood=likelihood, output=output, device=device)
        opened = reopen(manifest, data, path)
        likelihood = likelihood_from_json(manifest["likelihood"], likelihood)
        chosen, plan = recipe_from_json(manifest["recipe"], recipe), plan_from_json(manifest["plan"], optimizer, device)
        refuse_autocast(plan.device)
        if plan.device != manifest["plan"].get("device", CPU):
            devices = [*manifest.get("devices", [manifest["plan"].get("device", CPU)]), plan.device]
            manifest = {**manifest, "plan": {**manifest["plan"], "device": plan.device}, "devices": devices}
        source = _checked(source_again(manifest, net, output), opened, likelihood, plan.device)
        require_same_plain_tensors(source.build(), manifest["net"])
        stored = runs.require_unchanged(path, manifest, runs.BACKBONE) if chosen.sharing.frozen else None
        backbone = None if stored is None else with_weights(source.build(), read_tensors(stored), stored)
        whole = TrainSpec(source.build, opened, likelihood, chosen, plan, backbone=backbone)
        whole = with_ranks(whole, source.record)
        show = show if whole.ranks.first else show_nothing
        spec = replace(head_only_spec(whole), gamma=manifest.get("gamma"))
        progress = checkpoints.load_checkpoint(path, plan.device, spec.rows)
        given = chosen.weights.init_from or "init_from" in manifest["net"] or run_kind(manifest) is not None
        if progress is None and given:
            lost = f"{path / runs.CHECKPOINTS / runs.LATEST} is missing, and the first weights with it"
            raise Failure(f"{lost}: remove {path} and begin anew")
        engine = engine_again(manifest, spec.ranks)
        show(f"engine {engine.name}: as before", 0, 0, None)
        callback = ProgressCallback(path, show, checkpoint_seconds, ranks=spec.ranks)
        return run_training(whole, spec, engine, progress or begin(spec), manifest, callback)


def load(
    path: str | Path,
    *,
    net: Any = None,
    recipe: Recipe | None = None,
    likelihood: Likelihood | None = None,
    output: Output | None = None,
    posthoc: bool = True,
    device: str | None = None,
) -> Ensemble:
    """The ensemble of a finished run.

    One with a network of the caller's own needs that `net`, for its structure, one with recipe objects of the caller's
    own that `recipe`, one with a likelihood of the caller's own that `likelihood`, and one with a function that picks
    the outputs that `output`. An ensemble of given models of several architectures needs a list as `net`: one for each
    model, or one for each run of neighbours of one architecture. Without `posthoc` the calibrator, conformal sets and
    abstention rules are left out. Members are put on `device`, by default the one they were trained on; if that is
    missing here, on the CPU with a warning.
    """
    if runs.GIVEN in runs.read_run(Path(path)):
        return load_given(Path(path), net, likelihood, posthoc, output, recipe).to(device or CPU)
    if isinstance(net, list | tuple):
        raise Misuse(f"net= is a list, and {path} holds members of one network: give that network alone")
    tensors, manifest = runs.load_tensors(Path(path))
    likelihood = likelihood_from_json(manifest["likelihood"], likelihood)
    groups = []
    for named in runs.group_tensors(tensors, manifest):
        population = population_from_tensors(named)
        place = _device_to_load(manifest) if device is None else resolve_device(device)
        module = source_again(manifest, net, output).build()
        require_same_plain_tensors(module, manifest["net"])
        require_same_tensors(module, population, Path(path))
        groups.append(MemberGroup(module, population.to(place)))
    return Ensemble(
        tuple(groups),
        likelihood,
        engine_from(manifest),
        recipe_from_json(manifest["recipe"], recipe),
        {key: value for key, value in manifest.items() if key not in runs.STORAGE},
        runs.checked_history(Path(path), manifest),
        load_posthoc(Path(path)) if posthoc else None,
        stored_preparation(manifest["data"]["preparation"], Path(path), manifest[runs.FILES]),
        load_models(Path(path), manifest.get(runs.MODELS, []), likelihood),
        tuple(manifest.get("weights", ())),
    )


def _device_to_load(manifest: dict[str, Any]) -> str:
    """The device that a run was trained on, or the CPU with a warning if it is missing."""
    trained = manifest.get("plan", {}).get("device", CPU)
    if is_available(trained):
        return str(trained)
    warnings.warn(
        f"the run was trained on {trained}, which is not available here: its members are on the CPU", stacklevel=3
    )
    return CPU


def train_members(
    spec: TrainSpec,
    source: NetSource,
    engine: Engine,
    population: Population,
    out: str | Path,
    *,
    extra: dict[str, Any] | None = None,
    files: dict[str, Any] | None = None,
    show: Show = show_nothing,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Ensemble:
    """Train these members further, as a run of its own in `out`; `resume` continues it.

    `extra` joins the run's manifest, `files` are written into its directory as JSON before training.
    """
    path = Path(out)
    found = {"gamma": spec.gamma, "parameters": spec.roles(population).to_json(), **(extra or {})}
    manifest = describe(spec, source, engine, "as before") | found
    progress = start_from(spec, population.to(spec.plan.device))
    with runs.new_run(path):
        first = partial(save_first_weights, path, spec, progress, files or {})
        runs.create_run(path, manifest, spec.data.preparation, first)
        callback = ProgressCallback(path, show, checkpoint_seconds, new=True)
        return run_training(spec, spec, engine, progress, manifest, callback)


def architecture_of(init_from: InitFrom) -> Net | None:
    """The network of which weights are given, where it is known from them."""
    if isinstance(init_from, Ensemble):
        return init_from.groups[0].module
    if isinstance(init_from, str | Path) and Path(init_from).is_dir():
        named: str | None = runs.read_run(Path(init_from))["net"].get("name")
        return None if is_model(named) else named
    first = init_from[0] if isinstance(init_from, list | tuple) and init_from else init_from
    return first if isinstance(first, nn.Module) else None


def starting_networks(
    init_from: InitFrom, reset: Sequence[str], net: Net | None, source: NetSource, members: int
) -> tuple[nn.Module, ...]:
    """The networks whose weights members begin with: one for all, or one for each; of a run its first members."""
    if isinstance(init_from, str | Path) and Path(init_from).is_dir():
        init_from = load(init_from, net=None if isinstance(net, str) else net, posthoc=False)
    if isinstance(init_from, Ensemble):
        init_from = [init_from.member(index) for index in range(min(init_from.members, members))]
    states = given_weights(init_from)
    if len(states) not in (1, members):
        raise Misuse(f"init_from has {len(states)} networks for {members} members: give one, or one for each member")
    return tuple(with_weights(source.build(), state, reset=reset) for state in states)


def trained_networks(
    what: bool | str, setting: str, net: Net | None, source: NetSource, published: State | None = None
) -> Iterator[nn.Module]:
    """The trained networks that a setting asks for: none, that given or published (True), or the members of a run."""
    if what is True:
        weights = net.state_dict() if isinstance(net, nn.Module) else published
        if weights is None:
            name = setting.partition(":")[2]
            raise Misuse(
                f"{name}=yes needs a trained net: give an nn.Module, pretrained=True, or a run's directory as"
                f" {setting}=runs/x"
            )
        yield with_weights(source.build(), weights, "the net")
    elif what:
        run = load(str(what), net=None if isinstance(net, str) else net, posthoc=False, device=CPU)
        yield from (with_weights(source.build(), run.member(i).state_dict(), what) for i in range(run.members))


def default_net(data: Data) -> str:
    """The network for inputs of this shape when none is asked for."""
    if isinstance(data.preparation, FeaturePreparation):
        return "linear"
    return "small-cnn" if len(data.input_shape) == 3 else "mlp"


def reopen(manifest: dict[str, Any], data: Any = None, run: Path | None = None) -> Data:
    """The data of a run, refused if it is not what the run was trained on.

    Features, where it has some, are those stored in its directory `run`.
    """
    record = manifest["data"]
    known = record["source"]
    if data is None and "source" not in (known or {}):
        raise Misuse(f"the run was trained on {record['name']} of the caller's own: give it again in Python, as data=")
    if known is None and not isinstance(data, Data):
        raise Misuse("the run's data was split by an object of the caller's own: give data=mm.open_data(...) as before")
    if "features" in (known or {}) and not isinstance(data, Data):
        known = {**known, "features": features_again(run, record["preparation"], manifest.get(runs.FILES, {}))}
    opened = data if isinstance(data, Data) else open_data(**(known if data is None else {**known, "source": data}))
    if opened.fingerprint != record["fingerprint"]:
        raise Failure(f"{record['name']} has changed since the run was trained: its fingerprint differs")
    return opened


def source_again(manifest: dict[str, Any], net: Net | None = None, output: Output | None = None) -> NetSource:
    """The source of a run's networks, with the widths of its members; `net` is the caller's own, if it is one."""
    if net is None and "name" not in manifest["net"]:
        raise Misuse(f"the run's net is {manifest['net']['module']}, a module of your own: give it again as net=...")
    record, shape = manifest["net"], tuple(manifest["input_shape"])
    reset = record["init_from"]["reset"] if "init_from" in record else EVERY
    chosen = net if net is not None else record["name"]
    source = net_source(chosen, shape, width_of(manifest["likelihood"]), reset, record.get(EDGES))
    source = ending_in_cosines(source) if COSINES in record else source
    preparation = preparation_from_json(manifest["data"]["preparation"])
    source = keeping_statistics(for_preparation(source, preparation, shape, output_again(record, output)), record)
    widths = record.get("widths")
    return source if widths is None else narrow_source(source, widths)


def narrow_source(source: NetSource, widths: dict[str, Any]) -> NetSource:
    """The source with fewer channels in its networks' layers."""
    return NetSource(lambda: narrowed(source.build(), widths), {**source.record, "widths": widths})


def _checked(source: NetSource, data: Data, likelihood: Likelihood, device: str) -> NetSource:
    """The source with networks on the CPU, from where members move to `device`; refuses networks that do not fit."""
    with torch.random.fork_rng(devices=[]):
        module = source.build()
        found = next((t.device for t in module.parameters() if t.device.type != CPU), None)
        plain = next(iter(plain_tensors(module)), None) if torch.device(device).type != CPU else None
        if plain is not None:
            raise Misuse(f"'{plain}' of the net would not move to device='{device}': write self.register_buffer for it")
        if found is not None and found.type != torch.device(device).type:
            raise Misuse(f"the net is on {found}, and device='{device}': write device='{found}'")
        on_cpu = source if found is None else NetSource(lambda: source.build().cpu(), source.record)
        return check_network(on_cpu, module.cpu(), data.train.prepared[:2], likelihood.width)


def with_ranks(spec: TrainSpec, net: dict[str, Any]) -> TrainSpec:
    """The specification for this process among those of its group, if there is one, after an agreement of all."""
    if in_process_group():
        first = spec.member(0).state_dict()
        facts = {
            "data": spec.data.fingerprint,
            "recipe": spec.recipe.to_json(),
            "plan": spec.plan.to_json(),
            "net": json.loads(json.dumps(net, default=str)),
            "weights": digest(list(first.values()))[:16],
            "torch": torch.__version__,
        }
        agree(json.loads(json.dumps(facts, default=str)))
    return replace(spec, ranks=find_ranks(spec.plan.members, spec.plan.ranks_per_member))
