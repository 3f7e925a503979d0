"""What tables of records have in common."""

SCORES = {"classification": ("accuracy", "nll", "ece"), "regression": ("rmse", "nll", "coverage_90")}


def head(names: list[str]) -> list[str]:
    """The first two lines of a table with these columns."""
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]


def score(found: dict[str, float]) -> str:
    """A score with its interval.

    >>> score({"value": 0.98765, "low": 0.981, "high": 0.994})
    '0.988 (0.981 to 0.994)'
    """
    return f"{found['value']:.3g} ({found['low']:.3g} to {found['high']:.3g})"
