"""Settings of the reproduction: methods, a miniature for a laptop, and the published plan."""

from dataclasses import dataclass
from typing import Any

from murmuration.core.coupling.input_gradients import ALPHAS
from murmuration.core.recipe import Recipe, make_recipe
from murmuration.system.errors import Misuse, unknown
from murmuration.training.plan import Plan

PARTS = ("toys", "sweep", "tables")
REFERENCE = "deep-ensemble"
TUNED = "forde-tuned"
ALPHA_OF = {"forde-identity": 0.0, "forde-pca": 1.0}
METHODS = (REFERENCE, "weight-rde", "function-rde", "feature-rde", "forde-pca", "forde-identity", TUNED)
GROUPS = {"low": (1, 2, 3), "high": (4, 5)}  # severities of the lengthscale figure, by the name of the group
CORRUPTIONS = (  # of the miniature: the first two of each of the four published groups
    *("gaussian_noise", "shot_noise", "defocus_blur", "glass_blur"),
    *("snow", "frost", "contrast", "elastic_transform"),
)
FEATURE_PRIORS = {10: "cauchy:0.001"}  # published, by number of classes; 0.005, the default, for the others


@dataclass(frozen=True)
class Setting:
    """One reproduction. The defaults are those of the miniature: a small network on a few images."""

    data: str = "digits"
    net: str = "mlp"
    members: int = 6
    epochs: int = 30
    batch_size: int = 128
    lr: float = 1e-3
    optimizer: str = "adam"
    schedule: str | None = None  # cosine
    weight_decay: float | None = None
    drop_last: bool = False
    augment: tuple[str, ...] = ()
    train: int | None = 2000  # training images, the first ones; None: all
    val: int | None = 500  # validation images, which choose the alpha of forde-tuned
    val_share: float | None = None  # of the training images that validate; None: that of the data set
    examples: int | None = 1000  # test images
    corruptions: tuple[str, ...] = CORRUPTIONS  # (): all that fit the images
    severities: tuple[int, ...] = (3, 5)
    cifar_c: str | None = None  # folder of the official corrupted images, which take the place of generated ones
    weight: float | None = 0.1  # of FoRDE's repulsion beside the mean loss; None: the published 1/B
    form: str = "poster"  # of the interpolation by alpha
    published_priors: bool = False  # on outputs and features of the baselines
    toy_members: int = 16
    toy_epochs: int | None = None  # None: those of each toy
    device: str = "cpu"
    seeds: tuple[int, ...] = (0, 1, 2, 3)
    methods: tuple[str, ...] = METHODS
    parts: tuple[str, ...] = PARTS

    def __post_init__(self) -> None:
        for name in ("seeds", "methods", "parts"):
            values: tuple[Any, ...] = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise Misuse(f"{name}={','.join(map(str, values))}: expected at least one, and each once")
        if min(self.seeds) < 0:
            raise Misuse(f"seeds={','.join(map(str, self.seeds))}: expected none below 0")
        for method in self.methods:
            if method not in METHODS:
                raise unknown("method", method, METHODS)

    def plan(self, seed: int) -> Plan:
        """Return the plan of one ensemble: all members see the same batches, as published."""
        names = ("members", "epochs", "batch_size", "lr", "optimizer", "schedule", "weight_decay", "drop_last")
        own: dict[str, Any] = {name: getattr(self, name) for name in (*names, "augment", "device")}
        return Plan(seed=seed, batch_order="same", posthoc=None, **own)

    def recipe(self, arm: str, classes: int) -> Recipe:
        """Return the recipe of an arm for data of this many classes.

        >>> Setting().recipe("forde-0.4", 10).text("coupling")
        'input-gradients:lengthscales=tuned,alpha=0.4,form=poster,weight=0.1'
        """
        if arm.startswith("forde-"):
            alpha = float(arm.removeprefix("forde-"))
            tuned = {"lengthscales": "tuned", "alpha": f"{alpha:g}", "form": self.form}
            answers = {0.0: {"lengthscales": "identity"}, 1.0: {"lengthscales": "pca"}}.get(alpha, tuned)
            answers |= {} if self.weight is None else {"weight": f"{self.weight:g}"}
            text = ",".join(f"{name}={value}" for name, value in answers.items())
            return make_recipe("forde", coupling=f"input-gradients:{text}")
        if self.published_priors and arm == "function-rde":
            return make_recipe(arm, coupling="outputs:prior=cauchy:1e-06")
        if self.published_priors and arm == "feature-rde" and classes in FEATURE_PRIORS:
            return make_recipe(arm, coupling=f"features:prior={FEATURE_PRIORS[classes]}")
        return make_recipe(arm)

    def arms(self) -> list[str]:
        """Return what is trained on images, each once: methods, with FoRDE by its alphas.

        >>> Setting(methods=("deep-ensemble", "forde-pca"), parts=("tables",)).arms()
        ['deep-ensemble', 'forde-1']
        """
        swept = [arm_of(alpha) for alpha in ALPHAS]
        arms = []
        if "sweep" in self.parts:
            arms += [REFERENCE, *swept]
        if "tables" in self.parts:
            for method in self.methods:
                arms += swept if method == TUNED else [arm_of(ALPHA_OF[method]) if method in ALPHA_OF else method]
        return list(dict.fromkeys(arms))


def arm_of(alpha: float) -> str:
    """Return the arm of FoRDE at one alpha.

    >>> arm_of(1.0), arm_of(0.4)
    ('forde-1', 'forde-0.4')
    """
    return f"forde-{alpha:g}"


PROFILES = {
    "laptop": Setting(),
    "paper": Setting(
        data="cifar-10-batches-bin",
        net="resnet18",
        members=10,
        epochs=300,
        lr=0.1,
        optimizer="nesterov",
        schedule="hold-linear:0.01",
        weight_decay=5e-4,
        drop_last=True,
        augment=("pad-crop", "flip"),
        train=None,
        val=None,
        val_share=0.02,  # 1,000 images, which the published runs trained on
        examples=None,
        corruptions=(),
        severities=(1, 2, 3, 4, 5),
        weight=None,
        form="paper",
        published_priors=True,
        seeds=(0, 1, 2, 3, 4),
    ),
}
