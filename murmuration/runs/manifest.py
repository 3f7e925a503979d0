"""`Manifest`: what a run directory says of itself, and an ensemble of where it comes from."""

import os.path
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from murmuration.system.errors import MOST_NAMES, Failure, Misuse, listed
from murmuration.system.records import fits

FORMAT = 2  # 1: without digests; such runs are refused
Record = dict[str, Any]
INNER: Record = {  # entries inside others that are used as they are, and their types
    "plan.seed": int,
    "plan.members": int,
    "plan.first_member": int,
    "plan.precision": str,
    "plan.device": str,
    "net.name": str,
    "data.name": str,
    "data.task": str,
    "data.fingerprint": str,
    "data.classes": tuple[str, ...] | None,
    "data.class_counts": tuple[int, ...] | None,
    "data.class_weights": tuple[float, ...] | None,
    "data.targets": int | None,
    "data.target_moments": tuple[tuple[float, ...], ...] | None,
    "data.examples": dict,
    "data.source": dict | None,
    "data.preparation": dict,
    "engine.name": str,
    "engine.workers": int,
    "engine.stacked": bool,
    "engine.direct": bool,
    "likelihood.classes": int,
    "likelihood.noise_std": float,
    "likelihood.shift": tuple[float, ...] | None,
    "likelihood.scale": tuple[float, ...] | float | None,  # a number where outputs are cosines
}


@dataclass(frozen=True)
class Manifest:
    """The contents of `run.json`: all that is needed to understand a run, to repeat it and to continue it.

    Values are plain JSON. Empty ones are not written, and mean that a run has no such part.

    Attributes:
        format: Version of the run directory.
        status: "training" or "complete".
        command: Command line or program that began the run.
        started: Time of its start.
        versions: Versions of the software that results depend on.
        recipe: The recipe, see `recipe_from_json`.
        plan: Settings of training, see `plan_from_json`.
        net: The network: its name or class, and what it was built with.
        input_shape: Shape of an input as the network takes it.
        steps_per_epoch: Steps per epoch; None for models that are not networks.
        likelihood: The likelihood, see `likelihood_from_json`.
        data: The data, with its preparation, see `describe_data`.
        engine: Fields of `Engine`, and why it was chosen.
        kernels: Kernels of the network, where the recipe acts on them.
        parameters: Roles of the parameters.
        gamma: Measured gamma(M).
        ranks: Processes that trained the run.
        devices: Devices that trained it, if there were several.
        seconds: Seconds of training; 0: not measured.
        cpu_seconds: CPU time of training in all threads; 0: not measured.
        diverged: What happened to members that failed, by row.
        origins: Row of every member; None: they are the same.
        coupling_seconds: Seconds of the interaction between members.
        sweep: Scores of the candidates of a coupling space.
        chosen: The best of them.
        streams: Seed and number of every row, where they are not those of the plan.
        adding_to: Run that the members of this one will join.
        added: Run that they have joined.
        dropped: Members that were dropped, and their run.
        merged: Runs that were merged.
        folds: Folds of cross-fitting, and the members and residuals of each.
        groups: Number of groups of networks.
        models: Files of members that are not networks.
        weights: Weights of members in the mixture.
        selection: How they were chosen.
        given: Names of the classes of networks that were trained elsewhere.
        plain: Digests of the plain tensors of such networks.
        output: How their predictions are picked from what they return.
        tensors: Names of the stored tensors, in order.
        files: SHA-256 of every file that is complete, by name.
        changing: Files that a command is replacing, with their new SHA-256.
        entries: Further records, by name: those of applications.
    """

    format: int = FORMAT
    status: str = ""
    command: str = ""
    started: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    recipe: Record = field(default_factory=dict)
    plan: Record = field(default_factory=dict)
    net: Record = field(default_factory=dict)
    input_shape: list[int] = field(default_factory=list)
    steps_per_epoch: int | None = None
    likelihood: Record = field(default_factory=dict)
    data: Record = field(default_factory=dict)
    engine: Record = field(default_factory=dict)
    kernels: Record | None = None
    parameters: list[Any] = field(default_factory=list)
    gamma: float | None = None
    ranks: int = 1
    devices: list[str] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    diverged: dict[str, str] = field(default_factory=dict)
    origins: list[int] | None = None
    coupling_seconds: dict[str, float] = field(default_factory=dict)
    sweep: dict[str, Any] = field(default_factory=dict)
    chosen: str | None = None
    streams: list[Any] | None = None
    adding_to: Record = field(default_factory=dict)
    added: Record = field(default_factory=dict)
    dropped: Record = field(default_factory=dict)
    merged: Record = field(default_factory=dict)
    folds: Record = field(default_factory=dict)
    groups: int = 1
    models: list[Any] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    selection: Record = field(default_factory=dict)
    given: list[str] = field(default_factory=list)
    plain: list[Any] = field(default_factory=list)
    output: Any = None
    tensors: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    changing: Record = field(default_factory=dict)
    entries: Record = field(default_factory=dict)

    def to_json(self) -> Record:
        """Return the entries that are not empty."""
        named = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "entries"}
        written = {name: value for name, value in named.items() if name == "format" or value != _defaults()[name]}
        return written | self.entries

    def rows(self, members: int) -> list[int]:
        """Return the row of each of so many members."""
        return list(range(members)) if self.origins is None else self.origins

    def without_files(self) -> "Manifest":
        """Return the manifest without what it says of the files of a directory."""
        return replace(self, status="", tensors=[], files={}, changing={})

    @staticmethod
    def from_json(record: Record, source: str) -> "Manifest":
        """Read a manifest that `to_json` wrote.

        Args:
            record: Its JSON.
            source: Name of the file, for messages.

        Raises:
            Failure: If an entry has another type than it is written with.
        """
        for name, types in _types().items():
            if name in record and not isinstance(record[name], types):
                raise Failure(
                    f"{source}: '{name}' is {record[name]!r:.40}, expected {types[0].__name__}: it is damaged"
                )
        for place, types in INNER.items():
            name, _, entry = place.partition(".")
            inside = record.get(name) or {}
            if entry in inside and not fits(inside[entry], types):
                raise Failure(f"{source}: '{entry}' of '{name}' is {inside[entry]!r:.40}: it is damaged")
        known = {name: value for name, value in record.items() if name in _types()}
        return Manifest(**known, entries={name: value for name, value in record.items() if name not in known})


@cache
def _defaults() -> Record:
    """Return the value of every entry that is not written."""
    return {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(Manifest)}


@cache
def _types() -> dict[str, tuple[type, ...]]:
    """Return the types that the values of every entry may have."""
    hints = {name: hint for name, hint in get_type_hints(Manifest).items() if name not in ("entries", "output")}
    types: dict[str, tuple[type, ...]] = {}
    for name, hint in hints.items():
        options = get_args(hint) if get_origin(hint) is UnionType else (hint,)
        types[name] = tuple(get_origin(option) or option for option in options) + ((int,) if float in options else ())
    return {**types, "output": (object,)}


def require_run(path: str | Path) -> None:
    """Refuse the path of a run that does not exist, and a directory of several runs such as a comparison's."""
    if not os.path.exists(path):
        raise Misuse(f"no run at {path}: the directory does not exist")
    own, inside = Path(path, "run.json"), ("*/run.json", "*/seed-*/run.json")
    runs = [] if own.exists() else [run for pattern in inside for run in Path(path).glob(pattern)]
    if runs:
        names = listed(sorted(str(run.parent) for run in runs), MOST_NAMES)
        raise Misuse(f"no run at {path}: it holds several, as a comparison does; name one of them: {names}")
