"""Capture of a computation: the tensor operators that one call runs, recorded once and replayed without the rest.

A pass of a small network is mostly Python: calls of modules, interception of operators, vmap, automatic
differentiation. A captured one is the sequence of its ATen operators, those of a backward pass too, as a plain function
of some input tensors. Operators that do not depend on the inputs were computed at the capture and are constants: of a
prediction, whose input are examples, also views of weights, random draws of weights and dropout masks. The operators
and their order are those of the original, and so are the bits of the results.

Only computations whose operators are the same for all inputs of one shape can be captured: values of tensors that
reach Python, shapes that depend on values, unseeded random numbers and writes to inputs or weights raise
`NotCapturable`.

In training the first inputs, the weights, are always the same tensors. Such a replay (`fixed_replay`) writes its large
results to buffers that are allocated once: then all views of them have a fixed place as well and need not be made again
at every step; of a small network's operators they are half. A buffer is used again after the last use of its contents,
and pointwise operators overwrite an argument that is not needed any more, so that a step touches little memory. The
next replay overwrites the results.

A tensor that was not seen before is the one that describes the same memory, if there is one: automatic differentiation
hands on results in new tensor objects.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import itemgetter
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from murmuration.core.flat_buffers import padded_size

aten = torch.ops.aten
RECORDED_BYTES = 1 << 28  # of all results held while recording
ESCAPES = {Tensor.numpy, Tensor.tolist, Tensor.__array__, Tensor.data_ptr, Tensor.untyped_storage, Tensor.__dlpack__}
# Operators with a variant that writes to a given tensor, by the same kernel; pointwise ones may write to an argument.
POINTWISE = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.maximum.default, aten.minimum.default}
POINTWISE |= {aten.tanh.default, aten.threshold_backward.default, aten.tanh_backward.default}
OUT = POINTWISE | {aten.bmm.default, aten.baddbmm.default, aten.mm.default, aten.addmm.default, aten.sum.dim_IntList}
OUT |= {aten.mean.dim, aten._log_softmax.default, aten._log_softmax_backward_data.default, aten.stack.default}
OUT |= {aten.nll_loss2d_backward.default, aten.index_select.default}
BLANK = {aten.empty_like, aten.new_empty}  # memory without values
FIXED_BYTES = 1 << 26  # of a program's buffers, at most
IN_PLACE: dict[Any, Callable] = {aten.relu.default: torch.relu_}  # no such variant, but one for unused arguments
NEW = ("empty", "zeros", "ones", "full")  # tensors like others, whatever their values
MAKERS = {getattr(aten, text) for name in NEW for text in (f"new_{name}", f"{name}_like")}
Compute = Callable[[], Sequence[Tensor]]
Run = Callable[..., list[Tensor]]  # input tensors -> results
Replay = Callable[["Program", Sequence[Tensor]], Run]  # makes the replayed function from a program and its results
DYNAMIC = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


class NotCapturable(Exception):  # noqa: N818 - caught by predictors, which then run the network itself
    """The operators of the computation may depend on values of the inputs."""


@dataclass(frozen=True)
class Captured:
    """A captured computation, and the bytes of the constants that it alone holds."""

    run: Run
    bytes: int


@dataclass(eq=False)
class Step:
    """One operator that was run, and in a program the registers of its arguments and results."""

    func: Any  # torch._ops.OpOverload
    args: tuple
    kwargs: dict[str, Any]
    outputs: Any
    repeated: bool = False  # whether a replay runs it again
    arguments: tuple[int, ...] = ()
    results: tuple[int, ...] = ()

    @property
    def into(self) -> int | tuple[int, ...]:
        """The register of the only result, or those of several."""
        return self.results if isinstance(self.outputs, list | tuple) else self.results[0]

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by name, without defaults."""
        names = (argument.name for argument in self.func._schema.arguments)
        return {**dict(zip(names, self.args, strict=False)), **self.kwargs}

    @property
    def written(self) -> list[Any]:
        """The arguments that the operator changes in place."""
        if not self.func._schema.is_mutable:
            return []
        changed = [a.name for a in self.func._schema.arguments if a.alias_info and a.alias_info.is_write]
        return [value for name, value in self.named.items() if name in changed]

    @property
    def is_random(self) -> bool:
        """Whether the operator draws from a generator that is not among its arguments; attention may drop nothing."""
        if torch.Tag.nondeterministic_seeded not in self.func.tags:
            return False
        dropout = any(a.name == "dropout_p" for a in self.func._schema.arguments)
        seeded = any(isinstance(value, torch.Generator) for value in self.named.values())
        return not seeded and not (dropout and not self.named.get("dropout_p", 0.0))


