"""`load`: the ensemble of a finished run; its data and its networks opened again."""

import os
from pathlib import Path
from typing import Any

from murmuration.core.engines import Engine
from murmuration.core.population import population_from_tensors
from murmuration.core.recipe import Recipe, recipe_from_json
from murmuration.data import Data, TablePreparation, open_data, preparation_from_json
from murmuration.likelihoods import Likelihood, likelihood_from_json, width_of
from murmuration.models.estimators.storage import load_models
from murmuration.models.features import features_again, stored_preparation
from murmuration.models.nets.adapt import Output
from murmuration.models.nets.inputs import COSINES, ending_in_cosines, for_preparation, output_again
from murmuration.models.nets.pretrained import keeping_statistics
from murmuration.models.nets.source import EDGES, EVERY, Net, NetSource, net_source
from murmuration.models.nets.validation import require_same_plain_tensors
from murmuration.prediction.ensemble import Ensemble, MemberGroup, load_posthoc
from murmuration.prediction.given_networks import load_given, require_same_tensors
from murmuration.runs import directory as runs
from murmuration.runs.kinds import run_kind
from murmuration.runs.manifest import Manifest
from murmuration.system.devices import CPU, is_available, resolve_device
from murmuration.system.errors import Failure, Misuse, described, warn, without_notes
from murmuration.system.plugins import plugins

ENGINE_FIELDS = ("name", "workers", "stacked", "direct")  # of an engine, in the manifest


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
    """Load the ensemble of a finished run.

    Args:
        path: Directory of the run.
        net: The network again, if it is an object of your own. An ensemble of given models of several architectures
            needs a list: one for each model, or one for each run of neighbours of one architecture.
        recipe: The recipe again, if it has objects of your own.
        likelihood: The likelihood again, if it is an object of your own.
        output: The function that picks the outputs again, if there is one.
        posthoc: Whether to load the calibrator, conformal sets and abstention rules.
        device: Device of the members; by default the one they were trained on, or the CPU, with a warning, if that is
            missing.
    """
    if not isinstance(path, str | os.PathLike):
        raise Misuse(f"load got {described(path)}: give the directory of a run, such as 'runs/x'")
    plugins("murmuration.extensions")
    with runs.named_damage(Path(path), net, recipe, likelihood, output):
        manifest = runs.read_run(Path(path))
        if manifest.given:
            if net is None and "name" in manifest.net:  # of `mm.Method`
                net = source_again(manifest).structure()
            return load_given(Path(path), net, likelihood, posthoc, output, recipe).to(device or CPU)
        if isinstance(net, list | tuple):
            raise Misuse(f"net= is a list, and {path} holds members of one network: give that network alone")
        tensors, manifest = runs.load_tensors(Path(path))
        likelihood = likelihood_from_json(manifest.likelihood, likelihood)
        groups = []
        for named in runs.group_tensors(tensors, manifest):
            population = population_from_tensors(named)
            place = _device_to_load(manifest) if device is None else resolve_device(device)
            module = source_again(manifest, net, output).structure()
            require_same_plain_tensors(module, manifest.net)
            require_same_tensors(module, population, Path(path))
            groups.append(MemberGroup(module, population.to(place)))
        ensemble = Ensemble(
            tuple(groups),
            likelihood,
            engine_from(manifest),
            recipe_from_json(manifest.recipe, recipe),
            manifest.without_files(),
            runs.checked_history(Path(path), manifest),
            load_posthoc(Path(path)) if posthoc else None,
            stored_preparation(manifest.data["preparation"], Path(path), manifest.files),
            load_models(Path(path), manifest.models, likelihood),
            tuple(manifest.weights),
        )
        if not ensemble.members or not ensemble.names:  # which also reads them
            raise Failure(f"{path} holds no members: the run is damaged")
        width = len(ensemble.preparation.names) if isinstance(ensemble.preparation, TablePreparation) else None
        if width not in (None, *manifest.input_shape):
            raise Failure(f"{path} prepares {width} columns for inputs {manifest.input_shape}: the run is damaged")
        return ensemble


def engine_from(manifest: Manifest) -> Engine:
    """Return the engine that a manifest names."""
    return Engine(**{field: manifest.engine[field] for field in ENGINE_FIELDS})


def _device_to_load(manifest: Manifest) -> str:
    """Return the device that a run was trained on, or the CPU with a warning if it is missing."""
    device = str(manifest.plan.get("device", CPU))
    if is_available(device):
        return device
    reason = f"the run was trained on {device}, which is not available here"
    warn(f"{reason}: its members are on the CPU")
    return CPU


def reopen(manifest: Manifest, data: Any = None, run: Path | None = None) -> Data:
    """Return the data of a run; refuse data that is not what the run was trained on.

    Features, where it has some, are those stored in its directory `run`.
    """
    with runs.named_damage(run or Path(), data):
        record = manifest.data
        reading = record["source"]
        if data is None and "source" not in (reading or {}):
            what = f"the run was trained on {record['name']} of the caller's own"
            raise Misuse(f"{what}: give it again in Python, as data=")
        if not isinstance(data, Data):
            if reading is None:
                what = "the run's data was split by an object of the caller's own"
                raise Misuse(f"{what}: give data=mm.open_data(...) as before")
            reading = reading if data is None else {**reading, "source": data}
            if "features" in reading:
                reading = {**reading, "features": features_again(run, record["preparation"], manifest.files)}
            with without_notes():  # the training has said them
                data = open_data(**reading)
        if data.fingerprint != record["fingerprint"]:
            raise Failure(f"{record['name']} has changed since the run was trained: its fingerprint differs")
        return data


def source_again(manifest: Manifest, net: Net | None = None, output: Output | None = None) -> NetSource:
    """Return the source of a run's networks, as its kind changes them; `net` is the caller's own, if any."""
    if net is None and "name" not in manifest.net:
        raise Misuse(f"the run's net is {manifest.net['module']}, a module of your own: give it again as net=...")
    record, shape = manifest.net, tuple(manifest.input_shape)
    reset = record["init_from"]["reset"] if "init_from" in record else EVERY
    net = record["name"] if net is None else net
    source = net_source(net, shape, width_of(manifest.likelihood), reset, record.get(EDGES))
    source = ending_in_cosines(source) if COSINES in record else source
    if manifest.data:
        preparation = preparation_from_json(manifest.data["preparation"])
        source = for_preparation(source, preparation, shape, output_again(record, output))
    source = keeping_statistics(source, record)
    kind = run_kind(manifest)
    return source if kind is None or kind.networks is None else kind.networks(source, manifest)
