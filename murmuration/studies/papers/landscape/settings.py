"""The settings of the reproduction: those of one machine, those of the paper, and the published training plans."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from murmuration.studies.papers import Options, choose_settings
from murmuration.system.errors import Misuse
from murmuration.training.plan import Plan

PARTS = ("similarity", "tsne", "plane", "tunnel", "trade-off", "sizes", "factorial", "chains")
SGD_LR = 0.02  # of --optimizer sgd, with momentum 0.9: the paper reports SGD without its settings


@dataclass(frozen=True)
class Setting:
    """One reproduction: the data, how networks are trained, and how they are compared."""

    data: str = "digits"
    prepare: str = "unit"
    val: float | None = None
    train: int | None = None
    net: str = "small-cnn"
    members: int = 5
    epochs: int = 40
    batch_size: int = 128
    replacement: bool = False
    lr: float = 1.6e-3
    schedule: str | None = None
    optimizer: str = "adam"
    weight_decay: float = 0.0
    augment: tuple[str, ...] = ()
    seed: int = 0
    device: str = "cpu"
    ood: str | None = None
    cifar_c: str | None = None
    examples: int = 2000
    grid: int = 21
    severities: tuple[int, ...] = (1, 3, 5)
    subspace: int = 10
    paper_samplers: bool = False
    factorial_epochs: int = 10
    factorial_runs: int = 3
    rates: tuple[float, ...] = (4e-4, 3.2e-3)
    chains: int = 3
    cycles: int = 3
    chain_epochs: int | None = None
    chain_lr: float = 5e-3
    chain_batch: int | None = None
    chain_decay: float = 0.0
    chain_augment: tuple[str, ...] = ()
    chain_dynamics: str = "samples=1"
    parts: tuple[str, ...] = field(default=PARTS)

    def plan(self, **changes: Any) -> Plan:
        """Return the plan of plain training."""
        names = ("members", "epochs", "batch_size", "lr", "optimizer", "weight_decay", "augment", "replacement")
        own: dict[str, Any] = {name: getattr(self, name) for name in (*names, "seed", "device")}
        own["schedule"] = self.schedule or f"halve:{max(1, self.epochs // 4)}"
        return Plan(**{**own, "drop_last": True, "posthoc": None, **changes})

    def chain_plan(self) -> Plan:
        """Return the plan of the chains of cSG-MCMC, whose dynamics has steps and a schedule of its own."""
        own: dict[str, Any] = {"members": self.chains, "epochs": self.chain_epochs or self.epochs, "schedule": None}
        own |= {"lr": self.chain_lr, "batch_size": self.chain_batch or self.batch_size, "optimizer": None}
        return self.plan(**own, weight_decay=self.chain_decay, augment=self.chain_augment)


PROFILES = {
    "laptop": Setting(),
    "paper": Setting(
        data="cifar-10-batches-bin",
        prepare="none",
        val=0.01,
        net="medium-cnn",
        replacement=True,
        examples=10_000,
        severities=(1, 2, 3, 4, 5),
        paper_samplers=True,
        factorial_epochs=40,
        rates=(4e-4, 8e-4, 1.6e-3, 3.2e-3),
    ),
}

# Published plans by network and data. ResNet20v1 on CIFAR-10 is the example of Keras, whose L2 penalty of 1e-4 has the
# gradient of a weight decay of 2e-4. Chains are those of Zhang et al. (2020), whose code draws very cold samples; no
# plan of the plain ResNet-18 beside them is published.
CNN: dict[str, Any] = {"epochs": 40, "batch_size": 128, "lr": 1.6e-3, "schedule": "halve:10", "optimizer": "adam"}
RESNET20: dict[str, Any] = {"epochs": 200, "lr": 1e-3, "optimizer": "adam", "augment": ("shift", "flip")}
RESNET20 |= {"weight_decay": 2e-4, "prepare": "unit", "replacement": False}
IMAGENET: dict[str, Any] = {"epochs": 160, "batch_size": 256, "lr": 0.15, "schedule": "imagenet-resnet"}
IMAGENET |= {"optimizer": "sgd", "prepare": "standardise", "replacement": False}
CHAINS: dict[str, Any] = {"chains": 3, "cycles": 3, "chain_epochs": 150, "chain_batch": 64}
CHAINS |= {
    "chain_lr": 0.025,
    "chain_dynamics": "samples=1,sampling=0.1,temperature=2e-5,clip_norm=inf",
}  # times 20: 0.5
CHAINS |= {"chain_decay": 5e-4, "chain_augment": ("pad-crop", "flip"), "prepare": "standardise", "replacement": False}
PLANS: dict[tuple[str, str], dict[str, Any]] = {
    ("small-cnn", "cifar10"): CNN,
    ("medium-cnn", "cifar10"): CNN,
    ("resnet20", "cifar10"): RESNET20 | {"batch_size": 32, "schedule": "keras-resnet"},
    ("resnet20", "cifar100"): RESNET20 | {"batch_size": 128, "schedule": "cifar100-resnet"},
    ("resnet50", "imagenet"): IMAGENET,
    ("resnet18", "cifar10"): CHAINS,
    ("resnet18", "cifar100"): CHAINS,
}
NAMES = {  # of settings in sentences
    "data": "data",
    "prepare": "pixels",
    "val": "share of images that validate",
    "train": "training images",
    "net": "network",
    "members": "runs",
    "epochs": "epochs",
    "batch_size": "batch",
    "replacement": "batches drawn with replacement",
    "lr": "learning rate",
    "schedule": "schedule",
    "optimizer": "optimizer",
    "weight_decay": "weight decay",
    "augment": "augmentation",
    "examples": "test images of an analysis",
    "severities": "severities of corruption",
    "subspace": "networks of a sampler around each run",
    "paper_samplers": "constants of samplers",
    "factorial_epochs": "epochs of the factorial",
    "rates": "learning rates of the factorial",
    "chains": "chains",
    "cycles": "cycles of a chain",
    "chain_epochs": "epochs of a chain",
    "chain_lr": "learning rate of chains",
    "chain_batch": "batch of chains",
    "chain_decay": "weight decay of chains",
    "chain_augment": "augmentation of chains",
    "chain_dynamics": "dynamics of chains",
}
VALUES: dict[tuple[str, Any], str] = {  # of settings whose values do not speak for themselves
    ("prepare", "none"): "0 to 255",
    ("prepare", "unit"): "0 to 1",
    ("train", None): "all",
    ("val", None): "that of the data set (0.1)",
    ("val", 0.01): "0.01 (500 images)",
    (
        "paper_samplers",
        True,
    ): "absolute distances, random samples accepted from 0.65 on, PCA of random samples of rank 4",
    ("paper_samplers", False): "distances in proportion to the initial weights, random samples may lose 0.05 of "
    "accuracy, PCA of random samples of rank 5",
    ("schedule", None): "halved after every quarter",
    ("chain_epochs", None): "those of the runs",
    ("chain_batch", None): "that of the runs",
}
ALWAYS = {  # what differs from the paper in both profiles: what, here, in the paper
    "validation images": ("drawn at random by class", "the last 500 of the training images"),
    "corrupted images": (
        "generated, 15 of 19 corruptions exactly (--cifar-c reads the official files)",
        "the official files of CIFAR-10-C",
    ),
    "images of each analysis": (
        "the first test images everywhere",
        "500 validation images for some, 10,000 test images for others",
    ),
    "chains of cSG-MCMC": ("the network and the epochs of the runs", "ResNet-18, 3 chains of 3 cycles of 50 epochs"),
    "plane, tunnel, factorial": ("21 x 21 points; 7 nodes of 300 steps of Adam; the rates above", "not published"),
}


def data_kind(source: str) -> str:
    """Return which published data set a source is, by its name; empty for others.

    >>> data_kind("/data/cifar-10-batches-bin"), data_kind("hf:uoft-cs/cifar100"), data_kind("digits")
    ('cifar10', 'cifar100', '')
    """
    name = Path(source).name.lower().replace("-", "").replace("_", "")
    kinds = {"cifar100": "cifar100", "cifar10": "cifar10", "imagenet": "imagenet", "ilsvrc": "imagenet"}
    return next((kind for prefix, kind in kinds.items() if name.startswith(prefix)), "")


def published_plan(setting: Setting) -> dict[str, Any]:
    """Return the published training settings of a network on a data set; empty if there are none."""
    return PLANS.get((setting.net, data_kind(setting.data)), {})


def chosen_setting(options: Options) -> tuple[Setting, str]:
    """Return the settings of a request, and one line on the published plan behind them.

    The published plan of the network and the data stands unless an option contradicts it.
    """
    setting = choose_settings(PROFILES, options)
    published = published_plan(setting)
    setting = replace(setting, **{name: value for name, value in published.items() if name not in options})
    if setting.optimizer == "sgd" and published.get("optimizer") != "sgd":
        if options.get("prepare") == "none":
            raise Misuse("--optimizer sgd with --prepare none: networks on raw pixels diverge; write --prepare unit")
        setting = replace(setting, lr=SGD_LR, prepare=options.get("prepare", "unit"))
    where = f"{setting.net} on {setting.data}"
    if not published:
        return setting, f"no plan is published for {where}: {plan_text(setting)}"
    changed = [name for name in published if getattr(setting, name) != published[name]]
    differences = ", ".join(
        f"{described(name, getattr(setting, name))} (published {published[name]})" for name in changed
    )
    return setting, f"published plan of {where}: {plan_text(setting)}" + (
        f"; differs: {differences}" if changed else ""
    )


def plan_text(setting: Setting) -> str:
    """Return how networks are trained, in one line."""
    plan = setting.plan()
    facts = [
        str(plan.optimizer),
        f"batches of {plan.batch_size}",
        f"{plan.epochs} epochs",
        f"learning rate {plan.lr:g}",
    ]
    return ", ".join([*facts, str(plan.schedule), *plan.augment])


def described(name: str, value: Any) -> str:
    """Return a setting in words."""
    return f"{NAMES.get(name, name)} {value_text(name, value)}"


def value_text(name: str, value: Any) -> str:
    """Return the value of a setting in words."""
    if (name, value) in VALUES:
        return VALUES[name, value]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


def differences(setting: Setting) -> dict[str, tuple[str, str]]:
    """Return what differs from the paper: what, here, in the paper.

    Of settings, where the profile `paper` or the published plan of the network has another value; then what no setting
    changes.
    """
    paper = replace(PROFILES["paper"], **published_plan(setting))
    names = [item.name for item in fields(Setting) if item.name in NAMES]
    rows = {
        NAMES[name]: (value_text(name, getattr(setting, name)), value_text(name, getattr(paper, name)))
        for name in names
        if not same(name, setting, paper)
    }
    left_out = {"corrupted images": setting.cifar_c is not None, "chains of cSG-MCMC": setting.net == "resnet18"}
    return rows | {what: row for what, row in ALWAYS.items() if not left_out.get(what)}


def same(name: str, setting: Setting, paper: Setting) -> bool:
    """Return whether a setting is the paper's; data by what they are, the schedule by what it amounts to."""
    if name == "data":
        return data_kind(setting.data) in ("cifar10", "cifar100", "imagenet")
    if name == "net":
        return bool(published_plan(setting))
    if name == "schedule":
        return setting.plan().schedule == paper.plan().schedule
    return getattr(setting, name) == getattr(paper, name)
