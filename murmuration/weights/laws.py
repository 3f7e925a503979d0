"""The laws random factors are drawn from: a text for each, its moments, its quadrature nodes and its draws.

A text is words joined by underscores, so that it can stand inside comma-separated settings:

    ones                  always 1
    rademacher            +1 or -1, equally likely
    sign_0.75             +1 with probability 0.75, else -1
    normal_1_0.5          Gaussian of mean 1 and standard deviation 0.5
    interpolation_0.3     m + sqrt(1 - m²) noise with m = 0.3: mean m and mean square 1
    bernoulli_0.5         1 with probability 0.5, else 0
    inverted_0.5          1 / 0.5 with probability 0.5, else 0: mean 1
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from murmuration.errors import Misuse, unknown

NODES = 60  # of the Gauss-Hermite rule: exact for polynomials up to degree 119

Atoms = tuple[tuple[float, float], ...]  # (value, probability) pairs


@dataclass(frozen=True)
class Law:
    """One law: `text` makes it again; `atoms` are its (value, probability) pairs, none if it is Gaussian.

    A Gaussian has `centre` and `deviation` instead; without spread it is an atom.
    """

    text: str
    atoms: Atoms
    centre: float = 0.0
    deviation: float = 0.0

    def __str__(self) -> str:
        return self.text

    @property
    def mean(self) -> float:
        """E u."""
        return sum(value * share for value, share in self.atoms) if self.atoms else self.centre

    @property
    def square(self) -> float:
        """E u², the second moment about zero."""
        if self.atoms:
            return sum(value**2 * share for value, share in self.atoms)
        return self.centre**2 + self.deviation**2

    @property
    def positive(self) -> float:
        """The half-moment E max(u, 0)."""
        if self.atoms:
            return sum(max(value, 0.0) * share for value, share in self.atoms)
        return gaussian_half_moment(self.centre, self.deviation)

    @property
    def negative(self) -> float:
        """The half-moment E max(-u, 0), so that the mean is `positive` less `negative`."""
        if self.atoms:
            return sum(max(-value, 0.0) * share for value, share in self.atoms)
        return gaussian_half_moment(-self.centre, self.deviation)

    def nodes(self) -> tuple[Tensor, Tensor]:
        """Values and probabilities, both (K,) float64, whose weighted sums are means under the law.

        Exact for laws of atoms; for a Gaussian the Gauss-Hermite rule, exact for polynomials of degree below 120.
        """
        if self.atoms:
            values, shares = torch.tensor(self.atoms, dtype=torch.float64).unbind(1)
            return values, shares
        standard, weights = np.polynomial.hermite_e.hermegauss(NODES)
        return torch.from_numpy(self.centre + self.deviation * standard), torch.from_numpy(weights / weights.sum())

    def sample(self, shape: Sequence[int], generator: torch.Generator, *, dtype: torch.dtype = torch.float32) -> Tensor:
        """Independent draws of this shape, on the generator's device; the same draws, rounded, for every dtype."""
        size, device = tuple(shape), generator.device
        if not self.atoms:
            noise = torch.randn(size, generator=generator, dtype=torch.float64, device=device)
            return (self.centre + self.deviation * noise).to(dtype)
        values, shares = self.nodes()
        drawn = torch.rand(size, generator=generator, dtype=torch.float64, device=device)
        which = torch.bucketize(drawn, shares.cumsum(0)[:-1].to(device), right=True)
        return values.to(device)[which].to(dtype)


def gaussian_half_moment(mean: float, deviation: float) -> float:
    """E max(u, 0) of a Gaussian: m Phi(m/s) + s phi(m/s).

    >>> round(gaussian_half_moment(1.0, 0.5), 10)
    1.0042453513
    """
    ratio = mean / deviation
    below = 0.5 * math.erfc(-ratio / math.sqrt(2))
    return mean * below + deviation * math.exp(-0.5 * ratio**2) / math.sqrt(2 * math.pi)


def gaussian(text: str, mean: float, deviation: float) -> Law:
    """The Gaussian law of this mean and standard deviation; an atom if the deviation is zero."""
    return Law(text, (), mean, deviation) if deviation else Law(text, ((mean, 1.0),))


def two_values(text: str, first: float, probability: float, second: float) -> Law:
    """`first` with this probability, else `second`; values that never happen are left out."""
    both = ((first, probability), (second, 1.0 - probability))
    return Law(text, tuple(each for each in both if each[1] > 0))


@dataclass(frozen=True)
class Kind:
    """How a kind is written, what its numbers must be (in words and as a test), and how the law is made of them."""

    form: str
    rule: str
    allowed: Callable[..., bool]
    make: Callable[..., Law]

    @property
    def count(self) -> int:
        return self.form.count("_")


KINDS = {
    "ones": Kind("ones", "no numbers", lambda: True, lambda text: Law(text, ((1.0, 1.0),))),
    "rademacher": Kind("rademacher", "no numbers", lambda: True, lambda text: two_values(text, 1.0, 0.5, -1.0)),
    "sign": Kind(
        "sign_0.75",
        "the probability of +1, from 0 to 1",
        lambda p: 0 <= p <= 1,
        lambda text, p: two_values(text, 1.0, p, -1.0),
    ),
    "normal": Kind(
        "normal_1_0.5",
        "the mean and a standard deviation that is not negative",
        lambda mean, deviation: deviation >= 0,
        gaussian,
    ),
    "interpolation": Kind(
        "interpolation_0.3",
        "the mean, from -1 to 1",
        lambda mean: -1 <= mean <= 1,
        lambda text, mean: gaussian(text, mean, math.sqrt(1 - mean**2)),
    ),
    "bernoulli": Kind(
        "bernoulli_0.5",
        "the probability to keep, above 0 and up to 1",
        lambda p: 0 < p <= 1,
        lambda text, p: two_values(text, 1.0, p, 0.0),
    ),
    "inverted": Kind(
        "inverted_0.5",
        "the probability to keep, above 0 and up to 1",
        lambda p: 0 < p <= 1,
        lambda text, p: two_values(text, 1.0 / p, p, 0.0),
    ),
}


def law_named(text: str) -> Law:
    """The law a text such as "normal_1_0.5" stands for.

    >>> law_named("normal_-1_0.5").square
    1.25
    >>> law_named("sign_.75").text
    'sign_0.75'
    """
    word, *given = text.split("_")
    if word not in KINDS:
        raise unknown("law", word, KINDS)
    kind = KINDS[word]
    numbers = [number_of(each) for each in given]
    known = [each for each in numbers if each is not None]
    if len(known) != len(given) or len(known) != kind.count or not kind.allowed(*known):
        raise Misuse(f"law '{text}' is not understood: {word} takes {kind.rule}; write for example {kind.form}")
    return kind.make("_".join([word, *map(written, known)]), *known)


def number_of(text: str) -> float | None:
    """The finite number a text stands for, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def written(number: float) -> str:
    """The shortest text that reads back as this number: 1 for 1.0."""
    return repr(number).removesuffix(".0")
