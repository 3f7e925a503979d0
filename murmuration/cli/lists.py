"""`murmur list`: what there is to choose from."""

import re
from collections.abc import Callable
from typing import Annotated, Any

import typer

from murmuration.cli.options import Force, Json
from murmuration.cli.screen import help_text, say, say_json, say_table
from murmuration.errors import Misuse, unknown

HELP = help_text(
    "Show what there is to choose from: recipes, sharing, weights, nets, data, engines, schedules, optimisers, "
    "corruptions, calibrators, conformal, couplings, dynamics, experiments. Without a name, all of them. With --sheet, "
    "also draw every corruption.",
    "murmur list recipes",
    "murmur list couplings",
    "murmur list data --json",
    "murmur list corruptions --sheet corruptions.png",
)

PICTURES = "digits"
Entries = dict[str, dict[str, str]]  # name -> column -> text

ENGINES = {
    "auto": "tries the others for a few steps and keeps the fastest",
    "loop": "one member after the other",
    "stacked": "all members in one batched operator",
    "threads": "members side by side, one core each",
    "threads-stacked": "stacked members in groups, one core each",
}


def recipes() -> Entries:
    from murmuration.recipe import PRESETS

    return {name: {**row.value.answers(), "what it is": row.about} for name, row in PRESETS.items()}


def in_short(entries: Entries) -> Entries:
    """Recipes by the answers in which they differ from a deep ensemble: all four would leave a screen no room."""
    usual = entries["deep-ensemble"]
    return {
        name: {
            "what it is": texts["what it is"],
            "answers": "; ".join(
                f"{key} {text}" for key, text in texts.items() if key != "what it is" and text != usual[key]
            ),
        }
        for name, texts in entries.items()
    }


def sharing() -> Entries:
    from murmuration.sharing import SHARING

    return {name: {"what it means": answer.about} for name, answer in SHARING.items()}


def weights() -> Entries:
    from murmuration.weights import WEIGHTS

    return {name: {"what it means": answer.about} for name, answer in WEIGHTS.items()}


def dynamics() -> Entries:
    from murmuration.dynamics import DYNAMICS

    return {name: {"what it means": answer.about} for name, answer in DYNAMICS.items()}


def nets() -> Entries:
    from murmuration.nets import NETS

    return {name: {"inputs": "any" if e.tables else "images", "what it is": e.description} for name, e in NETS.items()}


def data() -> Entries:
    from murmuration.data import FORMATS, builtin_names

    formats = {each.usage: each.about for each in FORMATS if each.kind != "object"}
    return {name: {"what it is": about} for name, about in {**builtin_names(), **formats}.items()}


def engines() -> Entries:
    return {name: {"what it does": about} for name, about in ENGINES.items()}


def schedules() -> Entries:
    from murmuration.dynamics import SCHEDULES

    return {name: {"factor of the learning rate": row.about} for name, row in SCHEDULES.items()}


def optimisers() -> Entries:
    from murmuration.dynamics import OPTIMIZERS

    return {name: {"what it is": about} for name, about in OPTIMIZERS.items()}


def corruptions() -> Entries:
    from murmuration.data.shift import CORRUPTIONS, TABLE_SHIFTS

    pictures = {
        name: {
            "inputs": "images",
            "kind": each.kind,
            "exact": "yes" if each.exact else "no",
            "what it is": each.about,
        }
        for name, each in CORRUPTIONS.items()
    }
    tables = {
        name: {"inputs": "tables", "kind": each.kind, "exact": "yes", "what it is": each.about}
        for name, each in TABLE_SHIFTS.items()
    }
    return {**pictures, **tables}


def calibrators() -> Entries:
    from murmuration.posthoc import CALIBRATORS

    return {name: {"for": ", ".join(each.tasks), "what it does": each.about} for name, each in CALIBRATORS.items()}


def conformal() -> Entries:
    from murmuration.posthoc import CONFORMAL_METHODS

    return {
        name: {"for": task, "what it does": each.about}
        for task, table in CONFORMAL_METHODS.items()
        for name, each in table.items()
    }


