"""How a coupling is written down: a space, and after a colon what differs from its usual settings.

| written | what it means |
|---|---|
| `none` | members know nothing of each other |
| `weights` | repulsion of weights (weight-RDE, D'Angelo and Fortuin 2021) |
| `outputs` | repulsion of outputs on the batch (function-RDE) |
| `features` | repulsion of penultimate features, projected on what the loss feels (feature-RDE, Yashima et al. 2022) |
| `input-gradients` | repulsion of normalised input gradients (FoRDE, Trinh et al. 2024) |
| `input-gradients:lengthscales=pca,weight=1/N,every=4` | the same with some settings changed |

Settings: `estimator` (kde, sge, ssge, blob, svgd), `bandwidth`, `weight` (1/B, 1/N or a number), `schedule` (of the
weight, as for learning rates), `drive` (annealing of the loss: constant, linear:T, hyper:T, cyclic:T,5 with T in
steps), `every` (steps), `share` (of the batch), `of` (what is shown), `lengthscales`, `alpha`, `form`, `rank`,
`centred`, `prior`, `directions`, `projection`.
"""

import math
from dataclasses import dataclass

from murmuration.coupling.bandwidths import check_bandwidth
from murmuration.coupling.forces import FORCES
from murmuration.dynamics.schedules import Moment, learning_rate_factor
from murmuration.errors import Misuse, unknown
from murmuration.written import number, read

ALPHAS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.0)  # the sweep of the published experiments
AUTO = "auto"
SHOWS = {  # space -> what can be shown in it, the usual first
    "weights": ("weights",),
    "outputs": ("probs", "logits"),
    "features": ("features",),
    "input-gradients": ("logit", "log-prob"),
}
GRADIENTS = ("input-gradients",)
BELONGS = {  # settings that mean something in some spaces only
    "share": ("outputs", "features", "input-gradients"),
    "directions": ("features",),
    "projection": ("features",),
    **dict.fromkeys(("lengthscales", "alpha", "form", "rank", "centred"), GRADIENTS),
}
CHOICES: dict[str, tuple[str, ...]] = {
    "space": tuple(SHOWS),
    "lengthscales": ("identity", "pca", "tuned"),
    "form": ("paper", "poster"),
    "directions": ("largest", "smallest"),
    "centred": ("no", "yes"),
}
DRIVES = ("constant", "linear", "hyper", "cyclic")


