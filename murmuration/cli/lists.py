"""`murmur list`: the names that options take, with a description of each."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer

import murmuration as mm
from murmuration.cli.console import print_json, print_table, say
from murmuration.cli.options import Force, Json, output_path
from murmuration.system.errors import Misuse, unknown
from murmuration.system.plugins import plugins

SHEET_IMAGES, DEFAULT = "digits", "deep-ensemble"
Entries = dict[str, dict[str, str]]  # name -> column -> text

ENGINES = {
    "auto": "stacked for dense networks, threads for others: the same every time",
    "fastest": "times the others for a few steps; the choice, and with it the rounding, may differ the next time",
    "loop": "one member after the other",
    "stacked": "all members in one batched operator",
    "threads": "members in parallel, one core each",
    "threads-stacked": "stacked groups of members in parallel, one core each",
}


def recipes() -> Entries:
    from murmuration.core.presets import MIXTURES, PRESETS

    return {
        name: {**row.answers(), "description": row.about, "good": row.good, "bad": row.bad}
        for name, row in {**PRESETS, **MIXTURES}.items()
    }


def in_short(entries: Entries) -> Entries:
    """Shorten recipes for the screen: description, advantages (+), drawbacks (-)."""
    texts = {name: f"{row['description']}\n+ {row['good']}\n- {row['bad']}" for name, row in entries.items()}
    return described({f"{name} (default)" if name == DEFAULT else name: text for name, text in texts.items()})


def couplings() -> Entries:
    """List spaces, then the estimators and bandwidths that are settings of a space."""
    from murmuration.core.coupling import COUPLINGS
    from murmuration.core.coupling.bandwidths import BANDWIDTHS, find_bandwidth
    from murmuration.core.coupling.estimators import ESTIMATORS

    rows = {**COUPLINGS, **{f"estimator={name}": row for name, row in ESTIMATORS.items()}}
    rows |= {f"bandwidth={name}": row for name, row in BANDWIDTHS.items()}
    return described({**rows, "bandwidth=fixed:0.5": find_bandwidth("fixed:0.5")})


def nets() -> Entries:
    from murmuration.models.nets import nets
    from murmuration.models.nets.libraries import LIBRARIES

    rows = [(name, "any" if row.tables else "images", row.options, row.description) for name, row in nets().items()]
    rows += [(name, inputs, (), about) for name, (inputs, about) in LIBRARIES.items()]
    return {n: {"inputs": i, "options": ", ".join(o), "description": about} for n, i, o, about in rows}


def models() -> Entries:
    from murmuration.models.estimators.table import MODELS

    return {name: {"for": ", ".join(row.tasks), "description": row.about} for name, row in MODELS.items()}


def data() -> Entries:
    from murmuration.data import builtin_names
    from murmuration.data.formats import FORMATS

    formats = {format.usage: format.about for format in FORMATS if format.kind != "object"}
    return described({**builtin_names(), **formats})


def corruptions() -> Entries:
    from murmuration.data.shift import CORRUPTIONS, TABLE_SHIFTS

    tables: dict[str, Mapping[str, Any]] = {"images": CORRUPTIONS, "tables": TABLE_SHIFTS}
    return {
        name: {"inputs": inputs, "kind": row.kind, "exact": "yes" if getattr(row, "exact", True) else "no"}
        | {"description": row.about}
        for inputs, table in tables.items()
        for name, row in table.items()
    }


def measures() -> Entries:
    from murmuration.evaluation.metrics.scores import MEASURES

    entries: Entries = {}
    for task, table in MEASURES.items():
        for name, row in table.items():
            entry = {"label": row.label, "for": task, "better": row.better or "", "description": row.meaning}
            entries[f"{name} ({task})" if name in entries else name] = entry
    return entries


def calibrators() -> Entries:
    from murmuration.prediction.posthoc.calibration import CALIBRATORS, method_named

    rows = {name: method_named(name) for name in CALIBRATORS}
    return {name: {"for": ", ".join(row.fits), "description": row.about} for name, row in rows.items()}


def conformal() -> Entries:
    from murmuration.prediction.posthoc import CONFORMAL_METHODS

    return {
        name: {"for": task, "description": about}
        for task, table in CONFORMAL_METHODS.items()
        for name, about in table.items()
    }


def described(table: Mapping[str, Any]) -> Entries:
    """Return the names of a table with the `about` text of each row; a row may be the text itself."""
    return {name: {"description": row if isinstance(row, str) else row.about} for name, row in table.items()}


def table(module: str, name: str) -> Callable[[], Entries]:
    """Return a function that imports a table of the library and lists it."""
    return lambda: described(getattr(import_module(f"murmuration.{module}"), name))


LISTS: dict[str, Callable[[], Entries]] = {
    "recipes": recipes,
    "sharing": table("core.sharing", "SHARING"),
    "weights": table("core.weights", "WEIGHTS"),
    "couplings": couplings,
    "dynamics": table("core.dynamics", "DYNAMICS"),
    "optimizers": table("core.dynamics.optimizer", "OPTIMIZERS"),
    "schedules": table("core.dynamics.schedules", "SCHEDULES"),
    "samplers": table("data.samplers", "SAMPLERS"),
    "losses": table("likelihoods", "ALL_LOSSES"),
    "nets": nets,
    "models": models,
    "data": data,
    "engines": lambda: described(ENGINES),
    "corruptions": corruptions,
    "calibrators": calibrators,
    "conformal": conformal,
    "measures": measures,
    **{name: partial(described, rows) for name, rows in plugins("murmuration.lists", Mapping).items()},
}


def list_names(
    what: Annotated[str | None, typer.Argument(help=f"One of {', '.join(LISTS)}.", metavar="WHAT")] = None,
    sheet: Annotated[str | None, typer.Option(metavar="FILE")] = None,
    of: Annotated[str | None, typer.Option(metavar="DATA")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """List recipes, networks, data, corruptions and other names that options take.

    List the names that options take, with a description of each: recipes, sharing, weights, couplings, dynamics,
    optimizers, schedules, samplers, losses, nets, models, data, engines, corruptions, calibrators, conformal, measures,
    experiments. Without a name, all lists. --sheet draws every corruption.

    Args:
        what: Name of one list; all if left out.
        sheet: Draw every corruption of some images: a .png file.
        of: Images for --sheet; digits if left out.
        force: Whether to replace the file.
        as_json: Whether to print JSON.

    Examples:
        murmur list recipes
        murmur list couplings
        murmur list data --json
        murmur list corruptions --sheet corruptions.png
    """
    if what is not None and what not in LISTS:
        raise unknown("list", what, LISTS)
    if sheet is not None and what != "corruptions":
        raise Misuse(f"--sheet {sheet} draws corruptions: write murmur list corruptions --sheet {sheet}")
    if of is not None and sheet is None:
        raise Misuse(f"--of {of} is for --sheet: add --sheet FILE.png")
    if sheet is not None:
        draw_sheet(sheet, of or SHEET_IMAGES, force)
    lists: dict[str, Any] = {name: LISTS[name]() for name in ([what] if what else LISTS)}
    if as_json:
        return print_json(lists[what] if what else lists)
    for name, entries in lists.items():
        entries = in_short(entries) if name == "recipes" else entries
        columns = [name, *next(iter(entries.values()))]
        rows = [[entry, *map(foldable, texts.values())] for entry, texts in entries.items()]
        print_table(columns, rows, right=False)
    if sheet is not None:
        say(f"sheet: {sheet}")


def foldable(text: str) -> str:
    """Insert blanks between settings, where a table may break the line; the command line accepts them.

    >>> foldable("input-gradients:lengthscales=pca,every=4")
    'input-gradients: lengthscales=pca, every=4'
    """
    return re.sub(r"([:,])(?=[a-z]+=)", r"\1 ", text)


def draw_sheet(out: str, source: str, force: bool) -> None:
    """Write an image of every corruption at every severity of some images of a source."""
    import io

    from PIL import Image

    from murmuration.data import ImagePreparation
    from murmuration.data.shift.images import sheet
    from murmuration.system.files import write_bytes

    path = output_path(out, (".png",), force, option="--sheet")
    data = mm.open_data(source)
    if not isinstance(data.preparation, ImagePreparation):
        raise Misuse(f"--of {source} holds no images: name data that does, such as digits")
    buffer = io.BytesIO()
    Image.fromarray(sheet(data.preparation.pixels_of(data.test.prepared[:19]), blocks=2)).save(buffer, format="PNG")
    write_bytes(path, buffer.getvalue())
