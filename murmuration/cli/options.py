"""Options that several commands share, as records, and the library objects they stand for."""

import csv
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from murmuration.data.formats import format_usage
from murmuration.system.errors import Misuse, unknown
from murmuration.system.interrupts import CHECKPOINT_SECONDS as CHECKPOINT_SECONDS

if TYPE_CHECKING:
    from murmuration.core.recipe import Recipe
    from murmuration.data import Data
    from murmuration.prediction.posthoc import PostHocConfig


def option(help_text: str, panel: str, metavar: str, *names: str) -> Any:
    """An option with its help, its panel of the help page, and the placeholder for its value."""
    return typer.Option(*names, help=help_text, rich_help_panel=panel, metavar=metavar, show_default=True)


def switch(name: str, help_text: str, panel: str = "Options") -> Any:
    """An option that takes no value."""
    return typer.Option(name, help=help_text, rich_help_panel=panel)


Json = Annotated[bool, switch("--json", "Print JSON and nothing else.")]
Force = Annotated[bool, switch("--force", "Replace the file if it exists.")]
RunPath = Annotated[str, typer.Argument(help="A run directory, as `murmur train` writes them.", metavar="RUN")]
_FORMATS = format_usage("name", "path")
DATA_HELP = f"{_FORMATS[0].upper()}{_FORMATS[1:]}. Tables need --target; see `murmur list data`."
DataSource = Annotated[str, typer.Argument(help=DATA_HELP, metavar="DATA")]
WHOLE = "need a whole number, at least 1"
LARGEST_SIDE = 10_000  # pixels of an image
Names = list[str] | None  # of an option that may be repeated, and whose values may hold commas
InMemory = Annotated[
    bool | None,
    typer.Option(
        "--in-memory/--stream",
        help="All inputs in memory, or rows of .npz, .npy, .parquet and image files read when they are needed; "
        "by default those of files above 1 GiB (4 bytes a value). Results are the same.",
        rich_help_panel="Data",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class DataOptions:
    """How the data is read."""

    target: Annotated[Names, option("Target column of a table; a list for several.", "Data", "NAME")] = None
    task: Annotated[str | None, option("classification or regression; inferred if left out.", "Data", "TASK")] = None
    inputs: Annotated[
        str | None, option("What an array holds: numbers, images, or tokens (for an embedding).", "Data", "KIND")
    ] = None
    prepare: Annotated[
        str,
        option("Scaling of inputs: standardise, robust, quantile, unit (images 0 to 1) or none.", "Data", "WAY"),
    ] = "standardise"
    size: Annotated[str | None, option("Resize and crop image files to N or HxW pixels.", "Data", "N")] = None
    in_memory: InMemory = None
    features: Annotated[
        str | None,
        option(
            "Pretrained network whose features of images, computed once, take the place of inputs; --net is then the "
            "head on them, a linear one if left out.",
            "Data",
            "NET",
        ),
    ] = None
    features_from: Annotated[
        str | None, option("File of the weights of --features; published ones if left out.", "Data", "FILE")
    ] = None
    val: Annotated[str | None, option("Validation data: a share such as 0.2, or a file.", "Data", "WHAT")] = None
    test: Annotated[
        str | None,
        option("Test data: a share such as 0.2, a file, or none: all rows train and validate.", "Data", "WHAT"),
    ] = None
    groups: Annotated[str | None, option("Column whose values never stand in two splits.", "Data", "NAME")] = None
    time: Annotated[str | None, option("Column of times: the latest rows test.", "Data", "NAME")] = None
    weight: Annotated[str | None, option("Column of sample weights.", "Data", "NAME")] = None
    imbalance: Annotated[
        float | None,
        option("Cut a long tail: the largest training class over the smallest, such as 100.", "Data", "X"),
    ] = None
    drop: Annotated[Names, option("Columns to leave out; a list for several.", "Data", "NAME")] = None

    def open(self, source: str, out: Path | None = None, *, quiet: bool = False) -> "Data":
        """The data of the source, split and prepared; pieces of features are written beside `out`."""
        from murmuration.data import open_data
        from murmuration.models.features import embed, say_nothing

        if self.features_from and not self.features:
            raise Misuse(f"--features-from {self.features_from} without --features: name the network of these weights")
        told: Any = {"out": out, "progress": not quiet, "say": say_nothing if quiet else print}
        weights: Any = {"weights": self.features_from or True}
        opening: Any = functools.partial(embed, net=self.features, **weights, **told) if self.features else open_data
        chosen: Any = {"task": self.task, "prepare": self.prepare, "inputs": self.inputs}
        chosen |= {"groups": self.groups, "time": self.time, "weight": self.weight, "drop": tuple(listed(self.drop))}
        chosen |= {"imbalance": self.imbalance, "in_memory": self.in_memory}
        return opening(
            source,
            target=named_targets(self.target),
            size=image_size(self.size),
            val=share_or_source(self.val),
            test=share_or_source(self.test),
            **chosen,
        )


def is_whole(text: str) -> bool:
    """Whether a text is a whole number of at most nine digits, 0 to 9 and no other script's.

    >>> [is_whole(text) for text in ("12", "-1", "1.5", "\u00b2", "")]
    [True, False, False, False, False]
    """
    return re.fullmatch("[0-9]{1,9}", text) is not None


def image_size(text: str | None) -> tuple[int, int] | None:
    """The size (H, W) that `--size` states: one number for both, or HxW."""
    if text is None:
        return None
    sides = text.lower().split("x")
    if not 1 <= len(sides) <= 2 or not all(is_whole(side) and 1 <= int(side) <= LARGEST_SIDE for side in sides):
        raise Misuse(f"--size {text}: expected a number of pixels such as 64, or 48x64, up to {LARGEST_SIDE:,} each")
    return int(sides[0]), int(sides[-1])


def share_or_source(text: str | None) -> float | str | None:
    """A share of the rows if the text is a number, else the source it names."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def named_targets(names: Names) -> str | tuple[str, ...] | None:
    """The target columns as `open_data` takes them: none, one, or several."""
    columns = listed(names)
    return (columns[0] if len(columns) == 1 else tuple(columns)) if columns else None


OwnNet = Annotated[
    str | None, option("The run's own network again, package.module:factory, if it has one.", "Options", "NAME")
]

CheckpointSeconds = Annotated[
    float,
    option("Seconds between checkpoints: a killed run loses at most about as much.", "Training", "X"),
]
Device = Annotated[str, option("cpu, cuda, cuda:1, mps or auto (the best one here).", "Hardware", "NAME")]
Precision = Annotated[
    str, option("float32, or bf16: operators of networks in bfloat16, all else in float32.", "Hardware", "NAME")
]
RunDevice = Annotated[
    str | None,
    option("cpu, cuda, cuda:1, mps or auto (the best one here); by default the run's own.", "Hardware", "NAME"),
]


def network(text: str | None) -> Any:
    """The network that --net states: a name of this package, or the function `package.module:factory` of the user.

    The module is imported from the working directory or wherever Python finds it. A run directory never causes an
    import: whoever loads such a run names the function again.
    """
    if text is None:
        return None
    from murmuration.models.estimators.table import MODELS
    from murmuration.models.nets import NETS, is_net

    if is_net(text) or text in MODELS:
        return text
    if ":" not in text:
        known = unknown("net", text, (*NETS, *MODELS))
        raise Misuse(f"{known}; for a function of your own write --net package.module:factory")
    module, _, name = text.partition(":")
    sys.path.insert(0, "")
    try:
        found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except ImportError as error:
        raise Misuse(f"--net {text}: cannot import {module} ({error}); write package.module:factory") from None
    except AttributeError:
        raise Misuse(
            f"--net {text}: {module} has no '{name}'; write the name of a function that builds a net"
        ) from None
    finally:
        sys.path.remove("")
    return found


@dataclass(frozen=True)
class RecipeOptions:
    """Answers to the four questions that replace those of the recipe."""

    sharing: Annotated[
        str | None,
        option(
            "Parameter sharing between members: own (none shared), rank-one or rank-one-uv (shared kernels, own "
            "rank-one factors), backbone, head, names or all; see `murmur list sharing`.",
            "Recipe",
            "ANSWER",
        ),
    ] = None
    weights: Annotated[
        str | None,
        option(
            "Weight model: point (deterministic), dropout, masks (fixed dropout masks), gaussian (variational) or "
            "moped (Gaussian around trained weights); see `murmur list weights`.",
            "Recipe",
            "ANSWER",
        ),
    ] = None
    coupling: Annotated[
        str | None,
        option(
            "Interaction between members during training: none, or repulsion in weight, output, feature or "
            "input-gradient space (weights, outputs, features, input-gradients); see `murmur list couplings`.",
            "Recipe",
            "ANSWER",
        ),
    ] = None
    dynamics: Annotated[
        str | None,
        option(
            "Training algorithm and the weights it keeps: optimizer (the last), ivon, swa, swag, snapshot, csgmcmc or "
            "csghmc; see `murmur list dynamics`.",
            "Recipe",
            "ANSWER",
        ),
    ] = None

    def recipe(self, text: str) -> "Recipe":
        """The recipe of that text with these answers."""
        from murmuration.core.recipe import make_recipe, parse_recipe

        return make_recipe(parse_recipe(text), **asdict(self))


def split_recipes(values: Sequence[str] | None) -> list[str]:
    """The recipes that lists name: after a comma, a setting (`name=`) or a number belongs to the recipe before it.

    >>> split_recipes(["single,deep-ensemble:coupling=outputs,members=3", "forde"])
    ['single', 'deep-ensemble:coupling=outputs,members=3', 'forde']
    """
    parts = (re.split(r"\s*,\s*(?![a-z0-9_]+\s*=|[-+.\d])", value.strip()) for value in values or ())
    return [part for each in parts for part in each if part]


@dataclass(frozen=True)
class TrainingOptions:
    """The fields of `Plan` that a command line can set; those left out are its defaults, or those of tables."""

    members: Annotated[
        int | None, option("Number of ensemble members; that of the recipe, or 5, if left out.", "Training", "N")
    ] = None
    epochs: Annotated[
        int | None, option("Passes over the training examples; 50 if left out (tables: --steps).", "Training", "N")
    ] = None
    steps: Annotated[
        int | None, option("Steps of a member, instead of --epochs: as many epochs as it takes.", "Training", "N")
    ] = None
    seed: Annotated[int, option("Random seed.", "Training", "N")] = 0
    first_member: Annotated[
        int,
        option("Number of the first member: its random streams are those of this number.", "Training", "N"),
    ] = 0
    batch_size: Annotated[
        int | None, option("Examples per step; 32 if left out (tables: 32 or 128, by size).", "Training", "N")
    ] = None
    lr: Annotated[
        float | None, option("Learning rate; 0.005 if left out (tables: 0.001 or 0.002).", "Training", "X")
    ] = None
    optimizer: Annotated[
        str | None,
        option(
            "adam (the default), adamw (that of tables), sgd or nesterov.",
            "Training",
            "NAME",
            "--optimizer",
            "--optimiser",
        ),
    ] = None
    schedule: Annotated[
        str | None,
        option(
            "Learning-rate schedule, cosine or that of the dynamics if left out; see `murmur list schedules`.",
            "Training",
            "NAME",
        ),
    ] = None
    warmup: Annotated[float, option("Epochs of linear learning-rate warm-up.", "Training", "X")] = 0.0
    clip_norm: Annotated[float | None, option("Gradient clipping: largest norm of a member.", "Training", "X")] = None
    lr_multipliers: Annotated[
        Names,
        option(
            "Learning-rate multiplier of the parameters that match a pattern, such as head.*=0.1.",
            "Training",
            "PATTERN=X",
            "--lr-multiplier",
        ),
    ] = None
    momentum: Annotated[float, option("Momentum of sgd and nesterov.", "Training", "X")] = 0.9
    weight_decay: Annotated[
        float | None, option("Weight decay; if left out 0, of adamw 0.01, of tables by their size.", "Training", "X")
    ] = None
    decay: Annotated[
        str | None, option("coupled (L2) or decoupled weight decay; if left out as in torch.", "Training", "WAY")
    ] = None
    l1: Annotated[float, option("L1 penalty on kernels; sets weights exactly to 0.", "Training", "X")] = 0.0
    batch_order: Annotated[
        str | None,
        option("Order of examples: own (each member shuffles), same, or split among members.", "Training", "WAY"),
    ] = None
    replacement: Annotated[
        bool, switch("--replacement", "Draw batches with replacement, instead of shuffling every epoch.", "Training")
    ] = False
    sampler: Annotated[
        str,
        option("How often classes are drawn: instance, square-root, balanced or progressive.", "Training", "NAME"),
    ] = "instance"
    drop_last: Annotated[
        bool, switch("--drop-last", "Leave out the examples of an epoch that do not fill a batch.", "Training")
    ] = False
    same: Annotated[
        Names,
        option("Random streams that all members have in common: initialisation, batches, noise.", "Training", "LIST"),
    ] = None
    augment: Annotated[Names, option("Augmentation of images: pad-crop, flip.", "Training", "LIST")] = None
    patience: Annotated[
        int | None,
        option("Early stopping: epochs a member goes on without a better validation NLL.", "Training", "N"),
    ] = None
    stop_by: Annotated[
        str | None,
        option("Whose validation NLL --patience is about: member, or ensemble (tables).", "Training", "WHO"),
    ] = None
    trajectory: Annotated[
        str | None,
        option(
            "Store the weights along the path of training: every-epoch, every:K or last:N epochs; with ,float16 in "
            "half precision.",
            "Training",
            "TIMES",
        ),
    ] = None
    engine: Annotated[str, option("auto, fastest or a name; see `murmur list engines`.", "Hardware", "NAME")] = "auto"
    ranks_per_member: Annotated[
        int, option("With torchrun: processes that split every batch of a member.", "Hardware", "N")
    ] = 1
    device: Device = "cpu"
    precision: Precision = "float32"

    def settings(self, posthoc: "PostHocConfig | None" = None) -> dict[str, Any]:
        """Return the settings that differ from the defaults, as keywords of `mm.fit`, checked without data."""
        from murmuration.models.estimators.table import refuse_unused
        from murmuration.training.plan import Plan

        if self.members is not None and self.members < 1:
            raise Misuse(f"members={self.members}: {WHOLE}")
        refuse_unused(None, asdict(self))
        usual = TrainingOptions()
        texts: dict[str, Any] = {
            name: value for name, value in asdict(self).items() if value != getattr(usual, name) and value is not None
        }
        for name in ("augment", "same"):
            if name in texts:
                texts[name] = tuple(listed(texts[name]))
        if "lr_multipliers" in texts:
            texts["lr_multipliers"] = tuple(map(lr_multiplier, listed(texts["lr_multipliers"])))
        Plan(**{**texts, "posthoc": posthoc})
        return {**texts, "posthoc": posthoc}


def lr_multiplier(text: str) -> tuple[str, float]:
    """A pattern of parameter names and its learning-rate multiplier.

    >>> lr_multiplier("head.*=0.1")
    ('head.*', 0.1)
    """
    pattern, _, number = text.rpartition("=")
    try:
        return pattern, float(number)
    except ValueError:
        raise Misuse(f"--lr-multiplier {text}: expected PATTERN=NUMBER, such as head.*=0.1") from None


@dataclass(frozen=True)
class PostHocOptions:
    """What to fit on the validation examples; the fields of `PostHocConfig` that a command line can set."""

    calibrate: Annotated[
        str, option("Calibration method; see `murmur list calibrators`, or none.", "Calibration", "METHOD")
    ] = "temperature"
    coverage: Annotated[
        float, option("Target coverage of conformal prediction sets and intervals.", "Calibration", "X")
    ] = 0.9
    conformal: Annotated[
        str | None,
        option("Conformal method; see `murmur list conformal`. lac or quantile if left out.", "Calibration", "METHOD"),
    ] = None
    max_error_rate: Annotated[
        float, option("Largest acceptable error rate among answered inputs (selective prediction).", "Calibration", "X")
    ] = 0.05
    error_cost: Annotated[float, option("Cost of a wrong answer.", "Calibration", "X")] = 1.0
    abstain_cost: Annotated[
        float | None, option("Cost of abstaining; 0.2 in classification if left out.", "Calibration", "X")
    ] = None

    def config(self) -> "PostHocConfig":
        """The config, checked as far as it can be without data."""
        from murmuration.prediction.posthoc import PostHocConfig

        return PostHocConfig(**asdict(self))


@dataclass(frozen=True)
class ShiftOptions:
    """Corrupted and out-of-distribution inputs to evaluate on besides the test split."""

    corruptions: Annotated[bool, switch("--corruptions", "Evaluate on corrupted inputs too.", "Shift")] = False
    only: Annotated[Names, option("Some corruptions; see `murmur list corruptions`.", "Shift", "LIST")] = None
    severities: Annotated[Names, option("Severities of corruption; 1,2,3,4,5 if left out.", "Shift", "LIST")] = None
    shift_examples: Annotated[int | None, option("Corrupt the first N examples; all if left out.", "Shift", "N")] = None
    cifar_c: Annotated[
        str | None, option("Folder of the official CIFAR-10-C arrays, used instead of ours.", "Shift", "DIR")
    ] = None
    ood: Annotated[Names, option("Out-of-distribution inputs; a list for several.", "Shift", "DATA")] = None

    @property
    def wanted(self) -> bool:
        return self.corruptions or self.only is not None or self.cifar_c is not None


def listed(values: Sequence[str] | None) -> list[str]:
    """The values of an option that may be repeated and may hold commas; double quotes protect a comma.

    >>> listed(["single, deep-ensemble", "forde"])
    ['single', 'deep-ensemble', 'forde']
    >>> listed(['"price, EUR",age'])
    ['price, EUR', 'age']
    """
    rows = csv.reader(values or (), skipinitialspace=True)
    return [value.strip() for row in rows for value in row if value.strip()]


def output_path(out: str, suffixes: tuple[str, ...], force: bool, *, option: str = "--out") -> Path:
    """The path of an output file: of a known kind, in an existing folder, and new unless `force` is set."""
    path = Path(out)
    if path.suffix.lower() not in suffixes:
        raise Misuse(
            f"{option} {out} has the suffix '{path.suffix}': write a name that ends in {' or '.join(suffixes)}"
        )
    if not path.parent.is_dir():
        raise Misuse(f"{option} {out}: the folder {path.parent} does not exist; make it first")
    if path.is_dir() or (path.exists() and not force):
        raise Misuse(f"{option} {out} exists already: choose another name, or add --force")
    return path


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with every parameter that is a record replaced by options for the record's fields."""
    given = inspect.signature(command)
    hints = get_type_hints(command, include_extras=True)
    records: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters = [
        parameter
        for name in given.parameters
        for parameter in (
            _of_record(records[name]) if name in records else [_keyword(given.parameters[name], hints[name])]
        )
    ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        made = {
            name: record(**{field.name: values.pop(field.name) for field in fields(record)})
            for name, record in records.items()
        }
        command(**values, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _of_record(record: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(record, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(f.name, kind, default=f.default, annotation=hints[f.name]) for f in fields(record)]


def _keyword(parameter: inspect.Parameter, hint: Any) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint)