def couplings() -> Entries:
    """Spaces, then the estimators and bandwidths that can be written after one."""
    from murmuration.coupling import COUPLINGS
    from murmuration.coupling.bandwidths import BANDWIDTHS, find_bandwidth
    from murmuration.coupling.estimators import ESTIMATORS

    spaces = {name: row.about for name, row in COUPLINGS.items()}
    estimators = {f"estimator={name}": each.about for name, each in ESTIMATORS.items()}
    fixed = {"fixed:0.5": find_bandwidth("fixed:0.5")}
    bandwidths = {f"bandwidth={name}": each.about for name, each in {**BANDWIDTHS, **fixed}.items()}
    return {name: {"what it is": about} for name, about in {**spaces, **estimators, **bandwidths}.items()}


def experiments() -> Entries:
    from murmuration.papers import EXPERIMENTS

    return {name: {"what it shows": each.about} for name, each in EXPERIMENTS.items()}


LISTS: dict[str, Callable[[], Entries]] = {
    "recipes": recipes,
    "sharing": sharing,
    "weights": weights,
    "nets": nets,
    "data": data,
    "engines": engines,
    "schedules": schedules,
    "optimisers": optimisers,
    "corruptions": corruptions,
    "calibrators": calibrators,
    "conformal": conformal,
    "couplings": couplings,
    "dynamics": dynamics,
    "experiments": experiments,
}


def list_names(
    what: Annotated[str | None, typer.Argument(help=f"One of {', '.join(LISTS)}.", metavar="WHAT")] = None,
    sheet: Annotated[
        str | None, typer.Option(help="Draw the corruptions of a picture: a .png file.", metavar="FILE")
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(help=f"Pictures for --sheet: anything that can be DATA; {PICTURES} if left out.", metavar="DATA"),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show recipes, nets, data, engines, corruptions and the like."""
    if what is not None and what not in LISTS:
        raise unknown("list", what, LISTS)
    if sheet is not None and what != "corruptions":
        raise Misuse(f"--sheet {sheet} draws corruptions: write murmur list corruptions --sheet {sheet}")
    if of is not None and sheet is None:
        raise Misuse(f"--of {of} is for --sheet: add --sheet FILE.png")
    if sheet is not None:
        draw_sheet(sheet, of or PICTURES, force)
    found: dict[str, Any] = {name: LISTS[name]() for name in ([what] if what else LISTS)}
    if as_json:
        return say_json(found[what] if what else found)
    for name, entries in found.items():
        entries = in_short(entries) if name == "recipes" else entries
        columns = [name, *next(iter(entries.values()))]
        rows = [[entry, *map(foldable, texts.values())] for entry, texts in entries.items()]
        say_table(columns, rows, right=False)
    if sheet is not None:
        say(f"sheet: {sheet}")


def foldable(text: str) -> str:
    """The text with blanks between settings, where a table may fold it; the command line takes them too.

    >>> foldable("input-gradients:lengthscales=pca,every=4")
    'input-gradients: lengthscales=pca, every=4'
    """
    return re.sub(r"([:,])(?=[a-z]+=)", r"\1 ", text)


def draw_sheet(out: str, source: str, force: bool) -> None:
    """Write a picture of every corruption at every severity of some pictures of a source."""
    import io

    from PIL import Image

    from murmuration.cli.writers import writable
    from murmuration.data import ImagePreparation, open_data
    from murmuration.data.shift.sheet import sheet
    from murmuration.files import write_bytes

    path = writable(out, (".png",), force, option="--sheet")
    data = open_data(source)
    if not isinstance(data.preparation, ImagePreparation):
        raise Misuse(f"--of {source} holds no pictures: name data that does, such as digits")
    held = io.BytesIO()
    pictures = data.preparation.pixels_of(data.test.x[:19])
    Image.fromarray(sheet(pictures, blocks=2)).save(held, format="PNG")
    write_bytes(path, held.getvalue())
