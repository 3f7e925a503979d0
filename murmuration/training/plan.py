"""`Plan`: the settings of a training run, apart from the recipe.

Modules that load torch are imported in functions: the command line reads the declarations of `Plan` without it.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from murmuration.prediction.posthoc_config import PostHocConfig
from murmuration.system.errors import Misuse, require_integer, require_number
from murmuration.system.interrupts import CHECKPOINT_SECONDS
from murmuration.system.option_text import OBJECT
from murmuration.system.settings import (
    AtLeast,
    Doc,
    NonNegative,
    Number,
    OneOf,
    Positive,
    check_settings,
    documented,
    imported,
    settings_of,
)

if TYPE_CHECKING:
    import torch

    from murmuration.core.dynamics import Optimizer, TorchOptimizer
    from murmuration.core.recipe import BatchOrder, Recipe

SAME = {  # random streams that all members can have in common
    "initialisation": "initial weights, factors and masks",
    "batches": "order of examples and augmentation: the same as batch_order same",
    "noise": "dropout, draws of random weights, Langevin noise",
}
ENGINES = ("auto", "fastest", "loop", "stacked", "threads", "threads-stacked")
MEMBERS = 5  # of an ensemble, where neither the caller nor the recipe says how many


@documented
@dataclass(frozen=True, repr=False)
class Plan:
    """The settings of a training run: members, epochs, learning rate, seed, engine, device."""

    members: Annotated[int, Doc("Number of ensemble members. 0: that of the recipe, or 5."), AtLeast(0)] = 0
    epochs: Annotated[int, Doc("Passes over the training examples; tables use steps by default."), AtLeast(1)] = 50
    steps: Annotated[
        int | None, Doc("Training steps of a member, instead of epochs; rounded up to full epochs."), AtLeast(1)
    ] = None
    seed: Annotated[int, Doc("Random seed."), AtLeast(0)] = 0
    batch_size: Annotated[int, Doc("Examples per step; of tables 32 or 128 by default."), AtLeast(1)] = 32
    lr: Annotated[float, Doc("Learning rate; of tables 0.001 or 0.002 by default."), Positive(0.001)] = 5e-3
    optimizer: Annotated[
        str | Callable[..., Any] | None,
        Doc("adam (the default), adamw (of tables), sgd or nesterov; in Python also a function f(params, lr=...)."),
    ] = None
    schedule: Annotated[
        str | None,
        Doc("Learning-rate schedule, see `murmur list schedules`; by default that of the dynamics, or cosine."),
    ] = None
    warmup: Annotated[float, Doc("Epochs of linear learning-rate warm-up."), NonNegative(1, "epochs")] = 0.0
    momentum: Annotated[float, Doc("Momentum of sgd and nesterov."), Number(0.9)] = 0.9
    weight_decay: Annotated[
        float | None, Doc("Weight decay; by default 0, of adamw 0.01, of tables by their size."), Number(0.01)
    ] = None
    decay: Annotated[
        Literal["coupled", "decoupled"] | None, Doc("coupled (L2) or decoupled weight decay; by default as in torch.")
    ] = None
    l1: Annotated[
        float, Doc("L1 penalty on kernels; proximal steps set weights exactly to 0."), NonNegative(0.0001)
    ] = 0.0
    clip_norm: Annotated[float | None, Doc("Gradient clipping: largest norm of a member's gradient."), Positive(1)] = (
        None
    )
    lr_multipliers: Annotated[
        tuple[tuple[str, float], ...],
        Doc("Learning-rate multiplier of parameters by name, such as head.*=0.1; in Python (('head.*', 0.1),)."),
    ] = ()
    batch_order: Annotated[
        Literal["own", "same", "split"] | None,
        Doc("Order of examples: own (each member shuffles), same, or split among members; by default as the recipe."),
    ] = None
    replacement: Annotated[bool, Doc("Draw batches with replacement, instead of shuffling every epoch.")] = False
    sampler: Annotated[
        str,
        Doc("How often classes are drawn: instance, square-root, balanced or progressive."),
        OneOf(imported("murmuration.data.samplers", "SAMPLERS")),
    ] = "instance"
    drop_last: Annotated[bool, Doc("Leave out the last examples of an epoch if they do not fill a batch.")] = False
    same: Annotated[
        tuple[str, ...],
        Doc("Random streams that all members have in common: initialisation, batches, noise."),
        OneOf(SAME, "random stream"),
    ] = ()
    augment: Annotated[
        tuple[str, ...],
        Doc("Augmentation of images: pad-crop (with a border of the mean colour), shift (by up to 10 %), flip."),
        OneOf(imported("murmuration.data", "AUGMENTATIONS"), "augmentation"),
    ] = ()
    patience: Annotated[
        int | None, Doc("Early stopping: epochs without improvement of the validation NLL."), AtLeast(1)
    ] = None
    stop_by: Annotated[
        Literal["member", "ensemble"],
        Doc("Validation NLL that patience is about: member (each its own) or ensemble (that of the mixture; tables)."),
    ] = "member"
    trajectory: Annotated[
        str | None,
        Doc("Store weights during training: every-epoch, every:K or last:N epochs; with ,float16 in half precision."),
    ] = None
    engine: Annotated[str, Doc("auto, fastest or a name; see `murmur list engines`."), OneOf(ENGINES)] = "auto"
    device: Annotated[str, Doc("cpu, cuda, cuda:1, mps or auto (the best one available).")] = "cpu"
    ranks_per_member: Annotated[
        int, Doc("With torchrun: number of processes that split every batch of a member."), AtLeast(1)
    ] = 1
    precision: Annotated[
        str,
        Doc("float32, or bf16: operators of networks in bfloat16, weights and losses in float32."),
        OneOf(imported("murmuration.system.devices", "PRECISIONS")),
    ] = "float32"
    first_member: Annotated[
        int, Doc("Number of the first member, which selects the random streams of the members."), AtLeast(0)
    ] = 0
    checkpoint_seconds: Annotated[
        float,
        Doc("Seconds between checkpoints: a killed run loses about this much work."),
        NonNegative(CHECKPOINT_SECONDS, infinite=True),
    ] = CHECKPOINT_SECONDS
    posthoc: Annotated[PostHocConfig | None, Doc("Post-hoc steps, fitted on validation examples; None for none.")] = (
        field(default_factory=PostHocConfig)
    )

    def __post_init__(self) -> None:
        import numpy as np
        import torch

        from murmuration.core.dynamics.schedules import check_schedule
        from murmuration.core.dynamics.trajectory import parse_trajectory
        from murmuration.system.devices import resolve_device

        for name, value in vars(self).items():  # numpy scalars to plain values, comma-separated names to tuples
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())
            elif isinstance(value, torch.device):
                object.__setattr__(self, name, str(value))
            elif name in ("augment", "same") and isinstance(value, str | None):
                object.__setattr__(self, name, tuple(item.strip() for item in value.split(",")) if value else ())
        if isinstance(self.posthoc, bool):
            object.__setattr__(self, "posthoc", PostHocConfig() if self.posthoc else None)
        check_settings(self)
        if self.posthoc is not None and not isinstance(self.posthoc, PostHocConfig):
            raise Misuse(f"posthoc={self.posthoc!r}: need True, False or mm.PostHocConfig(calibrate='temperature')")
        pairs = self.lr_multipliers
        if not isinstance(pairs, tuple | list) or not all(isinstance(p, tuple | list) and len(p) == 2 for p in pairs):
            raise Misuse(f"lr_multipliers={pairs!r}: need pairs such as (('head.*', 0.1),)")
        for pattern, factor in pairs:
            require_number(f"lr_multipliers: '{pattern}'", factor, 0.1)
            if not 0 <= factor < math.inf:
                raise Misuse(f"lr_multipliers: {factor} for '{pattern}'; need a number that is not negative")
        if self.replacement and self.sampler != "instance":
            raise Misuse(f"replacement with sampler={self.sampler}, which replaces anyway: leave one of them out")
        if self.batch_order == "split" and self.batch_size < self.members:
            raise Misuse(f"batch_order=split: {self.members} members cannot split {self.batch_size} examples a step")
        if "batches" in self.same and self.batch_order not in (None, "same"):
            raise Misuse(f"batch_order={self.batch_order} with same=batches: leave one of the two out")
        if self.trajectory is not None and parse_trajectory(self.trajectory).last and self.patience is not None:
            reason = "which epochs are the last is not known before; write every-epoch"
            raise Misuse(f"trajectory={self.trajectory} with patience: {reason}")
        object.__setattr__(self, "device", resolve_device(self.device))
        self.make_optimizer()
        if self.schedule is not None:
            check_schedule(self.schedule, self.epochs)

    def __repr__(self) -> str:
        """Return the settings that differ from the defaults, as a call."""
        usual = {setting.name: setting.default for setting in settings_of(Plan)}
        changed = {name: value for name, value in vars(self).items() if value != usual[name]}
        return f"Plan({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def make_optimizer(self) -> "Optimizer | TorchOptimizer":
        """Return the update rule of plain training: Adam by default.

        Returns:
            The named optimizer, or an adapter of a torch optimizer class or factory.

        Raises:
            Misuse: For an unknown name, an optimizer instance, or settings that do not fit the optimizer.
        """
        import torch

        from murmuration.core.dynamics.optimizer import TorchOptimizer, make_optimizer

        if isinstance(self.optimizer, torch.optim.Optimizer):
            name = type(self.optimizer).__name__
            advice = f"give the class, or functools.partial({name}, ...)"
            raise Misuse(f"optimizer is a {name} made for other parameters: {advice}")
        if callable(self.optimizer):
            if self.weight_decay or self.decay or self.l1:
                problem = "weight_decay, decay or l1 with an optimizer of your own"
                raise Misuse(f"{problem}: give them to the optimizer itself")
            return TorchOptimizer(self.optimizer)
        if not isinstance(self.optimizer, str | None):
            raise Misuse(f"optimizer={self.optimizer!r}: need a name as text")
        settings: Any = {name: getattr(self, name) for name in ("momentum", "weight_decay", "decay", "l1")}
        return make_optimizer(self.optimizer or "adam", **settings)

    @property
    def order(self) -> "BatchOrder":
        """Return the batch order that holds unless the recipe decides it."""
        return self.batch_order or ("same" if "batches" in self.same else "own")

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values; of a user-defined optimizer only the name."""
        optimizer = self.optimizer
        if callable(optimizer):
            optimizer = f"{OBJECT}{getattr(optimizer, '__qualname__', type(optimizer).__name__)}"
        return {**vars(self), "optimizer": optimizer, "posthoc": None if self.posthoc is None else asdict(self.posthoc)}


