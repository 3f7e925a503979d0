"""Classes by temperature: every logit divided by one number, or by one number for each member."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from murmuration.calibration.losses import better_of, logits_of, mixture_loss
from murmuration.calibration.minimising import least_on_line
from murmuration.calibration.records import check_count, check_task, number, numbers, span
from murmuration.predictive import Predictive

LOWEST, HIGHEST = 0.02, 50.0  # where the temperature is sought: without mistakes among the examples it would go to 0


@dataclass(frozen=True)
class Temperature:
    """Every member's logits divided by the same temperature: above 1 softens, below 1 sharpens (Guo et al. 2017).

    >>> round(Temperature(2.0)(Predictive.from_probs([[0.8, 0.2]])).confidence.item(), 6)  # odds of 4 become 2
    0.666667
    """

    temperature: float
    name: ClassVar[str] = "temperature"
    task: ClassVar[str] = "classification"

    @property
    def about(self) -> str:
        return f"every logit divided by {self.temperature:.3g}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_task(self, pred)
        return pred.with_logits(logits_of(pred) / self.temperature)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "task": self.task, **asdict(self)}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "Temperature":
        return Temperature(number(record.get("temperature"), "temperature", low=1e-9, high=1e9))


@dataclass(frozen=True)
class MemberTemperature:
    """Each member's logits divided by a temperature of its own."""

    temperatures: tuple[float, ...]  # (S,)
    name: ClassVar[str] = "member_temperature"
    task: ClassVar[str] = "classification"

    @property
    def about(self) -> str:
        return f"the logits of each member divided by a temperature of its own, {span(self.temperatures)}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_task(self, pred)
        check_count(self, "members", fitted=len(self.temperatures), got=len(pred.outputs))
        logits = logits_of(pred)
        return pred.with_logits(logits / logits.new_tensor(self.temperatures)[:, None, None])

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "task": self.task, "temperatures": list(self.temperatures)}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "MemberTemperature":
        return MemberTemperature(numbers(record.get("temperatures"), "temperatures", low=1e-9, high=1e9))


def fit_temperature(pred: Predictive, y: Tensor) -> Temperature:
    """The temperature for all members whose mixture, the mean of their probabilities, has the least loss on labels y.

    With one member the loss is convex in 1 / T (Guo et al. 2017); with several it need not be, hence the scan before
    the search. The temperature stays in [0.02, 50].
    """

    def loss(log_temperature: float) -> float:
        temperature = math.exp(log_temperature)
        return mixture_loss(pred, y, lambda logits: logits / temperature)

    found = least_on_line(loss, low=math.log(LOWEST), high=math.log(HIGHEST))
    return better_of(pred, y, Temperature(math.exp(found)), Temperature(1.0))


def fit_member_temperature(pred: Predictive, y: Tensor) -> MemberTemperature:
    """The temperature of each member that minimises the loss of this member alone on labels y.

    Averaging makes less confident: members that are calibrated one by one can leave their mixture underconfident, the
    more so the more they disagree (Rahaman & Thiery 2021; Wu & Gales 2021). `temperature` fits the mixture itself.
    """
    alone = (replace(pred, outputs=outputs[None], weights=None) for outputs in pred.outputs)
    return MemberTemperature(tuple(fit_temperature(member, y).temperature for member in alone))
