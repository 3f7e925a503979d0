"""Threads of one core each, results in order."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from murmuration.core.engines import assemble, engine
from murmuration.system.workers import core_count, parallel_map


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


def test_pools_that_start_at_once_leave_the_number_of_cores(two_threads: None) -> None:
    """Predictions in eight threads of a server at once: threads that start later have all cores."""

    def serve(turn: int) -> int:
        for _ in range(20):
            list(parallel_map(lambda n: n, range(3)))
        return core_count()

    for _ in range(3):
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(serve, range(8))) == {2}
        assert threads_of_a_new_thread() == 2


def test_a_pool_that_cannot_start_leaves_the_number_of_cores(two_threads: None, monkeypatch) -> None:
    start, turns = threading.Thread.start, iter(range(10**6))

    def refuse(thread: threading.Thread) -> None:
        if next(turns) == 2:  # the helper and one worker run
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        list(parallel_map(lambda n: n, range(4)))
    assert list(parallel_map(lambda n: n, range(4))) == list(range(4))
    assert threads_of_a_new_thread() == 2