def plan_for(recipe: "Recipe", plan: Plan | None = None, **settings: Any) -> Plan:
    """Return the plan of a recipe, with the settings that the recipe decides: members and batch order.

    Args:
        recipe: The recipe to train.
        plan: Settings of training; the defaults if left out.
        **settings: Fields of `Plan`, which take precedence over those of `plan`.

    Returns:
        A plan with `members` above 0 and a `batch_order`.

    Raises:
        Misuse: If a setting is not valid, or contradicts the recipe.
    """
    values = {**({} if plan is None else vars(plan)), **settings}
    require_integer("members", values.get("members", 0), 0)
    members, batch_order = values.get("members") or recipe.members or MEMBERS, values.get("batch_order")
    if recipe.fixed_members and members != recipe.members:
        advice = "leave it out, or write recipe deep-ensemble"
        raise Misuse(f"members={members} with recipe {recipe.name}: it has {recipe.members}; {advice}")
    if recipe.coupling is not None and "same-batch" in recipe.coupling.space.needs and members > 1:
        if isinstance(batch_order, str) and batch_order != "same":
            reason = "members are compared on the same examples; leave it out"
            raise Misuse(f"batch_order={batch_order} with coupling {recipe.text('coupling')}: {reason}")
        usual = "same"
    elif members > 1 and recipe.batch_order is not None:
        usual = recipe.batch_order
    else:
        same = values.get("same")
        usual = "same" if isinstance(same, str | list | tuple) and "batches" in same else "own"
    return Plan(**{**values, "members": members, "batch_order": usual if batch_order is None else batch_order})


