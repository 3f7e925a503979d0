"""Members of finished runs joined and taken apart: their tensors, manifests and histories.

A *row* is a member as it is trained; the dynamics may make several members of the ensemble of it (`origins` in the
manifest: the row of each). Random streams are addressed by (seed, number) of a row, so that a row has the same bits
whichever run it is trained in, provided that nothing joins it to the others: no coupling and no shared tensors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from murmuration.core.population import Population, population_from_tensors
from murmuration.core.recipe import QUESTIONS
from murmuration.prediction.ensemble import Ensemble
from murmuration.runs import directory as runs
from murmuration.runs.kinds import run_kind
from murmuration.system.errors import Failure, Misuse
from murmuration.system.files import digest_of

ADDING = "adding_to"  # in the manifest of a run in progress: the run that its members will join
STREAMS = "streams"  # in the manifest: (seed, number) of every row, where they are not those of the plan
OF_THE_FILES = (*runs.STORAGE, "tensors")  # entries of the manifest about its directory
CHANGED = ("plan", "origins", "diverged", "seconds")  # entries of the manifest that depend on the members
OWN_TO_A_RUN = ("seed", "first_member", "members", "engine", "device", "trajectory")  # settings that runs may differ in


@dataclass(frozen=True)
class StoredMembers:
    """The members of a finished run, without their network."""

    name: str  # for messages
    population: Population
    manifest: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    def rows(self) -> int:
        return int(self.manifest["plan"]["members"])

    @property
    def origins(self) -> list[int]:
        """The row of each member of the ensemble."""
        return list(self.manifest.get("origins", range(self.population.members)))

    @property
    def streams(self) -> list[tuple[int, int]]:
        """The seed and the number of every row."""
        plan = self.manifest["plan"]
        usual = [(plan["seed"], plan.get("first_member", 0) + row) for row in range(self.rows)]
        return [(seed, number) for seed, number in self.manifest.get(STREAMS, usual)]


def members_of(ensemble: Ensemble, name: str) -> StoredMembers:
    """The members of an ensemble of one group of networks."""
    return StoredMembers(name, ensemble.groups[0].population, ensemble.manifest, ensemble.history)


def read_members(path: Path) -> StoredMembers:
    """The members of a finished run; refused if they are not independent networks of one architecture."""
    manifest = runs.read_run(path)
    refuse_other_kinds(path, manifest)
    tensors, manifest = runs.load_tensors(path)
    require_independent(path, manifest, tensors)
    history = runs.checked_history(path, manifest)
    manifest = {key: value for key, value in manifest.items() if key not in OF_THE_FILES}
    return StoredMembers(str(path), population_from_tensors(tensors), manifest, history)


def refuse_other_kinds(path: Path, manifest: dict[str, Any]) -> None:
    """Refuse a run whose members cannot be taken one by one: those of applications, folds or several models."""
    if runs.GIVEN in manifest:
        raise Misuse(f"{path} holds networks trained elsewhere: give all of them to mm.Ensemble.from_models([...])")
    kind = run_kind(manifest)
    found = [] if kind is None else [kind.contents]
    found += ["models beside networks"] if runs.MODELS in manifest else []
    found += ["members of several folds"] if manifest.get(runs.GROUPS, 1) > 1 else []
    found += [] if "steps_per_epoch" in manifest else ["models that are not networks"]
    if found:
        raise Misuse(f"{path} holds {found[0]}: its members cannot be added to, dropped or merged")


def require_independent(path: Path, manifest: dict[str, Any], tensors: Iterable[str]) -> None:
    """Refuse members that were trained with regard to each other, by the reason."""
    recipe, plan = manifest["recipe"], manifest["plan"]
    shared = [name.partition("/")[2] for name in tensors if name.startswith("shared/")]
    reason = None
    if recipe["coupling"] != "none":
        reason = f"they repel each other during training (coupling {recipe['coupling']})"
    elif shared:
        reason = f"they share trained tensors ({shared[0]} and {len(shared) - 1} more, sharing {recipe['sharing']})"
    elif plan.get("batch_order") == "split":
        reason = "they split the batches among them (batch order split)"
    if reason is not None:
        raise Misuse(f"{path}: members of recipe {recipe['name']} depend on each other: {reason}; train it anew")


def joined(parts: Sequence[StoredMembers]) -> StoredMembers:
    """The members of several runs as one, as a single run would have left them; the first run's manifest with changes.

    A dynamics that keeps several points of a row gives all first points, then all second ones, ...; so does this.
    """
    first, device = parts[0], parts[0].population.device
    streams = [stream for part in parts for stream in part.streams]
    refuse_twice(parts)
    starts = [sum(part.rows for part in parts[:index]) for index in range(len(parts))]
    origins = [start + row for start, part in zip(starts, parts, strict=True) for row in part.origins]
    order = by_turns(origins)
    population = Population.concatenate([part.population.to(device) for part in parts]).take(torch.tensor(order))
    diverged = {
        str(start + int(row)): reason
        for start, part in zip(starts, parts, strict=True)
        for row, reason in part.manifest.get("diverged", {}).items()
    }
    seconds = sum(part.manifest["seconds"] for part in parts)
    changed = {"diverged": diverged, "seconds": seconds, "origins": [origins[member] for member in order]}
    history = joined_history([part.history for part in parts], [part.rows for part in parts])
    return with_streams(StoredMembers(first.name, population, {**first.manifest, **changed}, history), streams)


def by_turns(origins: Sequence[int]) -> list[int]:
    """The places of members ordered by their turn among those of their row, then by row.

    >>> by_turns([0, 0, 1, 1])
    [0, 2, 1, 3]
    """
    turns: dict[int, int] = {}
    keys = []
    for row in origins:
        turns[row] = turns.get(row, -1) + 1
        keys.append((turns[row], row))
    return sorted(range(len(keys)), key=keys.__getitem__)


def taken(whole: StoredMembers, members: Sequence[int]) -> StoredMembers:
    """Some members of a run, by their numbers in the ensemble; rows without any of them are left out."""
    gone = set(whole.origins) - {whole.origins[member] for member in members}
    rows = [row for row in range(whole.rows) if row not in gone]
    places = {row: place for place, row in enumerate(rows)}
    diverged = whole.manifest.get("diverged", {})
    changed: dict[str, Any] = {"origins": [places[whole.origins[member]] for member in members]}
    changed["diverged"] = {str(places[int(row)]): text for row, text in diverged.items() if int(row) in places}
    history = [history_row(record, rows) for record in whole.history]
    population = whole.population.take(torch.tensor(list(members)))
    made = replace(whole, population=population, manifest={**whole.manifest, **changed}, history=history)
    return with_streams(made, [whole.streams[row] for row in rows])


def with_streams(part: StoredMembers, streams: list[tuple[int, int]]) -> StoredMembers:
    """The members with so many rows in their plan, and their streams in the manifest where the plan does not say."""
    plan = {**part.manifest["plan"], "members": len(streams)}
    plain = {key: value for key, value in part.manifest.items() if key != STREAMS}
    made = replace(part, manifest={**plain, "plan": plan})
    return made if made.streams == streams else replace(made, manifest={**made.manifest, STREAMS: streams})


def refuse_twice(parts: Sequence[StoredMembers]) -> None:
    """Refuse runs that have a member in common: it would count twice."""
    seen_runs: dict[tuple[int, int], str] = {}
    for part in parts:
        for seed, number in part.streams:
            if (seed, number) in seen_runs:
                before = seen_runs[seed, number]
                raise Misuse(
                    f"{before} and {part.name} both hold the member of seed {seed} and number {number}: train one of"
                    " them with another seed, or another first member (first_member=5, --first-member 5)"
                )
        seen_runs |= dict.fromkeys(part.streams, part.name)


def history_row(record: dict[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    """The record of an epoch for some rows; scores of the whole ensemble, which is another one now, are left out."""
    found = {key: [part[row] for row in rows] if isinstance(part, list) else part for key, part in record.items()}
    found["diverged"] = {
        str(place): record["diverged"][str(row)] for place, row in enumerate(rows) if str(row) in record["diverged"]
    }
    return {key: value for key, value in found.items() if key != "ensemble"}


def joined_history(histories: Sequence[list[dict[str, Any]]], rows: Sequence[int]) -> list[dict[str, Any]]:
    """One record an epoch for the rows of several runs; a run that ended earlier stays at its last scores."""
    epochs = max(map(len, histories))
    if not all(histories):
        return []
    found = []
    for epoch in range(epochs):
        parts = [
            history_row(history[epoch] if epoch < len(history) else ended(history[-1]), range(count))
            for history, count in zip(histories, rows, strict=True)
        ]
        longest = next(history[epoch] for history in histories if epoch < len(history))
        record = {key: longest[key] for key in ("epoch", "lr")}
        for key in (key for key, value in parts[0].items() if isinstance(value, list)):
            record[key] = [value for part in parts for value in part[key]]
        starts = [sum(rows[:index]) for index in range(len(rows))]
        record["diverged"] = {
            str(start + int(row)): text
            for start, part in zip(starts, parts, strict=True)
            for row, text in part["diverged"].items()
        }
        found.append(record)
    return found


def ended(record: dict[str, Any]) -> dict[str, Any]:
    """The record of an epoch in which no row is trained any more, from the last one."""
    rows = len(record["active"])
    return {**record, "train_loss": [None] * rows, "active": [False] * rows}


def refuse_differences(parts: Sequence[StoredMembers]) -> None:
    """Refuse runs on other data, or of another preparation, network, likelihood or recipe than the first."""
    first = parts[0]
    for part in parts[1:]:
        for what, mine, theirs in zip(IDENTITY, identity(first), identity(part), strict=True):
            if mine != theirs:
                told = f"{_short(mine)} and {_short(theirs)}"
                raise Misuse(
                    f"{part.name} cannot be merged with {first.name}: they have another {what} ({told}); merge runs"
                    " that differ in members alone"
                )


IDENTITY = ("data fingerprint", "preparation", "network", "likelihood", "recipe", "precision", "set of tensors")


def identity(part: StoredMembers) -> tuple[Any, ...]:
    """What runs must have in common to be merged, in the order of `IDENTITY`."""
    manifest, recipe = part.manifest, part.manifest["recipe"]
    net = {key: value for key, value in manifest["net"].items() if key != "init_from"}
    answers = {question: recipe[question] for question in QUESTIONS} | {"loss": recipe.get("loss")}
    shapes = {name: tuple(tensor.shape[1:]) for name, tensor in part.population.to_tensors().items()}
    data, precision = manifest["data"], manifest["plan"].get("precision")
    return data["fingerprint"], data["preparation"], net, manifest["likelihood"], answers, precision, shapes


def _short(value: Any) -> str:
    text = ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def different_settings(parts: Sequence[StoredMembers]) -> dict[str, list[Any]]:
    """The settings of training that differ between runs, with the value of each run."""
    plans = [part.manifest["plan"] for part in parts]
    names = [name for name in plans[0] if name not in OWN_TO_A_RUN]
    return {
        name: [plan.get(name) for plan in plans]
        for name in names
        if any(plan.get(name) != plans[0][name] for plan in plans)
    }


def with_earlier_members(ensemble: Ensemble) -> Ensemble:
    """The ensemble with the members of the run that it adds to before its own; itself if it adds to none."""
    record = ensemble.manifest.get(ADDING)
    if record is None:
        return ensemble
    path = Path(record["run"])
    earlier = read_members(path)
    if digest_of(path / runs.MEMBERS) != record["sha256"]:
        raise Failure(f"{path} has changed since members were added to it: begin anew with another out=...")
    earlier = replace(earlier, population=earlier.population.to(ensemble.device))
    new = members_of(ensemble, "the new members")
    new = taken(new, [member for member, row in enumerate(new.origins) if row < record["members"]])
    found = joined([earlier, new])
    changed = {key: found.manifest[key] for key in (*CHANGED, STREAMS) if key in found.manifest}
    added = {"added": {"to": str(path), "members": record["members"]}}
    own = {key: value for key, value in ensemble.manifest.items() if key != ADDING}
    return with_members(ensemble, replace(found, manifest={**own, **changed, **added}))


def with_members(ensemble: Ensemble, members: StoredMembers) -> Ensemble:
    """The ensemble with other members, and without the post-hoc steps that were fitted to its own."""
    groups = (replace(ensemble.groups[0], population=members.population),)
    return replace(ensemble, groups=groups, manifest=members.manifest, history=members.history, posthoc=None)
