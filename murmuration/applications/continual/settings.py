"""Settings of streams and methods, declared once: the options of `murmur continual` are made from them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from murmuration.system.errors import Misuse
from murmuration.system.settings import AtLeast, Doc, OneOf, check_settings, documented


@dataclass(frozen=True)
class Expected:
    """A check: `accepts` a value, or it is refused with what was `expected`."""

    expected: str
    accepts: Callable[[Any], bool]

    def check(self, name: str, value: Any) -> None:
        if not self.accepts(value):
            text = f"'{value}'" if isinstance(value, str) else f"{value:g}"
            raise Misuse(f"{name}={text}: expected {self.expected}")


POSITIVE = Expected("a positive number", lambda value: 0 < value < math.inf)
NOT_NEGATIVE = Expected("a number that is not negative", lambda value: 0 <= value < math.inf)
SHARE = Expected("a number from 0 to 1", lambda value: 0 <= value <= 1)


@documented
@dataclass(frozen=True)
class BatchPlan:
    """How a stream is cut into batches."""

    batch_size: Annotated[int, Doc("Examples per step."), AtLeast(2)] = 64
    epochs: Annotated[int, Doc("Passes over the examples of each task."), AtLeast(1)] = 10
    seed: Annotated[int, Doc("Random seed."), AtLeast(0)] = 0

    def __post_init__(self) -> None:
        check_settings(self)


@documented
@dataclass(frozen=True)
class MethodSettings:
    """Settings of all methods; each takes those that it has."""

    lr: Annotated[
        float | None, Doc("Learning rate (Adam); 1e-4 for flows of vectors whose means are data, else 1e-3.")
    ] = None
    told: Annotated[bool, Doc("Tell the task of every batch.")] = False
    flow: Annotated[str, Doc("Flow of HCL: vector, or image for pixels."), OneOf(("vector", "image"))] = "vector"
    couplings: Annotated[int, Doc("Couplings of a flow of vectors; of images half at each scale."), AtLeast(1)] = 6
    hidden: Annotated[int, Doc("Width of the coupling nets."), AtLeast(1)] = 256
    means: Annotated[str, Doc("Means of classes: data (starts as LDA) or random (as published).")] = "data"
    strength: Annotated[float, Doc("Strength of the replay.")] = 10.0
    shrinkage: Annotated[float, Doc("Shrinkage of covariances, of lda too.")] = 0.1
    settle: Annotated[
        int | None,
        Doc(
            "Batches before a flow is trained on a task, and between renewals of means; 20, or a quarter of the "
            "shortest task if nobody tells the tasks, if left out."
        ),
    ] = None
    threshold: Annotated[float, Doc("Standard deviations that make a change.")] = 5.0
    window: Annotated[int, Doc("Batches whose statistics are remembered.")] = 100
    warmup: Annotated[
        int | None, Doc("Batches of a new task that are not tested; 100, or half of the shortest task, if left out.")
    ] = None
    rule: Annotated[str, Doc("Typicality of a batch: deviation or dose.")] = "deviation"
    net: Annotated[str, Doc("Network of the baselines; see `murmur list nets`.")] = "mlp"
    members: Annotated[int, Doc("Members of hcl-ensemble, hcl-bayes, ensemble-replay.")] = 5
    capacity: Annotated[int, Doc("Examples kept for replay.")] = 500
    penalty: Annotated[float, Doc("Strength of elastic weight consolidation.")] = 1000.0
    seed: Annotated[int, Doc("Random seed.")] = 0

    def __post_init__(self) -> None:
        check_settings(self)
