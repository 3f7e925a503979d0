"""`add_members`, `drop_members`, `merge_runs`: a new run from the members of finished ones, which stay as they are.

They are for recipes without coupling and without shared trained tensors, whose members are trained independently of
each other. Post-hoc steps are fitted anew on the validation examples: those of the old members are not those of the new
ensemble.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch

from murmuration.core.recipe import Recipe, make_recipe, recipe_from_json
from murmuration.likelihoods import Likelihood, likelihood_from_json
from murmuration.models.nets.adapt import Output
from murmuration.models.nets.source import Net
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc import PostHocConfig
from murmuration.runs import directory as runs
from murmuration.system.errors import Misuse, require_integer, warn
from murmuration.system.files import digest_of, read_tensors, write_tensors
from murmuration.system.interrupts import CHECKPOINT_SECONDS
from murmuration.system.progress import Show
from murmuration.training import TrainSpec, begin, choose_engine, membership
from murmuration.training.fitting import resume
from murmuration.training.loading import engine_from, load, reopen, source_again
from murmuration.training.membership import StoredMembers
from murmuration.training.plan import Plan, plan_from_json
from murmuration.training.run import show_nothing, with_posthoc


class UserObjects(TypedDict, total=False):
    """Objects that a run does not store, to be given again: keywords of `load`.

    Attributes:
        net: The network of a run on a user's network, for its structure.
        recipe: The recipe of a run with user-defined recipe objects.
        likelihood: A user-defined likelihood.
        output: A function that picks the outputs.
    """

    net: Net | None
    recipe: Recipe | None
    likelihood: Likelihood | None
    output: Output | None


def add_members(
    run: str | Path,
    count: int,
    *,
    out: str | Path,
    data: Any = None,
    optimizer: Callable[..., torch.optim.Optimizer] | None = None,
    device: str | None = None,
    show: Show = show_nothing,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **objects: Unpack[UserObjects],
) -> Ensemble:
    """Train `count` more members for a finished run and write all of them as a new run in `out`.

    The new members are those that a run of all of them, with the same seed and on the same engine, would have had, bit
    for bit. A killed call continues with `resume`.

    Args:
        run: Directory of the finished run.
        count: Number of members to add.
        out: Directory of the new run.
        data: Data of a run on data in memory.
        optimizer: User-defined optimizer of the run.
        device: Device, by default that of the run.
        show: Called as `show(message, step, steps, record)`.
        checkpoint_seconds: Seconds between checkpoints.
        **objects: User-defined objects of the run: `net`, `recipe`, `likelihood`, `output`.

    Returns:
        The ensemble of the old and the new members.
    """
    require_integer("count", count, 1)
    path, place = Path(run), Path(out)
    runs.check_new(place)
    earlier = membership.read_members(path)
    refuse_inexact(path, earlier)
    manifest = replace(earlier.manifest, streams=None, origins=None, diverged={})
    old_plan, plan = manifest.plan, plan_from_json(manifest.plan, optimizer, device)
    if plan.trajectory is not None:
        warn("the trajectory stays with the old run: the new one has none")
    first_member = 1 + max(number for seed, number in earlier.streams if seed == plan.seed)
    plan = replace(plan, members=count, first_member=first_member, trajectory=None)
    stored = runs.read_run(path)
    opened = reopen(stored, data, path)
    recipe = recipe_from_json(manifest.recipe, objects.get("recipe"))
    source = source_again(manifest, objects.get("net"), objects.get("output"))
    frozen = "frozen=" in manifest.recipe["sharing"]
    if old_plan.get("engine", "auto") == "auto" and old_plan["members"] == 1 and not frozen:
        # One member was run by the loop for that reason alone: the engine is that of several, however many they are.
        likelihood = likelihood_from_json(manifest.likelihood, objects.get("likelihood"))
        two = TrainSpec(source.build, opened, likelihood, recipe, replace(plan, members=2))
        choice = choose_engine(two, begin(two))
        manifest = replace(manifest, engine={**manifest.engine, **asdict(choice.engine), "reason": choice.reason})
    if engine_from(manifest).stacked:  # a stack of one is rounded otherwise: the second is not kept
        plan = replace(plan, members=max(count, 2))
    adding_to = {"run": str(path.resolve()), "sha256": digest_of(path / runs.MEMBERS), "members": count}
    changed: dict[str, Any] = {"plan": plan.to_json(), "recipe": for_several(manifest.recipe), "adding_to": adding_to}
    manifest = replace(manifest, **changed | runs.describe_process())

    def first() -> None:
        if runs.BACKBONE in stored.files:
            write_tensors(place / runs.BACKBONE, read_tensors(runs.require_unchanged(path, stored, runs.BACKBONE)))

    with runs.new_run(place):
        runs.create_run(place, manifest, opened.preparation, first)
        more: dict[str, Any] = {"optimizer": optimizer, "device": device, "checkpoint_seconds": checkpoint_seconds}
        return resume(place, data=opened, show=show, **more, **objects)


def refuse_inexact(path: Path, earlier: StoredMembers) -> None:
    """Refuse a run whose further members could not be those that a larger run would have had."""
    manifest, plan = earlier.manifest, earlier.manifest.plan
    if "init_from" in manifest.net or "init_from=" in manifest.recipe["weights"]:
        reason = "its members began with given weights"
    elif plan.get("same"):
        reason = f"its members have random streams in common (same={','.join(plan['same'])})"
    elif plan.get("stop_by") == "ensemble" and plan.get("patience") is not None:
        reason = "its members stopped together, by the validation NLL of their mixture (stop_by=ensemble)"
    elif different := earlier.manifest.merged.get("different"):
        reason = f"its members were trained with different settings ({', '.join(different)})"
    else:
        return
    first = 1 + max(number for _, number in earlier.streams)
    advice = f"train a run with first_member={first} (--first-member {first}) and merge the two"
    raise Misuse(f"{path}: {reason}, so more of them cannot be those that a larger run would have had; {advice}")


def for_several(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a recipe for any number of members: several of `single` are a deep ensemble."""
    if not recipe.get("fixed_members"):
        return recipe
    named = make_recipe("deep-ensemble").to_json()
    return {**recipe, **{key: named[key] for key in ("name", "members", "fixed_members")}}


