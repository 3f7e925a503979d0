"""Work on many small tensors, on all cores: one worker a core instead of many cores inside each operator.

Threads inside an operator wait for each other, and wait long when another program wants the same cores. Workers that
share nothing do not: two of them on two busy cores still take half the time of one.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """The results of `work` on each item, in order, by as many workers as this thread may use cores.

    That number is `torch.get_num_threads()`; with one, or inside a worker, the caller does all itself.

    >>> list(side_by_side(lambda n: n * n, range(4)))
    [0, 1, 4, 9]
    """
    workers = min(torch.get_num_threads(), len(items))
    if workers < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.map(work, items)
