"""Reuse of freed memory, counted by the pages that the system fetches and by the heaps of threads."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from murmuration.system import memory
from murmuration.training.fitting import fit
from murmuration.training.plan import Plan

# Two threads allocate and free blocks of 32 MB, as workers do with the graph of a member's loss.
WORK = """
import ctypes, resource, sys, tempfile, threading
import murmuration
if sys.argv[1] == "call":
    murmuration.keep_freed_memory()
if sys.argv[1] == "command":
    from murmuration.cli import main
    main(["--version"])
import torch

def work():
    for _ in range(10):
        torch.ones(1 << 23)

def pages_of_two_threads():
    threads = [threading.Thread(target=work) for _ in range(2)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def heaps():
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as told:
        file = ctypes.c_void_p(libc.fopen(told.name.encode(), b"w"))
        libc.malloc_info(0, file)
        libc.fclose(file)
        return told.read().count(b"<heap nr=")

for _ in range(3):
    pages_of_two_threads()
blocks = pages_of_two_threads() * resource.getpagesize() / (32 << 20)
print(round(blocks, 2), heaps())
"""


def blocks_fetched_and_heaps(kind: str, **environment: str) -> tuple[float, int]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", WORK, kind]
    done = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, check=True)
    blocks, heaps = done.stdout.split()[-2:]
    return float(blocks), int(heaps)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
@pytest.mark.parametrize(
    ("kind", "environment", "kept"),
    [("call", {}, True), ("command", {}, True), ("import", {}, False), ("call", {"MALLOC_ARENA_MAX": "4"}, False)],
    ids=["call", "command line", "import alone", "settings of the user"],
)
def test_freed_memory_is_reused_if_asked_for(kind: str, environment: dict[str, str], kept: bool):
    """Twenty blocks are allocated: all are fetched, or only a few, where a small block lies in a gap."""
    blocks, heaps = blocks_fetched_and_heaps(kind, **environment)
    assert (blocks < 10, heaps == 1) == (kept, kept)
    assert kept or blocks >= 20


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """A process in which nothing was set or suggested yet; the list of settings made from then on."""
    made: list[tuple[int, int]] = []

    def mallopt(setting: int, value: int) -> int:
        made.append((setting, value))
        return 1

    monkeypatch.setattr(memory, "_kept", False)
    monkeypatch.setattr(memory, "_mallopt", lambda: mallopt)
    memory.suggest_keeping_freed_memory.cache_clear()
    yield made
    memory.suggest_keeping_freed_memory.cache_clear()


def test_the_suggestion_is_logged_once_as_information(fresh: list[tuple[int, int]], caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "murmuration")
    for _ in range(3):
        memory.suggest_keeping_freed_memory()
    assert [(each.name, each.levelno) for each in caplog.records] == [("murmuration", logging.INFO)]
    assert "murmuration.keep_freed_memory()" in caplog.text
    assert fresh == []


def test_no_suggestion_after_the_call_or_where_it_is_impossible(
    fresh: list[tuple[int, int]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.INFO, "murmuration")
    assert memory.keep_freed_memory()
    assert fresh == list(memory.SETTINGS.items())
    memory.suggest_keeping_freed_memory()
    memory.suggest_keeping_freed_memory.cache_clear()
    monkeypatch.setattr(memory, "_mallopt", lambda: None)
    assert not memory.keep_freed_memory()
    memory.suggest_keeping_freed_memory()
    assert caplog.records == []


@pytest.mark.parametrize(("engine", "mentions"), [("loop", 0), ("threads", 1)])
def test_fit_suggests_it_for_threads(
    engine: str, mentions: int, fresh: list[tuple[int, int]], caplog: pytest.LogCaptureFixture, monkeypatch
):
    caplog.set_level(logging.INFO, "murmuration")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    for _ in range(2):
        fit("mlp", "two-moons", members=2, epochs=1, plan=Plan(engine=engine), posthoc=None)
    assert caplog.text.count("keep_freed_memory()") == mentions
