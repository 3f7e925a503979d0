"""Members of finished runs joined and taken apart: their tensors, manifests and histories.

A *row* is a member as it is trained; the dynamics may make several members of the ensemble of it (`origins` in the
manifest: the row of each). Random streams are addressed by (seed, number) of a row, so that a row has the same bits
whichever run it is trained in, provided that nothing joins it to the others: no coupling and no shared tensors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from murmuration.core.population import Population, population_from_tensors
from murmuration.core.recipe import QUESTIONS
from murmuration.prediction.ensemble import Ensemble
from murmuration.runs import directory as runs
from murmuration.runs.kinds import run_kind
from murmuration.runs.manifest import Manifest
from murmuration.system.errors import Failure, Misuse
from murmuration.system.files import digest_of

DEPENDENT_ON_MEMBERS = ("plan", "origins", "diverged", "seconds", "cpu_seconds", "streams")  # entries of the manifest
OWN_TO_A_RUN = ("seed", "first_member", "members", "engine", "device", "trajectory")  # settings that runs may differ in


@dataclass(frozen=True)
class StoredMembers:
    """The members of a finished run, without their network."""

    name: str  # for messages
    population: Population
    manifest: Manifest
    history: list[dict[str, Any]]

    @property
    def rows(self) -> int:
        return int(self.manifest.plan["members"])

    @property
    def origins(self) -> list[int]:
        """The row of each member of the ensemble."""
        return self.manifest.rows(self.population.members)

    @property
    def streams(self) -> list[tuple[int, int]]:
        """The seed and the number of every row."""
        plan = self.manifest.plan
        usual = [(plan["seed"], plan.get("first_member", 0) + row) for row in range(self.rows)]
        return [(seed, number) for seed, number in self.manifest.streams or usual]


def read_members(path: Path) -> StoredMembers:
    """Return the members of a finished run; refuse those that are not independent networks of one architecture."""
    manifest = runs.read_run(path)
    refuse_other_kinds(path, manifest)
    tensors, manifest = runs.load_tensors(path)
    require_independent(path, manifest, tensors)
    history = runs.checked_history(path, manifest)
    return StoredMembers(str(path), population_from_tensors(tensors), manifest.without_files(), history)


def refuse_other_kinds(path: Path, manifest: Manifest) -> None:
    """Refuse a run whose members cannot be taken one by one: those of applications, folds or several models."""
    if manifest.given:
        raise Misuse(f"{path} holds networks trained elsewhere: give all of them to mm.Ensemble.from_models([...])")
    kind = run_kind(manifest)
    contents = [] if kind is None else [kind.contents]
    contents += ["models beside networks"] if manifest.models else []
    contents += ["members of several folds"] if manifest.groups > 1 else []
    contents += [] if manifest.steps_per_epoch else ["models that are not networks"]
    if contents:
        raise Misuse(f"{path} holds {contents[0]}: its members cannot be added to, dropped or merged")


def require_independent(path: Path, manifest: Manifest, tensors: Iterable[str]) -> None:
    """Refuse members that were trained with regard to each other, by the reason."""
    recipe, plan = manifest.recipe, manifest.plan
    shared = [name.partition("/")[2] for name in tensors if name.startswith("shared/")]
    if recipe["coupling"] != "none":
        reason = f"they repel each other during training (coupling {recipe['coupling']})"
    elif shared:
        reason = f"they share trained tensors ({shared[0]} and {len(shared) - 1} more, sharing {recipe['sharing']})"
    elif plan.get("batch_order") == "split":
        reason = "they split the batches among them (batch order split)"
    else:
        return
    raise Misuse(f"{path}: members of recipe {recipe['name']} depend on each other: {reason}; train it anew")


def joined(parts: Sequence[StoredMembers]) -> StoredMembers:
    """Join the members of several runs, as one run would have left them; the first run's manifest with changes.

    A dynamics that keeps several points of a row gives all first points, then all second ones, ...; so does this.
    """
    refuse_twice(parts)
    first, device, rows = parts[0], parts[0].population.device, [part.rows for part in parts]
    starts = accumulate(rows, initial=0)
    origins = [start + row for start, part in zip(starts, parts, strict=False) for row in part.origins]
    order = by_turns(origins)
    population = Population.concatenate([part.population.to(device) for part in parts]).take(torch.tensor(order))
    changed: dict[str, Any] = {
        "diverged": joined_diverged([part.manifest.diverged for part in parts], rows),
        "seconds": sum(part.manifest.seconds for part in parts),
        "cpu_seconds": sum(part.manifest.cpu_seconds for part in parts),
        "origins": [origins[member] for member in order],
    }
    history = joined_history([part.history for part in parts], rows)
    members = StoredMembers(first.name, population, replace(first.manifest, **changed), history)
    return with_streams(members, [stream for part in parts for stream in part.streams])


def by_turns(origins: Sequence[int]) -> list[int]:
    """Return the places of members ordered by their turn among those of their row, then by row.

    >>> by_turns([0, 0, 1, 1])
    [0, 2, 1, 3]
    """
    return sorted(range(len(origins)), key=lambda member: (origins[:member].count(origins[member]), origins[member]))


def taken(run: StoredMembers, members: Sequence[int]) -> StoredMembers:
    """Select members of a run by their numbers in the ensemble; rows without any of them are left out."""
    origins = [run.origins[member] for member in members]
    rows = [row for row in range(run.rows) if row in origins or row not in run.origins]
    diverged = rows_of(run.manifest.diverged, rows)
    changed: dict[str, Any] = {"origins": [rows.index(row) for row in origins], "diverged": diverged}
    history = [history_row(record, rows) for record in run.history]
    population = run.population.take(torch.tensor(list(members)))
    part = replace(run, population=population, manifest=replace(run.manifest, **changed), history=history)
    return with_streams(part, [run.streams[row] for row in rows])


def with_streams(part: StoredMembers, streams: list[tuple[int, int]]) -> StoredMembers:
    """Set the number of rows in the members' plan, and their streams in the manifest where the plan does not say."""
    manifest = replace(part.manifest, plan={**part.manifest.plan, "members": len(streams)}, streams=None)
    part = replace(part, manifest=manifest)
    return part if part.streams == streams else replace(part, manifest=replace(manifest, streams=streams))


