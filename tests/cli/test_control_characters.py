"""Names from data files and of runs reach the terminal with their control characters spelt out."""

import ast
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import murmuration
from murmuration.cli import console, main

pytest_plugins = ["cli_fixtures"]
TITLE, CLEAR, C1, TURNED = "\x1b]0;pwned\x07", "\x1b[2J", "\x9b31m", "\u202egnp\u2066"
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training table whose names hold control characters, another table, and predictions with groups."""
    folder, rng = tmp_path_factory.mktemp("names"), np.random.default_rng(0)
    kinds = [f"cat{C1}", f"dog{TITLE}"]
    for name, shift in (("old", 0.0), (f"new{TURNED}{CLEAR}", 3.0)):
        x = rng.normal(size=120) + shift
        columns = {f"age{TITLE}{CLEAR}": x, f"b{C1}{TURNED}": rng.normal(size=120)}
        target = [kinds[int(value > shift)] for value in x]
        pd.DataFrame({**columns, "y": target}).to_csv(folder / f"{name}.csv", index=False)
    y = rng.integers(0, 2, 80)
    probs = {"prob_0": np.where(y, 0.2, 0.7), "prob_1": np.where(y, 0.8, 0.3)}
    groups = np.resize([f"north{CLEAR}", f"south{C1}"], 80)
    pd.DataFrame({**probs, "label": y, f"site{TITLE}": groups}).to_csv(folder / "audit.csv", index=False)
    return folder


def assert_clean(printed) -> None:
    assert not RAW.findall(printed.out + printed.err)


def test_screens_of_train_evaluate_monitor_and_predict(files: Path, tmp_path: Path, capsys) -> None:
    run, new = tmp_path / f"run{CLEAR}{TURNED}", next(files.glob("new*.csv"))
    small = ("--net", "mlp", "--members", "2", "--epochs", "1", "--engine", "loop", "--target", "y")
    assert main(["train", str(files / "old.csv"), *small, "--out", str(run)]) == 0
    printed = capsys.readouterr()
    assert_clean(printed)
    assert "run\\x1b[2J\\u202egnp\\u2066" in printed.out
    assert main(["evaluate", str(run)]) == 0
    printed = capsys.readouterr()
    assert_clean(printed)
    assert "run\\x1b[2J" in printed.out
    assert main(["monitor", str(run), str(new)]) == 0
    printed = capsys.readouterr()
    assert_clean(printed)
    assert "age\\x1b]0;pwned\\x07" in printed.out.replace("\n", "").replace(" ", "")
    assert main(["predict", str(run), str(new), "--out", str(tmp_path / f"p{C1}.csv")]) == 0
    assert_clean(capsys.readouterr())


def test_screens_of_audit_with_groups(files: Path, capsys) -> None:
    assert main(["audit", str(files / "audit.csv"), "--group", f"site{TITLE}"]) == 0
    printed = capsys.readouterr()
    assert_clean(printed)
    assert "north\\x1b[2J" in printed.out


def test_a_table_keeps_lines_and_spells_the_rest(capsys) -> None:
    console.print_table(["a\x07", "b"], [["one\ntwo", "x\x1b[1m"]], title="title\x1b")
    console.say("two\nlines\x85")
    printed = capsys.readouterr()
    assert_clean(printed)
    lines = [line.strip() for line in printed.out.splitlines()]
    assert lines[0] == "title\\x1b"
    assert "two" in lines
    assert lines[-1] == "lines\\x85"


def test_commands_print_through_the_console() -> None:
    package = Path(murmuration.__file__).parent
    places = [package / "cli", package / "studies" / "commands", package / "applications" / "commands"]
    for path in (path for place in places for path in place.glob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)]
        if path.name not in ("console.py", "program.py"):
            assert not [call.lineno for call in calls if call.id == "print"], path
