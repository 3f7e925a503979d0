"""`fit` and `resume`: from a network and data, or the directory of a killed run, to an ensemble."""

import json
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from murmuration.core.dynamics.trajectory import parse_trajectory
from murmuration.core.engines import Engine, engine as engine_named, find_ranks
from murmuration.core.engines.ranks import in_process_group
from murmuration.core.recipe import Recipe, recipe_from_json
from murmuration.data import Data
from murmuration.likelihoods import Likelihood, likelihood_from_json
from murmuration.models.estimators.table import name_of
from murmuration.models.nets.adapt import Output
from murmuration.models.nets.given_weights import with_weights
from murmuration.models.nets.source import Net, NetSource
from murmuration.models.nets.validation import digest, require_same_plain_tensors
from murmuration.prediction.ensemble import Ensemble
from murmuration.runs import checkpoints, directory as runs
from murmuration.runs.kinds import run_kind
from murmuration.runs.manifest import Manifest
from murmuration.runs.processes import agree, continues, is_first, refusing_together, require_visible
from murmuration.system.devices import CPU, refuse_autocast
from murmuration.system.errors import Failure, Misuse, notes_once
from murmuration.system.files import read_tensors
from murmuration.system.interrupts import CHECKPOINT_SECONDS
from murmuration.system.memory import suggest_keeping_freed_memory
from murmuration.system.progress import Show, is_watched, training_bar
from murmuration.training import TrainSpec, begin, choose_engine
from murmuration.training.folds import fit_folds, fit_models, pooled
from murmuration.training.head_only import head_only_spec, with_backbone
from murmuration.training.loading import engine_from, load as load, reopen, source_again
from murmuration.training.plan import Plan, plan_from_json
from murmuration.training.resolve import checked_source, resolve
from murmuration.training.run import Callback, ProgressCallback, run_training, save_first_weights, show_nothing

LOG = logging.getLogger("murmuration")  # its messages of level INFO are those of `murmur --verbose`


