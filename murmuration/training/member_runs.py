"""`add_members`, `drop_members`, `merge_runs`: a new run from the members of finished ones, which stay as they are.

They are for recipes without coupling and without shared trained tensors, whose members are trained independently of
each other. Post-hoc steps are fitted anew on the validation examples: those of the old members are not those of the new
ensemble.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from murmuration.core.engines import Choice
from murmuration.core.recipe import Recipe, make_recipe, recipe_from_json
from murmuration.data import Data
from murmuration.likelihoods import Likelihood, likelihood_from_json
from murmuration.models.nets.adapt import Output
from murmuration.models.nets.source import Net
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc import PostHocConfig
from murmuration.runs import directory as runs
from murmuration.system.errors import Misuse, require_integer
from murmuration.system.files import digest_of, read_tensors, write_tensors
from murmuration.system.interrupts import CHECKPOINT_SECONDS
from murmuration.system.progress import Show
from murmuration.training import TrainSpec, begin, choose_engine, fitting, membership
from murmuration.training.manifests import engine_from
from murmuration.training.membership import ADDING, STREAMS, StoredMembers
from murmuration.training.plan import Plan, plan_from_json
from murmuration.training.run import show_nothing, with_posthoc


def add_members(
    run: str | Path,
    count: int,
    *,
    out: str | Path,
    net: Net | None = None,
    data: Any = None,
    recipe: Recipe | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] | None = None,
    likelihood: Likelihood | None = None,
    output: Output | None = None,
    device: str | None = None,
    show: Show = show_nothing,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Ensemble:
    """Train `count` more members for a finished run and write all of them as a new run in `out`.

    The new members are those that a run of all of them, with the same seed and on the same engine, would have had, bit
    for bit. A killed call continues with `resume`. A run on a network, data, recipe objects, an optimizer or a
    likelihood of the caller's own needs them again.
    """
    require_integer("count", count, 1)
    path, place = Path(run), Path(out)
    runs.check_new(place)
    earlier = membership.read_members(path)
    refuse_inexact(path, earlier)
    manifest = {key: value for key, value in earlier.manifest.items() if key not in (STREAMS, "origins", "diverged")}
    plan = plan_for_more(earlier, count, plan_from_json(manifest["plan"], optimizer, device))
    stored = runs.read_run(path)
    opened = fitting.reopen(stored, data, path)
    stored_recipe = recipe_from_json(manifest["recipe"], recipe)
    source = fitting.source_again(manifest, net, output)
    if engine_depends_on_members(earlier):
        known_likelihood = likelihood_from_json(manifest["likelihood"], likelihood)
        choice = engine_for_several(TrainSpec(source.build, opened, known_likelihood, stored_recipe, plan))
        manifest["engine"] = {**manifest["engine"], **asdict(choice.engine), "reason": choice.reason}
    if engine_from(manifest).stacked:  # a stack of one is rounded otherwise: the second is not kept
        plan = replace(plan, members=max(count, 2))
    manifest |= {"plan": plan.to_json(), "recipe": for_several(manifest["recipe"]), **runs.describe_process()}
    manifest[ADDING] = {"run": str(path.resolve()), "sha256": digest_of(path / runs.MEMBERS), "members": count}

    def first() -> None:
        if runs.BACKBONE in stored[runs.FILES]:
            backbone = runs.require_unchanged(path, stored, runs.BACKBONE)
            write_tensors(place / runs.BACKBONE, read_tensors(backbone))

    with runs.new_run(place):
        runs.create_run(place, manifest, opened.preparation, first)
        return fitting.resume(
            place,
            net=net,
            data=opened,
            recipe=recipe,
            optimizer=optimizer,
            likelihood=likelihood,
            output=output,
            device=device,
            show=show,
            checkpoint_seconds=checkpoint_seconds,
        )


def plan_for_more(earlier: StoredMembers, count: int, plan: Plan) -> Plan:
    """The plan of so many more members, whose numbers follow those of the seed that the run has."""
    first = 1 + max(number for seed, number in earlier.streams if seed == plan.seed)
    if plan.trajectory is not None:
        warnings.warn("the trajectory stays with the old run: the new one has none", stacklevel=3)
    return replace(plan, members=count, first_member=first, trajectory=None)


def refuse_inexact(path: Path, earlier: StoredMembers) -> None:
    """Refuse a run whose further members could not be those that a larger run would have had."""
    manifest, plan = earlier.manifest, earlier.manifest["plan"]
    reason = None
    if "init_from" in manifest["net"] or "init_from=" in manifest["recipe"]["weights"]:
        reason = "its members began with given weights"
    elif plan.get("same"):
        reason = f"its members have random streams in common (same={','.join(plan['same'])})"
    elif plan.get("stop_by") == "ensemble" and plan.get("patience") is not None:
        reason = "its members stopped together, by the validation NLL of their mixture (stop_by=ensemble)"
    elif different := earlier.manifest.get("merged", {}).get("different"):
        reason = f"its members were trained with different settings ({', '.join(different)})"
    if reason is not None:
        first = 1 + max(number for _, number in earlier.streams)
        raise Misuse(
            f"{path}: {reason}, so more of them cannot be those that a larger run would have had; train a run with"
            f" first_member={first} (--first-member {first}) and merge the two"
        )


def engine_depends_on_members(earlier: StoredMembers) -> bool:
    """Whether a run of one member was run by the loop for that reason alone."""
    plan = earlier.manifest["plan"]
    frozen = "frozen=" in earlier.manifest["recipe"]["sharing"]
    return plan.get("engine", "auto") == "auto" and plan["members"] == 1 and not frozen


def engine_for_several(spec: TrainSpec) -> Choice:
    """The engine that the rule chooses for a run of several members, however many they are."""
    two = replace(spec, plan=replace(spec.plan, members=2))
    return choose_engine(two, begin(two))


def for_several(recipe: dict[str, Any]) -> dict[str, Any]:
    """The record of a recipe for any number of members: several of `single` are a deep ensemble."""
    if not recipe.get("fixed_members"):
        return recipe
    named = make_recipe("deep-ensemble").to_json()
    return {**recipe, **{key: named[key] for key in ("name", "members", "fixed_members")}}


def drop_members(
    run: str | Path,
    members: Sequence[int],
    *,
    out: str | Path,
    net: Net | None = None,
    data: Any = None,
    recipe: Recipe | None = None,
    likelihood: Likelihood | None = None,
    output: Output | None = None,
    device: str | None = None,
) -> Ensemble:
    """Write a run without some members of a finished one, by their numbers from 0, as a new run in `out`.

    A run on a network, data, recipe objects or a likelihood of the caller's own needs them again.
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
    rows = [member for member in range(count) if member not in members]
    remaining = membership.taken(ensemble, rows)
    record = {"dropped": {"of": str(run), "members": list(members)}}
    keywords = {"net": net, "recipe": recipe, "likelihood": likelihood, "output": output, "device": device}
    return write_run(Path(run), remaining, record, Path(out), data, keywords)


