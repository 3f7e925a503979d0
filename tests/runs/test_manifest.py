"""The manifest: a typed record whose JSON says what a run has."""

from dataclasses import fields, replace

import pytest

from murmuration.runs.manifest import FORMAT, Manifest
from murmuration.system.errors import Failure

FULL = Manifest(
    recipe={"name": "forde"}, input_shape=[3, 8, 8], gamma=2.0, seconds=1.5, entries={"pruning": {"of": "x"}}
)


def test_the_json_has_what_is_not_empty_and_reads_back_equal():
    record = FULL.to_json()
    assert set(record) == {"format", "recipe", "input_shape", "gamma", "seconds", "pruning"}
    assert Manifest.from_json(record, "run.json") == FULL
    assert Manifest().to_json() == {"format": FORMAT}
    assert Manifest.from_json({}, "run.json") == Manifest()


def test_every_entry_is_documented():
    listed = [line.strip().partition(":")[0] for line in (Manifest.__doc__ or "").splitlines()]
    assert [f.name for f in fields(Manifest) if f.name not in listed] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("plan", []), ("seconds", "1"), ("origins", {}), ("files", None), ("gamma", "high"), ("groups", 1.5)],
)
def test_an_entry_of_another_type_is_damage(name: str, value: object):
    with pytest.raises(Failure, match=rf"run\.json: '{name}' is .*damaged"):
        Manifest.from_json({**FULL.to_json(), name: value}, "run.json")


def test_rows_and_files():
    assert (Manifest().rows(2), replace(FULL, origins=[1, 0]).rows(2)) == ([0, 1], [1, 0])
    stored = replace(FULL, status="complete", tensors=["a"], files={"a": "b"}, changing={"files": {}})
    assert stored.without_files() == FULL