def plan_from_json(
    record: dict[str, Any], optimizer: "Callable[..., torch.optim.Optimizer] | None" = None, device: str | None = None
) -> Plan:
    """Restore a plan from its JSON.

    Args:
        record: What `Plan.to_json` returned, possibly of an earlier version.
        optimizer: The user-defined optimizer of the run, if it has one.
        device: Device instead of the stored one.

    Returns:
        The plan.

    Raises:
        Misuse: If the optimizer is missing, or the device is not available.
    """
    from murmuration.system.devices import is_available

    values = {setting.name: record[setting.name] for setting in fields(Plan) if setting.name in record}
    if device is not None:
        values["device"] = device
    elif not is_available(values.get("device", "cpu")):
        raise Misuse(f"the run was trained on {values['device']}, which is not available here: write device='cpu'")
    values.setdefault("drop_last", True)  # runs without this setting did so
    if str(values.get("optimizer")).startswith(OBJECT):
        if optimizer is None:
            advice = "an optimizer of your own: give it again as optimizer="
            raise Misuse(f"the run was trained with {values['optimizer'].removeprefix(OBJECT)}, {advice}")
        values["optimizer"] = optimizer
    if values.get("posthoc") is not None:
        values["posthoc"] = PostHocConfig(**values["posthoc"])
    values["lr_multipliers"] = tuple((pattern, factor) for pattern, factor in values.get("lr_multipliers", ()))
    return Plan(**{**values, **{name: tuple(values.get(name, ())) for name in ("augment", "same")}})
