"""From numbers in a file to `Predictive`s, some rows at a time: probabilities, logits, moments or draws of y."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from murmuration.audit.checks import Rows, bad_logit, bad_moments, bad_probability, bad_sample
from murmuration.errors import Misuse
from murmuration.likelihoods import Categorical
from murmuration.predictive import Predictive

SILVERMAN = 1.06  # the width of a Gaussian kernel is this times std times S^(-1/5) (Silverman 1986)

MEANS = ("mean", "prediction", "predicted")  # names in files; the first that is there is taken
STDS, VARIANCES = ("std", "total_std", "sigma"), ("var", "total_var", "variance")
WITHOUT_SPREAD = "without one write the standard deviation of the errors on other data"


@dataclass(frozen=True)
class Block:
    """Numbers (S, N, K) of a file: their shape, how some rows of them are read, and how a place in them is called."""

    name: str  # "probs", "columns prob_a, prob_b"
    shape: tuple[int, int, int]  # (S, N, K); K is 1 for a probability of the second of two classes
    read: Callable[[Rows], np.ndarray]  # rows -> (S, n, K) float64, a copy
    where: Callable[[int, int, int | None], str]  # (member, row, column or None for all) -> "probs[2, 17]"
    where_logits_go: str  # what to write if these are logits


@dataclass(frozen=True)
class Outputs:
    """What a file predicts for N rows, before it is known what was true."""

    form: str  # probabilities, logits, moments or samples
    shape: tuple[int, int, int]  # (S, N, K): members, rows, and classes or targets
    take: Callable[[Rows], Predictive]
    names: tuple[str, ...] | None = None  # of the classes, where the file names them

    @property
    def task(self) -> str:
        return "classification" if self.form in ("probabilities", "logits") else "regression"


def probabilities(block: Block, names: tuple[str, ...] | None) -> Outputs:
    """The outputs of class probabilities; one probability a row is that of the second of two classes."""

    def take(rows: Rows) -> Predictive:
        values = block.read(rows)
        full = np.concatenate([1 - values, values], axis=-1) if values.shape[-1] == 1 else values
        try:
            return Predictive.from_probs(full)
        except Misuse:  # it counts from the first of these rows, not of the file
            raise bad_probability(values, block.where, rows, block.where_logits_go) from None

    return Outputs("probabilities", full_shape(block), take, names)


def logits(block: Block, names: tuple[str, ...] | None) -> Outputs:
    """The outputs of logits, whose softmax are the probabilities; one logit a row is that of the second of two."""

    def take(rows: Rows) -> Predictive:
        values = block.read(rows)
        if not np.isfinite(values).all():
            raise bad_logit(values, block.where, rows)
        full = np.concatenate([np.zeros_like(values), values], axis=-1) if values.shape[-1] == 1 else values
        return Predictive(torch.from_numpy(full), Categorical(full.shape[-1]))

    return Outputs("logits", full_shape(block), take, names)


def full_shape(block: Block) -> tuple[int, int, int]:
    """The shape (S, N, K) with two classes where there is one number a row."""
    members, rows, width = block.shape
    return members, rows, max(width, 2)


def moments(mean: Block, spread: Block | float, *, squared: bool) -> Outputs:
    """The outputs of Gaussian means with standard deviations, or variances (`squared`), or one for all rows."""
    if isinstance(spread, Block) and spread.shape != mean.shape:
        expected = "expected as many of each, or one number for all"
        raise Misuse(f"{mean.name} is (S, N, K) = {mean.shape} but {spread.name} {spread.shape}: {expected}")

    def take(rows: Rows) -> Predictive:
        means = mean.read(rows)
        given = spread.read(rows) if isinstance(spread, Block) else np.full_like(means, spread)
        with np.errstate(invalid="ignore"):  # a negative variance becomes NaN and is refused
            stds = np.sqrt(given) if squared else given
        try:
            return Predictive.from_moments(means, stds)
        except Misuse:
            place = spread.where if isinstance(spread, Block) else None
            raise bad_moments((means, given), (mean.where, place), rows, squared=squared) from None

    return Outputs("moments", mean.shape, take)


def samples(block: Block) -> Outputs:
    """The outputs of S draws of y a row, as a mixture of S Gaussians of one width."""
    if block.shape[0] < 2:
        raise Misuse(f"{block.name} has one draw of y a row: expected several, or mean and std")

    def take(rows: Rows) -> Predictive:
        values = block.read(rows)
        if not np.isfinite(values).all() or (values.max(0) == values.min(0)).any():
            raise bad_sample(values, block.where, rows)
        return Predictive.from_moments(*kernels(values))

    return Outputs("samples", block.shape, take)


def kernels(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres and widths (S, N, K) of Gaussians whose mixture has the mean and the variance of the draws (S, N, K).

    The width is h = 1.06 std S^(-1/5), Silverman's rule. A mixture of kernels around the draws themselves would
    have the variance var + h^2, so the centres are drawn towards their mean by the factor a = sqrt(1 - h^2 / var).
    Variances are divided by S, as those of members are. The rule is meant for one smooth peak: it widens the
    peaks of a distribution that has several.

    >>> centres, widths = kernels(np.array([[[-1.0]], [[1.0]]]))
    >>> bool(np.isclose(centres.var() + widths[0, 0, 0] ** 2, 1))
    True
    """
    mean, std = draws.mean(0), draws.std(0)
    share = SILVERMAN**2 * len(draws) ** -0.4  # h^2 / var, below one from two draws on
    return mean + np.sqrt(1 - share) * (draws - mean), np.broadcast_to(np.sqrt(share) * std, draws.shape).copy()