@notes_once
@refusing_together
@torch.enable_grad()
def fit(
    net: Net | None = None,
    data: Any = "digits",
    y: Any = None,
    *,
    recipe: str | Recipe = "deep-ensemble",
    plan: Plan | None = None,
    likelihood: Likelihood | str | None = None,
    folds: int | None = None,
    out: str | Path | None = None,
    progress: bool | Show | None = None,
    callback: Callback | None = None,
    **settings: Any,
) -> Ensemble:
    """Train an ensemble by a recipe, and calibrate it on validation examples.

    Args:
        net: Network by name, `nn.Module` (an architecture: members get fresh weights; parameters with
            `requires_grad=False` are not trained), function that builds one, or a scikit-learn estimator. By default
            images get a small convolutional net, tables a network by their size, all other inputs a multilayer
            perceptron.
        data: Pair (x, y), pandas table with `target=`, torch Dataset or DataLoader, of which 15 % validate (`val=`) and
            the rest is trained on; or `(train, val)` of Datasets or DataLoaders, a path, a name or a `Data`, which keep
            their splits (see `open_data`).
        y: Targets, if `data` are inputs alone: short for data=(x, y).
        recipe: Name of a preset (`murmur list recipes`), or a `Recipe`.
        plan: Settings of training. Without it, tables get settings by their size, also for an `mlp` by name.
        likelihood: Distribution of the target given outputs, or a loss by name such as "logit-adjusted:tau=1"
            (`murmur list losses`); by default that of the task.
        folds: Cross-fitting: training and validation examples are divided into this many folds, each of which validates
            `members` that train on the others; the ensemble is calibrated on out-of-fold predictions.
        out: Run directory. The run survives being killed and can be resumed; Ctrl-C and SIGTERM write a checkpoint.
        progress: Whether to show a progress bar, by default on a terminal and in a notebook; or a function that is
            called as `progress(message, step, steps, record)`.
        callback: Function that is called with the record of each epoch, as in `ensemble.history`; it ends training by
            raising `mm.StopTraining`.
        **settings: Fields of `Plan` such as `members`, `epochs`, `seed`, `lr`, `batch_size`, `device`, `patience`,
            `optimizer`, `checkpoint_seconds`, `posthoc` (None: no calibration), which take precedence over those of
            `plan`; keywords of `open_data` such as `target`, `task`, `val`, `groups`, `time`, `drop`; and

            - `init_from`: weights that members start from instead of random ones: a network, a list of one for each
              member, an ensemble, a state dict, a run directory or a `.safetensors` file;
            - `reset`: patterns of the tensors, such as "head", that are random all the same;
            - `pretrained`: start from published weights under random heads: True for those of an installed package or
              of the folder of `hf:FOLDER`, or a file of them (`.safetensors`, `.pth`);
            - `features`: pretrained network whose features of images, computed once, take the place of inputs; `net` is
              then the head, linear by default, and `features_from` a file of that network's weights (see `embed`);
            - `output`: position, key, attribute or function that picks the tensor of predictions of a network that
              returns a tuple, a dict or an object;
            - `noise_std`: known noise of a regression; `link`: softmax or softplus for a classification.

    Returns:
        The trained ensemble.

    Raises:
        Misuse: If something does not fit, with what was given, what was expected and what to write.
        Failure: If no member could be trained, or files cannot be written.

    >>> ensemble = fit("mlp", "two-moons", members=2, epochs=1)
    >>> ensemble.members
    2
    """
    if y is not None:
        data = paired(data, y)
    if continues(out):  # a launcher has started the processes of this run again
        objects: Any = {"net": net, "data": data, "recipe": recipe, "likelihood": likelihood}
        objects["optimizer"] = settings.get("optimizer", getattr(plan, "optimizer", None))
        objects = {name: None if isinstance(value, str | Path) else value for name, value in objects.items()}
        show = progress if callable(progress) else show_nothing
        seconds = settings.get("checkpoint_seconds", getattr(plan, "checkpoint_seconds", CHECKPOINT_SECONDS))
        objects |= {"output": settings.get("output"), "checkpoint_seconds": seconds}
        return resume(str(out), **objects, show=show, callback=callback)
    if is_first():
        runs.check_new(out)
    if not isinstance(progress, bool | None) and not callable(progress):
        raise Misuse(f"progress={progress!r:.60}: need True, False or a function")
    quiet = progress is False or not is_first() or (progress is None and not is_watched())
    run = resolve(net, data, recipe, plan, settings, likelihood=likelihood, out=out, quiet=quiet)
    if callback is not None and not callable(callback):
        raise Misuse(f"callback={callback!r:.60}: need a function of a record")
    if callback is not None and run.is_estimator:
        raise Misuse(f"callback= with {name_of(run.net)}, which has no epochs: leave it out")
    networks = None if run.is_estimator else run.spec(None if folds is None else pooled(run.data))
    bar = nullcontext(progress) if callable(progress) else training_bar(run.plan.epochs, quiet, run.recipe.name)
    with bar as show:
        if not callable(progress) and not isinstance(data, Data):
            show(repr(run.data), 0, 0, None)  # the task is inferred from the targets
        if networks is None:
            ensemble = fit_models(run.net, run.data, run.recipe, run.plan, run.likelihood(), folds, show)
        elif folds is None:
            return train_run(*networks, out, show, callback)
        else:
            spec, source = networks
            train = partial(train_run, source=source, out=None, show=show, callback=callback)
            ensemble = fit_folds(spec, run.data, folds, train, show)
    if out is not None and is_first():
        ensemble.save(out)
    return ensemble


def paired(data: Any, y: Any) -> tuple[Any, Any]:
    """Return inputs with their targets; refuse data that have targets, and the name of a column."""
    if isinstance(y, str):
        raise Misuse(f"y={y!r:.60}: need the targets themselves; for a column of a table write target={y!r:.60}")
    if isinstance(data, str | Path | Data):
        name = data.name if isinstance(data, Data) else data
        raise Misuse(f"y= with '{name}', which has targets of its own: leave it out")
    return data, y


