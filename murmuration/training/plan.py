"""`Plan`: the settings of a training run, apart from the recipe."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

import numpy as np
import torch

from murmuration.core.dynamics import Optimizer, TorchOptimizer
from murmuration.core.dynamics.optimizer import Decay, make_optimizer
from murmuration.core.dynamics.schedules import check_schedule
from murmuration.core.dynamics.trajectory import parse_trajectory
from murmuration.core.recipe import BATCH_ORDERS, BatchOrder, Recipe
from murmuration.data import AUGMENTATIONS
from murmuration.data.samplers import INSTANCE, SAMPLERS
from murmuration.prediction.posthoc import PostHocConfig
from murmuration.system.devices import CPU, FLOAT32, PRECISIONS, is_available, resolve_device
from murmuration.system.errors import Misuse, require_integer, require_number, unknown
from murmuration.system.interrupts import CHECKPOINT_SECONDS
from murmuration.system.option_text import OBJECT

StopBy = Literal["member", "ensemble"]
SAME = {  # random streams that all members can have in common
    "initialisation": "initial weights, factors and masks",
    "batches": "order of examples and augmentation: the same as batch_order same",
    "noise": "dropout, draws of random weights, Langevin noise",
}
ENGINES = ("auto", "fastest", "loop", "stacked", "threads", "threads-stacked")
SMALLEST = {"members": 0, "epochs": 1, "batch_size": 1, "seed": 0, "first_member": 0, "ranks_per_member": 1}
SMALLEST |= {"patience": 1, "steps": 1}  # whole numbers, or None
USUAL = {"lr": 0.001, "warmup": 1, "momentum": 0.9, "weight_decay": 0.01, "l1": 0.0001, "clip_norm": 1}  # numbers
USUAL["checkpoint_seconds"] = CHECKPOINT_SECONDS
MEMBERS = 5  # of an ensemble, where neither the caller nor the recipe says how many


@dataclass(frozen=True)
class Plan:
    """The settings of a training run: members, epochs, learning rate, seed, engine, device."""

    members: int = 0  # 0: the recipe's number, or 5
    epochs: int = 50
    steps: int | None = None  # of a member, instead of epochs: as many epochs as it takes
    seed: int = 0
    batch_size: int = 32
    lr: float = 5e-3
    optimizer: str | Callable[..., torch.optim.Optimizer] | None = None  # a name, or a function: f(params, lr=...)
    schedule: str | None = None  # of the learning rate; None: that of the dynamics, or cosine
    warmup: float = 0.0  # epochs over which the learning rate rises linearly
    momentum: float = 0.9
    weight_decay: float | None = None  # None: 0, of adamw 0.01
    decay: Decay | None = None  # None: as torch, coupled but for adamw
    l1: float = 0.0  # weight of the L1 norm of kernels; proximal steps make many of their weights exactly zero
    clip_norm: float | None = None  # largest gradient norm of a member
    lr_multipliers: tuple[tuple[str, float], ...] = ()  # (pattern of parameter names, multiplier of the learning rate)
    batch_order: BatchOrder | None = None  # None: own, or same where the coupling needs it
    replacement: bool = False  # batches drawn with replacement, instead of a permutation of all examples each epoch
    sampler: str = INSTANCE  # how often classes are drawn: a name of SAMPLERS
    drop_last: bool = False  # leave out the examples of an epoch that do not fill a batch
    same: tuple[str, ...] = ()  # random streams of the first member that all members draw from: those of SAME
    augment: tuple[str, ...] = ()  # of images: pad-crop (with a border of the mean colour), flip
    patience: int | None = None  # early stopping: epochs without a better validation NLL
    stop_by: StopBy = "member"  # each by its own NLL (their mean, if they share weights), or all by that of the mixture
    trajectory: str | None = None  # weights along the path, written to the run: every-epoch, every:K or last:N epochs
    engine: str = "auto"
    device: str = "cpu"  # cpu, cuda, cuda:1, mps; auto: CUDA, else MPS, else the CPU
    ranks_per_member: int = 1  # processes that split every batch of a member, where there are more than members
    precision: str = FLOAT32  # of the operators of networks: float32, or bf16 with weights and losses in float32
    first_member: int = 0  # members draw the streams of first_member, first_member + 1, ...
    checkpoint_seconds: float = CHECKPOINT_SECONDS  # between two checkpoints of a run
    posthoc: PostHocConfig | None = field(default_factory=PostHocConfig)  # fitted on validation examples; None: nothing

    def __post_init__(self) -> None:
        self._convert()
        self._check_types()
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise Misuse(f"lr={self.lr}: need a positive number such as 0.001")
        if not 0 <= self.warmup < math.inf:
            raise Misuse(f"warmup={self.warmup}: need a number of epochs that is not negative, such as 1")
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise Misuse(f"clip_norm={self.clip_norm}: need a positive number such as 1")
        if not self.checkpoint_seconds >= 0:
            raise Misuse(
                f"checkpoint_seconds={self.checkpoint_seconds}: need a number that is not negative, such as"
                f" {CHECKPOINT_SECONDS:g}"
            )
        for pattern, factor in self.lr_multipliers:
            require_number(f"lr_multipliers: '{pattern}'", factor, 0.1)
            if not 0 <= factor < math.inf:
                raise Misuse(f"lr_multipliers: {factor} for '{pattern}'; need a number that is not negative")
        if self.batch_order is not None and self.batch_order not in BATCH_ORDERS:
            raise unknown("batch_order", self.batch_order, BATCH_ORDERS)
        if self.stop_by not in get_args(StopBy):
            raise unknown("stop_by", self.stop_by, get_args(StopBy))
        if self.sampler not in SAMPLERS:
            raise unknown("sampler", self.sampler, SAMPLERS)
        if self.replacement and self.sampler != INSTANCE:
            raise Misuse(f"replacement with sampler={self.sampler}, which replaces anyway: leave one of them out")
        if self.batch_order == "split" and self.batch_size < self.members:
            raise Misuse(f"batch_order=split: {self.members} members cannot split {self.batch_size} examples a step")
        for name in self.same:
            if name not in SAME:
                raise unknown("random stream", name, SAME)
        if "batches" in self.same and self.batch_order not in (None, "same"):
            raise Misuse(f"batch_order={self.batch_order} with same=batches: leave one of the two out")
        if self.engine not in ENGINES:
            raise unknown("engine", self.engine, ENGINES)
        for name in self.augment:
            if name not in AUGMENTATIONS:
                raise unknown("augmentation", name, AUGMENTATIONS)
        if self.trajectory is not None and parse_trajectory(self.trajectory).last and self.patience is not None:
            raise Misuse(
                f"trajectory={self.trajectory} with patience: which epochs are the last is not known before; write"
                " every-epoch"
            )
        object.__setattr__(self, "device", resolve_device(self.device))
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        self.make_optimizer()
        if self.schedule is not None:
            check_schedule(self.schedule, self.epochs)

    def _convert(self) -> None:
        """Numbers of numpy and a torch device as plain values; names in one text, `posthoc` True or False."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        plain = {name: value.item() for name, value in given.items() if isinstance(value, np.generic)}
        if isinstance(self.device, torch.device):
            plain["device"] = str(self.device)
        for name in ("augment", "same"):
            if isinstance(given[name], str):
                plain[name] = tuple(each.strip() for each in given[name].split(","))
        if isinstance(self.posthoc, bool):
            plain["posthoc"] = PostHocConfig() if self.posthoc else None
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def _check_types(self) -> None:
        """Refuse settings of another type than theirs, and whole numbers that are too small."""
        for name, least in SMALLEST.items():
            if name not in ("patience", "steps") or getattr(self, name) is not None:
                require_integer(name, getattr(self, name), least)
        for name, usual in USUAL.items():
            if name not in ("clip_norm", "weight_decay") or getattr(self, name) is not None:
                require_number(name, getattr(self, name), usual)
        for name in ("schedule", "decay", "device", "precision", "trajectory", "optimizer"):
            value = getattr(self, name)
            own = name == "optimizer" and (callable(value) or isinstance(value, torch.optim.Optimizer))
            if not isinstance(value, str | None) and not own:
                raise Misuse(f"{name}={value!r}: need a name as text")
        if self.posthoc is not None and not isinstance(self.posthoc, PostHocConfig):
            raise Misuse(f"posthoc={self.posthoc!r}: need True, False or mm.PostHocConfig(calibrate='temperature')")
        pairs = isinstance(self.lr_multipliers, tuple | list)
        if not pairs or not all(isinstance(each, tuple | list) and len(each) == 2 for each in self.lr_multipliers):
            raise Misuse(f"lr_multipliers={self.lr_multipliers!r}: need pairs such as (('head.*', 0.1),)")

    def make_optimizer(self) -> Optimizer | TorchOptimizer:
        """The update rule of plain training; Adam unless another is asked for."""
        if isinstance(self.optimizer, torch.optim.Optimizer):
            name = type(self.optimizer).__name__
            raise Misuse(
                f"optimizer is a {name} made for other parameters: give the class, or functools.partial({name}, ...)"
            )
        if callable(self.optimizer):
            if self.weight_decay or self.decay or self.l1:
                raise Misuse(
                    "weight_decay, decay or l1 with an optimizer of your own: give them to the optimizer itself"
                )
            return TorchOptimizer(self.optimizer)
        name = self.optimizer or "adam"
        return make_optimizer(
            name, momentum=self.momentum, weight_decay=self.weight_decay, decay=self.decay, l1=self.l1
        )

    def for_recipe(self, recipe: Recipe) -> "Plan":
        """The plan with the settings that it leaves to the recipe: the number of members and the batch order."""
        members = self.members or recipe.members or MEMBERS
        if recipe.fixed_members and members != recipe.members:
            raise Misuse(
                f"members={members} with recipe {recipe.name}: it has {recipe.members}; leave it out, or write recipe"
                " deep-ensemble"
            )
        same = recipe.coupling is not None and "same-batch" in recipe.coupling.space.needs and members > 1
        if same and self.batch_order not in (None, "same"):
            raise Misuse(
                f"batch_order={self.batch_order} with coupling {recipe.text('coupling')}: members are compared on the"
                " same examples; leave it out"
            )
        usual = recipe.batch_order if members > 1 and self.batch_order is None else None
        return replace(self, members=members, batch_order="same" if same else usual or self.order)

    @property
    def order(self) -> BatchOrder:
        """The batch order, where the recipe does not decide it."""
        return self.batch_order or ("same" if "batches" in self.same else "own")

    def to_json(self) -> dict[str, Any]:
        record = asdict(replace(self, optimizer=None))
        function = self.optimizer if callable(self.optimizer) else None
        name = getattr(function, "__qualname__", type(function).__name__)
        return {**record, "optimizer": self.optimizer if function is None else f"{OBJECT}{name}"}


def plan_from_json(
    record: dict[str, Any],
    optimizer: Callable[..., torch.optim.Optimizer] | None = None,
    device: str | None = None,
) -> Plan:
    """The plan of a record; an optimizer of the caller's own must be given again, and a device that is missing here."""
    known = {each.name: record[each.name] for each in fields(Plan) if each.name in record}
    if device is not None:
        known["device"] = device
    elif not is_available(known.get("device", CPU)):
        raise Misuse(f"the run was trained on {known['device']}, which is not available here: write device='cpu'")
    known.setdefault("drop_last", True)  # runs without this setting did so
    if str(known.get("optimizer")).startswith(OBJECT):
        if optimizer is None:
            raise Misuse(
                f"the run was trained with {known['optimizer'].removeprefix(OBJECT)}, an optimizer of your own: give it"
                " again as optimizer="
            )
        known["optimizer"] = optimizer
    if known.get("posthoc") is not None:
        known["posthoc"] = PostHocConfig(**known["posthoc"])
    multipliers = tuple((pattern, factor) for pattern, factor in known.get("lr_multipliers", ()))
    listed = {name: tuple(known.get(name, ())) for name in ("augment", "same")}
    return Plan(**{**known, **listed, "lr_multipliers": multipliers})
