"""The text form of settings, whatever the records are."""

from dataclasses import dataclass, field

import pytest

from murmuration.system.errors import Misuse
from murmuration.system.option_text import FIXED, INLINE, OBJECT, Answer, format_text, number, parse, split_settings


@dataclass(frozen=True)
class Leaf:
    """A value type with a text form of its own."""

    name: str

    @classmethod
    def parse(cls, text: str) -> "Leaf":
        if not text.islower():
            raise Misuse(f"leaf '{text}': write it in lower case")
        return cls(text)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Cup:
    size: float | None = 0.2
    lid: bool = False


@dataclass(frozen=True)
class Tea:
    kind: str = field(metadata=FIXED)
    sugar: int = 0
    warmth: float = 0.8
    milk: bool | str = False
    leaf: Leaf = Leaf("assam")
    cup: Cup = field(default=Cup(), metadata=INLINE)

    def __post_init__(self) -> None:
        if self.sugar > 3:
            raise Misuse(f"sugar={self.sugar}: need at most 3")


TEAS: dict[str, Answer[Tea | None]] = {
    "none": Answer(None, "no tea"),
    "green": Answer(Tea("green"), "green tea"),
    "breakfast": Answer(Tea("black", 1, milk=True), "black tea with milk"),
}


def tea(text: str) -> Tea | None:
    return parse(text, "tea", TEAS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", None),
        ("green", Tea("green")),
        ("green:", Tea("green")),
        ("breakfast:sugar=2", Tea("black", 2, milk=True)),
        ("breakfast: sugar = 2 , warmth = 1e-1", Tea("black", 2, 0.1, True)),
        ("green:milk=oat,2:1,warmth=0.5", Tea("green", 0, 0.5, "oat,2:1")),
        ("green:milk=a=b", Tea("green", milk="a=b")),
        ("breakfast:milk=no", Tea("black", 1)),
        ("green:leaf=sencha", Tea("green", leaf=Leaf("sencha"))),
        ("green:size=0.3,lid=yes,sugar=1", Tea("green", 1, cup=Cup(0.3, True))),
        ("green:size=none", Tea("green", cup=Cup(None))),
    ],
)
def test_a_text_changes_what_it_names_and_nothing_else(text: str, expected: Tea | None):
    assert tea(text) == expected
    assert TEAS["green"].value == Tea("green")
    assert tea(format_text(expected, TEAS)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gren", "unknown answer to --tea 'gren': did you mean 'green'? Known: breakfast, green, none"),
        ("none:sugar=1", "tea 'none:sugar=1': none has no settings; write none"),
        ("green:suger=1", "unknown setting of a tea (name=value) 'suger': did you mean 'sugar'?"),
        ("green:kind=black", "unknown setting of a tea (name=value) 'kind'"),
        ("green:cup=large", "unknown setting of a tea (name=value) 'cup'"),
        ("green:sugar", "unknown setting of a tea (name=value) 'sugar'"),
        ("green:sugar=", "tea setting sugar=: expected a whole number"),
        ("green:sugar=one", "tea setting sugar=one: expected a whole number"),
        ("green:warmth=hot", "tea setting warmth=hot: expected a number"),
        ("green:lid=maybe", "tea setting lid=maybe: expected yes or no"),
        ("green:size=big", "tea setting size=big: expected a number or none"),
        ("green:leaf=SENCHA", "leaf 'SENCHA': write it in lower case"),
        ("green:sugar=1,sugar=2", "tea 'green:sugar=1,sugar=2': sugar is given twice; write it once"),
        ("green:sugar=4", "sugar=4: need at most 3"),
        (
            "object:shop.Coffee",
            "tea shop.Coffee is a user-defined object, which is not stored: in Python, pass the recipe again as"
            " recipe=",
        ),
    ],
)
def test_every_mistake_is_one_line_that_names_it(text: str, message: str):
    with pytest.raises(Misuse) as caught:
        tea(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_text_of_a_record_is_the_nearest_name_and_its_differences():
    assert format_text(Tea("black", 1, milk=True), TEAS) == "breakfast"
    assert format_text(Tea("black", 1), TEAS) == "breakfast:milk=no"
    assert format_text(Tea("green", warmth=1.0, cup=Cup(None, True)), TEAS) == "green:warmth=1,size=none,lid=yes"
    assert format_text(None, TEAS) == "none"


def test_objects_that_no_name_can_make_are_named_by_their_type():
    assert format_text(Tea("white"), TEAS).startswith("object:")  # the kind belongs to the name
    assert format_text(Cup(), TEAS) == "object:Cup(size=0.2, lid=False)"
    assert format_text(object(), TEAS) == "object:builtins.object"  # an address would differ in the next process
    assert format_text(Tea("green", leaf=Leaf("UPPER")), TEAS).startswith(OBJECT)  # its text would not be read back
    assert not format_text(Tea("green", leaf=Leaf("lower")), TEAS).startswith(OBJECT)


def test_commas_belong_to_values_unless_a_name_and_a_sign_follow():
    assert split_settings("a=1,2,b=x, c = 3") == ["a=1,2", "b=x", " c = 3"]
    assert split_settings("path=runs/a,b=1") == ["path=runs/a", "b=1"]
    assert split_settings("path=runs/a,7=1") == ["path=runs/a,7=1"]
    assert split_settings("kl_warmup=1,init_from=x") == ["kl_warmup=1", "init_from=x"]


def test_numbers():
    assert number("1e-3", "rate") == 1e-3
    with pytest.raises(Misuse, match="rate is 'fast': expected a number"):
        number("fast", "rate")
