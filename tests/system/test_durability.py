"""Files survive a loss of power: content and name are flushed to the disk, in this order."""

import json
import os
import stat
from pathlib import Path

import pytest

import murmuration as mm
from murmuration.system.files import write_json


def test_the_file_is_flushed_before_it_is_renamed_and_its_directory_after(tmp_path: Path, monkeypatch):
    log: list[str] = []
    fsync, replace = os.fsync, os.replace

    def logged_fsync(handle: int) -> None:
        log.append("directory" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def logged_replace(source: str, target: str) -> None:
        log.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", logged_fsync)
    monkeypatch.setattr(os, "replace", logged_replace)
    write_json(tmp_path / "record.json", {"a": 1})
    assert log == ["file", "rename", "directory"]


@pytest.mark.parametrize("name", ["run.json"])
def test_a_record_without_its_digest_is_refused(name: str, tmp_path: Path):
    mm.fit("mlp:hidden=4", "two-moons", members=1, epochs=1, posthoc=None, out=tmp_path / "run")
    path = tmp_path / "run" / name
    record = json.loads(path.read_text())
    del record["record_sha256"]
    path.write_text(json.dumps(record))
    with pytest.raises(mm.Failure, match="has changed since it was written"):
        mm.load(tmp_path / "run")
