"""Threads of one core each, results in order."""

import threading

import pytest
import torch

from murmuration.workers import parallel_map


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
