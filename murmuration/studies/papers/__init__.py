"""Reproductions of published experiments, one command each; see README.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from murmuration.system.errors import Misuse, unknown

Show = Callable[[str, int, int], None]
Options = Mapping[str, Any]  # of the command line, parsed; those that were left out are missing
S = TypeVar("S")
OPTIONS = {  # of the command line
    *("profile", "parts", "data", "net", "methods", "members", "epochs", "seed", "seeds", "train", "examples"),
    *("device", "prepare", "optimizer", "ood", "cifar_c", "imbalance", "widths", "models", "arms"),
}


@dataclass(frozen=True)
class ScreenTable:
    """A table for the screen."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    right: bool = True  # whether all columns but the first are right-aligned


@dataclass(frozen=True)
class Outcome:
    """The result of a reproduction."""

    record: dict[str, Any]  # as JSON
    page: str  # HTML
    tables: list[ScreenTable]
    warning: str = ""


EXPERIMENTS = {  # folder in papers/, whose `reproduce.py` has `reproduce(options, out, show, command) -> Outcome`
    "bayes-cnn": "Bayesian convolutional networks: accuracy, pruning, uncertainty along training "
    "(Shridhar et al. 2019)",
    "embedded": "embedded ensembles by width, number of members and regime, against separate networks "
    "(Velikanov et al. 2022)",
    "forde": "repulsion of input gradients: robustness by lengthscale, tables of methods, toys (Trinh et al. 2024)",
    "hcl": "continual learning by one flow (HCL): streams of tasks, detection of changes (Kirichenko et al. 2021)",
    "longtail": "rare classes: re-sampling, losses, transfer from common classes (Cui, Cao, Kang, Menon et al.)",
    "landscape": "deep ensembles from the perspective of the loss landscape: similarity, planes, tunnels, diversity, "
    "subspaces, shift (Fort et al. 2019)",
}


def reproduce(name: str, options: Options, out: Path, show: Show, command: str) -> Outcome:
    """Return the outcome of the experiment of that name."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    experiment = import_module(f"murmuration.studies.papers.{name.replace('-', '_')}.reproduce")
    outcome: Outcome = experiment.reproduce(options, out, show, command)
    return outcome


def choose_settings(profiles: Mapping[str, S], options: Options, also: tuple[str, ...] = ()) -> S:
    """Return the settings of the profile, the first if none is named, with the options that are fields of it.

    An option that is neither a field nor one of `also` is refused.
    """
    profile = options.get("profile", next(iter(profiles)))
    if profile not in profiles:
        raise unknown("profile", profile, profiles)
    setting: Any = profiles[profile]
    names = {field.name for field in fields(setting)}
    for name, value in options.items():
        if name not in names | {"profile", *also}:
            takes = ", ".join(f"--{name.replace('_', '-')}" for name in sorted({*names, *also, "profile"} & OPTIONS))
            text = ",".join(map(str, value)) if isinstance(value, tuple) else value
            raise Misuse(f"--{name.replace('_', '-')} {text}: this experiment does not use it; it takes {takes}")
    chosen: S = replace(setting, **{name: value for name, value in options.items() if name in names})
    return chosen


def check_least(setting: Any, **least: int) -> None:
    """Refuse whole numbers of a setting that are too small; None stands for all there are."""
    for name, smallest in least.items():
        if getattr(setting, name) is not None and getattr(setting, name) < smallest:
            raise Misuse(f"{name}={getattr(setting, name)}: expected a whole number, at least {smallest}")


def check_parts(parts: tuple[str, ...], known: Mapping[str, Any] | tuple[str, ...]) -> None:
    """Refuse names of parts that the experiment does not have."""
    for part in parts:
        if part not in known:
            raise unknown("part", part, known)
