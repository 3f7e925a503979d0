"""Replays on fixed memory: a program whose large results are written to buffers that are allocated once.

The steps of a training run have the same weights in the same place. If results have a fixed place as well, so have all
views of them, which then need not be made again at every step: of a small network's operators they are half. A buffer
is used again after the last use of its contents, and pointwise operators overwrite an argument that is not needed any
more, so that a step touches little memory.

The results of a replay are overwritten by the next one.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from murmuration.core.engines.capture import Call, Operation, Program, binding, caller, reader, replay_operations
from murmuration.core.flat_buffers import padded_size

aten = torch.ops.aten
# Operators with a variant that writes to a given tensor, by the same kernel: its function, and the argument's name.
PRODUCTS: dict[Any, tuple[Callable, str]] = {
    aten.bmm.default: (torch.bmm, "out"),
    aten.baddbmm.default: (torch.baddbmm, "out"),
    aten.mm.default: (torch.mm, "out"),
    aten.addmm.default: (torch.addmm, "out"),
    aten.sum.dim_IntList: (torch.sum, "out"),
    aten.mean.dim: (torch.mean, "out"),
    aten._log_softmax.default: (torch._log_softmax, "out"),
    aten._log_softmax_backward_data.default: (torch._log_softmax_backward_data, "out"),
    aten.nll_loss2d_backward.default: (aten.nll_loss2d_backward.grad_input, "grad_input"),
    aten.index_select.default: (torch.index_select, "out"),
    aten.stack.default: (torch.stack, "out"),
}
POINTWISE: dict[Any, tuple[Callable, str]] = {  # these may write to an argument
    aten.add.Tensor: (torch.add, "out"),
    aten.sub.Tensor: (torch.sub, "out"),
    aten.mul.Tensor: (torch.mul, "out"),
    aten.maximum.default: (torch.maximum, "out"),
    aten.minimum.default: (torch.minimum, "out"),
    aten.tanh.default: (torch.tanh, "out"),
    aten.threshold_backward.default: (aten.threshold_backward.grad_input, "grad_input"),
    aten.tanh_backward.default: (aten.tanh_backward.grad_input, "grad_input"),
}
OUT = PRODUCTS | POINTWISE
IN_PLACE: dict[Any, Callable] = {aten.relu.default: torch.relu_}  # without such a variant, but for one in place
BLANK = {aten.empty_like, aten.new_empty}  # memory without values
FIXED_BYTES = 1 << 26  # of a program's buffers, at most


class Buffers:
    """Memory of results by the storage that held them at the recording, and memory that is free again."""

    def __init__(self) -> None:
        self.bytes = 0
        self.used: dict[int, Tensor] = {}  # storage -> bytes (n,)
        self._free: dict[int, list[Tensor]] = {}  # by size

    def take(self, storage: int, like: Tensor) -> Tensor:
        """A tensor like another, which fills the memory of a storage."""
        free = self._free.setdefault(like.nbytes, [])
        if not free:
            self.bytes += like.nbytes
        self.used[storage] = free.pop() if free else torch.empty(like.nbytes, dtype=torch.uint8, device=like.device)
        return self.used[storage].view(like.dtype).as_strided(like.shape, like.stride())

    def free(self, storage: int) -> None:
        if storage in self.used:
            memory = self.used.pop(storage)
            self._free[len(memory)].append(memory)


class Planner:
    """The operations of a program, some inputs of which are always the same tensors, on fixed memory."""

    def __init__(self, program: Program, results: Sequence[Tensor], held: Sequence[Tensor], joined: slice) -> None:
        self.program = program
        self.wanted = [program.place(each) for each in results]
        self.calls = program.needed(self.wanted)
        self.fixed: dict[int, Any] = {**dict(enumerate(held)), **program.constants}  # register -> value
        self.buffers = Buffers()
        self.last = self.last_uses()
        self.homes = self.join(results[joined])
        self.operations: list[Operation] = []
        for index, call in enumerate(self.calls):
            self.plan(index, call)
            for storage in self.storages(call):
                if self.last[storage] == index:
                    self.buffers.free(storage)

    def storages(self, call: Call) -> set[int]:
        known = self.program.storages
        return {known[place] for place in (*call.arguments, *call.results) if place in known}

    def last_uses(self) -> dict[int, float]:
        """For each storage the index of the last call that uses it; results are used after all."""
        found: dict[int, float] = {each: index for index, call in enumerate(self.calls) for each in self.storages(call)}
        return found | {self.program.storages[place]: math.inf for place in self.wanted}

    def join(self, results: Sequence[Tensor]) -> dict[int, Tensor]:
        """Places for some of the results, side by side in one vector, by their storages; none if that is impossible."""
        storages = [self.program.storages[self.program.place(each)] for each in results]
        made = {
            self.program.storages[call.results[0]]: call.step.outputs for call in self.calls if call.step.func in OUT
        }
        fits = all(
            each.is_contiguous() and each.dtype == results[0].dtype and made[storage].numel() == each.numel()
            for each, storage in zip(results, storages, strict=True)
            if storage in made
        )
        if not results or not fits or not set(storages) <= set(made) or len(set(storages)) < len(storages):
            return {}
        vector = results[0].new_zeros(sum(map(padded_size, results)))
        parts = vector.split([padded_size(each) for each in results])
        return dict(zip(storages, parts, strict=True))

    def plan(self, index: int, call: Call) -> None:
        """One more operation, or none for a view of fixed memory."""
        step, (place, *others) = call.step, call.results
        known = all(each in self.fixed for each in call.arguments)
        if step.written or others or not isinstance(step.outputs, Tensor):
            self.add(call, binding(step.func), index)
        elif known and is_view(call, self.program):
            self.fixed[place] = caller(step, binding(step.func))(*(self.fixed[each] for each in call.arguments))
        elif step.func.overloadpacket in BLANK and is_dense(step.outputs):
            self.fixed[place] = self.buffers.take(self.program.storages[place], step.outputs)
        elif step.func in IN_PLACE and (target := self.overwritten(index, call)) is not None:
            self.fixed[place] = target
            self.add(call, IN_PLACE[step.func], index)
        elif step.func in OUT and is_dense(step.outputs):
            function, name = OUT[step.func]
            self.fixed[place] = self.target(index, call)
            self.add(call, partial(function, **{name: self.fixed[place]}), index)
        else:
            self.add(call, binding(step.func), index)

    def target(self, index: int, call: Call) -> Tensor:
        """The memory that an operator's result is written to."""
        storage, like = self.program.storages[call.results[0]], call.step.outputs
        if storage in self.homes:
            home = self.homes[storage]
            return home.as_strided(like.shape, like.stride(), home.storage_offset())
        found = self.overwritten(index, call) if call.step.func in POINTWISE else None
        return self.buffers.take(storage, like) if found is None else found

    def overwritten(self, index: int, call: Call) -> Tensor | None:
        """The argument that a pointwise operator may write its result to: it is not needed later, and laid out alike.

        Its buffer is the result's from now on.
        """
        known, like = self.program.storages, call.step.outputs
        storage = known[call.results[0]]
        if storage in self.homes:
            return None
        places = [place for place in call.arguments if place in known]
        for place in places:
            old = known[place]
            same = [self.fixed.get(each) for each in places if known[each] == old]
            whole = all(isinstance(each, Tensor) and is_like(each, like) for each in same)
            if old in self.buffers.used and self.last[old] == index and whole:
                self.buffers.used[storage] = self.buffers.used.pop(old)
                return self.fixed[place]
        return None

    def add(self, call: Call, function: Callable, index: int) -> None:
        """An operation; with all its arguments, if they are fixed."""
        run, places = caller(call.step, function), call.results
        several = isinstance(call.step.outputs, list | tuple)
        into = places if several else places[0]
        if all(each in self.fixed for each in call.arguments) and all(each in self.fixed for each in places):
            self.operations.append((partial(run, *(self.fixed[each] for each in call.arguments)), None, into, ()))
            return
        later = {*self.fixed, *self.wanted, *range(self.program.inputs)}
        later |= {place for other in self.calls[index + 1 :] for place in other.arguments}
        freed = tuple({*call.arguments, *places} - later)
        self.operations.append((run, reader(call.arguments), into, freed))

    def replay(self) -> Callable[..., list[Tensor]]:
        """The function of the inputs that are not held."""
        count, total = self.program.inputs, self.program.registers
        blank: list[Any] = [self.fixed.get(place) for place in range(total)]
        held = next((place for place in range(count) if place not in self.fixed), count)
        return replay_operations(self.operations, blank, slice(held, count), self.wanted)


def is_view(call: Call, program: Program) -> bool:
    """Whether a call's result is a view of one of its arguments."""
    made = program.storages[call.results[0]]
    return any(program.storages.get(place) == made for place in call.arguments)


def is_dense(tensor: Tensor) -> bool:
    """Whether a tensor fills the memory that it describes, from the beginning of its storage on."""
    return tensor.storage_offset() == 0 and tensor.untyped_storage().nbytes() == tensor.nbytes


def is_like(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one layout."""
    return (tensor.shape, tensor.stride(), tensor.dtype) == (other.shape, other.stride(), other.dtype)


def fixed_replay(
    program: Program, results: Sequence[Tensor], held: Sequence[Tensor], joined: slice
) -> Callable[..., list[Tensor]]:
    """A program as a function of its inputs without the first ones, which are always the tensors `held`.

    The results `joined` lie in one buffer (`flat_buffers.py`) where that is possible. A program that takes much
    memory is replayed on new tensors every time.
    """
    planned = Planner(program, results, held, joined)
    if planned.buffers.bytes <= FIXED_BYTES:
        return planned.replay()
    return partial(program.replay_of(results), *held)
