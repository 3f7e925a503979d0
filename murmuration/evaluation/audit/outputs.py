"""Blocks of numbers (S, N, K) in a file as `Predictive`s of some rows: probabilities, logits, moments or samples."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from murmuration.data.npz import Rows
from murmuration.data.targets import LARGEST
from murmuration.likelihoods import Categorical
from murmuration.prediction.checks import SUM_TOLERANCE
from murmuration.prediction.predictive import Predictive
from murmuration.system.errors import Misuse

EntryName = Callable[[int, int, int | None], str]  # (member, row, column or None for all) -> "probs[2, 17]"
MIN_STD = float(np.finfo(np.float32).tiny)  # of standard deviations: errors in units of smaller ones overflow
SILVERMAN = 1.06  # the width of a Gaussian kernel is this times std times S^(-1/5) (Silverman 1986)

MEANS = ("mean", "prediction", "predicted")  # names in files; the first that is there is taken
STDS, VARIANCES = ("std", "total_std", "sigma"), ("var", "total_var", "variance")
WITHOUT_NOISE = "without one write the standard deviation of the errors on other data"


@dataclass(frozen=True)
class Block:
    """Numbers (S, N, K) of a file: their shape, a reader of some rows, and the name of an entry for messages."""

    name: str  # "probs", "columns prob_a, prob_b"
    shape: tuple[int, int, int]  # (S, N, K); K is 1 for a probability of the second of two classes
    read: Callable[[Rows], np.ndarray]  # rows -> (S, n, K) float64, a copy
    entry_name: EntryName
    logits_hint: str  # what to write if these are logits

    def entry(self, rows: Rows, spot: tuple[int, int, int]) -> str:
        """Return the name in the file of the entry (member, place among the rows read, column)."""
        member, place, column = spot
        return self.entry_name(member, row_in_file(rows, place), column)

    def check_finite(self, values: np.ndarray, rows: Rows, hint: str = "") -> None:
        """Refuse the first of the numbers read (S, n, K) that is not finite or too large; the hint is for -inf.

        Squares of larger numbers than single precision holds would not be finite.
        """
        good = np.abs(values) <= LARGEST
        if not good.all():
            spot = first(~good)
            entry = f"{self.entry(rows, spot)} is {values[spot]:.6g}"
            size = f" up to {LARGEST:.2g}" if np.isfinite(values[spot]) else ""
            raise Misuse(f"{entry}: expected a finite number{size}{hint if values[spot] == -np.inf else ''}")


@dataclass(frozen=True)
class Outputs:
    """The predictions of a file for N rows, not yet joined with their targets."""

    form: str  # probabilities, logits, moments or samples
    shape: tuple[int, int, int]  # (S, N, K): members, rows, and classes or targets
    take: Callable[[Rows], Predictive]
    names: tuple[str, ...] | None = None  # of the classes, if the file names them

    @property
    def task(self) -> str:
        return "classification" if self.form in ("probabilities", "logits") else "regression"


def probabilities(block: Block, names: tuple[str, ...] | None) -> Outputs:
    """Class probabilities; a single one per row is that of the second of two classes."""

    def take(rows: Rows) -> Predictive:
        values = block.read(rows)
        full = np.concatenate([1 - values, values], axis=-1) if values.shape[-1] == 1 else values
        try:
            return Predictive.from_probs(full)
        except Misuse:  # its message counts from the first of these rows, not of the file
            raise bad_probability(values, block, rows) from None

    return Outputs("probabilities", full_shape(block), take, names)


def logits(block: Block, names: tuple[str, ...] | None) -> Outputs:
    """Logits; a single one per row is that of the second of two classes, against 0."""

    def take(rows: Rows) -> Predictive:
        values = block.read(rows)
        block.check_finite(values, rows, "; write the logarithm of zero as -700")
        full = np.concatenate([np.zeros_like(values), values], axis=-1) if values.shape[-1] == 1 else values
        return Predictive(torch.from_numpy(full), Categorical(full.shape[-1]))

    return Outputs("logits", full_shape(block), take, names)


def full_shape(block: Block) -> tuple[int, int, int]:
    """Return the shape (S, N, K), with K = 2 where there is one number per row."""
    members, rows, width = block.shape
    return members, rows, max(width, 2)


def moments(mean: Block, noise: Block | float, *, squared: bool) -> Outputs:
    """Gaussian means with standard deviations, or variances (`squared`): per row, or one number for all."""
    if isinstance(noise, Block) and noise.shape != mean.shape:
        expected = "expected as many of each, or one number for all"
        raise Misuse(f"{mean.name} is (S, N, K) = {mean.shape} but {noise.name} {noise.shape}: {expected}")

    def take(rows: Rows) -> Predictive:
        means = mean.read(rows)
        noises = noise.read(rows) if isinstance(noise, Block) else np.full_like(means, noise)
        with np.errstate(invalid="ignore"):  # a negative variance becomes NaN and is refused
            stds = np.sqrt(noises) if squared else noises
            usable = (stds >= MIN_STD) & (stds <= LARGEST)
        mean.check_finite(means, rows)
        if usable.all():
            return Predictive.from_moments(means, stds)
        spot = first(~usable)
        all_rows = "the standard deviation or variance of all rows"
        entry = f"{noise.entry(rows, spot) if isinstance(noise, Block) else all_rows} is {noises[spot]:.6g}"
        expected = f"expected a positive {'variance' if squared else 'standard deviation'} of the prediction's error"
        hint = "without one take that of the errors on other data"
        size = f" from {MIN_STD:.2g} to {LARGEST:.2g}" if stds[spot] > 0 and np.isfinite(stds[spot]) else ""
        raise Misuse(f"{entry}: {expected}{size}; {hint}")

    return Outputs("moments", mean.shape, take)


def samples(block: Block) -> Outputs:
    """S samples of y per row, as a mixture of S Gaussians of one width (kernel density estimate)."""
    if block.shape[0] < 2:
        raise Misuse(f"{block.name} has one draw of y a row: expected several, or mean and std")

    def take(rows: Rows) -> Predictive:
        values = block.read(rows)
        block.check_finite(values, rows)
        equal = values.max(0) == values.min(0)
        if equal.any():
            _, place, column = first(equal[None])
            hint = "expected draws of y that differ; add the noise of y to draws of its mean"
            entry = f"all {len(values)} samples of row {row_in_file(rows, place) + 1} are"
            raise Misuse(f"{entry} {values[0, place, column]:.6g}: {hint}")
        return Predictive.from_moments(*kernels(values))

    return Outputs("samples", block.shape, take)


def kernels(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres and widths (S, N, K) of Gaussians whose mixture has the mean and the variance of the draws (S, N, K).

    The width is h = 1.06 std S^(-1/5), Silverman's rule. Kernels centred at the draws would have the variance var +
    h^2, so the centres are shrunk towards their mean by the factor sqrt(1 - h^2 / var). Variances are divided by S, as
    those of members are. The rule assumes a unimodal density and oversmooths multimodal ones.

    >>> centres, widths = kernels(np.array([[[-1.0]], [[1.0]]]))
    >>> bool(np.isclose(centres.var() + widths[0, 0, 0] ** 2, 1))
    True
    """
    mean, std = draws.mean(0), draws.std(0)
    ratio = SILVERMAN**2 * len(draws) ** -0.4  # h^2 / var, below one from two draws on
    return mean + np.sqrt(1 - ratio) * (draws - mean), np.broadcast_to(np.sqrt(ratio) * std, draws.shape).copy()


