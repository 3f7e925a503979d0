"""Classes by their mean probabilities: pool first, calibrate the pool, and let the members follow it."""

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from murmuration.calibration.losses import better_of, chunk_size, chunks
from murmuration.calibration.records import check_count, check_task, damaged, number, numbers, span
from murmuration.calibration.temperatures import Temperature, fit_temperature
from murmuration.errors import Misuse
from murmuration.predictive import Predictive
from murmuration.predictive_checks import SMALLEST_STORED

Knots = tuple[tuple[float, ...], tuple[float, ...]]  # probabilities, rising, and the frequency at each


def with_mean(pred: Predictive, q: Tensor) -> Predictive:
    """Members (S, N, K) close to the given ones, whose mean probabilities are exactly q (N, K).

    Each class is first scaled to its new share, p_s q / p_mean, and each member's row to sum one: a step of
    proportional fitting (Deming & Stephan 1940), after which the mean is nearly q. What is still missing is moved:
    q + lambda (p_s - p_mean), with lambda in [0, 1] the largest number per input that leaves no probability negative.
    Without the first step, a class that q makes far rarer than it was would force lambda towards zero, and all
    disagreement with it. Members do not change where q is their mean already.
    """
    if q.shape != pred.outputs.shape[1:]:
        raise Misuse(f"mean probabilities of shape {tuple(q.shape)}: expected {tuple(pred.outputs.shape[1:])}")
    return Predictive.concatenate([follow(part, rows) for part, rows in chunks(pred, q)])


def follow(pred: Predictive, q: Tensor) -> Predictive:
    """What `with_mean` says, for as many inputs as are unfolded at once."""
    scaled = pred.probs * (q / pred.mean.clamp_min(SMALLEST_STORED))  # (S, N, K)
    sums = scaled.sum(-1, keepdim=True)
    members = torch.where(sums > 0, scaled / sums, q)  # a member all of whose classes became impossible joins the mean
    mean = pred.average(members)
    values = q + largest_share(members, mean, q)[:, None] * (members - mean)
    return pred.with_logits(values.clamp_min(SMALLEST_STORED).log())


def largest_share(members: Tensor, mean: Tensor, q: Tensor) -> Tensor:
    """The largest lambda (N,) in [0, 1] for which q + lambda (members - mean) has no negative entry."""
    below = mean - members.amin(0)  # (N, K): only the lowest member of a class can become negative
    return torch.where(below > 0, q / below, torch.inf).amin(-1).clamp_max(1)


@dataclass(frozen=True)
class PoolTemperature:
    """The mean probabilities to the power 1 / temperature, normalised; members are tempered alike and follow."""

    temperature: float
    name: ClassVar[str] = "pool_temperature"
    task: ClassVar[str] = "classification"

    @property
    def about(self) -> str:
        return f"the logarithm of the mean probabilities divided by {self.temperature:.3g}"

    def __call__(self, pred: Predictive) -> Predictive:
        check_task(self, pred)
        temper = Temperature(self.temperature)
        return with_mean(temper(pred), temper(pooled(pred)).probs[0])

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "task": self.task, **asdict(self)}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "PoolTemperature":
        return PoolTemperature(number(record.get("temperature"), "temperature", low=1e-9, high=1e9))


def means(pred: Predictive) -> Tensor:
    """The mean probabilities (N, K), a few inputs at a time: what they are made of is not kept."""
    return torch.cat([part.mean for part in pred.batches(chunk_size(pred))])


def pooled(pred: Predictive) -> Predictive:
    """The predictive of one member that says the mean probabilities."""
    return Predictive.from_probs(means(pred))


def fit_pool_temperature(pred: Predictive, y: Tensor) -> PoolTemperature:
    """The temperature of the mean probabilities with the least loss on labels y: one convex problem in 1 / T.

    Pooling before calibrating is what repairs the underconfidence of averages (Rahaman & Thiery 2021).
    """
    found = fit_temperature(pooled(pred), y)
    return better_of(pred, y, PoolTemperature(found.temperature), PoolTemperature(1.0))


@dataclass(frozen=True)
class Isotonic:
    """Each class's mean probability mapped to the frequency observed at it, the results scaled to sum one.

    A class may get exactly 0, which is a sure mistake when it occurs after all; where every class gets 0 the mean
    probabilities stay.
    """

    knots: tuple[Knots, ...]  # (K,)
    name: ClassVar[str] = "isotonic"
    task: ClassVar[str] = "classification"

    @property
    def about(self) -> str:
        sizes = span([len(x) for x, _ in self.knots])
        return f"the mean probability of each class replaced by its observed frequency, read off {sizes} knots"

    def __call__(self, pred: Predictive) -> Predictive:
        check_task(self, pred)
        check_count(self, "classes", fitted=len(self.knots), got=pred.outputs.shape[-1])
        mean = means(pred)
        mapped = torch.stack([interpolate(mean[:, k], knots) for k, knots in enumerate(self.knots)], dim=-1)
        sums = mapped.sum(-1, keepdim=True)
        return with_mean(pred, torch.where(sums > 0, mapped / sums, mean))

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "task": self.task, "knots": [[list(x), list(y)] for x, y in self.knots]}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "Isotonic":
        knots = record.get("knots")
        if not isinstance(knots, list) or not knots:
            raise damaged("knots", knots, "a list with two lists for each class")
        return Isotonic(tuple(read_knots(pair, f"knots[{k}]") for k, pair in enumerate(knots)))


def read_knots(pair: Any, what: str) -> Knots:
    """The knots of one class from a record: as many frequencies as probabilities, both rising."""
    if not isinstance(pair, list) or len(pair) != 2:
        raise damaged(what, pair, "two lists: probabilities and frequencies")
    x, y = (numbers(values, f"{what}[{i}]", low=0.0, high=1.0) for i, values in enumerate(pair))
    rising = all(a < b for a, b in pairwise(x)) and list(y) == sorted(y)
    if len(x) != len(y) or not rising:
        raise damaged(what, pair, "rising probabilities and as many frequencies that never fall")
    return x, y


def interpolate(values: Tensor, knots: Knots) -> Tensor:
    """The frequencies (N,) at values (N,): linear between knots, constant beyond the first and the last."""
    x, y = (values.new_tensor(part) for part in knots)
    if len(x) == 1:
        return y.expand_as(values)
    right = torch.searchsorted(x, values.contiguous()).clamp(1, len(x) - 1)
    share = (values - x[right - 1]) / (x[right] - x[right - 1])
    return torch.lerp(y[right - 1], y[right], share.clamp(0, 1))


def fit_isotonic(pred: Predictive, y: Tensor) -> Isotonic:
    """The non-decreasing map of each class's mean probability with the least squared error, one against the rest.

    Isotonic regression by pooling adjacent violators (Zadrozny & Elkan 2002). It bends to any shape and so overfits
    below about a thousand examples of a class. Before the maps are scaled to sum one, no class's Brier score on the
    fitting examples is worse than before.
    """
    from sklearn.isotonic import IsotonicRegression

    mean, hits = means(pred).cpu().numpy(), y.cpu().numpy()
    regression = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    knots = []
    for k in range(mean.shape[1]):
        regression.fit(mean[:, k], (hits == k).astype(float))
        knots.append((tuple(regression.X_thresholds_.tolist()), tuple(regression.y_thresholds_.tolist())))
    return Isotonic(tuple(knots))
