"""Built-in data sets: toys drawn from a seed, and small real data sets of scikit-learn; one row of `BUILTINS` each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from murmuration.data.options import Task
from murmuration.data.raw import LoadOptions, RawData, RawPart

GAPS = ((-7.2, -4.8, 115), (-1.2, 1.2, 136), (4.8, 7.2, 149))  # clusters of x: from, to, training points
GAPS_NOISE = 0.1
SINE_RANGES = ((1.5, 2.5, 45), (4.5, 6.0, 45))
SINE_NOISE = 0.25


@dataclass(frozen=True)
class Builtin:
    """A data set that needs no file: its description and a loader that takes a seed."""

    description: str
    load: Callable[[int], RawData]
    toy: bool = False  # drawn from a seed, for plots and quick trials


def generator(seed: int, toy: int) -> np.random.Generator:
    """Return the random generator of one toy data set; each toy has a separate stream."""
    return np.random.default_rng(np.random.SeedSequence([seed, toy]))


def two_moons(seed: int) -> RawData:
    """Draw two interleaved half circles with noise 0.1: 1500 points to train and validate, 500 to test."""
    from sklearn.datasets import make_moons

    draws = generator(seed, 1).integers(2**31, size=2)
    splits = zip(("train", "test"), (1500, 500), draws.tolist(), strict=True)
    parts = {name: RawPart(*make_moons(count, noise=0.1, random_state=state)) for name, count, state in splits}
    return RawData(parts, "classification", feature_names=("x1", "x2"), as_is=True)


def five_gaussians(seed: int) -> RawData:
    """Draw five Gaussian classes of deviation 1, centred on a circle of radius 5 that starts at the angle pi/2.

    40 points a class train, 10 validate, 20 test (D'Angelo & Fortuin 2021; the validation points are ours).
    """
    rng = generator(seed, 2)
    angles = np.pi / 2 + 2 * np.pi * np.arange(5) / 5
    centres = 5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)  # (5, 2)

    def draw(per_class: int) -> RawPart:
        y = np.repeat(np.arange(5), per_class)
        return RawPart(centres[y] + rng.standard_normal((len(y), 2)), y)

    parts = {"train": draw(40), "val": draw(10), "test": draw(20)}
    return RawData(parts, "classification", feature_names=("x1", "x2"), as_is=True)


def gaps_function(x: np.ndarray) -> np.ndarray:
    """Return the noiseless target (N,) of `gaps-1d` at x (N,): a parabola with ripples.

    The parabola's means over the three clusters are -0.48, 0.63 and 0.69; the periods of the ripples divide the width
    2.4 of the clusters, so that the means do not change.
    """
    parabola = 0.637 + 0.0975 * x - 0.525 / 36 * x**2
    turn = 2 * np.pi * x / 2.4
    return parabola + 0.25 * np.sin(turn + 0.6) + 0.1 * np.sin(2 * turn + 2.1)


def gaps_features(x: np.ndarray) -> np.ndarray:
    """Return the features [x/2, (x/2)^2], (N, 2), of x (N,)."""
    return np.stack([x / 2, (x / 2) ** 2], axis=1)


def uniform(rng: np.random.Generator, ranges: tuple[tuple[float, float, int], ...]) -> np.ndarray:
    """Draw points (N,), uniform in each range (from, to, count)."""
    return np.concatenate([rng.uniform(low, high, count) for low, high, count in ranges])


def gaps_1d(seed: int) -> RawData:
    """Draw a regression with two gaps, after Izmailov et al. 2019: x in three clusters, noise 0.1.

    115, 136 and 149 points train, a tenth as many validate and a third test, from the same clusters.
    The inputs are the features [x/2, (x/2)^2], not standardised.
    """
    rng = generator(seed, 3)

    def draw(fraction: float) -> RawPart:
        x = uniform(rng, tuple((low, high, round(count * fraction)) for low, high, count in GAPS))
        return RawPart(gaps_features(x), gaps_function(x) + GAPS_NOISE * rng.standard_normal(len(x)))

    parts = {"train": draw(1), "val": draw(0.1), "test": draw(1 / 3)}
    return RawData(parts, "regression", feature_names=("x/2", "(x/2)^2"), as_is=True)


def x_sin_x(seed: int) -> RawData:
    """Draw the regression y = x sin x + N(0, 0.25^2): 45 points in [1.5, 2.5] and 45 in [4.5, 6].

    The regression of D'Angelo & Fortuin 2021; 20 more points from these ranges validate. The test inputs are
    the grid of 100 points on [0, 7], gap and outside included, with noise like the rest.
    """
    rng = generator(seed, 4)
    val_ranges = tuple((low, high, 10) for low, high, _ in SINE_RANGES)
    inputs = {"train": uniform(rng, SINE_RANGES), "val": uniform(rng, val_ranges), "test": np.linspace(0, 7, 100)}
    noise = {name: SINE_NOISE * rng.standard_normal(len(x)) for name, x in inputs.items()}
    parts = {name: RawPart(x[:, None], x * np.sin(x) + noise[name]) for name, x in inputs.items()}
    return RawData(parts, "regression", feature_names=("x",), as_is=True)


def digits(seed: int) -> RawData:
    """Load scikit-learn's handwritten digits: 1797 grey images of 8x8 pixels with 17 levels."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = bunch.images.astype(np.uint8)[:, None]  # (1797, 1, 8, 8)
    return RawData({"all": RawPart(images, bunch.target)}, "classification", peak=16.0)


def bundled(name: str, seed: int) -> RawData:
    """Load one of scikit-learn's tables by its function `load_<name>`."""
    from sklearn import datasets

    bunch: Any = getattr(datasets, f"load_{name}")()
    names = tuple(map(str, bunch.target_names)) if "target_names" in bunch else None
    task: Task = "regression" if names is None else "classification"
    return RawData({"all": RawPart(bunch.data, bunch.target)}, task, names, tuple(map(str, bunch.feature_names)))


toy = partial(Builtin, toy=True)
BUILTINS = {
    "digits": Builtin("handwritten digits, 1797 images of 8x8, 10 classes", digits),
    "two-moons": toy("toy: two half circles in the plane, 2 classes, 2000 points", two_moons),
    "five-gaussians": toy("toy: five Gaussian clusters on a circle, 5 classes, 350 points", five_gaussians),
    "gaps-1d": toy("toy: regression with two gaps, features [x/2, (x/2)^2], 400 to train", gaps_1d),
    "x-sin-x": toy("toy: regression y = x sin x with a gap, 90 points to train", x_sin_x),
    "iris": Builtin("flowers, 150 rows, 4 measurements, 3 classes", partial(bundled, "iris")),
    "wine": Builtin("wines, 178 rows, 13 measurements, 3 classes", partial(bundled, "wine")),
    "breast-cancer": Builtin("tumours, 569 rows, 30 measurements, 2 classes", partial(bundled, "breast_cancer")),
    "diabetes": Builtin("regression: progression of diabetes, 442 rows, 10 measurements", partial(bundled, "diabetes")),
}


def builtin_names() -> dict[str, str]:
    """List the built-in data sets.

    Returns:
        Name -> one-line description.
    """
    return {name: builtin.description for name, builtin in BUILTINS.items()}


def is_toy(name: str) -> bool:
    """Return whether a name is that of a toy data set, drawn from a seed.

    >>> is_toy("two-moons"), is_toy("diabetes")
    (True, False)
    """
    return name in BUILTINS and BUILTINS[name].toy


def is_builtin(source: Any) -> bool:
    """Return whether a source is the name of a built-in data set."""
    return isinstance(source, str) and source in BUILTINS


def load_builtin(source: str, options: LoadOptions) -> RawData:
    """Load the built-in data set called `source`."""
    return BUILTINS[source].load(options.seed)
