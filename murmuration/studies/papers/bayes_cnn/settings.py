"""Settings of the reproduction: rows, a small scale, and the published one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmuration.core.recipe import Recipe, make_recipe
from murmuration.system.errors import Misuse
from murmuration.training.plan import Plan

PARTS = ("accuracy", "pruning", "uncertainty")
FOLLOWED = "bayes"  # the row whose pruning and uncertainty are followed


@dataclass(frozen=True)
class Row:
    """A network and what its weights are."""

    net: str
    weights: str
    about: str


def gaussian(beta: float, **settings: Any) -> str:
    return "gaussian:" + ",".join(f"{name}={value}" for name, value in {"beta": f"{beta:g}", **settings}.items())


BETA = 0.1  # the weight of the KL; 1 is the bound itself
SOFTPLUS = "lenet5:activation=softplus"
ROWS = {
    "bayes": Row("lenet5", gaussian(BETA), "Gaussian weights, ReLU"),
    "point": Row("lenet5", "point", "deterministic, ReLU"),
    "bayes-softplus": Row(SOFTPLUS, gaussian(BETA), "Gaussian weights, softplus as published"),
    "point-softplus": Row(SOFTPLUS, "point", "deterministic, softplus"),
    "bayes-prior": Row("lenet5", gaussian(BETA, prior="gaussian_0.1"), "prior N(0, 0.1²) instead of He's"),
    "bayes-beta-1": Row("lenet5", gaussian(1), "the whole KL"),
    "bayes-literal": Row(
        SOFTPLUS,
        gaussian(1, prior="gaussian_0.1", samples=2, init_std_ratio=1),
        "softplus, prior N(0, 0.1²), the whole KL, two draws a step, standard deviations that start big",
    ),
    "bayes-half": Row("lenet5-half", gaussian(BETA), "half of the filters"),
    "bayes-alexnet": Row("alexnet", gaussian(0.005), "AlexNet, Gaussian weights"),
    "point-alexnet": Row("alexnet", "point", "AlexNet, deterministic"),
    "bayes-alexnet-half": Row("alexnet-half", gaussian(0.005), "AlexNet of half the filters"),
}
LENET = tuple(name for name in ROWS if "alexnet" not in name)


@dataclass(frozen=True)
class Setting:
    """Settings of all runs; a record is continued with the same settings only."""

    parts: tuple[str, ...] = PARTS
    methods: tuple[str, ...] = LENET
    data: str = "digits"
    train: int | None = None  # training examples, the first ones; None: all
    examples: int = 2000  # test examples
    epochs: int = 20
    batch_size: int = 64
    lr: float = 5e-3  # of 2e-3 and 5e-3 the one with the lower validation NLL on digits
    l1: float = 0.1  # of 0.01 to 0.3 the largest that costs at most a point of validation accuracy on digits
    finetune: int = 2  # epochs after pruning
    draws: int = 20  # of a prediction
    augment: tuple[str, ...] = ()
    device: str = "cpu"
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise Misuse(f"seeds={','.join(map(str, self.seeds))}: expected at least one, each once and not below 0")

    @property
    def published_data(self) -> str:
        """The name of the data in the published table; "" if it is not there.

        >>> Setting(data="data/mnist").published_data, Setting(data="cifar-10-batches-bin").published_data
        ('MNIST', 'CIFAR-10')
        """
        name = Path(self.data).name.lower().replace("-", "")
        names = {"mnist": "MNIST", "cifar100": "CIFAR-100", "cifar10": "CIFAR-10"}
        return next((title for key, title in names.items() if name.startswith(key)), "")

    def plan(self, seed: int, **changes: Any) -> Plan:
        """Return the plan of one network."""
        names = ("epochs", "batch_size", "lr", "augment", "device")
        own: dict[str, Any] = {name: getattr(self, name) for name in names}
        return Plan(**{"members": 1, "seed": seed, "schedule": "cosine", "posthoc": None, **own, **changes})

    def recipe(self, row: Row) -> Recipe:
        """Return the recipe of a row: one network."""
        if row.weights == "point":
            return make_recipe("single")
        return make_recipe("bayes", weights=f"{row.weights},draws={self.draws}")


PROFILES = {
    "laptop": Setting(),
    "paper": Setting(
        methods=tuple(ROWS),
        data="cifar-10-batches-bin",
        epochs=100,
        batch_size=256,
        lr=1e-3,
        examples=10_000,
        augment=("pad-crop", "flip"),
        draws=25,
    ),
}
