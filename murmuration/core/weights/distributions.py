"""Distributions of random factors and masks: moments, quadrature nodes and samples.

| object | text | distribution |
|---|---|---|
| `Ones()` | `ones` | always 1 |
| `Rademacher()` | `rademacher` | +1 or -1, equally likely |
| `RandomSign(0.75)` | `sign_0.75` | +1 with probability 0.75, else -1 |
| `Normal(1, 0.5)` | `normal_1_0.5` | Gaussian of mean 1 and standard deviation 0.5 |
| `Interpolation(0.3)` | `interpolation_0.3` | Gaussian of mean m = 0.3 and variance 1 - m²: second moment 1 |
| `Bernoulli(0.5)` | `bernoulli_0.5` | 1 with probability 0.5, else 0 |
| `InvertedDropout(0.5)` | `inverted_0.5` | 1 / 0.5 with probability 0.5, else 0: mean 1 |

A distribution of your own derives from `Distribution` and defines `atoms` or `gaussian`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from murmuration.system.errors import Misuse, unknown
from murmuration.system.option_text import short

NODES = 60  # of the Gauss-Hermite rule: exact for polynomials up to degree 119

Atoms = tuple[tuple[float, float], ...]  # (value, probability) pairs


class TextForm:
    """A frozen dataclass of numbers whose text is its word and its numbers, joined by underscores.

    Attributes:
        word: The word.
        rule: What its numbers must be, for error messages.
        example: An example, for error messages.
        what: The noun of error messages.
        kinds: The classes that text stands for.
    """

    word: ClassVar[str] = ""
    rule: ClassVar[str] = "other numbers"
    example: ClassVar[str] = ""
    what: ClassVar[str]
    kinds: ClassVar[tuple[type[Any], ...]]

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, self._numbers())) or not self.is_valid():
            raise self.misuse(str(self))

    def _numbers(self) -> list[float]:
        return [getattr(self, f.name) for f in fields(self)] if is_dataclass(self) else []

    def is_valid(self) -> bool:
        """Return whether the numbers, which are finite, are in range."""
        return True

    def __str__(self) -> str:
        return "_".join([self.word or type(self).__name__, *(short(float(number)) for number in self._numbers())])

    @classmethod
    def misuse(cls, text: str) -> Misuse:
        """Return the error for a text that does not fit."""
        return Misuse(
            f"{cls.what} '{text}' is not understood: {cls.word} takes {cls.rule}; write for example {cls.example}"
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an object of one of the `kinds` from text; raise Misuse for anything else.

        >>> Distribution.parse("normal_-1_0.5").second_moment
        1.25
        >>> str(Distribution.parse("sign_.75"))
        'sign_0.75'
        """
        word, *parts = text.split("_")
        classes = {kind.word: kind for kind in cls.kinds}
        if word not in classes:
            raise unknown(cls.what, word, classes)
        try:
            return classes[word](*map(float, parts))
        except (ValueError, TypeError) as error:  # not a number, or a wrong count
            raise error if isinstance(error, Misuse) else classes[word].misuse(text) from None


