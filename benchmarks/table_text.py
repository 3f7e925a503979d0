"""Cells and Markdown tables that the pages have in common."""

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

SCORES = {"classification": ("accuracy", "nll", "ece"), "regression": ("rmse", "nll", "coverage_90")}
MAX_PADDED_WIDTH = 240  # characters of a line; wider tables are written without padding

Estimate = tuple[float, float | None]  # a mean, and its error or half the width of its interval; None for one value


def markdown(rows: pd.DataFrame | Iterable[Any], columns: Sequence[str] | None = None) -> str:
    """Write finished cells as a Markdown table: a frame, rows by column, or rows beside `columns`.

    >>> print(markdown([{"run": "a", "NLL": "0.50"}, {"run": "bc"}]))
    | run   | NLL   |
    |-------|-------|
    | a     | 0.50  |
    | bc    |       |
    """
    frame = pd.DataFrame(rows if isinstance(rows, pd.DataFrame) else list(rows), columns=columns, dtype=object)
    text = frame.fillna("").to_markdown(index=False, tablefmt="github", disable_numparse=True)
    if text.find("\n") <= MAX_PADDED_WIDTH:
        return text
    return re.sub("-{4,}", "---", re.sub(" {2,}", " ", text))


def interval(score: dict[str, float], form: str = ".3g") -> str:
    """Write a score of a record with its interval.

    >>> interval({"value": 0.98765, "low": 0.981, "high": 0.994})
    '0.988 (0.981 to 0.994)'
    """
    return f"{score['value']:{form}} ({score['low']:{form}} to {score['high']:{form}})"


def score(metrics: dict[str, dict[str, float]], name: str) -> str:
    """Write a score with its interval; a calibration error, which noise raises, has none."""
    return f"{metrics[name]['value']:.3g}" if name == "ece" else interval(metrics[name])


def mean_error(values: Sequence[float]) -> Estimate:
    """Return the mean of values and its standard error.

    >>> mean_error([0.5, 1.0]), mean_error([0.5])
    ((0.75, 0.25), (0.5, None))
    """
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return statistics.fmean(values) if len(values) else math.nan, error


def mean_interval(values: Sequence[float]) -> Estimate:
    """Return the mean of values and half the width of its 95 % interval by Student's t.

    >>> mean, half = mean_interval([1.0, 2.0, 3.0])
    >>> mean, round(half, 3)
    (2.0, 2.484)
    """
    from scipy.stats import t

    mean, error = mean_error(values)
    return mean, None if error is None else float(t.ppf(0.975, len(values) - 1)) * error


def plus_minus(estimate: Estimate, form: str = ".3f") -> str:
    """Write an estimate.

    >>> plus_minus((0.5, 0.125), "+.2f"), plus_minus((0.5, None))
    ('+0.50 ± 0.12', '0.500')
    """
    mean, half = estimate
    return f"{mean:{form}}" + ("" if half is None else f" ± {half:{form.lstrip('+')}}")


def spread(values: Sequence[float], form: str = ".3f") -> str:
    """Write the mean of values with its interval."""
    return plus_minus(mean_interval(values), form)


def difference(values: Sequence[float], form: str = "+.3f") -> str:
    """Write the mean of differences with its interval, bold if that leaves out 0.

    >>> difference([1.0, 2.0, 3.0]), difference([2.0, 2.0])
    ('+2.000 ± 2.484', '**+2.000 ± 0.000**')
    """
    mean, half = mean_interval(values)
    return bold(plus_minus((mean, half), form), half is not None and abs(mean) > half)


def bold(text: str, condition: bool) -> str:
    """Return the text in bold type if the condition holds."""
    return f"**{text}**" if condition else text
