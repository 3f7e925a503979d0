"""Copies of the target, codes such as -999, repeated rows and labels in two spellings get one note each."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import real_tables

import murmuration as mm
from murmuration.data.builtin import BUILTINS

RNG = np.random.default_rng(0)
ROWS = 300
TABLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, ROWS),
        "km": RNG.normal(1e5, 3e4, ROWS).round(),
        "city": RNG.choice(["Oslo", "Rome", "Bern"], ROWS),
    }
)
LABELS = np.where(TABLE.age + RNG.normal(0, 20, ROWS) > 50, "yes", "no")
PRICE = 2 * TABLE.km + RNG.normal(0, 1e4, ROWS)
SEVENTH = TABLE.index % 7 == 0
CLASSES = TABLE.assign(target=LABELS)
NUMBERS = TABLE.assign(target=PRICE)


def notes_of(source: Any, **options: Any) -> list[str]:
    """Return the notes of opening data."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        mm.open_data(source, **options)
    texts = [str(note.message) for note in notes]
    return [text for text in texts if " is read as a " not in text]  # forms of numbers and dates


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (CLASSES.assign(copy=LABELS), "column 'copy' determines the target in every training row"),
        (CLASSES.assign(copy=np.where(LABELS == "yes", 7, 3)), "leave it out with drop='copy'"),
        (CLASSES.assign(reason=np.where(LABELS == "yes", "left", None)), "column 'reason' determines the target"),
        (NUMBERS.assign(cents=100 * PRICE + 3), "column 'cents' determines the target"),
        (NUMBERS.assign(minus=-np.exp(PRICE / 1e5)), "column 'minus' determines the target"),
        (
            CLASSES.assign(age=TABLE.age.mask(SEVENTH, -999)),
            "'age' holds -999 in 31 rows, far from all others (18 to 79)",
        ),
        (CLASSES.assign(km=TABLE.km.mask(SEVENTH, 999_999)), "column 'km' holds 999999 in 31 rows"),
        (CLASSES.assign(age=TABLE.age.mask(SEVENTH, 5_000)), "column 'age' holds 5000 in 31 rows"),
        (pd.concat([CLASSES, CLASSES]), "120 of 180 rows held out repeat a training row"),
        (pd.concat([CLASSES, CLASSES[:30]]), "repeat a training row and test nothing new"),
        (
            TABLE.assign(target=np.where(SEVENTH, "No ", LABELS)),
            "blanks alone and are classes of their own: 'No ' and 'no'",
        ),
    ],
)
def test_a_trap_gets_one_note(table: pd.DataFrame, words: str) -> None:
    [note] = notes_of(table, target="target")
    assert words in note


@pytest.mark.parametrize(
    "table",
    [
        CLASSES,
        NUMBERS,
        CLASSES.assign(age=TABLE.age.mask(SEVENTH, 99)),
        CLASSES.assign(gain=np.where(SEVENTH, TABLE.km, 0)),
        CLASSES.assign(flag=np.where(SEVENTH, 100, 0)),
        CLASSES.assign(near=np.where(LABELS == "yes", "a", "b")).assign(
            near=lambda t: t.near.mask(t.index % 50 == 0, "a")
        ),
        CLASSES[["city", "target"]],
        pd.concat([CLASSES, CLASSES[:2]]),
        TABLE.assign(target=np.where(SEVENTH, "N", np.where(LABELS == "no", "n", "y"))),
        real_tables.churn(200).drop(columns=["customer_id", "note"]).rename(columns={"churned": "target"}),
        real_tables.cars(200).drop(columns=["listing", "remark"]).rename(columns={"price": "target"}),
    ],
)
def test_ordinary_columns_get_none(table: pd.DataFrame) -> None:
    assert notes_of(table, target="target") == []


@pytest.mark.parametrize("name", BUILTINS)
def test_embedded_data_get_none(name: str) -> None:
    assert notes_of(name) == []


def test_copies_in_one_split_get_none() -> None:
    twice = pd.concat([CLASSES.assign(customer=range(ROWS))] * 2)
    assert notes_of(twice, target="target", groups="customer") == []
