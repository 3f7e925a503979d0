"""Settings of the experiment: what is fixed, what is varied, and the cells of the grid."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

from torch import nn

from murmuration.core.recipe import Recipe, make_recipe
from murmuration.data import Data
from murmuration.models.nets.convnets import plain_cnn
from murmuration.models.nets.dense import mlp
from murmuration.system.errors import Misuse, unknown
from murmuration.training.plan import Plan

UV = "rank-one-uv:bias=own"  # own biases: a shared output bias would tie members together whatever the factors are
MEANS = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 0.9)  # of the factors, between the regimes
BETWEEN = "interpolation"
PARTS = ("panels", "theorems")
CHANNELS = (1, 2, 2)  # of small-cnn, in multiples of those of its first layer


@dataclass(frozen=True)
class Setting:
    """Training settings of all cells; a record is continued with the same settings only."""

    parts: tuple[str, ...] = PARTS
    data: str = "digits"
    net: str = "mlp"  # mlp, or small-cnn with its channels times the width
    train: int | None = None  # the first training examples; None: all
    base: int = 32  # neurons in each hidden layer, or channels of the first one, at width 1
    layers: int = 2  # of the mlp
    epochs: int = 14
    batch_size: int = 64
    lr: float = 0.025
    momentum: float = 0.9
    largest_step_epochs: int = 3  # of the search for the largest stable step, plain gradient descent
    steps_lr: float = 0.05  # of the count of steps, plain gradient descent
    steps_epochs: int = 60  # limit of the count, times M where shared gradients are averaged
    inputs: int = 8  # on which tangent kernels are measured
    most: int = 16  # members up to which tangent kernels are measured

    def neurons(self, width: float) -> int:
        """Return neurons in each hidden layer at a multiple of the base width.

        >>> Setting().neurons(0.25)
        8
        """
        return max(1, round(self.base * width))

    def build(self, data: Data, neurons: int) -> Callable[[], nn.Module]:
        """Return a builder of the network with this many neurons in each hidden layer, or channels in the first."""
        if self.net == "mlp":
            return partial(mlp, data.input_shape, len(data.classes), hidden=(neurons,) * self.layers)
        channels = tuple(factor * neurons for factor in CHANNELS)
        return partial(plain_cnn, data.input_shape, len(data.classes), channels=channels, dropout=0.0)

    def plan(self, members: int, seed: int) -> Plan:
        """Return the plan of a cell: SGD with momentum, all members on the same batches, as in the theory."""
        own: dict[str, Any] = {name: getattr(self, name) for name in ("epochs", "batch_size", "lr", "momentum")}
        fixed: dict[str, Any] = {"optimizer": "sgd", "batch_order": "same", "drop_last": True, "engine": "stacked"}
        return Plan(members=members, seed=seed, **own, **fixed)

    def plain(self, members: int, seed: int) -> Plan:
        """Return the plan without momentum and schedule, for which the theory states stable steps."""
        return replace(self.plan(members, seed), momentum=0.0, schedule="constant")


PROFILES = {"laptop": Setting()}
NETS = ("mlp", "small-cnn")


class Cell(NamedTuple):
    """One entry of the record."""

    arm: str
    width: float
    models: int
    seed: int


@dataclass(frozen=True)
class Arm:
    """One kind of ensemble; `kind` says how its cells are measured, and so on which grid."""

    about: str
    sharing: str = "own"
    weights: str = "point"
    kind: str = "trained"  # trained, wider, largest-step, steps

    def recipe(self, name: str) -> Recipe:
        return make_recipe(Recipe(name), sharing=self.sharing, weights=self.weights)


ARMS = {
    "naive": Arm("M networks that share nothing"),
    "independent": Arm("random signs; shared weights move by the sum of gradients", f"{UV},init=rademacher,gamma=M"),
    "collective": Arm("factors around 1; shared weights move by the mean of gradients", f"{UV},init=normal_1_0.5"),
    "single": Arm("one wider network of as many parameters as the independent one", kind="wider"),
    BETWEEN: Arm("factors of mean m and mean square 1, gamma between by the measured kernels"),
    "largest-step": Arm("collective, the largest stable step: sum", f"{UV},init=normal_1_0.5,gamma=M", kind="step"),
    "largest-step-mean": Arm("the same: mean", f"{UV},init=normal_1_0.5", kind="step"),
    "steps": Arm("independent, steps to half the loss: sum", f"{UV},init=rademacher,gamma=M", kind="steps"),
    "steps-mean": Arm("the same: mean", f"{UV},init=rademacher", kind="steps"),
    "masks-0.5": Arm("one fixed mask a member that keeps half", "all", "masks:distribution=inverted_0.5"),
    "independent-mean": Arm("random signs, but the mean of gradients", f"{UV},init=rademacher"),
    "masks-0.9": Arm("one fixed mask a member that keeps nine tenths", "all", "masks:distribution=inverted_0.9"),
}
LINES = ("independent", "naive", "collective", "single", "independent-mean", "masks-0.5", "masks-0.9")
PROBED = {  # kind -> the one width, and numbers of models
    "step": (1.0, (4, 16, 64)),
    "steps": (1.0, (2, 4, 8, 16)),
    BETWEEN: (2.0, (16,)),
}


def between_name(mean: float) -> str:
    """Return the name of the arm whose factors have this mean.

    >>> between_name(0.25)
    'interpolation-0.25'
    """
    return f"{BETWEEN}-{mean:g}"


def mean_in(arm: str) -> float | None:
    """Return the mean of factors in the name of an arm between the regimes; None for any other arm."""
    return float(arm.removeprefix(f"{BETWEEN}-")) if arm.startswith(f"{BETWEEN}-") else None


def arm_named(name: str) -> Arm:
    """Return an arm of the table, or one between the regimes."""
    if (mean := mean_in(name)) is not None:
        return Arm(ARMS[BETWEEN].about, f"{UV},init=interpolation_{mean:g},gamma=smooth")
    if name not in ARMS:
        raise unknown("arm", name, ARMS)
    return ARMS[name]


@dataclass(frozen=True)
class Grid:
    """The cells to compute."""

    widths: tuple[float, ...] = (0.25, 0.5, 1, 2, 4)
    models: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    arms: tuple[str, ...] = tuple(ARMS)
    seeds: tuple[int, ...] = tuple(range(12))

    def __post_init__(self) -> None:
        for field in fields(self):
            values: tuple[Any, ...] = getattr(self, field.name)
            if not values or len(set(values)) < len(values):
                raise Misuse(f"{field.name}={','.join(map(str, values))}: need at least one, and each once")
        for name in self.arms:
            if name not in ARMS:
                raise unknown("arm", name, ARMS)
        if not all(math.isfinite(width) and width > 0 for width in self.widths):
            raise Misuse(f"widths={','.join(map(str, self.widths))}: need positive multiples such as 0.5")
        if min(self.models) < 1 or min(self.seeds) < 0:
            raise Misuse("models need to be at least 1, and seeds at least 0")

    def cells(self) -> list[Cell]:
        """Return the cells in the order they are computed, each once, the most important arms first."""
        return list(dict.fromkeys(cell for name in self.arms for seed in self.seeds for cell in self._of(name, seed)))

    def _of(self, name: str, seed: int) -> list[Cell]:
        kind = BETWEEN if name == BETWEEN else ARMS[name].kind
        if kind in PROBED:
            names = [between_name(mean) for mean in MEANS] if kind == BETWEEN else [name]
            width, numbers = PROBED[kind]
            return [Cell(arm, width, models, seed) for arm in names for models in numbers]
        return [trained_as(Cell(name, float(width), m, seed)) for width in self.widths for m in self.models]


def trained_as(cell: Cell) -> Cell:
    """Return the cell that holds the results of this one: a single member is the same plain network in every arm."""
    return cell._replace(arm="naive") if cell.models == 1 and cell.arm in LINES else cell
