"""Memory that was freed stays at hand: counted by the pages the system has to fetch, and by heaps of threads."""

import os
import subprocess
import sys

import pytest

# Two threads take and give back blocks of 32 MB, as workers do with what leads to a member's loss.
WORK = """
import ctypes, resource, sys, tempfile, threading
if sys.argv[1] == "kept":
    import murmuration
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
    blocks, heaps = done.stdout.split()
    return float(blocks), int(heaps)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
@pytest.mark.parametrize(
    ("kind", "environment", "kept"),
    [("kept", {}, True), ("as it comes", {}, False), ("kept", {"MALLOC_ARENA_MAX": "4"}, False)],
    ids=["told by the import", "not told", "told otherwise by its user"],
)
def test_threads_find_the_memory_they_gave_back(kind: str, environment: dict[str, str], kept: bool):
    """Twenty blocks are taken: all are fetched, or few, where something small lies in the gap that one left."""
    blocks, heaps = blocks_fetched_and_heaps(kind, **environment)
    assert (blocks < 10, heaps == 1) == (kept, kept)
    assert kept or blocks >= 20
