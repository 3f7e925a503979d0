"""`murmur list`: what there is to choose from."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from murmuration.cli.options import Json
from murmuration.cli.screen import help_text, say_json, say_table
from murmuration.errors import unknown

HELP = help_text(
    "Show what there is to choose from: recipes (with their four answers), nets, data, engines, schedules, optimisers. "
    "Without a name, all of them.",
    "murmur list recipes",
    "murmur list nets",
    "murmur list data --json",
)

Entries = dict[str, dict[str, str]]  # name -> column -> text

ENGINES = {
    "auto": "tries the others for a few steps and keeps the fastest",
    "loop": "one member after the other",
    "stacked": "all members in one batched operator",
    "threads": "members side by side, one core each",
    "threads-stacked": "stacked members in groups, one core each",
}
FORMS = {
    "FILE.csv, FILE.parquet": "a table; --target names the column to predict",
    "FILE.npz": "arrays x and y",
    "FOLDER": "class folders of pictures, idx files (MNIST), or CIFAR binaries",
    "hf:NAME": "a data set of the Hugging Face hub (needs the extra hf)",
}


def recipes() -> Entries:
    from murmuration.recipe import PRESETS

    return {name: {**recipe.answers(), "what it is": about} for name, (recipe, about) in PRESETS.items()}


def nets() -> Entries:
    from murmuration.nets import NETS

    return {
        name: {"inputs": "any" if e.tables else "pictures", "what it is": e.description} for name, e in NETS.items()
    }


def data() -> Entries:
    from murmuration.data import builtin_names

    return {name: {"what it is": about} for name, about in {**builtin_names(), **FORMS}.items()}


def engines() -> Entries:
    return {name: {"what it does": about} for name, about in ENGINES.items()}


def schedules() -> Entries:
    """The table in the schedules' own documentation."""
    from murmuration.dynamics import schedules as module

    lines = [line for line in (module.__doc__ or "").splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return {written.replace("`", ""): {"factor of the learning rate": factor} for written, factor in cells}


def optimisers() -> Entries:
    from murmuration.dynamics import OPTIMISERS

    return {name: {"what it is": about} for name, about in OPTIMISERS.items()}


LISTS: dict[str, Callable[[], Entries]] = {
    "recipes": recipes,
    "nets": nets,
    "data": data,
    "engines": engines,
    "schedules": schedules,
    "optimisers": optimisers,
}


def list_names(
    what: Annotated[str | None, typer.Argument(help=f"One of {', '.join(LISTS)}.", metavar="WHAT")] = None,
    as_json: Json = False,
) -> None:
    """Show recipes, nets, data, engines, schedules or optimisers."""
    if what is not None and what not in LISTS:
        raise unknown("list", what, LISTS)
    found: dict[str, Any] = {name: LISTS[name]() for name in ([what] if what else LISTS)}
    if as_json:
        return say_json(found[what] if what else found)
    for name, entries in found.items():
        columns = [name, *next(iter(entries.values()))]
        rows = [[entry, *texts.values()] for entry, texts in entries.items()]
        say_table(columns, rows, right=False)