class Distribution(TextForm):
    """A distribution on the real line: a Gaussian, or finitely many atoms. A subclass defines `gaussian` or `atoms`."""

    what = "distribution"

    @property
    def gaussian(self) -> tuple[float, float]:
        """The mean and the standard deviation of a Gaussian; not used where `atoms` is overridden."""
        raise NotImplementedError(f"{type(self).__name__} must define atoms or gaussian")

    @property
    def atoms(self) -> Atoms:
        """(value, probability) pairs; none for a Gaussian of positive standard deviation."""
        mean, std = self.gaussian
        return () if std else ((mean, 1.0),)

    @property
    def mean(self) -> float:
        """E u."""
        return sum(value * probability for value, probability in self.atoms) if self.atoms else self.gaussian[0]

    @property
    def std(self) -> float:
        """The standard deviation."""
        return math.sqrt(max(self.second_moment - self.mean**2, 0.0)) if self.atoms else self.gaussian[1]

    @property
    def second_moment(self) -> float:
        """E u²."""
        if self.atoms:
            return sum(value**2 * probability for value, probability in self.atoms)
        return self.mean**2 + self.std**2

    @property
    def positive(self) -> float:
        """The half-moment E max(u, 0)."""
        return self._half_moment(1.0)

    @property
    def negative(self) -> float:
        """The half-moment E max(-u, 0), so that the mean is `positive` less `negative`."""
        return self._half_moment(-1.0)

    def _half_moment(self, sign: float) -> float:
        """Return E max(sign u, 0); of a Gaussian m Phi(m/s) + s phi(m/s)."""
        if self.atoms:
            return sum(max(sign * value, 0.0) * probability for value, probability in self.atoms)
        mean, std = sign * self.mean, self.std
        below = 0.5 * math.erfc(-(mean / std) / math.sqrt(2))
        return mean * below + std * math.exp(-0.5 * (mean / std) ** 2) / math.sqrt(2 * math.pi)

    def nodes(self) -> tuple[Tensor, Tensor]:
        """Return quadrature nodes: exact for atoms, for a Gaussian exact for polynomials of degree below 120.

        Returns:
            Values and probabilities, both (K,) float64, whose weighted sums are expectations.
        """
        if self.atoms:
            values, probabilities = torch.tensor(self.atoms, dtype=torch.float64).unbind(1)
            return values, probabilities
        standard, weights = np.polynomial.hermite_e.hermegauss(NODES)
        return torch.from_numpy(self.mean + self.std * standard), torch.from_numpy(weights / weights.sum())

    def sample(self, shape: Sequence[int], generator: torch.Generator, *, dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw independent samples; they are the same, up to rounding, for every dtype.

        Args:
            shape: Shape of the result.
            generator: Source of random numbers.
            dtype: Dtype of the result.

        Returns:
            A tensor of this shape on the generator's device.
        """
        size, device = tuple(shape), generator.device
        if not self.atoms:
            noise = torch.randn(size, generator=generator, dtype=torch.float64, device=device)
            return (self.mean + self.std * noise).to(dtype)
        values, probabilities = self.nodes()
        uniform = torch.rand(size, generator=generator, dtype=torch.float64, device=device)
        indices = torch.bucketize(uniform, probabilities.cumsum(0)[:-1].to(device), right=True)
        return values.to(device)[indices].to(dtype)


def _two_values(first: float, probability: float, second: float) -> Atoms:
    """Return the atoms of `first` with this probability, else `second`; atoms of probability zero are omitted."""
    return tuple(atom for atom in ((first, probability), (second, 1.0 - probability)) if atom[1] > 0)


@dataclass(frozen=True)
class Ones(Distribution):
    """Always 1."""

    word, rule, example = "ones", "no numbers", "ones"
    atoms = ((1.0, 1.0),)


@dataclass(frozen=True)
class Rademacher(Distribution):
    """+1 or -1, equally likely."""

    word, rule, example = "rademacher", "no numbers", "rademacher"
    atoms = ((1.0, 0.5), (-1.0, 0.5))


@dataclass(frozen=True)
class RandomSign(Distribution):
    """+1 with probability p, else -1."""

    word, rule, example = "sign", "the probability of +1, from 0 to 1", "sign_0.75"
    p: float

    def is_valid(self) -> bool:
        return 0 <= self.p <= 1

    @property
    def atoms(self) -> Atoms:
        return _two_values(1.0, self.p, -1.0)


@dataclass(frozen=True)
class Normal(Distribution):
    """Gaussian of mean `loc` and standard deviation `scale`."""

    word, rule, example = "normal", "the mean and a standard deviation that is not negative", "normal_1_0.5"
    loc: float
    scale: float

    def is_valid(self) -> bool:
        return self.scale >= 0

    @property
    def gaussian(self) -> tuple[float, float]:
        return self.loc, self.scale


@dataclass(frozen=True)
class Interpolation(Distribution):
    """Gaussian of mean `loc` and variance 1 - loc², between Normal(0, 1) and the constant 1."""

    word, rule, example = "interpolation", "the mean, from -1 to 1", "interpolation_0.3"
    loc: float

    def is_valid(self) -> bool:
        return -1 <= self.loc <= 1

    @property
    def gaussian(self) -> tuple[float, float]:
        return self.loc, math.sqrt(1 - self.loc**2)


@dataclass(frozen=True)
class Bernoulli(Distribution):
    """1 with probability `keep`, else 0."""

    word, rule, example = "bernoulli", "the probability to keep, above 0 and up to 1", "bernoulli_0.5"
    keep: float

    def is_valid(self) -> bool:
        return 0 < self.keep <= 1

    @property
    def atoms(self) -> Atoms:
        return _two_values(1.0, self.keep, 0.0)


@dataclass(frozen=True)
class InvertedDropout(Bernoulli):
    """1 / keep with probability `keep`, else 0: mean 1."""

    word, example = "inverted", "inverted_0.5"

    @property
    def atoms(self) -> Atoms:
        return _two_values(1.0 / self.keep, self.keep, 0.0)


Distribution.kinds = (Ones, Rademacher, RandomSign, Normal, Interpolation, Bernoulli, InvertedDropout)
