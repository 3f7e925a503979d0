"""Generated tables like those of practice: identifiers, free text, gaps, dates, decimal commas, rare classes."""

from pathlib import Path

import numpy as np
import pandas as pd

NOUNS = ("payment", "invoice", "router", "contract", "callback", "refund", "delivery", "engineer", "upgrade", "address")
MOODS = ("angry", "polite", "urgent", "unclear", "second", "final", "friendly", "late")


def sentences(rng: np.random.Generator, rows: int) -> list[str]:
    """Return one sentence a row, nearly all distinct."""
    words = (rng.choice(NOUNS, (rows, 3)), rng.choice(MOODS, (rows, 2)), rng.integers(0, 10 * rows, rows))
    return [f"{m[0]} {n[0]} about {n[1]}, {m[1]} {n[2]}, ticket {number}" for n, m, number in zip(*words, strict=True)]


def with_gaps(rng: np.random.Generator, values: np.ndarray, share: float) -> pd.Series:
    """Return values of which a share is missing."""
    return pd.Series(values).mask(rng.random(len(values)) < share)


def churn(rows: int, seed: int = 0) -> pd.DataFrame:
    """Return customers of whom 4.5 % leave: `customer_id`, a free-text `note`, gaps, ISO and day-first dates."""
    rng = np.random.default_rng(seed)
    tenure, charge = rng.integers(1, 72, rows), rng.gamma(4.0, 16.0, rows)
    notes = sentences(rng, rows)
    score = (
        0.04 * tenure - 0.02 * charge + rng.logistic(size=rows) - 1.5 * np.array(["angry" in note for note in notes])
    )
    start = pd.Timestamp("2024-06-30") - pd.to_timedelta(30 * tenure + rng.integers(0, 30, rows), unit="D")
    return pd.DataFrame(
        {
            "customer_id": [f"C{number:06}" for number in 100_000 + rng.permutation(rows)],
            "note": notes,
            "tenure": tenure,
            "charge": [f"{value:.2f}".replace(".", ",") for value in charge],
            "since": pd.Series(start).dt.strftime("%d.%m.%Y"),
            "last_call": (pd.Series(start) + pd.Timedelta(days=20)).dt.strftime("%Y-%m-%d"),
            "plan": with_gaps(rng, rng.choice(["basic", "plus", "max"], rows), 0.05),
            "age": with_gaps(rng, rng.integers(18, 90, rows).astype(float), 0.1),
            "paperless": rng.random(rows) < 0.5,
            "churned": np.where(score < np.quantile(score, 0.045), "yes", "no"),
        }
    )


def cars(rows: int, seed: int = 0) -> pd.DataFrame:
    """Return used cars: `listing` numbers with gaps, a free-text `remark`, gaps in `hp`, the price with a comma."""
    rng = np.random.default_rng(seed)
    year, km, hp = rng.integers(2005, 2024, rows), rng.gamma(3.0, 30_000.0, rows), rng.normal(120, 30, rows).clip(40)
    seen = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 366, rows), unit="D")
    price = 2_000 + 900 * (year - 2004) - 0.02 * km + 60 * (hp - 100) + rng.normal(0, 1_500, rows)
    return pd.DataFrame(
        {
            "listing": np.sort(rng.choice(5 * rows, rows, replace=False)) + 1,
            "remark": sentences(rng, rows),
            "brand": rng.choice(["Audi", "Fiat", "Opel", "Seat", "Volvo"], rows, p=[0.3, 0.3, 0.2, 0.15, 0.05]),
            "year": year,
            "km": km.round(),
            "hp": with_gaps(rng, hp.round(), 0.1),
            "seen": pd.Series(seen).dt.strftime("%d/%m/%Y"),
            "price": [f"{value:.1f}".replace(".", ",") for value in price],
        }
    )


def write_csv(table: pd.DataFrame, path: Path) -> Path:
    """Write a table as the spreadsheets of half of Europe do: semicolons between columns."""
    table.to_csv(path, sep=";", index=False)
    return path
