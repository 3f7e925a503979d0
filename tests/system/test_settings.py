"""Settings that are declared once: checks, lists and docstrings."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

import murmuration as mm
from murmuration.core.dynamics.optimizer import Decay
from murmuration.core.recipe import BatchOrder
from murmuration.system.settings import (
    AtLeast,
    Doc,
    Fraction,
    NonNegative,
    OneOf,
    Positive,
    check_settings,
    documented,
    imported,
    settings_of,
)


@documented
@dataclass(frozen=True)
class Example:
    """An example."""

    rate: Annotated[float, Doc("Rate."), Positive(0.001)] = 0.1
    rounds: Annotated[int, Doc("Rounds."), AtLeast(1)] = 1
    pause: Annotated[float | None, Doc("Pause."), NonNegative(1, "seconds")] = None
    limit: Annotated[float, Doc("Limit."), NonNegative(1, infinite=True)] = 1.0
    share: Annotated[float, Doc("Share."), Fraction(0.2)] = 0.2
    name: Annotated[str, Doc("Name.")] = "a"
    order: Annotated[Literal["own", "same"] | None, Doc("Order.")] = None
    parts: Annotated[tuple[str, ...], Doc("Parts."), OneOf(imported("string", "digits"), "part")] = ()

    def __post_init__(self) -> None:
        check_settings(self)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": 0.0}, "rate=0.0: need a positive number such as 0.001"),
        ({"rate": float("inf")}, "rate=inf: need a positive number that is finite, such as 0.001"),
        ({"rate": "a"}, "rate='a': need a number such as 0.001"),
        ({"rate": None}, "rate=None: need a number such as 0.001"),
        ({"rounds": 0}, "rounds=0: need a whole number, at least 1"),
        ({"rounds": True}, "rounds=True: need a whole number, at least 1"),
        ({"pause": -1}, "pause=-1: need a number of seconds that is not negative, such as 1"),
        ({"pause": float("inf")}, "pause=inf: need a number of seconds that is not negative and finite, such as 1"),
        ({"limit": float("nan")}, "limit=nan: need a number that is not negative, such as 1"),
        ({"share": 1}, "share=1: need a number between 0 and 1, such as 0.2"),
        ({"name": 3}, "name=3: need a name as text"),
        ({"name": None}, "name=None: need a name as text"),
        ({"order": "sam"}, "unknown order 'sam': did you mean 'same'? Known: own, same"),
        ({"order": ["own"]}, r"unknown order '['own']': "),
        ({"parts": ("1", "x")}, "unknown part 'x': Known: 0, 1, 2"),
    ],
)
def test_values_that_do_not_fit_are_refused(values, message):
    with pytest.raises(mm.Misuse) as error:
        Example(**values)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_values_that_fit_are_accepted():
    Example(rate=1, rounds=5, pause=0, limit=float("inf"), share=0.5, name="b", order="own", parts=("0", "9"))


def test_settings_are_listed_with_their_types_and_defaults():
    by_name = {setting.name: setting for setting in settings_of(Example)}
    assert by_name["pause"][1:5] == ((float,), True, None, "Pause.")
    assert by_name["order"].types == (str,)
    assert by_name["order"].optional
    assert not by_name["rate"].optional


@pytest.mark.parametrize("record", [Example, mm.Plan, mm.PostHocConfig])
def test_every_setting_is_documented(record):
    assert "\n\n    Attributes:\n" in record.__doc__
    for setting in settings_of(record):
        assert setting.doc.endswith("."), setting.name
        assert f"        {setting.name}: {setting.doc}\n" in record.__doc__


def test_literals_of_a_plan_are_those_of_their_rooms():
    hints = mm.Plan.__annotations__
    assert hints["batch_order"].__origin__ == BatchOrder | None
    assert hints["decay"].__origin__ == Decay | None
