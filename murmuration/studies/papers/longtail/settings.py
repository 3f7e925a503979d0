"""Settings of the reproduction: rows and scales."""

from dataclasses import dataclass
from typing import Any

from murmuration.system.errors import Misuse, unknown
from murmuration.training.plan import Plan

REFERENCE = "cross-entropy"


@dataclass(frozen=True)
class Row:
    """One approach: how examples are drawn, the loss, and what becomes of the heads after training."""

    family: str
    about: str
    loss: str = "cross-entropy"
    sampler: str = "instance"
    heads: str = ""  # "re-trained" or "transferred", of the network of the reference


ROWS = {
    REFERENCE: Row("reference", "every example as often as it is there"),
    "balanced": Row("re-sampling", "every class as often", sampler="balanced"),
    "square-root": Row("re-sampling", "by the square root of a class's examples", sampler="square-root"),
    "progressive": Row("re-sampling", "from instances to classes in the course of training", sampler="progressive"),
    "class-balanced": Row("loss", "weights by the effective number of examples", loss="class-balanced"),
    "balanced-softmax": Row("loss", "logits shifted by class frequencies", loss="balanced-softmax"),
    "ldam-drw": Row("loss", "margins by class size, weights late in training", loss="ldam-drw"),
    "re-trained heads": Row("transfer", "heads trained again on balanced batches (cRT)", heads="re-trained"),
    "transferred covariance": Row("transfer", "rare classes borrow covariances of features", heads="transferred"),
}


@dataclass(frozen=True)
class Setting:
    """Settings of all runs; a record is continued with the same settings only."""

    data: str = "digits"
    imbalance: float = 20.0
    net: str = "small-cnn"
    methods: tuple[str, ...] = tuple(ROWS)
    epochs: int = 40
    batch_size: int = 64
    lr: float = 3e-3
    optimizer: str = "adam"
    examples: int = 10_000  # test examples
    augment: tuple[str, ...] = ()
    device: str = "cpu"
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise Misuse(f"seeds={','.join(map(str, self.seeds))}: expected at least one, each once and not below 0")
        for name in self.methods:
            if name not in ROWS:
                raise unknown("method", name, ROWS)

    def plan(self, row: Row, seed: int) -> Plan:
        """Return the plan of one network."""
        names = ("epochs", "batch_size", "lr", "optimizer", "augment", "device")
        own: dict[str, Any] = {name: getattr(self, name) for name in names}
        return Plan(members=1, seed=seed, sampler=row.sampler, schedule="cosine", posthoc=None, **own)


PROFILES = {
    "laptop": Setting(),
    "paper": Setting(
        data="cifar-10-batches-bin",
        imbalance=100.0,
        net="resnet20",
        epochs=200,
        batch_size=128,
        lr=0.1,
        optimizer="nesterov",
        augment=("pad-crop", "flip"),
        seeds=(0, 1, 2),
    ),
}
