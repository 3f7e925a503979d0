"""The options of `open_data` are declared once: the signature, the docstring and the command line repeat them."""

import inspect

import numpy as np
import pytest
import typer

import murmuration as mm
from murmuration.cli.options import ReadingOptions
from murmuration.data.options import DataOptions
from murmuration.system.settings import settings_of

ROWS = np.arange(40.0).reshape(20, 2), np.arange(20) % 2


def test_every_option_is_a_keyword_of_open_data_with_its_default_and_documentation() -> None:
    keywords, text = inspect.signature(mm.open_data).parameters, " ".join((mm.open_data.__doc__ or "").split())
    for option in settings_of(DataOptions):
        assert keywords[option.name].default == option.default
        assert f"{option.name}: {option.doc}" in text


def test_the_command_line_has_every_option_but_the_seed_with_the_same_documentation() -> None:
    flags = {
        name: next(note for note in parameter.annotation.__metadata__ if isinstance(note, typer.models.OptionInfo))
        for name, parameter in inspect.signature(ReadingOptions).parameters.items()
    }
    docs = {option.name: option.doc for option in settings_of(DataOptions) if option.name != "seed"}
    assert {name: flags[name].help for name in docs} == docs
    assert {*flags} - {*docs} == {"features", "features_from"}


def test_options_with_data_that_is_open_are_refused() -> None:
    data = mm.open_data(ROWS)
    with pytest.raises(mm.Misuse, match="val= with a Data, which is split and prepared: give them to open_data"):
        mm.open_data(data, val=0.2)
    assert mm.open_data(data, val=None) is data


def test_an_unknown_option_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(mm.Misuse, match="unknown keyword of open_data 'targets': did you mean 'target'"):
        mm.open_data(ROWS, targets="y")


@pytest.mark.parametrize(
    ("option", "value"),
    [("task", "classify"), ("prepare", 1), ("inputs", "image"), ("in_memory", "yes"), ("imbalance", "x"), ("seed", -1)],
)
def test_a_value_of_another_kind_is_refused_by_name(option: str, value: object) -> None:
    with pytest.raises(mm.Misuse, match=option):
        mm.open_data(ROWS, **{option: value})