def train_run(
    full_spec: TrainSpec, source: NetSource, out: str | Path | None, show: Show, callback: Callback | None = None
) -> Ensemble:
    """Train the ensemble of a new run, in `out` if that is given."""
    full_spec = with_ranks(full_spec, source.record)
    spec, first = head_only_spec(full_spec), full_spec.ranks.first
    show = show if first else show_nothing
    gamma = spec.method.measure_gamma()
    spec = spec if gamma is None else replace(spec, gamma=gamma)
    progress = begin(spec)
    choice = choose_engine(spec, progress)
    if first:
        LOG.info("engine %s: %s", choice.engine.name, choice.reason)
    if first and (copies := spec.method.dynamics.copies(spec.end)):
        size = sum(t.numel() * t.element_size() for t in progress.state.population.to_tensors().values())
        text = f"dynamics {full_spec.recipe.text('dynamics')}: up to {copies} copies of the weights"
        LOG.info("%s, %.3g MB", text, copies * size / 1e6)
    members = with_backbone(progress.state.population, full_spec.backbone)
    if full_spec.plan.trajectory is not None:
        times = parse_trajectory(full_spec.plan.trajectory)
        count = 1 + len(times.steps(spec.end))
        size = sum(t.numel() * t.element_size() for t in times.tensors(members).values())
        text = f"{count} checkpoints of {size / 1e6:.3g} MB, {count * size / 1e6:.3g} MB on the disk"
        show(f"trajectory {full_spec.plan.trajectory}: {text}", 0, 0, None)
    if choice.engine.workers > 1:
        suggest_keeping_freed_memory()
    roles = full_spec.roles(members)
    if full_spec.recipe.needs_kernels:
        show(roles.summary, 0, 0, None)
    manifest = describe(full_spec, source, choice.engine, choice.reason)
    manifest = replace(manifest, gamma=spec.gamma, parameters=roles.to_json())
    path = None if out is None else Path(out)
    seconds = full_spec.plan.checkpoint_seconds
    watcher = ProgressCallback(path, show, seconds, new=True, ranks=spec.ranks, callback=callback)
    with runs.new_run(path if first else None):
        if path is not None and first:
            first_weights = partial(save_first_weights, path, full_spec, progress)
            runs.create_run(path, manifest, full_spec.data.preparation, first_weights)
        if path is not None and not full_spec.ranks.alone:
            require_visible(path, full_spec.ranks)
            if full_spec.init_from:
                checkpoints.save_checkpoint(path, progress, spec.ranks)
        return run_training(full_spec, spec, choice.engine, progress, manifest, watcher)


def describe(spec: TrainSpec, source: NetSource, engine: Engine, reason: str) -> Manifest:
    """Return the manifest of a run: all that is needed to understand it, repeat it and continue it."""
    data, ranks = spec.data, spec.ranks
    return Manifest(
        recipe=spec.recipe.to_json(),
        plan=spec.plan.to_json(),
        net=source.record,
        input_shape=list(data.input_shape),
        steps_per_epoch=spec.end.steps_per_epoch,
        likelihood=spec.likelihood.to_json(),
        kernels=spec.method.trace.to_json() if spec.recipe.needs_kernels else None,
        data=runs.describe_data(data, spec.likelihood.task),
        engine={**asdict(engine), "reason": reason, "torch_threads": torch.get_num_threads()},
        ranks=ranks.size * ranks.parts,
        **runs.describe_process(),
    )


