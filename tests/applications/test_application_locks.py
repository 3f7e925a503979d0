"""Commands of applications do not write into a directory that another process writes."""

from pathlib import Path

import pytest
from process_fixtures import assert_refused_by_holder

pytest_plugins = ["process_fixtures"]


@pytest.mark.parametrize("command", [("superres", "train"), ("continual", "split:digits:5x2")])
def test_a_second_process_is_refused_in_one_line(tmp_path: Path, holder, command, capsys):
    assert_refused_by_holder(tmp_path / "run", holder, command, capsys)