def drop_members(
    run: str | Path,
    members: Sequence[int],
    *,
    out: str | Path,
    data: Any = None,
    device: str | None = None,
    **objects: Unpack[UserObjects],
) -> Ensemble:
    """Write a run without some members of a finished one as a new run.

    Args:
        run: Directory of the finished run.
        members: Numbers of the members to leave out, from 0.
        out: Directory of the new run.
        data: Data of a run on data in memory.
        device: Device, by default that of the run.
        **objects: User-defined objects of the run: `net`, `recipe`, `likelihood`, `output`.

    Returns:
        The ensemble of the other members, calibrated again.
    """
    runs.check_new(out)
    ensemble = membership.read_members(Path(run))
    count = ensemble.population.members
    for index, member in enumerate(members):
        require_integer("members", member, 0)
        if member >= count:
            raise Misuse(f"member {member}: {run} has {count}, of the numbers 0 to {count - 1}")
        if member in members[:index]:
            raise Misuse(f"member {member} is given twice: write each number once")
    if not members or len(members) == count:
        raise Misuse(f"{len(members)} of the {count} members of {run} to drop: give some of the numbers, not all")
    remaining = membership.taken(ensemble, [member for member in range(count) if member not in members])
    record = {"dropped": {"of": str(run), "members": list(members)}}
    return write_run(Path(run), remaining, record, Path(out), data, device, objects)


def merge_runs(
    paths: Sequence[str | Path],
    *,
    out: str | Path,
    data: Any = None,
    device: str | None = None,
    **objects: Unpack[UserObjects],
) -> Ensemble:
    """Write the members of several finished runs, in their order, as one new run.

    Runs must have the same data, preparation, network, likelihood and recipe, and no member in common; where settings
    of training differ, a warning says which, and the new run's record has those of the first.

    Args:
        paths: Directories of the finished runs.
        out: Directory of the new run.
        data: Data of a run on data in memory.
        device: Device, by default that of the first run.
        **objects: User-defined objects of the runs: `net`, `recipe`, `likelihood`, `output`.

    Returns:
        The ensemble of all members, calibrated again.
    """
    if isinstance(paths, str | Path) or len(paths) < 2:
        raise Misuse(f"merge of {paths!r:.60}: give a list of two or more run directories")
    runs.check_new(out)
    parts = [membership.read_members(Path(path)) for path in paths]
    membership.refuse_differences(parts)
    different = membership.different_settings(parts)
    for name, values in different.items():
        listed = ", ".join(dict.fromkeys(map(str, values)))
        warn(f"the members were trained with different {name}: {listed}")
    members = membership.joined(parts)
    record = {"merged": {"runs": [str(path) for path in paths], "different": different}}
    record["recipe"] = for_several(members.manifest.recipe)
    return write_run(Path(paths[0]), members, record, Path(out), data, device, objects)


def write_run(
    first: Path,
    members: StoredMembers,
    record: dict[str, Any],
    out: Path,
    data: Any,
    device: str | None,
    objects: UserObjects,
) -> Ensemble:
    """Write these members with the networks of a run as an ensemble in its own directory; fit post-hoc steps again.

    `record` joins the manifest.
    """
    opened = reopen(runs.read_run(first), data, first)
    ensemble = load(first, posthoc=False, device=device, **objects)
    plan = {**members.manifest.plan, "trajectory": None}
    manifest = replace(members.manifest, **{"plan": plan, **runs.describe_process(), **record})
    placed = replace(members, population=members.population.to(ensemble.device), manifest=manifest)
    recipe = recipe_from_json(manifest.recipe, objects.get("recipe"))
    ensemble = replace(membership.with_members(ensemble, placed), recipe=recipe, preparation=opened.preparation)
    posthoc = None if plan.get("posthoc") is None else PostHocConfig(**plan["posthoc"])
    calibrated = with_posthoc(ensemble, opened, Plan(posthoc=posthoc))
    calibrated.save(out)
    return calibrated
