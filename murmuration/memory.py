"""Keeping freed memory at hand.

A training step allocates and frees the same large tensors over and over. The C library gives such blocks back to the
system when they are freed and asks for fresh, zeroed pages the next time; on a CPU that costs more than many of the
operators. Told to keep what it has, it costs no more memory than the largest step needs anyway.

It must be told before a second thread asks for memory: from then on every thread has a heap of its own for good.
"""

import ctypes
import os
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # names of glibc's malloc.h
LARGEST = 2**31 - 1  # bytes; the settings are C ints
SETTINGS = {
    M_MMAP_THRESHOLD: 1 << 30,  # blocks of less come from the heap,
    M_TRIM_THRESHOLD: LARGEST,  # which is not given back,
    M_ARENA_MAX: 1,  # and which all threads share: heaps of their own would be unmapped whenever they run empty
}


def keep_freed_memory() -> bool:
    """Ask glibc to keep freed blocks for reuse; True if it agreed.

    False where there is no such setting, or where somebody has chosen settings by MALLOC_ in the environment.
    """
    if not sys.platform.startswith("linux") or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return sum(bool(mallopt(setting, value)) for setting, value in SETTINGS.items()) == len(SETTINGS)
