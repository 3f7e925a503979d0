"""Replays on fixed memory: the bits of replays on new tensors, whatever is overwritten meanwhile."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor

import murmuration.core.engines.capture as programs
from murmuration.core.engines.capture import Captured, capture, fixed_replay
from murmuration.core.flat_buffers import flat_view

Function = Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]]  # weights (3, 4, 6), x (3, 5, 6), y (3, 5, 4)


def inputs(seed: int) -> list[Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=stream) for shape in ((3, 4, 6), (3, 5, 6), (3, 5, 4))]


def captured(function: Function, given: list[Tensor], joined: slice = slice(0, 0)) -> Captured:
    """The function on fixed memory, with the weights held."""
    replay = partial(fixed_replay, held=given[:1], joined=joined)
    return capture(lambda: list(function(*given)), given, set(), replay=replay)


def layer(w: Tensor, x: Tensor, y: Tensor) -> list[Tensor]:
    hidden = torch.relu(torch.bmm(w, x.mT))  # (3, 4, 5)
    residual = torch.mul(hidden, y.mT)
    return [torch.bmm(residual, x), residual.sum(2), hidden + residual]


def used_later(w: Tensor, x: Tensor, y: Tensor) -> list[Tensor]:
    """Arguments of pointwise operators that are needed again, themselves or as a view."""
    first = torch.bmm(w, x.mT)
    view = first[:, :2]
    second = torch.relu(first)
    third = torch.mul(second, 2.0)
    return [third, torch.add(view, second[:, 2:]), torch.sub(third, first)]


def transposed(w: Tensor, x: Tensor, y: Tensor) -> list[Tensor]:
    """A result in the layout of one argument and not of the other, which has the same size."""
    square = torch.bmm(w, w.mT)  # (3, 4, 4)
    return [torch.mul(square.mT, square), torch.add(square.mT.contiguous(), square)]


def in_place(w: Tensor, x: Tensor, y: Tensor) -> list[Tensor]:
    mask = torch.empty_like(y)
    torch.le(y, 0.5, out=mask)
    mask.mul_(2.0)
    kept = torch.mul(torch.bmm(x, w.mT), mask)
    filled = torch.zeros_like(y)
    filled[:, 0] = kept[:, 1]
    return [kept, filled + y]


def many(w: Tensor, x: Tensor, y: Tensor) -> list[Tensor]:
    """More results than buffers: each is used again."""
    found = torch.bmm(w, x.mT)
    for _ in range(6):
        found = torch.bmm(found.mT.contiguous(), torch.tanh(found)).mT.contiguous()
        found = torch.maximum(torch.bmm(w, x.mT), found[:, :4, :5].contiguous())
    return [found]


@pytest.mark.parametrize("function", [layer, used_later, transposed, in_place, many])
@pytest.mark.parametrize("limit", [programs.FIXED_BYTES, -1])
def test_replays_have_the_bits_of_the_function(monkeypatch: pytest.MonkeyPatch, function: Function, limit: int):
    monkeypatch.setattr(programs, "FIXED_BYTES", limit)
    w, *first = inputs(0)
    replay = captured(function, [w, *first])
    for seed in (1, 2, 1):
        new, x, y = inputs(seed)
        w.copy_(new)  # the tensor stays, its values change
        for got, expected in zip(replay.run(x, y), function(w, x, y), strict=True):
            assert torch.equal(got, expected)
            assert got.stride() == expected.stride()


def test_some_results_lie_side_by_side():
    given = inputs(0)
    replay = captured(layer, given, joined=slice(0, 2))
    found = replay.run(*given[1:])
    assert flat_view(found[:2]) is not None
    assert all(torch.equal(a, b) for a, b in zip(found, layer(*given), strict=True))


def test_results_that_are_views_of_one_tensor_are_left_apart():
    def halves(w: Tensor, x: Tensor, y: Tensor) -> list[Tensor]:
        product = torch.bmm(w, x.mT)
        return [product[:, :2], product[:, 2:]]

    given = inputs(0)
    found = captured(halves, given, joined=slice(0, 2)).run(*given[1:])
    assert flat_view(found) is None
    assert all(torch.equal(a, b) for a, b in zip(found, halves(*given), strict=True))


def test_memory_is_used_again():
    given = inputs(0)
    planned = []
    capture(
        lambda: many(*given),
        given,
        set(),
        replay=lambda program, results: (
            planned.append(programs.Planner(program, results, given[:1], slice(0, 0))) or program.replay_of(results)
        ),
    )
    assert planned[0].bytes < 6 * 3 * 5 * 5 * 4
