"""`help()` of every public name lists all arguments; the style of docstrings is checked by ruff."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import murmuration as mm

LISTED = re.compile(r"^\s+\*{0,2}(\w+)(?: \([^)]*\))?:", re.MULTILINE)


def methods(cls: type) -> Iterator[tuple[Callable[..., Any], str]]:
    """Yield the public methods that a class defines, each with its docstring or that of the class it overrides."""
    for name, member in vars(cls).items():
        function = getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(function) and function.__name__ == name:
            inherited = (vars(base)[name].__doc__ for base in cls.__mro__[1:] if name in vars(base))
            yield function, next((doc for doc in (function.__doc__, *inherited) if doc), "")


def documented(name: str) -> Iterator[tuple[Callable[..., Any], str]]:
    """Yield what a public name lets one call, each with its docstring."""
    value = getattr(mm, name)
    if inspect.isclass(value) and not issubclass(value, Exception):
        yield value, "\n".join(filter(None, (value.__doc__, value.__init__.__doc__)))
        yield from methods(value)
    elif inspect.isfunction(value):
        yield value, value.__doc__ or ""


@pytest.mark.parametrize("name", mm.__all__)
def test_every_argument_is_listed(name: str):
    for function, doc in documented(name):
        arguments = [p for p in inspect.signature(function).parameters if p not in ("self", "cls")]
        assert [p for p in arguments if p not in LISTED.findall(doc)] == [], function.__qualname__
