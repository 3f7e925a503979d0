"""Reuse of freed memory: settings of glibc's malloc for training in several threads.

A training step allocates and frees the same large tensors again and again. By default glibc returns such blocks to the
operating system and asks for fresh, zeroed pages the next time; on a CPU that costs more than many of the operators.
With the settings below it keeps freed blocks in one heap for all threads. The process then keeps the memory of its
largest step, which is why only the command line does this without being asked.

The settings must be made before a second thread allocates memory: a thread keeps its first heap.
"""

import ctypes
import logging
import os
import sys
from collections.abc import Callable
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # names of glibc's malloc.h
LARGEST = 2**31 - 1  # bytes; the settings are C ints
SETTINGS = {
    M_MMAP_THRESHOLD: 1 << 30,  # smaller blocks come from the heap,
    M_TRIM_THRESHOLD: LARGEST,  # which is never trimmed,
    M_ARENA_MAX: 1,  # and which all threads share: heaps of single threads are unmapped whenever they become empty
}
HINT = (
    "training in several threads is faster on Linux if freed memory is reused: call murmuration.keep_freed_memory() "
    "at the start of the program, before the first tensor operation"
)
_kept = False  # whether the settings were made in this process


def keep_freed_memory() -> bool:
    """Set glibc's malloc to keep freed memory for reuse, in one heap for all threads.

    Call it at the start of a program that trains on a CPU. It applies to the whole process and cannot be undone: freed
    memory is no longer returned to the operating system. The command `murmur` calls it; `import murmuration` does not.

    Returns:
        True if the settings were made; False, without any change, if there is no glibc or MALLOC_* environment
        variables are set.
    """
    global _kept
    mallopt = _mallopt()
    _kept = mallopt is not None and all(mallopt(setting, value) for setting, value in SETTINGS.items())
    return _kept


@cache
def suggest_keeping_freed_memory() -> None:
    """Log as information, once per process, that `keep_freed_memory` would help, unless it was called or cannot."""
    if not _kept and _mallopt() is not None:
        logging.getLogger("murmuration").info(HINT)


def _mallopt() -> Callable[[int, int], int] | None:
    """Return `mallopt` of the C library, if it exists and the user has not set MALLOC_* variables."""
    if not sys.platform.startswith("linux") or any(name.startswith("MALLOC_") for name in os.environ):
        return None
    return getattr(ctypes.CDLL(None), "mallopt", None)
