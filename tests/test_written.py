"""Records written as text, whatever they are records of."""

from dataclasses import dataclass

import pytest

from murmuration.errors import Misuse
from murmuration.written import number, read, split_settings


@dataclass(frozen=True)
class Tea:
    kind: str
    sugar: int = 0
    warmth: float = 0.8
    milk: str = "no"

    def __post_init__(self) -> None:
        if self.sugar > 3:
            raise Misuse(f"sugar={self.sugar}: need at most 3")


TEAS: dict[str, Tea | None] = {"none": None, "green": Tea("green"), "breakfast": Tea("black", 1, milk="yes")}


def tea(text: str) -> Tea | None:
    return read(text, "tea", TEAS, fixed=("kind",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", None),
        ("green", Tea("green")),
        ("green:", Tea("green")),
        ("breakfast:sugar=2", Tea("black", 2, milk="yes")),
        ("breakfast: sugar = 2 , warmth = 1e-1", Tea("black", 2, 0.1, "yes")),
        ("green:milk=oat,2:1,warmth=0.5", Tea("green", 0, 0.5, "oat,2:1")),
        ("green:milk=a=b", Tea("green", milk="a=b")),
    ],
)
def test_a_text_changes_what_it_names_and_nothing_else(text: str, expected: Tea | None):
    assert tea(text) == expected
    assert TEAS["green"] == Tea("green")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gren", "unknown answer to --tea 'gren': did you mean 'green'? Known: breakfast, green, none"),
        ("none:sugar=1", "tea 'none:sugar=1': none has no settings; write none"),
        ("green:suger=1", "unknown setting of a tea (name=value) 'suger': did you mean 'sugar'?"),
        ("green:kind=black", "unknown setting of a tea (name=value) 'kind'"),
        ("green:sugar", "unknown setting of a tea (name=value) 'sugar'"),
        ("green:sugar=", "tea setting sugar=: expected a whole number"),
        ("green:sugar=one", "tea setting sugar=one: expected a whole number"),
        ("green:warmth=hot", "tea setting warmth=hot: expected a number"),
        ("green:sugar=1,sugar=2", "tea 'green:sugar=1,sugar=2': sugar is given twice; write it once"),
        ("green:sugar=4", "sugar=4: need at most 3"),
    ],
)
def test_every_mistake_is_one_line_that_names_it(text: str, message: str):
    with pytest.raises(Misuse) as caught:
        tea(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_commas_belong_to_values_unless_a_name_and_a_sign_follow():
    assert split_settings("a=1,2,b=x, c = 3") == ["a=1,2", "b=x", " c = 3"]
    assert split_settings("path=runs/a,b=1") == ["path=runs/a", "b=1"]
    assert split_settings("path=runs/a,7=1") == ["path=runs/a,7=1"]


def test_numbers():
    assert number("1e-3", "rate") == 1e-3
    with pytest.raises(Misuse, match="rate is 'fast': expected a number"):
        number("fast", "rate")
