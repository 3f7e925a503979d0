"""A way to run commands inside the test process, and one small run that many tests look at."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from murmuration.cli import main

SMALL = ("--net", "mlp", "--members", "2", "--epochs", "1", "--engine", "loop")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


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
