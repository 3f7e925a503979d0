"""Threads of one core each, results in order."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from murmuration.core.engines import assemble, engine
from murmuration.system.workers import parallel_map


def test_workers_have_one_core_each_and_keep_the_order(two_threads: None) -> None:
    seen = list(parallel_map(lambda n: (n, torch.get_num_threads(), threading.get_ident()), range(40)))
    assert [n for n, _, _ in seen] == list(range(40))
    assert {threads for _, threads, _ in seen} == {1}
    assert threading.get_ident() not in {ident for _, _, ident in seen}
    assert torch.get_num_threads() == 2
    nested = list(parallel_map(lambda n: list(parallel_map(lambda m: threading.get_ident(), range(3))), range(2)))
    assert all(len(set(idents)) == 1 for idents in nested)


def test_a_worker_that_fails_is_heard(two_threads: None) -> None:
    with pytest.raises(ZeroDivisionError):
        list(parallel_map(lambda n: 1 // (n - 3), range(10)))


def threads_of_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_threads_of_the_host_keep_their_cores(two_threads: None) -> None:
    """Workers set their own number of cores; threads that the host makes afterwards start with theirs as before."""
    assert threads_of_a_new_thread() == 2
    list(parallel_map(lambda n: n, range(4)))
    assert threads_of_a_new_thread() == 2
    with pytest.raises(ZeroDivisionError), assemble(engine("threads"), torch.nn.Linear(1, 1)) as team:
        team.map(lambda n: 1 // n, [0, 1])
    assert threads_of_a_new_thread() == torch.get_num_threads() == 2