class Recorder(TorchDispatchMode):
    """Records the operators of one call with all their arguments and results, which it keeps alive.

    Random numbers of a generator among the arguments are constants, unless `draws` forbids them.
    """

    def __init__(self, inputs: Sequence[Tensor], *, draws: bool = True) -> None:
        super().__init__()
        self.numbers: dict[int, int] = {}  # id of a tensor object -> number of the tensor
        self._views: dict[tuple, int] = {}  # memory that a tensor describes -> its number
        self.live = {self.number(x) for x in inputs}  # tensors whose values depend on inputs
        self.steps: list[Step] = []  # the results of those that are not repeated are constants
        self._inputs = {address_of(x) for x in inputs}
        self._storages = set(self._inputs)  # of live tensors
        self._draws = draws
        self._bytes = 0

    def number(self, tensor: Tensor) -> int:
        """Return the number of a tensor; the object must live as long as the recorder."""
        if id(tensor) not in self.numbers:
            self.numbers[id(tensor)] = self._views.setdefault(view_of(tensor), len(self.numbers))
        return self.numbers[id(tensor)]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: otherwise torch imports its compiler, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        with torch._C.DisableTorchFunction():  # what follows reads addresses, which `RefuseEscapes` forbids to networks
            arguments = list(tensors_of((args, kwargs)))
            for tensor in arguments:
                self.number(tensor)
            step = Step(func, args, kwargs or {}, func(*args, **(kwargs or {})))
            if step.is_random or (not self._draws and torch.Tag.nondeterministic_seeded in func.tags):
                raise NotCapturable(f"{func} draws random numbers")
            self._bytes += sum(tensor.nbytes for tensor in tensors_of(step.outputs))
            if self._bytes > RECORDED_BYTES:
                raise NotCapturable(f"more than {RECORDED_BYTES} bytes of results")
            if func.overloadpacket not in MAKERS and any(map(self._is_live, arguments)):
                self._check(step)
                self._repeat(step)
            self.steps.append(step)
            return step.outputs

    def _is_live(self, tensor: Tensor) -> bool:
        """Return whether a tensor's values depend on inputs; refuse a view of such a tensor that no operator made."""
        if self.number(tensor) in self.live:
            return True
        if tensor.numel() and address_of(tensor) in self._storages:
            raise NotCapturable("a view of a tensor that was made unnoticed")
        return False

    def _repeat(self, step: Step) -> None:
        """Mark a step as repeated, and its results as dependent on inputs."""
        step.repeated = True
        for tensor in tensors_of(step.outputs):
            number = self.number(tensor)
            self._views[view_of(tensor)] = number  # again: an operator may change the shape in place
            self.live.add(number)
            self._storages.add(address_of(tensor))

    def _check(self, step: Step) -> None:
        """Refuse an operator on the inputs that may run otherwise the next time."""
        func = step.func
        if any(not isinstance(tensor, Tensor | None) for tensor in tree_leaves(step.outputs)):
            raise NotCapturable(f"{func} returns a value, not a tensor")
        index = func.overloadpacket is aten.index  # by whole numbers, it selects as many rows each time
        if DYNAMIC & set(func.tags) and not (index and all(t.dtype == torch.int64 for t in tensors_of(step.args[1:]))):
            raise NotCapturable(f"the shape of {func} depends on values")
        if any(has_tensors(value) and not isinstance(value, Tensor) for value in step.kwargs.values()):
            raise NotCapturable(f"{func} takes tensors by name")
        for tensor in tensors_of(step.written):
            address = address_of(tensor)
            if address in self._inputs:
                raise NotCapturable(f"{func} writes to the inputs")
            if self.number(tensor) not in self.live:  # the constant depends on inputs from now on: it is made again
                for maker in self.steps:
                    if any(address_of(t) == address for t in tensors_of(maker.outputs)):
                        self._repeat(maker)
            if self.number(tensor) not in self.live:
                raise NotCapturable(f"{func} writes to a constant")


