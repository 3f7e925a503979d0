"""Options that several commands share, in records, and what they must mean together."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from murmuration.data.formats import format_usage
from murmuration.errors import Misuse

if TYPE_CHECKING:
    from murmuration.data import Data
    from murmuration.posthoc import PostHocConfig
    from murmuration.recipe import Plan, Recipe


def option(help_text: str, panel: str, metavar: str, *names: str) -> Any:
    """An option with its help, the panel of the help page it stands in, and what to write after it."""
    return typer.Option(*names, help=help_text, rich_help_panel=panel, metavar=metavar, show_default=True)


Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")]
RunPath = Annotated[str, typer.Argument(help="A run directory, as `murmur train` makes them.", metavar="RUN")]
_FORMATS = format_usage("name", "path")
DATA_HELP = f"{_FORMATS[0].upper()}{_FORMATS[1:]}. Tables need --target; see `murmur list data`."
DataSource = Annotated[str, typer.Argument(help=DATA_HELP, metavar="DATA")]


@dataclass(frozen=True)
class DataOptions:
    """How the data is read."""

    target: Annotated[list[str] | None, option("Column of a table to predict; again for more.", "Data", "NAME")] = None
    task: Annotated[str | None, option("classification or regression, if it cannot be told.", "Data", "TASK")] = None
    pixels: Annotated[str, option("standardise, unit (0 to 1) or raw.", "Data", "WAY")] = "standardise"

    def open(self, source: str) -> "Data":
        """The data of the source, split and prepared."""
        from murmuration.data import open_data

        chosen: Any = {"task": self.task, "pixels": self.pixels}
        return open_data(source, target=named_targets(self.target), **chosen)


def named_targets(names: list[str] | None) -> str | tuple[str, ...] | None:
    """The target columns as `open_data` takes them: none, one, or several."""
    return (names[0] if len(names) == 1 else tuple(names)) if names else None


@dataclass(frozen=True)
class AnswerOptions:
    """Answers that replace the recipe's own."""

    sharing: Annotated[str | None, option("What members share.", "Recipe", "ANSWER")] = None
    weights: Annotated[str | None, option("What a weight is.", "Recipe", "ANSWER")] = None
    coupling: Annotated[
        str | None, option("What members say to each other; see `murmur list couplings`.", "Recipe", "ANSWER")
    ] = None
    dynamics: Annotated[str | None, option("How weights move, and what is kept.", "Recipe", "ANSWER")] = None

    def recipe(self, name: str) -> "Recipe":
        """The recipe of that name with these answers."""
        from murmuration.recipe import make_recipe

        return make_recipe(
            name, sharing=self.sharing, weights=self.weights, coupling=self.coupling, dynamics=self.dynamics
        )


@dataclass(frozen=True)
class PlanOptions:
    """How a recipe is carried out; the fields of `Plan` that a command line can set, with its values."""

    members: Annotated[int | None, option("How many networks; the recipe's number, or 5.", "Training", "N")] = None
    epochs: Annotated[int, option("Passes over the training examples.", "Training", "N")] = 50
    seed: Annotated[int, option("From it follow all random numbers.", "Training", "N")] = 0
    batch_size: Annotated[int, option("Examples a step.", "Training", "N")] = 32
    lr: Annotated[float, option("Learning rate.", "Training", "X")] = 5e-3
    optimizer: Annotated[
        str | None,
        option("adam if left out; see `murmur list optimisers`.", "Training", "NAME", "--optimizer", "--optimiser"),
    ] = None
    schedule: Annotated[
        str | None,
        option(
            "Learning-rate schedule; cosine, or that of the dynamics; see `murmur list schedules`.", "Training", "NAME"
        ),
    ] = None
    momentum: Annotated[float, option("Of sgd and nesterov.", "Training", "X")] = 0.9
    weight_decay: Annotated[float, option("Pull of the weights towards 0; needs --decay.", "Training", "X")] = 0.0
    decay: Annotated[str | None, option("coupled (L2) or decoupled (AdamW).", "Training", "WAY")] = None
    l1: Annotated[float, option("Weight of the L1 norm of kernels: makes weights exactly 0.", "Training", "X")] = 0.0
    batch_order: Annotated[
        str | None,
        option("Order of examples: own for each member, same for all, or split among them.", "Training", "WAY"),
    ] = None
    augment: Annotated[str | None, option("Changes of pictures: pad-crop, flip or both.", "Training", "LIST")] = None
    patience: Annotated[
        int | None, option("Stop a member after so many epochs without a better validation NLL.", "Training", "N")
    ] = None
    engine: Annotated[str, option("auto measures; see `murmur list engines`.", "Machine", "NAME")] = "auto"
    device: Annotated[str, option("cpu, cuda, cuda:1, mps.", "Machine", "NAME")] = "cpu"

    def plan(self, posthoc: "PostHocConfig | None" = None) -> "Plan":
        """The plan, checked as far as it can be without data."""
        from murmuration.recipe import Plan

        given: dict[str, Any] = {**asdict(self), "augment": tuple(listed(self.augment)), "posthoc": posthoc}
        if self.members is not None and self.members < 1:
            raise Misuse(f"members={self.members}: need a whole number, at least 1")
        return Plan(**{**given, "members": self.members or 0})


@dataclass(frozen=True)
class TrustOptions:
    """What to fit on the validation examples; the fields of `PostHocConfig` that a command line can set."""

    calibrate: Annotated[
        str, option("Calibration method; see `murmur list calibrators`, or none.", "Trust", "METHOD")
    ] = "temperature"
    coverage: Annotated[float, option("Target coverage of conformal prediction sets and intervals.", "Trust", "X")] = (
        0.9
    )
    conformal: Annotated[
        str | None, option("See `murmur list conformal`; lac or quantile if left out.", "Trust", "METHOD")
    ] = None
    max_error_rate: Annotated[
        float, option("Largest acceptable error rate among answered inputs (selective prediction).", "Trust", "X")
    ] = 0.05
    error_cost: Annotated[float, option("Cost of a wrong answer.", "Trust", "X")] = 1.0
    abstain_cost: Annotated[
        float | None, option("Cost of abstaining; 0.2 in classification if left out.", "Trust", "X")
    ] = None

    def config(self) -> "PostHocConfig":
        """The config, checked as far as it can be without data."""
        from murmuration.posthoc import PostHocConfig

        return PostHocConfig(**asdict(self))


@dataclass(frozen=True)
class ShiftOptions:
    """What a run is tried on besides its test examples."""

    corruptions: Annotated[
        bool, typer.Option("--corruptions", help="Also under corruptions of the inputs.", rich_help_panel="Shift")
    ] = False
    only: Annotated[str | None, option("Some corruptions; see `murmur list corruptions`.", "Shift", "LIST")] = None
    severities: Annotated[str, option("From 1 to 5.", "Shift", "LIST")] = "1,2,3,4,5"
    shift_examples: Annotated[int | None, option("Corrupt the first N examples; all if left out.", "Shift", "N")] = None
    cifar_c: Annotated[
        str | None, option("Folder of the official CIFAR-10-C arrays, to use instead of ours.", "Shift", "DIR")
    ] = None
    ood: Annotated[list[str] | None, option("Foreign inputs it should not know; again for more.", "Shift", "DATA")] = (
        None
    )

    @property
    def wanted(self) -> bool:
        return self.corruptions or self.only is not None or self.cifar_c is not None


def listed(text: str | None) -> list[str]:
    """The names in a list with commas.

    >>> listed("single, deep-ensemble")
    ['single', 'deep-ensemble']
    """
    return [name.strip() for name in (text or "").split(",") if name.strip()]


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
