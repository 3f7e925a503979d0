"""Options that several commands share, as records, and the library objects they stand for."""

import csv
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer

import murmuration as mm
from murmuration.cli.console import say, show_all_options, show_details
from murmuration.core.presets import preset_named
from murmuration.data.formats import format_usage, require_path
from murmuration.data.options import DataOptions
from murmuration.prediction.posthoc_config import PostHocConfig
from murmuration.runs.manifest import require_run
from murmuration.system.errors import Misuse, described, unknown
from murmuration.system.interrupts import CHECKPOINT_SECONDS as CHECKPOINT_SECONDS
from murmuration.system.settings import AtLeast, settings_of
from murmuration.training.plan import Plan

METAVARS: dict[Any, str] = {int: "N", float: "X", str: "NAME"}  # placeholders for values


def option(help_text: str, panel: str, metavar: str, *names: str, default_text: str = "") -> Any:
    """Return an option with its help, its panel of the help page, and the placeholder for its value."""
    return typer.Option(
        *names, help=help_text, rich_help_panel=panel, metavar=metavar, show_default=default_text or True
    )


@dataclass(frozen=True)
class Checked:
    """A check of an option, written beside it like those of settings; made by `grouped` before the command runs.

    It imports no torch, so that most mistakes are refused at once.
    """

    function: Callable[[Any], None]

    def check(self, name: str, value: Any) -> None:
        self.function(value)


def documented(panel: str, metavar: str, *names: str) -> Any:
    """Return an option whose help is its entry in the docstring of the command or record; `grouped` fills it in."""
    return option("", panel, metavar, *names)


def switch(name: str, help_text: str, panel: str = "Options") -> Any:
    """Return an option that takes no value."""
    return typer.Option(name, help=help_text, rich_help_panel=panel)


Json = Annotated[bool, switch("--json", "Print JSON and nothing else.")]
Force = Annotated[bool, switch("--force", "Replace the file if it exists.")]
HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        help="Show all options, in groups; --help shows the common ones.",
        callback=show_all_options,
        is_eager=True,
        expose_value=False,
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        help="Print details such as the engine and why it was taken.",
        callback=show_details,
        is_eager=True,
        expose_value=False,
    ),
]
RUN_HELP = "A run directory, as `murmur train` writes them."
RunPath = Annotated[str, typer.Argument(help=RUN_HELP, metavar="RUN"), Checked(require_run)]
_FORMATS = format_usage("name", "path")
DATA_HELP = f"{_FORMATS[0].upper()}{_FORMATS[1:]}. Tables need --target; see `murmur list data`."
DataSource = Annotated[str, typer.Argument(help=DATA_HELP, metavar="DATA"), Checked(require_path)]
LARGEST_SIDE = 10_000  # pixels of an image
IN_MEMORY = "--in-memory/--stream"
Names = list[str] | None  # of an option that may be repeated, and whose values may hold commas


def is_whole(text: str) -> bool:
    """Return whether a text is a whole number of at most nine ASCII digits.

    >>> [is_whole(text) for text in ("12", "-1", "1.5", "\u00b2", "")]
    [True, False, False, False, False]
    """
    return re.fullmatch("[0-9]{1,9}", text) is not None


def image_size(text: str | None) -> tuple[int, int] | None:
    """Parse `--size` to (H, W): one number for both, or HxW."""
    if text is None:
        return None
    sides = text.lower().split("x")
    if not 1 <= len(sides) <= 2 or not all(is_whole(side) and 1 <= int(side) <= LARGEST_SIDE for side in sides):
        raise Misuse(f"--size {text}: expected a number of pixels such as 64, or 48x64, up to {LARGEST_SIDE:,} each")
    return int(sides[0]), int(sides[-1])


