"""A way to run commands inside the test process, and one small run that many tests look at."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from murmuration.cli import main

SMALL = ("--net", "mlp", "--members", "2", "--epochs", "1", "--engine", "loop")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def tree(folder: Path) -> dict[str, bytes]:
    """Everything in a folder."""
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def assert_refused(ended: Ended, code: int, words: tuple[str, ...]) -> None:
    """A command that ended with the code and one line that holds the words."""
    assert ended.code == code, ended.err
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err
    assert not re.search(
        r"(?<![\w:,])(target|device|members|epochs|decay|optimizer|lr|seed)=", ended.err
    )  # flags instead
    for word in words:
        assert word in ended.err


@pytest.fixture
def murmur(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    def run(*words: object) -> Ended:
        capsys.readouterr()
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return Ended(code, printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def moons_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on two-moons; tests that change it copy it first."""
    path = tmp_path_factory.mktemp("moons") / "run"
    assert main(["train", "two-moons", *SMALL, "--out", str(path), "--json"]) == 0
    return path


@pytest.fixture(scope="session")
def sine_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on a regression whose declined answers have a price."""
    path = tmp_path_factory.mktemp("sine") / "run"
    words = ["train", "x-sin-x", *SMALL, "--coverage", "0.8", "--abstain-cost", "3", "--out", str(path), "--json"]
    assert main(words) == 0
    return path


def write_table(path: Path) -> None:
    """Write a small regression table with a numeric and a text column."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=300), "b": rng.choice(["left", "right"], 300)})
    table["y"] = 5 * table.a + (table.b == "left") + rng.normal(size=300)
    table.to_csv(path, index=False)
