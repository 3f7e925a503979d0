"""Parallel work on many small tensors: one thread per core, instead of several cores inside each operator.

Threads inside an operator synchronise, which takes long if another program uses the same cores. Independent threads do
not: two of them on two busy cores still take half the time of one.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


_starting = threading.Lock()  # held while the process-wide number of cores is that of workers


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield the results of `work` on each item, in order, from `core_count()` threads of one core each.

    If that number is 1, as inside such a thread, everything runs in the calling thread.

    >>> list(parallel_map(lambda n: n * n, range(4)))
    [0, 1, 4, 9]
    """
    workers = min(core_count(), len(items))
    if workers < 2:
        yield from map(work, items)
        return
    contexts = [copy_context() for _ in items]  # a context is entered by one thread at a time
    with single_core_pool(workers) as pool:
        yield from pool.map(lambda context, item: context.run(work, item), contexts, items)


def core_count() -> int:
    """Return the number of cores that operators use in this thread.

    A thread takes the process-wide number when torch first asks for it: not while that is the number of workers.
    """
    with _starting:
        return torch.get_num_threads()


def single_core_pool(count: int) -> ThreadPoolExecutor:
    """Start a pool of threads, each with one core inside an operator.

    `torch.set_num_threads` in a thread also sets the number with which threads made later start, for the whole process.
    One pool starts at a time, and the number is restored as soon as its threads have set theirs, so that the host's own
    threads keep their cores.
    """
    pool, asked, limited = ThreadPoolExecutor(count), threading.Barrier(count + 1), threading.Barrier(count + 1)

    def limit() -> None:
        torch.get_num_threads()  # a thread that has not asked takes the process-wide number later, instead of its own
        asked.wait()
        torch.set_num_threads(1)
        limited.wait()

    def restore() -> None:
        default = torch.get_num_threads()
        asked.wait()
        try:
            limited.wait()
        finally:
            torch.set_num_threads(default)

    with _starting, ThreadPoolExecutor(1) as helper:
        try:
            for started in [helper.submit(restore), *(pool.submit(limit) for _ in range(count))]:
                started.result()
        except BaseException:  # Ctrl-C, or no more threads
            asked.abort()
            limited.abort()
            pool.shutdown()
            raise
    return pool