# Refusals of rows that are not predictions: the place, the value, what to write instead


def row_in_file(rows: Rows, place: int) -> int:
    """Return the index in the file, from 0, of the row at index `place` among the rows read."""
    return int(rows.start or 0) + place if isinstance(rows, slice) else int(rows[place])


def first(bad: np.ndarray) -> tuple[int, int, int]:
    """Return the index (member, row, column) of the first true entry of a mask (S, n, K), by row first."""
    row = int(bad.any((0, 2)).argmax())
    member = int(bad[:, row].any(-1).argmax())
    return member, row, int(bad[member, row].argmax())


def bad_probability(values: np.ndarray, block: Block, rows: Rows) -> Misuse:
    """Return the refusal of the first row of (S, n, K) that is no distribution, or of (S, n, 1) that is not in 0..1."""
    single = values.shape[-1] == 1
    sums = np.ones((*values.shape[:2], 1)) if single else values.sum(-1, keepdims=True)
    wrong = ~np.isfinite(values) | (values < 0) | (single & (values > 1))
    member, place, _ = first(wrong | ~(np.abs(sums - 1) <= SUM_TOLERANCE))
    row = values[member, place]
    if wrong[member, place].any():
        column = int(wrong[member, place].argmax())
        hint = f"; {block.logits_hint}" if np.isfinite(row[column]) else ""
        return Misuse(f"{block.entry(rows, (member, place, column))} is {row[column]:.6g}: expected 0 to 1{hint}")
    total = sums[member, place, 0]
    hint = "divide each row by its sum if exactly one class is true of it"
    if abs(total - 100) < 1:
        hint = "these look like per cent, divide them by 100"
    elif row.max() > 1:
        hint = block.logits_hint
    name = block.entry_name(member, row_in_file(rows, place), None)
    return Misuse(f"{name} sums to {total:.6g}: expected probabilities that sum to 1; {hint}")
