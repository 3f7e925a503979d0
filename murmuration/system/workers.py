"""Parallel work on many small tensors: one thread per core, instead of several cores inside each operator.

Threads inside an operator synchronise, which takes long if another program uses the same cores. Independent threads do
not: two of them on two busy cores still take half the time of one.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield the results of `work` on each item, in order, from `torch.get_num_threads()` threads of one core each.

    If that number is 1, as inside such a thread, everything runs in the calling thread.

    >>> list(parallel_map(lambda n: n * n, range(4)))
    [0, 1, 4, 9]
    """
    workers = min(torch.get_num_threads(), len(items))
    if workers < 2:
        yield from map(work, items)
        return
    with single_core_pool(workers) as pool:
        yield from pool.map(work, items)


def single_core_pool(count: int) -> ThreadPoolExecutor:
    """Start a pool of threads, each with one core inside an operator.

    `torch.set_num_threads` in a thread also sets the number with which threads made later start, for the whole process:
    it is restored once all threads of the pool run, so that the host's own threads keep their cores.
    """
    default = _in_new_thread(torch.get_num_threads)
    pool = ThreadPoolExecutor(count, initializer=_use_one_core)
    started = threading.Barrier(count + 1)
    for _ in range(count):
        pool.submit(started.wait)
    started.wait()
    _in_new_thread(torch.set_num_threads, default)
    return pool


def _use_one_core() -> None:
    torch.get_num_threads()  # a thread takes the process's number when it is first asked, and would overwrite its own
    torch.set_num_threads(1)


def _in_new_thread(function: Callable[..., Result], *arguments: int) -> Result:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()