def merge_runs(
    paths: Sequence[str | Path],
    *,
    out: str | Path,
    net: Net | None = None,
    data: Any = None,
    recipe: Recipe | None = None,
    likelihood: Likelihood | None = None,
    output: Output | None = None,
    device: str | None = None,
) -> Ensemble:
    """Write the members of several finished runs, in their order, as one new run in `out`.

    Runs must have the same data, preparation, network, likelihood and recipe, and no member in common; where settings
    of training differ, a warning says which, and the new run's record has those of the first. A run on a network, data,
    recipe objects or a likelihood of the caller's own needs them again.
    """
    if isinstance(paths, str | Path) or len(paths) < 2:
        raise Misuse(f"merge of {paths!r:.60}: give a list of two or more run directories")
    runs.check_new(out)
    parts = [membership.read_members(Path(path)) for path in paths]
    membership.refuse_differences(parts)
    different = membership.different_settings(parts)
    for name, values in different.items():
        told = ", ".join(dict.fromkeys(str(value) for value in values))
        warnings.warn(f"the members were trained with different {name}: {told}", stacklevel=2)
    found = membership.joined(parts)
    record: dict[str, Any] = {"merged": {"runs": [str(path) for path in paths], "different": different}}
    record["recipe"] = for_several(found.manifest["recipe"])
    given = {"net": net, "recipe": recipe, "likelihood": likelihood, "output": output, "device": device}
    return write_run(Path(paths[0]), found, record, Path(out), data, given)


def write_run(
    first: Path, members: StoredMembers, record: dict[str, Any], out: Path, data: Any, given: dict[str, Any]
) -> Ensemble:
    """The ensemble of these members with the networks of a run, post-hoc steps fitted anew, in a directory of its own.

    `record` joins the manifest; `given` are the keywords of `load`.
    """
    opened: Data = fitting.reopen(runs.read_run(first), data, first)
    ensemble = fitting.load(first, posthoc=False, **given)
    plan = {**members.manifest["plan"], "trajectory": None}
    manifest = {**members.manifest, "plan": plan, **runs.describe_process(), **record}
    placed = members.population.to(ensemble.device)
    made = membership.with_members(ensemble, replace(members, population=placed, manifest=manifest))
    made = replace(made, recipe=recipe_from_json(manifest["recipe"], given["recipe"]), preparation=opened.preparation)
    posthoc = plan.get("posthoc")
    done = with_posthoc(made, opened, Plan(posthoc=None if posthoc is None else PostHocConfig(**posthoc)))
    done.save(out)
    return done
