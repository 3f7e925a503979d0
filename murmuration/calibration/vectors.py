"""Classes by a factor and a shift for each class's logit, shared by all members."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from murmuration.calibration.losses import better_of, chunks, label_log_probs, logits_of
from murmuration.calibration.minimising import least_near
from murmuration.calibration.records import check_count, check_task, damaged, numbers, span
from murmuration.predictive import Predictive

RIDGE = 1.0  # a standard normal prior around (1, 0), counted once against N examples


@dataclass(frozen=True)
class Vector:
    """Each class's logit z_k replaced by factor_k z_k + shift_k (Guo et al. 2017). Predicted classes may change."""

    factors: tuple[float, ...]  # (K,)
    shifts: tuple[float, ...]  # (K,)
    name: ClassVar[str] = "vector"
    task: ClassVar[str] = "classification"

    @property
    def about(self) -> str:
        words = f"multiplied by a factor of its own ({span(self.factors)}) and shifted ({span(self.shifts)})"
        return f"the logit of each class {words}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_task(self, pred)
        check_count(self, "classes", fitted=len(self.factors), got=pred.outputs.shape[-1])
        logits = logits_of(pred)
        return pred.with_logits(logits * logits.new_tensor(self.factors) + logits.new_tensor(self.shifts))

    def to_json(self) -> dict[str, Any]:
        fields = {"factors": list(self.factors), "shifts": list(self.shifts)}
        return {"name": self.name, "task": self.task, **fields}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "Vector":
        factors, shifts = (numbers(record.get(field), field, low=-1e9, high=1e9) for field in ("factors", "shifts"))
        if len(factors) != len(shifts):
            raise damaged("shifts", record["shifts"], f"{len(factors)} numbers, as many as factors")
        return Vector(factors, shifts)


def fit_vector(pred: Predictive, y: Tensor) -> Vector:
    """The factor and shift of each class with the least loss of the mixture on labels y, by L-BFGS from (1, 0).

    To the mean loss is added |(w, b) - (1, 0)|^2 / (2 N), as much as a standard normal prior on each number: without
    it the shift of a class that never occurs would go to minus infinity, with it the class keeps a share of a few
    divided by N; what the examples do determine moves by less than its standard error.
    """
    start = torch.cat([torch.ones(pred.outputs.shape[-1]), torch.zeros(pred.outputs.shape[-1])]).double()
    start = start.to(pred.outputs.device)
    found = least_near(lambda point: vector_loss(pred, y, point, start), start)
    return better_of(pred, y, as_vector(found), as_vector(start))


def as_vector(point: Tensor) -> Vector:
    """The calibrator of K factors, then K shifts."""
    factors, shifts = point.chunk(2)
    return Vector(tuple(factors.tolist()), tuple(shifts.tolist()))


def vector_loss(pred: Predictive, y: Tensor, point: Tensor, centre: Tensor) -> tuple[float, Tensor]:
    """The mean loss of the mixture with its ridge, and the slope (2 K,), at K factors and K shifts.

    The slope of -log sum_s w_s p_s(y) by member s's logits is r_s (p_s - onehot(y)), where r_s, the member's
    responsibility, is its share of that sum.
    """
    factors, shifts = point.chunk(2)
    away = point - centre
    value, slope = 0.5 * RIDGE * away.square().sum().item(), RIDGE * away
    for part, labels in chunks(pred, y):
        given = logits_of(part).double()  # (S, n, K)
        logits = given * factors + shifts
        weighted = part.member_weights.log()[:, None] + label_log_probs(logits, labels)  # (S, n)
        value -= weighted.logsumexp(0).sum().item()
        errors = logits.softmax(-1)
        errors.scatter_add_(-1, labels.expand(len(given), -1)[..., None], -torch.ones_like(weighted)[..., None])
        errors *= weighted.softmax(0)[..., None]
        slope = slope + torch.cat([(errors * given).sum((0, 1)), errors.sum((0, 1))])
    return value / len(y), slope / len(y)
