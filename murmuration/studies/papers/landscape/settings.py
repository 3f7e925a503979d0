"""The settings of the reproduction: those of the paper and of its authors' notebook, at the scale of one machine."""

from dataclasses import dataclass, field
from typing import Any

from murmuration.training.plan import Plan

PARTS = ("similarity", "tsne", "plane", "tunnel", "trade-off", "sizes", "factorial", "chains")
NOT_ATTEMPTED = {  # figure or table -> what it would take
    "ResNet20v1 on CIFAR-10 and CIFAR-100 (figures 3, 6, 7, S6)": "200 epochs, 2.5e15 multiply-adds a network: about "
    "14 hours of a core that sustains 50 GFLOP/s, for each of at least 5 networks",
    "ResNet50v2 on ImageNet and ImageNet-C (figures 6, 10)": "160 epochs of 1.3 million images, about 1e18 multiply-"
    "adds a network: months on the same core; the data is not redistributable",
    "ResNet-18 with cSG-MCMC (figure S5)": "150 epochs for each of 3 chains; here SmallCNN stands in for it",
}


@dataclass(frozen=True)
class Setting:
    """One reproduction. The defaults are the paper's, but for the data."""

    data: str = "digits"
    prepare: str = "unit"  # of images: unit (0 to 1), none (raw values, as in the notebook) or standardise
    net: str = "small-cnn"
    members: int = 5
    epochs: int = 40
    batch_size: int = 128
    lr: float = 1.6e-3  # halved after every quarter of the epochs
    seed: int = 0
    ood: str | None = None
    examples: int = 2000  # test examples of every analysis
    grid: int = 21  # points a side of the plane
    severities: tuple[int, ...] = (1, 3, 5)
    subspace: int = 10  # networks of a sampler around each run, in the part sizes
    factorial_epochs: int = 10
    factorial_runs: int = 3
    rates: tuple[float, ...] = (4e-4, 3.2e-3)  # of the factorial; the paper's list is not known
    chains: int = 3  # of cSG-MCMC
    cycles: int = 3
    parts: tuple[str, ...] = field(default=PARTS)

    def plan(self, **changes: Any) -> Plan:
        """Return the plan of plain training."""
        names = ("members", "epochs", "batch_size", "lr", "seed")
        usual: dict[str, Any] = {name: getattr(self, name) for name in names} | {"drop_last": True, "posthoc": None}
        return Plan(**{**usual, "schedule": f"halve:{max(1, self.epochs // 4)}", **changes})


PROFILES = {"laptop": Setting()}