class RefuseEscapes(TorchFunctionMode):
    """Refuses functions by which values of tensors leave torch unnoticed."""

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in ESCAPES:
            raise NotCapturable(f"{func.__name__} of a tensor")
        return func(*args, **(kwargs or {}))


def capture(
    function: Compute, inputs: Sequence[Tensor], external: set[int], *, draws: bool = True, replay: Replay | None = None
) -> Captured:
    """Capture a computation, to be replayed on other tensors of the same shapes, strides and types.

    Args:
        function: The computation; it takes no arguments and reads `inputs`.
        inputs: Its input tensors.
        external: Addresses of storages, such as those of the weights, that are held elsewhere too.
        draws: Whether random numbers are allowed.
        replay: Makes the replayed function from the program and its results; by default one of all inputs.

    Returns:
        The captured computation.

    Raises:
        NotCapturable: If the operators may depend on values of the inputs.
    """
    recorder = Recorder(inputs, draws=draws)
    with RefuseEscapes(), recorder:
        results = function()
    if not all(recorder.number(result) in recorder.live for result in results):
        raise NotCapturable("a result does not depend on the inputs")
    program = Program([step for step in recorder.steps if step.repeated], recorder.numbers, inputs)
    return Captured((replay or Program.replay_of)(program, results), program.constant_bytes(external))


# An operator, what reads its arguments from the registers (None: it has them), where results go, what is freed.
Operation = tuple[Callable, Callable[[list], Any] | None, int | tuple[int, ...], tuple[int, ...]]


