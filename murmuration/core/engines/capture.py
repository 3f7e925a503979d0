"""Capture of a computation: the tensor operators that one call runs, recorded once and replayed without the rest.

A pass of a small network is mostly Python: calls of modules, interception of operators, vmap, automatic
differentiation. A captured one is the sequence of its ATen operators, those of a backward pass too, as a plain function
of some input tensors. Operators that do not depend on the inputs were computed at the capture and are constants: of a
prediction, whose input are examples, also views of weights, random draws of weights and dropout masks. The operators
and their order are those of the original, and so are the bits of the results.

Only computations whose operators are the same for all inputs of one shape can be captured: values of tensors that
reach Python, shapes that depend on values, unseeded random numbers and writes to inputs or weights raise
`NotCapturable`.

A tensor that was not seen before is the one that describes the same memory, if there is one: automatic differentiation
hands on results in new tensor objects.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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

RECORDED_BYTES = 1 << 28  # of all results held while recording
ESCAPES = {Tensor.numpy, Tensor.tolist, Tensor.__array__, Tensor.data_ptr, Tensor.untyped_storage, Tensor.__dlpack__}
IN_PLACE: dict[Any, Callable] = {torch.ops.aten.relu.default: torch.relu_}  # where the argument is not used again
NEW = ("empty", "zeros", "ones", "full")  # tensors like others, whatever their values
MAKERS = {getattr(torch.ops.aten, text) for name in NEW for text in (f"new_{name}", f"{name}_like")}
DYNAMIC = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


class NotCapturable(Exception):  # noqa: N818 - caught by predictors, which then run the network itself
    """The operators of the computation may depend on values of the inputs."""


@dataclass(frozen=True)
class Captured:
    """A captured computation, and the bytes of the constants that it alone holds."""

    run: Callable[..., list[Tensor]]  # input tensors -> results
    bytes: int


@dataclass(frozen=True)
class Step:
    """One operator that was run."""

    func: Any  # torch._ops.OpOverload
    args: tuple
    kwargs: dict[str, Any]
    outputs: Any

    @property
    def results(self) -> list[Any]:
        """The outputs one by one."""
        return list(self.outputs) if isinstance(self.outputs, list | tuple) else [self.outputs]

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by name, without defaults."""
        names = (each.name for each in self.func._schema.arguments)
        return {**dict(zip(names, self.args, strict=False)), **self.kwargs}

    @property
    def written(self) -> list[Any]:
        """The arguments that the operator changes in place."""
        if not self.func._schema.is_mutable:
            return []
        changed = [each.name for each in self.func._schema.arguments if each.alias_info and each.alias_info.is_write]
        return [value for name, value in self.named.items() if name in changed]

    @property
    def picks_rows(self) -> bool:
        """Whether the operator selects by whole numbers, so that shapes do not depend on values."""
        indices = tensors_of(self.args[1:])
        return self.func.overloadpacket is torch.ops.aten.index and all(each.dtype == torch.int64 for each in indices)

    @property
    def is_random(self) -> bool:
        """Whether the operator draws from a generator that is not among its arguments; attention may drop nothing."""
        if torch.Tag.nondeterministic_seeded not in self.func.tags:
            return False
        dropout = any(each.name == "dropout_p" for each in self.func._schema.arguments)
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
        self._live = {self.number(x) for x in inputs}  # tensors whose values depend on inputs
        self._steps: list[Step] = []
        self._repeated: list[bool] = []  # whether a replay runs the step again
        self._inputs = {address_of(x) for x in inputs}
        self._storages = set(self._inputs)  # of live tensors
        self._draws = draws
        self._bytes = 0

    def number(self, tensor: Tensor) -> int:
        """The number of a tensor; the object must live as long as the recorder."""
        found = self.numbers.get(id(tensor))
        if found is None:
            found = self.numbers[id(tensor)] = self._views.setdefault(view_of(tensor), len(self.numbers))
        return found

    @property
    def steps(self) -> list[Step]:
        """The operators that a replay runs; the results of all others are constants."""
        return [step for step, repeated in zip(self._steps, self._repeated, strict=True) if repeated]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: torch would import its compiler, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        with torch._C.DisableTorchFunction():  # what follows reads addresses, which `RefuseEscapes` forbids to networks
            return self._record(func, args, kwargs or {})

    def _record(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        for each in tensors_of((args, kwargs)):
            self.number(each)
        step = Step(func, args, kwargs, func(*args, **kwargs))
        if step.is_random or (not self._draws and torch.Tag.nondeterministic_seeded in func.tags):
            raise NotCapturable(f"{func} draws random numbers")
        self._bytes += sum(each.nbytes for each in tensors_of(step.outputs))
        if self._bytes > RECORDED_BYTES:
            raise NotCapturable(f"more than {RECORDED_BYTES} bytes of results")
        values = func.overloadpacket not in MAKERS
        repeated = values and any(self._is_live(each) for each in tensors_of((args, step.kwargs)))
        if repeated:
            self._check(step)
            self._add(step)
        self._steps.append(step)
        self._repeated.append(repeated)
        return step.outputs

    def depends(self, result: Tensor) -> bool:
        """Whether a result depends on inputs."""
        return self.number(result) in self._live

    def _is_live(self, each: Tensor) -> bool:
        """Whether the values of a tensor depend on inputs; refuses a view of such a one that no operator made."""
        if self.number(each) in self._live:
            return True
        if each.numel() and address_of(each) in self._storages:
            raise NotCapturable("a view of a tensor that was made unnoticed")
        return False

    def _add(self, step: Step) -> None:
        """The results depend on inputs from now on."""
        for each in tensors_of(step.outputs):
            number = self.number(each)
            self._views[view_of(each)] = number  # anew: an operator may change the shape in place
            self._live.add(number)
            self._storages.add(address_of(each))

    def _check(self, step: Step) -> None:
        """Refuse an operator on the inputs that may run otherwise the next time."""
        if any(not isinstance(each, Tensor | None) for each in tree_leaves(step.outputs)):
            raise NotCapturable(f"{step.func} returns a value, not a tensor")
        if DYNAMIC & set(step.func.tags) and not step.picks_rows:
            raise NotCapturable(f"the shape of {step.func} depends on values")
        if any(has_tensors(value) and not isinstance(value, Tensor) for value in step.kwargs.values()):
            raise NotCapturable(f"{step.func} takes tensors by name")
        for each in tensors_of(step.written):
            if address_of(each) in self._inputs:
                raise NotCapturable(f"{step.func} writes to the inputs")
            if self.number(each) not in self._live:
                self._repeat(address_of(each))
            if self.number(each) not in self._live:
                raise NotCapturable(f"{step.func} writes to a constant")

    def _repeat(self, storage: int) -> None:
        """Let a replay make a constant anew that depends on inputs from now on, because it is written to."""
        for index, step in enumerate(self._steps):
            if any(address_of(each) == storage for each in tensors_of(step.outputs)):
                self._repeated[index] = True
                self._add(step)


class RefuseEscapes(TorchFunctionMode):
    """Refuses functions by which values of tensors leave torch unnoticed."""

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in ESCAPES:
            raise NotCapturable(f"{func.__name__} of a tensor")
        return func(*args, **(kwargs or {}))


def capture(
    function: Callable[[], Sequence[Tensor]],
    inputs: Sequence[Tensor],
    known: set[int],
    *,
    draws: bool = True,
    replay: "Replay | None" = None,
) -> tuple[Captured, Sequence[Tensor]]:
    """The computation of `function`, which takes nothing and reads `inputs`, and its results this time.

    It is replayed on other tensors of the same shapes, strides and types. `known` are the addresses of storages, such
    as those of the weights, that are held elsewhere too. Without `draws` random numbers are refused. `replay` makes the
    function that is replayed of the program and its results, by default one of all inputs.
    """
    recorder = Recorder(inputs, draws=draws)
    with RefuseEscapes(), recorder:
        results = function()
    if not all(recorder.depends(each) for each in results):
        raise NotCapturable("a result does not depend on the inputs")
    program = Program(recorder.steps, recorder.numbers, inputs)
    return Captured((replay or Program.replay_of)(program, results), program.constant_bytes(known)), results


@dataclass(frozen=True)
class Call:
    """One operator of a program, and the registers of its arguments and results."""

    step: Step
    arguments: tuple[int, ...]
    results: tuple[int, ...]


# An operator, what reads its arguments from the registers (None: it has them), where results go, what is freed.
Operation = tuple[Callable, Callable[[list], Any] | None, int | tuple[int, ...], tuple[int, ...]]


class Program:
    """Recorded operators on numbered registers, without branches: the inputs first, then constants and results.

    A call that was made before with the same arguments is not made again: members on the same inputs begin alike.
    """

    def __init__(self, steps: list[Step], numbers: dict[int, int], inputs: Sequence[Tensor]) -> None:
        self.calls: list[Call] = []
        self.constants: dict[int, Any] = {}  # register -> value
        self.inputs = self.registers = len(inputs)
        self._numbers = numbers  # id of a tensor object -> number of the tensor
        self._tensors = {numbers[id(x)]: place for place, x in enumerate(inputs)}  # number -> register
        self.storages = {place: address_of(x) for place, x in enumerate(inputs)}  # by register; of views, their base's
        self._others: dict[str, int] = {}  # text of a constant that is no tensor -> register
        made: dict[tuple, tuple[int, ...]] = {}  # call -> registers of its results
        pure = not any(step.written for step in steps)
        for step in steps:
            arguments = tuple(map(self._argument, flat_arguments(step)))
            if step.func is torch.ops.aten.detach.default:  # the same tensor: a replay has no gradients
                self._tensors[numbers[id(step.outputs)]] = arguments[0]
                continue
            key = (step.func, lengths(step), arguments, repr(plain_kwargs(step)))
            if pure and key in made:
                again = zip(step.results, made[key], strict=True)
                self._tensors |= {numbers[id(each)]: place for each, place in again if isinstance(each, Tensor)}
                continue
            given = tensors_of((step.args, step.kwargs))
            bases = {address_of(each): self.storages[self.place(each)] for each in given}
            made[key] = tuple(self._result(each, bases) for each in step.results)
            self.calls.append(Call(step, arguments, made[key]))

    def _argument(self, value: Any) -> int:
        """The register of an argument, which is a constant if it has none yet."""
        if not isinstance(value, Tensor):
            if repr(value) not in self._others:
                self._others[repr(value)] = self._constant(value)
            return self._others[repr(value)]
        number = self._numbers[id(value)]
        if number not in self._tensors:
            self._tensors[number] = self._constant(value)
            self.storages[self._tensors[number]] = address_of(value)
        return self._tensors[number]

    def _result(self, value: Any, bases: dict[int, int]) -> int:
        """The register of a result; an operator that writes in place returns a tensor that has one."""
        if not isinstance(value, Tensor):
            return self._new()
        number = self._numbers[id(value)]
        if number not in self._tensors:
            self._tensors[number] = self._new()
            self.storages[self._tensors[number]] = bases.get(address_of(value), address_of(value))
        return self._tensors[number]

    def place(self, tensor: Tensor) -> int:
        """The register of a tensor that has one."""
        return self._tensors[self._numbers[id(tensor)]]

    def _constant(self, value: Any) -> int:
        place = self._new()
        self.constants[place] = value
        return place

    def _new(self) -> int:
        self.registers += 1
        return self.registers - 1

    def needed(self, wanted: Sequence[int]) -> list[Call]:
        """The calls that some registers depend on, and all that write in place."""
        found, later = [], set(wanted)
        for call in reversed(self.calls):
            if later.intersection(call.results) or call.step.written:
                found.append(call)
                later |= set(call.arguments)
        return found[::-1]

    def replay_of(self, results: Sequence[Tensor]) -> Callable[..., list[Tensor]]:
        """The function of the inputs; tensors are freed after their last use, pointwise operators overwrite some."""
        wanted = [self.place(each) for each in results]
        later = {*range(self.inputs), *wanted, *self.constants}  # registers that are still needed
        operations: list[Operation] = []
        for call in reversed(self.needed(wanted)):
            overwrites = self._may_overwrite(call, later)
            function = caller(call.step, IN_PLACE[call.step.func] if overwrites else binding(call.step.func))
            several = isinstance(call.step.outputs, list | tuple)
            freed = tuple({*call.arguments, *call.results} - later)
            operations.append((function, reader(call.arguments), call.results if several else call.results[0], freed))
            later |= set(call.arguments)
        operations.reverse()
        blank: list[Any] = [self.constants.get(place) for place in range(self.registers)]
        return replay_operations(operations, blank, slice(self.inputs), wanted)

    def _may_overwrite(self, call: Call, later: set[int]) -> bool:
        """Whether a pointwise operator's argument is needed by no later one and has the result's memory layout."""
        if call.step.func not in IN_PLACE:
            return False
        busy = {self.storages[place] for place in later if place in self.storages}
        argument: Tensor = call.step.args[0]
        return self.storages[call.arguments[0]] not in busy and argument.stride() == call.step.outputs.stride()

    def constant_bytes(self, known: set[int]) -> int:
        """The bytes of constants in storages that are not known."""
        found = {
            address_of(each): each.untyped_storage().nbytes() for each in tensors_of(list(self.constants.values()))
        }
        return sum(size for address, size in found.items() if address not in known)


Replay = Callable[[Program, Sequence[Tensor]], Callable[..., list[Tensor]]]


def replay_operations(
    operations: list[Operation], blank: list[Any], given: slice, wanted: list[int]
) -> Callable[..., list[Tensor]]:
    """The function of the inputs, which are put into the registers `given`, that returns the registers `wanted`.

    `blank` are the registers before it.
    """

    def replay(*inputs: Tensor) -> list[Tensor]:
        registers = blank.copy()
        registers[given] = inputs
        for function, read, places, freed in operations:
            if read is None:
                function()
                continue
            made = function(*read(registers))
            if isinstance(places, int):
                registers[places] = made
            else:
                for place, each in zip(places, made, strict=True):
                    registers[place] = each
            for place in freed:
                registers[place] = None
        return [registers[place] for place in wanted]

    return replay


def lengths(step: Step) -> tuple[int | None, ...]:
    """For each argument of an operator, the number of its tensors if it is a list of them."""
    return tuple(len(each) if isinstance(each, list | tuple) and has_tensors(each) else None for each in step.args)


def flat_arguments(step: Step) -> list[Any]:
    """The arguments with lists of tensors unpacked, and then tensors that are given by name, such as `out`."""
    pairs = zip(step.args, lengths(step), strict=True)
    flat = [each for value, length in pairs for each in ([value] if length is None else value)]
    return [*flat, *tensors_of(step.kwargs)]


def plain_kwargs(step: Step) -> dict[str, Any]:
    """The arguments by name that are no tensors."""
    return {name: value for name, value in step.kwargs.items() if not isinstance(value, Tensor)}


def binding(func: Any) -> Callable:
    """The same operator by torch's own binding, if it has one, which takes a microsecond less than `torch.ops`."""
    name = func._schema.name.removeprefix("aten::")
    found: Callable = getattr(torch, name, None) or getattr(Tensor, name, None) or func
    return found if isinstance(found, BuiltinFunctionType | MethodDescriptorType) else func


def caller(step: Step, plain: Callable) -> Callable:
    """An operator as a function of its unpacked arguments."""
    others = plain_kwargs(step)
    names = [name for name in step.kwargs if name not in others]
    function = partial(plain, **others) if others else plain
    counts = lengths(step)
    if not any(counts) and not names:
        return function

    def packed(*flat: Any) -> Any:
        rest = iter(flat)
        args = [next(rest) if count is None else list(islice(rest, count)) for count in counts]
        return function(*args, **dict(zip(names, rest, strict=True)))

    return packed


def reader(places: tuple[int, ...]) -> Callable[[list], Any]:
    """The values of these registers, as a sequence."""
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))


def address_of(tensor: Tensor) -> int:
    """The address of a tensor's storage."""
    return tensor.untyped_storage().data_ptr()


def view_of(tensor: Tensor) -> tuple:
    """The memory that a tensor describes."""
    return (address_of(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


def tensors_of(values: Any) -> Iterator[Tensor]:
    """The tensors among nested lists, tuples and dicts."""
    return (each for each in tree_leaves(values) if isinstance(each, Tensor))


def has_tensors(values: Any) -> bool:
    return any(True for _ in tensors_of(values))