def share_or_source(text: str | None) -> float | str | None:
    """Return a share of the rows if the text is a number, else the source it names."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def named_targets(names: Names) -> str | tuple[str, ...] | None:
    """Return the target columns as `open_data` takes them: None, one, or a tuple."""
    columns = listed(names)
    return (columns[0] if len(columns) == 1 else tuple(columns)) if columns else None


OwnNet = Annotated[
    str | None, option("The user-defined network of the run, package.module:factory, if it has one.", "Options", "NAME")
]
NetName = Annotated[
    str | None,
    option(
        "Network, chosen by the data if left out; see `murmur list nets`, or write your own as package.module:factory. "
        "Options may follow a colon: mlp:hidden=256x3,dropout=0.1,embed=piecewise. "
        "A name of `murmur list models` is a model that is not a network, such as random-forest.",
        "Recipe",
        "NAME",
    ),
]
PLAN_DOCS = {setting.name: setting.doc for setting in settings_of(Plan)}
DATA_DOCS = {setting.name: setting.doc for setting in settings_of(DataOptions)}
InMemory = Annotated[bool | None, switch(IN_MEMORY, DATA_DOCS["in_memory"], "Data")]
CheckpointSeconds = Annotated[float, option(PLAN_DOCS["checkpoint_seconds"], "Training", "X")]
Device = Annotated[str, option(PLAN_DOCS["device"], "Hardware", "NAME")]
Precision = Annotated[str, option(PLAN_DOCS["precision"], "Hardware", "NAME")]
RunDevice = Annotated[str | None, option(f"{PLAN_DOCS['device']} By default that of the run.", "Hardware", "NAME")]


def network(text: str | None) -> Any:
    """Return the network of --net: a name of this package, or the user's function `package.module:factory`.

    The module is imported from the working directory or wherever Python finds it. A run directory never causes an
    import: whoever loads such a run names the function again.
    """
    if text is None:
        return None
    from murmuration.models.estimators.table import MODELS
    from murmuration.models.nets import is_net, nets

    if is_net(text) or text in MODELS:
        return text
    if ":" not in text:
        refusal = unknown("net", text, (*nets(), *MODELS), see="murmur list nets")
        raise Misuse(f"{refusal}; for a function of your own write --net package.module:factory")
    module, _, name = text.partition(":")
    sys.path.insert(0, "")
    try:
        factory = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except ImportError as error:
        raise Misuse(f"--net {text}: cannot import {module} ({error}); write package.module:factory") from None
    except AttributeError:
        reason = f"{module} has no '{name}'; write the name of a function that builds a net"
        raise Misuse(f"--net {text}: {reason}") from None
    finally:
        sys.path.remove("")
    if not callable(factory):
        kind = f"{module}.{name} is {described(factory)}"
        raise Misuse(f"--net {text}: {kind}; write the name of a function that builds a net, package.module:factory")
    return factory


@dataclass(frozen=True)
class RecipeOptions:
    """Answers to the four questions that replace those of the recipe.

    Attributes:
        sharing: Parameter sharing between members: own (none shared), rank-one or rank-one-uv (shared kernels, own
            rank-one factors), backbone, head, names or all; see `murmur list sharing`.
        weights: Weight model: point (deterministic), dropout, masks (fixed dropout masks), gaussian (variational) or
            moped (Gaussian around trained weights); see `murmur list weights`.
        coupling: Interaction between members during training: none, or repulsion in weight, output, feature or
            input-gradient space (weights, outputs, features, input-gradients); see `murmur list couplings`.
        dynamics: Training algorithm and the weights it keeps: optimizer (the last), ivon, swa, swag, snapshot, fge,
            csgmcmc or csghmc; see `murmur list dynamics`.
    """

    sharing: Annotated[str | None, documented("Recipe", "ANSWER")] = None
    weights: Annotated[str | None, documented("Recipe", "ANSWER")] = None
    coupling: Annotated[str | None, documented("Recipe", "ANSWER")] = None
    dynamics: Annotated[str | None, documented("Recipe", "ANSWER")] = None

    def recipe(self, text: str) -> "mm.Recipe":
        """Return the recipe of that text with these answers."""
        from murmuration.core.recipe import parse_recipe

        return mm.make_recipe(parse_recipe(text), **asdict(self))


def split_recipes(values: Sequence[str] | None) -> list[str]:
    """Split lists of recipes: after a comma, a setting (`name=`) or a number belongs to the recipe before it.

    >>> split_recipes(["single,deep-ensemble:coupling=outputs,members=3", "forde"])
    ['single', 'deep-ensemble:coupling=outputs,members=3', 'forde']
    """
    parts = (re.split(r"\s*,\s*(?![a-z0-9_]+\s*=|[-+.\d])", value.strip()) for value in values or ())
    return [part for recipes in parts for part in recipes if part]


def check_recipe(text: str) -> None:
    """Refuse a recipe whose preset does not exist; its settings are checked later."""
    preset_named(text.partition(":")[0])


def check_recipes(values: Sequence[str]) -> None:
    """Refuse lists of recipes of which a preset does not exist, and a list of none."""
    if not split_recipes(values):
        raise Misuse(f"--recipes {','.join(values)}: expected at least one name, such as single,deep-ensemble")
    for text in split_recipes(values):
        check_recipe(text)


def flags(record: type, panel: str, differences: dict[str, Any]) -> Any:
    """Make a dataclass of command-line options from the settings that a record declares.

    Args:
        record: The dataclass that declares them; their documentation becomes the help texts.
        panel: Panel of the help page.
        differences: Other "help", "panel", "metavar", "names" (of a switch "name"), type ("kind") or "checks" of some
            settings. "unset" (True, or the default as text): the option is None unless it is written, because the data
            or the recipe decides. None: no option.

    Returns:
        A frozen dataclass.
    """
    rows: list[tuple[str, Any, Any]] = []
    for name, kinds, _, default, doc, checks in settings_of(record):
        differs = differences.get(name, {})
        if differs is None:
            continue
        kind = differs.get("kind", Names if get_origin(kinds[0]) is tuple else kinds[0])
        own_panel, metavar = differs.get("panel", panel), differs.get("metavar", METAVARS.get(kind, "LIST"))
        default_text = str(default) if differs.get("unset") is True else differs.get("unset", "")
        help_text = differs.get("help", doc)
        info = option(help_text, own_panel, metavar, *differs.get("names", ()), default_text=default_text)
        rules = differs.get("checks", checks) if kind in (int, float) else ()  # those of names may import torch
        if kind is bool:
            info = switch(differs.get("name", f"--{name.replace('_', '-')}"), help_text, own_panel)
        default = None if default_text or kind is Names else default
        rows.append((name, Annotated[kind if default is not None else kind | None, info, *rules], default))
    return make_dataclass(f"{record.__name__}Flags", rows, frozen=True)


DataFlags: Any = flags(
    DataOptions,
    "Data",
    {
        "seed": None,
        "task": {"metavar": "TASK"},
        "inputs": {"metavar": "KIND"},
        "prepare": {"metavar": "WAY"},
        "size": {"kind": str, "metavar": "N|HxW"},
        "in_memory": {"name": IN_MEMORY},
        **{name: {"kind": str, "metavar": "WHAT"} for name in ("val", "test")},
        **{name: {"kind": str} for name in ("groups", "time", "weight")},
        **{name: {"metavar": "NAME"} for name in ("target", "drop", "keep")},
        "text": {"metavar": "COLUMN"},
    },
)


@dataclass(frozen=True)
class ReadingOptions(DataFlags):
    """How the data is read.

    Attributes:
        features: Pretrained network whose image features, computed once, replace the inputs; --net is then the head on
            them, linear by default.
        features_from: File with the weights of --features; by default published ones.
    """

    features: Annotated[str | None, documented("Data", "NET")] = None
    features_from: Annotated[str | None, documented("Data", "FILE")] = None

    def open(self, source: str, out: Path | None = None, *, quiet: bool = False) -> "mm.Data":
        """Open the source, split and prepared; partial features are written next to `out`."""
        from murmuration.models.features import say_nothing

        if self.features_from and not self.features:
            raise Misuse(f"--features-from {self.features_from} without --features: name the network of these weights")
        options = {name: value for name, value in vars(self).items() if not name.startswith("features")} | {
            "target": named_targets(self.target),
            "size": image_size(self.size),
            "val": share_or_source(self.val),
            "test": share_or_source(self.test),
            "drop": tuple(listed(self.drop)),
        }
        if not self.features:
            return mm.open_data(source, **options)
        options |= {"out": out, "progress": not quiet, "say": say_nothing if quiet else say}
        return mm.embed(source, net=self.features, weights=self.features_from or True, **options)


HARDWARE = {"panel": "Hardware"}
PlanFlags: Any = flags(
    Plan,
    "Training",
    {
        "members": {
            "help": "Number of ensemble members.",
            "unset": "that of the recipe, or 5",
            "checks": (AtLeast(1),),
        },
        **{name: {"unset": True} for name in ("epochs", "batch_size", "lr", "stop_by")},
        "optimizer": {"names": ("--optimizer", "--optimiser")},
        "lr_multipliers": {"names": ("--lr-multiplier",), "metavar": "PATTERN=X"},
        "trajectory": {"metavar": "TIMES"},
        **dict.fromkeys(("engine", "ranks_per_member", "device", "precision"), HARDWARE),
        **dict.fromkeys(("checkpoint_seconds", "posthoc")),
    },
)
PostHocFlags: Any = flags(
    PostHocConfig, "Calibration", {"calibrate": {"metavar": "METHOD"}, "conformal": {"metavar": "METHOD"}}
)


class TrainingOptions(PlanFlags):
    """The settings of `Plan` as options; None where the data or the recipe decides."""

    def settings(self, posthoc: PostHocConfig | None = None) -> dict[str, Any]:
        """Return the settings that differ from the defaults, as keywords of `mm.fit`, checked without data."""
        from murmuration.models.estimators.table import refuse_unused

        refuse_unused(None, vars(self))
        defaults = TrainingOptions()
        values = {name: value for name, value in vars(self).items() if value != getattr(defaults, name)}
        for name in {"augment", "same", "lr_multipliers"} & {*values}:
            values[name] = tuple(listed(values[name]))
        if "lr_multipliers" in values:
            values["lr_multipliers"] = tuple(map(lr_multiplier, values["lr_multipliers"]))
        Plan(**values, posthoc=posthoc)
        return {**values, "posthoc": posthoc}


def lr_multiplier(text: str) -> tuple[str, float]:
    """Parse a pattern of parameter names and its learning-rate multiplier.

    >>> lr_multiplier("head.*=0.1")
    ('head.*', 0.1)
    """
    pattern, _, number = text.rpartition("=")
    try:
        return pattern, float(number)
    except ValueError:
        raise Misuse(f"--lr-multiplier {text}: expected PATTERN=NUMBER, such as head.*=0.1") from None


class PostHocOptions(PostHocFlags):
    """The settings of `PostHocConfig` as options."""

    def config(self) -> PostHocConfig:
        """Return the config, checked as far as it can be without data."""
        return PostHocConfig(**vars(self))


@dataclass(frozen=True)
class LossOptions:
    """The likelihood of the targets.

    Attributes:
        noise_std: Known noise (standard deviation) of a regression target; learned if left out.
        link: Output activation for classification: softmax or softplus.
        likelihood: Loss by name, such as focal, or gaussian:outliers=0.02 for numbers; see `murmur list losses`.
    """

    noise_std: Annotated[float | None, documented("Training", "X")] = None
    link: Annotated[str | None, documented("Training", "NAME")] = None
    likelihood: Annotated[str | None, documented("Training", "NAME", "--loss")] = None

    def settings(self) -> dict[str, Any]:
        """Return the keywords of `mm.fit`."""
        return dict(vars(self))


@dataclass(frozen=True)
class ShiftOptions:
    """Corrupted and out-of-distribution inputs to evaluate on besides the test split.

    Attributes:
        corruptions: Evaluate on corrupted inputs too.
        only: Some corruptions; see `murmur list corruptions`.
        severities: Severities of corruption; 1,2,3,4,5 if left out.
        shift_examples: Corrupt the first N examples; all if left out.
        cifar_c: Folder of the official CIFAR-10-C arrays, used instead of ours.
        ood: Out-of-distribution inputs; a list for several.
    """

    corruptions: Annotated[bool, switch("--corruptions", "", "Shift")] = False
    only: Annotated[Names, documented("Shift", "LIST")] = None
    severities: Annotated[Names, documented("Shift", "LIST")] = None
    shift_examples: Annotated[int | None, documented("Shift", "N")] = None
    cifar_c: Annotated[str | None, documented("Shift", "DIR")] = None
    ood: Annotated[Names, documented("Shift", "DATA")] = None

    @property
    def wanted(self) -> bool:
        return self.corruptions or self.only is not None or self.cifar_c is not None


def listed(values: Sequence[str] | None) -> list[str]:
    """List the values of an option that may be repeated and may hold commas; double quotes protect a comma.

    >>> listed(["single, deep-ensemble", "forde"])
    ['single', 'deep-ensemble', 'forde']
    >>> listed(['"price, EUR",age'])
    ['price, EUR', 'age']
    """
    rows = csv.reader(values or (), skipinitialspace=True)
    return [value.strip() for row in rows for value in row if value.strip()]


def seed_list(values: Sequence[str] | None) -> list[int] | None:
    """Parse training seeds.

    >>> seed_list(["0,1", "2"])
    [0, 1, 2]
    """
    texts = listed(values)
    if wrong := [text for text in texts if not is_whole(text)]:
        raise Misuse(f"--seeds names '{wrong[0]}': expected whole numbers, such as 0,1,2")
    return [int(text) for text in texts] or None


def output_path(out: str, suffixes: tuple[str, ...], force: bool, *, option: str = "--out") -> Path:
    """Check the path of an output file: a known suffix, an existing folder, and no such file unless `force` is set."""
    path = Path(out)
    if path.suffix.lower() not in suffixes:
        endings = " or ".join(suffixes)
        raise Misuse(f"{option} {out} has the suffix '{path.suffix}': write a name that ends in {endings}")
    if not path.parent.is_dir():
        raise Misuse(f"{option} {out}: the folder {path.parent} does not exist; make it first")
    if path.is_dir() or (path.exists() and not force):
        raise Misuse(f"{option} {out} exists already: choose another name, or add --force")
    return path


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function whose parameters are options, or records of options.

    A record is replaced by options for its fields. The help of an option that has none is its entry in the docstring,
    under "Args" of the function or "Attributes" of the record.
    """
    options = _keywords(command)
    records: dict[str, Any] = {name: o.annotation for name, o in options.items() if is_dataclass(o.annotation)}
    parameters = [p for n, o in options.items() for p in (_keywords(records[n]).values() if n in records else [o])]
    rules = {p.name: [m for m in getattr(p.annotation, "__metadata__", ()) if hasattr(m, "check")] for p in parameters}

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, value in values.items():
            for rule in rules[name] if value is not None else ():
                rule.check(name, value)
        arguments = {
            name: record(**{field.name: values.pop(field.name) for field in fields(record)})
            for name, record in records.items()
        }
        command(**values, **arguments)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _keywords(owner: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function or record as keywords, with their help from its docstring."""
    hints = get_type_hints(owner, include_extras=True)
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", inspect.getdoc(owner) or "", re.MULTILINE)
    for name, text in entries:
        for info in (m for m in getattr(hints.get(name), "__metadata__", ()) if hasattr(m, "help")):
            info.help = info.help or " ".join(text.split())
    return {
        name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in inspect.signature(owner).parameters.items()
    }
