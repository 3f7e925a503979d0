"""What tables of records have in common."""

SCORES = {"classification": ("accuracy", "nll", "ece"), "regression": ("rmse", "nll", "coverage_90")}


def head(names: list[str]) -> list[str]:
    """The first two lines of a table with these columns."""
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]


def score(metrics: dict[str, dict[str, float]], name: str) -> str:
    """A score of a record with its interval; a calibration error, which noise raises, has none.

    >>> metrics = {"nll": {"value": 0.98765, "low": 0.981, "high": 0.994}, "ece": {"value": 0.01, "low": 0, "high": 1}}
    >>> score(metrics, "nll"), score(metrics, "ece")
    ('0.988 (0.981 to 0.994)', '0.01')
    """
    found = metrics[name]
    return (
        f"{found['value']:.3g}"
        if name == "ece"
        else f"{found['value']:.3g} ({found['low']:.3g} to {found['high']:.3g})"
    )