@dataclass(frozen=True)
class Repulsion:
    """A space, and how members are pushed apart in it."""

    space: str
    estimator: str = "kde"
    bandwidth: str = "all"
    weight: str = "1/N"  # of the repulsion beside the mean loss of a batch: 1/B, 1/N or a number
    schedule: str = "constant"  # of that weight
    drive: str = "constant"  # annealing of the loss
    every: int = 1  # steps; the weight is multiplied by it
    share: float = 1.0  # of the batch, for spaces that look at examples
    of: str = ""  # what is shown; "" is the space's usual
    lengthscales: str = "identity"
    alpha: str = AUTO  # of tuned lengthscales; auto: chosen on corrupted validation examples
    form: str = "paper"  # of tuned lengthscales
    rank: int = 128  # directions of the input covariance that are told apart
    centred: str = "no"  # whether the mean input is taken off before its covariance
    prior: str = "none"  # on outputs or features: gaussian:S, cauchy:S, weights:S
    directions: str = "largest"  # of the feature projection
    projection: int = 5  # directions of the feature projection

    def __post_init__(self) -> None:
        for field, known in CHOICES.items():
            if getattr(self, field) not in known:
                raise unknown(field, getattr(self, field), known)
        if self.shown not in SHOWS[self.space]:
            raise unknown(f"what {self.space} can show", self.of, SHOWS[self.space])
        if self.estimator not in FORCES:
            raise unknown("estimator", self.estimator, FORCES)
        if self.estimator == "svgd" and self.space != "weights":
            raise Misuse(f"estimator=svgd in the space {self.space}: it mixes weights' gradients; write weights")
        for field, spaces in BELONGS.items():
            if self.space not in spaces and getattr(self, field) != getattr(Repulsion, field):
                raise Misuse(f"{field}={getattr(self, field)} in the space {self.space}: it is for {', '.join(spaces)}")
        if self.alpha != AUTO and self.lengthscales != "tuned":
            raise Misuse(f"alpha={self.alpha} with lengthscales={self.lengthscales}: write lengthscales=tuned too")
        check_bandwidth(self.bandwidth)
        self._check_numbers()

    def _check_numbers(self) -> None:
        if self.every < 1 or self.rank < 1 or self.projection < 1:
            raise Misuse(f"every={self.every}, rank={self.rank}, projection={self.projection}: need at least 1 each")
        if not 0 < self.share <= 1:
            raise Misuse(f"share={self.share}: need a share of the batch above 0, at most 1")
        if self.alpha != AUTO and not 0 <= number(self.alpha, "alpha") <= 1:
            raise Misuse(f"alpha={self.alpha}: need a number from 0 to 1, or auto")
        self.weight_of(batch=1, examples=1)
        self.prior_of()
        learning_rate_factor(self.schedule, Moment(0, 1, 1))
        self.drive_at(0)

    @property
    def shown(self) -> str:
        return self.of or SHOWS[self.space][0]

    @property
    def same_examples(self) -> bool:
        """Whether members can be compared only on the same examples."""
        return self.space != "weights"

    def weight_of(self, *, batch: int, examples: int) -> float:
        """The weight of the repulsion beside the mean loss of a batch."""
        if self.weight in ("1/B", "1/N"):
            return 1 / (batch if self.weight == "1/B" else examples)
        value = number(self.weight, "weight")
        if not (math.isfinite(value) and value >= 0):
            raise Misuse(f"weight={self.weight}: need 1/B, 1/N or a number that is not negative")
        return value

    def prior_of(self) -> tuple[str, float]:
        """The kind of the prior and its scale."""
        kind, _, scale = self.prior.partition(":")
        kinds = ("none", "gaussian", "cauchy", "weights")
        if kind not in kinds:
            raise unknown("prior", kind, kinds)
        if kind != "none" and self.space not in ("outputs", "features"):
            raise Misuse(f"prior={self.prior} in the space {self.space}: outputs and features can have one")
        if kind == "weights" and self.space != "outputs":
            raise Misuse(f"prior={self.prior} in the space {self.space}: it is one of functions; write gaussian:S")
        if kind == "none":
            return kind, 0.0
        value = number(scale, "the scale of prior")
        if not (math.isfinite(value) and value > 0):
            raise Misuse(f"prior={self.prior}: need a positive scale, such as {kind}:0.005")
        return kind, value

    def drive_at(self, step: int) -> float:
        """The factor of the loss at a step: annealing multiplies the driving force alone.

        >>> [round(Repulsion("weights", drive="linear:10").drive_at(t), 2) for t in (0, 5, 10, 99)]
        [0.1, 0.6, 1.0, 1.0]
        """
        kind, length, cycles = drive_of(self.drive)
        taken = step + 1
        if kind == "constant" or taken >= length:
            return 1.0
        if kind == "linear":
            return taken / length
        if kind == "hyper":
            return math.tanh((1.3 * taken / length) ** 10)
        within = taken * cycles % length or length  # of a cycle, in parts of the length
        return (within / length) ** 10


def drive_of(text: str) -> tuple[str, float, float]:
    """The kind of an annealing, its length in steps and its number of cycles.

    >>> drive_of("cyclic:100")
    ('cyclic', 100.0, 5.0)
    """
    kind, _, rest = text.partition(":")
    if kind not in DRIVES:
        raise unknown("drive", kind, DRIVES)
    numbers = [number(part, "the steps of drive") for part in rest.split(",")] if kind != "constant" or rest else []
    most = {"constant": 0, "cyclic": 2}.get(kind, 1)
    if len(numbers) > most or not all(math.isfinite(value) and value > 0 for value in numbers):
        raise Misuse(f"drive={text}: write constant, linear:T, hyper:T or cyclic:T,5, T a positive number of steps")
    return kind, numbers[0] if numbers else 1.0, numbers[1] if len(numbers) > 1 else 5.0


COUPLINGS: dict[str, Repulsion | None] = {
    "none": None,
    "weights": Repulsion("weights", bandwidth="rde"),
    "outputs": Repulsion("outputs", bandwidth="rde"),
    "features": Repulsion("features", bandwidth="code", weight="1/B", prior="cauchy:5e-3"),
    "input-gradients": Repulsion("input-gradients", bandwidth="code", weight="1/B"),
}


def coupling_named(text: str) -> Repulsion | None:
    """The coupling that a text stands for.

    >>> coupling_named("input-gradients:lengthscales=pca,every=4").every
    4
    """
    return read(text, "coupling", COUPLINGS, fixed=("space",))
