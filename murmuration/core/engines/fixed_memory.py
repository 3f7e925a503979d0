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
# Operators with a variant that writes to a given tensor, by the same kernel; pointwise ones may write to an argument.
POINTWISE = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.maximum.default, aten.minimum.default}
POINTWISE |= {aten.tanh.default, aten.threshold_backward.default, aten.tanh_backward.default}
OUT = POINTWISE | {aten.bmm.default, aten.baddbmm.default, aten.mm.default, aten.addmm.default, aten.sum.dim_IntList}
OUT |= {aten.mean.dim, aten._log_softmax.default, aten._log_softmax_backward_data.default, aten.stack.default}
OUT |= {aten.nll_loss2d_backward.default, aten.index_select.default}
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
        """Return a tensor like another, which fills the memory of a storage."""
        free = self._free.setdefault(like.nbytes, [])
        if not free:
            self.bytes += like.nbytes
        self.used[storage] = free.pop() if free else torch.empty(like.nbytes, dtype=torch.uint8, device=like.device)
        return self.used[storage].view(like.dtype).as_strided(like.shape, like.stride())

    def free(self, storage: int) -> None:
        """Make the memory of a storage available again."""
        if storage in self.used:
            memory = self.used.pop(storage)
            self._free[len(memory)].append(memory)


class Planner:
    """The operations of a program, some inputs of which are always the same tensors, on fixed memory."""

    def __init__(self, program: Program, results: Sequence[Tensor], held: Sequence[Tensor], joined: slice) -> None:
        self.program = program
        self.outputs = [program.place(result) for result in results]
        self.calls = program.needed(self.outputs)
        self.fixed: dict[int, Any] = {**dict(enumerate(held)), **program.constants}  # register -> value
        self.buffers = Buffers()
        # Index of the last call that uses each storage; results are used after all calls.
        self.last: dict[int, float] = {s: index for index, call in enumerate(self.calls) for s in self.storages(call)}
        self.last |= {program.storages[register]: math.inf for register in self.outputs}
        self.homes = self.join(results[joined])
        self.operations: list[Operation] = []
        for index, call in enumerate(self.calls):
            self.plan(index, call)
            for storage in self.storages(call):
                if self.last[storage] == index:
                    self.buffers.free(storage)

    def storages(self, call: Call) -> set[int]:
        """Return the storages of a call's arguments and results."""
        storages = self.program.storages
        return {storages[register] for register in (*call.arguments, *call.results) if register in storages}

    def join(self, results: Sequence[Tensor]) -> dict[int, Tensor]:
        """Allocate some of the results side by side in one vector; return its parts by storage, none if impossible."""
        places = self.program.storages
        storages = [places[self.program.place(result)] for result in results]
        outputs = {places[call.results[0]]: call.step.outputs for call in self.calls if call.step.func in OUT}
        fits = all(
            result.is_contiguous() and result.dtype == results[0].dtype and outputs[storage].numel() == result.numel()
            for result, storage in zip(results, storages, strict=True)
            if storage in outputs
        )
        if not results or not fits or not set(storages) <= set(outputs) or len(set(storages)) < len(storages):
            return {}
        sizes = [padded_size(result) for result in results]
        return dict(zip(storages, results[0].new_zeros(sum(sizes)).split(sizes), strict=True))

    def plan(self, index: int, call: Call) -> None:
        """Add the operation of a call, with its arguments bound if they are fixed; none for a view of fixed memory."""
        step, storages, (register, *_) = call.step, self.program.storages, call.results
        function, arguments = binding(step.func), [self.fixed.get(argument) for argument in call.arguments]
        constant = all(argument in self.fixed for argument in call.arguments)
        if isinstance(step.outputs, Tensor) and not step.written:
            if constant and storages[register] in map(storages.get, call.arguments):
                self.fixed[register] = caller(step, function)(*arguments)
                return
            if step.func.overloadpacket in BLANK and is_dense(step.outputs):
                self.fixed[register] = self.buffers.take(storages[register], step.outputs)
                return
            if step.func in IN_PLACE and (target := self.overwritten(index, call)) is not None:
                self.fixed[register], function = target, IN_PLACE[step.func]
            elif step.func in OUT and is_dense(step.outputs):
                target = self.fixed[register] = self.target(index, call)
                backward = getattr(step.func.overloadpacket, "grad_input", None)  # torch has no binding of these
                function = partial(backward, grad_input=target) if backward else partial(function, out=target)
        run = caller(step, function)
        if constant and all(result in self.fixed for result in call.results):
            self.operations.append((partial(run, *arguments), None, call.into, ()))
            return
        later = {*self.fixed, *self.outputs, *range(self.program.inputs)}
        later |= {argument for other in self.calls[index + 1 :] for argument in other.arguments}
        freed = tuple({*call.arguments, *call.results} - later)
        self.operations.append((run, reader(call.arguments), call.into, freed))

    def target(self, index: int, call: Call) -> Tensor:
        """Return the memory that an operator's result is written to."""
        storage, like = self.program.storages[call.results[0]], call.step.outputs
        if storage in self.homes:
            home = self.homes[storage]
            return home.as_strided(like.shape, like.stride(), home.storage_offset())
        argument = self.overwritten(index, call) if call.step.func in POINTWISE else None
        return self.buffers.take(storage, like) if argument is None else argument

    def overwritten(self, index: int, call: Call) -> Tensor | None:
        """Return an argument that a pointwise operator may overwrite: not needed later, same memory layout.

        Its buffer is the result's from now on.
        """
        storages, like = self.program.storages, layout_of(call.step.outputs)
        storage = storages[call.results[0]]
        places = [place for place in call.arguments if place in storages]
        for candidate in places if storage not in self.homes else ():
            old = storages[candidate]
            views = [self.fixed.get(place) for place in places if storages[place] == old]
            reusable = all(isinstance(view, Tensor) and layout_of(view) == like for view in views)
            if old in self.buffers.used and self.last[old] == index and reusable:
                self.buffers.used[storage] = self.buffers.used.pop(old)
                return self.fixed[candidate]
        return None


def is_dense(tensor: Tensor) -> bool:
    """Return whether a tensor fills the memory that it describes, from the beginning of its storage on."""
    return tensor.storage_offset() == 0 and tensor.untyped_storage().nbytes() == tensor.nbytes


def layout_of(tensor: Tensor) -> tuple:
    """Return everything that two tensors of one memory layout have in common."""
    return tensor.shape, tensor.stride(), tensor.dtype


def fixed_replay(
    program: Program, results: Sequence[Tensor], held: Sequence[Tensor], joined: slice
) -> Callable[..., list[Tensor]]:
    """Return a program as a function of its inputs without the first ones, which are always the tensors `held`.

    The results `joined` lie in one buffer (`flat_buffers.py`) where that is possible. A program that takes much
    memory is replayed on new tensors every time.
    """
    planned = Planner(program, results, held, joined)
    if planned.buffers.bytes > FIXED_BYTES:
        return partial(program.replay_of(results), *held)
    blank: list[Any] = [planned.fixed.get(register) for register in range(program.registers)]
    return replay_operations(planned.operations, blank, slice(len(held), program.inputs), planned.outputs)
