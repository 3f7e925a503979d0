"""Settings of the reproduction of HCL."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmuration.applications.continual.settings import BatchPlan, MethodSettings

PARTS = ("streams", "detection")
RATE = 1e-3  # of flows with random means; chosen on split:digits, where 1e-4 hardly learns in 60 epochs


@dataclass(frozen=True)
class Row:
    """One method of the table, and what it differs in."""

    about: str
    method: str
    means: str = "data"
    published: str = ""  # the row of the published table


ROWS = {
    "hcl-fr": Row("functional replay, random means, as published", "hcl-fr", "random", "hcl-fr"),
    "hcl-gr": Row("generative replay, random means, as published", "hcl-gr", "random", "hcl-gr"),
    "hcl-fr-lda": Row("functional replay, means of the data: starts as LDA", "hcl-fr"),
    "hcl-gr-lda": Row("generative replay, means of the data: starts as LDA", "hcl-gr"),
    "lda": Row("linear discriminant analysis, no training", "lda"),
    "adam": Row("a network, plain training", "adam"),
    "joint": Row("a network, all tasks at once", "joint"),
}


@dataclass(frozen=True)
class Setting:
    """Settings of all runs; a record is continued with the same settings only."""

    parts: tuple[str, ...] = PARTS
    methods: tuple[str, ...] = tuple(ROWS)
    data: str = "digits"
    tasks: str = "5x2"  # tasks x classes of each
    train: int | None = None  # training examples of each task; None: all
    epochs: int = 60
    batch_size: int = 64
    order: tuple[int, ...] = (1, 2, 1, 3, 4, 2)  # of four tasks with the same labels, in the part detection
    detection_epochs: int = 15
    seeds: tuple[int, ...] = (0, 1, 2)

    @property
    def stream(self) -> str:
        """The name of the stream in the published table; "" if it is none of them.

        >>> Setting(data="data/mnist").stream, Setting().stream
        ('Split-MNIST', '')
        """
        names = {"mnist": "Split-MNIST", "cifar10": "Split-CIFAR-10", "cifar100": "Split-CIFAR-100"}
        tasks = {"Split-CIFAR-100": "10x10"}
        name = names.get(Path(self.data).name.lower(), "")
        return name if tasks.get(name, "5x2") == self.tasks else ""

    def plan(self, epochs: int, seed: int) -> BatchPlan:
        return BatchPlan(self.batch_size, epochs, seed)

    def of(self, row: Row, seed: int) -> MethodSettings:
        """Return the settings of a method, without a learning rate where the default is right."""
        lr: dict[str, Any] = {"lr": RATE} if row.means == "random" else {}
        return MethodSettings(means=row.means, seed=seed, **lr)


PROFILES = {"laptop": Setting(), "paper": Setting(data="mnist", epochs=90)}