def rows_of(diverged: dict[str, str], rows: Sequence[int]) -> dict[str, str]:
    """Return the diverged rows among some, by their places among these."""
    return {str(rows.index(int(row))): text for row, text in diverged.items() if int(row) in rows}


def joined_diverged(parts: Iterable[dict[str, str]], rows: Sequence[int]) -> dict[str, str]:
    """Return the diverged rows of several runs, numbered run after run."""
    numbered = zip(accumulate(rows, initial=0), parts, strict=False)
    return {str(start + int(row)): text for start, part in numbered for row, text in part.items()}


def refuse_twice(parts: Sequence[StoredMembers]) -> None:
    """Refuse runs that have a member in common: it would count twice."""
    seen_runs: dict[tuple[int, int], str] = {}
    for part in parts:
        for seed, number in part.streams:
            if (seed, number) in seen_runs:
                before = seen_runs[seed, number]
                advice = "with another seed, or another first member (first_member=5, --first-member 5)"
                both = f"{before} and {part.name} both hold the member of seed {seed} and number {number}"
                raise Misuse(f"{both}: train one of them {advice}")
        seen_runs |= dict.fromkeys(part.streams, part.name)


def history_row(record: dict[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    """Return the record of an epoch for some rows, without the scores of the whole ensemble, which is another now."""
    selected = {key: [part[row] for row in rows] if isinstance(part, list) else part for key, part in record.items()}
    selected["diverged"] = rows_of(record["diverged"], rows)
    return {key: value for key, value in selected.items() if key != "ensemble"}


def joined_history(histories: Sequence[list[dict[str, Any]]], rows: Sequence[int]) -> list[dict[str, Any]]:
    """One record an epoch for the rows of several runs; a run that ended earlier stays at its last scores."""
    if not all(histories):
        return []
    joint = []
    for epoch in range(max(map(len, histories))):
        longest = next(history[epoch] for history in histories if epoch < len(history))
        records = []
        for history, count in zip(histories, rows, strict=True):
            ended = {"train_loss": [None] * count, "active": [False] * count} if epoch >= len(history) else {}
            records.append(history_row({**history[min(epoch, len(history) - 1)], **ended}, range(count)))
        lists = [key for key, value in records[0].items() if isinstance(value, list)]
        joint.append(
            {key: longest[key] for key in ("epoch", "lr")}
            | {key: [value for record in records for value in record[key]] for key in lists}
            | {"diverged": joined_diverged([record["diverged"] for record in records], rows)}
        )
    return joint


def refuse_differences(parts: Sequence[StoredMembers]) -> None:
    """Refuse runs on other data, or of another preparation, network, likelihood or recipe than the first."""
    first = parts[0]
    for part in parts[1:]:
        theirs = identity(part)
        for what, value in identity(first).items():
            if value != theirs[what]:
                differ = f"they have another {what} ({_short(value)} and {_short(theirs[what])})"
                names = f"{part.name} cannot be merged with {first.name}"
                raise Misuse(f"{names}: {differ}; merge runs that differ in members alone")


def identity(part: StoredMembers) -> dict[str, Any]:
    """Return what runs must have in common to be merged."""
    manifest, recipe = part.manifest, part.manifest.recipe
    return {
        "data fingerprint": manifest.data["fingerprint"],
        "preparation": manifest.data["preparation"],
        "network": {key: value for key, value in manifest.net.items() if key != "init_from"},
        "likelihood": manifest.likelihood,
        "recipe": {question: recipe[question] for question in QUESTIONS} | {"loss": recipe.get("loss")},
        "precision": manifest.plan.get("precision"),
        "set of tensors": {name: tuple(t.shape[1:]) for name, t in part.population.to_tensors().items()},
    }


def _short(value: Any) -> str:
    text = ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def different_settings(parts: Sequence[StoredMembers]) -> dict[str, list[Any]]:
    """Return the settings of training that differ between runs, with the value of each run."""
    plans = [part.manifest.plan for part in parts]
    settings = {name: [plan.get(name) for plan in plans] for name in plans[0] if name not in OWN_TO_A_RUN}
    return {name: values for name, values in settings.items() if any(value != values[0] for value in values)}


def with_earlier_members(ensemble: Ensemble) -> Ensemble:
    """Add the members of the run that an ensemble adds to, before its own; return it unchanged if it adds to none."""
    record = ensemble.manifest.adding_to
    if not record:
        return ensemble
    path = Path(record["run"])
    earlier = read_members(path)
    if digest_of(path / runs.MEMBERS) != record["sha256"]:
        raise Failure(f"{path} has changed since members were added to it: begin anew with another out=...")
    earlier = replace(earlier, population=earlier.population.to(ensemble.device))
    new = StoredMembers("the new members", ensemble.groups[0].population, ensemble.manifest, ensemble.history)
    new = taken(new, [member for member, row in enumerate(new.origins) if row < record["members"]])
    joint = joined([earlier, new])
    changed = {name: getattr(joint.manifest, name) for name in DEPENDENT_ON_MEMBERS}
    added = {"to": str(path), "members": record["members"]}
    manifest = replace(ensemble.manifest, **changed, adding_to={}, added=added)
    return with_members(ensemble, replace(joint, manifest=manifest))


def with_members(ensemble: Ensemble, members: StoredMembers) -> Ensemble:
    """Return the ensemble with other members, and without the post-hoc steps that were fitted to its own."""
    groups = (replace(ensemble.groups[0], population=members.population),)
    return replace(ensemble, groups=groups, manifest=members.manifest, history=members.history, posthoc=None)