class Program:
    """Recorded operators on numbered registers, without branches: the inputs first, then constants and results.

    A call that was made before with the same arguments is not made again: members on the same inputs begin alike.
    """

    def __init__(self, steps: list[Step], numbers: dict[int, int], inputs: Sequence[Tensor]) -> None:
        self.calls: list[Step] = []
        self.constants: dict[int, Any] = {}  # register -> value
        self.inputs = self.registers = len(inputs)
        self._numbers = numbers  # id of a tensor object -> number of the tensor
        # Number of a tensor, or text of another constant -> register.
        self._places: dict[int | str, int] = {numbers[id(x)]: place for place, x in enumerate(inputs)}
        self.storages = {place: address_of(x) for place, x in enumerate(inputs)}  # by register; of views, their base's
        results_of: dict[tuple, tuple[int, ...]] = {}  # call -> registers of its results
        pure = not any(step.written for step in steps)
        for step in steps:
            arguments = tuple(map(self._argument, flat_arguments(step)))
            if step.func is aten.detach.default:  # the same tensor: a replay has no gradients
                self._places[numbers[id(step.outputs)]] = arguments[0]
                continue
            key = (step.func, lengths(step), arguments, repr(plain_kwargs(step)))
            outputs = step.outputs if isinstance(step.outputs, list | tuple) else [step.outputs]
            if pure and key in results_of:
                pairs = zip(outputs, results_of[key], strict=True)
                self._places |= {numbers[id(tensor)]: place for tensor, place in pairs if isinstance(tensor, Tensor)}
                continue
            tensors = tensors_of((step.args, step.kwargs))
            bases = {address_of(tensor): self.storages[self.place(tensor)] for tensor in tensors}
            results_of[key] = tuple(self._result(tensor, bases) for tensor in outputs)
            self.calls.append(replace(step, arguments=arguments, results=results_of[key]))

    def _argument(self, value: Any) -> int:
        """Return the register of an argument, which is a constant if it has none yet."""
        key = self._numbers[id(value)] if isinstance(value, Tensor) else repr(value)
        if key not in self._places:
            place = self._places[key] = self._new()
            self.constants[place] = value
            if isinstance(value, Tensor):
                self.storages[place] = address_of(value)
        return self._places[key]

    def _result(self, value: Any, bases: dict[int, int]) -> int:
        """Return the register of a result; an operator that writes in place returns a tensor that has one."""
        if not isinstance(value, Tensor):
            return self._new()
        number = self._numbers[id(value)]
        if number not in self._places:
            self._places[number] = self._new()
            self.storages[self._places[number]] = bases.get(address_of(value), address_of(value))
        return self._places[number]

    def place(self, tensor: Tensor) -> int:
        """Return the register of a tensor that has one."""
        return self._places[self._numbers[id(tensor)]]

    def _new(self) -> int:
        self.registers += 1
        return self.registers - 1

    def needed(self, registers: Sequence[int]) -> list[Step]:
        """Return the calls that some registers depend on, and all that write in place."""
        calls, later = [], set(registers)
        for call in reversed(self.calls):
            if later.intersection(call.results) or call.written:
                calls.append(call)
                later |= set(call.arguments)
        return calls[::-1]

    def replay_of(self, results: Sequence[Tensor]) -> Run:
        """Return the program as a function of its inputs; tensors are freed or overwritten after their last use."""
        outputs = [self.place(result) for result in results]
        later = {*range(self.inputs), *outputs, *self.constants}  # registers that are still needed
        operations: list[Operation] = []
        for call in reversed(self.needed(outputs)):
            function = IN_PLACE[call.func] if self._may_overwrite(call, later) else binding(call.func)
            freed = tuple({*call.arguments, *call.results} - later)
            operations.append((caller(call, function), reader(call.arguments), call.into, freed))
            later |= set(call.arguments)
        blank: list[Any] = [self.constants.get(place) for place in range(self.registers)]
        return replay_operations(operations[::-1], blank, slice(self.inputs), outputs)

    def _may_overwrite(self, call: Step, later: set[int]) -> bool:
        """Return whether a pointwise operator may overwrite its argument: not needed later, same memory layout."""
        if call.func not in IN_PLACE:
            return False
        busy = {self.storages[place] for place in later if place in self.storages}
        return self.storages[call.arguments[0]] not in busy and call.args[0].stride() == call.outputs.stride()

    def constant_bytes(self, external: set[int]) -> int:
        """Return the bytes of constants in storages that are not held elsewhere."""
        tensors = tensors_of(list(self.constants.values()))
        sizes = {address_of(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}
        return sum(size for address, size in sizes.items() if address not in external)


def replay_operations(operations: list[Operation], blank: list[Any], input_slots: slice, outputs: list[int]) -> Run:
    """Return a function that runs operations on registers.

    Args:
        operations: Operations in order.
        blank: Registers before the run.
        input_slots: Registers that the inputs are put into.
        outputs: Registers that are returned.

    Returns:
        A function of the inputs.
    """

    def replay(*inputs: Tensor) -> list[Tensor]:
        registers = blank.copy()
        registers[input_slots] = inputs
        for function, read, places, freed in operations:
            if read is None:
                function()
                continue
            result = function(*read(registers))
            if isinstance(places, int):
                registers[places] = result
            else:
                for place, value in zip(places, result, strict=True):
                    registers[place] = value
            for place in freed:
                registers[place] = None
        return [registers[place] for place in outputs]

    return replay


class Planner:
    """The operations of a program, some inputs of which are always the same tensors, on fixed memory."""

    def __init__(self, program: Program, results: Sequence[Tensor], held: Sequence[Tensor], joined: slice) -> None:
        self.program = program
        self.outputs = [program.place(result) for result in results]
        self.calls = program.needed(self.outputs)
        self.fixed: dict[int, Any] = {**dict(enumerate(held)), **program.constants}  # register -> value
        self.bytes = 0  # of all buffers
        self.used: dict[int, Tensor] = {}  # storage at the recording -> its buffer, bytes (n,)
        self.free: dict[int, list[Tensor]] = {}  # size -> buffers that are free again
        # Index of the last call that uses each storage; results are used after all calls.
        self.last: dict[int, float] = {s: index for index, call in enumerate(self.calls) for s in self.storages(call)}
        self.last |= {program.storages[register]: math.inf for register in self.outputs}
        self.homes = self.join(results[joined])
        self.operations: list[Operation] = []
        for index, call in enumerate(self.calls):
            self.plan(index, call)
            for storage in self.storages(call):
                if self.last[storage] == index and storage in self.used:
                    memory = self.used.pop(storage)
                    self.free[len(memory)].append(memory)

    def take(self, storage: int, like: Tensor) -> Tensor:
        """Return a tensor like another, which fills the buffer of a storage."""
        free = self.free.setdefault(like.nbytes, [])
        if not free:
            self.bytes += like.nbytes
        self.used[storage] = free.pop() if free else torch.empty(like.nbytes, dtype=torch.uint8, device=like.device)
        return self.used[storage].view(like.dtype).as_strided(like.shape, like.stride())

    def storages(self, call: Step) -> set[int]:
        """Return the storages of a call's arguments and results."""
        storages = self.program.storages
        return {storages[register] for register in (*call.arguments, *call.results) if register in storages}

    def join(self, results: Sequence[Tensor]) -> dict[int, Tensor]:
        """Allocate some of the results side by side in one vector; return its parts by storage, none if impossible."""
        places = self.program.storages
        storages = [places[self.program.place(result)] for result in results]
        outputs = {places[call.results[0]]: call.outputs for call in self.calls if call.func in OUT}
        fits = all(
            result.is_contiguous() and result.dtype == results[0].dtype and outputs[storage].numel() == result.numel()
            for result, storage in zip(results, storages, strict=True)
            if storage in outputs
        )
        if not results or not fits or not set(storages) <= set(outputs) or len(set(storages)) < len(storages):
            return {}
        sizes = [padded_size(result) for result in results]
        return dict(zip(storages, results[0].new_zeros(sum(sizes)).split(sizes), strict=True))

    def plan(self, index: int, call: Step) -> None:
        """Add the operation of a call, with its arguments bound if they are fixed; none for a view of fixed memory."""
        storages, (register, *_) = self.program.storages, call.results
        function, arguments = binding(call.func), [self.fixed.get(argument) for argument in call.arguments]
        constant = all(argument in self.fixed for argument in call.arguments)
        if isinstance(call.outputs, Tensor) and not call.written:
            if constant and storages[register] in map(storages.get, call.arguments):
                self.fixed[register] = caller(call, function)(*arguments)
                return
            if call.func.overloadpacket in BLANK and is_dense(call.outputs):
                self.fixed[register] = self.take(storages[register], call.outputs)
                return
            if call.func in IN_PLACE and (target := self.overwritten(index, call)) is not None:
                self.fixed[register], function = target, IN_PLACE[call.func]
            elif call.func in OUT and is_dense(call.outputs):
                target = self.fixed[register] = self.target(index, call)
                backward = getattr(call.func.overloadpacket, "grad_input", None)  # torch has no binding of these
                function = partial(backward, grad_input=target) if backward else partial(function, out=target)
        run = caller(call, function)
        if constant and all(result in self.fixed for result in call.results):
            self.operations.append((partial(run, *arguments), None, call.into, ()))
            return
        later = {*self.fixed, *self.outputs, *range(self.program.inputs)}
        later |= {argument for other in self.calls[index + 1 :] for argument in other.arguments}
        freed = tuple({*call.arguments, *call.results} - later)
        self.operations.append((run, reader(call.arguments), call.into, freed))

    def target(self, index: int, call: Step) -> Tensor:
        """Return the memory that an operator's result is written to."""
        storage, like = self.program.storages[call.results[0]], call.outputs
        if storage in self.homes:
            home = self.homes[storage]
            return home.as_strided(like.shape, like.stride(), home.storage_offset())
        argument = self.overwritten(index, call) if call.func in POINTWISE else None
        return self.take(storage, like) if argument is None else argument

    def overwritten(self, index: int, call: Step) -> Tensor | None:
        """Return an argument that a pointwise operator may overwrite: not needed later, same memory layout.

        Its buffer is the result's from now on.
        """
        storages, like = self.program.storages, layout_of(call.outputs)
        storage = storages[call.results[0]]
        places = [place for place in call.arguments if place in storages]
        for candidate in places if storage not in self.homes else ():
            old = storages[candidate]
            views = [self.fixed.get(place) for place in places if storages[place] == old]
            reusable = all(isinstance(view, Tensor) and layout_of(view) == like for view in views)
            if old in self.used and self.last[old] == index and reusable:
                self.used[storage] = self.used.pop(old)
                return self.fixed[candidate]
        return None


def is_dense(tensor: Tensor) -> bool:
    """Return whether a tensor fills the memory that it describes, from the beginning of its storage on."""
    return tensor.storage_offset() == 0 and tensor.untyped_storage().nbytes() == tensor.nbytes


def layout_of(tensor: Tensor) -> tuple:
    """Return everything that two tensors of one memory layout have in common."""
    return tensor.shape, tensor.stride(), tensor.dtype


def fixed_replay(program: Program, results: Sequence[Tensor], held: Sequence[Tensor], joined: slice) -> Run:
    """Return a program as a function of its inputs without the first ones, which are always the tensors `held`.

    The results `joined` lie in one buffer (`flat_buffers.py`) where that is possible. A program that takes much
    memory is replayed on new tensors every time.
    """
    planned = Planner(program, results, held, joined)
    if planned.bytes > FIXED_BYTES:
        return partial(program.replay_of(results), *held)
    blank: list[Any] = [planned.fixed.get(register) for register in range(program.registers)]
    return replay_operations(planned.operations, blank, slice(len(held), program.inputs), planned.outputs)


def lengths(step: Step) -> tuple[int | None, ...]:
    """Return for each argument of an operator the number of its tensors, if it is a list of tensors."""
    return tuple(len(arg) if isinstance(arg, list | tuple) and has_tensors(arg) else None for arg in step.args)


def flat_arguments(step: Step) -> list[Any]:
    """Return the arguments with lists of tensors unpacked, then tensors passed by name, such as `out`."""
    pairs = zip(step.args, lengths(step), strict=True)
    flat = [arg for value, length in pairs for arg in ([value] if length is None else value)]
    return [*flat, *tensors_of(step.kwargs)]


def plain_kwargs(step: Step) -> dict[str, Any]:
    """Return the keyword arguments that are not tensors."""
    return {name: value for name, value in step.kwargs.items() if not isinstance(value, Tensor)}


def binding(func: Any) -> Callable:
    """Return torch's own binding of an operator, if it has one: a call takes a microsecond less than by `torch.ops`."""
    name = func._schema.name.removeprefix("aten::")
    bound: Callable = getattr(torch, name, None) or getattr(Tensor, name, None) or func
    return bound if isinstance(bound, BuiltinFunctionType | MethodDescriptorType) else func


def caller(step: Step, plain: Callable) -> Callable:
    """Return an operator as a function of its unpacked arguments."""
    options, counts = plain_kwargs(step), lengths(step)
    names = [name for name in step.kwargs if name not in options]
    function = partial(plain, **options) if options else plain
    if not any(counts) and not names:
        return function

    def packed(*flat: Any) -> Any:
        values = iter(flat)
        args = [next(values) if count is None else list(islice(values, count)) for count in counts]
        return function(*args, **dict(zip(names, values, strict=True)))

    return packed


def reader(places: tuple[int, ...]) -> Callable[[list], Any]:
    """Return the values of these registers, as a sequence."""
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))


def address_of(tensor: Tensor) -> int:
    """Return the address of a tensor's storage."""
    return tensor.untyped_storage().data_ptr()


def view_of(tensor: Tensor) -> tuple:
    """Return the memory that a tensor describes."""
    return (address_of(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


def tensors_of(values: Any) -> Iterator[Tensor]:
    """Return the tensors among nested lists, tuples and dicts."""
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


def has_tensors(values: Any) -> bool:
    return any(True for _ in tensors_of(values))


def equal_bits(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors are equal in every bit, NaN included."""
    return torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan())
