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
        self.last = self.last_uses()
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

    def last_uses(self) -> dict[int, float]:
        """Return the index of the last call that uses each storage; results are used after all calls."""
        uses: dict[int, float] = {
            storage: index for index, call in enumerate(self.calls) for storage in self.storages(call)
        }
        return uses | {self.program.storages[register]: math.inf for register in self.outputs}

    def join(self, results: Sequence[Tensor]) -> dict[int, Tensor]:
        """Allocate some of the results side by side in one vector; return its parts by storage, none if impossible."""
        storages = [self.program.storages[self.program.place(result)] for result in results]
        outputs = {
            self.program.storages[call.results[0]]: call.step.outputs for call in self.calls if call.step.func in OUT
        }
        fits = all(
            result.is_contiguous() and result.dtype == results[0].dtype and outputs[storage].numel() == result.numel()
            for result, storage in zip(results, storages, strict=True)
            if storage in outputs
        )
        if not results or not fits or not set(storages) <= set(outputs) or len(set(storages)) < len(storages):
            return {}
        vector = results[0].new_zeros(sum(map(padded_size, results)))
        parts = vector.split([padded_size(result) for result in results])
        return dict(zip(storages, parts, strict=True))

    def plan(self, index: int, call: Call) -> None:
        """Add the operation of a call, or none for a view of fixed memory."""
        step, (target_register, *more) = call.step, call.results
        constant = all(register in self.fixed for register in call.arguments)
        if step.written or more or not isinstance(step.outputs, Tensor):
            self.add(call, binding(step.func), index)
        elif constant and is_view(call, self.program):
            self.fixed[target_register] = caller(step, binding(step.func))(
                *(self.fixed[register] for register in call.arguments)
            )
        elif step.func.overloadpacket in BLANK and is_dense(step.outputs):
            self.fixed[target_register] = self.buffers.take(self.program.storages[target_register], step.outputs)
        elif step.func in IN_PLACE and (target := self.overwritten(index, call)) is not None:
            self.fixed[target_register] = target
            self.add(call, IN_PLACE[step.func], index)
        elif step.func in OUT and is_dense(step.outputs):
            function, name = OUT[step.func]
            self.fixed[target_register] = self.target(index, call)
            self.add(call, partial(function, **{name: self.fixed[target_register]}), index)
        else:
            self.add(call, binding(step.func), index)

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
        storages, like = self.program.storages, call.step.outputs
        storage = storages[call.results[0]]
        if storage in self.homes:
            return None
        places = [candidate for candidate in call.arguments if candidate in storages]
        for candidate in places:
            old = storages[candidate]
            views = [self.fixed.get(register) for register in places if storages[register] == old]
            reusable = all(isinstance(register, Tensor) and is_like(register, like) for register in views)
            if old in self.buffers.used and self.last[old] == index and reusable:
                self.buffers.used[storage] = self.buffers.used.pop(old)
                return self.fixed[candidate]
        return None

    def add(self, call: Call, function: Callable, index: int) -> None:
        """Add an operation, with its arguments bound if they are fixed."""
        run, places = caller(call.step, function), call.results
        multiple = isinstance(call.step.outputs, list | tuple)
        into = places if multiple else places[0]
        if all(register in self.fixed for register in call.arguments) and all(
            register in self.fixed for register in places
        ):
            self.operations.append(
                (partial(run, *(self.fixed[register] for register in call.arguments)), None, into, ())
            )
            return
        later = {*self.fixed, *self.outputs, *range(self.program.inputs)}
        later |= {later_register for other in self.calls[index + 1 :] for later_register in other.arguments}
        freed = tuple({*call.arguments, *places} - later)
        self.operations.append((run, reader(call.arguments), into, freed))

    def replay(self) -> Callable[..., list[Tensor]]:
        """Return the function of the inputs that are not held."""
        count, total = self.program.inputs, self.program.registers
        blank: list[Any] = [self.fixed.get(register) for register in range(total)]
        first = next((register for register in range(count) if register not in self.fixed), count)
        return replay_operations(self.operations, blank, slice(first, count), self.outputs)


def is_view(call: Call, program: Program) -> bool:
    """Return whether a call's result is a view of one of its arguments."""
    storage = program.storages[call.results[0]]
    return any(program.storages.get(register) == storage for register in call.arguments)


def is_dense(tensor: Tensor) -> bool:
    """Return whether a tensor fills the memory that it describes, from the beginning of its storage on."""
    return tensor.storage_offset() == 0 and tensor.untyped_storage().nbytes() == tensor.nbytes


def is_like(tensor: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have one layout."""
    return (tensor.shape, tensor.stride(), tensor.dtype) == (other.shape, other.stride(), other.dtype)


def fixed_replay(
    program: Program, results: Sequence[Tensor], held: Sequence[Tensor], joined: slice
) -> Callable[..., list[Tensor]]:
    """Return a program as a function of its inputs without the first ones, which are always the tensors `held`.

    The results `joined` lie in one buffer (`flat_buffers.py`) where that is possible. A program that takes much
    memory is replayed on new tensors every time.
    """
    planned = Planner(program, results, held, joined)
    if planned.buffers.bytes <= FIXED_BYTES:
        return planned.replay()
    return partial(program.replay_of(results), *held)