@notes_once
@refusing_together
@torch.enable_grad()
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
    callback: Callback | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Ensemble:
    """Continue a killed run; the ensemble is the one the undisturbed run would have left, bit for bit.

    A run of an application is finished as the application does it: fine-tuning after pruning records its scores.

    Args:
        path: Directory of the run.
        net: The network again, if it is an object of your own.
        data: The data again, if they are objects of your own.
        recipe: The recipe again, if it has objects of your own.
        optimizer: The optimizer again, if it is an object of your own.
        likelihood: The likelihood again, if it is an object of your own.
        device: Another device than where the run was begun, with other rounding; a missing one is refused.
        output: The function that picks the outputs again, if there is one.
        show: Called as `show(message, step, steps, record)`.
        callback: As for `fit`, from the next epoch on.
        checkpoint_seconds: Seconds between checkpoints.

    Returns:
        The ensemble, also of a run that is complete.

    Raises:
        Misuse: If an object of your own is missing, or the device is.
        Failure: If files of the run are damaged, or its data has changed.
    """
    path = Path(path)
    manifest = runs.read_run(path)
    kind = run_kind(manifest)
    if data is None and kind is not None and kind.reopen is not None:
        data = kind.reopen(manifest)
    with runs.locked(None if runs.is_settled(path) or not is_first() else path):
        manifest = runs.read_run(path)
        if manifest.status == "complete":
            runs.require_files(path, manifest)
            ensemble = load(path, net=net, recipe=recipe, likelihood=likelihood, output=output, device=device)
        else:
            objects = {"net": net, "recipe": recipe, "optimizer": optimizer, "likelihood": likelihood, "output": output}
            watcher = ProgressCallback(path, show, checkpoint_seconds, callback=callback)
            ensemble = continue_training(path, manifest, data, device, watcher, **objects)
    return ensemble if kind is None or kind.finish is None else kind.finish(path, ensemble, data)


def continue_training(
    path: Path, manifest: Manifest, data: Any, device: str | None, watcher: ProgressCallback, **own: Any
) -> Ensemble:
    """Train the members of a killed run to the end; `own` are the user-defined objects that it needs again."""
    with runs.named_damage(path, data, *own.values()):
        opened = reopen(manifest, data, path)
        likelihood = likelihood_from_json(manifest.likelihood, own["likelihood"])
        stored_recipe = recipe_from_json(manifest.recipe, own["recipe"])
        plan = plan_from_json(manifest.plan, own["optimizer"], device)
        refuse_autocast(plan.device)
        began_on = manifest.plan.get("device", CPU)
        if plan.device != began_on:
            devices = [*(manifest.devices or [began_on]), plan.device]
            manifest = replace(manifest, plan={**manifest.plan, "device": plan.device}, devices=devices)
        source = checked_source(source_again(manifest, own["net"], own["output"]), opened, likelihood, plan.device)
        require_same_plain_tensors(source.structure(), manifest.net)
        backbone = None
        if stored_recipe.sharing.frozen:
            stored = runs.require_unchanged(path, manifest, runs.BACKBONE)
            backbone = with_weights(source.structure(), read_tensors(stored), stored)
        full_spec = TrainSpec(source.build, opened, likelihood, stored_recipe, plan, backbone=backbone)
        full_spec = with_ranks(full_spec, source.record)
        spec = replace(head_only_spec(full_spec), gamma=manifest.gamma)
        progress = checkpoints.load_checkpoint(path, plan.device, spec.rows)
        kind = run_kind(manifest)
        trained = stored_recipe.weights.init_from or "init_from" in manifest.net
        if progress is None and (trained or (kind is not None and kind.networks is not None)):  # not from a seed
            lost = f"{path / runs.CHECKPOINTS / runs.LATEST} is missing, and the first weights with it"
            raise Failure(f"{lost}: remove {path} and begin anew")
        engine, ranks = engine_from(manifest), spec.ranks
        if ranks.size * ranks.parts != manifest.ranks and engine.workers:  # one for each core of other ranks
            engine = engine_named(engine.name, engine.direct, ranks.cores)
    if ranks.first:
        LOG.info("engine %s: as before", engine.name)
    watcher = replace(watcher, show=watcher.show if ranks.first else show_nothing, ranks=ranks)
    return run_training(full_spec, spec, engine, progress or begin(spec), manifest, watcher)


def with_ranks(spec: TrainSpec, net: dict[str, Any]) -> TrainSpec:
    """Return the specification for this process among those of its group, if it has one, after an agreement of all."""
    if in_process_group():
        facts = {
            "data": spec.data.fingerprint,
            "recipe": spec.recipe.to_json(),
            "plan": spec.plan.to_json(),
            "net": net,
            "weights": digest(*spec.member(0).state_dict().values())[:16],
            "torch": torch.__version__,
        }
        agree(json.loads(json.dumps(facts, default=str)))
    return replace(spec, ranks=find_ranks(spec.plan.members, spec.plan.ranks_per_member))
